"""To which step each row of a log belongs, and where in it the last training begins.

A row is numbers with names, in the order of the log; ``names.axis_of`` knows which names are axes. All else is decided
here, when all rows are there:

1. A row that names a step has it. Steps, batches and bars that begin again with each epoch are counted on.
2. A row that names none has the last step before it.
3. In a log without steps a row has its epoch; where epochs are shares, the step that a progress bar shows next to it,
   or its share of the planned steps; else what counts samples or tokens; else rows are counted.
4. Where the axis goes back to its beginning, and the loss with it, another training began: the last one is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray, IntArray, StepUnit

BoolArray = npt.NDArray[np.bool_]
UNITS = tuple(StepUnit)
_UNKNOWN, _EPOCH, _COUNTED = map(UNITS.index, (StepUnit.UNKNOWN, StepUnit.EPOCH, StepUnit.LOG_CALL))
_LARGEST = 2.0**53
_FEWEST_ROWS = 3  # of a training
_LEVEL = 5  # values that a loss's level is taken from
_MOSTLY = 2 / 3
_LONGER = 1.5  # times the pass before: what comes further is the same counter, which went back, and no next epoch
_ROUNDED = 0.006  # of an epoch, in logs that write its second digit
_FEWEST_HEADINGS = 0.5  # for each row of the training


@dataclass(frozen=True, kw_only=True)
class RowPlaces:
    """What each of the rows of a log says of its place: float64[n] each, NaN where it says nothing.

    ``step``: a step or a batch, ``of``: what it counts up to, ``unit``: int8[n], an index into ``UNITS``; ``bar``: the
    step of a progress bar that has no metrics; ``amount``: samples, tokens and the like; ``loss``: that by which the
    training is known. bool[n]: ``main``, rows that have it or what there is instead; ``training``, rows with metrics of
    the training; ``metric``, with any. ``plan``: planned steps and epochs, or None.
    """

    step: FloatArray
    of: FloatArray
    unit: npt.NDArray[np.int8]
    epoch: FloatArray
    bar: FloatArray
    bar_of: FloatArray
    amount: FloatArray
    loss: FloatArray
    main: BoolArray
    training: BoolArray
    metric: BoolArray
    plan: tuple[float | None, float | None]


class Places(NamedTuple):
    """Where rows belong: ``steps``: float64[n], NaN for nowhere; ``units``: int8[n]; ``of_epoch``: those that name
    nothing but an epoch, where others name steps; ``kept``: those of one training, the ``segment``-th, of those that
    ``begins`` has the first rows of. ``epochs``: float64[n], NaN where they are not known; of bars that say none they
    are counted.
    """

    steps: FloatArray
    units: npt.NDArray[np.int8]
    of_epoch: BoolArray
    kept: BoolArray
    epochs: FloatArray = np.empty(0)
    begins: tuple[int, ...] = (0,)
    segment: int = 1


def place(rows: RowPlaces, segment: int | None = None) -> Places:
    """The place of every row; of several trainings those of the ``segment``-th are kept, or of the last."""
    named = ~np.isnan(rows.step)
    whole = _whole(rows.epoch)
    epoch = whole if np.array_equal(whole, rows.epoch, equal_nan=True) else np.full(len(whole), np.nan)
    alone = len(np.unique(rows.step[named])) == 1 and rows.main.sum() > 1 and not (named & rows.main).any()
    if alone:  # a lone event that names a step is no axis of the others
        named[:] = False
    if (named & rows.metric).any() or (named.any() and named.sum() >= _FEWEST_HEADINGS * rows.main.sum()):
        places = _by_step(rows, _whole(rows.step), _filled(epoch), named)
    elif not np.isnan(epoch).all():
        places = _at(_filled(epoch, first=True), _EPOCH)
    else:
        places = _without_numbers(rows)
    return _one_training(rows, places._replace(epochs=_filled(epoch)), segment)


def counts_up(values: FloatArray) -> bool:
    """Whether numbers with the name of an axis are one: nearly all whole, and mostly no less than the one before."""
    finite = values[np.isfinite(values)]
    if len(finite) < 2 or np.ptp(finite) == 0 or (finite != np.round(finite)).any():
        return False
    return bool((np.diff(finite) >= 0).mean() >= _MOSTLY)


def _whole(values: FloatArray) -> FloatArray:
    """The values, NaN for those that count nothing."""
    with np.errstate(invalid="ignore"):
        return np.where((np.abs(values) < _LARGEST) & (values == np.floor(values)), values, np.nan)


def _before(known: BoolArray) -> IntArray:
    """Of each row the last known one up to it, -1 where there is none."""
    return np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))


def _filled(values: FloatArray, *, first: bool = False) -> FloatArray:
    """The values, for each NaN the last one before it; ``first``: where there is none, the first one."""
    known = values[~np.isnan(values)]
    before = _before(~np.isnan(values))
    return np.where(before >= 0, values[before], known[0] if first and len(known) else np.nan)


def _at(steps: FloatArray, unit: int) -> Places:
    n = len(steps)
    return Places(steps, np.full(n, unit, dtype=np.int8), np.zeros(n, dtype=bool), np.ones(n, dtype=bool))


# Logs with steps


def _by_step(rows: RowPlaces, at: FloatArray, epoch: FloatArray, named: BoolArray) -> Places:
    """``epoch``: that of each row, or what there is instead; ``named``: the rows that say their step."""
    own = ~np.isnan(at)
    leads = own & (rows.training | ~rows.metric)
    leads = leads if leads.any() else own
    counted = leads & ~np.isnan(epoch)  # what comes before the first epoch is of none
    done, total = _done_before(at[counted], epoch[counted], rows.of[counted]) if counted.any() else ({}, 0.0)
    before = np.array([done.get(number, 0.0) for number in epoch.tolist()] if any(done.values()) else 0.0)
    steps = at + before
    units = rows.unit[np.where(_before(own) >= 0, _before(own), np.argmax(own))]  # a row before all has the first one's
    # Without any number a row may still be reported by its neighbours; one whose number is none says something else.
    filled = np.where(named, steps, _filled(np.where(leads, steps, np.nan), first=True))
    if total:
        filled = np.where(named | rows.training | ~rows.metric, filled, _at_ends(filled, at, epoch, leads, total))
    return Places(filled, units, ~named & ~np.isnan(rows.epoch), np.ones(len(at), dtype=bool))


def _done_before(at: FloatArray, epoch: FloatArray, of: FloatArray) -> tuple[dict[float, float], float]:
    """By epoch the steps that were done before it, all 0 where steps go on through the epochs; and how many each epoch
    has, 0 where that is not known.
    """
    starts = np.flatnonzero(np.diff(epoch, prepend=np.nan) != 0)
    numbers, firsts, lasts = epoch[starts], at[starts], np.maximum.reduceat(at, starts)
    later = np.diff(numbers) > 0
    total = float(np.nanmax(of)) if not np.isnan(of).all() else 0.0
    if 2 * (later & (firsts[1:] <= lasts[:-1])).sum() <= later.sum():
        return {}, total if total >= lasts.max() and len(starts) == 1 else 0.0
    if total >= lasts.max():
        return {float(number): (float(number) - float(numbers[0])) * total for number in numbers}, total
    done: dict[float, float] = {}
    before = 0.0
    for start, stop, number in zip(starts, [*starts[1:], len(at)], numbers.tolist(), strict=True):
        before = done.setdefault(number, before)
        rising = np.diff(np.maximum.accumulate(at[start:stop]))
        stride = rising[rising > 0][-1] if rising.any() else max(at[start], 1.0)
        before += float(at[start:stop].max() - at[start] + stride)
    return done, 0.0


def _at_ends(filled: FloatArray, at: FloatArray, epoch: FloatArray, leads: BoolArray, total: float) -> FloatArray:
    """The steps of evaluations that say none: one behind an epoch's last row is at the end of it."""
    places = np.flatnonzero(leads)
    before = np.searchsorted(places, np.arange(len(filled)), side="right") - 1
    last = places[np.maximum(before, 0)]
    following = np.append(places, -1)[before + 1]
    gaps = np.diff(at[places])
    stride = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 0.0
    next_one = at[last] + stride + (at[places[0]] == 0)
    left = np.where(following >= 0, epoch[following] > epoch[last], next_one > total)
    return np.where(left & (before >= 0), filled - at[last] + total, filled)


