"""When a run was last heard of: whatever unit its owner's own times are in, and never later than its last metric."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.stores.mlflow.last_activity import last_heard_of

NOW = time.time()


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("hours", [0, 8, 24 * 365])
def test_times_in_any_unit(unit, hours):
    then = NOW - 3600 * hours
    assert last_heard_of(NOW * 1000, [then * unit, (then - 60) * unit]) == pytest.approx(then, abs=1)


def test_without_a_metric_its_beginning_counts():
    assert last_heard_of(NOW * 1000, []) == pytest.approx(NOW, abs=1)
    assert last_heard_of(None, []) is None


@pytest.mark.parametrize("counted", [0, 1, 300, -5, 1e30])
def test_a_count_is_no_time(counted):
    """Steps, given as times."""
    assert last_heard_of(NOW * 1000, [counted]) == pytest.approx(NOW, abs=1)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_nothing_is_heard_from_the_future(stamp):
    heard = last_heard_of(None, [stamp])
    assert heard is None or 946_684_800 <= heard <= time.time() + 86_400
