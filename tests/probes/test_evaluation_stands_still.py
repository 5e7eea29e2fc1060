"""GEN005."""

import itertools
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes._standing import coarseness
from tracker_health.probes.evaluation_stands_still import EvaluationStandsStill
from tracker_health.roles import assign

CODE = "GEN005"
RULE = EvaluationStandsStill()
FEW = settings(max_examples=80, deadline=None)
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


def followed(n=10, *, gap=1.05, decimals=None, seed=1, **settings):
    """A validation loss as sound as its training loss."""
    values = gap * learning(n, noise=0.003, seed=seed, **settings)
    return values if decimals is None else np.round(values, decimals)


def stuck(at, n=10, **settings):
    """A validation loss that is sound for so many evaluations, and repeats the last of them from there on."""
    values = followed(n, **settings)
    values[at:] = values[at]
    return values


# Once more, in plain Python


def last_digit(value):
    """By trying: how many decimals the number has, and how many bits behind the point."""
    exact, decimals = Decimal(repr(value)), Decimal(10) ** 20
    while exact % decimals:
        decimals /= 10
    bits = Fraction(2) ** 20
    while Fraction(value) % bits:
        bits /= 2
    return float(max(Fraction(decimals), bits))


def naive(losses, loss_steps, held_out, steps, plain, rule=RULE):
    """The finding's numbers, or None, and by how much each condition is met or missed."""
    runs = []
    for value in held_out:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    value, repeats = runs.pop()
    earlier = [length for _, length in runs]
    falling = all(b <= a for a, b in itertools.pairwise(held_out))
    if repeats < rule.min_repeats or 2 * repeats < len(held_out) or value == 0:
        return None, []
    if any(4 * length > repeats for length in earlier) or (falling and any(length > 1 for length in earlier)):
        return None, []
    if not earlier and steps[0] - loss_steps[0] > 4 * plain.median([b - a for a, b in itertools.pairwise(steps)]):
        return None, []
    step = steps[len(held_out) - repeats]
    share = loss_steps[-1] / steps[-1]
    since = [
        loss for loss, at in zip(losses, loss_steps, strict=True) if at > (step if 0.5 <= share <= 2 else step * share)
    ]
    if len(since) < 4:
        return None, []
    quarter = len(since) // 4
    before, after = plain.median(since[:quarter]), plain.median(since[-quarter:])
    start = max(abs(plain.median(losses[:3])), abs(before), abs(after))
    few = {"repeats": repeats, "stands_at": value, "train_before": before, "train_after": after}
    error = math.sqrt(2) * plain.median_error(plain.evaluation_noise(since), quarter)
    trend = plain.trend([plain.median(block) for block in plain.blocks(since, max(1, len(since) // 20))])
    significant = before - after - 3 * error
    margins = [
        max(-2.3 - trend, min(-1.5 - trend, significant)),
        before - after - rule.min_fall * start,
        (before - after) * abs(value) - 100 * last_digit(value) * abs(before),
    ]
    if all(margin > 0 for margin in margins):
        return few | {"fall_share": (before - after) / start}, margins
    return (few if stopped(losses, since, held_out, repeats, margins, plain) else None), margins


def stopped(losses, since, held_out, repeats, margins, plain):
    """Whether most of the evaluations are one number of five digits, and not all is learnt."""
    left = abs(plain.median(since)) - 0.01 * abs(plain.median(losses[:3]))
    margins.append(left)
    fine = last_digit(held_out[-1]) <= 1e-4 * abs(held_out[-1])
    return repeats >= 8 and 4 * repeats >= 3 * len(held_out) and fine and left > 0


def assert_as_naive(losses, held_out, plain, make, judge, *, every=1):
    steps = [every * (index + 1) for index in range(len(held_out))]
    loss_steps = list(range(1, len(losses) + 1))
    found, margins = naive(losses, loss_steps, held_out, steps, plain)
    assume(all(abs(margin) > 1e-9 for margin in margins))
    result = judge(CODE, pair(make, losses, held_out, steps=steps))
    assert result.verdict == ("pass" if found is None else "warn")
    for name, value in (found or {}).items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name
    return found


@FEW
@given(
    losses=st.lists(st.floats(-2, 5), min_size=4, max_size=60),
    held_out=st.lists(st.sampled_from([0.0, 0.5, 1.25, 2.3026, INITIAL, -1.5, 2.31]), min_size=5, max_size=12),
    every=st.integers(1, 8),
)
def test_against_plain_python(losses, held_out, every, plain, make, judge):
    assert_as_naive(losses, held_out, plain, make, judge, every=every)


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(10, 150),
    evaluations=st.integers(5, 12),
    at=st.integers(0, 11),
    end=st.floats(0.2, 2.4),
    noise=st.floats(0, 0.2),
    decimals=st.none() | st.integers(1, 6),
)
def test_curves_against_plain_python(seed, n, evaluations, at, end, noise, decimals, plain, make, judge):
    losses = learning(n, end=end, noise=noise, seed=seed)
    held_out = stuck(min(at, evaluations - 1), evaluations, decimals=decimals, seed=seed)
    assert_as_naive(losses.tolist(), held_out.tolist(), plain, make, judge, every=max(1, n // evaluations))


@pytest.mark.parametrize(("value", "unit"), [
    (2.31, 0.01), (2.3, 0.1), (2.0, 2.0), (230.0, 10.0), (-0.125, 0.125), (2.296875, 1 / 64), (0.0012, 1e-4), (3e-8, 1e-8),
    (INITIAL, 2.0**-21), (0.1 + 0.2, 1e-17), (1e300, 1e300), (5e-324, 5e-324),
])  # fmt: skip
def test_the_unit_of_the_last_digit(value, unit):
    assert coarseness(value) == pytest.approx(unit, rel=1e-9)


@given(
    st.one_of(
        st.floats(1e-9, 1e5), st.floats(2.0**-9, 2.0**9, width=16), st.floats(0.001, 99).map(lambda one: round(one, 3))
    )
)
def test_the_unit_of_the_last_digit_by_trying(value):
    assert coarseness(value) == pytest.approx(last_digit(value), rel=1e-9)


# Sick


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "evaluations"), [(400, 10), (40, 40), (12, 12), (6, 6), (60, 5)])
def test_the_initial_copy_is_evaluated(n, evaluations, seed, make, judge):
    result = judge(CODE, pair(make, learning(n, seed=seed), np.full(evaluations, INITIAL)))
    assert result.verdict == "warn"
    assert f"one number, 2.303, in the last {evaluations} of {evaluations} evaluations" in result.message
    assert "which model is evaluated" in result.remedy
    assert result.measured["repeats"] == evaluations


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_copy_that_is_stuck_from_some_step_on(at, make, judge):
    held_out = stuck(at)
    result = judge(CODE, pair(make, learning(), held_out))
    assert result.verdict == "warn"
    assert result.steps == (20 * (at + 1),)
    assert result.measured["repeats"] == 10 - at
    assert result.measured["stands_at"] == held_out[-1]


def test_stuck_for_less_than_half_or_less_than_four_is_not_told(make, judge):
    assert judge(CODE, pair(make, learning(rate=1.0), stuck(6))).verdict == "pass"
    assert judge(CODE, pair(make, learning(rate=1.0), stuck(3, 6))).verdict == "pass"


def test_a_copy_that_is_stuck_in_a_log_with_more_rows_than_evaluations(make, judge):
    """Each evaluation is copied onto twenty rows; the last of the model that is trained is the third."""
    held_out = np.repeat([2.11, 2.12, *[1.2345678] * 8], 20)
    assert judge(CODE, pair(make, learning(), held_out)).verdict == "warn"


@pytest.mark.parametrize(("decimals", "verdict"), [(4, "warn"), (3, "warn"), (2, "warn"), (1, "pass")])
def test_rounded_numbers_show_it_when_the_training_falls_far(decimals, verdict, make, judge):
    assert judge(CODE, pair(make, learning(), np.full(10, round(2.3179, decimals)))).verdict == verdict


def test_validation_in_another_unit(make, judge):
    """A perplexity, or a sum over the batch."""
    for factor in (0.01, 1.0, 64.0):
        assert judge(CODE, pair(make, learning(), np.full(10, factor * INITIAL))).verdict == "warn"


@pytest.mark.parametrize(("loss_steps", "steps"), [
    (np.arange(1, 201), np.arange(1, 11)), (np.arange(1, 201) / 20, 100 * np.arange(1, 11)),
], ids=["evaluations by epoch", "training by epoch"])  # fmt: skip
def test_one_axis_counts_epochs(loss_steps, steps, make, judge):
    losses = learning(200)[:: 1 if loss_steps[-1] == 200 else 20]
    evidence = pair(make, losses, np.full(10, INITIAL), steps=steps, loss_steps=loss_steps[:: 200 // len(losses)])
    assert judge(CODE, evidence).verdict == "warn"
    # What was learnt before it stood still is not counted.
    evidence = pair(
        make, learning(200, rate=100.0), stuck(5, rate=100.0), steps=steps[:10], loss_steps=np.arange(1, 201)
    )
    assert judge(CODE, evidence).verdict == "pass"


# Healthy, and what only looks like it


@pytest.mark.parametrize("decimals", [None, 4, 3, 2])
@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, decimals, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    size = max(1, len(losses) // 8)
    held_out = [float(np.median(losses[at : at + size])) for at in range(size, len(losses) - size + 1, size)]
    held_out = held_out if decimals is None else np.round(held_out, decimals)
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


@pytest.mark.parametrize("decimals", [2, 3, 4])
@pytest.mark.parametrize("evaluations", [5, 10, 40])
def test_a_converged_loss_that_is_rounded_repeats(evaluations, decimals, make, judge):
    """It has levelled off at the first evaluation, and is the same to the last decimal from there on; so is the training
    loss, up to its noise.
    """
    for seed in range(20):
        losses = np.round(learning(400, rate=60.0, seed=seed), decimals)
        held_out = np.round(
            0.35 + 0.1 * 10.0**-decimals * np.random.default_rng(seed).standard_normal(evaluations), decimals
        )
        assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_a_training_loss_that_falls_by_less_than_rounding_hides(decimals, make, judge):
    """At a minimum the validation loss hardly moves: what the training gains meanwhile says nothing yet."""
    fall = 50 * 10.0**-decimals
    losses = np.concatenate(
        [learning(40, rate=20.0, noise=0.0), np.linspace(0.31, 0.31 - min(fall, 0.25) * 0.31 / 0.35, 160)]
    )
    held_out = np.concatenate([[0.41, 0.37], np.full(8, round(0.3512, decimals))])
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


def test_half_precision_is_coarse(make, judge):
    """2.296875 has six decimals, and its neighbours in bfloat16 are 2.28125 and 2.3125."""
    losses = np.linspace(2.4, 2.1, 200)
    assert judge(CODE, pair(make, losses, np.full(10, 2.296875))).verdict == "pass"
    assert judge(CODE, pair(make, losses, np.full(10, 2.296873))).verdict == "warn"


@pytest.mark.parametrize("digits", [4, 6])
def test_a_fine_tune_that_gains_little(digits, make, judge):
    """It gains one percent, levels off, and ends with a learning rate near 0: the last evaluations are the same."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        losses = 2.1 * (0.99 + 0.01 * np.exp(-8 * np.arange(300) / 300)) * (1 + 0.03 * rng.standard_normal(300))
        noise = 1e-4 * np.linspace(1, 0, 10) ** 2 * rng.standard_normal(10)
        held_out = np.round(
            2.09 + 0.02 * np.exp(-np.arange(10.0)) * np.array([*np.ones(5), *np.zeros(5)]) + noise, digits
        )
        held_out[-5:] = held_out[-1]
        assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


def test_a_learning_rate_of_0_stops_both(make, judge):
    """Where that was meant so, late in the run, it is none of this rule's business."""
    losses = np.concatenate([learning(80), 0.3 + 0.006 * np.random.default_rng(0).standard_normal(120)])
    assert judge(CODE, pair(make, losses, stuck(4))).verdict == "pass"


@pytest.mark.parametrize(
    ("at", "n", "decimals", "rate", "verdict"),
    [
        pytest.param(4, 20, None, None, "warn", id="most of the run"),
        pytest.param(4, 20, 4, None, "pass", id="four digits may hide a small change"),
        pytest.param(8, 20, None, None, "pass", id="a schedule may have ended"),
        pytest.param(8, 20, 4, 1e-3, "warn", id="at a rate that goes on"),
        pytest.param(8, 20, 2, 1e-3, "pass", id="two digits"),
        pytest.param(11, 20, 4, 1e-3, "pass", id="less than half"),
        pytest.param(8, 20, 4, 1e-5, "pass", id="at a rate that has come down"),
        pytest.param(2, 9, None, None, "pass", id="few evaluations"),
        pytest.param(2, 9, None, 1e-3, "warn", id="few evaluations at a rate that goes on"),
        pytest.param(2, 9, 4, 1e-3, "pass", id="few evaluations of four digits"),
        pytest.param(3, 7, None, 1e-3, "pass", id="too few evaluations"),
        pytest.param(4, 20, None, 0.0, "pass", id="at a rate of 0, which another rule tells"),
    ],
)
def test_weights_that_no_longer_change(at, n, decimals, rate, verdict, make, judge):
    noise = 0.03 * np.random.default_rng(0).standard_normal(200)
    losses = np.maximum(learning(200, rate=20.0), 0.5) + noise
    held_out = make.series(stuck(at, n, decimals=decimals), np.arange(1, n + 1) * 200 // n, role="val_loss")
    more = [] if rate is None else [make.series(np.append(1e-3, np.full(199, rate)), role="learning_rate")]
    result = judge(CODE, make.evidence(losses, held_out, *more, steps=np.arange(1, 201)))
    assert result.verdict == verdict
    if verdict == "warn":
        assert "no longer change" in result.message


def test_all_is_learnt(make, judge):
    """A hinge loss that is 0 has no gradient."""
    losses = np.append(learning(40, end=0.0, rate=20.0), np.zeros(160))
    assert judge(CODE, pair(make, losses, stuck(2, 20))).verdict == "pass"


def test_the_mean_of_the_epoch_in_which_the_rate_became_0_is_no_fall(make, judge):
    """Of an epoch's mean, the row beside an evaluation is older than this."""
    losses = [2.3, 1.4, 0.9, 0.5, 0.501, 0.499, 0.5, 0.5, 0.5, 0.501]
    held_out = [2.1, 1.2, 0.6123456, *[0.5123456] * 7]
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


@pytest.mark.parametrize("copies", [2, 20, 50])
def test_a_log_with_more_rows_than_evaluations(copies, make, judge):
    for evaluations in (2, 3, 4, 10):
        losses, held_out = learning(evaluations * copies), np.repeat(followed(evaluations), copies)
        assert judge(CODE, pair(make, losses, held_out)).verdict in ("pass", "SkippedProbe")


@pytest.mark.parametrize("placeholder", [None, np.nan, np.inf, 0.0])
def test_one_evaluation_that_is_copied_from_row_to_row(placeholder, make, judge):
    """Taken once, in the middle, with nothing or a placeholder before it; the run ended before the second."""
    losses, steps = learning(150), np.arange(1, 151)
    if placeholder is None:
        evidence = pair(make, losses, np.full(50, 0.7654321), steps=steps[100:])
    else:
        evidence = pair(make, losses, [*[placeholder] * 100, *[0.7654321] * 50], steps=steps)
    assert judge(CODE, evidence).verdict == "pass"


def test_the_best_value_so_far(make, judge):
    """It never rises, and stands wherever the validation did not improve."""
    held_out = [2.1, 1.7, 1.7, 1.4, 1.31, *[1.2345678] * 9]
    assert judge(CODE, pair(make, learning(280), held_out)).verdict == "pass"
    assert judge(CODE, pair(make, learning(280), [2.1, 2.2, 2.2, 1.4, 1.31, *[1.2345678] * 9])).verdict == "warn"


def test_a_name_that_says_best_is_no_validation_loss():
    names = ["train/loss", "best_val_loss", "val/best_loss", "val_loss_best", "best/val/loss", "min_val_loss"]
    assert "val_loss" not in assign(names).values()


def test_a_loss_of_0_is_no_number_that_is_repeated(make, judge):
    for zero in (0.0, -0.0):
        assert judge(CODE, pair(make, learning(), np.full(10, zero))).verdict == "pass"


def test_nan_among_the_evaluations(make, judge):
    held_out = np.array([np.nan, INITIAL] * 6)
    assert judge(CODE, pair(make, learning(240), held_out)).verdict == "warn"
    assert judge(CODE, pair(make, learning(240), np.full(12, np.nan))).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, learning(240), [*followed(8), *[np.nan] * 4])).verdict == "pass"


def test_a_training_loss_that_rises_or_only_scatters(make, judge):
    rng = np.random.default_rng(0)
    for losses in (np.linspace(1.0, 2.0, 100), 2.3 + 0.1 * rng.standard_normal(100), np.full(100, 2.3)):
        assert judge(CODE, pair(make, losses, np.full(7, INITIAL))).verdict == "pass"


def test_a_training_loss_that_begins_and_ends_at_0(make, judge):
    losses = np.concatenate([np.zeros(10), np.linspace(1, 0, 20).repeat(2), np.zeros(30)])
    assert judge(CODE, pair(make, losses, np.full(10, INITIAL))).verdict == "warn"


def test_too_few_points_are_skipped(make, judge):
    assert judge(CODE, pair(make, learning(), np.full(4, INITIAL))).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, [2.3, 1.1, 0.5], np.full(10, INITIAL))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(learning())).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(None, make.series(np.full(9, INITIAL), role="val_loss"))).verdict == "SkippedProbe"


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-6, "pass"), (1 + 1e-6, "warn")])
def test_boundary_of_the_fall(factor, verdict, make, judge):
    losses = np.concatenate(
        [
            [2.0] * 10,
            np.linspace(2.0, 2.0 * (1 - RULE.min_fall * factor), 10),
            [2.0 * (1 - RULE.min_fall * factor)] * 10,
        ]
    )
    evidence = pair(make, losses, np.full(7, INITIAL), steps=np.arange(0, 28, 4))
    assert judge(CODE, evidence).verdict == verdict


