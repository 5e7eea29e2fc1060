"""LOS006."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tracker_health.probes.chance_level import ChanceLevel

CODE = "LOS006"
RULE = ChanceLevel()
FEW = settings(max_examples=60, deadline=None)
OF_MANY = {"vocab_size": "4000"}  # chance level 8.29
FAR = 2.0  # times the level of guessing: where a loss begins that settles there
RANK = {"pass": 0, "warn": 1, "fail": 2}


def stands(losses, count, distance, margins, *, settles=False):
    """Whether the loss has stood at ln of so many since its first tenth, and did not begin below it.

    Of one that settles and begins far above, the first third may be higher.
    """
    rest = losses[max(1, len(losses) // 10) :]
    if len(rest) < 6:
        return False
    levels = [statistics.median(one) for one in np.array_split(rest, 3)]
    if settles:
        margins += [losses[0] - FAR * math.log(count), levels[0] - math.log(count)]
        if min(margins[-2:]) > 0:
            levels = levels[1:]
    thirds = [abs(part - math.log(count)) for part in levels]
    met = [*(min(0.005 * math.log(count), distance) - third for third in thirds), losses[0] - 0.995 * math.log(count)]
    margins += met
    return min(met) >= 0


def came_down_to(losses, held_out, count, margins):
    """Whether the loss came down to ln of so many from little above, and the validation loss ends there or above."""
    rest, chance = losses[max(1, len(losses) // 10) :], math.log(count)
    if len(rest) < 6 or held_out is None or len(held_out) < 3:
        return False
    *before, last = (statistics.median(part) / chance - 1 for part in np.array_split(rest, 3))
    near = min(0.005, 0.06 / count / chance)
    first, ends = statistics.median(losses[:3]) / chance - 1, statistics.median(held_out[-3:]) / chance - 1
    met = [near - abs(last), first + 0.005, 0.1 - first, ends + 0.015, 0.1 - ends]
    met += [margin for third in before for margin in (third + near, 0.1 - third)]
    margins += met
    return min(met) >= 0


def naive(losses, classes, plain, rule=RULE, held_out=None):
    """The verdict, and by how much each condition of it is met or missed."""
    n = len(losses)
    end = plain.median(losses[-max(3, n // 10) :])
    margins, known, chance = [], False, math.log(classes or 2)
    if classes is not None:
        margins.append(0.3 * chance - abs(plain.median(losses[:3]) - chance))
        known = margins[0] >= 0
    if known:
        rest = losses[n // 10 :]
        below = max(0.005 * chance, 3 * plain.median_error(plain.noise(rest), max(3, n // 10)))
        met = [
            rule.tolerance * chance - (end - chance),
            end - chance + min(below, rule.tolerance * chance),
            1.04 * chance - plain.median(rest[: max(1, len(rest) // 3)]),
        ]
        margins += met
        if min(met) >= 0:
            return "fail", end, margins
    if any(stands(losses, count, 0.06 / count, margins) for count in range(2, 21)):
        return "warn", end, margins
    if any(came_down_to(losses, held_out, count, margins) for count in range(2, 21)):
        return "warn", end, margins
    if classes is not None and stands(losses, classes, 1, margins, settles=True):
        return "warn", end, margins
    if n >= 20 and known and classes > 2:
        early, late = losses[n // 10 : n // 4], losses[-(n // 4) :]
        fall = plain.median(early) - plain.median(late)
        noise = plain.noise(losses[n // 10 :])
        error = math.hypot(plain.median_error(noise, len(early)), plain.median_error(noise, len(late)))
        least = rule.least_fall * plain.median(early)
        first_points = losses[: max(2, n // 100) + 1]
        down = end + 0.1 * (losses[0] - end)
        margins += [
            end - 0.25 * losses[0],
            end - 0.98 * losses[0],
            end - 0.5 * chance,
            least - fall,
            3 * least - fall - error,
            *(down - one for one in first_points),
            down - plain.median(losses[2 : max(5, n // 10)]),
        ]
        at_once = min(first_points) <= down and plain.median(losses[2 : max(5, n // 10)]) <= down
        high = 0.25 * losses[0] < end < 0.98 * losses[0] and end > 0.5 * chance
        if high and at_once and fall < least and fall + error < 3 * least:
            return "warn", end, margins
    return "pass", end, margins


def assert_as_naive(losses, classes, plain, make, judge, held_out=None):
    verdict, end, margins = naive(losses, classes, plain, held_out=held_out)
    assume(all(margin == 0 or abs(margin) > 1e-9 * max(1e-300, *map(abs, losses)) for margin in margins))
    more = [] if held_out is None else [make.series(held_out, role="val_loss")]
    params = {} if classes is None else {"num_classes": str(classes)}
    result = judge(CODE, make.evidence(losses, *more, params=params))
    assert result.verdict == verdict
    assert result.measured["end"] == pytest.approx(end, rel=1e-12)


@pytest.mark.parametrize(("params", "verdict"), [({}, "warn"), ({"base_model": "x"}, "pass")])
def test_a_fine_tune_may_level_off_at_once(params, verdict, make, judge):
    """Nothing but what it began from tells it from a model that has learnt how frequent each answer is."""
    losses = 1.85 + 0.4 * np.exp(-2.0 * np.arange(200)) + 0.002 * np.random.default_rng(0).standard_normal(200)
    assert judge(CODE, make.evidence(losses, params=params | {"num_classes": "10"})).verdict == verdict
    stuck = losses + 0.1
    assert judge(CODE, make.evidence(stuck, params=params | {"num_classes": "7"})).verdict == "fail"


def test_a_fine_tune_at_the_level_of_two_classes(make, judge):
    """A classifier that collapsed, or preferences that were never learnt; a language model may stand at any other."""
    for level, verdict in ((math.log(2), "warn"), (math.log(3), "pass"), (0.75, "pass")):
        losses = pinned(0, level, start=1.1 * level, noise=0.005)
        assert judge(CODE, make.evidence(losses, params={"base_model": "x"})).verdict == verdict


def unlearnt(count, *, start=1.06, end=1.0, n=120, seed=0):
    """A loss that comes down from a random beginning, in shares of the level of guessing."""
    noise = 0.01 * np.random.default_rng(seed).standard_normal(n)
    return math.log(count) * (end + (start - end) * np.exp(-6.0 * np.arange(n) / n) + noise)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [2, 5, 10])
def test_a_random_beginning_that_is_unlearnt_and_no_more(count, seed, make, judge):
    losses = unlearnt(count, seed=seed)
    held_out = make.series(unlearnt(count, n=8, end=1.003), steps=np.arange(8) * 15, role="val_loss")
    result = judge(CODE, make.evidence(losses, held_out))
    assert result.verdict == "warn"
    assert f"among {count} classes" in result.message


@pytest.mark.parametrize(
    ("more", "validation"),
    [
        pytest.param({"end": 0.97}, 0.97, id="both went below"),
        pytest.param({}, 0.97, id="the validation loss went below"),
        pytest.param({"start": 1.3}, 1.0, id="it began far above"),
        pytest.param({"end": 1.02}, 1.02, id="another level"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_descent_that_passes_the_level_of_guessing(more, validation, seed, make, judge):
    held_out = make.series(unlearnt(5, n=8, end=validation), steps=np.arange(8) * 15, role="val_loss")
    assert judge(CODE, make.evidence(unlearnt(5, seed=seed, **more), held_out)).verdict == "pass"


def test_without_a_validation_loss_a_descent_to_that_level_is_one(make, judge):
    assert judge(CODE, make.evidence(unlearnt(5))).verdict == "pass"


@pytest.mark.parametrize("param", ["vocab_size", "num_classes"])
@pytest.mark.parametrize("seed", range(3))
def test_another_count_does_not_hide_a_loss_stuck_at_ln_2(param, seed, make, judge):
    """The vocabulary of the language model below a classifier; one binary decision for each of many classes."""
    noise = 0.004 * np.random.default_rng(seed).standard_normal(96)
    losses = np.concatenate([[0.76, 0.73, 0.71, 0.70], 0.6935 + noise])
    assert judge(CODE, make.evidence(losses, params={param: "30522"})).verdict == "warn"
    both = {"vocab_size": "30522", "num_labels": "2"}
    assert judge(CODE, make.evidence(losses, params=both)).verdict == "fail"


@pytest.mark.parametrize(
    ("classes", "start", "end"), [(20, 9.0, 3.04), (2, 4.0, 0.70), (20, 3.8, 2.98), (2, 0.693, 0.681), (91, 38.0, 4.5)]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_descent_that_ends_near_chance_by_coincidence(classes, start, end, seed, make, judge):
    """A detector, Dice beside cross-entropy, a noisy binary task: they came down to it, or below it, and went on."""
    losses = end + (start - end) * np.exp(-np.arange(300) / 60)
    losses *= 1 + 0.003 * np.random.default_rng(seed).standard_normal(300)
    assert judge(CODE, make.evidence(losses, params={"num_classes": str(classes)})).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_task_that_is_learnt_at_once_needs_a_second_sign(seed, make, judge):
    """Click-through rates: two classes tell nothing, a gradient that vanished does."""
    rng = np.random.default_rng(seed)
    losses = np.concatenate([[0.69, 0.452], 0.4495 + 0.002 * rng.standard_normal(58)])
    healthy, vanished = 0.3 * np.exp(0.3 * rng.standard_normal(60)), np.r_[1.0, 1.0, 1.0, np.full(57, 1e-5)]
    for params in ({}, {"num_classes": "2"}):
        assert judge(CODE, make.evidence(losses, params=params)).verdict == "pass"
        assert (
            judge(CODE, make.evidence(losses, make.series(healthy, role="grad_norm"), params=params)).verdict == "pass"
        )
    result = judge(CODE, make.evidence(losses, make.series(vanished, role="grad_norm")))
    assert (result.verdict, "gradient norm fell from 1 to 1e-05" in result.message) == ("warn", True)


@FEW
@given(losses=st.lists(st.floats(-3, 5), min_size=5, max_size=120), classes=st.none() | st.integers(2, 100))
def test_against_plain_python(losses, classes, plain, make, judge):
    assert_as_naive(losses, classes, plain, make, judge)


@settings(max_examples=150, deadline=None)
@example(seed=0, n=7, start=2.0, floor=math.log(2), rate=30, noise=0, classes=2, gain=None, evaluations=1)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(5, 500),
    start=st.floats(0.5, 12),
    floor=st.sampled_from([0.3, 1.0, 3.0, *(math.log(count) for count in (2, 3, 10, 20, 21))]),
    rate=st.sampled_from([3, 30, 300, 3000]),
    noise=st.sampled_from([0, 1e-3, 0.01, 0.1]),
    classes=st.none() | st.sampled_from([2, 3, 10, 20, 21, 1000]),
    gain=st.none() | st.floats(-0.02, 0.04),
    evaluations=st.integers(1, 12),
)
def test_curves_against_plain_python(
    seed, n, start, floor, rate, noise, classes, gain, evaluations, plain, make, judge
):
    losses = floor + (start - floor) * np.exp(-rate * np.arange(n) / n)
    losses *= 1 + noise * np.random.default_rng(seed).standard_normal(n)
    held_out = None if gain is None else (floor * np.linspace(1, 1 - gain, evaluations)).tolist()
    assert_as_naive(losses.tolist(), classes, plain, make, judge, held_out)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("params", [{}, {"num_classes": "1000"}, {"vocab_size": "50257"}])
def test_healthy(healthy_name, params, seed, healthy, make, judge):
    assert judge(CODE, make.evidence(getattr(healthy, healthy_name)(seed), params=params)).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stride", [5, 10, 25])
def test_healthy_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, judge):
    losses = getattr(healthy, long_healthy_name)(seed)[::stride]
    assert judge(CODE, make.evidence(losses, steps=np.arange(len(losses)) * stride)).verdict == "pass"


def pinned(seed, level, *, n=500, start=None, noise=0.01):
    """A loss at one level, after a first few points that fall to it from ``start``."""
    losses = level * (1 + noise * np.random.default_rng(seed).standard_normal(n))
    if start is not None:
        losses[:3] += (start - level) * np.array([1.0, 0.3, 0.05])
    return losses


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("start", [None, 5.0])
@pytest.mark.parametrize(
    ("param", "classes"), [("num_classes", 10), ("num_labels", 2), ("vocab_size", 50257), ("n_classes", 1000)]
)
def test_at_the_chance_level_of_the_known_classes(param, classes, start, seed, make, judge):
    losses = pinned(seed, math.log(classes), start=start and start * math.log(classes))
    result = judge(CODE, make.evidence(losses, params={param: str(classes)}))
    assert result.verdict == ("fail" if start is None else "warn")
    assert f"guessing among {classes} classes ({math.log(classes):.4g})" in result.message
    assert "learning rate" in result.remedy
    assert result.measured.get("classes", classes) == classes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [8, 20, 60, 500])
def test_at_a_small_chance_level_of_unknown_classes(n, seed, make, judge):
    """The more classes, the closer their levels: a few noisy points do not tell twenty classes from any other loss."""
    for classes in (2, 4, 10, 20)[: 3 if n < 10 else 4]:
        result = judge(CODE, make.evidence(pinned(seed, math.log(classes), n=n, noise=0.001)))
        assert result.verdict == "warn"
        assert f"guessing among {classes} classes" in result.message


@pytest.mark.parametrize(("params", "verdict"), [({"num_classes": "10"}, "warn"), ({}, "pass")])
def test_a_loss_that_comes_down_to_guessing_from_far_above(params, verdict, healthy, make, judge):
    """The inputs were in thousands. Without the number of classes any floor might lie near some level of guessing."""
    losses = healthy.descent(start=150.0, floor=math.log(10), rate=40.0, noise=0.001)
    assert judge(CODE, make.evidence(losses, params=params)).verdict == verdict
    below = healthy.descent(start=150.0, floor=0.97 * math.log(10), rate=40.0, noise=0.001)
    assert judge(CODE, make.evidence(below, params=params)).verdict == "pass"


def test_any_other_level_is_mostly_not_near_one_of_the_small_chance_levels(make, judge):
    """Of losses that level off between ln 2 and ln 20, one in nine at most lies so near by coincidence."""
    levels = np.random.default_rng(0).uniform(math.log(2), math.log(20), 200)
    found = [judge(CODE, make.evidence(np.full(12, level))).verdict for level in levels]
    assert found.count("warn") <= 200 / 9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("params", [{"num_classes": "50257"}, {"vocab_size": "50257"}])
def test_a_loss_that_fell_to_the_frequencies_at_once(params, seed, make, judge):
    """The model learns how frequent each token is, in three points, and nothing more."""
    result = judge(CODE, make.evidence(pinned(seed, 7.4, start=10.8), params=params))
    assert result.verdict == "warn"
    assert "the loss fell from 10.8" in result.message
    assert "guessing among 50257 classes is 10.82" in result.message
    assert judge(CODE, make.evidence(pinned(seed, 7.4, start=10.8))).verdict == "pass"


def flat_validation(make, level, gain=0.0, points=20):
    """Falls in a straight line by a share of the level."""
    return make.series(level * np.linspace(1, 1 - gain, points), np.arange(points) * 25, role="val_loss")


@pytest.mark.parametrize("floor", [1.2, 2.0])
def test_a_converged_plateau_beside_a_flat_validation(floor, healthy, make, judge):
    """Three quarters or half of the loss is gone before the first of 20 evaluations: 25 % label noise, a small model."""
    losses = healthy.descent(n=500, rate=120.0, floor=floor, noise=0.02)
    assert judge(CODE, make.evidence(losses, flat_validation(make, floor * 1.02))).verdict == "pass"


@pytest.mark.parametrize(
    "name", ["healthy descent that ends at the level of four", "descent through it", "above it", "random labels"]
)
def test_near_misses_of_small_chance_levels(name, healthy, make, judge):
    rng = np.random.default_rng(1)
    losses = {
        "healthy descent that ends at the level of four": healthy.descent(floor=math.log(4)),
        "descent through it": healthy.descent(start=2.0, floor=1.2, noise=0.01),
        "above it": healthy.late_learner(),
        "random labels": np.linspace(math.log(10) * 1.02, math.log(10) * 0.9, 300) + 0.02 * rng.standard_normal(300),
    }[name]
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("classes", [2, 10, 50257])
def test_boundary_of_the_tolerance(classes, side, healthy, make, judge):
    """Moved to just inside and just outside of the tolerance above chance, and of half a percent below it."""
    losses = math.log(classes) * np.linspace(1.03, 1.025, 400)
    for factor, verdict in ((1 - 1e-6, "fail"), (1 + 1e-6, "pass")):
        losses[-40:] = math.log(classes) * (1 + (RULE.tolerance if side > 0 else -0.005) * factor)
        assert judge(CODE, make.evidence(losses, params={"num_classes": str(classes)})).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(0.99, "warn"), (1.01, "pass")])
def test_boundary_of_the_fall(factor, verdict, make, judge):
    """No noise: from the end of the first tenth to the last quarter, three quarters of a straight fall are made."""
    n, level = 400, 7.0
    losses = np.full(n, level)
    losses[0] = 10.0
    losses[-100:] -= RULE.least_fall * level * factor
    assert judge(CODE, make.evidence(losses, params=OF_MANY)).verdict == verdict


@pytest.mark.parametrize(("at", "verdict"), [(1, "warn"), (2, "warn"), (3, "pass"), (5, "pass")])
def test_boundary_of_the_first_points(at, verdict, make, judge):
    losses = np.full(200, 7.0)
    losses[:at] = 10.0
    assert judge(CODE, make.evidence(losses, params=OF_MANY)).verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(27.9, "warn"), (28.1, "pass")])
def test_a_model_that_learnt_most_of_it_at_once_did_learn(first, verdict, make, judge):
    losses = np.full(200, 7.0)
    losses[0] = first
    assert judge(CODE, make.evidence(losses, params=OF_MANY)).verdict == verdict


@pytest.mark.parametrize(("level", "verdict"), [(4.61, "warn"), (4.60, "pass")])
def test_boundary_of_half_of_chance(level, verdict, make, judge):
    """Of ten thousand classes, 9.21."""
    losses = np.concatenate([[9.2, 8.0], np.full(198, level)])
    assert judge(CODE, make.evidence(losses, params={"num_classes": "10000"})).verdict == verdict


@pytest.mark.parametrize(
    "params", [{"num_classes": "ten"}, {"num_classes": "1"}, {"num_classes": "2.5"}, {"vocab_size": "-4"}]
)
def test_a_number_of_classes_that_is_none(params, sick, make, judge):
    """It then judges as it does without one."""
    result = judge(CODE, make.evidence(sick.at_chance(), params=params))
    assert (result.verdict, "classes" in result.measured) == ("warn", False)


def test_a_loss_that_went_up_is_not_said_to_have_fallen(sick, make, judge):
    for losses in (sick.exploding(), sick.from_the_start(), np.full(100, 2.5)):
        assert "fell" not in judge(CODE, make.evidence(losses)).message


def test_too_few_points_are_skipped(make, judge):
    few = RULE.min_points - 1
    assert judge(CODE, make.evidence(np.full(few, math.log(4)))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([*np.full(few, math.log(4)), *[np.nan] * 50])).verdict == "SkippedProbe"


@pytest.mark.parametrize("value", [0.0, -1.0, -1e300])
def test_constant(value, make, judge):
    assert judge(CODE, make.evidence(np.full(100, value))).verdict == "pass"


@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-60, 60), seed=st.integers(0, 5))
def test_the_unit_does_not_matter_to_a_pinned_loss(exponent, seed, make, judge):
    """The other two ways to be found know nats."""
    losses = pinned(seed, 7.4, start=10.8)
    assume(exponent not in (-3, -2, -1))  # there the level comes near the logarithm of a small number
    vanished = make.series(np.r_[1.0, 1.0, 1.0, np.zeros(97)], role="grad_norm")
    assert judge(CODE, make.evidence(losses * 2.0**exponent, vanished)).verdict == "warn"


@FEW
@given(
    seed=st.integers(0, 10**6),
    floor=st.floats(1, 3),
    rate=st.sampled_from([3, 300]),
    tolerances=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)),
    falls=st.tuples(st.floats(0.001, 0.2), st.floats(0.001, 0.2)),
)
def test_looser_thresholds_never_find_less(seed, floor, rate, tolerances, falls, healthy, make, judge):
    losses = healthy.descent(seed, n=200, floor=floor, rate=rate)
    stricter, looser = ({"tolerance": f(tolerances), "least_fall": f(falls)} for f in (min, max))
    for params in ({}, {"num_classes": "10"}):
        evidence = make.evidence(losses, params=params)
        assert RANK[judge(CODE, evidence, **stricter).verdict] <= RANK[judge(CODE, evidence, **looser).verdict]
