"""A metric's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.axis import Axis
from tracker_health.text import listing, steps_in_words

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_SHORTEST_PASS, _SAME = 8, 3
_SHOWN = 3  # places of many


class StepUnit(StrEnum):
    """What one unit of a series' step axis is."""

    OPTIMIZER_STEP = "optimizer_step"
    EPOCH = "epoch"
    LOG_CALL = "log_call"
    UNKNOWN = "unknown"


_UNIT_WORDS: Mapping[str, str] = {StepUnit.EPOCH: "epoch", StepUnit.LOG_CALL: "row"}


def place_of(step: float, unit: StepUnit) -> str:
    """``step 620``, or ``epoch 12``, in words.

    Args:
        step: On a step axis.
        unit: What that axis counts.

    Returns:
        The word and the number.
    """
    return f"{_UNIT_WORDS.get(unit, 'step')} {step:.0f}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One metric's history in stored order.

    ``steps``: int64[n]; ``values``: float64[n], non-finite kept; ``times``: float64[n] in seconds since 1970 (UTC),
    or None where the source has none. ``source`` says where it was read (a file name, or the tracker). ``guessed``: its
    role is no more than likely, by its name; ``understood``: what the name was taken for, and why, in words.

    ``axis``: what its owner plots it by; None where that is ``steps``. ``step_word``: what its tracker calls those,
    where it has a word of its own.
    """

    name: str
    steps: IntArray
    values: FloatArray
    times: FloatArray | None = None
    role: str | None = None
    guessed: bool = False
    understood: str = ""
    source: str = ""
    step_unit: StepUnit = StepUnit.UNKNOWN
    axis: Axis | None = None
    step_word: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def place(self, step: float) -> str:
        """A place in this history, by the axis that its owner plots it by: ``step 620``, ``samples 81920``.

        Args:
            step: As in ``steps``.

        Returns:
            The axis and the number, in words.
        """
        return self._counted(step) if self.axis is None else self.axis.place(step)

    def where(self, step: float) -> str:
        """The same with the tracker's own step next to it: ``samples 81920 (step 640)``.

        Args:
            step: As in ``steps``.

        Returns:
            Both in words, or one where they are the same.
        """
        return self.place(step) if self.axis is None else f"{self.place(step)} ({self._counted(step)})"

    def place_before(self, step: float, other: float) -> str:
        """A place next to a later one: with the tracker's own step where the owner's count does not tell them apart.

        Args:
            step: As in ``steps``.
            other: The later one.

        Returns:
            The place in words.
        """
        return self.where(step) if self.place(step) == self.place(other) else self.place(step)

    def places(self, steps: IntArray) -> str:
        """Several places in words: ``steps 5 and 17``; of many the first few, and how many more there are.

        Args:
            steps: int64[k], one or more.

        Returns:
            The words.
        """
        if self.axis is None:
            return steps_in_words(steps.tolist())
        if len(steps) == 1:
            return self.where(int(steps[0]))
        return listing([self.place(step) for step in steps.tolist()], _SHOWN)

    def _counted(self, step: float) -> str:
        return f"{self.step_word} {step:.0f}" if self.step_word else place_of(step, self.step_unit)

    @property
    def nonfinite(self) -> int:
        """How many values are NaN or infinite."""
        return int(np.count_nonzero(~np.isfinite(self.values)))

    @cached_property
    def _arrival(self) -> IntArray:
        """Indices in the order in which the points came: by time where there are times, else as stored."""
        return np.arange(len(self)) if self.times is None else np.argsort(self.times, kind="stable")

    @cached_property
    def summaries(self) -> int:
        """How many of the last points to arrive went back to the very first step and led nowhere.

        A summary logged after training without a step lands at the tracker's default step 0, on top of the first point.
        """
        if not len(self):
            return 0
        elsewhere = np.flatnonzero(self.steps[self._arrival] != self.steps.min())
        return len(self) - 1 - int(elsewhere[-1]) if len(elsewhere) else 0

    @cached_property
    def _passes(self) -> IntArray:
        """Where in the order of arrival the step counter went back for a pass that ends before an earlier one does: the
        beginnings of the passes after the first. Empty where the last pass has written over all that came after its
        beginning, and where the points are just in disorder.
        """
        steps = self.steps[self._arrival[: len(self) - self.summaries]]
        back = np.flatnonzero(steps[1:] < steps[:-1]) + 1
        lengths = np.diff(back, prepend=0, append=len(steps))
        if not len(back) or lengths.min() < self._shortest(back, int(lengths[0])):
            return back[:0]
        last = back[-1]
        return back if steps[last:].max() < steps[:last].max() else back[:0]

    def _shortest(self, back: IntArray, first: int) -> int:
        """Of how many points a pass is one, and no disorder. Fewer are enough where all begin with the very same steps,
        and are at least half as long as the ``first``.
        """
        steps = self.steps[self._arrival]
        same = all(np.array_equal(steps[at : at + _SAME], steps[:_SAME]) for at in back)
        return min(max(_SAME, first // 2), _SHORTEST_PASS) if same else _SHORTEST_PASS

    @cached_property
    def superseded(self) -> int:
        """How many of the first points to arrive belong to a run that another one, into the same history, came after.

        It began at the first step again and ended before the earlier one did: what that has behind this end is not
        its continuation.
        """
        if not len(self._passes):
            return 0
        steps = self.steps[self._arrival].astype(np.float64)
        rhythm = float(np.median(np.diff(steps[: self._passes[0]])))
        last = int(self._passes[-1])
        return last if steps[last] <= steps[0] + rhythm else 0

    @property
    def went_back(self) -> bool:
        """Whether the history mixes two passes: the steps went back to the middle, and did not come as far again."""
        return bool(len(self._passes)) and not self.superseded

    @cached_property
    def _cleaned(self) -> Series:
        arrival = self._arrival[self.superseded : len(self) - self.summaries]
        by_step = arrival[np.argsort(self.steps[arrival], kind="stable")]
        sorted_steps = self.steps[by_step]
        newest = by_step[np.append(sorted_steps[1:] != sorted_steps[:-1], True)] if len(by_step) else by_step
        return self.at(newest)

    def clean(self) -> Series:
        """Sorted by step; of a repeated step the newest value stays (by time where there are times, else by order).

        Non-finite values are kept: a rule that wants finite ones says so. Summaries are left out, and so is a run that
        another one came after: see ``summaries`` and ``superseded``.

        Returns:
            The same series with fewer points, in ascending order of their steps.
        """
        return self._cleaned

    def finite(self) -> Series:
        """The cleaned series without its NaN and infinite values.

        Returns:
            The same series with fewer points, in ascending order of their steps.
        """
        clean = self.clean()
        return clean.at(np.flatnonzero(np.isfinite(clean.values)))

    def at(self, indices: IntArray) -> Series:
        """The points at these indices, in their order.

        Args:
            indices: int64[k], each from 0 to n - 1.

        Returns:
            A series of k points.
        """
        return replace(
            self,
            steps=self.steps[indices],
            values=self.values[indices],
            times=None if self.times is None else self.times[indices],
        )
