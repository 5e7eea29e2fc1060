"""LOS007."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.still_descending import StillDescending

CODE = "LOS007"
RULE = StillDescending()
FEW = settings(max_examples=60, deadline=None)


def naive(losses, plain, rule=RULE):
    """The measured numbers, whether the loss was falling, and by how much each condition is met or missed."""
    n = len(losses)
    noise = plain.noise(losses)
    eighths = [plain.median(part) for part in plain.parts(losses, 8)]
    start = plain.start(losses, max(1, min(3, n // 10)), noise)
    descent, late = start - eighths[7], eighths[5] - eighths[7]
    share = late / descent if descent > 0 else 0.0
    error = math.sqrt(2) * plain.median_error(noise, n // 8)
    conditions = [late - rule.late_share * descent, late - 3 * error, eighths[6] - eighths[7] - 2 * error]
    falling = descent > 0 and conditions[0] >= 0 and conditions[1] > 0 and conditions[2] > 0
    measured = {"start": start, "end": eighths[7], "late_share": share, "noise": noise}
    return measured, falling, [*conditions, descent]


def assert_as_naive(losses, rates, plain, make, judge):
    measured, falling, margins = naive(losses, plain)
    scale = 1e-9 * max(1e-300, *(abs(loss) for loss in losses))
    assume(all(margin == 0 or abs(margin) > scale for margin in margins))
    more = [] if rates is None else [make.series(rates, role="learning_rate")]
    result = judge(CODE, make.evidence(losses, *more))
    ended = rates is not None and rates[-1] <= 0.2 * max(rates)
    assert result.verdict == ("warn" if falling and not ended else "pass")
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-6, abs=scale), name


RATES = st.none() | st.lists(st.floats(1e-6, 1), min_size=1, max_size=20)


@FEW
@given(losses=st.lists(st.floats(-100, 100), min_size=16, max_size=150), rates=RATES)
def test_against_plain_python(losses, rates, plain, make, judge):
    assert_as_naive(losses, rates, plain, make, judge)


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(16, 400),
    power=st.floats(0.1, 3),
    noise=st.floats(0, 0.3),
    rates=RATES,
)
def test_curves_against_plain_python(seed, n, power, noise, rates, plain, make, judge):
    losses = 4 - 3 * (np.arange(n) / n) ** power + noise * np.random.default_rng(seed).standard_normal(n)
    assert_as_naive(losses.tolist(), rates, plain, make, judge)


@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    verdict = judge(CODE, make.evidence(losses)).verdict
    assert verdict == ("pass" if len(losses) >= RULE.min_points else "SkippedProbe")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stride", [5, 10])
def test_healthy_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, judge):
    losses = getattr(healthy, long_healthy_name)(seed)[::stride]
    assert judge(CODE, make.evidence(losses, steps=np.arange(len(losses)) * stride)).verdict == "pass"


def test_noise_alone_does_not_decide_over_a_staircase(healthy, make, judge):
    """Flat in the whole last quarter, a third of the descent above it: twenty seeds, one verdict."""
    assert len({judge(CODE, make.evidence(healthy.staircase(seed))).verdict for seed in range(20)}) == 1


def cut_short(seed=0, *, n=400, start=4.0, noise=0.03, power=1.5):
    """A run that was ended in the middle of its descent."""
    losses = start - 2.0 * (np.arange(n) / n) ** power
    return losses + noise * np.random.default_rng(seed).standard_normal(n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "stride"), [(400, 1), (400, 10), (24, 1), (60, 1)])
def test_sick(n, stride, seed, make, judge):
    losses = cut_short(seed, n=n)[::stride]
    result = judge(CODE, make.evidence(losses, steps=np.arange(len(losses)) * stride))
    assert result.verdict == "warn"
    assert f"brought {result.measured['late_share']:.0%} of its descent" in result.message
    assert f"to {result.measured['end']:.4g}" in result.message
    assert "train longer" in result.remedy


def schedule(name, n=400, peak=3e-4):
    progress = np.arange(n) / (n - 1)
    return (
        peak
        * {
            "constant": np.ones(n),
            "linear to 0": 1 - progress,
            "cosine": 0.5 * (1 + np.cos(np.pi * progress)),
            "one cycle": np.where(progress < 0.3, progress / 0.3, 0.5 * (1 + np.cos(np.pi * (progress - 0.3) / 0.7))),
            "cut at half of its cosine": 0.5 * (1 + np.cos(np.pi * progress / 2)),
            "warm-up only": progress,
        }[name]
    )


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("constant", "warn"),
        ("linear to 0", "pass"),
        ("cosine", "pass"),
        ("one cycle", "pass"),
        ("cut at half of its cosine", "warn"),
        ("warm-up only", "warn"),
    ],
)
def test_a_schedule_that_has_ended_excuses_it(name, verdict, make, judge):
    rate = make.series(schedule(name), role="learning_rate", name="lr")
    assert judge(CODE, make.evidence(cut_short(), rate)).verdict == verdict


@pytest.mark.parametrize(("share", "verdict"), [(0.199, "pass"), (0.2, "pass"), (0.201, "warn")])
def test_boundary_of_the_schedule(share, verdict, make, judge):
    rate = make.series([0.5, 1.0, share], role="learning_rate")
    assert judge(CODE, make.evidence(cut_short(), rate)).verdict == verdict


def test_a_rate_that_is_only_nan_excuses_nothing(make, judge):
    rate = make.series([np.nan] * 10, role="learning_rate")
    assert judge(CODE, make.evidence(cut_short(), rate)).verdict == "warn"


def test_a_frozen_group_excuses_nothing(make, judge):
    rates = [make.series(schedule("constant") * live, role="learning_rate", name=f"lr/{live}") for live in (0, 1)]
    assert judge(CODE, make.evidence(cut_short(), *rates)).verdict == "warn"


def levels(*values, size=20):
    """Noiseless eighths."""
    return np.repeat(np.array(values, dtype=float), size)


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_the_late_share(factor, verdict, make, judge):
    """From 2 to 1; the last quarter brings the share that is asked for."""
    sixth = 1 + RULE.late_share * factor
    losses = levels(2, 1.9, 1.8, 1.7, 1.6, sixth, (1 + sixth) / 2, 1)
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["noise"]) == (verdict, 0)
    assert result.measured["late_share"] == pytest.approx(RULE.late_share * factor, rel=1e-12)


def test_a_fall_that_is_over_passes(make, judge):
    assert judge(CODE, make.evidence(levels(4, 4, 4, 4, 4, 4, 1, 1))).verdict == "pass"
    assert judge(CODE, make.evidence(levels(4, 4, 4, 4, 4, 4, 2, 1))).verdict == "warn"


def test_noise_that_could_be_the_fall_passes(make, judge):
    """Pure noise, 100 runs: the last quarter may well lie lower than the sixth eighth, but not for sure."""
    for n in (16, 40, 200):
        flat = [2.0 + 0.2 * np.random.default_rng(seed).standard_normal(n) for seed in range(100)]
        assert [judge(CODE, make.evidence(losses)).verdict for losses in flat].count("warn") <= 5


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, make.evidence(np.full(100, value))).verdict == "pass"


def test_too_few_finite_points_are_skipped(make, judge):
    losses = cut_short(n=60)
    losses[RULE.min_points - 1 :] = np.nan
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(cut_short(n=RULE.min_points))).verdict == "warn"


@pytest.mark.parametrize("name", ["cut_short", "descent", "heavy_noise", "negative_descent"])
@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-60, 60))
def test_the_unit_of_the_loss_does_not_matter(name, exponent, healthy, make, judge):
    losses = cut_short(3) if name == "cut_short" else getattr(healthy, name)(3)
    plainly, scaled = (judge(CODE, make.evidence(one)) for one in (losses, losses * 2.0**exponent))
    assert (scaled.verdict, scaled.measured["late_share"]) == (plainly.verdict, plainly.measured["late_share"])


@FEW
@given(losses=st.lists(st.floats(-10, 10), min_size=16, max_size=40), one=st.floats(0.01, 1), other=st.floats(0.01, 1))
def test_a_higher_share_never_finds_more(losses, one, other, make, judge):
    losses = sorted(losses, reverse=True)
    lower, higher = sorted([one, other])
    if judge(CODE, make.evidence(losses), late_share=lower).verdict == "pass":
        assert judge(CODE, make.evidence(losses), late_share=higher).verdict == "pass"
