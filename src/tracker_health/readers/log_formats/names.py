"""What the names in a row say of it: which numbers are axes, and which were measured on held-out data."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tracker_health.evidence import StepUnit
from tracker_health.roles import words_of

HELD_OUT = {
    "val": "val", "valid": "valid", "validation": "validation", "eval": "eval", "evaluation": "eval", "dev": "dev",
    "test": "test", "testing": "test", "validate": "validation", "validating": "validation", "evaluate": "eval",
    "evaluating": "eval",
}  # fmt: skip
"""Words for held-out data, each with the one that is put before a metric's name."""

OF = "\0of"
"""Behind an axis' name: what it counts up to, the 600 of ``batch 100/600``. No name of a log has a NUL in it."""
BAR, END = "\0bar", "\0end"
"""Axes that only consoles have: a progress bar without metrics, and the place at which Keras ends an epoch's line."""
PLAN_FIELDS = frozenset({"max_steps", "total_steps", "num_train_epochs", "max_epochs"})

STEP, BATCH, EPOCH, AMOUNT = "step", "batch", "epoch", "amount"


class Axis(NamedTuple):
    """What a number counts: steps, the batches of an epoch, epochs, or an ``amount`` of samples, tokens or rounds.

    ``rank``: of several in one row the lowest counts. ``sure``: the name says it; else its values must count up.
    """

    kind: str
    rank: int
    unit: StepUnit = StepUnit.UNKNOWN
    sure: bool = False


_SURE = ("step", "global/step", "iteration", "current/steps", "iter", "_step", "num/updates", "valid/num/updates")
_LIKELY = (
    "steps", "iters", "iterations", "it", "i", "n/iter", "opt/step", "optimizer/step", "opt/steps", "update", "updates", "up",
    "gradient/step", "grad/step", "train/step", "train/steps", "num/steps", "global/batch", "batches", "t",
)  # fmt: skip
_AMOUNTS = (
    "total/timesteps", "time/total/timesteps", "timesteps/total", "num/timesteps", "timesteps", "timestep", "env/step", "env/steps",
    "total/env/steps", "total/env/interacts", "frames", "frame", "kimg", "progress/kimg", "samples/seen", "consumed/samples", "num/samples", "samples",
    "examples/seen", "examples", "images/seen", "tokens/seen", "consumed/tokens", "num/tokens", "total/tokens", "tokens", "progress/tick",
    "tick", "round", "generation", "episode", "episodes", "evaluation",
)  # fmt: skip
_OPTIMIZER_STEPS = frozenset(
    {"global/step", "current/steps", "num/updates", "valid/num/updates", "opt/step", "optimizer/step", "opt/steps"}
)
_UNITS = dict.fromkeys(_OPTIMIZER_STEPS, StepUnit.OPTIMIZER_STEP) | {"_step": StepUnit.LOG_CALL}
_AXES = {
    **{form: Axis(AMOUNT, 200 + at) for at, form in enumerate(_AMOUNTS)},
    **{form: Axis(STEP, 100 + at, _UNITS.get(form, StepUnit.UNKNOWN)) for at, form in enumerate(_LIKELY)},
    **{form: Axis(STEP, at, _UNITS.get(form, StepUnit.UNKNOWN), sure=True) for at, form in enumerate(_SURE)},
    **dict.fromkeys(("batch", "batch/idx", "minibatch"), Axis(BATCH, 150)),
    **dict.fromkeys(("epoch", "epochs"), Axis(EPOCH, 0, StepUnit.EPOCH, sure=True)),
}
_BEFORE = frozenset({"train", "training", "trainer"})


@lru_cache(maxsize=4096)
def axis_of(name: str) -> Axis | None:
    """The axis that a number of this name is; None of a metric. ``trainer/global_step`` is a ``global_step``."""
    if name == "_step":
        return _AXES["_step"]
    words = words_of(name)
    while len(words) > 1 and words[0] in _BEFORE:
        words = words[1:]
    return _AXES.get("/".join(words))


@lru_cache(maxsize=4096)
def name_on(data: str, name: str) -> str:
    """What a metric is called that was measured on held-out data: ``loss`` on ``val`` is ``val/loss``; ``val_loss``
    says so itself, and an axis is the same for all data.
    """
    if not data or "\0" in name or axis_of(name) is not None or is_held_out(name):
        return name
    return f"{data}/{name}"


@lru_cache(maxsize=4096)
def is_held_out(name: str) -> bool:
    """Whether a metric's name says that it was measured on held-out data."""
    return any(word in HELD_OUT for word in words_of(name))
