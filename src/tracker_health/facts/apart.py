"""One rank next to the others of its training: where it left them, stopped, or became NaN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import LIKELY, SURELY, Beside, FloatArray, IntArray
from tracker_health.evidence.numerics import lasts_from, local_noise, median, median_error


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A rank apart from the others: the ``step`` from which, ``where`` that is in words, its ``level`` there and
    ``theirs``, and ``share``: how far it is from them, over their level.
    """

    rank: int
    metric: str
    step: int
    where: str
    level: float
    theirs: float
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds of a rule, by their names in ``rank-apart``."""

    least: float
    floor: float
    spreads: float
    blocks: int
    block: int
    rest: float
    fewest: int


def _apart(both: Beside, rank: int, at: int, levels: tuple[float, float], share: float = 0.0) -> Apart:
    step = int(both.steps[at])
    where = both.first.where(step)
    level, theirs = levels
    return Apart(rank=rank, metric=both.name, step=step, where=where, level=level, theirs=theirs, share=share)


def turned_nonfinite(both: Beside, points: int) -> Iterator[Apart]:
    """The ranks whose last ``points`` values are not finite, while those of others at the same steps are."""
    for row, rank in enumerate(both.numbers):
        at = np.flatnonzero(both.logged[row])
        theirs = both.median_of_others(row)[at]
        bad = np.isfinite(theirs) & ~np.isfinite(both.values[row, at])
        first = lasts_from(bad)
        if len(bad) - first >= points:
            yield _apart(both, rank, int(at[first]), (float("nan"), float(theirs[first])))


def stopped(both: Beside, share: float, points: int) -> Iterator[Apart]:
    """The ranks whose last value came long before the end of the others."""
    for row, rank in enumerate(both.numbers):
        at = np.flatnonzero(both.logged[row])
        theirs = np.delete(both.logged, row, axis=0)
        end = int(median([np.flatnonzero(one)[-1] for one in theirs]))
        others = np.asarray(theirs[:, : end + 1].any(axis=0))
        last = min(int(at[-1]), end)
        missed = int(others[last + 1 :].sum())
        usual = len(at) / max(1, int(others[: last + 1].sum()))  # it may log less often than they do
        if missed * usual >= points and missed >= share * int(others.sum()):
            level, now = float(both.values[row, last]), float(both.median[end])
            yield _apart(both, rank, last, (level, now), missed / int(others.sum()))


def left(both: Beside, limits: Limits) -> Iterator[Apart]:
    """The ranks whose curve is clearly outside of the others for the rest of the run."""
    for row, rank in enumerate(both.numbers):
        own, others = both.values[row], np.delete(both.values, row, axis=0)
        centre = both.median_of_others(row)
        at = np.flatnonzero(np.isfinite(own) & np.isfinite(centre))
        if len(at) < limits.block * limits.fewest:
            continue
        found = _left_at(own[at], others[:, at], centre[at], limits)
        if found is not None:
            first, block, level, theirs, share = found
            yield _apart(both, rank, int(at[max(0, first - block + 1)]), (level, theirs), share)


def _left_at(
    own: FloatArray, others: FloatArray, centre: FloatArray, limits: Limits
) -> tuple[int, int, float, float, float] | None:
    """The last point of the first block of the stretch, to the end, in which the rank is outside; the size of a
    block; its level over the stretch, theirs, and how far apart these are over the scale.
    """
    ends, size = _blocks(len(own), limits)
    apart = own - centre
    distance, theirs = _medians(apart, ends, size), _medians(centre, ends, size)
    errors = np.array([_error(apart, end, size) for end in ends])
    is_out = (np.abs(distance) > LIKELY * errors) & (np.sign(distance) == np.sign(distance[-1]))
    first = lasts_from(is_out)
    rest = slice(first, None)
    count = len(is_out) - first
    if count < max(limits.fewest, limits.rest * len(is_out)):
        return None
    # Block by block noise may hide it; all together must be sure.
    level, spread = abs(median(distance[rest])), median(_spread(others, centre, ends, size)[rest])
    scale = abs(median(theirs[rest])) + limits.floor * float(np.ptp(theirs))
    error = median_error(median(errors[rest]), count)
    if level <= max(limits.spreads * spread, SURELY * error, limits.least * scale):
        return None
    mine = _medians(own, ends, size)[rest]
    return int(ends[first]), size, median(mine), median(theirs[rest]), level / scale


def _blocks(points: int, limits: Limits) -> tuple[IntArray, int]:
    """The last points of the blocks, aligned to the end, and their size."""
    size = max(limits.block, points // limits.blocks)
    count = points // size
    return np.arange(points - (count - 1) * size - 1, points, size), size


def _medians(values: FloatArray, ends: IntArray, size: int) -> FloatArray:
    return np.array([median(values[end - size + 1 : end + 1]) for end in ends])


def _error(apart: FloatArray, end: int, size: int) -> float:
    """The standard error of a block's distance, by the noise of it and the blocks next to it."""
    near = apart[max(0, end - 2 * size + 1) : end + size + 1]
    return median_error(local_noise(near), size)


def _spread(others: FloatArray, centre: FloatArray, ends: IntArray, size: int) -> FloatArray:
    """How far the others are from their own middle, at each block: of one alone that is not known."""
    rows = [_medians(np.where(np.isfinite(one), one, centre) - centre, ends, size) for one in others]
    return np.asarray(np.max(np.abs(rows), axis=0))
