"""What rules ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tracker_health.roles import RolePlan


class Part(StrEnum):
    """The evidence that is not a metric series. Stands where a series' role is in a ``Need``."""

    OPTIMIZER_STATE = "optimizer_state"
    SECOND_MOMENTS = "second_moments"
    SAVED_LOSS_SCALE = "saved_loss_scale"
    SAVED_SCHEDULE = "saved_schedule"
    WEIGHTS = "weights"
    WEIGHT_CHANGES = "weight_changes"
    OPTIMIZER_STEPS = "optimizer_steps"
    PLAN = "plan"
    TEXT_LOG = "text_log"
    ENDING = "ending"
    DLM_STEP_LOG = "dlm_step_log"
    DLM_CHECKPOINT = "dlm_checkpoint"
    BASELINE = "baseline"
    RANKS = "ranks"
    COLLECTIVES = "collectives"


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a rule cannot do without, declared so that the engine can skip it with a reason.

    ``role`` is a series role (``train_loss``) or a ``Part``. ``min_points`` counts in the ``unit`` of the evidence:
    points of a series, steps of a log, optimizer steps. ``any_of`` names alternatives to ``role``: one of them is
    enough. An ``optional`` need is read when it is there and never skips the rule.
    """

    role: str
    min_points: int = 1
    unit: str = "points"
    any_of: tuple[str, ...] = ()
    optional: bool = False

    @classmethod
    def beside(cls, *roles: str) -> tuple[Need, ...]:
        """An optional need for each role.

        Args:
            *roles: Roles of series, or parts.

        Returns:
            Needs that are read where they are there, and never skip the rule.
        """
        return tuple(cls(role=role, optional=True) for role in roles)

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.role, *self.any_of)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the configured rules need, so that a source reads nothing else.

    ``roles`` says what metric names of a run are, and which of them are read. ``parts`` are the parts that some rule
    needs. ``checkpoint`` is a path chosen by the user, relative to the run; ``max_download`` a limit in bytes.
    """

    roles: RolePlan
    parts: frozenset[str]
    checkpoint: str | None = None
    max_download: int = 2 * 10**9

    def needs(self, *parts: Part) -> bool:
        """Whether some rule needs one of these parts.

        Args:
            *parts: Parts that a source could read.

        Returns:
            True where one of them is needed.
        """
        return not self.parts.isdisjoint(parts)
