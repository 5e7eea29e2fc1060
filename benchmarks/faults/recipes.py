"""How a run is trained and logged: drawn at random, by seed, within what people do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from tasks import Task

CADENCES = ("every step", "every 10 steps", "every epoch")
SCHEDULES = ("constant", "cosine", "linear", "steps", "one-cycle", "restarts")
GROUPS = ("one", "no decay", "layer rates")
VALIDATION = ("both", "loss", "accuracy")
NORMS = ("before clipping", "after clipping", "running average")


@dataclass(frozen=True)
class Recipe:
    """One run's settings.

    ``steps``: optimizer steps. ``warmup``: of them, with a rising rate. ``resumed_at``: the step after which the log
    goes back a little and goes on, as after a crash. ``mean_logged``: an interval's mean loss instead of its last one.
    ``tells_plan``, ``tells_classes``: whether the log's header holds them. ``named``: whether the optimizer knows the
    parameters' names. ``frozen``: how many of the first parameters are deliberately not trained; ``lists_frozen``: the
    optimizer is given all the same what is not trained. ``samples``: of the training set, None for all.

    ``groups``: the optimizer's parameter groups: one, another without weight decay for biases and norms, or a lower
    rate for all but the head (of adapters: a higher one for their second matrix). ``digits``: decimals that are logged,
    None for all; the learning rate and the gradient norm then have four digits. ``norm_logged``: which gradient norm
    is logged. ``half``: trained with a loss scale, which ``logs_scale``. ``unused``: the model has a layer that its
    forward pass leaves out. ``averaged``: the training state holds an exponential moving average of the weights.
    ``checkpoints``: the state lies in two folders, of the end and of a fifth of the steps before it.

    Of classifiers: ``logs_accuracy`` of the training batches; ``validation_logged``: its loss, its accuracy or both.
    """

    seed: int
    steps: int
    planned: int
    batch: int
    optimizer: str
    rate: float
    schedule: str
    warmup: int
    clip: float | None
    dropout: float
    weight_decay: float
    smoothing: float
    accumulate: int
    cadence: str
    mean_logged: bool
    smoothed_log: bool
    logs_gradient: bool
    logs_rate: bool
    logs_validation: bool
    naming: int
    tells_plan: bool
    tells_classes: bool
    named: bool
    resumed_at: int | None = None
    frozen: int = 0
    lists_frozen: bool = False
    samples: int | None = None
    groups: str = "one"
    digits: int | None = None
    norm_logged: str = "before clipping"
    half: bool = False
    logs_scale: bool = False
    unused: bool = False
    averaged: bool = False
    checkpoints: bool = False
    logs_accuracy: bool = False
    validation_logged: str = "both"


def draw(task: Task, seed: int) -> Recipe:
    """An ordinary, sound recipe for a task."""
    rng = np.random.default_rng([seed, 77])
    low, high = task.steps
    steps = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    by_sgd = task.sgd is not None and rng.random() < 0.25
    rates = task.sgd if by_sgd and task.sgd is not None else task.rates
    # A long training with a high rate and a short one with a low rate are no good idea: they go together.
    place = np.clip(0.7 - 0.4 * (steps - low) / (high - low) + rng.uniform(-0.3, 0.3), 0, 1)
    return Recipe(
        seed=seed,
        steps=steps,
        planned=steps,
        batch=int(rng.choice([4, 8, 16, 32, 64], p=[0.08, 0.12, 0.25, 0.3, 0.25])),
        optimizer="sgd" if by_sgd else str(rng.choice(["adamw", "adamw", "adam"])),
        rate=float(rates[0] * (rates[1] / rates[0]) ** place),
        schedule=str(rng.choice(SCHEDULES, p=[0.26, 0.28, 0.15, 0.08, 0.15, 0.08])),
        warmup=round(steps * rng.choice([0.0, 0.05, 0.1])),
        clip=float(rng.choice([1.0, 5.0])) if rng.random() < 0.4 else None,
        dropout=float(rng.choice([0.0, 0.0, 0.1, 0.3])),
        weight_decay=float(rng.choice([0.0, 0.01, 0.1])) * (0.01 if by_sgd else 1.0),
        smoothing=0.1 if rng.random() < 0.1 else 0.0,
        accumulate=2 if rng.random() < 0.1 else 1,
        cadence=str(rng.choice(CADENCES)),
        mean_logged=bool(rng.random() < 0.5),
        smoothed_log=bool(rng.random() < 0.08),
        logs_gradient=bool(rng.random() < 0.7),
        logs_rate=bool(rng.random() < 0.8),
        logs_validation=bool(rng.random() < 0.7),
        naming=int(rng.integers(3)),
        tells_plan=bool(rng.random() < 0.6),
        tells_classes=bool(rng.random() < 0.4),
        named=bool(rng.random() < 0.5),
        resumed_at=round(steps * rng.uniform(0.3, 0.8)) if rng.random() < 0.05 else None,
        frozen=int(rng.integers(1, 3)) if rng.random() < 0.05 and not task.pretrained else 0,
        lists_frozen=bool(rng.random() < 0.4),
        groups=str(rng.choice(GROUPS, p=[0.55, 0.25, 0.2])),
        digits=(None, 4, 3, 2)[int(rng.choice(4, p=[0.55, 0.3, 0.1, 0.05]))],
        norm_logged=str(rng.choice(NORMS, p=[0.7, 0.15, 0.15])),
        half=bool(rng.random() < 0.15),
        logs_scale=bool(rng.random() < 0.8),
        unused=bool(rng.random() < 0.06),
        averaged=bool(rng.random() < 0.08),
        checkpoints=bool(rng.random() < 0.5),
        logs_accuracy=bool(rng.random() < 0.4),
        validation_logged=str(rng.choice(VALIDATION, p=[0.55, 0.2, 0.25])),
    )


def telling_all(recipe: Recipe) -> Recipe:
    """The same run with a log that leaves nothing out; how often it logs, and in how many digits, stays as it was."""
    return replace(
        recipe, logs_gradient=True, logs_rate=True, logs_validation=True, tells_plan=True, tells_classes=True,
        logs_scale=True, logs_accuracy=True, validation_logged="both",
    )  # fmt: skip


def rate_at(recipe: Recipe, step: int) -> float:
    """The learning rate of an optimizer step, counted from 0; the schedule is laid out for the planned steps."""
    if step < recipe.warmup:
        return recipe.rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.planned - recipe.warmup)
    match recipe.schedule:
        case "cosine":
            share = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        case "linear":
            share = max(0.0, 1.0 - done)
        case "steps":
            share = 0.2 ** int(3 * min(done, 0.999))
        case "one-cycle":
            share = 0.1 + 0.9 * done / 0.3 if done < 0.3 else 0.5 * (1 + math.cos(math.pi * (done - 0.3) / 0.7))
        case "restarts":
            share = 0.5 * (1 + math.cos(math.pi * ((3 * done) % 1.0)))
        case _:
            share = 1.0
    return recipe.rate * share


def momentum_at(recipe: Recipe, step: int) -> float:
    """The momentum (Adam's first beta) of a step: one-cycle schedules lower it while the rate is high."""
    if recipe.schedule != "one-cycle" or recipe.rate == 0.0:
        return 0.9
    return 0.95 - 0.1 * min(1.0, rate_at(recipe, step) / recipe.rate)
