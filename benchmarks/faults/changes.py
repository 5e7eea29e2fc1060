"""What is done differently when a run is trained once more: settings that are changed, a fault that is taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from faults import Fault
from recipes import Recipe, rate_at
from tasks import Task
from torch import nn
from train import Training

_SCENES: dict[str, tuple[str, ...]] = {
    "rate-jump": (), "early-decay": (), "nan-midway": (), "masked-nan": (), "shuffled-targets": (), "bad-batches": (),
    "same-batch": (), "sorted-data": (), "update-too-small": (), "weights-lost": (), "vanishing-init": (),
    "clipped-to-nothing": ("clip",), "decay-too-strong": ("weight_decay",),
}  # fmt: skip
"""Faults whose recipe is no part of them, but for these fields: where the fault is taken out the run keeps it, so that
nothing else changes.
"""

Undone = Literal["", "model", "fault"]


@dataclass(frozen=True)
class Change:
    """What is done differently. By default nothing.

    ``undone``: what of the fault is taken out: nothing, how it makes the ``model``, or all. ``recipe``: fields of the
    recipe with their values. ``longer``: so many times the steps. ``rate_factor`` and ``rate_limit``: of the learning
    rate of every step, the limit as the log has it; ``peak_rate``: the highest one of its schedule, ``group_rate`` that
    of the group with the lowest rate. ``optimizer``: settings of every group, right before each step.
    """

    undone: Undone = ""
    recipe: tuple[tuple[str, Any], ...] = ()
    longer: int = 1
    rate_factor: float = 1.0
    rate_limit: float | None = None
    peak_rate: float | None = None
    group_rate: float | None = None
    optimizer: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What differs from changing nothing."""
        return {name: value for name, value in asdict(self).items() if value != getattr(NOTHING, name)}


NOTHING = Change()


def change_from(document: Mapping[str, Any]) -> Change:
    """The change that ``to_json`` gave, also after it went through JSON."""
    pairs = {name: tuple(map(tuple, document[name])) for name in ("recipe", "optimizer") if name in document}
    return Change(**{**document, **pairs})


class _Changed(Fault):
    """Puts a change on top of the fault that comes after it in the order of bases."""

    change: Change = NOTHING
    changed: Recipe
    first_share = 1.0
    """Of the rate, that of the first group, which is the one that is logged; known from the first step on."""

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        given = replace(super().recipe(recipe, task, rng), **dict(self.change.recipe))
        steps = given.steps * self.change.longer
        self.changed = replace(given, steps=steps, planned=max(given.planned, steps))
        return self.changed

    def rate(self, rate: float, done: float) -> float:
        if self.change.peak_rate is not None:
            return self.change.peak_rate * rate / self.changed.rate
        changed = super().rate(rate, done) * self.change.rate_factor
        limit = self.change.rate_limit
        return changed if limit is None else min(changed, limit / self.first_share)

    def before_update(self, training: Training) -> None:
        """What is set here counts, whatever the fault did in this step."""
        self.first_share = training.shares[0]
        groups = training.optimizer.param_groups
        lowest = min(group["lr"] for group in groups)
        for group in groups:
            if self.change.group_rate is not None and group["lr"] <= lowest:
                group["lr"] = self.change.group_rate * rate_at(self.changed, training.done) / self.changed.rate
            group.update(self.change.optimizer)


class _Scene(Fault):
    """No fault, in the recipe of one."""

    of: type[Fault] = Fault

    def recipe(self, recipe: Recipe, task: Task, rng: np.random.Generator) -> Recipe:
        own = _SCENES.get(self.of.name)
        if own is None:
            return recipe
        return replace(self.of().recipe(recipe, task, rng), **{name: getattr(recipe, name) for name in own})


def with_change(fault: type[Fault], change: Change) -> Fault:
    """The fault, as far as it is left, with a change on top of it."""
    return type("Changed", (_Changed, _left_of(fault, change.undone)), {"change": change})()


def _left_of(fault: type[Fault], undone: Undone) -> type[Fault]:
    if undone == "model":
        return type("WithoutModel", (fault,), {"model": _as_built})
    if undone == "fault":
        return type("Scene", (_Scene,), {"of": fault})
    return fault


def _as_built(_fault: Fault, _model: nn.Module, _rng: np.random.Generator) -> None:
    """The model as the framework makes it."""
