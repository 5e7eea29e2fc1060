"""Everything that was read of one run, and how far it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tracker_health.evidence.as_read import AsRead
from tracker_health.evidence.comparable import comparable, restarts_of
from tracker_health.evidence.course import Baseline, Course, Sibling
from tracker_health.evidence.curve import Curve
from tracker_health.evidence.needs import Part
from tracker_health.evidence.parameters.table import ParameterTable
from tracker_health.evidence.progress import Progress, progress_of
from tracker_health.evidence.ranks import Rank, ranks_in
from tracker_health.evidence.series import Series
from tracker_health.evidence.steps import StepCount, steps_at_least


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence(AsRead):
    """Everything that was read of one run.

    ``missing`` gives, for parts that are not there, a reason better than "not found" (several unrelated checkpoints,
    a file above the download limit). ``notes``: what a reader of the verdict should know besides. ``unread``: logs of
    which no number was understood. ``odd``: metrics that no rule asks for, some of whose values are NaN or infinite.
    ``baseline``: what is usual for runs of this kind, where a person named it. ``siblings``: the runs themselves, where
    that person named too few.
    """

    baseline: Baseline | None = None
    siblings: tuple[Sibling, ...] = ()

    def curve(self, role: str) -> Curve | None:
        """The curve of a role's longest series, made once.

        Of losses those points are compared that were measured alike: see ``comparable``.

        Args:
            role: Of a series, as in a ``Need``: ``train_loss``, ``val_loss``, ``grad_norm``, ...

        Returns:
            The curve, or None where fewer than four points of the series can be compared.
        """
        if role not in self._curves:
            series = self.find(role)
            self._curves[role] = None if series is None else self._curve_of(series)
        return self._curves[role]

    def _curve_of(self, series: Series) -> Curve | None:
        note = ""
        if series.role in _LOSSES:
            series, note = comparable(series, self.all_of("objective_weight"))
        return Curve.of(series, note, self.all_of("learning_rate"))

    @cached_property
    def _curves(self) -> dict[str, Curve | None]:
        return {}

    @cached_property
    def side_by_side(self) -> tuple[Rank, ...]:
        """The ranks whose one training this is, or that logged into this one run: none where one logs alone."""
        return self.ranks or ranks_in(self.series)

    @cached_property
    def course(self) -> Course | None:
        """How the loss of training went by the share of the plan, else that of validation."""
        curve = self.curve("train_loss") or self.curve("val_loss")
        return Course.of(curve, self.progress_so_far, goes_on=self.goes_on)

    @cached_property
    def not_compared(self) -> str:
        """Why the run cannot be compared to the baseline; empty where it can be, or where there is none."""
        return "" if self.baseline is None else self.baseline.why_not(self.course, self.info.params)

    @cached_property
    def parameters(self) -> ParameterTable:
        """The parameters of the checkpoint, made once: what trained, what did not, and whether that was meant."""
        return ParameterTable.of(self, self.steps_at_least.steps)

    @cached_property
    def restarts(self) -> tuple[int, ...]:
        """The steps at which the learning rate began again, where it was logged."""
        return restarts_of(self.all_of("learning_rate"))

    @cached_property
    def steps_at_least(self) -> StepCount:
        """Optimizer steps that the optimizer's state has seen, at least, and by what that is known; 0 where nothing
        tells. For rules that need so many of them, never for one that finds too few.
        """
        return steps_at_least(self)

    @cached_property
    def progress(self) -> Progress | None:
        """Done against planned, or None where either is unknown."""
        return progress_of(self)

    @cached_property
    def progress_so_far(self) -> Progress | None:
        """The same; of a run that is still running, by what it is compared to where nothing says what its steps are."""
        curve = self.curve("train_loss") or self.curve("val_loss")
        if self.progress is not None or self.baseline is None or curve is None or not self.goes_on:
            return self.progress
        return self.baseline.progress_of(curve.last_step, self.info.params)

    def amount(self, role: str) -> int:
        """How much evidence there is for a role, in the unit in which a ``Need`` counts.

        Args:
            role: Of a series, or a ``Part``.

        Returns:
            Points of a series, optimizer steps of a saved state, tensors, lines of a log, ...: see ``Need.unit``. 0
            where there is nothing.
        """
        measure = _AMOUNTS.get(role)
        if measure is not None:
            return measure(self)
        series = self.find(role)
        return len(series.clean()) if series is not None else 0


_LOSSES = frozenset(("train_loss", "val_loss"))


def _amount_of_optimizer_state(evidence: Evidence) -> int:
    """In optimizer steps, as far as they are known; of a state that is there at least 1."""
    return 0 if evidence.optimizer is None else max(1, evidence.steps_at_least.steps)


def _amount_of_reports(evidence: Evidence) -> int:
    """How often ranks say that they waited in vain, or ran something else than others."""
    reports = evidence.text_log.reports if evidence.text_log is not None else None
    if reports is None or not reports.says_something:
        return 0
    return len(reports.waits) + len(reports.ran) + len(reports.missed)


_AMOUNTS: Mapping[str, Callable[[Evidence], int]] = {
    Part.OPTIMIZER_STATE: _amount_of_optimizer_state,
    Part.SECOND_MOMENTS: lambda evidence: len(evidence.optimizer.with_second_moment) if evidence.optimizer else 0,
    Part.SAVED_LOSS_SCALE: lambda evidence: int(
        evidence.optimizer is not None and evidence.optimizer.loss_scale is not None
    ),
    Part.SAVED_SCHEDULE: lambda evidence: len(evidence.optimizer.schedules) if evidence.optimizer is not None else 0,
    Part.WEIGHTS: lambda evidence: int(evidence.weights is not None),
    Part.WEIGHT_CHANGES: lambda evidence: len(evidence.weights.changes) if evidence.weights is not None else 0,
    Part.OPTIMIZER_STEPS: lambda evidence: int(evidence.optimizer_steps is not None),
    Part.PLAN: lambda evidence: int(evidence.progress is not None),
    Part.TEXT_LOG: lambda evidence: evidence.text_log.lines if evidence.text_log is not None else 0,
    Part.ENDING: lambda evidence: int(evidence.ending is not None and not evidence.goes_on),
    Part.DLM_STEP_LOG: lambda evidence: len(evidence.dlm_step_log) if evidence.dlm_step_log is not None else 0,
    Part.DLM_CHECKPOINT: lambda evidence: int(evidence.dlm_checkpoint is not None),
    Part.RANKS: lambda evidence: len(evidence.side_by_side),
    Part.COLLECTIVES: lambda evidence: len(evidence.dumps) + _amount_of_reports(evidence),
    Part.BASELINE: lambda evidence: (
        len(evidence.baseline.runs) if evidence.baseline is not None and not evidence.not_compared else 0
    ),
}
