"""The axis that a run's owner plots by: places on it in words, and where a count lies among the tracker's steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import Axis, Series, StepUnit
from tracker_health.report.resume_point import Onset

INCREASES = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0.0, 0.25, 1.0, 128.0])), min_size=2, max_size=60)


def axis_of(increases, name="samples"):
    steps, values = (np.cumsum([one[at] for one in increases]) for at in (0, 1))
    return Axis.of(name, steps.astype(np.int64), values.astype(np.float64))


@settings(max_examples=draws(200))
@given(increases=INCREASES, seed=st.integers(0, 1000))
def test_a_count_is_found_where_the_axis_first_came_to_it(increases, seed):
    axis = axis_of(increases)
    if axis is None:
        return
    at = axis.steps[np.random.default_rng(seed).integers(0, len(axis.steps), 5)]
    counts = np.array([axis.at(step) for step in at])
    found = axis.steps_at(counts)
    assert (found <= at).all()
    assert [axis.at(step) for step in found] == counts.tolist()


@settings(max_examples=draws(200))
@given(increases=INCREASES)
def test_a_picture_keeps_the_order_and_every_first_count(increases):
    axis = axis_of(increases)
    if axis is None:
        return
    steps = np.arange(axis.steps[0] - 3, axis.steps[-1] + 4)
    spread = axis.spread(steps)
    assert (np.diff(spread) >= 0).all()
    firsts = np.flatnonzero(np.diff(axis.values, prepend=-np.inf))
    assert axis.spread(axis.steps[firsts]) == pytest.approx(axis.values[firsts])


@pytest.mark.parametrize("values", [[1.0, 2.0, 1.0], [5.0, 5.0, 5.0], [np.nan, np.nan, 3.0], [3.0, 2.0, 1.0]])
def test_what_does_not_count_up_is_no_axis(values):
    assert Axis.of("x", np.arange(3), np.array(values)) is None


def test_places_in_words():
    axis = Axis.of("samples", np.array([0, 10, 20]), np.array([128.0, 1280.0, 2560.0]))
    series = Series(name="loss", steps=np.array([0, 10, 20]), values=np.zeros(3), axis=axis, step_word="step")
    assert series.place(10) == "samples 1280"
    assert series.where(15) == "samples 1280 (step 15)"
    assert series.places(series.steps) == "samples 128, samples 1280, samples 2560"
    assert Onset.on(series, 20, "the loss rose").where == "samples 2560"
    epochs = Axis.of("epoch", np.array([0, 10]), np.array([0.5, 1.25]))
    assert Series(name="loss", steps=np.array([0]), values=np.zeros(1), axis=epochs).place(10) == "epoch 1.25"


@pytest.mark.parametrize(
    ("unit", "word"), [(StepUnit.EPOCH, "epoch 7"), (StepUnit.LOG_CALL, "row 7"), (StepUnit.UNKNOWN, "step 7")]
)
def test_without_an_axis_a_place_is_what_the_steps_count(unit, word):
    series = Series(name="loss", steps=np.array([7]), values=np.zeros(1), step_unit=unit)
    assert series.where(7) == series.place(7) == word
    assert Onset.on(series, 7, "x").place == ""


def test_a_large_count_that_is_not_whole_keeps_its_digits():
    axis = Axis.of("tokens", np.array([0, 1, 2]), np.array([25728.5, 25856.0, 1e12 + 0.5]))
    assert axis.place(0) == "tokens 25728"
    assert axis.place(2) == "tokens 1000000000000"


def test_places_that_the_count_does_not_tell_apart_have_the_step():
    axis = Axis.of("epoch", np.arange(4), np.array([0.0, 0.0, 1.0, 1.0]))
    series = Series(name="loss", steps=np.arange(4), values=np.zeros(4), axis=axis)
    assert series.place_before(2, 3) == "epoch 1 (step 2)"
    assert series.place_before(1, 2) == "epoch 0"
