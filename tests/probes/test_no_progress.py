"""LOS005."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tracker_health.evidence import StepUnit, TensorHeader, Weights

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
    usual, best = (losses[0] if first - losses[0] > 4 * noise else first), min(blocks)
    error_of_best = 1.5 * 1.2533 * noise / math.sqrt(size)
    usual_error = math.sqrt((1.2533 * noise) ** 2 / head + error_of_best**2)
    starts = [(losses[0], math.sqrt((2 * noise) ** 2 + error_of_best**2))]
    lengths = sorted({*(3**power for power in range(1, 9) if 3**power < size), size})
    starts += [(median(losses[:k]), math.sqrt((1.2533 * noise) ** 2 / k + error_of_best**2)) for k in lengths]
    clear = [
        one
        for one in starts
        if one[0] - best > max(0, 3 * one[1]) and (one[0] == losses[0] or one[0] - usual <= 4 * usual_error)
    ]
    start, error = max([(usual, usual_error), *clear])
    scale = max(abs(start), abs(best))
    share = (start - best) / scale if scale else 0.0
    trend = trend_of(cut(losses, max(1, n // 60)))
    quarter, third = max(2, n // 4), n // 3
    fall_of_thirds = sum(losses[:third]) / third - sum(losses[-third:]) / third
    measured = {"start": start, "best": best, "descent_share": share, "standard_error": error, "trend_z": trend}
    margins = {
        "from some start": 1.0 if clear else -1.0,
        "by a third": start - best - 0.3 * scale,
        "apart": min(losses[:quarter]) - max(losses[-quarter:]),
        "hidden": 3 * 2 * 1.2533 * noise / math.sqrt(n) - 0.5 * 0.05 * scale,
        "all hidden": 3 * 2 * 1.2533 * noise / math.sqrt(n) - 0.5 * (0.15 if n < 20 else 0.3) * scale,
        "rising": -fall_of_thirds - 2.0 * noise * math.sqrt(2 / third),
        "leaning": fall_of_thirds - (0.5 if n < 50 else 2.0) * noise * math.sqrt(2 / third) if noise > 0 else -1.0,
    }
    margins |= {f"from start {index}": level - best - 3 * its for index, (level, its) in enumerate(starts)}
    margins |= {f"above {index}": level - usual - 4 * usual_error for index, (level, _) in enumerate(starts)}
    return measured, margins


def assert_as_naive(losses, make, judge, held_out=None):
    measured, margins = naive(losses)
    scale = 1e-9 * max(abs(loss) for loss in losses)
    assume(all(margin == 0 or abs(margin) > scale for margin in margins.values()))
    assume(abs(measured["descent_share"] - 0.05) > 1e-9)
    assume(abs(measured["trend_z"] + 1.0) > 1e-9)
    more = [] if held_out is None else [make.series(held_out, role="val_loss")]
    result = judge(CODE, make.evidence(losses, *more))
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=scale), name
    falling = measured["trend_z"] < -3
    significant = falling or margins["from some start"] > 0 or min(margins["by a third"], margins["apart"]) > 0
    hidden = margins["hidden"] > 0 and not significant and measured["trend_z"] < 3
    validated = both = False
    if held_out is not None and len(held_out) >= 3:
        gain = held_out[0] - (held_out[-1] + held_out[-2]) / 2
        assume(abs(gain - 0.05 * abs(held_out[0])) > 1e-9)
        assume(abs(gain - 0.01 * abs(held_out[0])) > 1e-9)
        both = gain > 0.01 * abs(held_out[0]) and trend_of(held_out) < -1 and falling
        validated = gain > 0.05 * abs(held_out[0]) and trend_of(held_out) < -1
    if significant and measured["descent_share"] >= 0.05:
        expected = "pass", "high"
    elif (
        both
        or (hidden and (margins["leaning"] > 0 or validated or measured["trend_z"] < -1))
        or (hidden and margins["all hidden"] > 0 > margins["rising"])
    ):
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
    it can, one in three leans down by more than half a standard error, and none is called sure.
    """
    for n, sure, unsure in ((2000, 1, 0), (300, 0, 75)):
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
    losses = 2.0 + 0.2 * np.random.default_rng(1).standard_normal(60)
    losses[40:] += 0.05
    falling = make.series(np.linspace(2.0, 1.8, 10), role="val_loss")
    flat = make.series(np.linspace(2.0, 1.95, 10), role="val_loss")
    alone, beside, flatter = (judge(CODE, make.evidence(losses, *more)) for more in ((), (falling,), (flat,)))
    assert (alone.verdict, beside.verdict, flatter.verdict) == ("warn", "pass", "warn")
    assert beside.confidence == "low"


