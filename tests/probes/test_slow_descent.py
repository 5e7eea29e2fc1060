"""LOS011."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.slow_descent import SlowDescent

CODE = "LOS011"
RULE = SlowDescent()
FEW = settings(max_examples=60, deadline=None)


def slow(n=400, *, start=4.6, share=0.1, power=1.0, noise=0.0, seed=0, progress=None):
    """A loss that comes down by a share of its start, in step with the progress."""
    progress = np.arange(n) / (n - 1) if progress is None else progress
    losses = start * (1.0 - share * progress**power)
    return losses + noise * np.random.default_rng(seed).standard_normal(len(progress))


def rates(name, n=400, peak=1e-3):
    at = np.arange(n) / (n - 1)
    return (
        peak
        * {
            "constant": np.ones(n),
            "linear": 1.0 - at,
            "cosine": 0.5 * (1.0 + np.cos(np.pi * at)),
            "warm-up": np.minimum(at / 0.3, (1.0 - at) / 0.7),
            "stable-decay": np.minimum((1.0 - at) / 0.2, 1.0),
            "steps": np.where(at < 0.5, 1.0, np.where(at < 0.75, 0.1, 0.01)),
            "exponential": np.exp(-4.0 * at),
        }[name]
    )


def summed(values):
    """The share of the rate's sum that lies before each step, by the trapezoidal rule."""
    total, found = 0.0, [0.0]
    for before, after in itertools.pairwise(values):
        total += (before + after) / 2
        found.append(total)
    return np.array(found) / total


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "warm-up"])
@pytest.mark.parametrize(("n", "stride"), [(400, 1), (400, 10), (8, 1)])
def test_in_step_with_the_rate(schedule, n, stride, make, judge):
    values = rates(schedule, n)
    losses = slow(progress=summed(values))[::stride]
    steps = np.arange(n)[::stride]
    rate = make.series(values, role="learning_rate")
    result = judge(CODE, make.evidence(losses, rate, steps=steps))
    assert result.verdict == "warn"
    assert 0.8 <= result.measured["pace"] <= 1.1
    assert "no more than" in result.message
    assert judge(CODE, make.evidence(losses, rate, steps=steps, params={"base_model": "b"})).verdict == "pass"


def test_without_the_rate_a_schedule_that_ends_looks_like_convergence(make, judge):
    losses = slow(progress=summed(rates("linear")))
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


NEAR_MISSES = {
    "it learnt a lot": slow(share=0.3),
    "it levels off": slow(power=0.4),
    "noise": slow(share=0.02, noise=0.3),
    "below zero": slow(start=-4.6, share=-0.1),
    "it rises": slow()[::-1],
    "few points that level off": slow(8, power=0.4),
    "few points with noise": slow(8, noise=0.2),
    "few points, the last higher": np.append(slow(8), 4.6),
}


