"""What the steps of a run's metrics count, where its owner did not count optimizer steps with all of them.

A step is whatever a training gives MLflow with a metric: tokens with the loss, say, and the number of the epoch with
what was measured on held-out samples. The times tell how the one goes with the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Axis, FloatArray, IntArray, Series, planned_epochs
from tracker_health.readers.log_formats.names import AMOUNT, axis_of

_FEWEST = 3  # points that show how two counts go together
_LEAST_COUNT = 100  # a lower number may be a step's by chance
_OTHER = 2.0  # times as many by one count as by the other
_STRAIGHT = 0.1  # of the span: how far a point may be from a fixed share between the two
_ABOUT = 1.0  # epochs: the first may be 0 or 1


class Count(NamedTuple):
    """The last point of a metric that counts something."""

    name: str
    step: int
    value: float


def on_own_axes(series: Sequence[Series], counts: Iterable[Count], params: Mapping[str, str]) -> list[Series]:
    """The histories on one axis, that of the longest of them, each with what its owner counts with it. ``counts``: the
    metrics of the run whose names say that they count something (``is_count``).
    """
    timed = [one for one in series if one.times is not None and len(one) >= _FEWEST]
    if not timed:
        return list(series)
    leading = max(timed, key=lambda one: (one.role == "train_loss", len(one)))
    word = _counted_in(counts, int(leading.steps.max()))
    placed = [_beside(one, leading, params) for one in series]
    return [replace(one, step_word=word) if word and _counts_as(one, leading) else one for one in placed]


def _counts_as(series: Series, leading: Series) -> bool:
    """Whether the steps of a history count what those of another one do, by how far they go."""
    if series.axis is not None or not len(series):
        return series.axis is not None
    goes_as_far = _OTHER * series.steps.max() >= leading.steps.max()
    return bool(goes_as_far or np.isin(series.steps, leading.steps).all())


def is_count(name: str) -> bool:
    """Whether a metric of this name counts samples, tokens or the like."""
    axis = axis_of(name)
    return axis is not None and axis.kind == AMOUNT


def _counted_in(counts: Iterable[Count], last: int) -> str:
    """What the steps count, by a metric that was logged with its own number as the step: samples, tokens or the like;
    empty where none was.
    """
    names = [one.name for one in counts if _LEAST_COUNT <= one.step == one.value and last / 2 <= one.step <= 2 * last]
    return min(names, default="")


def _beside(series: Series, leading: Series, params: Mapping[str, str]) -> Series:
    """A history at the steps of another, where the two count different things: by when its points came."""
    if series is leading or series.times is None or leading.times is None or len(series) < _FEWEST:
        return series
    at = _steps_at(series.times, leading)
    own = series.steps.astype(np.float64)
    if at is None or not _counts_otherwise(own, at, leading.steps):
        return series
    axis = Axis.of(_called(own, params), at, own)
    return series if axis is None else replace(series, steps=at, axis=axis, step_unit=leading.step_unit)


def _steps_at(times: FloatArray, leading: Series) -> IntArray | None:
    """The steps that a training had come to at these times, of which the first may be before it began; None where it
    was not under way at them, or its clock does not tell its points apart.
    """
    known = leading.times
    if known is None or (np.diff(leading.steps) <= 0).any() or (np.diff(known) < 0).any() or known[0] == known[-1]:
        return None
    if times[1] < known[0] or len(np.unique(times)) < len(times) or (np.diff(times) < 0).any():
        return None
    places = np.searchsorted(known, times, side="right") - 1
    return leading.steps[np.maximum(places, 0)]


def _counts_otherwise(own: FloatArray, at: IntArray, all_steps: IntArray) -> bool:
    """Whether one count is a fixed and quite another share of the other one, all along, from the beginning on. What
    goes as far as all steps of the training counts those, whenever it was logged; and two points at one step would be
    one.
    """
    spans = float(np.ptp(own)), float(np.ptp(at))
    if min(spans) <= 0 or (np.diff(own) <= 0).any() or (np.diff(at) <= 0).any():
        return False
    if any(max(spans[0], one) < _OTHER * min(spans[0], one) for one in (spans[1], float(np.ptp(all_steps)))):
        return False
    share = spans[1] / spans[0]
    expected = at[0] + (own - own[0]) * share
    begun, far = float(at[0] - own[0] * share), share * _ABOUT + _STRAIGHT * float(np.ptp(all_steps))
    began_together = min(abs(begun), abs(begun - all_steps[0])) <= far
    return began_together and bool((np.abs(expected - at) <= _STRAIGHT * spans[1]).all())


def _called(own: FloatArray, params: Mapping[str, str]) -> str:
    """What a count of its own is called: epochs where it comes to as many as were planned."""
    planned = planned_epochs(params)
    return "epoch" if planned is not None and abs(own[-1] - planned) <= _ABOUT else "its step"
