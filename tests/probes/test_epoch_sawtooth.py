"""LOS010."""

import math
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


NEAR_MISSES = {
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
    assert result.measured["correlation"] == pytest.approx(min(correlation(flat), correlation(smooth)), abs=1e-9)
