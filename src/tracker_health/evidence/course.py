"""A loss by the share of its plan, and the band in which healthy runs stayed: what runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tracker_health.evidence.curve import FEWEST_LEVELS, Curve
from tracker_health.evidence.plan import planned_epochs, planned_steps
from tracker_health.evidence.progress import Progress
from tracker_health.evidence.run import RunRef
from tracker_health.evidence.series import FloatArray, Series, StepUnit
from tracker_health.text import number, printable

SHARES = 20
"""Parts of a plan at which levels are compared."""

FEWEST_SHARES = 5
"""Of fewer parts that both reached nothing can be said."""

AS_LONG = 1.25
"""Times as many steps as the longest run of a baseline, at most; and as few as the shortest, at least."""

CHARACTERS = 200
"""Of a param's value that are kept."""

_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a run's loss went. ``metric``: its name. ``length``: the last step of its plan, or of the run where no plan
    is known. ``start`` and ``end``: levels. ``levels``: one for each of the ``SHARES`` parts of the plan, NaN where
    there is none. ``reached``: the last step so far of a run that is still running, None of any other.
    ``unit``: what steps count.
    """

    metric: str
    length: int
    start: float
    end: float
    levels: tuple[float, ...]
    reached: int | None = None
    unit: StepUnit = StepUnit.UNKNOWN

    @classmethod
    def of(cls, curve: Curve | None, progress: Progress | None, *, goes_on: bool = False) -> Course | None:
        """The course of a curve.

        Args:
            curve: Of a loss.
            progress: How far the run came, where its plan is known.
            goes_on: It has not ended: without a plan its share of it is not known.

        Returns:
            The course; None for a curve without parts, or of a share that is not known.
        """
        if curve is None or len(curve.levels) < FEWEST_LEVELS or curve.last_step <= 0 or (goes_on and progress is None):
            return None
        reach = 1.0 if progress is None else min(1.0, progress.fraction)
        if reach <= 0:
            return None
        length = max(1, round(curve.last_step / reach))
        edges = np.concatenate([curve.series.steps[:1], curve.steps]).astype(np.float64)
        centres = (np.arange(SHARES) + 0.5) / SHARES
        levels = np.interp(centres, (edges[1:] + edges[:-1]) / 2 / length, curve.levels)
        there = (centres <= reach + 0.5 / SHARES) & (centres >= edges[0] / length - 1 / SHARES)
        return cls(
            metric=curve.series.name,
            length=length,
            start=curve.start.value,
            end=curve.end.value,
            levels=tuple(np.where(there, levels, np.nan).tolist()),
            reached=curve.last_step if goes_on else None,
            unit=curve.series.step_unit,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sibling:
    """A run that another one is shown next to, where too few were named for a band.

    ``name``: unlike that of the others. ``link``: of its page or its report, empty for none. ``series``: by role, with
    few points, all of them finite. ``settings``: all that are known, by name.
    """

    run: RunRef
    name: str
    verdict: str
    link: str = ""
    series: Mapping[str, Series] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The values that a param had in healthy runs. ``values``: with how many runs had each, the most frequent first.
    ``low`` and ``high``: of numbers; None where any value is none.
    """

    values: tuple[tuple[str, int], ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What is usual for runs of a kind.

    ``of``: where the runs are from, in words. ``metric``: the loss. ``shortest`` and ``longest``: planned steps.
    ``descent``: the median of what the runs descended. ``low``, ``middle`` and ``high``: the levels at each of the
    ``SHARES`` parts of a plan, NaN where too few runs have one. ``end``: lowest, median and highest end.
    ``alike``: params in which a run must agree to be comparable. ``params``: the values of all params. ``runs``: ids
    of the runs; ``left_out``: ids of the others, with the reason. ``digest``: of all that. ``frozen``: it was read
    from a file, so that it may change a verdict; one that was made of runs on the way only advises.
    """

    of: str
    metric: str
    shortest: int
    longest: int
    descent: float
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]
    end: tuple[float, float, float]
    alike: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Usual] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    frozen: bool = False

    @property
    def scale(self) -> float:
        """What a distance is measured by: the descent, or the spread of the ends where that is larger."""
        return max(self.descent, self.end[2] - self.end[0])

    def progress_of(self, last_step: int, params: Mapping[str, str]) -> Progress | None:
        """How far a run that is still running came of its plan, where nothing else says what its steps are.

        A plan of about as many steps as these runs have is in the unit in which they and this one count.

        Args:
            last_step: The run's, so far.
            params: The run's.

        Returns:
            Done against planned; None where the run plans nothing that these runs do, or went beyond it.
        """
        for planned in (planned_steps(params), planned_epochs(params)):
            if planned is not None and last_step <= planned and self._is_as_long(planned):
                return Progress(done=last_step, planned=planned, unit="steps", snapshot=True)
        return None

    def _is_as_long(self, length: float) -> bool:
        return self.shortest / AS_LONG <= length <= self.longest * AS_LONG

    def above(self, course: Course) -> FloatArray:
        """How far a run is above the highest of these runs.

        Args:
            course: The run's.

        Returns:
            float64[SHARES], in the unit of the loss, NaN where either has no level.
        """
        found: FloatArray = np.array(course.levels) - np.array(self.high)
        return found

    def left_at(self, course: Course) -> int | None:
        """The first step of the longest stretch in which a run is above the band.

        Args:
            course: The run's.

        Returns:
            The step, None where it never does.
        """
        over = np.concatenate([[False], self.above(course) > 0, [False]])
        edges = np.flatnonzero(np.diff(over.astype(np.int8)))
        stretches = [(b - a, -a) for a, b in pairwise(edges.tolist())][::2]
        return round(-max(stretches)[1] / SHARES * course.length) if stretches else None

    def why_not(self, course: Course | None, params: Mapping[str, str]) -> str:
        """Why a run cannot be compared to these.

        Args:
            course: The run's.
            params: The run's.

        Returns:
            The reason; empty where it can be.
        """
        if course is None:
            return "the run has no loss with enough points, or continues without a plan"
        if course.metric != self.metric:
            return (
                f"the baseline is of {printable(self.metric, _SHOWN)}, the run logs {printable(course.metric, _SHOWN)}"
            )
        if not self._is_as_long(course.length):
            lengths = f"{number(self.shortest)} to {number(self.longest)} steps"
            return f"the baseline is of runs of {lengths}, the run's plan has {number(course.length)}"
        for name, value in self.alike.items():
            if params.get(name, value)[:CHARACTERS] != value:
                said = f"{printable(name, _SHOWN)} is {printable(params[name], _SHOWN)}"
                return f"{said}, and {printable(value, _SHOWN)} in the baseline"
        if int(np.isfinite(self.above(course)).sum()) < FEWEST_SHARES:
            return "the run has not come far enough of its plan"
        return ""
