"""How far a run was meant to go, by its params."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.series import Series, StepUnit

_PLANNED_STEPS = (
    "max_steps", "total_steps", "num_training_steps", "max_iters", "planned_steps", "max_train_steps",
    "num_train_steps", "train_iters", "max_update", "max_updates", "train_steps", "training_steps",
    "max_training_steps", "total_training_steps", "total_train_steps", "total_iterations", "max_iterations",
    "total_timesteps",
)  # fmt: skip
# What is called an iteration may be one of many steps.
_PLANNED_UPDATES = ("max_steps", "total_steps", "num_training_steps", "max_train_steps", "num_train_steps")
_PLANNED_EPOCHS = (
    "num_train_epochs", "max_epochs", "num_epochs", "epochs", "nb_epochs", "max_epoch", "num_epoch", "train_epochs",
    "total_epochs", "training_epochs", "num_training_epochs", "max_train_epochs", "max_num_epochs", "n_epochs",
    "n_epoch", "nepochs", "nepoch",
)  # fmt: skip
_OF_A_POLICY = ("total_timesteps", "clip_range")  # next to these n_epochs are the passes over what was just collected
# Sections of a configuration that are about the training itself: not "scheduler", "pretrain" or "val".
_SECTION = re.compile(
    r"(?:(?:trainer|train|training|training_args(?:uments)?|trainer_args|args|arguments|hparams|hyper_?param(?:eter)?s"
    r"|params|config|cfg|conf|run|experiment|exp|loop|train_loop|schedule|common|general|main)[./:])+",
    re.IGNORECASE,
)
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MOST_CHARACTERS = 100


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
    return positive(params, _epochs_of(params))


def plan_of(params: Mapping[str, str]) -> dict[str, str]:
    """The params that say how far a run was meant to go.

    Args:
        params: The run's params, by name.

    Returns:
        The params as they are there, those in steps before those in epochs.
    """
    return {name: params[name] for name, _ in _positives(params, (*_PLANNED_STEPS, *_epochs_of(params)))}


def _epochs_of(params: Mapping[str, str]) -> Iterable[str]:
    return (name for name in _PLANNED_EPOCHS if name != "n_epochs" or params.keys().isdisjoint(_OF_A_POLICY))


def positive(params: Mapping[str, str], names: Iterable[str]) -> float | None:
    """The first of these params that is a positive number: as it is named here, else as a section of a configuration
    names it (``trainer.max_steps``, ``args/maxSteps``).
    """
    return next((value for _, value in _positives(params, names)), None)


def _positives(params: Mapping[str, str], names: Iterable[str]) -> Iterator[tuple[str, float]]:
    """The same of all of them: what each is called in the params, and its value."""
    spelled: dict[str, str] = {}
    for name in params:
        spelled.setdefault(_plain(name), name)
    for name in names:
        for one in dict.fromkeys(one for one in (name, spelled.get(name, "")) if one in params):
            try:
                value = float(params[one])
            except ValueError:
                continue
            if 0 < value < float("inf"):
                yield one, value
                break


@lru_cache(maxsize=10_000)
def _plain(name: str) -> str:
    """A param's name without the sections of a configuration before it, in the spelling that Python has."""
    bare = _SECTION.sub("", name, count=1) if _SECTION.match(name) else name
    return _CAPITAL.sub("_", bare[:_MOST_CHARACTERS]).replace("-", "_").lower()


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
