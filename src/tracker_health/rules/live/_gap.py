"""What the rules on gradients, activations and parameters share: a tensor's statistics over a run, and its levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.words.gap_names import parsed

STATISTICS = ("max", "mean", "var")


@dataclass(frozen=True, eq=False)
class Track:
    """One tensor's statistics at the steps at which all three were measured, in the order of the steps.

    ``name``: of the module or parameter. ``steps``: int64[n]; ``maximum`` (of absolute values), ``mean`` and
    ``variance``: float64[n].
    """

    name: str
    steps: IntArray
    maximum: FloatArray
    mean: FloatArray
    variance: FloatArray

    @cached_property
    def rms(self) -> FloatArray:
        """The root mean square: of activations the least it can be, by their averages."""
        return np.sqrt(np.maximum(self.variance, 0.0) + self.mean**2)

    def lasts(self, condition: npt.NDArray[np.bool_]) -> bool:
        """Whether something holds at every measured step of the second half."""
        return bool(condition[len(self.steps) // 2 :].all())


def need(*kinds: str, min_points: int) -> Need:
    """The need for statistics of one of these kinds."""
    first, *others = (f"gap_{kind}" for kind in kinds)
    return Need(role=first, any_of=tuple(others), min_points=min_points)


def measures(evidence: Evidence, kind: str) -> Iterator[tuple[str, str, Series]]:
    """Name, statistic and cleaned series of everything of a kind."""
    for series in evidence.series:
        found = parsed(series.name) if series.role == f"gap_{kind}" else None
        if found is not None and found[0] == kind:
            yield found[1], found[2], series.clean()


def tracks(evidence: Evidence, kind: str, min_points: int) -> list[Track]:
    """Every tensor of a kind with enough points, in the order in which they were logged."""
    found: dict[str, dict[str, Series]] = {}
    for name, statistic, series in measures(evidence, kind):
        known = found.setdefault(name, {})
        if statistic not in known or len(series) > len(known[statistic]):
            known[statistic] = series
    every = [_track(name, known) for name, known in found.items() if known.keys() >= set(STATISTICS)]
    return [one for one in every if len(one.steps) >= min_points]


def _track(name: str, known: dict[str, Series]) -> Track:
    steps = reduce(np.intersect1d, (known[one].steps for one in STATISTICS))
    values = [known[one].values[np.searchsorted(known[one].steps, steps)] for one in STATISTICS]
    finite = np.isfinite(values).all(axis=0)
    return Track(name, steps[finite], *(one[finite] for one in values))


def first_and_last(values: FloatArray, few: int) -> tuple[float, float]:
    """The medians of the first so many values and of the last so many."""
    return median(values[:few]), median(values[-few:])
