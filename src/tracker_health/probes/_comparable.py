"""Which values of a loss can be compared: not those from before its objective, or its task, was made harder."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracker_health.evidence import Evidence, FloatArray, IntArray, Series
from tracker_health.evidence.numerics import (
    block_medians,
    coarseness,
    in_range,
    local_noise,
    mann_kendall,
    median,
    start_level,
)

_GRADUAL = 0.02  # of the points, on the way up
_FAR = 0.5
_FIRST = 3
_HALVES = 0.5
_SEVERAL_STEPS = 10
_LEVELS = 20
_LEAST_CLIMB = 5
_FORGETS = np.geomspace(1e-3, 0.5, 60)
_LEVEL = 0.08
_LEARNT = 0.75
_SAME, _OFTEN = 1e-5, 0.1
_ZEROS, _LEFT, _EXACT = 3, 0.01, 1e-6  # of the first loss


def comparable(loss: Series, evidence: Evidence) -> Series:
    """The finite points of a loss from where on they can be compared."""
    rise = settled(evidence)
    if rise is not None:
        loss = loss.at(np.flatnonzero(loss.steps >= rise[1]))
    return loss.at(np.arange(after_climb(loss.values), len(loss))) if len(loss) else loss


def lacks_beginning(loss: Series) -> bool:
    """Whether the first point of a loss comes after ten steps or more."""
    return len(loss) > 0 and int(loss.steps[0]) >= _SEVERAL_STEPS


def begins_late(loss: Series) -> bool:
    """Whether much was learnt before a training loss was first logged: after ten steps or more, and it halves up to the
    second point.
    """
    return lacks_beginning(loss) and len(loss) > 1 and bool(loss.values[1] < _HALVES * loss.values[0])


def is_of_margins(values: FloatArray) -> bool:
    """Whether a loss is exactly 0 where nothing violates a margin (triplets, hinge), and is far from it in between.

    How many violate it depends on the batch, so that two losses of batches drawn otherwise do not compare. A
    cross-entropy of samples learnt by heart that reads 0 has been rounded, or stays near it.
    """
    zeros = np.flatnonzero(values == 0.0)
    if len(zeros) < _ZEROS or (values < 0.0).any():
        return False
    start, later = median(values[:_FIRST]), values[zeros[0] :]
    left = later[later > _LEFT * start]
    exact = [coarseness(float(value)) <= _EXACT * start for value in left[:_FIRST]]
    return len(left) >= _ZEROS and all(exact)


def settled(evidence: Evidence) -> tuple[str, int] | None:
    """The weight of a part of the loss that rose last, and the step from which on it did not; None if none rose."""
    rises = [
        (int(weight.steps[rising[-1] + 1]), weight.name)
        for series in evidence.series
        if series.role == "objective_weight"
        and len(weight := series.finite())
        and len(rising := _rising(weight.values))
    ]
    if not rises:
        return None
    step, name = max(rises)
    return name, step


def _rising(values: FloatArray) -> IntArray:
    """The indices after which a value comes that is clearly higher: by 1 % of what the values span, if that is 5 % of
    their size.
    """
    values, _ = in_range(values)
    span = float(np.ptp(values))
    if span <= 0.05 * float(np.abs(values).max()):
        return np.empty(0, dtype=np.int64)
    highest_later = np.maximum.accumulate(values[::-1])[::-1]
    return np.flatnonzero(values < highest_later - 0.01 * span)


def after_warming(values: FloatArray) -> int:
    """Where a running mean that began at 0 has come to the loss that it is the mean of; 0 for all others.

    Such a mean climbs without a step back, ever more slowly, from less than half of where it gets to, and comes down
    from there: divided by 1 - b^k, for some b, it is the loss itself, which hardly changes so early.
    """
    first = int(len(values) > 1 and values[0] < 0.5 * (values[1] - values[0]))  # logged before the first step
    rises = np.diff(values[first:])
    climb = int(np.argmax(rises <= 0)) if (rises <= 0).any() else len(rises)
    if climb < _LEAST_CLIMB or climb > 0.5 * len(values):
        return 0
    head, rest = values[first : first + climb + 1], values[first + climb :]
    if not 0 < head[0] < 0.5 * head[-1] or rises[0] > 1.1 * head[0] or not _comes_down(rest, float(head[-1])):
        return 0
    places = np.arange(1, len(head) + 1)
    levels = [np.log(head / (1.0 - (1.0 - forgets) ** places)) for forgets in _FORGETS]
    return first + climb if min(float(np.std(level)) for level in levels) < _LEVEL else 0


def _comes_down(rest: FloatArray, level: float) -> bool:
    """Whether the loss ends well below a level: it has learnt, and did not just recover."""
    return float(np.median(rest[-max(1, len(rest) // 4) :])) < _LEARNT * level


def after_climb(values: FloatArray) -> int:
    """Where the descent begins, in a loss that first climbed by design to more than one and a half times its start: a
    contrastive loss whose queue of negatives fills, or a running mean that began at 0. 0 for all others.
    """
    warmed = after_warming(values)
    if warmed:
        return warmed
    size = max(5, round(len(values) / _LEVELS))
    levels = block_medians(values, size)
    if len(levels) < _LEVELS // 2:
        return 0
    noise = max(local_noise(values), local_noise(levels))
    start = start_level(values, size, noise)
    far = levels.max() - start > _FAR * abs(start)
    if not far or not rose_by_design(values, levels, start, noise):
        return 0
    return int(np.argmax(np.median(sliding_window_view(values, 5), axis=1))) + 2


def rose_by_design(values: FloatArray, levels: FloatArray, start: float, noise: float) -> bool:
    """Whether a loss climbed gradually in its first quarter and has come down ever since."""
    peak = int(np.argmax(levels))
    after = levels[peak:]
    if peak > 0.25 * (len(levels) - 1) or mann_kendall(after) > -3.0 or after[-1] > after.min() + noise:
        return False
    # An explosion takes a few steps; a climb by design goes through every height.
    height = (float(levels[peak]) - start) or 1.0
    smooth = np.median(sliding_window_view(values, 5), axis=1)
    climb = (smooth[: int(np.argmax(smooth)) + 1] - start) / height
    return int(np.count_nonzero((climb > 0.1) & (climb < 0.9))) >= max(10, round(_GRADUAL * len(values)))


def unaltered(norm: Series | None) -> Series | None:
    """The gradient norms, if they are those of the gradients: of clipped or rounded ones many neighbours are equal, and
    their smoothness is the logger's.
    """
    if norm is None:
        return None
    values = norm.finite().values
    same = np.abs(np.diff(values)) <= _SAME * np.abs(values[1:])
    return None if len(same) and np.mean(same) > _OFTEN else norm