def noisy(points=60, seed=1):
    return 1.0 + 0.3 * np.random.default_rng(seed).standard_normal(points) + np.linspace(0.02, -0.02, points)


@pytest.mark.parametrize(
    ("at", "by", "params", "verdict"),
    [
        pytest.param(range(2, 60, 6), 0.003, {}, "warn", id="it stood from the beginning"),
        pytest.param(range(12, 60, 6), 0.003, {}, "pass", id="what came before is not seen"),
        pytest.param(range(2, 60, 6), 0.02, {}, "pass", id="it moved"),
        pytest.param(range(2, 60, 16), 0.003, {}, "pass", id="four evaluations"),
        pytest.param(range(2, 60, 6), 0.003, {"base_model": "x"}, "pass", id="a fine-tune"),
    ],
)
def test_noise_is_no_excuse_beside_a_validation_loss_that_stood(at, by, params, verdict, make, judge):
    held_out = make.series(np.linspace(1.0, 1.0 - by, len(at)), list(at), role="val_loss")
    assert judge(CODE, make.evidence(noisy(), held_out, params=params)).verdict == verdict


@pytest.mark.parametrize(
    ("noise", "points", "verdict"), [(0.02, 15, "warn"), (0.3, 15, "pass"), (0.15, 40, "warn"), (0.8, 40, "pass")]
)
def test_noise_that_would_hide_even_a_large_descent_passes(noise, points, verdict, make, judge):
    for seed in range(8):
        losses = 2.0 + noise * np.random.default_rng(seed).permutation(np.linspace(-1.7, 1.7, points))
        losses = np.r_[losses[: points // 2], losses[: points - points // 2][::-1]]  # leans neither up nor down
        assert judge(CODE, make.evidence(losses)).verdict == verdict
        assert judge(CODE, make.evidence(losses + np.linspace(0.0, 4.0, points))).verdict in ("warn", "fail")


def test_noise_that_hides_what_a_fine_tune_gains_passes(make, judge):
    """Diffusion: the noise of the sampled time is half of the level, with a long tail. From scratch more may be asked,
    and where there is a validation loss it would show the gain.
    """
    flat = make.series(np.full(10, 0.1), role="val_loss")
    for seed in range(20):
        losses = 0.12 * np.exp(0.5 * np.random.default_rng(seed).standard_normal(500)) * np.linspace(1, 0.96, 500)
        tuned = judge(CODE, make.evidence(losses, params={"base_model": "x"}))
        assert tuned.verdict == "pass"
        assert "%" not in tuned.message or tuned.confidence == "high"
    losses = np.tile(np.random.default_rng(3).gamma(4.0, 0.03, 166), 3)  # leans neither up nor down
    assert judge(CODE, make.evidence(losses)).verdict == "warn"
    assert judge(CODE, make.evidence(losses, flat, params={"base_model": "x"})).verdict == "warn"


@pytest.mark.parametrize(("last", "verdict"), [(2.04, "warn"), (2.03, "pass")])
def test_both_losses_come_down_slowly(last, verdict, make, judge):
    """Continued pretraining that nothing tells from a training from scratch: 3 % in training, 1 % in validation."""
    losses = 2.03 + 0.07 * np.exp(-np.arange(150) / 50) + 0.01 * np.random.default_rng(0).standard_normal(150)
    held_out = make.series([2.06, 2.042, last], [49, 99, 149], role="val_loss")
    result = judge(CODE, make.evidence(losses, held_out))
    assert result.verdict == verdict
    assert "slowly" in result.message or "by little" in result.message


def test_the_first_value_may_lie_far_above_the_next(make, judge):
    """Click-through rates: all there is to learn is learnt before the second point."""
    losses = [0.69, 0.452, *(0.4495 + 0.002 * np.random.default_rng(0).standard_normal(38))]
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["start"]) == ("pass", 0.69)
    assert judge(CODE, make.evidence([0.452, 0.69, *losses[2:]])).verdict == "fail"


def stands(seed=0, *, at=120, n=400, decimals=16, noise=0.05):
    losses = 0.3 + 2.0 * np.exp(-np.arange(n) / 80)
    losses = np.round(losses * (1 + noise * np.random.default_rng(seed).standard_normal(n)), decimals)
    losses[at:] = losses[at - 1]
    return losses


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("decimals", [3, 4, 16])
def test_a_loss_that_stands_at_one_number(seed, decimals, make, judge):
    losses = stands(seed, decimals=decimals)
    result = judge(CODE, make.evidence(losses, steps=np.arange(400) * 5))
    assert (result.verdict, result.confidence, result.steps) == ("fail", "high", (119 * 5,))
    assert f"exactly {losses[-1]:.4g} since step {119 * 5}, for 281 of 400 points" in result.message
    assert result.measured["stands_for"] == 281
    losses[-1] *= 1.0001
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


@pytest.mark.parametrize(("points", "verdict"), [(39, "pass"), (40, "fail")])
def test_boundary_of_the_points_that_stand(points, verdict, make, judge):
    assert judge(CODE, make.evidence(stands(at=400 - points + 1))).verdict == verdict


@pytest.mark.parametrize(("lowest", "faded", "verdict"), [
    (True, True, "pass"), (True, False, "fail"), (False, True, "fail"),
])  # fmt: skip
def test_a_minimum_that_was_come_to_without_minibatches_is_no_standstill(lowest, faded, verdict, make, judge):
    rng = np.random.default_rng(0)
    course = np.exp(-np.arange(60) / 8.0) * (1.0 + 0.3 * rng.uniform(-1, 1, 60)) + 1e-3
    if faded:
        course[-12:] = 1e-3 * (1.0 + 1e-4 * rng.uniform(0, 1, 12))
    losses = np.append(course, np.full(40, course.min() * (0.999 if lowest else 1.5)))
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize("name", ["rounded", "converged", "memorised", "held", "full batch", "few before"])
def test_near_misses_of_a_loss_that_stands(name, sick, make, judge):
    """The log rounds, repeats its last number, or there is no noise left that could change it."""
    index, rng = np.arange(400), np.random.default_rng(0)
    losses = {
        "rounded": np.round(0.3 + 2.0 * np.exp(-index / 40) * (1 + 0.05 * rng.standard_normal(400)), 2),
        "converged": np.round(0.3 + 2.0 * np.exp(-index / 10) * (1 + 0.05 * rng.standard_normal(400)), 6),
        "memorised": sick.memorised(),
        "held": np.repeat(2.0 * np.exp(-np.arange(16) / 4) * (1 + 0.1 * rng.standard_normal(16)), 25),
        "full batch": np.maximum(0.5, 2.0 - index / 200),
        "few before": np.concatenate([np.linspace(2.0, 1.0, 9), np.full(91, 0.5)]),
    }[name]
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_a_climb_by_design_is_left_out(make, judge):
    """A queue of negatives fills: the loss rises far, gradually, and then descends. An explosion does not count."""
    rng, index = np.random.default_rng(0), np.arange(500)
    climb = np.where(index < 60, 2 + 7 * (index / 60), 9 - 2.3 * (1 - np.exp(-(index - 60) / 120)))
    leap = np.where(index < 60, 2.0, climb)
    noise = 1 + 0.01 * rng.standard_normal(500)
    assert judge(CODE, make.evidence(climb * noise)).verdict == "pass"
    assert judge(CODE, make.evidence(leap * noise)).verdict == "warn"


@pytest.mark.parametrize(("rises", "verdict"), [(True, "pass"), (False, "fail")])
def test_an_objective_that_is_made_harder_cannot_be_compared(rises, verdict, make, judge):
    losses = 60 + 0.1 * np.random.default_rng(0).standard_normal(400)
    weight = np.minimum(1, np.arange(400) / 350) if rises else np.ones(400)
    result = judge(CODE, make.evidence(losses, make.series(weight, role="objective_weight", name="kl_weight")))
    assert (result.verdict, "kl_weight" in result.message) == (verdict, rises)


def test_negative_losses_have_no_share(make, judge):
    losses = np.linspace(0.5, -0.3, 100)
    assert "%" not in judge(CODE, make.evidence(losses)).message
    assert "by 50.0%" in judge(CODE, make.evidence(np.repeat([1.0, 0.5], 50))).message


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


@pytest.mark.parametrize("n", [1, 3])
def test_below_4_points_it_is_skipped(n, make, judge):
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


def late(values, make, **more):
    """A validation loss that is evaluated every hundred steps, for the first time after so many."""
    return make.series(values, 100 * (1 + np.arange(len(values))), role="val_loss", **more)


LEARNT_AT_ONCE = np.array([0.353, 0.351, 0.349, 0.352, 0.350, 0.351, 0.348, 0.350])


@pytest.mark.parametrize("repeats", [1, 5])
def test_a_validation_loss_that_begins_late_does_not_show_what_was_learnt(repeats, make, judge):
    """All was learnt in the first epoch."""
    result = judge(CODE, make.evidence(None, late(np.tile(LEARNT_AT_ONCE, repeats), make)))
    assert (result.verdict, result.confidence) == ("pass", "low")
    assert "first evaluation" in result.message
    assert "validation loss" in result.message
    falling = judge(CODE, make.evidence(None, late(np.linspace(2.0, 1.0, 8 * repeats), make)))
    assert (falling.verdict, falling.confidence) == ("pass", "high")
    assert falling.message.startswith("the validation loss came down")


@pytest.mark.parametrize("points", [5, 8, 40])
def test_one_that_does_not_move_at_all_is_a_warning(points, make, judge):
    for moves, verdict in ((0.0, "warn"), (0.0009, "warn"), (0.0011, "pass" if points >= 8 else "SkippedProbe")):
        values = 0.693 * (1 - moves * (np.arange(points) % 2))
        result = judge(CODE, make.evidence(None, late(values, make)))
        assert result.verdict == verdict
        if verdict == "warn":
            assert result.confidence == "low"
            assert "the validation loss" in result.message


@pytest.mark.parametrize(
    ("steps", "unit", "verdict"),
    [
        (100 * np.arange(30), StepUnit.UNKNOWN, "fail"),  # before the first step, and after every hundred
        (100 * np.arange(30), StepUnit.EPOCH, "pass"),
        (np.arange(30), StepUnit.UNKNOWN, "pass"),  # of epochs, it may be
        (100 * np.arange(1, 31), StepUnit.UNKNOWN, "pass"),
    ],
)
def test_a_validation_loss_that_begins_with_the_training(steps, unit, verdict, make, judge):
    values = np.tile(LEARNT_AT_ONCE, 4)[:30]
    held_out = make.series(values, steps, role="val_loss", step_unit=unit)
    assert judge(CODE, make.evidence(None, held_out)).verdict == verdict


@pytest.mark.parametrize(("end", "verdict"), [(2.19, "pass"), (2.24, "fail")])
def test_a_few_points_of_the_training_loss_beside_it(end, verdict, make, judge):
    """The validation loss alone would fail; the training loss came down by a twentieth, or less."""
    held_out = make.series(np.tile(LEARNT_AT_ONCE, 4)[:30], 100 * np.arange(30), role="val_loss")
    result = judge(CODE, make.evidence(make.series([2.31, 2.25, end], [999, 1999, 2999]), held_out))
    assert result.verdict == verdict
    assert ("training loss come down to 2.19" in result.message) is (verdict == "pass")


def test_the_training_loss_is_called_the_loss(sick, make, judge):
    assert judge(CODE, make.evidence(sick.at_chance())).message.startswith("the loss ")
    assert judge(CODE, make.evidence(np.linspace(2.0, 1.0, 30))).message.startswith("the loss ")


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


@pytest.mark.parametrize(
    ("losses", "held_out", "params", "verdict"),
    [
        ([2.31, 2.312, 2.309, 2.31, 2.308], None, {}, "warn"),
        ([2.31, 2.312, 2.309, 2.31, 2.308], [2.32, 2.32, 2.319, 2.318], {}, "warn"),
        ([2.31, 2.312, 2.309, 2.31, 2.308], [2.32, 2.28, 2.27, 2.26], {}, "SkippedProbe"),
        ([2.31, 2.312, 2.309, 2.31, 2.308], None, {"base_model": "b"}, "SkippedProbe"),
        ([2.31, 2.30, 2.28, 2.27, 2.26], None, {}, "SkippedProbe"),
        ([0.4012, 0.4003, 0.3996, 0.3990], None, {}, "SkippedProbe"),
        ([0.0, -1.0, -2.0, -3.0], None, {}, "SkippedProbe"),
        ([2.31, 2.312, 2.309], None, {}, "SkippedProbe"),
        ([2.31, 1.9, 1.7, 1.6], None, {}, "pass"),
        ([1.2, 1.0, 0.9, 0.8, 0.85], None, {"base_model": "b"}, "pass"),
        ([2.31, 2.1, 2.0, 1.9], None, {}, "SkippedProbe"),
        ([2.31, 1.6, 1.7, 1.9], None, {}, "SkippedProbe"),
        ([2.31, 1.6, 1.2], None, {}, "SkippedProbe"),
    ],
)
def test_of_a_few_points_only_none_at_all_and_a_large_descent_count(losses, held_out, params, verdict, make, judge):
    more = [make.series(held_out, role="val_loss")] if held_out else []
    assert judge(CODE, make.evidence(losses, *more, params=params)).verdict == verdict
