"""How far a run was meant to go, by its params."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.series import Series, StepUnit

_PLANNED_STEPS = (
    "max_steps", "total_steps", "num_training_steps", "max_iters", "planned_steps", "max_train_steps",
    "num_train_steps", "train_iters", "max_update",
)  # fmt: skip
# What is called an iteration may be one of many steps.
_PLANNED_UPDATES = ("max_steps", "total_steps", "num_training_steps", "max_train_steps", "num_train_steps")
_PLANNED_EPOCHS = (
    "num_train_epochs", "max_epochs", "num_epochs", "epochs", "nb_epochs", "max_epoch", "num_epoch", "train_epochs",
    "total_epochs", "training_epochs",
)  # fmt: skip
PLANNED_STEPS = frozenset(_PLANNED_STEPS)
PLAN_PARAMS = frozenset((*_PLANNED_STEPS, *_PLANNED_EPOCHS))
"""The params that say how far a run was meant to go."""


def planned_steps(params: Mapping[str, str]) -> float | None:
    """How many steps a run was meant to have, according to its params.

    Args:
        params: The run's params, by name.

    Returns:
        Optimizer steps, or None where no param names them.
    """
    return positive(params, _PLANNED_STEPS)


def planned_epochs(params: Mapping[str, str]) -> float | None:
    """How many epochs a run was meant to have, according to its params.

    Args:
        params: The run's params, by name.

    Returns:
        Epochs, or None where no param names them.
    """
    return positive(params, _PLANNED_EPOCHS)


def plan_of(params: Mapping[str, str]) -> dict[str, str]:
    """The params that say how far a run was meant to go.

    Args:
        params: The run's params, by name.

    Returns:
        The params as they stand there, those in steps before those in epochs.
    """
    names = (*_PLANNED_STEPS, *_PLANNED_EPOCHS)
    return {name: params[name] for name in names if positive(params, (name,)) is not None}


def positive(params: Mapping[str, str], names: Iterable[str]) -> float | None:
    """The first of these params that is a positive number."""
    for name in names:
        try:
            value = float(params[name])
        except (KeyError, ValueError):
            continue
        if 0 < value < float("inf"):
            return value
    return None


def steps_of_plan(params: Mapping[str, str], loss: Series | None) -> int | None:
    """The steps of the plan, where the loss was logged to the last of them, or to within one line of it: the log then
    counts what the plan does, whatever it calls that.
    """
    planned = positive(params, _PLANNED_UPDATES)
    if (
        planned is None
        or planned == planned_epochs(params)
        or loss is None
        or loss.step_unit is not StepUnit.UNKNOWN
        or not len(loss)
    ):
        return None
    last = int(loss.steps.max())
    return int(planned) if planned - spacing(loss.steps) < last <= planned else None


def spacing(values: npt.NDArray[Any]) -> float:
    """How many whole numbers apart the logged ones are, as a rule; 1 where that is not known."""
    ascends = len(values) > 1 and bool((values[1:] > values[:-1]).all())
    distinct = values if ascends else np.unique(values)  # which takes most of the time of a long history
    if len(distinct) < 3:
        return 1.0
    return max(1.0, float(np.median(distinct[1:].astype(np.float64) - distinct[:-1])))
