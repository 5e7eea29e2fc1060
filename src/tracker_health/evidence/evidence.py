"""Everything that was read of one run, and how far it came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.needs import Part
from tracker_health.evidence.run import DlmCheckpoint, DlmStepLog, Problem, RunInfo, RunRef, Siblings, TextLog
from tracker_health.evidence.series import Series, StepUnit
from tracker_health.evidence.steps import StepCount, steps_at_least
from tracker_health.evidence.tensors import OptimizerState, Weights

_PLANNED_STEPS = ("max_steps", "total_steps", "num_training_steps", "max_iters", "planned_steps")
_PLANNED_EPOCHS = ("num_train_epochs", "max_epochs", "num_epochs", "epochs")
PLAN_PARAMS = frozenset((*_PLANNED_STEPS, *_PLANNED_EPOCHS))
"""The params that say how far a run was meant to go."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the run came, in optimizer steps or in epochs (``unit``), and how far it was meant to go.

    ``snapshot``: the run goes on, or was seen in mid-training, so that this is not where it ended. ``unlogged``: how
    much more may have been done since the last point of a log that has every k-th epoch or step only; 0 where the
    number done is exact.
    """

    done: float
    planned: float
    unit: str
    snapshot: bool = False
    unlogged: float = 0.0

    @property
    def fraction(self) -> float:
        """The share of the plan that was done, or may have been: what was not logged counts up to the plan's end."""
        return max(self.done, min(self.done + self.unlogged, self.planned)) / self.planned


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything that was read of one run.

    ``missing`` gives, for parts that are not there, a reason better than "not found" (several unrelated checkpoints,
    a file above the download limit). ``notes``: what a reader of the verdict should know besides.
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
    missing: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    @cached_property
    def by_role(self) -> Mapping[str, Series]:
        """Per role the series with the longest history; of equally long ones the first by name."""
        best: dict[str, Series] = {}
        for series in sorted(self.series, key=lambda one: (-len(one), one.name)):
            if series.role is not None:
                best.setdefault(series.role, series)
        return best

    def find(self, role: str) -> Series | None:
        """The series of a role, or None."""
        return self.by_role.get(role)

    def first(self, *roles: str) -> Series:
        """The series of the first of these roles that is there.

        Raises:
            LookupError: none is; a rule's ``needs`` should have said so.
        """
        for role in roles:
            if role in self.by_role:
                return self.by_role[role]
        raise LookupError(f"no series has one of the roles {roles}: the rule's needs must name them")

    @cached_property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps done, from the checkpoint, the trainer state, or a series counted in optimizer steps."""
        known = [*self._steps_recorded, *(int(counted.max()) for counted in self.steps_logged)]
        return max(known) if known else None

    @cached_property
    def steps_at_least(self) -> StepCount:
        """Optimizer steps that the optimizer's state has seen, at least, and by what that is known; 0 where nothing
        tells. For rules that need so many of them, never for one that finds too few.
        """
        return steps_at_least(self)

    @property
    def _steps_recorded(self) -> list[int]:
        """What the checkpoint and the trainer state say was done: exact."""
        recorded = [self.optimizer.steps] if self.optimizer is not None else []
        return [steps for steps in (*recorded, self.info.global_step) if steps is not None]

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

    @property
    def _steps_unlogged(self) -> float:
        """Steps that may lie between the last point and the next one, which was not reached."""
        if self._steps_recorded:
            return 0.0
        last = max((counted.max() for counted in self.steps_logged), default=0)
        return max((_spacing(one) - 1.0 for one in self.steps_logged if one.max() == last), default=0.0)

    @cached_property
    def progress(self) -> Progress | None:
        """Done against planned, or None where either is unknown."""
        snapshot = self.info.snapshot or self.info.goes_on
        planned_steps = _positive(self.info.params, _PLANNED_STEPS)
        if planned_steps is not None and self.optimizer_steps is not None:
            return Progress(
                done=self.optimizer_steps,
                planned=planned_steps,
                unit="optimizer steps",
                snapshot=snapshot,
                unlogged=self._steps_unlogged,
            )
        planned_epochs = self.planned_epochs
        known = [done for done in (self.info.epoch, self._epochs_counted) if done is not None]
        if planned_epochs is not None and known:
            unlogged = self._epochs_unlogged if self.info.epoch is None else 0.0
            return Progress(
                done=max(known), planned=planned_epochs, unit="epochs", snapshot=snapshot, unlogged=unlogged
            )
        return None

    @property
    def planned_epochs(self) -> float | None:
        """How many epochs the run was meant to have, by its params."""
        return _positive(self.info.params, _PLANNED_EPOCHS)

    @property
    def plan(self) -> Mapping[str, str]:
        """The params that say how far the run was meant to go, as they stand there: in steps, then in epochs."""
        names = (*_PLANNED_STEPS, *_PLANNED_EPOCHS)
        return {name: self.info.params[name] for name in names if _positive(self.info.params, (name,)) is not None}

    @property
    def _epochs_counted(self) -> float | None:
        """Epochs done by the epoch series. One that counts whole epochs from 0 names the epoch it is in."""
        series = self.find("epoch")
        if series is None or not len(series.finite()):
            return None
        values = series.finite().values
        from_zero = values.min() == 0.0 and bool((values == np.floor(values)).all())
        return float(values.max()) + from_zero

    @property
    def _epochs_unlogged(self) -> float:
        """Whole epochs that may lie between the last point and the next one: ``if epoch % 50 == 0``."""
        series = self.find("epoch")
        values = series.finite().values if series is not None else np.empty(0)
        if not len(values) or not bool((values == np.floor(values)).all()):
            return 0.0
        return _spacing(values) - 1.0

    def amount(self, role: str) -> int:
        """How much evidence there is for a role, in the unit a ``Need`` counts in; 0 when there is none."""
        measure = _AMOUNTS.get(role)
        if measure is not None:
            return measure(self)
        series = self.find(role)
        return len(series.clean()) if series is not None else 0


def _spacing(values: npt.NDArray[Any]) -> float:
    """How many whole numbers apart the logged ones are, as a rule; 1 where that cannot be told."""
    distinct = np.unique(values)
    if len(distinct) < 3:
        return 1.0
    return max(1.0, float(np.median(distinct[1:].astype(np.float64) - distinct[:-1])))


def _positive(params: Mapping[str, str], names: Iterable[str]) -> float | None:
    for name in names:
        try:
            value = float(params[name])
        except (KeyError, ValueError):
            continue
        if 0 < value < float("inf"):
            return value
    return None


def _amount_of_optimizer_state(evidence: Evidence) -> int:
    """In optimizer steps, as far as they are known; of a state that is there at least 1."""
    return 0 if evidence.optimizer is None else max(1, evidence.steps_at_least.steps)


_AMOUNTS: Mapping[str, Callable[[Evidence], int]] = {
    Part.OPTIMIZER_STATE: _amount_of_optimizer_state,
    Part.SECOND_MOMENTS: lambda evidence: len(evidence.optimizer.with_second_moment) if evidence.optimizer else 0,
    Part.SAVED_LOSS_SCALE: lambda evidence: int(
        evidence.optimizer is not None and evidence.optimizer.loss_scale is not None
    ),
    Part.WEIGHTS: lambda evidence: int(evidence.weights is not None),
    Part.WEIGHT_CHANGES: lambda evidence: len(evidence.weights.changes) if evidence.weights is not None else 0,
    Part.OPTIMIZER_STEPS: lambda evidence: int(evidence.optimizer_steps is not None),
    Part.PLAN: lambda evidence: int(evidence.progress is not None),
    Part.TEXT_LOG: lambda evidence: evidence.text_log.lines if evidence.text_log is not None else 0,
    Part.ENDING: lambda evidence: int(evidence.info.ended),
    Part.DLM_STEP_LOG: lambda evidence: len(evidence.dlm_step_log) if evidence.dlm_step_log is not None else 0,
    Part.DLM_CHECKPOINT: lambda evidence: int(evidence.dlm_checkpoint is not None),
    Part.SIBLINGS: lambda evidence: len(evidence.siblings.others) if evidence.siblings is not None else 0,
}
