"""GEN005."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.roles import assign

CODE = "GEN005"
FEW = settings(max_examples=draws(60), deadline=None)
INITIAL = 2.302584171295166  # of an untrained classifier among ten, in single precision


def learning(n=200, *, start=2.3, end=0.3, rate=5.0, noise=0.02, seed=0):
    level = end + (start - end) * np.exp(-rate * np.arange(1, n + 1) / n)
    return level * (1 + noise * np.random.default_rng(seed).standard_normal(n))


def pair(make, losses, held_out, *, steps=None, loss_steps=None):
    """Evidence with a training loss, and a validation loss at evenly spaced steps up to its end."""
    n = len(losses)
    steps = np.linspace(n / len(held_out), n, len(held_out)).round() if steps is None else steps
    loss_steps = np.arange(1, n + 1) if loss_steps is None else loss_steps
    return make.evidence(losses, make.series(held_out, steps, role="val_loss"), steps=loss_steps)


def followed(n=10, *, decimals=None, seed=1, **settings):
    """A validation loss as sound as its training loss."""
    values = 1.05 * learning(n, noise=0.003, seed=seed, **settings)
    return values if decimals is None else np.round(values, decimals)


def stuck(at, n=10, **settings):
    """A validation loss that is sound for so many evaluations, and repeats the last of them from there on."""
    values = followed(n, **settings)
    values[at:] = values[at]
    return values


def test_worked_example(make, judge):
    """Six evaluations are 2.303, all of them; the training loss falls from 2.2 to 0.4 meanwhile."""
    losses = [2.2, 1.5, 1.1, 0.8, 0.6, 0.5, 0.45, 0.42, 0.41, 0.4]
    result = judge(CODE, pair(make, losses, np.full(6, 2.303)))
    assert (result.verdict, result.steps) == ("warn", (2,))
    assert result.measured["repeats"] == result.measured["evaluations"] == 6
    assert (
        "in the last 6 of 6 evaluations, from step 2 on, while the training loss went from 1.5 to 0.4" in result.message
    )


@pytest.mark.parametrize(("n", "evaluations"), [(400, 10), (40, 40), (12, 12), (60, 5)])
def test_the_initial_copy_is_evaluated(n, evaluations, make, judge):
    result = judge(CODE, pair(make, learning(n), np.full(evaluations, INITIAL)))
    assert result.verdict == "warn"
    assert "which model is evaluated" in result.remedy


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_copy_that_is_stuck_from_some_step_on(at, make, judge):
    held_out = stuck(at)
    result = judge(CODE, pair(make, learning(rate=2.0), held_out))
    assert (result.verdict, result.steps) == ("warn", (20 * (at + 1),))
    assert result.measured["stands_at"] == held_out[-1]


def test_evaluations_by_epoch_beside_a_training_by_step(make, judge):
    evidence = pair(make, learning(), np.full(10, INITIAL), steps=np.arange(1, 11))
    assert judge(CODE, evidence).verdict == "warn"


@pytest.mark.parametrize(("decimals", "verdict"), [(4, "warn"), (2, "warn"), (1, "pass")])
def test_rounded_numbers_show_it_when_the_training_falls_far(decimals, verdict, make, judge):
    assert judge(CODE, pair(make, learning(), np.full(10, round(2.3179, decimals)))).verdict == verdict


def test_half_precision_is_coarse(make, judge):
    """2.296875 has six decimals, and its neighbours in bfloat16 are 2.28125 and 2.3125."""
    losses = np.linspace(2.4, 2.1, 200)
    assert judge(CODE, pair(make, losses, np.full(7, 2.296875))).verdict == "pass"
    assert judge(CODE, pair(make, losses, np.full(7, 2.296873))).verdict == "warn"


@pytest.mark.parametrize(
    ("at", "n", "decimals", "verdict"),
    [
        pytest.param(4, 20, None, "warn", id="most of the run"),
        pytest.param(4, 20, 3, "pass", id="few digits may hide a small change"),
        pytest.param(8, 20, None, "pass", id="a schedule may have ended"),
        pytest.param(2, 7, None, "pass", id="few evaluations"),
    ],
)
def test_weights_that_no_longer_change(at, n, decimals, verdict, make, judge):
    losses = np.maximum(learning(200, rate=20.0), 0.5) + 0.03 * np.random.default_rng(0).standard_normal(200)
    assert judge(CODE, pair(make, losses, stuck(at, n, decimals=decimals))).verdict == verdict


@pytest.mark.parametrize("decimals", [None, 4, 2])
@pytest.mark.thinned(3)
def test_healthy(healthy_name, decimals, healthy, make, judge):
    losses = getattr(healthy, healthy_name)()
    size = max(1, len(losses) // 8)
    held_out = [float(np.median(losses[at : at + size])) for at in range(size, len(losses) - size + 1, size)]
    held_out = held_out if decimals is None else np.round(held_out, decimals)
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_a_converged_loss_that_is_rounded_repeats(decimals, make, judge):
    for seed in range(10):
        losses = np.round(learning(400, rate=60.0, seed=seed), decimals)
        noise = 0.1 * 10.0**-decimals * np.random.default_rng(seed).standard_normal(10)
        assert judge(CODE, pair(make, losses, np.round(0.35 + noise, decimals))).verdict == "pass"


@pytest.mark.parametrize("copies", [2, 20])
def test_a_log_with_more_rows_than_evaluations(copies, make, judge):
    for evaluations in (3, 4, 10):
        losses, held_out = learning(evaluations * copies), np.repeat(followed(evaluations), copies)
        assert judge(CODE, pair(make, losses, held_out)).verdict in ("pass", "SkippedProbe")
    stuck_rows = np.repeat([2.11, 2.12, *[1.2345678] * 8], copies)
    assert judge(CODE, pair(make, learning(), stuck_rows)).verdict == "warn"


def test_a_name_that_says_best_is_no_validation_loss():
    names = ["train/loss", "best_val_loss", "val/best_loss", "val_loss_best", "best/val/loss", "min_val_loss"]
    assert "val_loss" not in assign(names).values()


def test_a_loss_of_0_is_no_number_that_is_repeated(make, judge):
    for zero in (0.0, -0.0):
        assert judge(CODE, pair(make, learning(), np.full(10, zero))).verdict == "pass"


def test_a_training_loss_that_rises_or_only_scatters(make, judge):
    rng = np.random.default_rng(0)
    for losses in (np.linspace(1.0, 2.0, 100), 2.3 + 0.1 * rng.standard_normal(100), np.full(100, 2.3)):
        assert judge(CODE, pair(make, losses, np.full(7, INITIAL))).verdict == "pass"


def test_too_few_points_are_skipped(make, judge):
    assert judge(CODE, pair(make, learning(), np.full(3, INITIAL))).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, [2.3, 1.1, 0.5], np.full(10, INITIAL))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(learning())).verdict == "SkippedProbe"


@pytest.mark.parametrize("held_out", [np.full(10, INITIAL), stuck(1)], ids=["initial copy", "stuck"])
def test_the_other_rules_on_validation_leave_it_alone(held_out, make, report):
    evidence = pair(make, learning(end=0.02), held_out)
    accuracies = (
        make.series(np.linspace(0.1, 1.0, 200), role="train_accuracy"),
        make.series(np.full(10, 0.1), np.arange(20, 201, 20), role="val_accuracy"),
    )
    found = report(replace(evidence, series=(*evidence.series, *accuracies)))
    assert [one.code for one in found.findings] == [CODE]
    skipped = {one.code: one.reason for one in found.skipped}
    assert all("GEN005" in skipped[code] for code in ("GEN001", "GEN002", "GEN003", "GEN004"))


@FEW
@given(exponent=st.integers(-40, 40), seed=st.integers(0, 2))
def test_the_unit_of_both_losses_does_not_matter(exponent, seed, make, judge):
    losses = learning(seed=seed)
    for values, verdict in ((np.full(10, INITIAL), "warn"), (stuck(1), "warn"), (followed(), "pass")):
        assert judge(CODE, pair(make, losses * 2.0**exponent, values * 2.0**exponent)).verdict == verdict


@FEW
@given(at=st.integers(0, 9), index=st.integers(0, 9), up=st.floats(1e-6, 1))
def test_one_other_number_at_the_end_is_enough_to_pass(at, index, up, make, judge):
    """Where an evaluation of the last four differs from the others, the model that is evaluated moves."""
    held_out = stuck(at)
    held_out[6 + index % 4] += up
    assert judge(CODE, pair(make, learning(), held_out)).verdict == "pass"
