"""On which axis two runs are put over each other: by step, by epoch, or by the share of their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Series, StepUnit, planned_epochs, planned_steps
from tracker_health.judge.compare.side import Side
from tracker_health.text import number, percent

_ABOUT = 0.1
_UNSAID = frozenset((StepUnit.UNKNOWN, StepUnit.LOG_CALL, None))
_AS_LONG = 1.25  # times: runs of about the same length are compared by their steps


class By(StrEnum):
    """What the places of two runs have in common."""

    STEP = "step"
    EPOCH = "epoch"
    PLAN = "share of the plan"


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """``by``: the axis. ``why``: why it is that one, empty for steps of runs of one length. ``sure``: whether the same
    place is known to be as far into both trainings.
    """

    by: By
    why: str = ""
    sure: bool = True

    def positions(self, series: Series, evidence: Evidence) -> FloatArray:
        """Where the points of a series are.

        Args:
            series: A series of the run.
            evidence: The run.

        Returns:
            float64[n] on this axis.
        """
        steps = series.steps.astype(np.float64)
        if self.by is By.STEP:
            return steps
        length = length_of(evidence) if self.by is By.PLAN else None
        if self.by is By.PLAN:
            own = length if series.step_unit is not StepUnit.EPOCH else _planned_epochs(evidence)
            return steps / (own or length or 1.0)
        return steps if series.step_unit is StepUnit.EPOCH else _in_epochs(steps, evidence)

    def place(self, position: float, series: Series, evidence: Evidence) -> str:
        """A place on this axis in words of one of the runs: its own step, with the axis next to it.

        Args:
            position: On this axis.
            series: Of the run.
            evidence: The run.

        Returns:
            ``step 620``, ``epoch 3.1 (step 620)``, ``31 % of the plan (step 620)``.
        """
        at = self.positions(series, evidence)
        own = series.place(int(series.steps[min(int(np.searchsorted(at, position)), len(at) - 1)]))
        if self.by is By.STEP or (self.by is By.EPOCH and series.step_unit is StepUnit.EPOCH):
            return own
        return f"{self.shown(position)} ({own})"

    def shown(self, position: float) -> str:
        """A place in words of the axis alone."""
        if self.by is By.PLAN:
            return f"{percent(position)} of the plan"
        return f"{self.by} {number(position)}"


def length_of(evidence: Evidence) -> float | None:
    """The steps of a run's plan, on the axis of its main curve; None where no plan is known."""
    progress, series = evidence.progress, main_series(evidence)
    if series is None:
        return None
    last = float(series.steps.max())
    if progress is not None and progress.fraction > 0:
        return last / min(1.0, progress.fraction)
    # What its steps count is not known, but a plan of as many is hardly a coincidence.
    params = evidence.info.params
    plans = [one for one in (planned_steps(params), planned_epochs(params)) if one is not None]
    return last if any(abs(last / one - 1.0) <= _ABOUT for one in plans) else None


def came_to_its_plan(evidence: Evidence) -> bool:
    """Whether a run's last step is that of its plan, by what its steps count, or as many as the params plan."""
    progress = evidence.progress
    if progress is not None:
        return progress.fraction >= 1.0
    series, params = main_series(evidence), evidence.info.params
    last = 0 if series is None else int(series.steps.max())
    plans = [one for one in (planned_steps(params), planned_epochs(params)) if one is not None]
    return any(last in (one, one - 1) for one in plans)  # counted from 1, or from 0


def main_series(evidence: Evidence) -> Series | None:
    """The series by which a run's length is known: its longest one."""
    return max((one.clean() for one in evidence.by_role.values()), key=len, default=None)


def aligned(sides: Sequence[Side]) -> Alignment:
    """The axis for some runs.

    Args:
        sides: Two runs or more.

    Returns:
        Steps, where the runs are planned to be as long, and count alike; else epochs, where all count them; else shares
        of the plan; and steps, where nothing else is known.
    """
    runs = [one.evidence for one in sides]
    plans = [length_of(one) for one in runs]
    lasts = [float(series.steps.max()) if (series := main_series(one)) is not None else 0.0 for one in runs]
    known = [one for one in plans if one]
    lengths = known if len(known) == len(runs) else lasts
    alike = len({_unit(one) for one in runs} - _UNSAID) <= 1
    if alike and max(lengths) <= _AS_LONG * min(lengths):
        return Alignment(by=By.STEP)
    if all(map(_counts_epochs, runs)):
        return Alignment(by=By.EPOCH, why="their epochs have unlike numbers of steps, or they are not as long")
    if alike and _same_rates(runs):
        return Alignment(by=By.STEP, why="they are not as long, and their learning rates are the same at each step")
    if len(known) == len(runs):
        why = f"their plans are not as long ({' and '.join(number(round(one)) for one in known)} steps)"
        return Alignment(by=By.PLAN, why=why)
    return Alignment(by=By.STEP, why="they are not as long, and not every plan is known", sure=False)


def _same_rates(runs: Sequence[Evidence]) -> bool:
    """Whether all log one learning rate, which is the same at each step that they share: their plans are then no
    reason to stretch one of them.
    """
    rates = [one.rates_logged for one in runs]
    if any(len(one) != 1 for one in rates):
        return False
    first, *others = (one[0] for one in rates)
    return all(_agree(first, other) for other in others)


def _agree(one: Series, other: Series) -> bool:
    shared = one.steps <= other.steps.max()
    if not shared.any() or not len(other):
        return False
    there = np.interp(one.steps[shared], other.steps.astype(np.float64), other.values)
    return bool(np.allclose(one.values[shared], there, rtol=_ABOUT))


def _unit(evidence: Evidence) -> StepUnit | None:
    series = main_series(evidence)
    return None if series is None else series.step_unit


def _planned_epochs(evidence: Evidence) -> float | None:
    return planned_epochs(evidence.info.params)


def _counts_epochs(evidence: Evidence) -> bool:
    if _unit(evidence) is StepUnit.EPOCH:
        return True
    logged = evidence.find("epoch")
    return logged is not None and len(logged.finite()) > 1


def _in_epochs(steps: FloatArray, evidence: Evidence) -> FloatArray:
    """Steps as epochs, by the logged ones."""
    logged = evidence.find("epoch")
    if logged is None:
        return steps
    known = logged.clean().finite()
    order = np.argsort(known.steps, kind="stable")
    return np.interp(steps, known.steps[order].astype(np.float64), known.values[order])
