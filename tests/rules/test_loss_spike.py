"""LOS003."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.curves.loss_spike import LossSpike
from tracker_health.text import number

CODE = "LOS003"
RULE = LossSpike()
FEW = settings(max_examples=draws(60), deadline=None)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(3)
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    verdict = judge(CODE, make.evidence(losses)).verdict
    if len(losses) < RULE.min_points:
        assert verdict == "SkippedProbe"
    else:
        assert verdict == ("warn" if healthy_name == "one_spike" else "pass")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stride", [5, 10])
@pytest.mark.thinned(4)
def test_healthy_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, judge):
    losses = getattr(healthy, long_healthy_name)(seed)[::stride]
    if len(losses) >= RULE.min_points and long_healthy_name != "one_spike":
        assert judge(CODE, make.evidence(losses, steps=np.arange(len(losses)) * stride)).verdict == "pass"


def garbage_batches(healthy, seed=0, places=(190, 270, 330), height=2.0):
    """Batches of garbage after a descent from 4 to 1: none rises above the start."""
    losses = healthy.descent(seed, rate=20.0)
    losses[list(places)] += height
    return losses


@pytest.mark.parametrize("seed", range(3))
def test_three_garbage_batches(seed, healthy, make, judge):
    losses = garbage_batches(healthy, seed)
    result = judge(CODE, make.evidence(losses, steps=np.arange(400) * 7))
    assert result.verdict == "warn"
    assert result.measured["spikes"] == 3
    assert result.steps == (190 * 7, 270 * 7, 330 * 7)
    tallest = max((190, 270, 330), key=lambda index: losses[index])
    assert f"3 spikes in the loss, the tallest {number(losses[tallest])} at step {tallest * 7}" in result.message
    assert "clip" in result.remedy


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_threw_the_weights_away(seed, healthy, make, judge):
    losses = healthy.descent(seed)
    losses[200:208] += 30 * np.exp(-np.arange(8) / 2)
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == "warn"
    assert (result.measured["spikes"], result.steps) == (1, (200,))


@pytest.mark.parametrize("seed", range(3))
def test_an_explosion_at_the_very_end(seed, healthy, make, judge):
    """Too late to move the level of the last block, and no matter of the batches."""
    losses = healthy.descent(seed)
    losses[396:] = [50.0, 400.0, 9e3, 1e6]
    result = judge(CODE, make.evidence(losses, steps=np.arange(400) * 7))
    assert (result.verdict, result.confidence, result.steps) == ("fail", "high", (396 * 7, 399 * 7))
    assert f"at step {396 * 7} and had not come back when the run ended, 4 points later, at 1" in result.message
    assert f"before step {396 * 7}" in result.remedy
    losses[399] = losses[395]
    back = judge(CODE, make.evidence(losses))
    assert back.verdict == "warn"
    assert "not come back" not in back.message


@pytest.mark.parametrize(("points", "verdict"), [(1, "warn"), (2, "warn"), (3, "fail")])
def test_boundary_of_the_points_up_at_the_end(points, verdict, healthy, make, judge):
    """One or two batches may be garbage; it says that the loss had not come back all the same."""
    losses = healthy.descent()
    losses[-points:] = 80.0
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == verdict
    assert "not come back" in result.message


def test_fewer_spikes_than_repeated_pass(healthy, make, judge):
    places = (190, 270, 330, 371)
    for amount in range(5):
        evidence = make.evidence(garbage_batches(healthy, places=places[:amount]))
        assert judge(CODE, evidence).verdict == ("warn" if amount >= RULE.repeated else "pass")
        assert judge(CODE, evidence, repeated=amount + 1).verdict == "pass"


@pytest.mark.parametrize(("distance", "spikes"), [(10, 1), (11, 2)])
def test_spikes_within_ten_points_are_one(distance, spikes, healthy, make, judge):
    evidence = make.evidence(garbage_batches(healthy, places=(200, 200 + distance)))
    assert judge(CODE, evidence).measured["spikes"] == spikes


def test_long_tails_of_small_batches_are_no_spikes(healthy, make, judge):
    """Noise with a long tail, twenty seeds."""
    runs = [
        make.evidence(healthy.descent(seed, rate=20.0) + np.random.default_rng(seed).gamma(0.5, size=400))
        for seed in range(20)
    ]
    assert [judge(CODE, run).verdict for run in runs].count("warn") <= 2


@pytest.mark.slow
@pytest.mark.parametrize(("freedom", "most"), [(2.0, 8), (3.0, 1)])
@pytest.mark.parametrize("n", [60, 500])
@pytest.mark.thinned(2)
def test_the_tails_of_student_s_t_are_no_spikes(n, freedom, most, make, judge):
    """Noise without a variance, or almost so: of a hundred runs a few have a point that stands out of such a tail too."""
    level = 1 + 2 * np.exp(-np.arange(n) / (n / 8))
    tails = [np.random.default_rng(seed).standard_t(freedom, n) for seed in range(100)]
    runs = [level * (1 + np.clip(0.05 * tail, -0.7, None)) for tail in tails]
    assert [judge(CODE, make.evidence(losses)).verdict for losses in runs].count("warn") <= most


def test_one_spike_does_not_hide_the_next(healthy, make, judge):
    places = tuple(range(150, 227, 13))
    assert judge(CODE, make.evidence(garbage_batches(healthy, places=places, height=20.0))).measured["spikes"] == 6


def test_ever_more_spikes_are_found_as_well(healthy, make, judge):
    places = tuple(place + place % 7 for place in range(150, 390, 20))
    assert judge(CODE, make.evidence(garbage_batches(healthy, places=places, height=20.0))).verdict == "warn"


@pytest.mark.parametrize("seed", range(3))
def test_a_steep_descent_is_no_noise_that_hides_a_high_spike(seed, healthy, make, judge):
    losses = healthy.descent(seed)
    losses[100] += 12.0
    assert judge(CODE, make.evidence(losses)).verdict == "warn"


def test_a_loss_that_stays_up_is_one_spike_at_most(sick, make, judge):
    assert judge(CODE, make.evidence(sick.exploding())).measured["spikes"] <= 1


def test_a_restart_of_the_learning_rate_is_no_spike(healthy, make, judge):
    for seed in range(5):
        assert judge(CODE, make.evidence(healthy.cosine_restarts(seed))).measured["spikes"] == 0


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, make.evidence(np.full(100, value))).verdict == "pass"


def test_too_few_finite_points_are_skipped(healthy, make, judge):
    losses = healthy.descent(n=60)
    losses[RULE.min_points - 1 :] = np.nan
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"
    losses[RULE.min_points - 1] = 1.0
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


@pytest.mark.parametrize("name", ["one_spike", "descent", "heavy_noise", "blips", "garbage"])
@settings(max_examples=draws(20), deadline=None)
@given(exponent=st.integers(-60, 60))
@pytest.mark.thinned(2)
def test_the_unit_of_the_loss_does_not_matter(name, exponent, healthy, make, judge):
    losses = garbage_batches(healthy) if name == "garbage" else getattr(healthy, name)(3)
    plainly, scaled = (judge(CODE, make.evidence(one)) for one in (losses, losses * 2.0**exponent))
    assert (scaled.verdict, scaled.measured["spikes"]) == (plainly.verdict, plainly.measured["spikes"])


def test_worked_example(healthy, make, judge):
    """From 4 down to 1: three batches at 3, 2 above their level, are more than 0.3 of the descent each."""
    losses = np.append(np.linspace(4.0, 1.0, 50), np.full(350, 1.0)) + 0.01 * np.random.default_rng(0).normal(size=400)
    losses[[250, 300, 377]] = 3.0
    result = judge(CODE, make.evidence(losses))
    assert result.steps == (250, 300, 377)
    assert result.message.startswith("3 spikes in the loss, the tallest 3 at step")
