"""What rules on gradients, rewards and schedules ask of a curve and of a series."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Curve, Series
from tracker_health.evidence.numerics import is_as_logged, peaks_of, stands


def curve_of(values):
    values = np.asarray(values, dtype=np.float64)
    return Curve.of(Series(name="loss", role="train_loss", steps=np.arange(len(values)), values=values))


NOISE = 0.01 * np.random.default_rng(0).standard_normal(400)


def test_upside_down_is_the_curve_of_the_negated_values():
    curve = curve_of(np.linspace(0.0, 1.0, 400) + NOISE)
    down, other = curve.upside_down, curve_of(-curve.series.values)
    for name in ("start", "end", "best", "peak", "descent"):
        assert getattr(down, name).value == pytest.approx(getattr(other, name).value)
        assert getattr(down, name).error == pytest.approx(getattr(other, name).error)
    assert down.upside_down.levels.tolist() == curve.levels.tolist()


def test_late_is_what_the_last_quarter_brought():
    assert curve_of(np.linspace(1.0, 0.0, 400) + NOISE).late.value == pytest.approx(0.3, abs=0.05)
    assert not curve_of(1.0 + NOISE).late.surely_above(0.0)


def test_a_step_up_is_seen_where_it_is():
    curve = curve_of(np.where(np.arange(400) > 200, 2.0, 1.0) + NOISE)
    assert curve.step_up(200).value == pytest.approx(1.0, abs=0.05)
    assert curve.step_up(200).surely_above(0.5)
    assert not curve.step_up(100).surely_above(0.05)
    assert curve.step_up(0).value == curve.step_up(399).value == 0.0


def test_waves_count_where_neighbouring_levels_are_alike():
    """A running mean over a fifth of the run, and noise from point to point."""
    episodes = np.random.default_rng(1).standard_normal(500)
    smooth = curve_of(np.convolve(episodes, np.ones(100) / 100, mode="valid")[:400])
    assert smooth.with_waves.end.error > 2.0 * smooth.end.error
    plain = curve_of(episodes[:400])
    assert plain.with_waves.end.error < 3.0 * plain.end.error


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=40))
def test_stands_add_up_to_the_points(values):
    lasting = stands(np.array(values))
    assert lasting.sum() == len(values)
    assert len(lasting) == 1 + sum(a != b for a, b in itertools.pairwise(values))


def test_values_as_a_log_has_them():
    assert is_as_logged(0.12345, np.array([0.5, 0.1235]))
    assert not is_as_logged(0.12345, np.array([0.5, 0.124]))
    assert not is_as_logged(1.0, np.array([]))


def test_peaks_within_ten_values_are_one():
    above = np.zeros(40)
    above[[5, 15, 26]] = [1.0, 2.0, 1.0]
    assert peaks_of(above > 0.0, above).tolist() == [15, 26]
    assert peaks_of(above > 5.0, above).tolist() == []
