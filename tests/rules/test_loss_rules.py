"""Rules on the curve of a loss: of each healthy, faulty and near-miss histories, and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.registry import BUILT_IN

FEW = settings(max_examples=draws(40), deadline=None)
IN_NATS = {"LOS006", "LOS009", "LOS012"}
"""They compare the loss with what guessing has."""


def on(role):
    """The rules on the curve of a role, whatever the unit of the loss."""
    return [one.code for one in BUILT_IN if issubclass(one, CurveRule) and one.role == role and one.code not in IN_NATS]


LOSS_RULES, VALIDATION_RULES = on("train_loss"), on("val_loss")


def noise(n, size=0.02, seed=0):
    return size * np.random.default_rng(seed).standard_normal(n)


def held_out(make, values, last):
    return make.series(values, np.linspace(last / len(values), last, len(values)).astype(int), role="val_loss")


# Laws of all of them


@pytest.mark.parametrize("code", LOSS_RULES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(3)
def test_healthy_histories_pass(code, healthy_name, seed, healthy, make, judge):
    assert judge(code, make.evidence(getattr(healthy, healthy_name)(seed))).verdict in ("pass", "SkippedProbe")


@pytest.mark.parametrize("code", [*LOSS_RULES, *VALIDATION_RULES])
@FEW
@given(
    values=st.lists(st.floats(0, 50), min_size=4, max_size=60),
    later=st.lists(st.floats(0, 50), min_size=4, max_size=20),
    exponent=st.integers(-30, 30),
)
def test_the_unit_of_the_loss_does_not_matter(code, values, later, exponent, make, judge):
    # 2e-300 lies below what rounding leaves, whatever the unit
    values, later = (np.where(np.abs(one) < 1e-6, 0.0, one) for one in (np.array(values), np.array(later)))
    verdicts = {
        judge(code, make.evidence(values * unit, held_out(make, later * unit, len(values)))).verdict
        for unit in (1.0, 2.0**exponent)
    }
    assert len(verdicts) == 1


@pytest.mark.parametrize("code", LOSS_RULES)
def test_logging_more_often_changes_nothing(code, healthy, sick, make, judge):
    for losses in (healthy.descent(n=2000, noise=0.02), sick.exploding(), sick.at_chance()):
        often, seldom = (judge(code, make.evidence(losses[::k], steps=np.arange(0, len(losses), k))) for k in (1, 4))
        assert often.verdict == seldom.verdict


# LOS004


@pytest.mark.parametrize("name", ["exploding", "drifting_up", "rescued_explosion", "from_the_start"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stride", [1, 10])
@pytest.mark.thinned(2)
def test_divergences_are_found(name, seed, stride, sick, make, judge):
    result = judge("LOS004", make.evidence(getattr(sick, name)(seed)[::stride]))
    assert result.verdict == "fail"
    assert result.steps


def test_worked_example_of_a_divergence(make, judge):
    """From 4 down to 1 and up to 2.5: 1.5 of a descent of 3 are lost, and half is more than `rise_share`."""
    losses = np.concatenate([np.linspace(4.0, 1.0, 200), np.linspace(1.0, 2.5, 200)]) + noise(400)
    result = judge("LOS004", make.evidence(losses))
    assert result.verdict == "fail"
    assert result.measured["rise_share"] == pytest.approx(0.45, abs=0.1)
    assert 200 <= result.steps[0] <= 320
    assert judge("LOS004", make.evidence(losses), rise_share=0.6).verdict == "pass"


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([2.3, 1.5, 1.2, 80.0, 90.0, 95.0], "warn"),  # few points, and far
        ([2.3, 1.5, 1.2, 1.0, 1.1, 1.0], "pass"),
        ([2.3, 1.5, 1.2, 1.1], "pass"),
        ([14.2] + [14.5] * 12, "pass"),  # up by a fiftieth of a flat curve's level
    ],
)
def test_divergences_of_few_points(losses, verdict, make, judge):
    assert judge("LOS004", make.evidence(losses)).verdict == verdict


def test_a_spike_at_the_end_is_no_divergence(healthy, make, judge):
    losses = healthy.descent(n=400)
    losses[-2] *= 40
    assert judge("LOS004", make.evidence(losses)).verdict == "pass"


def test_a_loss_without_a_bound(make, judge):
    losses = 1.0 - np.geomspace(1.0, 1e5, 200)
    assert judge("LOS004", make.evidence(losses)).verdict == "fail"
    assert judge("LOS004", make.evidence(losses / 1e3)).verdict == "pass"


def test_a_rise_behind_a_restart_of_the_rate_is_unsure(make, judge):
    losses = np.concatenate([np.linspace(4.0, 1.0, 180), np.full(20, 2.0)]) + noise(200)
    rate = np.concatenate([0.5 * (1 + np.cos(np.pi * np.arange(180) / 180)), np.ones(20)])
    verdicts = [
        judge("LOS004", make.evidence(losses, *some)).verdict
        for some in ((), (make.series(rate, role="learning_rate"),))
    ]
    assert verdicts == ["fail", "warn"]


def test_a_resume_that_ended_early_makes_a_divergence_unsure(sick, make, judge):
    losses, steps = sick.exploding(), np.arange(400)
    twice = make.evidence(np.append(losses, losses[100:300]), steps=np.append(steps, steps[100:300]))
    assert judge("LOS004", twice).verdict in ("warn", "pass")


def test_while_a_weight_of_the_objective_rises_the_loss_may(make, judge):
    losses = np.concatenate([np.linspace(4.0, 1.0, 100), np.linspace(1.0, 2.5, 100), np.full(100, 2.4)]) + noise(300)
    weight = make.series(np.minimum(1.0, np.arange(300) / 200), role="objective_weight", name="kl_weight")
    assert judge("LOS004", make.evidence(losses)).verdict == "fail"
    result = judge("LOS004", make.evidence(losses, weight))
    assert result.verdict == "pass"
    assert "kl_weight" in result.message


def test_a_running_mean_that_began_at_0(make, judge):
    losses = 1.0 + 3.0 * np.exp(-5 * np.arange(400) / 400) + noise(400)
    mean, means = 0.0, []
    for loss in losses:
        mean += 0.05 * (loss - mean)
        means.append(mean)
    assert judge("LOS004", make.evidence(means)).verdict == "pass"


# LOS005


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [12, 30, 500])
def test_a_loss_that_never_came_down(seed, n, make, judge):
    result = judge("LOS005", make.evidence(np.log(10) + noise(n, 0.003, seed)))
    assert result.verdict == "fail"


def test_worked_example_of_no_progress(make, judge):
    """2.303 at first and 2.273 at best: 1.3 % of the start, and `least_descent` is 3 %."""
    losses = 2.303 - 0.03 * (1 - np.exp(-np.arange(200) / 20)) + noise(200, 0.002)
    result = judge("LOS005", make.evidence(losses))
    assert result.verdict == "warn"
    assert result.measured["descent_share"] == pytest.approx(0.013, abs=0.003)
    assert judge("LOS005", make.evidence(losses), least_descent=0.01).verdict == "pass"


def test_noise_that_may_hide_a_descent_is_no_verdict(make, judge):
    result = judge("LOS005", make.evidence(3.0 + noise(28, 0.4)))
    assert "noise may hide a descent" in result.reason["reason"]


def test_a_validation_loss_stands_in(make, judge):
    evidence = make.evidence(None, held_out(make, np.log(4) + noise(20, 0.001), 100))
    result = judge("LOS005", evidence)
    assert result.verdict == "fail"
    assert "validation loss" in result.message


def test_exactly_one_number(make, judge):
    assert judge("LOS005", make.evidence([14.243] + [14.506] * 14)).verdict == "fail"
    assert judge("LOS005", make.evidence([0.0] * 30)).verdict == "SkippedProbe"  # LOS002 warns
    constant = judge("LOS018", make.evidence([241.774] + [118.6205] * 200))
    assert (constant.verdict, constant.steps) == ("warn", (1,))


# LOS007


def test_worked_example_of_a_loss_still_falling(make, judge):
    """A fall that grows faster to the end: the last quarter brings 43 % of it."""
    losses = 4.0 - 3.0 * (np.arange(400) / 400) ** 2 + noise(400)
    result = judge("LOS007", make.evidence(losses))
    assert result.verdict == "warn"
    assert result.measured["late_share"] == pytest.approx(0.43, abs=0.03)
    ended = make.series(0.5 * (1 + np.cos(np.pi * np.arange(400) / 399)), role="learning_rate")
    assert judge("LOS007", make.evidence(losses, ended)).verdict == "pass"


@pytest.mark.parametrize("n", [8, 30, 400])
def test_a_small_descent_along_a_line(n, make, judge):
    losses = np.linspace(2.3, 2.1, n) + noise(n, 0.001)
    assert judge("LOS007", make.evidence(losses)).verdict == "warn"
    assert judge("LOS007", make.evidence(losses, params={"base_model": "some/model"})).verdict == "pass"
    assert judge("LOS007", make.evidence(np.linspace(2.3, 0.3, n) + noise(n, 0.001))).verdict == "pass"


def test_a_line_by_the_sum_of_the_rates(make, judge):
    way = np.sin(0.5 * np.pi * np.arange(400) / 399)  # what a cosine's rates add up to, about
    losses = 2.3 - 0.2 * way + noise(400, 0.001)
    cosine = make.series(np.cos(0.5 * np.pi * np.arange(400) / 399), role="learning_rate")
    assert judge("LOS007", make.evidence(losses, cosine)).verdict == "warn"


def test_the_validation_loss_shows_what_noise_hides(make, judge):
    losses, falling = 2.2 + noise(400, 0.3), held_out(make, np.linspace(2.3, 2.1, 20), 400)
    result = judge("LOS007", make.evidence(losses, falling))
    assert result.verdict == "warn"
    assert "validation loss" in result.message


# LOS008


def test_worked_example_of_an_unstable_loss(bump, healthy, make, judge):
    """Two leaps by one, of a descent of three: a third is more than `rise_share`."""
    losses = bump(bump(healthy.descent(n=400, noise=0.01), 200, 20, 1.0), 300, 20, 1.0)
    result = judge("LOS008", make.evidence(losses))
    assert (result.verdict, result.measured["excursions"]) == ("warn", 2)
    assert result.steps[0] in range(195, 215)
    assert judge("LOS008", make.evidence(losses), repeated=3).verdict == "pass"


@pytest.mark.parametrize(("height", "length", "verdict"), [(0.6, 20, "pass"), (2.0, 20, "warn"), (1.0, 100, "warn")])
def test_one_excursion(height, length, verdict, bump, healthy, make, judge):
    losses = bump(healthy.descent(n=400, noise=0.01), 200, length, height)
    assert judge("LOS008", make.evidence(losses)).verdict == verdict


def test_a_leap_of_one_point_in_a_short_log(make, judge):
    losses = 1.0 + 2.0 * np.exp(-np.arange(12) / 2.0)
    losses[8] = 2.9
    assert judge("LOS008", make.evidence(losses)).verdict == "warn"


def test_a_validation_loss_that_leaps(healthy, make, judge):
    values = 1.0 + 2.0 * np.exp(-np.arange(15) / 2.0)
    values[9] = 2.9
    result = judge("LOS008", make.evidence(healthy.descent(n=400), held_out(make, values, 400)))
    assert result.verdict == "warn"
    assert "validation loss" in result.message


def test_what_a_restart_of_the_rate_makes_is_no_leap(bump, healthy, make, judge):
    losses = bump(healthy.descent(n=400, noise=0.01), 200, 40, 2.0)
    rate = make.series(np.tile(0.5 * (1 + np.cos(np.pi * np.arange(200) / 200)), 2), role="learning_rate")
    assert judge("LOS008", make.evidence(losses)).verdict == "warn"
    assert judge("LOS008", make.evidence(losses, rate)).verdict == "pass"


# GEN001


def falling(n=400, end=0.2):
    return end + (2.3 - end) * np.exp(-6 * np.arange(n) / n) + noise(n)


def test_worked_example_of_overfitting(make, judge):
    """Validation from 0.8 at its best to 1.4: three quarters, while the training loss goes on falling."""
    values = np.concatenate([np.linspace(2.0, 0.8, 8), np.linspace(0.85, 1.4, 12)])
    result = judge("GEN001", make.evidence(falling(), held_out(make, values, 400)))
    assert result.verdict == "warn"
    assert result.measured["rise_share"] == pytest.approx(0.65, abs=0.15)
    assert result.steps[0] in range(140, 180)


def test_a_steady_climb_behind_a_steep_start(make, judge):
    """A rise of a sixth is little of a descent of four, but it never turned."""
    values = np.array([6.2, 3.0, 2.5, 2.3, 2.2, 2.15, 2.1, 2.1, 2.11, 2.12, 2.15, 2.19, 2.24, 2.3, 2.36, 2.43])
    assert judge("GEN001", make.evidence(falling(), held_out(make, values, 400))).verdict == "warn"


@pytest.mark.parametrize("seed", range(5))
def test_a_validation_loss_that_follows_passes(seed, make, judge):
    values = 0.4 + 1.8 * np.exp(-6 * np.arange(1, 21) / 20) + noise(20, 0.02, seed)
    assert judge("GEN001", make.evidence(falling(), held_out(make, values, 400))).verdict == "pass"


def test_a_divergence_of_both_losses_is_no_overfitting(sick, make, judge):
    values = sick.exploding()[19::20]
    assert judge("GEN001", make.evidence(sick.exploding(), held_out(make, values, 400))).verdict == "pass"


@pytest.mark.parametrize(("at_first", "verdict"), [(0.0, "warn"), (1.5, "pass")])
def test_a_gap_that_was_there_at_the_first_evaluation_is_none(at_first, verdict, make, judge):
    train = np.concatenate([[2.3], falling(399, 0.05)])
    values = np.concatenate([np.linspace(train[20] + at_first, 1.55, 10), 1.55 + noise(10, 0.01)])
    assert judge("GEN001", make.evidence(train, held_out(make, values, 400))).verdict == verdict


def test_without_a_training_loss(make, judge):
    values = np.concatenate([np.linspace(2.0, 0.8, 8), np.linspace(0.85, 1.4, 12)])
    assert judge("GEN001", make.evidence(None, held_out(make, values, 400))).verdict == "warn"


# GEN002


def test_worked_example_of_a_flat_validation_loss(make, judge):
    """ln 4 throughout, while the training loss comes from 1.45 to 0.3: what is learnt holds for its samples alone."""
    train = 0.3 + 1.15 * np.exp(-4 * np.arange(200) / 200) + noise(200)
    values = held_out(make, np.log(4) + noise(20, 0.003), 200)
    result = judge("GEN002", make.evidence(train, values))
    assert result.verdict == "warn"
    assert result.measured["gain_share"] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("level", "verdict"), [(2.2, "warn"), (0.5, "pass")])
def test_what_was_learnt_before_the_first_evaluation(level, verdict, make, judge):
    values = held_out(make, level + noise(20, 0.003), 400)
    assert judge("GEN002", make.evidence(falling(), values)).verdict == verdict


def test_noisy_evaluations_pass(make, judge):
    values = held_out(make, 2.2 + noise(8, 0.2), 400)
    assert judge("GEN002", make.evidence(falling(), values)).verdict == "pass"


def test_a_validation_loss_that_falls_passes(make, judge):
    values = held_out(make, np.linspace(2.3, 2.0, 20) + noise(20, 0.01), 400)
    assert judge("GEN002", make.evidence(falling(), values)).verdict == "pass"
