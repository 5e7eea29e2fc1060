"""Whether two histories of one metric agree: those of two logs, or a tracker's and a log's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray, Series, StepUnit
from tracker_health.roles import normal_form
from tracker_health.text import contrast, printable


def disagreements(tracked: Iterable[Series], printed: Iterable[Series]) -> Iterator[str]:
    """Where a tracker's histories differ from those that a run printed, in words; the former are judged."""
    judged = {canonical(series.name): series for series in tracked}
    for other in printed:
        mine = judged.get(canonical(other.name))
        if mine is not None and mine.role == other.role and comparable(mine, other):
            odd = difference(mine, other, precise=False)
            if odd:
                yield f"log integrity: {odd}"


def canonical(name: str) -> str:
    """The metric's name without what only some loggers put before it: ``train/loss`` is ``loss``."""
    return "/".join(word for word in normal_form(name).split("/") if word not in ("train", "training"))


_FEWEST = 2  # common steps: a mean over the run that is logged once at its end is no history
_OF_ANOTHER_AXIS = (StepUnit.EPOCH, StepUnit.LOG_CALL)


def comparable(one: Series, other: Series) -> bool:
    """Whether the steps of both count the same."""
    if one.step_unit is other.step_unit:
        return True
    return one.step_unit not in _OF_ANOTHER_AXIS and other.step_unit not in _OF_ANOTHER_AXIS


def difference(judged: Series, other: Series, *, precise: bool) -> str:
    """Where two histories of one metric differ, in words; "" where they agree."""
    mine, theirs = judged.clean(), other.clean()
    _, here, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
    differs = ~agree(mine.values[here], theirs.values[there], precise=precise)
    if not differs.any() or len(here) < _FEWEST:
        return ""
    first = int(np.flatnonzero(differs)[0])
    values = " against ".join(contrast(float(mine.values[here][first]), float(theirs.values[there][first])))
    return printable(
        f"{judged.name} in {judged.source} and {other.name} in {other.source} differ at {differs.sum()} of {len(here)} "
        f"common steps, first at {mine.place(mine.steps[here][first])} ({values}); the former is judged",
        400,
    )


def agree(one: FloatArray, other: FloatArray, *, precise: bool) -> npt.NDArray[np.bool_]:
    """Which values are the same, up to what is lost in writing them: single precision, or a few digits for people."""
    tolerance = 1e-6 if precise else 0.0
    allowed = np.zeros(len(one)) if precise else np.maximum(_last_digit(one), _last_digit(other)) * np.ones(len(one))
    with np.errstate(all="ignore"):
        close = np.abs(one - other) <= allowed + tolerance * np.maximum(np.abs(one), np.abs(other))
    finite = np.isfinite(one) & np.isfinite(other)  # a share of infinity allows anything
    same: npt.NDArray[np.bool_] = (close & finite) | (one == other) | (np.isnan(one) & np.isnan(other))
    return same


def _last_digit(values: FloatArray) -> float | FloatArray:
    """A little more than half of the last digit that values were written with; of an exponent's, by their size."""
    finite = values[np.isfinite(values)]
    for digits in range(7):
        if np.array_equal(np.round(finite, digits), finite):
            return float(0.51 * 10.0**-digits)
    return np.where(np.isfinite(values), 0.01 * np.abs(values), 0.0)
