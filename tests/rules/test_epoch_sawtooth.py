"""LOS010."""

import itertools

import numpy as np
import pytest

CODE = "LOS010"


def judged(judge, make, rows, *, flat=None):
    """Rows of losses, one an epoch."""
    values = np.ravel(rows) if flat is None else flat
    epochs = np.arange(len(values)) / np.shape(rows)[1]
    return judge(CODE, make.evidence(values, make.series(epochs, role="epoch")))


def descent(epochs, length):
    return (1 + 2 * np.exp(-np.arange(epochs * length) / (2 * length))).reshape(epochs, length)


def noise(epochs, length, size=0.05, seed=0):
    return size * np.random.default_rng(seed).standard_normal((epochs, length))


def test_worked_example(make, judge):
    """Four whole epochs with the same ramp: about its mean each place is compared with the next one of the next epoch."""
    result = judged(judge, make, np.tile(np.linspace(1.0, 2.0, 10), (6, 1)))
    ramp = [place - 4.5 for place in range(10)]
    products = sum(a * b for a, b in itertools.pairwise(ramp))
    size = sum(a * a for a in ramp[1:])
    assert result.verdict == "warn"
    assert result.measured == {"correlation": pytest.approx(products / size), "epochs": 4, "points_an_epoch": 10}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["ramp", "hard ones last"])
def test_sick(shape, seed, make, judge):
    length = 40
    pattern = {
        "ramp": np.linspace(-0.3, 0.3, length),
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
    **{
        f"the same batches in every epoch {seed}": descent(8, 40)
        + 0.2 * np.random.default_rng(seed).standard_normal(40)
        + noise(8, 40)
        for seed in range(4)
    },
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


def test_a_rate_that_begins_anew_in_every_epoch(make, judge):
    """Such a schedule lets the loss fall in each epoch, and rise at its beginning."""
    values = (descent(8, 40) + np.linspace(0.3, -0.3, 40) + noise(8, 40)).ravel()
    epochs = make.series(np.arange(320) / 40, role="epoch")
    cosine = make.series(np.tile(1.0 + np.cos(np.linspace(0, 3, 40)), 8), role="learning_rate")
    assert judge(CODE, make.evidence(values, epochs)).verdict == "warn"
    assert judge(CODE, make.evidence(values, epochs, cosine)).verdict == "SkippedProbe"
