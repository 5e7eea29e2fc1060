"""What a training leaves to its user: the log as the run's habits have it, and the saved state and weights."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recipes import Recipe
from safetensors.torch import save_file
from torch import Tensor
from train import Checkpoint, Training

_NAMES = (
    {"loss": "loss", "grad": "grad_norm", "rate": "lr", "val": "val_loss", "accuracy": "val_accuracy",
     "hits": "accuracy", "scale": "loss_scale"},
    {"loss": "train/loss", "grad": "train/grad_norm", "rate": "train/learning_rate", "val": "eval/loss",
     "accuracy": "eval/accuracy", "hits": "train/accuracy", "scale": "train/loss_scale"},
    {"loss": "train_loss", "grad": "gradient_norm", "rate": "learning_rate", "val": "valid_loss",
     "accuracy": "valid_acc", "hits": "train_acc", "scale": "grad_scale"},
)  # fmt: skip


def leave(training: Training, folder: Path) -> None:
    """Write what a user would have: the log, the training state and the weights."""
    log(training, training.recipe, folder)
    last = training.checkpoint()
    if not training.recipe.checkpoints or training.earlier is None:
        _save(training, last, folder, is_last=True)
        return
    for one in (training.earlier, last):
        _save(training, one, folder / f"checkpoint-{one.step}", is_last=one is last)


def log(training: Training, recipe: Recipe, folder: Path) -> None:
    """Write the log of a run that has the habits of a recipe, its own or one that leaves nothing out."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("w") as file:
        for row in [_header(training, recipe), *_again(training, _rows(training, recipe))]:
            file.write(json.dumps(row) + "\n")


def _header(training: Training, recipe: Recipe) -> dict[str, Any]:
    header: dict[str, Any] = {"type": "config", "batch_size": recipe.batch, "optimizer": recipe.optimizer}
    if recipe.tells_plan:
        header["max_steps"] = recipe.planned
    if recipe.tells_classes and training.data.classes:
        header["num_classes"] = training.data.classes
    if training.task.pretrained:
        header["base_model"] = "base"
    return header


def _again(training: Training, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with those repeated that a resumed run logs a second time."""
    at, steps = training.recipe.resumed_at, training.recipe.steps
    if at is None:
        return rows
    again = [row for row in rows if at - steps // 20 <= row["step"] <= at]
    cut = next((number for number, row in enumerate(rows) if row["step"] > at), len(rows))
    return [*rows[:cut], *again, *rows[cut:]]


def _rows(training: Training, recipe: Recipe) -> list[dict[str, Any]]:
    digits, names = recipe.digits, _NAMES[recipe.naming]
    rows = []
    for row in rows_logged(training, recipe):
        named = {names.get(key, key): _rounded(key, value, digits) for key, value in row.items()}
        rows.append(training.fault.logged(named))
    return rows


def _rounded(key: str, value: float, digits: int | None) -> float:
    if digits is None or key in ("step", "epoch", "scale") or not math.isfinite(value):
        return value
    return float(f"{value:.4g}") if key in ("grad", "rate") else round(value, digits)


def rows_logged(training: Training, recipe: Recipe) -> Iterator[dict[str, float]]:
    """The log as these habits have it: its cadence, its smoothing, what it leaves out."""
    every = {"every step": 1, "every 10 steps": 10, "every epoch": training.epoch}[recipe.cadence]
    smooth = None
    interval: list[float] = []
    hits: list[float] = []
    for index, (point, norm) in enumerate(zip(training.log, _norms(training), strict=True)):
        step = index + 1
        smooth = point["loss"] if smooth is None else 0.9 * smooth + 0.1 * point["loss"]
        interval.append(smooth if recipe.smoothed_log else point["loss"])
        hits += [point["hits"]] if recipe.logs_accuracy and "hits" in point else []
        row: dict[str, float] = {}
        if step % every == 0:
            mean = recipe.mean_logged or recipe.cadence == "every epoch"
            row |= {key: _one_of(values, mean=mean) for key, values in (("loss", interval), ("hits", hits)) if values}
            interval, hits = [], []
            row |= _beside_the_loss(recipe, point, norm)
        row |= {key: point[key] for key in _validation_logged(training, recipe) if key in point}
        if row:
            yield {"step": step, "epoch": step / training.epoch} | row


def _validation_logged(training: Training, recipe: Recipe) -> tuple[str, ...]:
    """What the log has of the validation samples: of classifiers the loss, the accuracy or both."""
    if not recipe.logs_validation:
        return ()
    if not training.data.classes:
        return ("val",)
    return {"loss": ("val",), "accuracy": ("accuracy",), "both": ("val", "accuracy")}[recipe.validation_logged]


def _one_of(interval: list[float], *, mean: bool) -> float:
    return float(np.mean(interval)) if mean else interval[-1]


def _beside_the_loss(recipe: Recipe, point: dict[str, float], norm: float) -> dict[str, float]:
    row = {}
    if recipe.logs_gradient:
        row["grad"] = norm
    if recipe.logs_rate:
        row["rate"] = point["rate"]
    if recipe.logs_scale and "scale" in point:
        row["scale"] = point["scale"]
    return row


def _norms(training: Training) -> Iterator[float]:
    """The gradient norm of every step, as it is logged."""
    recipe = training.recipe
    average: float | None = None
    for point in training.log:
        norm = point["grad"]
        if recipe.norm_logged == "after clipping" and recipe.clip is not None and "skipped" not in point:
            norm = min(norm, recipe.clip) if math.isfinite(norm) else norm
        if recipe.norm_logged == "running average" and "skipped" not in point:
            average = norm if average is None else 0.9 * average + 0.1 * norm
            norm = average
        yield norm


def _save(training: Training, saved: Checkpoint, folder: Path, *, is_last: bool) -> None:
    folder.mkdir(exist_ok=True)
    state: dict[str, Any] = {"optimizer_state_dict": saved.optimizer, "global_step": saved.step}
    if training.recipe.averaged and is_last:
        state["ema_state_dict"] = training.average
    torch.save(state, folder / "training_state.pt")
    weights = saved.weights
    if training.task.pretrained:
        weights = {f"base_model.model.{name}": one for name, one in weights.items() if ".lora_" in name}
    if is_last:
        weights = training.fault.saved(weights)
    name = "adapter_model.safetensors" if training.task.pretrained else "model.safetensors"
    save_file(_contiguous(weights), folder / name)


def _contiguous(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.contiguous() for name, one in weights.items()}
