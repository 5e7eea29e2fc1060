"""How far a training loss came, on the whole and since a checkpoint."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import Evidence, FloatArray
from tracker_health.evidence.numerics import local_noise, median, median_error, start_level
from tracker_health.text import without_numbers

_FEWEST_POINTS = 8
_SURE = 3.0  # standard errors
_NEARLY = 0.05
_LITTLE = 0.9
_COUNT = re.compile(r"\d{1,18}")
_NO_COUNT = re.compile(r"-v\d+(?=\.)|(?<!\d)\d++\.\d++")  # a second file of the same step; a measured value


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How far a training loss came.

    ``share``: from its start to the median of the last quarter, over the size of the start. ``lost``: how much of the
    way down to its best level it has lost again, from 0 to 1 or more. ``sure``: the fall is beyond three standard
    errors of those levels. ``at_once``: the descent was nearly complete at the third point, or within a hundredth of
    the run. Of what was left then, less than a tenth was learnt. Such a loss only recovers from what the first steps
    did to it.
    """

    share: float
    lost: float
    sure: bool
    at_once: bool


def descent(evidence: Evidence) -> Descent | None:
    """How far the training loss came; None where there is none, or too little of it to tell."""
    loss = evidence.find("train_loss")
    return descent_of(loss.finite().values if loss is not None else np.empty(0))


def descent_of(values: FloatArray) -> Descent | None:
    """How far the values of a loss came, none of which is NaN; None where they are too few to tell."""
    if len(values) < _FEWEST_POINTS:
        return None
    noise = local_noise(values)
    start = start_level(values, max(1, min(3, len(values) // 10)), noise)
    levels = [median(part) for part in np.array_split(values, min(16, len(values) // 2))]
    quarter = max(2, len(values) // 4)
    end = median(values[-quarter:])
    best = min(*levels, end)
    with np.errstate(all="ignore"):
        share = float(np.float64(start - end) / np.abs(start)) if start != 0 else 0.0
        lost = float((end - best) / (start - best)) if start > best else 1.0
    error = float(np.hypot(median_error(noise, 1), median_error(noise, quarter)))
    return Descent(share=share, lost=lost, sure=start - end > _SURE * error, at_once=_at_once(values, end))


def _at_once(values: FloatArray, end: float) -> bool:
    """Whether the loss came down within its first points, and barely any further."""
    n = len(values)
    first = max(3, n // 100)
    early = median(values[first : first + max(3, n // 10)])
    return bool(early <= end + _NEARLY * (values[0] - end) and end >= _LITTLE * early)


def share_before(first: str, last: str) -> float | None:
    """The share of the steps to the later of two checkpoints that the earlier one had done, or more, by their names;
    None where these are not distinguished by a count, as copies are.
    """
    if without_numbers(first) != without_numbers(last):
        return None
    counted = zip(_counted(first), _counted(last), strict=False)
    return max(((before + 1) / (after + 1) for before, after in counted if before < after), default=None)


def _counted(path: str) -> list[int]:
    return [int(digits) for digits in _COUNT.findall(_NO_COUNT.sub("", path))]


def fell_since(evidence: Evidence, share: float) -> bool | None:
    """Whether the training loss clearly fell after this share of its steps; None where there is no loss."""
    loss = evidence.find("train_loss")
    if loss is None or not len(finite := loss.finite()):
        return None
    begin, end = float(finite.steps.min()), float(finite.steps.max())
    later = descent_of(finite.values[finite.steps >= begin + share * (end - begin)])
    return later is not None and later.sure
