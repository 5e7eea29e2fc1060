"""Fewer points for a picture: nothing that a person would want to see is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.laws import draws

from tracker_health.render.thinning import level, stretches, thin

LAW = settings(deadline=None, max_examples=draws(100))
BUCKETS = 7


@st.composite
def series(draw):
    count = draw(st.integers(1, 200))
    gaps = draw(arrays(np.int64, count, elements=st.integers(1, 50)))
    values = draw(arrays(np.float64, count, elements=st.floats(-1e6, 1e6)))
    return np.cumsum(gaps), values


@LAW
@given(series())
def test_what_is_kept_is_a_part_in_the_same_order(one):
    steps, values = one
    thin_steps, thin_values = thin(steps, values, BUCKETS)
    places = np.searchsorted(steps, thin_steps)
    assert (np.diff(places) > 0).all()
    assert np.array_equal(values[places], thin_values)
    assert len(thin_steps) <= max(4 * BUCKETS, 4)


@LAW
@given(series())
def test_every_extreme_and_both_ends_stay(one):
    steps, values = one
    thin_steps, thin_values = thin(steps, values, BUCKETS)
    assert (thin_values.min(), thin_values.max()) == (values.min(), values.max())
    assert (thin_steps[0], thin_steps[-1]) == (steps[0], steps[-1])


@LAW
@given(series())
def test_against_the_plain_way(one):
    steps, values = one
    if len(values) <= 4 * BUCKETS:
        return
    width = (steps[-1] - steps[0]) / BUCKETS
    kept = set()
    for bucket in range(BUCKETS):
        members = [i for i, step in enumerate(steps) if min(int((step - steps[0]) / width), BUCKETS - 1) == bucket]
        if members:
            low, high = (pick(members, key=lambda i: values[i]) for pick in (min, max))
            kept |= {members[0], members[-1], low, high}
    assert np.array_equal(thin(steps, values, BUCKETS)[0], steps[sorted(kept)])


def test_one_spike_among_a_million_points():
    steps = np.arange(10**6)
    values = np.sin(steps / 1000.0)
    values[712_345] = 40.0
    thin_steps, thin_values = thin(steps, values)
    assert thin_values[thin_steps == 712_345] == [40.0]
    assert len(thin_steps) <= 1600


def test_all_points_at_one_step():
    steps, values = thin(np.zeros(500, dtype=np.int64), np.arange(500.0), 5)
    assert (len(steps), values.min(), values.max()) == (2, 0.0, 499.0)


@pytest.mark.parametrize("count", [0, 4, 9, 10, 11, 119, 120, 5000])
def test_the_level_is_the_median_of_blocks(count):
    steps, values = np.arange(count), np.arange(count) * 2.0
    level_steps, level_values = level(steps, values)
    assert np.allclose(level_values, level_steps * 2.0)
    assert len(level_steps) <= 120
    assert (len(level_steps) > 0) == (count >= 10)


def test_stretches_that_are_not_finite():
    values = np.array([np.nan, 1, np.inf, np.nan, 2, 3, -np.inf])
    assert stretches(np.arange(7) * 10, values) == [(0, 0, 1), (20, 30, 2), (60, 60, 1)]
    assert stretches(np.arange(3), np.zeros(3)) == []
