"""The rhythm in which a run logs, and the silence that is longer than it explains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Pace, Rhythm, Series, rhythm_of

START = 1.7e9
PACE = Pace(factor=3.0, once=1.5, floor=0.0, share=0.0, most=0.0, arrivals=4)


def rhythm(gaps):
    return Rhythm(START + np.concatenate(([0.0], np.cumsum(np.asarray(gaps, dtype=np.float64)))))


def series(times, name="loss"):
    times = np.asarray(times, dtype=np.float64)
    return Series(name=name, steps=np.arange(len(times)), values=np.zeros(len(times)), times=times)


some_gaps = st.lists(st.integers(1, 4000).map(lambda one: one / 4), min_size=8, max_size=60)


@given(some_gaps, st.sampled_from([0.5, 2.0, 16.0, 1024.0]))
def test_scaling_time_scales_all_of_it(gaps, factor):
    one, other = rhythm(gaps), rhythm(np.asarray(gaps) * factor)
    assert other.arrivals == one.arrivals
    for name in ("usual", "longest", "recurring", "span"):
        assert getattr(other, name) == pytest.approx(factor * getattr(one, name), rel=1e-6)
    if (limit := one.limit(PACE)) is not None:
        assert other.limit(PACE) == pytest.approx(factor * limit, rel=1e-6)


@given(some_gaps, st.floats(1.0, 5.0))
def test_one_late_point_more_lowers_no_limit_that_stays_known(gaps, times):
    before, after = rhythm(gaps), rhythm([*gaps, max(gaps) * times])
    known, now = before.limit(PACE), after.limit(PACE)
    assert known is None or now is None or now >= known - 1e-6  # None: no silence is too long


@given(some_gaps)
def test_what_came_back_is_normal_and_so_is_the_longest_gap(gaps):
    one = rhythm(gaps)
    limit = one.limit(PACE)
    assert limit is None or (limit > one.longest and limit >= 3.0 * one.recurring - 1e-6)
    assert one.recurring <= one.longest
    assert one.usual <= one.longest


def test_evaluations_that_come_back_are_known_and_one_pause_counts_less():
    steps = [10.0] * 50
    assert rhythm(steps).limit(PACE) == pytest.approx(30.0, abs=1e-3)
    once = rhythm([*steps, 300.0, *steps])
    assert (once.recurring, once.longest) == pytest.approx((10.0, 300.0), abs=1e-3)
    assert once.limit(PACE) == pytest.approx(450.0, abs=1e-3)
    again = rhythm([*steps, 300.0, *steps, 280.0, *steps])
    assert (again.recurring, again.usual, again.pauses) == (pytest.approx(300.0, abs=1e-3), pytest.approx(10.0), True)
    assert again.limit(PACE) == pytest.approx(900.0, abs=1e-2)


def test_a_buffer_that_is_flushed_is_one_arrival():
    one = rhythm([*([0.002] * 200 + [60.0]) * 6])
    assert one.arrivals == 7
    assert one.usual == pytest.approx(60.0, rel=1e-3)
    at_once = series(np.repeat(START + 60.0 * np.arange(6), 500))  # all of a flush have one time
    found = rhythm_of([at_once])
    assert (found.arrivals, found.usual) == (6, 60.0)


def test_a_first_evaluation_may_take_a_share_of_the_time_so_far():
    pace = Pace(factor=3.0, once=1.5, floor=60.0, share=0.25, most=1000.0, arrivals=4)
    assert rhythm([10.0] * 200).limit(pace) == pytest.approx(500.0, abs=1e-3)
    assert rhythm([10.0] * 2000).limit(pace) == pytest.approx(1000.0)
    assert rhythm([*[10.0] * 200, 50.0, *[10.0] * 200, 50.0]).limit(pace) == pytest.approx(150.0, abs=1e-3)
    assert rhythm([10.0] * 5).limit(pace) is None  # it has logged for less time than the floor


def test_machines_have_no_part_in_it_nor_has_what_is_no_time():
    logged = START + 10.0 * np.arange(8)
    machine = [series(START + np.arange(200), name) for name in ("system/cpu", "system.gpu.0.gpu")]
    odd = series([np.nan, -5.0, 1e300, np.inf, 0.0])
    found = rhythm_of([series(logged), series(logged + 5.0, "val_loss"), *machine, odd])
    assert (found.usual, found.last) == (5.0, logged[-1] + 5.0)
    assert rhythm_of([*machine, odd]) is None
    assert rhythm_of([]) is None
