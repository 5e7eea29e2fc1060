"""Climbs in losses of a few points, an epoch each, say, which have no noise apart from their course to measure by."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import FloatArray
from tracker_health.probes._stats import median_error, noise_of_bends

_ERRORS, _BESIDE_A_LEAP, _FEWEST_BENDS = 1.6, 2.5, 4
_BEFORE, _LEAST = 3, 3
_LIFT, _LIFT_OF_LEAST = 1.1, 1.25


def noise_of_levels(values: FloatArray, size: int) -> float:
    """The noise that a rise from one median of ``size`` values to another is measured by.

    Second differences see no slope, however steep. A leap up makes large ones of its own: without them, which noise
    may have made as well, more is asked.
    """
    bends, leap = np.diff(values, 2), int(np.argmax(np.diff(values)))
    beside = np.delete(bends, [at for at in (leap - 1, leap) if 0 <= at < len(bends)])
    noise = _ERRORS * noise_of_bends(bends)
    if len(beside) >= _FEWEST_BENDS:
        noise = min(noise, _BESIDE_A_LEAP * noise_of_bends(beside))
    return median_error(noise, size)


def clipped(values: FloatArray, end: float) -> FloatArray:
    """The values without what lies above both ends: where a leap overshoots before it settles, that is no noise."""
    return np.minimum(values, max(float(values[0]), end))


def lifted(values: FloatArray) -> bool:
    """Whether the last values are all higher than all before them: three by a quarter, or four and more by a tenth.

    Of those before them there are three at least.
    """
    before = np.maximum.accumulate(values)[_BEFORE - 1 : -_LEAST]
    after = np.minimum.accumulate(values[::-1])[::-1][_BEFORE : len(values) - _LEAST + 1]
    lift = np.where(np.arange(len(after))[::-1] > 0, _LIFT, _LIFT_OF_LEAST)
    return bool(((before > 0) & (after >= lift * before)).any())
