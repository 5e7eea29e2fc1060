"""Contents of adapters early in training, which confirm or refute an assumed order."""

import numpy as np
import pytest

from tracker_health.readers.tensors.content_check import contents_agree
from tracker_health.readers.tensors.tensor_values import Values


class Held(Values):
    """Values in memory."""

    def __init__(self, array):
        self.array = np.asarray(array, dtype=np.float64)
        self.shape = self.array.shape

    @property
    def layout(self):
        return self.shape

    @property
    def row(self):
        return None

    def blocks(self, room):
        yield self.array.ravel()


def pairs(count, *, noise=0.5, shape=(16, 4), seed=0):
    """First moments, and weights that were moved against them from 0."""
    generator = np.random.default_rng(seed)
    moments = [generator.normal(size=shape) for _ in range(count)]
    weights = [-0.01 * (moment + noise * generator.normal(size=shape)) for moment in moments]
    return moments, weights


def asked(moments, weights, names=None, steps=4):
    names = names or {key: f"layers.{key}.lora_B.weight" for key in range(len(moments))}
    stored = {f"layers.{key}.lora_B.weight": Held(weight) for key, weight in enumerate(weights)}
    return contents_agree(names, {key: Held(moment) for key, moment in enumerate(moments)}, stored, steps)


def test_what_fits_is_confirmed():
    assert asked(*pairs(12)) is True
    assert asked(*pairs(1)) is True


@pytest.mark.parametrize("value", [5e-324, 1e308, np.nan, np.inf])
def test_damaged_contents_are_no_warning(value):
    moments, weights = pairs(3)
    moments[1][:] = value
    weights[2][:] = value
    assert asked(moments, weights) in (True, False, None)


def test_two_that_are_swapped_are_refuted():
    moments, weights = pairs(12)
    weights[3], weights[4] = weights[4], weights[3]
    assert asked(moments, weights) is False


@pytest.mark.parametrize("steps", [None, 0, -1, 501])
def test_late_in_training_contents_say_nothing(steps):
    assert asked(*pairs(12), steps=steps) is None


def test_contents_without_a_trace_say_nothing():
    moments, _ = pairs(12)
    _, weights = pairs(12, seed=1)
    assert asked(moments, weights) is None
    assert asked(moments, [np.zeros((16, 4))] * 12) is None
    assert asked(moments, [np.full((16, 4), np.nan)] * 12) is None
    assert asked([np.full((16, 4), np.inf)] * 12, weights) is None


def test_only_what_begins_at_zero_is_asked():
    moments, weights = pairs(4)
    assert asked(moments, weights[::-1], names={key: f"layers.{key}.lora_A.weight" for key in range(4)}) is None


def test_tensors_too_small_to_tell_are_left_out():
    assert asked(*pairs(6, shape=(4, 2))) is None
