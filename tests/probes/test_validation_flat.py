"""GEN002."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes._comparable import is_of_margins
from tracker_health.probes.validation_flat import ValidationFlat

CODE = "GEN002"
RULE = ValidationFlat()
FEW = settings(max_examples=80, deadline=None)


def pair(make, losses, held_out, *, loss_steps=None, evaluations=None):
    """Evidence with a training loss, and a validation loss at evenly spaced steps up to its end."""
    n = max(len(losses), len(held_out))
    steps = np.linspace(n / len(held_out), n, len(held_out)) if evaluations is None else evaluations
    return make.evidence(losses, make.series(held_out, steps, role="val_loss"), steps=loss_steps)


def naive(losses, held_out, plain, rule=RULE):
    """The measured numbers, the verdict, and by how much each condition is met or missed."""
    start = plain.start(losses, max(1, min(3, len(losses) // 10)), plain.noise(losses))
    end, best = plain.median(losses[-max(2, len(losses) // 10) :]), min(held_out)
    far = best - max(*losses, 0.0) - 10 * (max(losses) - min(losses))
    margins = [start, held_out[0] - 2 * start, best - 0.8 * held_out[0], best - 10 * start, end, far]
    if end < 0 < far:
        return {"train_end": end, "val_best": best}, "warn", margins
    if start <= 0 or (held_out[0] > 2 * start and best < 0.8 * held_out[0]) or best > 10 * start:
        return None, "SkippedProbe", margins
    trend = plain.trend(held_out)
    margins.append(trend + 1)
    level = best
    if trend >= -1:
        above = best + 0.75 * math.sqrt(2 * math.log(len(held_out))) * plain.evaluation_noise(held_out)
        level = min(above, plain.median(held_out[len(held_out) // 2 :]))
    gain, fall = (start - level) / start, (start - end) / start
    course = plain.trend([plain.median(block) for block in plain.blocks(losses, max(1, len(losses) // 60))])
    margins += [gain - rule.min_gain, fall - rule.train_descent, fall - rule.small_descent, gain - 0.005, course + 3]
    risen = (plain.median(held_out[-max(2, len(held_out) // 10) :]) - held_out[0]) / start
    up = plain.trend([plain.median(block) for block in plain.blocks(held_out, max(1, len(held_out) // 60))])
    least, beside = rule.small_descent / 2, rule.train_descent - abs(held_out[0] - start) / start
    margins += [risen - least, risen - 0.5 * fall, fall - least, beside, up - 3]
    mirrored = risen >= max(least, 0.5 * fall) and fall >= least and beside >= 0 and up > 3
    clear = fall >= rule.train_descent or (gain < 0.005 and course < -3 and (fall >= rule.small_descent or mirrored))
    measured = {"start": start, "train_end": end, "val_best": best, "gain_share": gain, "train_share": fall}
    if not (gain < rule.min_gain and clear):
        return measured, "pass", margins
    before, after = held_out[0], plain.median(held_out[-max(1, len(held_out) // 4) :])
    blocks = plain.blocks(held_out, max(1, len(held_out) // 60))
    sure = -3 if len(blocks) >= 10 else -1.8
    margins += [before - start, before - after - rule.min_gain * before, plain.trend(blocks) - sure]
    own = before > start and before - after > rule.min_gain * before and len(blocks) >= 5
    fell, kept = before - after, 0.2 * (before - after) - (after - best)
    beyond = fell - max(0.05 * before, 6 * plain.evaluation_noise(held_out))
    margins += [kept, beyond]
    far = before > start and fell > rule.min_gain * before and len(blocks) >= 10 and kept > 0 and beyond > 0
    own = far or (own and plain.trend(blocks) < sure)
    return measured, "pass" if own else "warn", margins


def assert_as_naive(losses, held_out, plain, make, judge):
    measured, verdict, margins = naive(losses, held_out, plain)
    assume(all(abs(margin) > 1e-9 for margin in margins))
    assume(sum(loss == 0 for loss in losses) < 3)  # a loss of margins
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == verdict
    for name, value in (measured or {}).items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@FEW
@given(
    losses=st.lists(st.floats(-2, 5), min_size=6, max_size=80),
    held_out=st.lists(st.floats(-2, 9), min_size=3, max_size=12),
)
def test_against_plain_python(losses, held_out, plain, make, judge):
    assert_as_naive(losses, held_out, plain, make, judge)


@FEW
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(6, 200),
    fall=st.floats(0, 2.5),
    gain=st.floats(-1, 2),
    unit=st.sampled_from([0.01, 1, 1, 1, 100]),
    noise=st.floats(0, 0.1),
)
def test_curves_against_plain_python(seed, n, fall, gain, unit, noise, plain, make, judge):
    rng = np.random.default_rng(seed)
    losses = 3 - fall * np.sqrt(np.arange(n) / n) + noise * rng.standard_normal(n)
    held_out = unit * (3 - gain * np.linspace(0.1, 1, 8) + 0.3 * noise * rng.standard_normal(8))
    assert_as_naive(losses.tolist(), held_out.tolist(), plain, make, judge)


def test_a_training_that_goes_on_from_another_one_begins_with_a_gap(make, judge):
    losses = 0.3 - 0.13 * np.linspace(0, 1, 200) + 0.005 * np.random.default_rng(0).standard_normal(200)
    held_out = 0.5 - 0.11 * np.linspace(0, 1, 20)
    assert judge(CODE, pair(make, losses, held_out)).verdict == "pass"
    assert judge(CODE, pair(make, losses, held_out[::-1] + 0.11)).verdict == "warn", "it rises"


@pytest.mark.parametrize(("held_out", "verdict"), [
    ([2.46, 2.27, 2.12, 2.13, 2.01, 2.08], "pass"),  # from above the first training loss, down to the end
    ([2.46, 2.27, 2.12, 2.23, 2.31, 2.38], "warn"),  # and up again
    ([2.46, 2.27, 2.12, 2.01], "warn"),  # four are too few to be sure
])  # fmt: skip
def test_a_few_evaluations_that_fall_from_their_own_start(held_out, verdict, make, judge):
    losses = [1.78, 1.59, 1.41, 1.43, 1.37, 1.36]
    steps = np.linspace(6 / len(held_out), 6, len(held_out))
    assert judge(CODE, pair(make, losses, held_out, evaluations=steps)).verdict == verdict


def test_scatter_around_a_level_that_lies_below_the_start_is_a_gain(make, judge):
    losses = [1.97, 1.83, 1.68, 1.55, 1.58, 1.50, 1.42]
    assert judge(CODE, pair(make, losses, [3.19, 1.43, 1.97, 1.45, 1.62, 1.56, 1.83])).verdict == "pass"
    assert judge(CODE, pair(make, losses, [3.19, 1.83, 2.37, 1.85, 2.02, 1.96, 2.23])).verdict == "warn"


@pytest.mark.parametrize(("rise", "verdict"), [(0.18, "warn"), (0.03, "pass"), (-0.01, "pass")])
def test_one_loss_rises_as_the_other_falls(rise, verdict, make, judge):
    """Labels that were shuffled, learnt by heart slowly: too little of a fall to tell alone."""
    way = np.linspace(0, 1, 32)
    losses = 2.31 - 0.14 * way + 0.01 * np.sin(5 * np.arange(32))
    assert judge(CODE, pair(make, losses, 2.31 + rise * np.linspace(0, 1, 12))).verdict == verdict
    assert judge(CODE, pair(make, losses[::-1], 2.31 + rise * np.linspace(0, 1, 12))).verdict == "pass"


def test_an_objective_that_is_made_harder_is_not_judged(make, judge):
    losses, held_out = shuffled_labels()
    weight = make.series(np.linspace(0, 1, 400), role="objective_weight", name="beta")
    evidence = pair(make, losses, held_out)
    evidence = replace(evidence, series=(*evidence.series, weight))
    assert judge(CODE, evidence).verdict == "SkippedProbe"


@pytest.mark.parametrize("gap", [0.8, 1.0, 1.1])
@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, gap, healthy, make, judge):
    """Validation that follows the training, below it (dropout) or above it."""
    losses = getattr(healthy, healthy_name)(seed)
    size = max(1, len(losses) // 8)
    held_out = [gap * float(np.median(losses[at : at + size])) for at in range(size, len(losses) - size + 1, size)]
    verdict = judge(CODE, pair(make, losses, held_out)).verdict
    assert verdict in (("pass", "SkippedProbe") if "negative" in healthy_name else ("pass",))


def shuffled_labels(seed=0, *, n=400, evaluations=10, level=2.3):
    """The training loss is learnt by heart, the validation loss stays where guessing is and then rises."""
    rng = np.random.default_rng(seed)
    losses = level * (0.1 + 0.9 * np.exp(-4 * np.arange(n) / n)) * (1 + 0.03 * rng.standard_normal(n))
    return losses, level * (1.0 + 0.5 * np.linspace(0, 1, evaluations)) + 0.005 * rng.standard_normal(evaluations)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "evaluations"), [(400, 10), (6, 3), (12, 12), (60, 60)])
def test_shuffled_labels(n, evaluations, seed, make, judge):
    losses, held_out = shuffled_labels(seed, n=n, evaluations=evaluations)
    result = judge(CODE, pair(make, losses, held_out))
    assert result.verdict == "warn"
    assert f"never came below {held_out.min():.4g}" in result.message
    assert f"to {result.measured['train_end']:.4g}" in result.message
    assert "shuffles" in result.remedy


@pytest.mark.parametrize("evaluations", [5, 10, 20])
@pytest.mark.parametrize("n", [20, 60])
def test_shuffled_labels_in_short_noisy_logs(n, evaluations, make, judge):
    """Of that many evaluations with 5 % of noise one lies below the start by chance: three runs in four are found, and
    a validation loss that gains a quarter never is.
    """
    found = {"flat": 0, "gains": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        losses = 2.3 * np.linspace(1, 0.5, n) * (1 + 0.05 * rng.standard_normal(n))
        noise = 1 + 0.05 * rng.standard_normal(evaluations)
        for name, end in (("flat", 1.05), ("gains", 0.75)):
            evidence = pair(make, losses, 2.3 * np.linspace(1, end, evaluations) * noise)
            found[name] += judge(CODE, evidence).verdict == "warn"
    assert found["flat"] >= 45
    assert found["gains"] == 0


def test_one_batch_again_and_again(make, judge):
    losses = 2.3 * np.exp(-np.arange(300) / 40)
    assert judge(CODE, pair(make, losses, 2.31 + 0.002 * np.arange(12))).verdict == "warn"


@pytest.mark.parametrize(
    ("held_out", "verdict"),
    [
        ([230.0, 150.0, 120.0], "SkippedProbe"),  # summed over the batch
        ([0.023, 0.015, 0.012], "pass"),
        ([9.9, 6.0, 4.5], "SkippedProbe"),  # a perplexity
        ([1.2, 0.9, 0.8], "pass"),  # training with dropout and augmentation
        ([np.nan, 1.2, 0.9, 0.8], "pass"),
        ([2.3, np.nan, np.nan], "SkippedProbe"),
    ],
)
def test_validation_in_another_unit_or_incomplete(held_out, verdict, make, judge):
    losses, _ = shuffled_labels()
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


def test_validation_in_another_unit_that_falls_by_little(make, judge):
    """A sum over the batch, first looked at when the better part was learnt."""
    losses, _ = shuffled_labels()
    assert judge(CODE, pair(make, losses, np.linspace(230.0, 190.0, 10))).verdict in ("pass", "SkippedProbe")


def test_a_training_loss_that_fell_by_little_passes(make, judge):
    losses = 2.3 * np.linspace(1.0, 0.9, 100)
    assert judge(CODE, pair(make, losses, [2.4, 2.4, 2.4, 2.4])).verdict == "pass"


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "warn"), (1 + 1e-9, "pass")])
def test_boundary_of_the_gain(factor, verdict, make, judge):
    losses = np.array([2.0] * 20 + [1.0] * 20)
    held_out = [2.5, 2.2, 2.0 * (1 - RULE.min_gain * factor)]
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(1 - 1e-9, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_the_training_descent(factor, verdict, make, judge):
    losses = np.array([2.0] * 20 + [2.0 * (1 - RULE.train_descent * factor)] * 20)
    assert judge(CODE, pair(make, losses, [2.5, 2.5, 2.5]), small_descent=1.0).verdict == verdict


@pytest.mark.parametrize(
    ("second", "validation", "verdict"), [(0.03, 1.0, "SkippedProbe"), (0.1, 1.0, "warn"), (0.03, 1.3, "warn")]
)
def test_a_log_that_begins_when_much_was_learnt(second, validation, verdict, make, judge):
    """Of fifty steps each: the first value is that of a model which has learnt most there is."""
    losses = np.append(0.116, second * np.exp(-np.arange(14) / 4))
    held_out = 0.116 * validation * np.array([0.99, 1.02, 1.04, 1.03, 1.05])
    steps = np.arange(50, 800, 50)
    evidence = make.evidence(losses, make.series(held_out, steps[2::3], role="val_loss"), steps=steps)
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(("accuracy", "every", "verdict"), [
    (0.95, 50, "SkippedProbe"), (95.0, 50, "SkippedProbe"), (0.85, 50, "warn"), (None, 50, "warn"), (0.95, 1, "warn"),
])  # fmt: skip
def test_a_log_that_begins_late_of_a_model_that_is_right(accuracy, every, verdict, make, judge):
    losses = 0.107 * np.append([1.0, 0.51], np.linspace(0.2, 0.1, 13))
    steps = every * np.arange(1, 16)
    held_out = make.series([0.21, 0.186, 0.19, 0.21, 0.22], steps[2::3], role="val_loss")
    more = [] if accuracy is None else [make.series(np.full(5, accuracy), steps[2::3], role="val_accuracy")]
    assert judge(CODE, make.evidence(losses, held_out, *more, steps=steps)).verdict == verdict


@pytest.mark.parametrize(
    ("fall", "validation", "noise", "verdict"),
    [
        pytest.param(0.12, 1.0, 0.0, "warn", id="nothing gained"),
        pytest.param(0.12, 0.985, 0.0, "pass", id="something gained"),
        pytest.param(0.08, 1.0, 0.0, "pass", id="hardly anything learnt"),
        pytest.param(0.12, 1.0, 0.3, "pass", id="noise"),
    ],
)
def test_a_small_descent_that_holds_for_the_training_samples_alone(fall, validation, noise, verdict, make, judge):
    losses = 2.3 * (1 - fall * np.linspace(0, 1, 12)) + noise * np.random.default_rng(0).standard_normal(12)
    held_out = 2.3 * np.append([1.003, 1.001, 1.002, 1.0], validation + 1e-4 * np.array([1, 0, 3, 2, 0, 1, 3, 1]))
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


@pytest.mark.parametrize(("offset", "verdict"), [(0, "warn"), (50, "warn"), (120, "SkippedProbe")])
def test_a_history_that_begins_in_mid_training_is_skipped(offset, verdict, make, judge):
    losses, held_out = shuffled_labels()
    evidence = pair(make, losses, held_out, loss_steps=np.arange(400) + offset, evaluations=np.arange(10) * 40)
    assert judge(CODE, evidence).verdict == verdict


def test_too_few_points_are_skipped(make, judge):
    losses, held_out = shuffled_labels()
    assert judge(CODE, pair(make, losses, held_out[:2])).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, losses[:5], held_out)).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-60, 60), seed=st.integers(0, 2))
def test_the_unit_of_both_losses_does_not_matter(exponent, seed, make, judge):
    losses, held_out = shuffled_labels(seed)
    for values, verdict in ((held_out, "warn"), (held_out * 0.6, "pass")):
        assert judge(CODE, pair(make, losses * 2.0**exponent, values * 2.0**exponent)).verdict == verdict


@FEW
@given(
    losses=st.lists(st.floats(0.1, 5), min_size=6, max_size=30),
    held_out=st.lists(st.floats(0.1, 5), min_size=3, max_size=8),
    gains=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    falls=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
)
def test_stricter_thresholds_never_find_more(losses, held_out, gains, falls, make, judge):
    evidence = pair(make, losses, held_out)
    looser = {"min_gain": max(gains), "train_descent": min(falls)}
    stricter = {"min_gain": min(gains), "train_descent": max(falls)}
    if judge(CODE, evidence, **stricter).verdict == "warn":
        assert judge(CODE, evidence, **looser).verdict == "warn"


def of_margins(n=60, *, seed=0, digits=17, hardest=0.05):
    """Batches of triplets: fewer and fewer violate the margin, and a batch without any has a loss of exactly 0."""
    rng = np.random.default_rng(seed)
    losses = 0.3 * np.exp(-np.arange(n) / 4.0) + hardest * rng.exponential(size=n)
    losses[10:][rng.random(n - 10) < 0.4] = 0.0
    return losses.round(digits)


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_margins_is_not_compared(seed, make, judge):
    """Validation compares more samples with each other, and finds harder ones."""
    held_out = 0.4 + 0.02 * np.random.default_rng(seed).standard_normal(12)
    result = judge(CODE, pair(make, of_margins(seed=seed), held_out))
    assert result.verdict == "SkippedProbe"
    assert "margins" in result.reason["reason"]
    assert judge("GEN001", pair(make, of_margins(seed=seed), held_out)).verdict == "pass"


@pytest.mark.parametrize(
    "losses",
    [
        of_margins() + 1e-9,
        of_margins(digits=2),
        np.append(of_margins()[:20] + 1e-9, np.zeros(40)),
        2.3 * np.exp(-np.arange(60.0)) + 1e-4 * (np.arange(60) % 2) * (np.arange(60) < 58),
        np.append(of_margins() + 1e-9, [0.0, 0.0]),
    ],
    ids=["never exactly 0", "rounded to 0", "0 to the end", "learnt by heart", "two zeros"],
)
def test_other_losses_near_0_are_compared(losses, make, judge):
    held_out = losses[0] * (1.05 + 0.02 * np.random.default_rng(0).standard_normal(12))
    assert judge(CODE, pair(make, losses, held_out)).verdict == "warn"


@FEW
@given(losses=st.lists(st.floats(0, 5), min_size=1, max_size=40))
def test_only_exact_zeros_are_of_margins(losses):
    values = np.array([loss if loss > 1e-3 else 0.0 for loss in losses])
    assert not is_of_margins(values[values > 0])
    assert not is_of_margins(values.round(2))
    assert not is_of_margins(np.sort(values)[::-1])


@pytest.mark.parametrize(("held_out", "verdict"), [
    (np.linspace(2600.0, 760.0, 33), "warn"), (np.linspace(80.0, 60.0, 33), "warn"), (np.linspace(40.0, 20.0, 33), "SkippedProbe"),
    (np.linspace(-1.0, -4.0, 33), "pass"),
])  # fmt: skip
def test_a_training_loss_below_0_and_a_validation_loss_far_above(held_out, verdict, make, judge):
    """A likelihood of counts, whose validation inputs were prepared otherwise."""
    losses = -4.5 + 5.6 * np.exp(-np.arange(200) / 8)
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict


@pytest.mark.parametrize(("fell", "lost", "verdict"), [(0.3, 0.01, "pass"), (0.15, 0.01, "warn"), (0.3, 0.15, "warn")])
def test_a_validation_loss_that_fell_from_its_own_start_and_stood_still(fell, lost, verdict, make, judge):
    """As Cox's partial likelihood, which is larger of more samples."""
    losses = 2.65 + 0.6 * np.exp(-np.arange(700) / 150)
    held_out = np.concatenate([4.7 - fell * np.linspace(0, 1, 12) ** 0.5, 4.7 - fell + lost * np.linspace(0, 1, 23)])
    assert judge(CODE, pair(make, losses, held_out)).verdict == verdict
