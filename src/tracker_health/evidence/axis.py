"""The axis that a run's owner plots a metric by, where that is not the step that the tracker counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.text import number, short_name

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_LEAST_ROUNDED, _LARGEST = 1e3, 1e15


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """What an owner counts: samples, tokens, epochs. ``name``: as it was logged; ``steps``: int64[n], ascending, of the
    tracker; ``values``: float64[n], what the owner's count was there, never falling.
    """

    name: str
    steps: IntArray
    values: FloatArray

    @classmethod
    def of(cls, name: str, steps: IntArray, values: FloatArray) -> Axis | None:
        """The axis with these points, in any order; None where they do not count up, so that a number is no place.

        Args:
            name: Of the metric that counts.
            steps: int64[n], the tracker's.
            values: float64[n], the count at each; those that are not finite are left out.

        Returns:
            The axis, or None.
        """
        known = np.flatnonzero(np.isfinite(values))
        order = known[np.argsort(steps[known], kind="stable")]
        at, counts = steps[order], values[order]
        if len(at) < 2 or (np.diff(counts) < 0).any() or counts[0] == counts[-1]:
            return None
        return cls(name=name, steps=at, values=counts)

    def at(self, step: float) -> float:
        """The count at a step: the last one that was logged by then, or else the first.

        Args:
            step: The tracker's.

        Returns:
            The owner's count.
        """
        place = int(np.searchsorted(self.steps, step, side="right")) - 1
        return float(self.values[max(place, 0)])

    def steps_at(self, values: FloatArray) -> IntArray:
        """The first steps at which the axis had come to these counts.

        Args:
            values: float64[n].

        Returns:
            int64[n]; the last step for what is beyond the end.
        """
        places = np.searchsorted(self.values, values, side="left")
        return self.steps[np.minimum(places, len(self.steps) - 1)]

    def spread(self, steps: npt.NDArray[Any]) -> FloatArray:
        """Where steps are in a picture: of several with the same count the first has it, and the others are between
        that and the next one.

        Args:
            steps: Of the tracker.

        Returns:
            float64 of the same shape, rising where ``steps`` do.
        """
        firsts = np.flatnonzero(np.diff(self.values, prepend=-np.inf))
        at, values = self.steps[firsts].astype(np.float64), self.values[firsts]
        slopes = np.diff(values) / np.maximum(np.diff(at), 1.0)
        before, behind = np.minimum(steps - at[0], 0.0), np.maximum(steps - at[-1], 0.0)
        spread: FloatArray = np.interp(steps, at, values) + before * slopes[0] + behind * slopes[-1]
        return spread

    def place(self, step: float) -> str:
        """``samples 81920``: a place on it in words.

        Args:
            step: The tracker's.

        Returns:
            The name and the count.
        """
        value = self.at(step)
        whole = value == round(value) or abs(value) >= _LEAST_ROUNDED
        shown = f"{value:.0f}" if whole and abs(value) < _LARGEST else number(value)
        return f"{short_name(self.name)} {shown}"
