"""LOS006."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.chance_level import ChanceLevel

CODE = "LOS006"
RULE = ChanceLevel()
FEW = settings(max_examples=60, deadline=None)
RANK = {"pass": 0, "warn": 1, "fail": 2}


def naive(losses, classes, plain, rule=RULE):
    """The verdict, and by how much each condition of it is met or missed."""
    n = len(losses)
    end = plain.median(losses[-max(3, n // 10) :])
    margins = []
    if classes is not None:
        margins.append(rule.tolerance * math.log(classes) - abs(end - math.log(classes)))
        if margins[0] >= 0:
            return "fail", end, margins
    elif n - max(1, n // 10) >= 6:
        thirds = [plain.median(part) for part in plain.parts(losses[max(1, n // 10) :], 3)]
        for count in range(2, 21):
            inside = [0.005 - abs(third / math.log(count) - 1) for third in thirds]
            margins += [*inside, losses[0] - 0.995 * math.log(count)]
            if min(inside) >= 0 and losses[0] >= 0.995 * math.log(count):
                return "warn", end, margins
    if n >= 20:
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
            least - fall,
            3 * least - fall - error,
            *(down - one for one in first_points),
        ]
        at_once = min(first_points) <= down
        if 0.25 * losses[0] < end < 0.98 * losses[0] and at_once and fall < least and fall + error < 3 * least:
            return "warn", end, margins
    return "pass", end, margins


def assert_as_naive(losses, classes, plain, make, judge, held_out=None):
    verdict, end, margins = naive(losses, classes, plain)
    assume(all(margin == 0 or abs(margin) > 1e-9 * max(1e-300, *map(abs, losses)) for margin in margins))
    more = [] if held_out is None else [make.series(held_out, role="val_loss")]
    params = {} if classes is None else {"num_classes": str(classes)}
    result = judge(CODE, make.evidence(losses, *more, params=params))
    assert result.verdict == verdict
    assert result.measured["end"] == pytest.approx(end, rel=1e-12)


@FEW
@given(losses=st.lists(st.floats(-3, 5), min_size=5, max_size=120), classes=st.none() | st.integers(2, 100))
def test_against_plain_python(losses, classes, plain, make, judge):
    assert_as_naive(losses, classes, plain, make, judge)


@settings(max_examples=150, deadline=None)
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
    assert result.verdict == "fail"
    assert f"guessing among {classes} classes ({math.log(classes):.4g})" in result.message
    assert "learning rate" in result.remedy
    assert result.measured["classes"] == classes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [8, 20, 60, 500])
def test_at_a_small_chance_level_of_unknown_classes(n, seed, make, judge):
    for classes in (2, 4, 10, 20):
        result = judge(CODE, make.evidence(pinned(seed, math.log(classes), n=n, noise=0.001)))
        assert result.verdict == "warn"
        assert f"guessing among {classes} classes" in result.message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("params", [{}, {"vocab_size": "50257"}])
def test_a_loss_that_fell_to_the_frequencies_at_once(params, seed, make, judge):
    """The model learns how frequent each token is, in three points, and nothing more."""
    result = judge(CODE, make.evidence(pinned(seed, 7.4, start=10.8), params=params))
    assert result.verdict == "warn"
    assert "the loss fell from 10.8" in result.message
    assert "chance" in result.measured or not params


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
    """The end of an ordinary descent, moved to just inside and just outside of the tolerance."""
    losses = healthy.descent(start=4 * math.log(classes), floor=math.log(classes), noise=0.0)
    for factor, verdict in ((1 - 1e-9, "fail"), (1 + 1e-9, "pass")):
        losses[-40:] = math.log(classes) * (1 + side * RULE.tolerance * factor)
        assert judge(CODE, make.evidence(losses, params={"num_classes": str(classes)})).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(0.99, "warn"), (1.01, "pass")])
def test_boundary_of_the_fall(factor, verdict, make, judge):
    """No noise: from the end of the first tenth to the last quarter, three quarters of a straight fall are made."""
    n, level = 400, 7.0
    losses = np.full(n, level)
    losses[0] = 10.0
    losses[-100:] -= RULE.least_fall * level * factor
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(("at", "verdict"), [(1, "warn"), (2, "warn"), (3, "pass"), (5, "pass")])
def test_boundary_of_the_first_points(at, verdict, make, judge):
    losses = np.full(200, 7.0)
    losses[:at] = 10.0
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(27.9, "warn"), (28.1, "pass")])
def test_a_model_that_learnt_most_of_it_at_once_did_learn(first, verdict, make, judge):
    losses = np.full(200, 7.0)
    losses[0] = first
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(
    "params", [{"num_classes": "ten"}, {"num_classes": "1"}, {"num_classes": "2.5"}, {"vocab_size": "-4"}]
)
def test_a_number_of_classes_that_is_none(params, sick, make, judge):
    """It then judges as it does without one."""
    result = judge(CODE, make.evidence(sick.at_chance(), params=params))
    assert (result.verdict, "classes" in result.measured) == ("warn", False)


def test_a_wrong_number_of_classes_does_not_lead_to_a_guess_at_another(sick, make, judge):
    result = judge(CODE, make.evidence(pinned(0, math.log(4), start=3.0, noise=0.1), params={"num_classes": "1000"}))
    assert result.verdict == "pass"


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
    assert judge(CODE, make.evidence(losses * 2.0**exponent)).verdict == "warn"


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
