"""LOS010."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = "LOS010"
FEW = settings(max_examples=40, deadline=None)


def judged(judge, make, rows, *, flat=None):
    """Rows of losses, one an epoch."""
    values = np.ravel(rows) if flat is None else flat
    epochs = np.arange(len(values)) / np.shape(rows)[1]
    return judge(CODE, make.evidence(values, make.series(epochs, role="epoch")))


def descent(epochs, length):
    return (1 + 2 * np.exp(-np.arange(epochs * length) / (2 * length))).reshape(epochs, length)


def noise(epochs, length, size=0.05, seed=0):
    return size * np.random.default_rng(seed).standard_normal((epochs, length))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["ramp", "the same batches", "hard ones last"])
def test_sick(shape, seed, make, judge):
    length = 40
    pattern = {
        "ramp": np.linspace(-0.3, 0.3, length),
        "the same batches": 0.2 * np.random.default_rng(seed + 50).standard_normal(length),
        "hard ones last": np.where(np.arange(length) < 30, 0.0, 0.4),
    }[shape]
    result = judged(judge, make, descent(8, length) + pattern + noise(8, length, seed=seed))
    assert result.verdict == "warn"
    assert result.measured["points_an_epoch"] == length


def means(rows):
    """As many trainers log it: the mean from the beginning of each epoch on."""
    return np.cumsum(rows, axis=1) / np.arange(1, rows.shape[1] + 1)


@pytest.mark.parametrize("seed", range(4))
def test_sorted_data_in_means_are_seen_all_the_same(seed, make, judge):
    rows = descent(8, 40) + np.linspace(-0.9, 0.9, 40) + noise(8, 40, seed=seed)
    assert judged(judge, make, means(rows)).verdict == "warn"


NEAR_MISSES = {
    **{f"means of an epoch {seed}": means(descent(8, 40) + noise(8, 40, 0.4, seed)) for seed in range(6)},
    "means of an epoch, counted from its last point": np.roll(
        means(descent(8, 40) + noise(8, 40, 0.4)).ravel(), 1
    ).reshape(8, 40),
    "a few points": 1 + noise(6, 8, seed=3),
    "a smooth descent": descent(8, 40) + noise(8, 40),
    "a noiseless descent": descent(8, 40),
    "a staircase": np.repeat([3.0, 2.4, 1.9, 1.5, 1.2, 1.0, 0.9, 0.8], 40).reshape(8, 40) + noise(8, 40),
    "a noiseless staircase": np.repeat([3.0, 2.4, 1.9, 1.5, 1.2, 1.0, 0.9, 0.8], 40).reshape(8, 40),
    "noise": 1 + noise(8, 40),
    "a constant": np.ones((8, 40)),
}


@pytest.mark.parametrize("name", list(NEAR_MISSES))
def test_near_misses(name, make, judge):
    assert judged(judge, make, NEAR_MISSES[name]).verdict == "pass"


@pytest.mark.parametrize("rows", [np.ones((4, 40)), np.ones((8, 7))])
def test_too_little_is_skipped(rows, make, judge):
    assert judged(judge, make, rows).verdict == "SkippedProbe"


def correlation(rows):
    pairs = [(a, b) for one, other in pairwise(rows) for a, b in zip(one, other, strict=True)]
    size = math.sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
    return sum(a * b for a, b in pairs) / size if size > 0 else 0.0


@FEW
@given(
    rows=st.integers(8, 12).flatmap(
        lambda length: st.lists(
            st.lists(st.integers(-99, 99), min_size=length, max_size=length), min_size=7, max_size=9
        )
    )
)
def test_against_plain_python(rows, make, judge):
    length, inner = len(rows[0]), rows[1:-1]
    means = [sum(row) / length for row in inner]

    def line(place):
        at = (place - (length - 1) / 2) / length
        low = max(0, min(len(means) - 2, math.floor(at)))
        share = min(1.0, max(0.0, at - low))
        return means[low] + share * (means[low + 1] - means[low])

    flat = [[value - mean for value in row] for row, mean in zip(inner, means, strict=True)]
    smooth = [
        [value - line(epoch * length + place) for place, value in enumerate(row)] for epoch, row in enumerate(inner)
    ]
    result = judged(judge, make, np.array(rows, dtype=float))
    size = max(1, (length - 1) // 4)
    jitter = [[abs(b - a) for a, b in pairwise(row)] for row in inner]
    first = statistics.median(one for row in jitter for one in row[:size])
    last = statistics.median(one for row in jitter for one in row[-size:])
    if last < 0.6 * first:
        assert result.measured["correlation"] <= min(correlation(flat), correlation(smooth)) + 1e-9
        return
    assert result.measured["correlation"] == pytest.approx(min(correlation(flat), correlation(smooth)), abs=1e-9)
