"""Which checkpoint a run that went wrong can go on from: the newest from before, without NaN. Decides; reads nothing.

1. The findings say where the run went wrong (``onset_of``), each in its own rule. A cause that was there from the first
   step leaves nothing to go back to.
2. Every checkpoint that a store lists gets a place on the step axis of that finding: by what it says of itself, else by
   its name, as far as that is sure.
3. The newest one from before is looked into, and where it holds NaN the next older one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tracker_health.diagnosis import Facts, cause_named
from tracker_health.evidence import Evidence, FloatArray, IntArray, Series, StepUnit
from tracker_health.report.result import Report, earliest_onset
from tracker_health.report.resume_point import OF_STEPS, Counted, Onset, Rewind, Saved, Shelf
from tracker_health.words.verdict import Verdict

MOST_LOOKED_AT = 3
"""Checkpoints that are read for NaN."""
_MOST_ASKED = 12  # checkpoints that are asked for their step, a small read each
_BEYOND = 0.1  # of the axis: the last checkpoint may have been saved behind the last point of the log
_OTHER_UNIT = 20  # times as many steps on the axis as in the newest checkpoint: it counts samples or tokens


def onset_of(report: Report, evidence: Evidence) -> Onset | None:
    """Where a run went wrong; None where it did not, or where no earlier checkpoint would be any better.

    The cause may know when it set in; else the findings say it that it explains, else all of them.
    """
    if report.verdict not in (Verdict.WARN, Verdict.FAIL):
        return None
    cause = cause_named(report.diagnosis.cause) if report.diagnosis is not None else None
    if cause is not None and cause.from_the_start:
        return None
    with np.errstate(all="ignore"):
        set_in = cause.set_in(Facts(evidence, report.results)) if cause is not None else None
    return set_in or earliest_onset(report.explained) or earliest_onset(report.findings)


def rewind_of(report: Report, evidence: Evidence, shelf: Shelf) -> Rewind | None:
    """The checkpoint to go back to, or that there is none; None where nothing can be said.

    ``shelf`` is asked for nothing unless the run went wrong somewhere. At most ``MOST_LOOKED_AT`` checkpoints are read.
    """
    onset = onset_of(report, evidence)
    if onset is None or not shelf.listed:
        return None
    return _Search(onset, StepAxis.of(evidence, onset.unit), shelf).found()


@dataclass(frozen=True)
class StepAxis:
    """The step axis on which a run went wrong. ``first``, ``last``: of the run; ``beyond``: how far a checkpoint may
    are behind the last point. ``epochs``, ``counter``: at which epoch and optimizer step it was, at each of some steps.
    """

    unit: StepUnit
    first: int = 0
    last: int = 0
    beyond: float = 0.0
    epochs: Series | None = None
    counter: Series | None = None

    @classmethod
    def of(cls, evidence: Evidence, unit: StepUnit) -> StepAxis:
        """The axis of the run's series that count in this unit."""
        alike = [one for one in evidence.of_training if one.step_unit is unit and len(one)]
        alike = alike or [one for one in evidence.of_training if {one.step_unit, unit} <= OF_STEPS and len(one)]
        if not alike:
            return cls(unit)
        beside = {one.role: one.finite() for one in alike if one.role in ("epoch", "global_step") and len(one.finite())}
        last, steps = max(int(one.steps.max()) for one in alike), max(alike, key=len).clean().steps
        apart = float(np.median(np.diff(steps))) if len(steps) > 1 else 0.0
        return cls(
            unit=unit,
            first=min(int(one.steps.min()) for one in alike),
            last=last,
            beyond=max(apart, _BEYOND * last),
            epochs=beside.get("epoch"),
            counter=beside.get("global_step"),
        )

    def at_value(self, series: Series | None, most: float) -> int | None:
        """The last step at which a series that rises has no more than ``most``; None where it has more throughout."""
        if series is None:
            return None
        below: IntArray = np.flatnonzero(series.values <= most)
        return int(series.steps[below[-1]]) if len(below) else None

    def at_epoch(self, epoch: int) -> int | None:
        """The last step of an epoch, or earlier: where the log counts shares of epochs, a checkpoint's number may be
        that of an epoch that began with 0.
        """
        if self.epochs is None:
            return None
        values: FloatArray = self.epochs.values
        in_shares = bool((values != np.floor(values)).any())
        later = self.at_value(self.epochs, epoch + 1.0 if in_shares else epoch)
        return self.last if later is None and values.min() > epoch else later

    def fits(self, numbers: Iterable[int]) -> bool:
        """Whether checkpoints with these numbers may have been saved along the axis: they go on to its end as they
        began, and no further.
        """
        known = sorted({0, *numbers})
        gap = max((later - earlier for earlier, later in pairwise(known)), default=0)
        return 0 < known[-1] <= self.last + self.beyond and self.last - known[-1] <= 2 * gap


