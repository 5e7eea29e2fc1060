"""GEN001."""

import bisect
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.overfit import Overfit

CODE = "GEN001"
RULE = Overfit()
FEW = settings(max_examples=80, deadline=None)


def evaluation_steps(losses, held_out):
    n = max(len(held_out), 0 if losses is None else len(losses))
    return [n * (index + 1) // len(held_out) - 1 for index in range(len(held_out))]


def pair(make, losses, held_out):
    """Evidence with a validation loss at even steps up to the end of the training loss, which may be missing."""
    steps = evaluation_steps(losses, held_out)
    return make.evidence(losses, make.series(held_out, steps, role="val_loss"))


def naive_first_gap(losses, held_out, plain, margins):
    """How far the validation loss began above the training loss, where that counts."""
    begun, size = evaluation_steps(losses, held_out)[0], max(2, len(losses) // 10)
    if begun <= max(1.0, 0.02 * (len(losses) - 1)):
        return max(0.0, held_out[0] - plain.median(losses[: max(1, min(5, len(losses) // 20))]))
    at = min(max(begun, size), len(losses))
    then, now = plain.median(losses[at - size : at]), plain.median(losses[-size:])
    fell = held_out[0] - plain.median(held_out[-3:])
    margins += [then - now, fell - 0.25 * (then - now)]
    followed = begun <= 0.1 * (len(losses) - 1) and then > now and fell >= 0.25 * (then - now)
    return max(0.0, held_out[0] - then) if followed else 0.0


def naive(losses, held_out, plain, rule=RULE):
    """The measured numbers, the verdict, and by how much each condition is met or missed."""
    n = len(held_out)
    low = min(held_out)
    best = held_out.index(low)
    end = plain.median(held_out[-3:] if n >= 6 else held_out[-2:])
    noise = plain.evaluation_noise(held_out)
    top = max(held_out[: max(1, n // 4)])
    descent = (top if losses is None else max(top, losses[0])) - low
    rise = end - low
    needed = max(rule.rise_share * abs(low), rule.descent_share * descent)
    since = held_out[best:]
    assert len(since) < 120
    if len(since) >= 6 and plain.trend(since) > 3:
        needed = min(needed, max(rule.steady_rise_share * abs(low), rule.steady_descent_share * descent))
    needed = max(needed, (math.sqrt(2 * math.log(n)) + 3 * 0.75) * noise)
    margins, went_on = [rise - needed], True
    if losses is not None and len(losses) >= 4:
        size = max(2, len(losses) // 10)
        at = bisect.bisect_left(range(len(losses)), evaluation_steps(losses, held_out)[best])
        at = min(max(at, size), len(losses))
        then, now = plain.median(losses[at - size : at]), plain.median(losses[-size:])
        went_on = now <= then + 0.1 * abs(then)
        margins.append(now - then - 0.1 * abs(then))
    measured = {
        "best": low,
        "end": end,
        "noise": noise,
        "rise_share": rise / abs(low) if low else 0.0,
        "evaluations": n,
    }
    if rise > needed and n - 1 - best >= rule.min_after and went_on:
        return measured, "warn", margins
    if losses is None or len(losses) < 6:
        return measured, "pass", margins
    start, train_end = max(losses[0], held_out[0]), plain.median(losses[-max(2, len(losses) // 10) :])
    another_unit = (held_out[0] > 3 * losses[0] and held_out[-1] < 0.8 * held_out[0]) or min(held_out) > 10 * losses[0]
    margins += [
        held_out[0] - 3 * losses[0],
        min(held_out) - 10 * losses[0],
        held_out[-1] - 0.8 * held_out[0],
        start,
        start - train_end - 0.2 * abs(start),
    ]
    if another_unit or start <= 0 or start - train_end < 0.2 * start:
        return measured, "pass", margins
    last = held_out[-max(3, n // 3) :]
    val_end = plain.median(last) - 2 * plain.median_error(noise, len(last))
    first = naive_first_gap(losses, held_out, plain, margins)
    share = (val_end - train_end - first) / (start - train_end)
    margins += [share - rule.gap_share, train_end - rule.memorised_share * val_end, val_end - 0.15 * start]
    near = max(0.05 * abs(low), (math.sqrt(2 * math.log(n)) + 0.75) * noise)
    learnt = rise <= near and end < 0.5 * start
    margins += [rise - near, end - 0.5 * start]
    memorised = train_end < rule.memorised_share * val_end and val_end > 0.15 * start and not learnt
    stopped = evaluation_steps(losses, held_out)[next(at for at, one in enumerate(held_out) if one <= low + near)]
    at = min(max(bisect.bisect_left(range(len(losses)), stopped), size), len(losses))
    came = plain.median(losses[at - size : at]) - train_end
    followed = rise <= near and top - end >= 0.1 * abs(top) and came < 0.2 * (start - train_end)
    margins += [top - end - 0.1 * abs(top), came - 0.2 * (start - train_end), *(one - low - near for one in held_out)]
    apart = share > rule.gap_share or memorised
    return measured, "warn" if apart and not followed else "pass", margins


def assert_as_naive(losses, held_out, plain, make, judge):
    measured, verdict, margins = naive(losses, held_out, plain)
    assume(all(abs(margin) > 1e-9 for margin in margins))
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == verdict
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@FEW
@given(
    losses=st.none() | st.lists(st.floats(-2, 5), min_size=1, max_size=80),
    held_out=st.lists(st.floats(-2, 9), min_size=4, max_size=40),
)
def test_against_plain_python(losses, held_out, plain, make, judge):
    assert_as_naive(losses, held_out, plain, make, judge)


def overfit(seed=0, *, n=400, evaluations=20, rise=0.4, turn=0.4, floor=0.05, noise=0.01):
    """A training loss that falls to almost nothing, and a validation loss that turns and climbs by a share."""
    rng = np.random.default_rng(seed)
    losses = 2.3 * (floor + (1 - floor) * np.exp(-5 * np.arange(n) / n)) * (1 + 0.03 * rng.standard_normal(n))
    progress = np.linspace(1 / evaluations, 1, evaluations)
    held_out = 0.9 + 1.4 * np.exp(-15 * progress) + 0.9 * rise * np.clip((progress - turn) / (1 - turn), 0, 1)
    return losses, held_out * (1 + noise * rng.standard_normal(evaluations))


def test_the_gap_that_a_training_goes_on_from_does_not_count(make, judge):
    losses = 0.31 - 0.14 * np.linspace(0, 1, 200)
    held_out, steps = 0.5 - 0.02 * np.linspace(0, 1, 20), np.linspace(0, 199, 20)
    evidence = make.evidence(losses, make.series(held_out, steps, role="val_loss"))
    assert judge(CODE, evidence).verdict == "pass"
    later = make.evidence(losses, make.series(held_out, steps + 40, role="val_loss"))
    assert judge(CODE, later).verdict == "warn", "of a first evaluation that comes later nothing is known of the start"


def test_what_comes_after_the_objective_was_made_harder_is_judged(make, judge):
    losses, held_out = overfit(rise=0.6)
    series = make.series(held_out, evaluation_steps(losses, held_out), role="val_loss")
    assert judge(CODE, make.evidence(losses, series)).verdict == "warn"
    rising = make.series(np.linspace(0, 1, 400), role="objective_weight", name="beta")
    assert judge(CODE, make.evidence(losses, series, rising)).verdict == "SkippedProbe"
    early = make.series(np.minimum(1.0, np.arange(400) / 40), role="objective_weight", name="beta")
    assert judge(CODE, make.evidence(losses, series, early)).verdict == "warn"


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 200),
    evaluations=st.integers(4, 60),
    rise=st.floats(-0.2, 1),
    floor=st.sampled_from([0.001, 0.01, 0.3, 0.6]),
    unit=st.sampled_from([1, 1, 1, 50]),
    noise=st.floats(0, 0.1),
)
def test_curves_against_plain_python(seed, n, evaluations, rise, floor, unit, noise, plain, make, judge):
    losses, held_out = overfit(seed, n=n, evaluations=evaluations, rise=rise, floor=floor, noise=noise)
    assert_as_naive(losses.tolist(), (unit * held_out).tolist(), plain, make, judge)


@pytest.mark.parametrize("gap", [0.7, 1.0, 1.08])
@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, gap, healthy, make, judge):
    """Validation that follows the training, below it (dropout, augmentation) or a little above it."""
    losses = getattr(healthy, healthy_name)(seed)
    size = max(1, len(losses) // 8)
    level = [float(np.median(losses[at : at + size])) for at in range(size, len(losses) - size + 1, size)]
    held_out = [one + (gap - 1) * abs(one) for one in level]
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == "pass", result.message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "evaluations"), [(400, 20), (400, 6), (40, 40), (12, 12), (10_000, 100)])
def test_overfit(n, evaluations, seed, make, judge):
    losses, held_out = overfit(seed, n=n, evaluations=evaluations)
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == "warn"
    assert f"rose from {held_out.min():.4g} at step {result.steps[0]}" in result.message
    assert f"checkpoint at step {result.steps[0]}" in result.remedy
    assert result.measured["best_step"] == result.steps[0]
    assert result.measured["evaluations"] == evaluations


def test_without_a_training_loss(make, judge):
    assert judge(CODE, pair(make, None, overfit()[1])).verdict == "warn"
    assert judge(CODE, pair(make, None, np.linspace(2, 1, 10))).verdict == "pass"


def test_it_says_nothing_of_a_training_loss_that_is_not_there(make, judge):
    assert "training loss" not in judge(CODE, pair(make, None, overfit()[1])).message


def test_a_divergence_of_both_losses_is_no_overfitting(sick, make, judge):
    losses = sick.exploding()
    held_out = np.array([np.median(losses[at : at + 20]) for at in range(0, 400, 20)])
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
def test_the_two_losses_end_far_apart(seed, make, judge):
    """The validation loss never rises, and stops at 60 % of the descent when the training's has begun."""
    losses, _ = overfit(seed, floor=0.02)
    held_out = np.maximum(1.4, 2.3 - np.linspace(0.6, 3.6, 10))
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == "warn"
    assert f"{result.measured['gap_share']:.0%}" in result.message
    assert "shuffles" in result.remedy


@pytest.mark.parametrize("seed", range(3))
def test_a_validation_loss_that_is_normalised_otherwise(seed, make, judge):
    """Survival times: the loss of the whole set is higher than that of a batch by the logarithm of how many there are.
    It falls with the other, and stays at its minimum; the first evaluation comes after an epoch.
    """
    rng, step = np.random.default_rng(seed), np.arange(400)
    losses = 2.0 + 1.2 * np.exp(-step / 80) + 0.05 * rng.standard_normal(400)
    offset = 4.0 + 1.2 * np.exp(-step[9::10] / 80) + 0.01 * rng.standard_normal(40)
    assert judge(CODE, pair(make, losses, offset)).verdict == "pass"
    assert judge(CODE, pair(make, losses, 5.0 + 0.01 * rng.standard_normal(40))).verdict == "warn", "it learnt nothing"
    rising = offset + np.linspace(0.0, 1.0, 40)
    assert judge(CODE, pair(make, losses, rising)).verdict == "warn", "it rose again"


@pytest.mark.parametrize(
    ("fell", "rose", "stops", "verdict"),
    [
        (0.055, 0.0, 0.95, "pass"),
        (0.045, 0.0, 0.95, "warn"),  # by less than a twentieth
        (0.160, 0.048, 0.95, "pass"),
        (0.160, 0.053, 0.95, "warn"),  # above the minimum again
        (0.110, 0.0, 0.82, "pass"),
        (0.110, 0.0, 0.72, "warn"),  # and the training loss fell on
    ],
)
def test_boundaries_of_a_validation_loss_that_followed(fell, rose, stops, verdict, make, judge):
    """The training loss falls from 3 to 0.5 all along; the validation loss from 3 until it stops."""
    losses, held_out = np.linspace(3.0, 0.5, 1000), np.full(100, 3.0 * (1.0 - fell))
    fall = round(100 * stops)
    held_out[:25] = 3.0
    held_out[25:fall] = np.linspace(3.0, 3.0 * (1.0 - fell) * 1.0501, fall - 25)
    held_out[-3:] *= 1.0 + rose
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


@pytest.mark.parametrize(("late", "verdict"), [(0.09, "pass"), (0.0, "warn")])
def test_a_validation_loss_that_still_falls_followed(late, verdict, make, judge):
    """As of a fine-tune: it gains little, and goes on gaining."""
    losses = np.linspace(2.3, 1.8, 1000)
    held_out = np.r_[np.linspace(2.3, 2.12, 10), np.linspace(2.12, 2.12 - late, 30)]
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


@pytest.mark.parametrize(("train", "verdict"), [(0.0205, "pass"), (0.0195, "warn")])
def test_samples_learnt_by_heart(train, verdict, make, judge):
    """The validation loss kept 40 % of where training began; the training loss almost nothing of that. It rose by less
    than overfitting takes, and by more than a validation loss at its minimum.
    """
    losses = np.concatenate([np.linspace(2.5, 1.0, 200), np.full(200, train)])
    assert judge(CODE, pair(make, losses, [1.5, 1.2, 0.92, *[1.0] * 12])).verdict == verdict


@pytest.mark.parametrize(("level", "verdict"), [(0.37, "pass"), (0.38, "warn")])
def test_a_validation_loss_that_is_nearly_learnt_too_passes(level, verdict, make, judge):
    losses = np.concatenate([np.linspace(2.5, 1.0, 200), np.full(200, 1e-4)])
    assert judge(CODE, pair(make, losses, [1.5, 1.2, 0.345, *[level] * 12])).verdict == verdict


@pytest.mark.parametrize(("low", "verdict"), [(0.96, "pass"), (0.95, "warn")])
def test_samples_learnt_by_heart_beside_a_validation_loss_at_its_minimum(low, verdict, make, judge):
    losses = np.concatenate([np.linspace(2.5, 1.0, 200), np.full(200, 0.001)])
    assert judge(CODE, pair(make, losses, [1.5, 1.2, low, *[1.0] * 12])).verdict == verdict


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("start", "train", "level"), [(2.3, 0.0027, 0.36), (4.6, 0.014, 1.0)])
def test_the_usual_end_of_a_classifier_passes(start, train, level, seed, make, judge):
    """It fits its samples; the validation loss came down by four fifths and stays at its minimum."""
    rng, epoch = np.random.default_rng(seed), np.arange(200)
    losses = start * np.exp(-epoch / 20) + train
    held_out = np.maximum(level, start * np.exp(-epoch / 12)) + 0.02 * level * rng.standard_normal(200)
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"


def test_memorised_samples_that_taught_nothing(make, judge):
    """The validation loss is at its minimum as well, but more than half of where training began is left of it."""
    losses = 2.3 * np.exp(-np.arange(200) / 20) + 0.002
    assert judge(CODE, pair(make, losses, np.maximum(1.6, 2.3 - 0.1 * np.arange(40)))).verdict == "warn"


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_the_rise(factor, verdict, plain, make, judge):
    """A minimum of 1 and a descent of less than 1, so that the share of the minimum decides. Plateaus: no noise."""
    up = 1 + RULE.rise_share * factor
    held_out = [1.9, 1.9, 1.9, 1.0, 1.0, 1.0, 1.0, up, up, up]
    assert plain.noise(held_out) == 0
    assert judge(CODE, pair(make, None, held_out)).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_the_share_of_the_descent(factor, verdict, make, judge):
    """From 6, where training began, to 1."""
    up = 1 + RULE.descent_share * 5 * factor
    losses = np.concatenate([np.full(20, 6.0), np.full(80, 0.9)])
    assert judge(CODE, pair(make, losses, [3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, up, up, up])).verdict == verdict


def test_a_steady_climb_needs_a_smaller_share_of_the_descent(make, judge):
    """From 5 to 0.25 and up to 0.4: a thirtieth of the descent, but 60 % of the minimum, all along."""
    losses = np.concatenate([np.full(20, 5.0), np.full(80, 0.2)])
    climb = np.linspace(0.25, 0.42, 12)
    assert judge(CODE, pair(make, losses, [3.0, 1.0, 0.5, *climb])).verdict == "warn"
    ragged = climb[[0, 5, 3, 8, 2, 10, 1, 7, 4, 9, 11, 11]]
    assert judge(CODE, pair(make, losses, [3.0, 1.0, 0.5, *ragged])).verdict == "pass"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_boundary_of_the_evaluations_after_the_minimum(after, make, judge):
    held_out = [2.2, 2.2, 2.2, 2.2, 1.0, *[2.0] * after]
    assert judge(CODE, pair(make, None, held_out)).verdict == ("warn" if after >= RULE.min_after else "pass")


@pytest.mark.parametrize(("end", "verdict"), [(1.0, "warn"), (1.09, "warn"), (1.11, "pass"), (2.0, "pass")])
def test_boundary_of_a_training_loss_that_went_up_as_well(end, verdict, make, judge):
    """It stood at 1 when the validation loss was lowest; up to a tenth more is as good as no rise."""
    losses = np.concatenate([[3.0], np.full(99, 1.3), np.full(50, 1.0), np.full(50, end)])
    held_out = [1.6, 1.6, 1.5, 1.5, 1.4, 1.4, 1.2, 1.2, *[1.5] * 4]
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


def test_a_last_evaluation_alone_is_no_end(make, judge):
    assert judge(CODE, pair(make, None, [3.0, 2.0, 1.5, 1.2, 1.0, 1.0, 1.0, 5.0])).verdict == "pass"


def test_a_noisy_validation_loss_is_not_overfit(make, judge):
    """Thirty evaluations on a small set: 15 % of noise around a plateau; four of a hundred runs at most."""
    runs = [1.0 + 0.15 * np.random.default_rng(seed).standard_normal(30) for seed in range(100)]
    losses = np.linspace(1.3, 0.9, 300)
    assert [judge(CODE, pair(make, losses, held_out)).verdict for held_out in runs].count("warn") <= 4


@pytest.mark.parametrize("unit", [0.01, 100.0])
def test_validation_in_another_unit(unit, make, judge):
    """A sum over the batch, or a mean over the pixels: it came down, by however little it lies apart."""
    losses, _ = overfit()
    assert judge(CODE, pair(make, losses, unit * np.linspace(1.5, 0.9, 10))).verdict == "pass"


def test_validation_in_another_unit_that_falls_by_little(make, judge):
    losses, _ = overfit()
    assert judge(CODE, pair(make, losses, 100.0 * np.linspace(1.0, 0.85, 10))).verdict == "pass"


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, pair(make, np.full(100, value), np.full(10, value))).verdict == "pass"


def test_too_few_finite_evaluations_are_skipped(make, judge):
    assert judge(CODE, pair(make, None, [1.0, 2.0, 3.0])).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, None, [1.0, 2.0, 3.0, np.nan, np.nan])).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-60, 60), seed=st.integers(0, 9), rise=st.sampled_from([0.0, 0.4]))
def test_the_unit_of_both_losses_does_not_matter(exponent, seed, rise, make, judge):
    losses, held_out = overfit(seed, rise=rise, floor=0.4)
    expected = judge(CODE, pair(make, losses, held_out))
    scaled = judge(CODE, pair(make, losses * 2.0**exponent, held_out * 2.0**exponent))
    assert (scaled.verdict, scaled.measured["rise_share"]) == (expected.verdict, expected.measured["rise_share"])
    assert scaled.verdict == ("warn" if rise else "pass")


@FEW
@given(
    losses=st.lists(st.floats(0.01, 5), min_size=6, max_size=30),
    held_out=st.lists(st.floats(0.1, 5), min_size=4, max_size=20),
    data=st.data(),
)
def test_higher_thresholds_never_find_more(losses, held_out, data, make, judge):
    names = ("rise_share", "descent_share", "steady_rise_share", "steady_descent_share", "gap_share")
    lower = {name: data.draw(st.floats(0.01, 1), name) for name in names} | {"min_after": 1, "memorised_share": 1.0}
    higher = {name: value + data.draw(st.floats(0, 1)) for name, value in lower.items() if isinstance(value, float)}
    higher |= {"min_after": data.draw(st.integers(1, 5)), "memorised_share": data.draw(st.floats(0.01, 1))}
    evidence = pair(make, losses, held_out)
    if judge(CODE, evidence, **lower).verdict == "pass":
        assert judge(CODE, evidence, **higher).verdict == "pass"


@pytest.mark.parametrize(("every", "end", "verdict"), [(50, 0.131, "pass"), (50, 0.16, "warn"), (1, 0.131, "warn")])
def test_a_log_that_begins_when_much_was_learnt(every, end, verdict, make, judge):
    """Nobody knows how far the validation loss had come down before."""
    losses = np.append(0.116, 0.03 * np.exp(-np.arange(14) / 4) + 0.001)
    steps = every * np.arange(1, 16)
    held_out = make.series(np.linspace(0.114, end, 6), steps[4::2], role="val_loss")
    assert judge(CODE, make.evidence(losses, held_out, steps=steps)).verdict == verdict


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.96, "pass"), (96.0, "pass"), (0.8, "warn"), (None, "warn")])
def test_by_heart_and_right(accuracy, verdict, make, judge):
    """A loss of a few epochs, whose mean in the first one is little."""
    losses = [0.42, 0.03, 0.005, 0.002, 0.0018, 0.0016]
    held_out = make.series([0.188, 0.13, 0.137, 0.136, 0.1365, 0.1368], steps=np.arange(6), role="val_loss")
    more = [] if accuracy is None else [make.series(np.full(6, accuracy), role="val_accuracy")]
    assert judge(CODE, make.evidence(losses, held_out, *more)).verdict == verdict


@pytest.mark.parametrize(
    ("train", "end", "accuracy", "verdict"),
    [(0.003, 1.36, 0.6, "warn"), (0.3, 1.36, 0.6, "pass"), (0.003, 1.2, 0.6, "pass"), (0.003, 1.36, None, "pass")],
)
def test_a_validation_loss_that_followed_half_of_the_way(train, end, accuracy, verdict, make, judge):
    """Nothing is left of the training loss, and more than half of the validation loss: of a distillation's, it may be
    that nothing more can go.
    """
    course = np.exp(-np.arange(120) / 10)
    losses, held_out = train + (2.47 - train) * course, end + (2.33 - end) * np.exp(-np.arange(120) / 14)
    evidence = pair(make, losses, held_out)
    if accuracy is not None:
        shares = make.series(accuracy * (1 - course), role="val_accuracy")
        evidence = replace(evidence, series=(*evidence.series, shares))
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(("offset", "fell", "first", "verdict"), [
    (1.5, 0.35, 20, "pass"), (1.5, 0.02, 20, "warn"), (1.5, 0.15, 80, "warn"), (0.0, 0.35, 20, "pass"),
])  # fmt: skip
def test_a_validation_loss_that_is_larger_by_what_hangs_on_its_number_of_samples(
    offset, fell, first, verdict, make, judge
):
    """As Cox's partial likelihood: of all samples at once, beside batches of 64."""
    losses = 2.7 + 0.5 * np.exp(-np.arange(700) / 150) + 0.05 * np.random.default_rng(0).standard_normal(700)
    steps = np.linspace(first, 699, 35).astype(int)
    held_out = losses[first] + offset - fell * np.linspace(0.0, 1.0, 35) ** 0.5
    held_out += 0.001 * np.random.default_rng(1).standard_normal(35)
    evidence = make.evidence(losses, make.series(held_out, steps, role="val_loss"))
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(("rise", "right_at_end", "verdict"), [
    (0.2, 0.8, "pass"), (0.2, 0.9, "pass"), (0.2, None, "warn"), (0.2, 0.7, "warn"), (0.5, 0.8, "warn"),
])  # fmt: skip
def test_a_small_rise_that_costs_no_answers(rise, right_at_end, verdict, make, judge):
    """Shares that scatter by 1 % about 80 % at the minimum."""
    losses = 0.2 + 2.1 * np.exp(-np.arange(60) / 8)
    held_out = np.append(1.0 + np.exp(-np.arange(20) / 4), np.linspace(1.01, 1 + rise, 40))
    evidence = pair(make, losses, held_out)
    if right_at_end is not None:
        shares = np.append(np.full(25, 0.8), np.linspace(0.8, right_at_end, 35))
        shares += 0.01 * np.random.default_rng(0).normal(size=60)
        evidence = replace(evidence, series=(*evidence.series, make.series(shares, role="val_accuracy")))
    assert judge(CODE, evidence, gap_share=10.0).verdict == verdict


@pytest.mark.parametrize(("accuracy", "every", "verdict"), [(0.95, 50, "pass"), (0.8, 50, "warn"), (0.95, 1, "warn")])
def test_a_gap_behind_a_beginning_that_was_not_logged(accuracy, every, verdict, make, judge):
    """Most of what was learnt may have been learnt before."""
    losses = np.linspace(0.25, 0.12, 12)
    held_out = make.series(0.24 + 0.001 * np.arange(12) % 0.002, every * np.arange(1, 13), role="val_loss")
    shares = make.series(np.full(12, accuracy), every * np.arange(1, 13), role="val_accuracy")
    evidence = make.evidence(losses, held_out, shares, steps=every * np.arange(1, 13))
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(("unit", "verdict"), [(1.0, "pass"), (300.0, "warn")])
def test_a_training_loss_in_another_unit_tells_nothing_of_the_descent(unit, verdict, make, judge):
    """A rise that is most of what the validation loss came down by, but little beside what the training loss began
    with.
    """
    losses = unit * np.linspace(175.0, 165.0, 30) / 100
    held_out = np.append([0.55, 0.5], np.linspace(0.52, 0.61, 28))
    assert judge(CODE, pair(make, losses, held_out), gap_share=1e9).verdict == verdict
