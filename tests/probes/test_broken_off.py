"""Learning rates that were still coming down when the run ended."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.probes._broken_off import schedule_of

CODE = "RUN001"


def rate_at(step, kind, planned, warm_up, decay=0.0):
    """A rate as a scheduler gives it, written out."""
    if step < warm_up:
        return (step + 1) / warm_up
    way = (step - warm_up) / (planned - warm_up)
    return {
        "line": 1 - way,
        "cosine": 0.5 * (1 + math.cos(math.pi * way)),
        "power": (1 - way) ** 2,
        "exponential": math.exp(-2 * way),
        "root": math.sqrt(max(warm_up, 1) / max(step, 1)),
        "constant": 1.0,
    }[kind]


def rates(make, kind, planned, done, *, warm_up=0, every=1, peak=1e-3, digits=None):
    steps = list(range(0, done + 1, every))
    values = [peak * rate_at(step, kind, planned, warm_up) for step in steps]
    if digits is not None:
        values = [float(f"{value:.{digits}g}") for value in values]
    return make.series(values, steps, role="learning_rate")


@given(
    kind=st.sampled_from(["line", "cosine"]),
    planned=st.integers(200, 5000),
    cut=st.floats(0.35, 0.95),
    warm_up=st.floats(0, 0.1),
    points=st.integers(40, 200),
    peak=st.floats(1e-6, 10.0),
    digits=st.sampled_from([None, 6, 5]),
)
def test_it_tells_for_how_many_steps_a_schedule_was_laid_out(kind, planned, cut, warm_up, points, peak, digits, make):
    done = int(cut * planned)
    every = max(1, done // points)
    more = {"warm_up": int(warm_up * planned), "every": every, "peak": peak, "digits": digits}
    found = schedule_of(rates(make, kind, planned, done, **more))
    assert found is not None
    assert found.shape == kind
    assert found.planned == pytest.approx(planned, rel=0.03)
    assert found.done == done // every * every


@given(
    kind=st.sampled_from(["power", "exponential", "root", "constant"]),
    cut=st.floats(0.4, 1.0),
    warm_up=st.integers(1, 100),
)
def test_other_shapes_tell_of_no_end(kind, cut, warm_up, make):
    assert schedule_of(rates(make, kind, 1000, int(1000 * cut), warm_up=warm_up, every=5)) is None


@given(floor=st.floats(0.01, 0.9), warm_up=st.integers(0, 100), done=st.integers(900, 1000))
def test_a_cosine_that_ends_at_a_floor_did_not_break_off(floor, warm_up, done, make):
    way = rates(make, "cosine", 1000, done, warm_up=warm_up, every=5).values / 1e-3
    found = schedule_of(make.series(floor + (1 - floor) * way, range(0, done + 1, 5), role="learning_rate"))
    assert found is None or found.done > 0.8 * found.planned


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_any_numbers(values, make):
    found = schedule_of(make.series(values, role="learning_rate"))
    assert found is None or 0 < found.done < found.planned


def steps_of_epochs(values, length):
    return np.repeat(values, length)


def test_a_rate_that_is_set_once_an_epoch(make):
    levels = [rate_at(epoch, "cosine", 20, 0) for epoch in range(10)]
    found = schedule_of(make.series(steps_of_epochs(levels, 30), role="learning_rate"))
    assert found.planned == pytest.approx(600, rel=0.06)


@pytest.mark.parametrize("values", [
    [*np.linspace(1, 0.5, 50), *np.linspace(1, 0.5, 50)],  # restarts, and ends amid its second wave
    [*np.linspace(1, 0.5, 50), *[0.5] * 50],  # came down to its floor
    [*np.linspace(1, 0.0, 50)],
    [*np.linspace(1, 0.95, 50)],  # has only begun
    [1, 0.9, 0.8, 0.7],
    [0.0] * 20, [-1.0, -2.0] * 10,
])  # fmt: skip
def test_schedules_that_did_not_break_off(values, make):
    assert schedule_of(make.series(values, role="learning_rate")) is None


def left(make, *, cut=0.5, kind="cosine", held_out=None, state_at=None, params=None, checkpoint=True):
    done = int(1000 * cut)
    loss = 0.2 + 2 * np.exp(-np.arange(0, done + 1, 10) / 400)
    more = [rates(make, kind, 1000, done, warm_up=50, every=10)]
    if held_out is not None:
        more.append(make.series(held_out, np.linspace(0, done, len(held_out)).astype(int), role="val_loss"))
    state = make.state(make.tensor(0, step=float(state_at or done)), global_step=state_at or done)
    losses = make.series(loss, range(0, done + 1, 10))
    return make.evidence(losses, *more, params=params or {}, **({"optimizer": state} if checkpoint else {}))


@pytest.mark.parametrize(("cut", "kind", "verdict"), [
    (0.5, "cosine", "warn"), (0.5, "line", "warn"), (0.65, "line", "warn"),
    (0.68, "cosine", "pass"), (0.9, "line", "pass"),
    (1.0, "cosine", "SkippedProbe"), (0.5, "exponential", "SkippedProbe"), (0.5, "constant", "SkippedProbe"),
])  # fmt: skip
def test_verdicts(cut, kind, verdict, make, judge):
    assert judge(CODE, left(make, cut=cut, kind=kind)).verdict == verdict


def test_the_message_names_both_steps(make, judge):
    message = judge(CODE, left(make, kind="line")).message
    assert message == (
        "the run ended at step 500, where the learning rate still was at 53% of its peak, on a line that comes to 0 "
        "at 1000 (50%)"
    )


@pytest.mark.parametrize(("more", "verdict"), [
    ({"checkpoint": False}, "SkippedProbe"),  # the log may be of a part
    ({"state_at": 200}, "SkippedProbe"),  # a checkpoint of the middle
    ({"params": {"max_steps": "500"}}, "pass"),  # a plan of its own
    ({"params": {"patience": "5"}}, "pass"),
    ({"held_out": [2, 1, 0.8, 0.7, 0.75, 0.8, 0.9]}, "pass"),  # somebody saw that it got no better
    ({"held_out": [2, 1, 0.8, 0.7, 0.6, 0.5, 0.45]}, "warn"),
])  # fmt: skip
def test_what_else_it_may_be(more, verdict, make, judge):
    assert judge(CODE, left(make, **more)).verdict == verdict


@given(low=st.floats(0.1, 0.98), more=st.floats(0.01, 0.5))
def test_monotone_in_its_threshold(low, more, make, judge):
    evidence = left(make, cut=0.5)
    strict = judge(CODE, evidence, schedule_fraction=low).verdict
    loose = judge(CODE, evidence, schedule_fraction=min(1.0, low + more)).verdict
    assert (strict, loose) != ("warn", "pass")