class _Search:
    """A search for one onset on one axis."""

    def __init__(self, onset: Onset, axis: StepAxis, shelf: Shelf) -> None:
        self._onset, self._axis, self._shelf = onset, axis, shelf
        self._inside: dict[str, Counted] = {}
        self._asked = 0

    def found(self) -> Rewind | None:
        listed = list(self._shelf.listed)
        places = {one.key: self._place(one.counted) for one in listed}
        unknown = [one for one in listed if places[one.key] is None]
        for one in sorted(unknown, key=lambda one: one.modified or 0.0, reverse=True)[: _MOST_ASKED // 2]:
            places[one.key] = self._place(self._counted(one))
        placed = [(place, one) for one in listed if (place := places[one.key]) is not None]
        return self._newest(placed) if placed else None

    def _newest(self, placed: list[tuple[int, Saved]]) -> Rewind | None:
        before = [(place, one) for place, one in placed if place <= self._onset.last_good]
        over: list[str] = []
        broken: Rewind | None = None
        for _, one in sorted(before, key=lambda pair: (pair[0], pair[1].modified or 0.0), reverse=True):
            if len(over) >= MOST_LOOKED_AT:
                break
            if self._asked >= _MOST_ASKED:
                return None  # there may be one, and it was not found
            counted = self._counted(one).over(one.counted)
            place = self._place(counted)
            if place is None or place > self._onset.last_good:
                continue
            look = self._shelf.look(one)
            if look.is_none:
                continue
            found = Rewind(
                before=self._onset,
                path=one.path,
                step=_step_of(counted, self._axis),
                epoch=counted.epoch,
                checked=look.said,
                passed_over=tuple(over),
            )
            if not (look.nonfinite or look.is_broken):
                return found
            broken = broken or (found if look.is_broken else None)
            over.append(f"{one.path} cannot be read" if look.is_broken else f"{one.path} holds NaN")
        too_early = not over and self._is_too_early(placed)
        return broken or Rewind(before=self._onset, passed_over=tuple(over), is_too_early=too_early)

    def _is_too_early(self, placed: list[tuple[int, Saved]]) -> bool:
        """Whether no checkpoint was due yet, by how far apart those are that there are: one alone may be of the end."""
        known = sorted({0, *(place for place, _ in placed)})
        apart = [later - earlier for earlier, later in pairwise(known)]
        return len(apart) > 1 and self._onset.last_good < min(apart)

    def _counted(self, saved: Saved) -> Counted:
        if saved.key not in self._inside:
            self._asked += 1
            self._inside[saved.key] = self._shelf.counted(saved)
        return self._inside[saved.key]

    def _place(self, counted: Counted) -> int | None:
        """Where on the axis a checkpoint was saved; None where that is not sure."""
        axis = self._axis
        if axis.unit is StepUnit.EPOCH:
            return self._epoch_of(counted)
        if axis.unit is StepUnit.LOG_CALL:
            if counted.logged is not None:
                return counted.logged
            at = None if counted.step is None else axis.at_value(axis.counter, counted.step)
            return at if at is not None or counted.epoch is None else axis.at_epoch(counted.epoch)
        if counted.step is not None:
            return counted.step if axis.unit is StepUnit.OPTIMIZER_STEP or self._counts_alike(counted.step) else None
        if counted.number is not None and self._numbers_fit:
            return counted.number
        if counted.epoch is None:
            return None
        if axis.epochs is not None:
            return axis.at_epoch(counted.epoch)
        return self._shifted(counted.epoch) if self._epochs_fit and axis.unit is StepUnit.UNKNOWN else None

    def _epoch_of(self, counted: Counted) -> int | None:
        if counted.epoch is not None:
            return self._shifted(counted.epoch)
        return self._shifted(counted.number) if counted.number is not None and self._numbers_fit else None

    def _shifted(self, epoch: int) -> int:
        """An epoch as the axis counts it: it may begin with 1 where the checkpoints begin with 0."""
        return epoch + 1 if self._begin_with_0 and self._axis.first > 0 else epoch

    @cached_property
    def _begin_with_0(self) -> bool:
        return any(0 in (one.counted.epoch, one.counted.number) for one in self._shelf.listed)

    @cached_property
    def _numbers_fit(self) -> bool:
        return self._axis.fits(self._of("number"))

    @cached_property
    def _epochs_fit(self) -> bool:
        return self._axis.fits(self._of("epoch"))

    def _counts_alike(self, step: int) -> bool:
        """Whether the steps of checkpoints may be those of an axis of which nobody says what it counts."""
        newest = max(step, self._newest_step)
        return newest <= self._axis.last + self._axis.beyond and _OTHER_UNIT * newest >= self._axis.last

    @cached_property
    def _newest_step(self) -> int:
        return max(self._of("step"), default=0)

    def _of(self, name: str) -> list[int]:
        values = (getattr(one.counted, name) for one in self._shelf.listed)
        return [value for value in values if value is not None]


def _step_of(counted: Counted, axis: StepAxis) -> int | None:
    """The step to name: what the checkpoint says, or its number where the axis counts steps."""
    if counted.step is not None:
        return counted.step
    return counted.number if axis.unit in OF_STEPS and counted.epoch is None else None
