"""Laws of the curve that rules about series stand on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import SURELY, Curve, Estimate
from tracker_health.evidence.comparable import restarts_of, way_of

FEW = settings(max_examples=draws(60), deadline=None)
SEEDS = st.integers(0, 10**6)


def curve_of(make, values, rates=()):
    return Curve.of(make.series(values), "", [make.series(one, role="learning_rate") for one in rates])


def noisy(seed, n, noise=0.05):
    return 1.0 + 3.0 * np.exp(-5.0 * np.arange(n) / n) + noise * np.random.default_rng(seed).standard_normal(n)


def estimates(curve):
    return [curve.start, curve.best, curve.peak, curve.end, curve.descent, curve.kept, curve.outset]


@pytest.mark.parametrize("n", [4, 7, 8, 15, 16, 39, 40, 79, 80, 400, 401, 12345])
def test_a_curve_has_8_to_40_levels(n, make):
    curve = curve_of(make, noisy(0, n))
    assert min(n, 8) <= len(curve.levels) < 80
    assert len(curve.levels) <= 40 or n < 80
    assert len(curve.levels) == len(curve.errors) == len(curve.steps) == len(curve.way)
    assert curve.steps[-1] == n - 1
    assert (curve.errors > 0).all()


def test_fewer_than_four_points_are_no_curve(make):
    assert curve_of(make, [3.0, 2.0, 1.0]) is None
    assert curve_of(make, [3.0, np.nan, 2.0, 1.0]) is None


@FEW
@given(seed=SEEDS, n=st.integers(4, 300), exponent=st.integers(-12, 12))
def test_scale(seed, n, exponent, make):
    values, unit = noisy(seed, n), 2.0**exponent
    small, large = curve_of(make, values), curve_of(make, values * unit)
    for one, other in zip(estimates(small), estimates(large), strict=True):
        assert other.value == pytest.approx(one.value * unit)
        assert other.error == pytest.approx(one.error * unit, rel=1e-6)
    assert small.trend == large.trend


@FEW
@given(seed=SEEDS, n=st.integers(8, 300), shift=st.floats(0, 50))
def test_shift(seed, n, shift, make):
    before, after = curve_of(make, noisy(seed, n)), curve_of(make, noisy(seed, n) + shift)
    assert after.descent.value == pytest.approx(before.descent.value, abs=1e-6)
    assert after.trend == before.trend


@FEW
@given(seed=SEEDS, n=st.integers(40, 400))
def test_more_points_of_the_same_course_are_no_less_precise(seed, n, make):
    few, many = curve_of(make, noisy(seed, n)), curve_of(make, noisy(seed, 25 * n))
    assert np.median(many.errors) < np.median(few.errors)


@pytest.mark.parametrize("n", [8, 12, 20, 40, 200, 5000])
def test_noise_alone_is_seldom_a_descent_or_a_rise(n, make):
    """Of a flat curve as many as three standard errors promise, and the search for the lowest part adds."""
    surely = 0
    for seed in range(200):
        curve = curve_of(make, 1.0 + 0.1 * np.random.default_rng(seed).standard_normal(n))
        surely += curve.descent.surely_above(0.05) or (curve.end - curve.best).surely_above(0.05)
    assert surely <= 8


@FEW
@given(seed=SEEDS, n=st.integers(30, 400), drop=st.floats(0.3, 0.9))
def test_a_large_step_down_is_sure(seed, n, drop, make):
    values = np.where(np.arange(n) < n // 2, 1.0, 1.0 - drop) + 0.02 * np.random.default_rng(seed).standard_normal(n)
    curve = curve_of(make, values)
    assert curve.descent.surely_above(0.5 * drop)
    assert abs(curve.kept.value - drop) < 0.1
    assert not (curve.end - curve.best).surely_above(0.1)


def test_rounding_is_an_error_too(make):
    """A log of two decimals knows nothing below a third of one: 0.01 / sqrt(12)."""
    curve = curve_of(make, np.round(2.3 + 0.0005 * np.arange(40), 2))
    assert (curve.errors >= 0.01 / np.sqrt(12) * 0.9).all()


def test_where_a_rise_that_lasts_began(make):
    values = np.concatenate([np.linspace(4.0, 1.0, 300), np.full(100, 7.0)])
    curve = curve_of(make, values)
    assert 295 <= curve.left(2.0) <= 312
    assert curve.best_step in range(290, 301)
    assert curve.since(curve.best_step) >= 100


def test_excursions_come_back_and_what_stays_up_is_none(bump, make):
    values = noisy(0, 400)
    curve = curve_of(make, bump(bump(values, 200, 30, 2.0), 300, 30, 1.5))
    assert [round(one.height) for one in curve.excursions(0.5)] == [2, 2]
    assert not curve_of(make, bump(values, 360, 40, 2.0)).excursions(0.5)


def test_an_explosion_is_measured_from_what_was_before_it(make):
    values = np.concatenate([[9.0, 8.9, 8.8], 60.0 + 20.0 * np.random.default_rng(0).standard_normal(60)])
    assert curve_of(make, values).outset.value < 9.1
    lucky = np.concatenate([[0.5], 1.0 + 0.2 * np.random.default_rng(0).standard_normal(60)])
    assert curve_of(make, lucky).outset.value > 0.6


def test_numbers_near_the_largest_there_is(make):
    curve = curve_of(make, np.array([1.7e308, -1.7e308] * 20))
    assert all(np.isfinite([one.value, one.error]).all() for one in estimates(curve))


@FEW
@given(values=st.lists(st.floats(), min_size=4, max_size=60))
def test_any_values(values, make):
    curve = curve_of(make, values)
    if curve is not None:
        assert all(np.isfinite([one.value, one.error]).all() for one in estimates(curve))
        assert curve.outset.value <= curve.start.value


def test_an_estimate_is_above_below_or_not_to_be_told():
    one = Estimate(2.0, 0.5)
    assert [one.surely_above(limit) for limit in (0.4, 0.6)] == [True, False]
    assert [one.surely_below(limit) for limit in (3.6, 3.4)] == [True, False]
    assert (one - Estimate(1.0, 1.2)) == Estimate(1.0, 1.3)
    assert SURELY == 3.0


# What comes from the learning rate


def test_restarts_of_the_learning_rate(make):
    cosine = 0.5 * (1 + np.cos(np.pi * np.arange(50) / 50))
    rates = [np.tile(cosine, 3)], [np.concatenate([np.linspace(0, 1, 10), cosine])], [np.zeros(30)], [np.ones(30)]
    found = [restarts_of([make.series(one, role="learning_rate") for one in some]) for some in rates]
    assert found == [(50, 100), (), (), ()]


def test_the_way_goes_as_the_rates_add_up(make):
    steps = np.arange(0, 101, 10)
    assert way_of([], steps) == pytest.approx(steps / 100)
    rate = make.series([1.0, 1.0, 0.0, 0.0], [0, 50, 51, 100], role="learning_rate")
    way = way_of([rate], steps)
    assert way[5] == pytest.approx(0.99, abs=0.01)
    assert (np.diff(way) >= 0).all()
    assert way_of([make.series([0.0, 0.0], [0, 100], role="learning_rate")], steps) == pytest.approx(steps / 100)
