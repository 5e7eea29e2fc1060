"""Which values of a loss can be compared, and where the learning rate began again.

Values from before the objective was made harder cannot be compared. The first values of a running mean cannot, either:
it has not yet reached what it is the mean of. Nor can first values that are below all that the loss then comes down
from. A sum was divided by more batches than it had, or the task grew at first, as when a queue of negatives fills.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracker_health.evidence.numerics import block_medians, in_range, local_noise, mann_kendall
from tracker_health.evidence.series import FloatArray, IntArray, Series
from tracker_health.text import short_name

_A_WEIGHT_MOVES, _CLEARLY_HIGHER = 0.05, 0.01  # of its size, and of its span
_LEAST_CLIMB = 5
_BEGINS_BELOW, _FIRST_RISE = 0.5, 1.1  # of where a running mean gets to, and of its first value
_FORGETS = np.geomspace(1e-3, 0.5, 60)
_LEVEL = 0.08  # spread of logarithms that is one level
_LEARNT = 0.75
_FIRST_PART, _SHORTEST = 0.25, 8  # of the points: where a top may be that the rest comes down from
_CLIMB = 1.5  # times the first values: what climbs further and comes down at once has exploded
_EXPLODED = 10.0  # times the first values: no task grows so far by itself
_STILL_TO_FALL = 0.15  # of the way down from the top, at the middle of it: an explosion has less before it by then
_CLEARLY_BELOW = 8.0  # standard deviations of the noise from point to point
_REGAINED = 0.5  # of the climb
_NEAR = 0.3  # of the first value: an end so near to it says that the run began there
_FALLS, _MEDIANS = -3.0, 40
_CAME_DOWN, _BACK = 0.5, 0.9  # of the highest learning rate so far: a restart begins below one and gets to the other


def comparable(loss: Series, weights: Iterable[Series]) -> tuple[Series, str]:
    """The finite points of a loss that can be compared with each other, and what was left out, in words.

    ``weights``: of parts of the loss, that may rise (a KL term's, say).
    """
    loss, note = loss.finite(), ""
    warmed = after_warming(loss.values)
    if warmed:
        loss = loss.at(np.arange(warmed, len(loss)))
        note = f" (a running mean, from {loss.place(loss.steps[0])} on)"
    elif top := top_of(loss.values):
        loss = loss.at(np.arange(top, len(loss)))
        note = f" (from {loss.place(loss.steps[0])} on: what was before is below all that it came down from)"
    rise = settled(weights)
    if rise is not None:
        name, step = rise
        loss = loss.at(np.flatnonzero(loss.steps >= step))
        note += f" (from {loss.place(step)} on, when {short_name(name)} had risen)"
    return loss, note


def settled(weights: Iterable[Series]) -> tuple[str, int] | None:
    """The weight of a part of the loss that rose last, and the step from which it did not; None if none rose."""
    rises = [
        (int(weight.steps[rising[-1] + 1]), weight.name)
        for series in weights
        if len(weight := series.finite()) and len(rising := _rising(weight.values))
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
    if span <= _A_WEIGHT_MOVES * float(np.abs(values).max()):
        return np.empty(0, dtype=np.int64)
    highest_later = np.maximum.accumulate(values[::-1])[::-1]
    return np.flatnonzero(values < highest_later - _CLEARLY_HIGHER * span)


def after_warming(values: FloatArray) -> int:
    """Where a running mean that began at 0 has come to the loss that it is the mean of; 0 for all others.

    Such a mean climbs without a step back, ever more slowly, from less than half of where it gets to, and comes down
    from there: divided by 1 - b^k, for some b, it is the loss itself, which barely changes so early.
    """
    first = int(len(values) > 1 and values[0] < _BEGINS_BELOW * (values[1] - values[0]))  # before the first step
    rises = np.diff(values[first:])
    climb = int(np.argmax(rises <= 0)) if (rises <= 0).any() else len(rises)
    if climb < _LEAST_CLIMB or climb > len(values) // 2:
        return 0
    head, rest = values[first : first + climb + 1], values[first + climb :]
    slows = 0 < head[0] < _BEGINS_BELOW * head[-1] and rises[0] <= _FIRST_RISE * head[0]
    if not slows or not float(np.median(rest[-max(1, len(rest) // 4) :])) < _LEARNT * head[-1]:
        return 0
    places = np.arange(1, len(head) + 1)
    levels = [np.log(head / (1.0 - (1.0 - forgets) ** places)) for forgets in _FORGETS]
    return first + climb if min(float(np.std(level)) for level in levels) < _LEVEL else 0


def top_of(values: FloatArray) -> int:
    """Where a loss that falls from there to its end, for sure, had its top; 0 where that is its beginning, or where
    what comes before is to be judged.

    That is one value alone, so far below that the second is at the top already, unless the loss ends near it again: one
    value is no level, but two that agree are. Or it is a climb of which half was regained, and which was no explosion:
    it was by no more than half, or the way down took the whole of the run.
    """
    values, _ = in_range(values)
    early = values[: max(2, int(_FIRST_PART * len(values)))]
    top = int(np.argmax(early)) if len(values) >= _SHORTEST else 0
    if not top or not _falls(values[top:]):
        return 0
    first, end = float(values[0]), float(np.median(values[-max(1, len(values) // 8) :]))
    if float(values[top]) - first < _CLEARLY_BELOW * local_noise(values):
        return 0
    if values[1] - first > 0.5 * (values[top] - first):
        alone = float(early[1:].min()) > first and (first <= 0.0 or abs(end - first) > _NEAR * first)
        return 1 if alone else 0
    begins, height = float(np.median(values[: min(3, top)])), float(values[top])
    later = values[top + (len(values) - top) // 2 :]
    ahead = float(np.median(later[: max(1, len(later) // 4)])) - end
    slowly = height <= _CLIMB * begins or ahead >= _STILL_TO_FALL * (height - end)
    climbed = 0.0 < begins < height <= _EXPLODED * begins and height - end >= _REGAINED * (height - begins)
    return top if climbed and slowly and _falls(later) else 0


def _falls(values: FloatArray) -> bool:
    return mann_kendall(block_medians(values, max(1, len(values) // _MEDIANS))) < _FALLS


def restarts_of(rates: Iterable[Series]) -> tuple[int, ...]:
    """The steps at which a learning rate began again.

    It has come down to half of its highest value so far or less, and has then risen to nine tenths of it.
    """
    found: set[int] = set()
    for rate in rates:
        values, steps = in_range(rate.finite().values)[0], rate.finite().steps
        highest = np.maximum.accumulate(values)
        place = (values >= _BACK * highest).astype(np.int8) - (values <= _CAME_DOWN * highest)
        turns = np.flatnonzero(place)
        again = turns[1:][np.diff(place[turns]) == 2]
        found |= {int(step) for step in steps[again]}
    return tuple(sorted(found))


def way_of(rates: Iterable[Series], steps: IntArray) -> FloatArray:
    """How far the learning rates had moved the weights at each of these steps, as a share of the whole way: the sum of
    the highest logged rate up to there; where none was logged (or it is 0, or below 0), the steps themselves.
    """
    way = steps.astype(np.float64)
    rate = max((one.finite() for one in rates), key=lambda one: float(one.values.max(initial=0.0)), default=None)
    if rate is not None and len(rate) > 1:
        between = np.diff(rate.steps) * (rate.values[1:] + rate.values[:-1]) / 2.0
        summed = np.interp(steps, rate.steps, np.append(0.0, np.cumsum(between)))
        if np.isfinite(summed).all() and (between >= 0).all() and summed[-1] > summed[0]:
            way = summed
    whole = float(way[-1] - way[0])
    return np.asarray((way - way[0]) / whole if whole > 0 else np.linspace(0.0, 1.0, len(way)))