# The first symptom is the right one


@pytest.mark.parametrize("held_out", [np.full(10, INITIAL), stuck(2)], ids=["initial copy", "stuck"])
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


# Laws


@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-40, 40), seed=st.integers(0, 2))
def test_the_unit_of_both_losses_does_not_matter(exponent, seed, make, judge):
    losses = learning(seed=seed)
    for values, verdict in ((np.full(10, INITIAL), "warn"), (stuck(3), "warn"), (followed(), "pass")):
        assert judge(CODE, pair(make, losses * 2.0**exponent, values * 2.0**exponent)).verdict == verdict


@FEW
@given(
    at=st.integers(0, 8),
    end=st.floats(0.5, 2.3),
    repeats=st.tuples(st.integers(2, 10), st.integers(2, 10)),
    falls=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_stricter_thresholds_never_find_more(at, end, repeats, falls, make, judge):
    evidence = pair(make, learning(end=end), stuck(at))
    looser = {"min_repeats": min(repeats), "min_fall": min(falls)}
    stricter = {"min_repeats": max(repeats), "min_fall": max(falls)}
    if judge(CODE, evidence, **stricter).verdict == "warn":
        assert judge(CODE, evidence, **looser).verdict == "warn"


@FEW
@given(at=st.integers(0, 9), index=st.integers(0, 9), up=st.floats(1e-6, 1))
def test_one_other_number_in_the_second_half_is_enough_to_pass(at, index, up, make, judge):
    """Where an evaluation of the last four differs from the others, the model that is evaluated moves."""
    held_out = stuck(at)
    held_out[6 + index % 4] += up
    assert judge(CODE, pair(make, learning(), held_out)).verdict == "pass"


def test_steps_out_of_order_change_nothing(make, judge):
    evidence = pair(make, learning(), stuck(3))
    order = np.random.default_rng(0).permutation(10)
    loss, held_out = evidence.series
    shuffled = replace(
        evidence, series=(loss, make.series(held_out.values[order], held_out.steps[order], role="val_loss"))
    )
    assert judge(CODE, shuffled).measured == judge(CODE, evidence).measured


def test_more_repeats_than_there_are_find_nothing(make, judge):
    """Neither by the training loss nor by the number alone."""
    evidence = pair(make, learning(), np.full(10, INITIAL))
    assert judge(CODE, evidence).verdict == "warn"
    assert judge(CODE, evidence, min_repeats=50).verdict == "pass"
