"""GRD002."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.gradients.gradient_spike import GradientSpike
from tracker_health.text import number

CODE = "GRD002"
RULE = GradientSpike()
LEAST_LEAP = math.log(2.0)
"""Of the log norm: below it is no spike, however even the norms are otherwise."""
FEW = settings(max_examples=draws(60), deadline=None)


def both(make, losses, norms, norm_steps=None):
    return make.evidence(losses, make.series(norms, norm_steps, role="grad_norm"))


def ordinary_norms(seed=0, n=400, spread=0.25):
    return np.random.default_rng(seed + 100).lognormal(0.0, spread, n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(3)
def test_healthy(healthy_name, seed, healthy, make, judge):
    """Ordinary norms, and harmless spikes of 80 times the usual norm."""
    losses = getattr(healthy, healthy_name)(seed)
    n = len(losses)
    norms = ordinary_norms(seed, n)
    spiky = norms.copy()
    spiky[[n // 4, n // 2, 3 * n // 4]] *= 80
    for values in (norms, spiky):
        verdict = judge(CODE, both(make, losses, values)).verdict
        assert verdict == ("pass" if n >= RULE.min_points else "SkippedProbe")


def thrown_away(healthy, seed=0, *, at=200, height=60.0, harm=1.5, length=30):
    """One step along a large gradient, and a loss that takes thirty steps to come back."""
    losses, norms = healthy.descent(seed), ordinary_norms(seed)
    norms[at] *= height
    losses[at + 1 : at + 1 + length] += harm * np.exp(-np.arange(length) / 15)
    return losses, norms


@pytest.mark.parametrize("seed", range(3))
def test_a_step_that_threw_the_weights_away(seed, healthy, make, judge):
    losses, norms = thrown_away(healthy, seed)
    result = judge(CODE, both(make, losses, norms))
    assert result.verdict == "warn"
    assert f"to {number(norms[200])} at step 200" in result.message
    assert f"clip gradients at {number(np.quantile(norms, 0.95))}" in result.remedy
    assert result.steps == (200,)


@pytest.mark.parametrize("seed", range(3))
def test_a_harmless_spike(seed, healthy, make, judge):
    losses, norms = thrown_away(healthy, seed, harm=0.0)
    result = judge(CODE, both(make, losses, norms))
    assert (result.verdict, result.measured["spikes"]) == ("pass", 1)
    assert "1 gradient spike, none with an effect" in result.message


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_that_rises_without_a_spike(seed, healthy, make, judge):
    losses, norms = thrown_away(healthy, seed, height=1.0)
    assert judge(CODE, both(make, losses, norms)).verdict == "pass"


def test_the_bad_batch_itself_is_no_effect(healthy, make, judge):
    """Gradient and loss of the same garbage batch are high together; what counts is the loss after it."""
    losses, norms = thrown_away(healthy, harm=0.0)
    losses[200] *= 30
    assert judge(CODE, both(make, losses, norms)).verdict == "pass"


@pytest.mark.parametrize(("length", "verdict"), [(3, "pass"), (7, "warn")])
def test_a_few_high_losses_after_it_are_no_level(length, verdict, healthy, make, judge):
    losses, norms = thrown_away(healthy, harm=0.0)
    losses[200 : 201 + length] += 4.0  # the batch of the spike itself does not count
    assert judge(CODE, both(make, losses, norms)).verdict == verdict


@pytest.mark.parametrize(("factor", "spikes"), [(1 - 1e-6, 0), (1 + 1e-6, 1)])
def test_boundary_of_the_sigmas(factor, spikes, healthy, plain, make, judge):
    losses, norms = thrown_away(healthy, height=1e6)
    above, score = plain.jumps(np.log(norms).tolist())[200]
    norms[200] = math.exp(math.log(norms[200]) - above + above / score * RULE.sigmas * factor)
    assert judge(CODE, both(make, losses, norms)).measured["spikes"] == spikes


def test_spikes_at_the_very_beginning_and_end_have_no_before_or_after(healthy, make, judge):
    losses, norms = healthy.descent(), ordinary_norms()
    norms[[0, 1, 2, 397, 398, 399]] *= 100
    losses[398:] += 9
    assert judge(CODE, both(make, losses, norms)).verdict == "pass"


def test_gradients_that_warm_up(healthy, make, judge):
    """A norm that rises tenfold within the warm-up, and one that falls by a hundred over the run."""
    for level in (10 ** np.minimum(np.arange(400) / 40, 1), 10 ** (-np.arange(400) / 200)):
        for seed in range(5):
            assert (
                judge(CODE, both(make, healthy.warm_up_bump(seed)[:400], level * ordinary_norms(seed))).verdict
                == "pass"
            )


def test_a_norm_that_was_logged_after_clipping(healthy, make, judge):
    losses, norms = thrown_away(healthy)
    norms = np.minimum(norms, 1e-3) * 1e3
    norms[200] = np.nextafter(np.float32(1), np.float32(2))
    assert judge(CODE, both(make, losses, norms)).verdict == "pass"


def test_nan_and_zero_norms_are_left_out(healthy, make, judge):
    losses, norms = thrown_away(healthy)
    norms[100:130] = [0.0, np.nan, np.inf] * 10
    assert judge(CODE, both(make, losses, norms)).verdict == "warn"
    assert judge(CODE, both(make, losses, np.zeros(400))).verdict == "SkippedProbe"


def test_too_few_of_either_are_skipped(healthy, make, judge):
    losses, norms = thrown_away(healthy)
    few = RULE.min_points - 1
    assert judge(CODE, both(make, losses, norms[:few])).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


@settings(max_examples=draws(30), deadline=None)
@given(of_loss=st.integers(-60, 60), of_norm=st.integers(-60, 60), harm=st.sampled_from([0.0, 1.5]))
def test_the_units_do_not_matter(of_loss, of_norm, harm, healthy, make, judge):
    losses, norms = thrown_away(healthy, 3, harm=harm)
    scaled = judge(CODE, both(make, losses * 2.0**of_loss, norms * 2.0**of_norm))
    assert scaled.verdict == ("warn" if harm else "pass")
    assert scaled.measured["spikes"] == 1


@FEW
@given(
    seed=st.integers(0, 10**4),
    height=st.floats(1, 100),
    harm=st.floats(0, 3),
    sigmas=st.tuples(st.floats(1, 20), st.floats(1, 20)),
    shares=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
)
def test_higher_thresholds_never_find_more(seed, height, harm, sigmas, shares, healthy, make, judge):
    evidence = both(make, *thrown_away(healthy, seed, height=height, harm=harm))
    lower, higher = ({"sigmas": f(sigmas), "effect_share": f(shares)} for f in (min, max))
    if judge(CODE, evidence, **lower).verdict == "pass":
        assert judge(CODE, evidence, **higher).verdict == "pass"


@pytest.mark.parametrize(("size", "times", "verdict"), [
    (1000.0, 3, "warn"), (1000.0, 2, "pass"), (100.0, 3, "pass"), (1000.0, 4, "warn"),
])  # fmt: skip
@pytest.mark.parametrize("with_loss", [False, True])
def test_several_that_lie_far_out(size, times, verdict, with_loss, make, judge):
    norms = 1.0 + 0.2 * np.random.default_rng(0).standard_normal(62)
    norms[12 : 12 + 12 * times : 12] *= size
    loss = make.series(np.linspace(2.0, 1.0, 22)) if with_loss else make.series([2.0, 1.0])
    assert judge(CODE, make.evidence(loss, make.series(norms, role="grad_norm"))).verdict == verdict


def test_wild_norms_at_the_beginning_or_all_along(make, judge):
    loss = make.series(np.linspace(2.0, 1.0, 100))
    beginning = make.series([1e6] * 5 + [1.0, 1.1] * 47 + [1.0], role="grad_norm")
    most = make.series([1.0, 1e6] * 50, role="grad_norm")
    assert judge(CODE, make.evidence(loss, beginning)).verdict == "pass"
    assert judge(CODE, make.evidence(loss, most)).verdict == "pass"


def test_worked_example(make, judge):
    """A norm of 1 that is 100 at step 100, and a loss 1 higher for the ten points behind it, of a descent of 2."""
    losses = np.concatenate([np.linspace(4.0, 2.0, 20), np.full(180, 2.0)])
    norms = ordinary_norms(n=200)
    norms[100] = 100.0
    losses[101:111] += 1.0
    result = judge(CODE, both(make, losses, norms))
    assert (result.verdict, result.steps) == ("warn", (100,))
    assert "to 100 at step 100, and the loss was higher afterwards (1 such step)" in result.message
