"""What was read of one run, part by part, and what can be looked up there without working anything out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy.typing as npt

from tracker_health.evidence.collectives import RankDump
from tracker_health.evidence.ending import ending_of
from tracker_health.evidence.plan import plan_of, planned_epochs, steps_of_plan
from tracker_health.evidence.ranks import Rank
from tracker_health.evidence.rhythm import is_of_the_machine
from tracker_health.evidence.run import DlmCheckpoint, DlmStepLog, Problem, RunInfo, RunRef, TextLog
from tracker_health.evidence.series import Series, StepUnit
from tracker_health.evidence.tensors import OptimizerState, Weights
from tracker_health.roles import MetricRoles
from tracker_health.words.ending import Ended, Ending


@dataclass(frozen=True, kw_only=True, eq=False)
class AsRead:
    """The parts that were read of one run: what steps, progress and parameters are worked out from. Rules see it as
    ``Evidence``, which has those too. ``roles``: what the names of its metrics were taken for when they were read, None
    where nobody asked. ``ranks``: the ranks whose one training this is; none of a run by itself. ``dumps``: of their
    flight recorders.
    """

    run: RunRef
    info: RunInfo = field(default_factory=RunInfo)
    series: tuple[Series, ...] = ()
    roles: MetricRoles | None = None
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    text_log: TextLog | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    odd: tuple[Series, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    ranks: tuple[Rank, ...] = ()
    dumps: tuple[RankDump, ...] = ()

    @cached_property
    def of_training(self) -> tuple[Series, ...]:
        """What the training logged, without the metrics of the machine, which a tracker counts by itself."""
        return tuple(one for one in self.series if not is_of_the_machine(one.name))

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

    def all_of(self, role: str) -> list[Series]:
        """All series of a role, in the order in which they were read.

        Args:
            role: Of a series, as in a ``Need``: ``train_loss``, ``val_loss``, ``grad_norm``, ...

        Returns:
            The series, none where the run has none.
        """
        return [one for one in self.series if one.role == role]

    @cached_property
    def rates_logged(self) -> list[Series]:
        """The logged learning rates, a series for each group of parameters, without what is not finite."""
        rates = [one.finite() for one in self.all_of("learning_rate")]
        return [one for one in rates if len(one)]

    @cached_property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps done, from the checkpoint, the trainer state, or a series counted in optimizer steps; or
        those of the plan, where the log ends with them.
        """
        recorded = [self.optimizer.steps if self.optimizer is not None else None, self.info.global_step]
        known = [*(one for one in recorded if one is not None), *self._counted()]
        return max(known) if known else steps_of_plan(self.info.params, self.find("train_loss"))

    def _counted(self) -> Iterator[int]:
        """How far the logged optimizer steps go. A lone row counts nothing where a series has more of them: it may say
        where a run began.
        """
        most = max((len(series) for series in self.of_training), default=0)
        for steps in self.steps_logged:
            if steps.max() > 0 and (len(steps) > 1 or most <= 1):
                yield int(steps.max())

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

    @property
    def planned_epochs(self) -> float | None:
        """How many epochs the run was meant to have, by its params."""
        return planned_epochs(self.info.params)

    @property
    def plan(self) -> Mapping[str, str]:
        """The params that say how far the run was meant to go, as they are there: in steps, then in epochs."""
        return plan_of(self.info.params)
