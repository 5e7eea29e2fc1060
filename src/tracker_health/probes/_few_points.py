"""Climbs in losses of a few points, an epoch each, say, which have no noise apart from their course to measure by."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import FloatArray
from tracker_health.evidence.numerics import evaluation_noise, median_error, noise_of_bends

_ERRORS, _BESIDE_A_LEAP, _FEWEST_BENDS = 1.6, 2.5, 4
_BEFORE, _LEAST = 3, 3
_LIFT, _LIFT_OF_LEAST = 1.1, 1.25
_NEARLY_ALL, _A_PART = 0.9, 0.3  # of the way down, on the way back
_ASIDE = 0.1  # of the way down, in the wrong direction
_CLEARLY, _HALF = 0.3, 0.5  # of the start
_SMOOTH = 5.0
_STEPS = 2
_TREBLED = 3.0
_FEWEST_FOR_TOP, _DOUBLED = 12, 2.0
_LEAST_TOGETHER, _ABOVE = 4, 0.2
_A_WAY, _A_WAY_HELD_OUT, _LOST, _LOST_OF_WAY = 0.2, 0.05, 0.15, 0.5


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


def ends_on_top(values: FloatArray) -> bool:
    """Whether the last three of twelve values or more are the highest of all, and twice as high as the others: noise
    alone, whatever its size, puts the highest there once in 220 times, or less often.
    """
    if len(values) < _FEWEST_FOR_TOP:
        return False
    before, last = values[:-_LEAST], values[-_LEAST:]
    return bool(last.min() > before.max() and np.median(last) >= _DOUBLED * np.median(before) > 0)


def climbed(values: FloatArray, share: float, sigmas: float) -> bool:
    """Whether the last two of four to seven values lie clearly above the first, or the way down from it was lost."""
    start, end = float(values[0]), float(values[-2:].min())
    noise = max(evaluation_noise(values), noise_of_bends(np.diff(values, 2)))
    if end - start > max(share * abs(start), sigmas * noise) or lifted(values):
        return True
    # An explosion is its own noise.
    doubled = end >= 2.0 * float(values[:-2].max())
    return start > 0 and (doubled or _leapt(values) or _came_back(values))


def _leapt(values: FloatArray) -> bool:
    """Whether all values from some place on, two or more, are three times as large as all before it."""
    before = np.maximum.accumulate(values)[:-2]
    after = np.minimum.accumulate(values[::-1])[::-1][1:-1]
    return bool((after >= _TREBLED * before).any())


def climb_together(values: FloatArray, held_out: FloatArray) -> bool:
    """Whether the losses of training and of validation both end well above their first values, at their highest and
    after climbing twice in a row: what noise does to one of them it does not do to the other.
    """
    return all(
        len(one) >= _LEAST_TOGETHER
        and bool((np.diff(one[-_STEPS - 1 :]) > 0).all())
        and float(one[-1]) == float(one.max())
        and float(one[-1] - one[0]) > _ABOVE * abs(float(one[0]))
        for one in (values, held_out)
    )


def lost_together(values: FloatArray, held_out: FloatArray) -> bool:
    """Whether both losses, of the same epochs, were lowest at the same time, to within one, and lost a good part of
    their way down for good: noise of the batches does not do that to both.
    """
    if len(values) != len(held_out) or len(values) < _LEAST_TOGETHER:
        return False
    lowest = [int(np.argmin(one)) for one in (values, held_out)]
    together = abs(lowest[0] - lowest[1]) <= 1
    return together and _lost(values, lowest[0], _A_WAY) and _lost(held_out, lowest[1], _A_WAY_HELD_OUT)


def _lost(values: FloatArray, lowest: int, least_way: float) -> bool:
    """Whether the last two values lie clearly above the lowest one before them, to which a way led down."""
    least, down = float(values[lowest]), float(values[0] - values[lowest])
    if lowest >= len(values) - 2 or down <= least_way * abs(float(values[0])):
        return False
    return float(values[-2:].min()) - least > max(_LOST * abs(least), _LOST_OF_WAY * down)


def _came_back(values: FloatArray) -> bool:
    """Whether the values came down and went back to their start: from half of it, and stayed there, or smoothly."""
    values = clipped(values, float(values[-1]))
    at, steps = int(np.argmin(values)), np.diff(values)
    down = float(values[0] - values[at])
    if len(steps) - at < _STEPS:
        return False
    aside = float(np.maximum(steps[:at], 0.0).sum() - np.minimum(steps[at:], 0.0).sum())
    back = (values[-2:] - values[at]) / down if down > 0 else np.zeros(2)
    stayed = down >= _HALF * values[0] and aside <= _ASIDE * down and back.min() >= _NEARLY_ALL
    smooth = at >= _STEPS and aside == 0.0 and back[0] >= _A_PART and back[1] >= _NEARLY_ALL
    return bool(stayed or (smooth and down >= _CLEARLY * values[0] and _is_smooth(values, values[-1] - values[at])))


def _is_smooth(values: FloatArray, rise: float) -> bool:
    return rise > _SMOOTH * noise_of_bends(np.diff(values, 2))
