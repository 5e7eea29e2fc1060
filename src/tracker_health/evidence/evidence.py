"""Everything that was read of one run, and how far it came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy.typing as npt

from tracker_health.ending import Ended, Ending
from tracker_health.evidence.comparable import comparable, restarts_of
from tracker_health.evidence.curve import Curve
from tracker_health.evidence.ending import ending_of
from tracker_health.evidence.needs import Part
from tracker_health.evidence.parameters.table import ParameterTable
from tracker_health.evidence.progress import Progress, plan_of, planned_epochs, progress_of, steps_of_plan
from tracker_health.evidence.run import DlmCheckpoint, DlmStepLog, Problem, RunInfo, RunRef, Siblings, TextLog
from tracker_health.evidence.series import Series, StepUnit
from tracker_health.evidence.steps import StepCount, steps_at_least
from tracker_health.evidence.tensors import OptimizerState, Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything that was read of one run.

    ``missing`` gives, for parts that are not there, a reason better than "not found" (several unrelated checkpoints,
    a file above the download limit). ``notes``: what a reader of the verdict should know besides. ``unread``: logs of
    which no number was understood.
    """

    run: RunRef
    info: RunInfo = field(default_factory=RunInfo)
    series: tuple[Series, ...] = ()
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    siblings: Siblings | None = None
    text_log: TextLog | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    @cached_property
    def by_role(self) -> Mapping[str, Series]:
        """Per role the series with the longest history; of equally long ones the first."""
        best: dict[str, Series] = {}
        for series in sorted(self.series, key=lambda one: -len(one)):
            if series.role is not None:
                best.setdefault(series.role, series)
        return best

    def find(self, role: str) -> Series | None:
        """The series of a role.

        Args:
            role: Of a series, as in a ``Need``: ``train_loss``, ``val_loss``, ``grad_norm``, ...

        Returns:
            The longest series of that role, or None.
        """
        return self.by_role.get(role)

    def first(self, *roles: str) -> Series:
        """The series of the first of these roles that is there.

        Args:
            *roles: Roles of series, the preferred one first.

        Returns:
            The longest series of the first role that has one.

        Raises:
            LookupError: none is; a rule's ``needs`` should have said so.
        """
        for role in roles:
            if role in self.by_role:
                return self.by_role[role]
        raise LookupError(f"no series has one of the roles {roles}: the rule's needs must name them")

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

    def all_of(self, role: str) -> list[Series]:
        """All series of a role, in the order in which they were read.

        Args:
            role: Of a series, as in a ``Need``: ``train_loss``, ``val_loss``, ``grad_norm``, ...

        Returns:
            The series, none where the run has none.
        """
        return [one for one in self.series if one.role == role]

    @cached_property
    def parameters(self) -> ParameterTable:
        """The parameters of the checkpoint, made once: what trained, what did not, and whether that was meant."""
        return ParameterTable.of(self)

    @cached_property
    def rates_logged(self) -> list[Series]:
        """The logged learning rates, a series for each group of parameters, without what is not finite."""
        rates = [one.finite() for one in self.all_of("learning_rate")]
        return [one for one in rates if len(one)]

    @cached_property
    def restarts(self) -> tuple[int, ...]:
        """The steps at which the learning rate began anew, where it was logged."""
        return restarts_of(self.all_of("learning_rate"))

    @cached_property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps done, from the checkpoint, the trainer state, or a series counted in optimizer steps; or
        those of the plan, where the log ends with them.
        """
        recorded = [self.optimizer.steps if self.optimizer is not None else None, self.info.global_step]
        known = [*(one for one in recorded if one is not None), *(int(one.max()) for one in self.steps_logged)]
        return max(known) if known else steps_of_plan(self)

    @cached_property
    def steps_at_least(self) -> StepCount:
        """Optimizer steps that the optimizer's state has seen, at least, and by what that is known; 0 where nothing
        tells. For rules that need so many of them, never for one that finds too few.
        """
        return steps_at_least(self)

    @property
    def steps_logged(self) -> list[npt.NDArray[Any]]:
        """The optimizer steps that series have points at."""
        counted: list[npt.NDArray[Any]] = [
            series.steps for series in self.series if series.step_unit is StepUnit.OPTIMIZER_STEP and len(series)
        ]
        counter = self.find("global_step")
        if counter is not None and len(counter.finite()):
            counted.append(counter.finite().values)
        return counted

    @cached_property
    def ending(self) -> Ending | None:
        """How the run ended; None where neither its tracker, nor its console, nor anybody who saw its process says."""
        return ending_of(self.info, self.text_log)

    @property
    def goes_on(self) -> bool:
        """Whether the run may still be under way."""
        return self.ending is not None and self.ending.how is Ended.RUNNING

    @cached_property
    def progress(self) -> Progress | None:
        """Done against planned, or None where either is unknown."""
        return progress_of(self)

    @property
    def planned_epochs(self) -> float | None:
        """How many epochs the run was meant to have, by its params."""
        return planned_epochs(self.info.params)

    @property
    def plan(self) -> Mapping[str, str]:
        """The params that say how far the run was meant to go, as they stand there: in steps, then in epochs."""
        return plan_of(self.info.params)

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
    Part.SIBLINGS: lambda evidence: len(evidence.siblings.others) if evidence.siblings is not None else 0,
}
