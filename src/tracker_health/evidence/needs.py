"""What rules ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """The evidence that is not a metric series. Stands where a series' role stands in a ``Need``."""

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
    SIBLINGS = "siblings"


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

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.role, *self.any_of)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the configured rules need, so that a source reads nothing else.

    ``select_names`` takes every metric name of a run and gives the needed ones with their roles. ``parts`` are the
    parts that some rule needs. ``checkpoint`` is a path chosen by the user, relative to the run; ``max_download`` a
    limit in bytes.
    """

    select_names: Callable[[Iterable[str]], Mapping[str, str]]
    parts: frozenset[str]
    checkpoint: str | None = None
    max_download: int = 2 * 10**9

    def needs(self, *parts: Part) -> bool:
        """Whether some rule needs one of these parts."""
        return not self.parts.isdisjoint(parts)