# Logs without


def _without_numbers(rows: RowPlaces) -> Places:
    """A log of which no row says a whole step or epoch."""
    for steps in _candidates(rows):
        main = steps[rows.main]
        if len(main) and not np.isnan(main).any() and (np.diff(main) > 0).mean() >= _MOSTLY:
            return _at(_filled(steps, first=True), _UNKNOWN)
    leads = next(some for some in (rows.main, rows.training, rows.metric) if some.any() or some is rows.metric)
    return _at(np.maximum(np.cumsum(leads), 1).astype(np.float64), _COUNTED)


def _candidates(rows: RowPlaces) -> Iterator[FloatArray]:
    bars = np.flatnonzero(~np.isnan(rows.bar) & (rows.bar_of > 1))
    main = np.flatnonzero(rows.main)
    planned, epochs = rows.plan
    if len(bars) and len(main):
        # Most bars are drawn again right after what is printed, some are not: those are spaced more evenly that fit.
        nexts = np.searchsorted(bars, main)
        shown = [bars[np.clip(places, 0, len(bars) - 1)] for places in (nexts, nexts - 1)]
        apart = [np.diff(rows.bar[places]) for places in shown]
        even = [float((one == np.median(one)).mean()) if len(one) else 0.0 for one in apart]
        steps = np.full(len(rows.bar), np.nan)
        best = shown[int(np.argmax(even))]
        steps[main] = rows.bar[best]
        planned = planned or float(np.max(rows.bar_of[best]))
        last_bar, last_main = _before(~np.isnan(rows.bar)), _before(rows.main)
        yield np.where((last_bar > last_main) & ~rows.main, rows.bar[last_bar], steps[last_main])
    if planned and len(main) and not np.isnan(rows.epoch[main]).any():
        yield _of_shares(rows, planned, epochs)
    if counts_up(rows.amount[main]):
        yield rows.amount


