"""Every statistic of evidence/numerics.py against plain Python, with the definition written out."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import numerics
from tracker_health.evidence.numerics import (
    block_medians,
    in_range,
    jumps,
    local_noise,
    longest_run,
    mann_kendall,
    median_error,
    roughness,
    start_level,
)

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80)


def median(values):
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(ANY, max_size=30))
def test_the_median_is_that_of_numpy(values):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = np.median(values) if values else math.nan
        assert np.array_equal(numerics.median(values), expected, equal_nan=True)


@given(st.lists(st.lists(ANY, min_size=7, max_size=7), min_size=1, max_size=5))
def test_medians_of_rows_leave_out_nan_as_numpy_does(rows):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        assert np.array_equal(numerics._medians(np.array(rows)), np.nanmedian(rows, axis=1), equal_nan=True)


@given(VALUES)
def test_local_noise(values):
    steps = [abs(b - a) for a, b in itertools.pairwise(values)]
    expected = 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0
    assert local_noise(np.array(values)) == close(expected)


def test_local_noise_is_the_standard_deviation_of_normal_noise_and_blind_to_a_slow_trend():
    rng = np.random.default_rng(0)
    noise = rng.normal(scale=0.3, size=20_000)
    assert local_noise(noise) == pytest.approx(0.3, rel=0.03)
    assert local_noise(noise + np.linspace(0, 100, 20_000)) == pytest.approx(0.3, rel=0.03)


@given(VALUES, st.integers(1, 90))
def test_block_medians(values, size):
    count = max(1, len(values) // size)
    blocks, rest = [], list(values)
    for _ in range(count - 1):
        blocks.insert(0, median(rest[-size:]))
        rest = rest[:-size]
    blocks.insert(0, median(rest))
    found = block_medians(np.array(values), size)
    assert found.tolist() == close(blocks)
    assert len(found) == count


@given(VALUES, st.integers(1, 20), st.floats(0, 1e5))
def test_start_level(values, size, noise):
    head = median(values[:size])
    found = start_level(np.array(values), size, noise)
    assert found == close(values[0] if head - values[0] > 4.0 * noise else head)


@given(st.floats(0, 1e6), st.integers(1, 1000))
def test_median_error(noise, size):
    assert median_error(noise, size) == pytest.approx(math.sqrt(math.pi / 2) * noise / math.sqrt(size), rel=1e-4)


def test_median_error_is_what_medians_do():
    medians = np.median(np.random.default_rng(1).normal(size=(4000, 51)), axis=1)
    assert median_error(1.0, 51) == pytest.approx(medians.std(), rel=0.05)


@given(st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_mann_kendall(values):
    n, score = len(values), 0
    for i in range(n):
        for j in range(i + 1, n):
            score += (values[j] > values[i]) - (values[j] < values[i])
    variance = n * (n - 1) * (2 * n + 5) / 18
    expected = 0.0 if n < 3 else (score - (score > 0) + (score < 0)) / math.sqrt(variance)
    assert mann_kendall(np.array(values)) == close(expected)


@given(st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_mann_kendall_turns_with_the_series(values):
    assert mann_kendall(np.array(values)) == close(-mann_kendall(-np.array(values)))
    assert mann_kendall(np.array(values)) == close(-mann_kendall(np.array(values[::-1])))


def test_mann_kendall_of_a_straight_fall_of_ten_is_past_three():
    assert mann_kendall(np.arange(10.0)[::-1]) == pytest.approx(-44 / math.sqrt(125), rel=1e-12)
    assert mann_kendall(np.ones(10)) == 0.0


@given(st.lists(st.booleans(), max_size=60))
def test_longest_run(mask):
    best, start, length = (0, 0), 0, 0
    for index, flag in enumerate(mask):
        start, length = (start, length + 1) if flag and length else (index, int(flag))
        if length > best[1]:
            best = (start, length)
    assert longest_run(np.array(mask, dtype=bool)) == best


def assert_jumps_as_plain(values, plain, window):
    with np.errstate(all="ignore"):  # as rules are judged: a value over a deviation of 0 is infinity
        above, scores = jumps(np.array(values), window)
    expected = plain.jumps(values, window)
    assert above.tolist() == close([one for one, _ in expected])
    assert scores.tolist() == pytest.approx([score for _, score in expected], rel=1e-6, abs=1e-9)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=150), window=st.integers(8, 60))
def test_jumps(values, window, plain):
    assert_jumps_as_plain(values, plain, window)


@given(values=st.lists(st.sampled_from([0.0, 1.0, 2.0, 50.0]), min_size=1, max_size=150))
def test_jumps_among_ties(values, plain):
    """A window without spread: what differs from it lies infinitely many deviations away, what does not 0."""
    assert_jumps_as_plain(values, plain, 128)


@pytest.mark.parametrize("n", [9, 300, 2**15, 2**15 + 1, 34_000])
@pytest.mark.thinned(4)
def test_jumps_in_long_histories(n, plain):
    """The windows are renewed less often there."""
    rng = np.random.default_rng(n)
    values = 2.0 + 0.1 * rng.standard_normal(n)
    values[rng.integers(0, n, n // 100)] += 3.0
    assert_jumps_as_plain(values.tolist(), plain, 128)


def test_a_jump_is_seen_by_earlier_values_only():
    values = np.ones(200) + 0.01 * np.random.default_rng(0).standard_normal(200)
    values[120:] += 5.0
    above, scores = jumps(values)
    again, same = jumps(values[:121])
    assert (above[120], scores[120]) == (again[120], same[120])
    assert scores[120] > 100
    assert above[120] == pytest.approx(5.0, abs=0.1)


def test_one_jump_does_not_hide_the_next():
    """Half of the window is spikes, but for their being kept out of it."""
    values = np.ones(300) + 0.01 * np.random.default_rng(0).standard_normal(300)
    places = np.arange(60, 300, 3)
    values[places] += 5.0
    above, scores = jumps(values)
    assert above[places] == pytest.approx(5.0, abs=0.2)
    assert scores[places].min() > 100


def test_the_largest_numbers_there_are_have_levels():
    values = np.full(60, 1.7e308)
    assert block_medians(values, 4).tolist() == [1.7e308] * 15
    assert start_level(values, 4, 0.0) == 1.7e308
    assert local_noise(values) == 0.0


@given(VALUES)
def test_ordinary_numbers_stay_in_their_unit(values):
    same, unit = in_range(np.array(values))
    assert (same.tolist(), unit) == (values, 1.0)


@pytest.mark.parametrize(("n", "blind"), [(200, 8), (32768, 8), (32769, 64)])
def test_a_spike_among_the_first_values_is_not_seen(n, blind):
    rng = np.random.default_rng(0)
    values = 1 + 0.01 * rng.standard_normal(n)
    values[[blind - 1, blind + 1]] = 50.0
    _, scores = jumps(values)
    assert (scores[:blind] == 0).all()
    assert scores[blind + 1] > 100


def roughness_of(values):
    thirds = [d - 3.0 * c + 3.0 * b - a for a, b, c, d in zip(values, values[1:], values[2:], values[3:], strict=False)]
    usual = median([abs(b - a) for a, b in itertools.pairwise(values)])
    return 1.4826 * median([abs(one) for one in thirds]) / math.sqrt(20.0) / usual if usual else 1.0


@given(
    values=st.lists(st.floats(-100, 100).map(lambda one: round(one, 6)), min_size=10, max_size=80),
    unit=st.sampled_from([0.25, 2.0, 1024.0]),
)
def test_roughness(values, unit):
    rough = roughness(np.array(values))
    assert rough == pytest.approx(roughness_of(values), rel=1e-6, abs=1e-9)
    assert roughness(unit * np.array(values)) == pytest.approx(rough)


def test_the_roughness_of_noise_is_about_one():
    values = np.random.default_rng(1).standard_normal(20_000)
    assert roughness(values) == pytest.approx(1.0484, rel=0.05)  # sigma over 0.6745 sqrt(2) sigma