@pytest.mark.parametrize("losses", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(losses, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def regression(schedule, seed, epochs=20, batches=25, batch=40, inputs=10):
    """Stochastic gradient descent on a target that is noise for four fifths: the loss and the rate of every step."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((batches * batch, inputs))
    target = features @ rng.standard_normal(inputs) * 0.5 / inputs**0.5 + rng.standard_normal(len(features))
    weights, losses, values = np.zeros(inputs), [], rates(schedule, epochs * batches, peak=0.05)
    for rate, at in zip(values, np.tile(np.arange(batches), epochs), strict=True):
        rows = slice(at * batch, (at + 1) * batch)
        wrong = features[rows] @ weights - target[rows]
        losses.append(float(np.mean(wrong**2)))
        weights -= rate * 2.0 * features[rows].T @ wrong / batch
    return np.array(losses), values


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "schedule", ["constant", "linear", "cosine", "warm-up", "stable-decay", "steps", "exponential"]
)
@pytest.mark.parametrize("every", [1, 5, 25])
def test_a_loss_that_is_mostly_noise(schedule, seed, every, make, judge):
    """What the end of a schedule takes out of the weights is no descent that goes on; of each step, and of means."""
    losses, values = regression(schedule, seed)
    steps = np.arange(0, len(losses), every)
    means = losses.reshape(-1, every).mean(axis=1)
    for more in ([], [make.series(values[steps], steps, role="learning_rate")]):
        assert judge(CODE, make.evidence(means, *more, steps=steps)).verdict == "pass"


def test_a_fall_when_the_rate_goes_down_is_not_one_that_goes_on(make, judge):
    """Little is learnt at first, nothing then, and a little once more when the rate falls."""
    progress = np.arange(400) / 399
    losses = 2.3 - 0.1 * np.minimum(progress / 0.05, 1.0) - 0.1 * np.maximum(progress - 0.8, 0.0) / 0.2
    assert judge(CODE, make.evidence(losses)).verdict == "pass"
    assert judge(CODE, make.evidence(losses[::40])).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    assert judge(CODE, make.evidence(losses)).verdict in ("pass", "SkippedProbe")
    rate = make.series(rates("cosine", max(2, len(losses))), role="learning_rate")
    assert judge(CODE, make.evidence(losses, rate)).verdict in ("pass", "SkippedProbe")


def test_too_few_points(make, judge):
    assert judge(CODE, make.evidence(slow(5))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(slow(6))).verdict == "warn"


def test_a_rate_that_leaves_no_points_at_a_level(make, judge):
    """All of the learning rate lies between the first two points."""
    values = np.zeros(40)
    values[:2] = 1.0
    result = judge(CODE, make.evidence(slow(40), make.series(values, role="learning_rate")))
    assert result.verdict == "SkippedProbe"


@pytest.mark.parametrize("values", [[1e-3], [np.nan] * 5, [0.0] * 5, [-1.0, 1.0, -1.0]])
def test_a_rate_that_tells_nothing_counts_as_constant(values, make, judge):
    with_rate = judge(CODE, make.evidence(slow(40), make.series(values, role="learning_rate")))
    assert with_rate.measured == judge(CODE, make.evidence(slow(40))).measured


def test_a_frozen_group_says_nothing(make, judge):
    series = [make.series(rates(name) * live, role="learning_rate", name=name)
              for name, live in (("linear", 1), ("constant", 0))]  # fmt: skip
    assert judge(CODE, make.evidence(slow(progress=summed(rates("linear"))), *series)).verdict == "warn"


def naive(losses, progress, plain):
    """Whether a log of 16 or more points is slow, and by how much each condition is met or missed."""
    parts = [[] for _ in range(8)]
    for at, loss in zip(progress, losses, strict=True):
        parts[min(int(at * 8), 7)].append(loss)
    if not all(parts):
        return None
    middles = [plain.median([at for at in progress if min(int(at * 8), 7) == part]) for part in range(8)]
    noise, start = plain.noise(losses), plain.start(losses, max(1, min(3, len(losses) // 10)), plain.noise(losses))
    second, sixth, seventh, last = (plain.median(parts[part]) for part in (1, 5, 6, 7))
    at_second, at_sixth, at_last = (plain.median_error(noise, len(parts[part])) for part in (1, 5, 7))
    error = math.hypot(at_sixth, at_last)
    middle = second - sixth - math.hypot(at_second, at_sixth)
    margins = [
        start - last,
        RULE.little * start - (start - last),
        sixth - last - 3 * error,
        seventh - last - 2 * error,
        (sixth - last - error) / (middles[7] - middles[5]) - RULE.pace * (start - last) / middles[7],
        middle / (middles[5] - middles[1]) - RULE.pace * (start - last) / middles[7],
    ]
    return start > 0 and all(margin > 0 for margin in margins), margins


@FEW
@given(
    n=st.integers(40, 300), share=st.floats(0.01, 0.4), power=st.floats(0.3, 3), noise=st.floats(0, 0.1),
    seed=st.integers(0, 9999), schedule=st.sampled_from([None, "constant", "linear", "cosine", "warm-up"]),
)  # fmt: skip
def test_against_plain_python(n, share, power, noise, seed, schedule, plain, make, judge):
    progress = np.arange(n) / (n - 1) if schedule is None else summed(rates(schedule, n))
    losses = slow(share=share, power=power, noise=noise, seed=seed, progress=progress)
    assume(all(abs(at * 8 - round(at * 8)) > 1e-9 for at in progress[1:-1]))
    found = naive(losses.tolist(), progress, plain)
    more = [] if schedule is None else [make.series(rates(schedule, n), role="learning_rate")]
    result = judge(CODE, make.evidence(losses, *more))
    if found is None:
        assert result.verdict == "SkippedProbe"
        return
    slow_there, margins = found
    assume(all(abs(margin) > 1e-9 for margin in margins))
    assert result.verdict == ("warn" if slow_there else "pass")


@FEW
@given(exponent=st.integers(-60, 60), n=st.sampled_from([8, 60]))
def test_the_unit_of_the_loss_does_not_matter(exponent, n, make, judge):
    losses = slow(n, noise=0.001)
    plainly, scaled = (judge(CODE, make.evidence(one)) for one in (losses, losses * 2.0**exponent))
    assert (scaled.verdict, scaled.measured["pace"]) == (plainly.verdict, plainly.measured["pace"])


@FEW
@given(losses=st.lists(st.floats(1, 10), min_size=6, max_size=40), one=st.floats(0.01, 1), other=st.floats(0.01, 1))
def test_stricter_thresholds_find_less(losses, one, other, make, judge):
    evidence = make.evidence(sorted(losses, reverse=True))
    lower, higher = sorted([one, other])
    if judge(CODE, evidence, little=higher, pace=lower).verdict == "pass":
        assert judge(CODE, evidence, little=lower, pace=higher).verdict == "pass"


# By the validation loss


def hidden(make, held_out, *more, n=200, start=4.6, share=0.05, noise=0.7, seed=0, first=0, params=None):
    """A training loss whose noise hides how it comes down, beside evaluations evenly spaced up to the end."""
    losses = slow(n, start=start, share=share, noise=noise, seed=seed)
    steps = first + np.arange(n)
    evaluations = first + np.linspace(n / len(held_out), n, len(held_out))
    series = make.series(held_out, evaluations, role="val_loss")
    return make.evidence(losses, series, *more, steps=steps, params=params)


@pytest.mark.parametrize("evaluations", [8, 15, 16, 40])
@pytest.mark.parametrize("power", [1.0, 2.0], ids=["a line", "a warm-up that never ends"])
@pytest.mark.parametrize("seed", range(3))
def test_the_validation_loss_shows_what_noise_hides(evaluations, power, seed, make, judge):
    held_out = slow(evaluations, share=0.04, power=power)
    result = judge(CODE, hidden(make, held_out, seed=seed))
    assert result.verdict == "warn"
    assert "the validation loss has come down by no more than 4%, from 4." in result.message
    assert judge(CODE, hidden(make, held_out, seed=seed, params={"base_model": "b"})).verdict == "pass"


def test_a_tiny_share_is_told(make, judge):
    assert "by no more than 0.2%, from" in judge(CODE, hidden(make, slow(20, share=0.002))).message


@pytest.mark.parametrize(
    ("share", "evaluations", "verdict"), [(0.3, 15, "pass"), (0.3, 16, "warn"), (0.35, 20, "warn"), (0.45, 20, "pass")]
)
def test_many_evaluations_along_a_line_may_have_come_further(share, evaluations, verdict, make, judge):
    assert judge(CODE, hidden(make, slow(evaluations, share=share), noise=0.3)).verdict == verdict


HELD_OUT_NEAR_MISSES = {
    "it levels off": slow(20, power=0.5),
    "noise": slow(20, share=0.02, noise=0.05),
    "it rises": slow(20)[::-1],
    "it stands still": np.full(20, 4.6),
    "too few evaluations": slow(5),
    "a schedule's end": slow(progress=summed(rates("cosine")))[::20],
    "below zero": slow(20, start=-4.6, share=-0.1),
}


@pytest.mark.parametrize("held_out", HELD_OUT_NEAR_MISSES.values(), ids=HELD_OUT_NEAR_MISSES)
def test_near_misses_of_the_validation_loss(held_out, make, judge):
    assert judge(CODE, hidden(make, held_out)).verdict == "pass"


def test_what_the_training_loss_learnt_counts(make, judge):
    """The first evaluation comes when most has been learnt."""
    losses = 0.6 + 4.0 * np.exp(-np.arange(200.0) / 4.0)
    series = make.series(slow(10, start=0.9, share=0.1), np.linspace(20, 200, 10), role="val_loss")
    assert judge(CODE, make.evidence(losses, series)).verdict == "pass"


def test_a_history_that_does_not_show_a_whole_training(make, judge):
    held_out = slow(20, share=0.04)
    assert judge(CODE, hidden(make, held_out, first=1000)).verdict == "pass"
    ramp = make.series(np.linspace(0.0, 1.0, 200), role="objective_weight")
    assert judge(CODE, hidden(make, held_out, ramp)).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "warm-up", "stable-decay", "steps"])
def test_a_validation_loss_of_a_target_that_is_mostly_noise(schedule, seed, make, judge):
    """Without the noise of batches: what the same descent leaves of a target's learnable fifth."""
    losses, values = regression(schedule, seed)
    learnt = np.exp(-2.0 * np.cumsum(values))
    held_out = (1.0 + 0.25 * learnt)[24::25]
    series = make.series(held_out, np.arange(25, 501, 25), role="val_loss")
    assert judge(CODE, make.evidence(losses, series)).verdict == "pass"


@FEW
@given(exponent=st.integers(-20, 20), n=st.integers(6, 40), share=st.floats(0.01, 0.6), power=st.floats(0.2, 3.0))
def test_the_unit_of_the_validation_loss_does_not_matter(exponent, n, share, power, make, judge):
    held_out = slow(n, share=share, power=power)
    first = judge(CODE, hidden(make, held_out)).verdict
    assert judge(CODE, hidden(make, held_out * 2.0**exponent)).verdict == first
