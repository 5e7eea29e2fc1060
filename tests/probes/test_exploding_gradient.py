"""GRD004."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.exploding_gradient import ExplodingGradient

CODE = "GRD004"
RULE = ExplodingGradient()
FEW = settings(max_examples=80, deadline=None)


def evidence_of(make, norms, losses=None, steps=None):
    return make.evidence(losses, make.series(norms, steps, role="grad_norm"))


def ordinary_norms(seed=0, n=400):
    return np.random.default_rng(seed).lognormal(0.0, 0.4, n)


def naive(norms, losses, plain, rule=RULE):
    """The measured numbers, the verdict, and by how much each condition is met or missed, as ratios to 1."""
    levels = [plain.median(block) for block in plain.blocks(norms, len(norms) // 10)]
    low, end = min(levels[:-2]), min(levels[-2:])
    growth = end / low if low > 0 else 0.0
    margins, worse = [growth / rule.factor - 1, growth / rule.factor / 100 - 1], True
    if losses is not None and len(losses) >= 10:
        marks = [plain.median(block) for block in plain.blocks(losses, len(losses) // 10)]
        excess = marks[-1] - min(marks) - 0.1 * max(marks[0] - min(marks), 0)
        worse = excess > 0
        margins.append(excess)
    fails = growth >= rule.factor and (worse or growth >= 100 * rule.factor)
    return {"lowest": low, "end": end, "growth": growth}, "fail" if fails else "pass", margins


def assert_as_naive(norms, losses, plain, make, judge):
    measured, verdict, margins = naive(norms, losses, plain)
    assume(all(margin == 0 or abs(margin) > 1e-9 for margin in margins))
    result = judge(CODE, evidence_of(make, norms, losses))
    assert result.verdict == verdict
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9), name


LOSSES = st.none() | st.lists(st.floats(-5, 5), min_size=1, max_size=60)


@FEW
@given(norms=st.lists(st.floats(0, 1e6) | st.floats(0, 2), min_size=20, max_size=100), losses=LOSSES)
def test_against_plain_python(norms, losses, plain, make, judge):
    assert_as_naive(norms, losses, plain, make, judge)


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(20, 300),
    digits=st.floats(-2, 6),
    begin=st.floats(0, 1),
    losses=LOSSES,
)
def test_curves_against_plain_python(seed, n, digits, begin, losses, plain, make, judge):
    norms = ordinary_norms(seed, n) * 10 ** (digits * np.clip((np.arange(n) / n - begin) / 0.1, 0, 1))
    assert_as_naive(norms.tolist(), losses, plain, make, judge)


@pytest.mark.parametrize("seed", range(3))
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
    assert f"to {result.measured['end']:.4g}" in result.message
    assert "clipping" in result.remedy


def test_norms_that_grew_while_the_loss_is_at_its_best(healthy, make, judge):
    """As at the end of a memorised task; from a certain size on it is hopeless whatever the loss says."""
    for digits, verdict in ((1.9, "pass"), (3.5, "pass"), (4.5, "fail")):
        norms = 10.0 ** (digits * np.clip(np.arange(400) / 200 - 0.5, 0, 1))
        assert judge(CODE, evidence_of(make, norms, healthy.descent())).verdict == verdict
        alone = judge(CODE, evidence_of(make, norms)).verdict
        assert alone == ("pass" if digits < 2 else "fail")


def test_norms_that_came_back_pass(make, judge):
    norms = ordinary_norms()
    norms[200:330] *= 1e5
    assert judge(CODE, evidence_of(make, norms)).verdict == "pass"
    norms[330:] *= 1e5
    assert judge(CODE, evidence_of(make, norms)).verdict == "fail"


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "pass"), (1 + 1e-9, "fail")])
@pytest.mark.parametrize("hopeless", [False, True])
def test_boundary_of_the_growth(hopeless, factor, verdict, healthy, make, judge):
    norms = np.ones(100)
    norms[80:] = RULE.factor * factor * (100 if hopeless else 1)
    assert judge(CODE, evidence_of(make, norms, healthy.descent() if hopeless else None)).verdict == verdict


@pytest.mark.parametrize(("rise", "verdict"), [(0.0999, "pass"), (0.1001, "fail")])
def test_boundary_of_the_loss(rise, verdict, make, judge):
    losses = np.repeat([3.0, 2.0, *[2.0] * 7, 2.0 + rise], 10)
    norms = np.ones(100)
    norms[80:] = RULE.factor * 2
    assert judge(CODE, evidence_of(make, norms, losses)).verdict == verdict


def test_both_of_the_last_levels_have_to_be_up(make, judge):
    norms = np.ones(100)
    norms[90:] = 1e6
    assert judge(CODE, evidence_of(make, norms)).verdict == "pass"


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, evidence_of(make, np.full(100, value))).verdict == "pass"


def test_too_few_finite_norms_are_skipped(make, judge):
    norms = ordinary_norms(n=60)
    norms[RULE.min_points - 1 :] = np.inf
    assert judge(CODE, evidence_of(make, norms)).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@settings(max_examples=30, deadline=None)
@given(of_loss=st.integers(-60, 60), of_norm=st.integers(-60, 60), grown=st.booleans())
def test_the_units_do_not_matter(of_loss, of_norm, grown, sick, make, judge):
    norms = ordinary_norms() * np.where(np.arange(400) < 250, 1.0, 1000.0 if grown else 30.0)
    evidence = evidence_of(make, norms * 2.0**of_norm, sick.exploding() * 2.0**of_loss)
    assert judge(CODE, evidence).verdict == ("fail" if grown else "pass")


@FEW
@given(digits=st.floats(0, 6), one=st.floats(1.1, 1e5), other=st.floats(1.1, 1e5), losses=LOSSES)
def test_a_higher_factor_never_finds_more(digits, one, other, losses, make, judge):
    lower, higher = sorted([one, other])
    evidence = evidence_of(make, 10 ** np.linspace(0, digits, 50), losses)
    if judge(CODE, evidence, factor=lower).verdict == "pass":
        assert judge(CODE, evidence, factor=higher).verdict == "pass"