def _of_shares(rows: RowPlaces, planned: float, epochs: float | None) -> FloatArray:
    """The steps of rows that say which share of an epoch was done, on their grid where they are on one."""
    shares, main = rows.epoch, np.flatnonzero(rows.main)
    per_epoch = planned / (epochs or np.ceil(np.max(shares[main])))
    steps: FloatArray = np.round(shares * per_epoch)
    grid = np.round(steps[main[-1]] / len(main)) * np.arange(1, len(main) + 1)
    if (np.abs(steps[main] - grid) <= _ROUNDED * per_epoch + 1).all() and grid[0] > 0:
        steps[main] = grid
    return steps


# Several trainings


def _one_training(rows: RowPlaces, places: Places, segment: int | None) -> Places:
    """The places of one training's rows, counted on through what is one training."""
    main = np.flatnonzero(rows.main & ~np.isnan(places.steps) & ~places.of_epoch)
    steps, loss, numbers = places.steps[main], rows.loss[main], _filled(rows.epoch)[main]
    in_bars = np.isfinite(rows.of[main])
    if len(main) < 2 or (np.diff(steps) >= 0).all() or places.units[main[0]] == _COUNTED:
        if in_bars.any() and np.isnan(places.epochs).all() and steps[-1] < rows.of[main[-1]]:
            return places._replace(epochs=np.zeros(len(rows.main)))  # a whole bar may be of all epochs
        return places
    at_start = steps <= steps[0] + np.median(np.abs(np.diff(steps)))
    back = (np.flatnonzero((np.diff(steps) < 0) & (in_bars | at_start)[1:]) + 1).tolist()
    passes, cuts = np.zeros(len(main)), []
    for before, begin, end in zip([0, *back], back, [*back[1:], len(main)], strict=False):
        known, few = numbers[begin - 1 : begin + 1], min(begin - before, end - begin) < _FEWEST_ROWS
        if not np.isnan(known).any() and known[0] != known[1]:
            again = known[1] < known[0] and places.units[main[0]] == _EPOCH
            goes_on = False if again else True if known[1] > known[0] else _goes_on(loss, before, begin, end)
            few = min(begin - before, end - begin) < 2
        else:
            goes_on = _goes_on(loss, before, begin, end)
        if goes_on is False and not few:
            cuts.append(begin)
            passes[:] = 0.0
        elif in_bars[begin] or (goes_on and not few and steps[end - 1] <= _LONGER * steps[begin - 1]):
            passes[begin:] += 1.0
    begins = [0, *(_first_row(places.steps, main[cut - 1], main[cut]) for cut in cuts)]
    chosen = min(segment or len(begins), len(begins))
    kept = np.zeros(len(rows.main), dtype=bool)
    kept[begins[chosen - 1] : [*begins, len(kept)][chosen]] = True
    if passes.any() and places.units[main[0]] != _EPOCH:
        number = np.full(len(kept), np.nan)
        number[main] = passes
        at, number = np.where(kept, places.steps, np.nan), _filled(number, first=True)
        placed = _by_step(rows, at, number, ~np.isnan(rows.step))
        places = placed._replace(epochs=number if np.isnan(places.epochs).all() else places.epochs)
    return places._replace(kept=kept, begins=tuple(begins), segment=chosen)


def _first_row(steps: FloatArray, old: int, new: int) -> int:
    """The first row of a training: what is between the last row of the one before and its own first one belongs to it
    where it is no further.
    """
    between = np.flatnonzero(steps[old + 1 : new] <= steps[new])
    return old + 1 + int(between[0]) if len(between) else new


def _goes_on(loss: FloatArray, before: int, begin: int, end: int) -> bool | None:
    """Whether a loss continues where it stood, and does not begin where it began; None where it is not known."""
    span = min(_LEVEL, max(1, (begin - before) // 4))
    parts = loss[before : before + span], loss[begin - span : begin], loss[begin : min(end, begin + span)]
    start, left, new = (float(np.median(part)) for part in parts)
    return None if np.isnan(new - left) else abs(new - left) <= abs(new - start)
