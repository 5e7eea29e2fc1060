"""LOS005."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tracker_health.evidence import TensorHeader, Weights

CODE = "LOS005"


def median(values):
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def cut(values, size):
    """Medians of blocks of that size, from the end; what is left over belongs to the first."""
    blocks, rest = [], list(values)
    while len(rest) >= 2 * size:
        blocks.insert(0, median(rest[-size:]))
        rest = rest[:-size]
    return [median(rest), *blocks]


def trend_of(blocks):
    count = len(blocks)
    score = sum((b > a) - (b < a) for i, a in enumerate(blocks) for b in blocks[i + 1 :])
    return (score - (score > 0) + (score < 0)) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def naive(losses):
    """The measured numbers, and by how much each of the conditions is met (above 0) or missed."""
    n = len(losses)
    size = max(2, n // 10)
    blocks = cut(losses, size)
    noise = 1.4826 * median([abs(b - a) for a, b in itertools.pairwise(losses)]) / math.sqrt(2)
    head = min(3, size)
    first = median(losses[:head])
    start, best = (losses[0] if first - losses[0] > 4 * noise else first), min(blocks)
    error_of_best = 1.5 * 1.2533 * noise / math.sqrt(size)
    error = math.sqrt((1.2533 * noise) ** 2 / head + error_of_best**2)
    block_error = math.sqrt((1.2533 * noise) ** 2 / size + error_of_best**2)
    scale = max(abs(start), abs(best))
    share = (start - best) / scale if scale else 0.0
    trend = trend_of(cut(losses, max(1, n // 60)))
    quarter, third = max(2, n // 4), n // 3
    fall_of_thirds = sum(losses[:third]) / third - sum(losses[-third:]) / third
    measured = {"start": start, "best": best, "descent_share": share, "standard_error": error, "trend_z": trend}
    margins = {
        "from the start": start - best - 3 * error,
        "from the first block": blocks[0] - best - 3 * block_error,
        "by a third": start - best - 0.3 * scale,
        "apart": min(losses[:quarter]) - max(losses[-quarter:]),
        "hidden": 3 * 2 * 1.2533 * noise / math.sqrt(n) - 0.5 * 0.05 * scale,
        "leaning": fall_of_thirds - noise * math.sqrt(2 / third) if noise > 0 else -1.0,
    }
    return measured, margins


def assert_as_naive(losses, make, judge, held_out=None):
    measured, margins = naive(losses)
    scale = 1e-9 * max(abs(loss) for loss in losses)
    assume(all(margin == 0 or abs(margin) > scale for margin in margins.values()))
    assume(abs(measured["descent_share"] - 0.05) > 1e-9)
    more = [] if held_out is None else [make.series(held_out, role="val_loss")]
    result = judge(CODE, make.evidence(losses, *more))
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=scale), name
    falling = measured["trend_z"] < -3
    significant = (
        falling
        or max(margins["from the start"], margins["from the first block"]) > 0
        or min(margins["by a third"], margins["apart"]) > 0
    )
    hidden = margins["hidden"] > 0 and not significant and measured["trend_z"] < 3
    validated = False
    if held_out is not None and len(held_out) >= 3:
        gain = held_out[0] - (held_out[-1] + held_out[-2]) / 2
        assume(abs(gain - 0.05 * abs(held_out[0])) > 1e-9)
        validated = gain > 0.05 * abs(held_out[0]) and trend_of(held_out) < -1
    if significant and measured["descent_share"] >= 0.05:
        expected = "pass", "high"
    elif hidden and (margins["leaning"] > 0 or validated):
        expected = "pass", "low"
    elif hidden or len(losses) < 20:
        expected = "warn", "low"
    else:
        expected = "warn" if falling else "fail", "high"
    assert (result.verdict, result.confidence) == expected


@given(losses=st.lists(st.floats(-100, 100), min_size=8, max_size=150))
def test_against_plain_python(losses, make, judge):
    assert_as_naive(losses, make, judge)


@given(seed=st.integers(0, 10**6), n=st.integers(8, 400), gain=st.floats(-0.5, 3), noise=st.floats(0, 0.5))
def test_curves_against_plain_python(seed, n, gain, noise, make, judge):
    rng = np.random.default_rng(seed)
    assert_as_naive((4 - gain * np.arange(n) / n + noise * rng.standard_normal(n)).tolist(), make, judge)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(8, 200),
    gain=st.floats(-0.5, 0.5),
    noise=st.floats(0.2, 2),
    held_out=st.lists(st.floats(1, 4), min_size=1, max_size=12),
    ordered=st.booleans(),
)
def test_noisy_curves_beside_a_validation_loss_against_plain_python(
    seed, n, gain, noise, held_out, ordered, make, judge
):
    losses = 4 - gain * np.arange(n) / n + noise * np.random.default_rng(seed).standard_normal(n)
    held_out = sorted(held_out, reverse=True) if ordered else held_out
    assert_as_naive(losses.tolist(), make, judge, held_out[: n - 1])


@pytest.mark.parametrize("seed", range(5))
def test_healthy(healthy_name, seed, healthy, make, judge):
    result = judge(CODE, make.evidence(getattr(healthy, healthy_name)(seed)))
    assert result.verdict == "pass", result.message
    assert result.measured["descent_share"] > 0.05


def test_noise_as_large_as_the_level_does_not_hide_a_descent_by_two_thirds(healthy, make, judge):
    """The first three points are then a poor measure of the start; the first block is not."""
    verdicts = [judge(CODE, make.evidence(healthy.heavy_noise(seed))).verdict for seed in range(40)]
    assert verdicts == ["pass"] * 40


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["at_chance", "from_the_start"])
def test_sick(name, seed, sick, make, judge):
    result = judge(CODE, make.evidence(getattr(sick, name)(seed)))
    assert (result.verdict, result.confidence) == ("fail", "high")
    assert f"{result.measured['start']:.4g}" in result.message
    assert "500 points" in result.message or "300 points" in result.message
    assert "one batch" in result.remedy


def test_pure_noise_seldom_passes(make, judge):
    """Flat noise of a tenth of the level, 200 runs. Where it cannot hide a descent, one of them looks like learning; where
    it can, one in six leans down by more than a standard error, and none is called sure.
    """
    for n, sure, unsure in ((2000, 1, 0), (300, 0, 40)):
        flat = [2.0 + 0.2 * np.random.default_rng(seed).standard_normal(n) for seed in range(200)]
        results = [judge(CODE, make.evidence(losses)) for losses in flat]
        passed = [result.confidence for result in results if result.verdict == "pass"]
        assert passed.count("high") <= sure
        assert passed.count("low") <= unsure


def test_a_short_steep_descent_is_no_noise(make, judge):
    """Nine points, each far below the one before: the steps are as large as the fall needed, and no noise."""
    assert judge(CODE, make.evidence(4.0 * 0.6 ** np.arange(9))).verdict == "pass"
    assert judge(CODE, make.evidence((4.0 * 0.6 ** np.arange(9))[::-1])).verdict != "pass"


def test_a_validation_loss_shows_what_noise_hides(make, judge):
    losses = 2.0 + 0.8 * np.random.default_rng(1).standard_normal(60)
    falling = make.series(np.linspace(2.0, 1.8, 10), role="val_loss")
    flat = make.series(np.linspace(2.0, 1.95, 10), role="val_loss")
    alone, beside, flatter = (judge(CODE, make.evidence(losses, *more)) for more in ((), (falling,), (flat,)))
    assert (alone.verdict, beside.verdict, flatter.verdict) == ("warn", "pass", "warn")
    assert beside.confidence == "low"


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    result = judge(CODE, make.evidence(np.full(100, value)))
    assert result.verdict == "fail"
    assert result.measured["descent_share"] == 0.0


def falling(share, n=200):
    """Noiseless, linear, by a share of the first level."""
    return np.linspace(1.0, 1.0 - share, n)


def test_boundary_of_the_descent(make, judge):
    """Exactly the share measured is enough; the next larger threshold is not."""
    evidence = make.evidence(falling(0.08))
    share = judge(CODE, evidence).measured["descent_share"]
    assert judge(CODE, evidence, min_descent=share).verdict == "pass"
    slow = judge(CODE, evidence, min_descent=math.nextafter(share, 1))
    assert slow.verdict == "warn"
    assert slow.measured["trend_z"] < -3


@pytest.mark.parametrize(
    ("gain", "scratch", "tuning"), [(0.10, "pass", "pass"), (0.035, "warn", "pass"), (0.001, "warn", "warn")]
)
def test_fine_tuning_needs_less(gain, scratch, tuning, make, judge):
    losses = falling(gain)
    adapter = Weights(source="a", tensors=(TensorHeader(name="layers.0.q.lora_A.weight", shape=(2, 2), dtype="F32"),))
    assert judge(CODE, make.evidence(losses)).verdict == scratch
    assert judge(CODE, make.evidence(losses, params={"model_name_or_path": "gpt2"})).verdict == tuning
    assert judge(CODE, make.evidence(losses, params={"pretrained": "True"})).verdict == tuning
    assert judge(CODE, make.evidence(losses, params={"pretrained": "False"})).verdict == scratch
    assert judge(CODE, make.evidence(losses, weights=adapter)).verdict == tuning


def test_a_flat_fine_tune_is_a_warning(sick, make, judge):
    assert judge(CODE, make.evidence(sick.at_chance(), params={"base_model": "x"})).verdict == "warn"


@pytest.mark.parametrize("n", [8, 12, 19])
def test_few_points_are_unsure(n, make, judge):
    result = judge(CODE, make.evidence(2.0 + 0.01 * np.random.default_rng(n).standard_normal(n)))
    assert (result.verdict, result.confidence) == ("warn", "low")


@pytest.mark.parametrize("n", [1, 7])
def test_below_8_points_it_is_skipped(n, make, judge):
    assert judge(CODE, make.evidence(np.ones(n))).verdict == "SkippedProbe"


def test_a_history_that_begins_in_mid_training_is_unsure(sick, make, judge):
    losses = sick.at_chance()
    assert judge(CODE, make.evidence(losses, steps=np.arange(500) + 5000)).verdict == "warn"
    assert judge(CODE, make.evidence(losses, steps=np.arange(500) + 10)).verdict == "fail"


def test_every_tenth_step(healthy, sick, make, judge):
    steps = np.arange(0, 500, 10)
    assert judge(CODE, make.evidence(healthy.descent(n=500)[::10], steps=steps)).verdict == "pass"
    assert judge(CODE, make.evidence(sick.at_chance()[::10], steps=steps)).verdict == "fail"


def test_one_lucky_batch_is_not_learning(sick, make, judge):
    losses = sick.at_chance()
    losses[[100, 250]] = 0.01
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


def test_up_first_and_back_to_the_start_is_not_learning(make, judge):
    """An explosion in the first updates, then pinned where it began."""
    rng = np.random.default_rng(2)
    losses = np.concatenate([[2.3], np.linspace(40.0, 2.35, 60), np.full(340, 2.3)]) + 0.005 * rng.standard_normal(401)
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


def test_the_validation_loss_stands_in(healthy, make, judge):
    validation = make.series(healthy.descent(n=30), role="val_loss")
    assert judge(CODE, make.evidence(None, validation)).verdict == "pass"
    # A trainer's summary at the end logs one single training loss.
    assert judge(CODE, make.evidence([1.36], validation)).verdict == "pass"
    assert judge(CODE, make.evidence(np.full(30, 2.0), validation)).verdict == "fail"


def test_only_nan_is_skipped(make, judge):
    assert judge(CODE, make.evidence(np.full(50, np.nan))).verdict == "SkippedProbe"


@pytest.mark.parametrize("name", ["at_chance", "descent", "heavy_noise", "fine_tune", "negative_descent"])
@given(exponent=st.integers(-60, 60))
def test_the_unit_of_the_loss_does_not_matter(name, exponent, healthy, sick, make, judge):
    losses = (getattr(sick, name, None) or getattr(healthy, name))(3)
    expected = judge(CODE, make.evidence(losses))
    scaled = judge(CODE, make.evidence(losses * 2.0**exponent))
    assert scaled.verdict == expected.verdict
    assert scaled.measured["descent_share"] == expected.measured["descent_share"]


@given(losses=st.lists(st.floats(-100, 100), min_size=8, max_size=60), one=st.floats(0, 1), other=st.floats(0, 1))
def test_asking_for_less_never_finds_more(losses, one, other, make, judge):
    lower, higher = sorted([one, other])
    if judge(CODE, make.evidence(losses), min_descent=higher).verdict == "pass":
        assert judge(CODE, make.evidence(losses), min_descent=lower).verdict == "pass"
