"""GRD004."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.gradients.exploding_gradient import ExplodingGradient
from tracker_health.text import number

CODE = "GRD004"
RULE = ExplodingGradient()
FEW = settings(max_examples=draws(80), deadline=None)


def evidence_of(make, norms, losses=None, steps=None):
    return make.evidence(losses, make.series(norms, steps, role="grad_norm"))


def ordinary_norms(seed=0, n=400):
    return np.random.default_rng(seed).lognormal(0.0, 0.4, n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(3)
def test_healthy(healthy_name, seed, healthy, make, judge):
    """Norms that stay, that fall, and that grow twentyfold while the loss comes down (as a classifier's do)."""
    losses = getattr(healthy, healthy_name)(seed)
    n = len(losses)
    for level in (1.0, 10.0 ** (-2 * np.arange(n) / n), 20.0 ** (np.arange(n) / n)):
        verdict = judge(CODE, evidence_of(make, level * ordinary_norms(seed, n), losses)).verdict
        assert verdict == ("pass" if n >= RULE.min_points else "SkippedProbe")


def test_one_harmless_spike(healthy, make, judge):
    norms = ordinary_norms()
    norms[[200, 399]] *= 1e6
    assert judge(CODE, evidence_of(make, norms, healthy.descent())).verdict == "pass"
    assert judge(CODE, evidence_of(make, norms)).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "stride"), [(400, 1), (400, 10), (20, 1), (60, 1)])
def test_exploding(n, stride, seed, sick, make, judge):
    losses = sick.exploding(seed)[:: 400 // n][::stride]
    norms = (ordinary_norms(seed, n) * np.where(np.arange(n) < 0.62 * n, 1.0, 1000.0))[::stride]
    result = judge(CODE, evidence_of(make, norms, losses))
    assert result.verdict == "fail"
    assert f"grew {result.measured['growth']:.0f}-fold" in result.message
    assert f"to {number(result.measured['end'])}" in result.message
    assert "clipping" in result.remedy


def test_norms_that_grew_while_the_loss_is_at_its_best(healthy, make, judge):
    """As at the end of a memorised task."""
    norms = 10.0 ** (3.5 * np.clip(np.arange(400) / 200 - 0.5, 0, 1))
    assert judge(CODE, evidence_of(make, norms, healthy.descent())).verdict == "pass"
    assert judge(CODE, evidence_of(make, norms)).verdict == "fail"


def test_norms_that_came_back_pass(make, judge):
    norms = ordinary_norms()
    norms[200:330] *= 1e5
    assert judge(CODE, evidence_of(make, norms)).verdict == "pass"
    norms[330:] *= 1e5
    assert judge(CODE, evidence_of(make, norms)).verdict == "fail"


@pytest.mark.parametrize(("factor", "verdict"), [(0.99, "pass"), (1.01, "fail")])
def test_worked_example(factor, verdict, make, judge):
    """From 1 to a hundred times that at step 80, without noise."""
    norms = np.ones(100)
    norms[80:] = RULE.factor * factor
    result = judge(CODE, evidence_of(make, norms))
    assert result.verdict == verdict
    assert verdict == "pass" or (result.steps[0] == 80 and "grew 101-fold, from 1 to 101" in result.message)


def test_both_of_the_last_levels_have_to_be_up(make, judge):
    norms = np.ones(100)
    norms[97:] = 1e6
    assert judge(CODE, evidence_of(make, norms)).verdict == "pass"


@pytest.mark.parametrize("value", [1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, evidence_of(make, np.full(100, value))).verdict == "pass"


def test_too_few_finite_norms_are_skipped(make, judge):
    norms = ordinary_norms(n=60)
    norms[RULE.min_points - 1 :] = np.inf
    assert judge(CODE, evidence_of(make, norms)).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@settings(max_examples=draws(30), deadline=None)
@given(of_loss=st.integers(-60, 60), of_norm=st.integers(-60, 60), grown=st.booleans())
def test_the_units_do_not_matter(of_loss, of_norm, grown, sick, make, judge):
    norms = ordinary_norms() * np.where(np.arange(400) < 250, 1.0, 1000.0 if grown else 30.0)
    evidence = evidence_of(make, norms * 2.0**of_norm, sick.exploding() * 2.0**of_loss)
    assert judge(CODE, evidence).verdict == ("fail" if grown else "pass")


@FEW
@given(digits=st.floats(0, 6), one=st.floats(1.1, 1e5), other=st.floats(1.1, 1e5))
def test_a_higher_factor_never_finds_more(digits, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = evidence_of(make, 10 ** np.linspace(0, digits, 50))
    if judge(CODE, evidence, factor=lower).verdict == "pass":
        assert judge(CODE, evidence, factor=higher).verdict == "pass"
