"""One real training, with a fault or without, and the two things it leaves: what a user would have, and the truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults import Fault
from recipes import Recipe, rate_at
from safetensors.torch import save_file
from tasks import Data, Task, loss_of
from torch import Tensor, nn

EVALUATIONS = 24
_NAMES = (
    {"loss": "loss", "grad": "grad_norm", "rate": "lr", "val": "val_loss", "accuracy": "val_accuracy"},
    {"loss": "train/loss", "grad": "train/grad_norm", "rate": "train/learning_rate", "val": "eval/loss",
     "accuracy": "eval/accuracy"},
    {"loss": "train_loss", "grad": "gradient_norm", "rate": "learning_rate", "val": "valid_loss",
     "accuracy": "valid_acc"},
)  # fmt: skip


class Training:
    """One model, its optimizer and data, trained step by step."""

    def __init__(self, task: Task, recipe: Recipe, fault: Fault) -> None:
        torch.manual_seed(recipe.seed)
        self.task, self.fault = task, fault
        self.rng = np.random.default_rng([recipe.seed, 5])
        self.recipe = fault.recipe(recipe, task, self.rng)
        data = task.data()
        if self.recipe.samples is not None:
            data = Data(
                data.x[: self.recipe.samples], data.y[: self.recipe.samples], data.x_val, data.y_val, data.classes
            )
        self.data = fault.data(data, self.rng)
        self.model = task.build(self.recipe.dropout)
        fault.model(self.model, self.rng)
        for parameter in list(self.model.parameters())[: self.recipe.frozen]:
            parameter.requires_grad_(False)
        self.trainable = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        self.before = {name: one.detach().clone() for name, one in self.trainable.items()}
        self.optimizer = self._optimizer()
        self.order: list[int] = []
        self.done = 0
        self.log: list[dict[str, float]] = []
        self.truth: list[dict[str, float]] = []

    def _optimizer(self) -> torch.optim.Optimizer:
        given = self.fault.parameters(dict(self.trainable))
        parameters: Any = list(given.items()) if self.recipe.named else list(given.values())
        decay, rate = self.recipe.weight_decay, self.recipe.rate
        if self.recipe.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay)
        kind = torch.optim.AdamW if self.recipe.optimizer == "adamw" else torch.optim.Adam
        return kind(parameters, lr=rate, weight_decay=decay if kind is torch.optim.AdamW else 0.0)

    def run(self) -> None:
        """Train to the end, evaluating on fixed samples all along."""
        points = set(np.linspace(0, self.recipe.steps, EVALUATIONS + 1).round().astype(int).tolist())
        self._evaluate(0)
        self._log_validation(0)
        while self.done < self.recipe.steps:
            self.log.append(self._step())
            self.done += 1
            if self.done in points:
                self._evaluate(self.done)
            if self.done % self.epoch == 0 or self.done == self.recipe.steps:
                self._log_validation(self.done)

    @property
    def epoch(self) -> int:
        """Optimizer steps in an epoch; of large data sets, in the part of one that is called so."""
        whole = len(self.data.x) // (self.recipe.batch * self.recipe.accumulate)
        return max(1, min(whole, self.recipe.planned // 8))

    def _step(self) -> dict[str, float]:
        self.model.train()
        rate = rate_at(self.recipe, self.done)
        rate = self.fault.rate(rate, self.done / self.recipe.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if not self.fault.keeps_gradients:
            self.optimizer.zero_grad(set_to_none=self.recipe.seed % 2 == 0)
        losses = [self._backward() for _ in range(self.recipe.accumulate)]
        norm = float(nn.utils.clip_grad_norm_(self.trainable.values(), self.recipe.clip or float("inf")))
        extra = self.fault.step(self)
        self.fault.after_step(self)
        return {"loss": float(np.mean(losses)), "grad": norm, "rate": rate} | extra

    def _backward(self) -> float:
        rows = self._next_rows()
        x, y = self.fault.batch(self.data.x[rows], self.data.y[rows], self)
        loss = self.fault.loss(loss_of(self.model(x), y, self.recipe.smoothing))
        if loss.requires_grad:
            (loss / self.recipe.accumulate).backward()
        return float(loss.detach())

    def _next_rows(self) -> list[int]:
        if len(self.order) < self.recipe.batch:
            self.order = self.fault.order(self.rng.permutation(len(self.data.x)), self.data).tolist()
        rows, self.order = self.order[: self.recipe.batch], self.order[self.recipe.batch :]
        return rows

    @torch.no_grad()
    def _measure(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        output = self.model(x)
        hit = output.argmax(-1) == y if y.dtype == torch.int64 else torch.zeros(1)
        return float(loss_of(output, y)), float(hit.float().mean())

    def _evaluate(self, step: int) -> None:
        """The truth: the loss on fixed samples, in evaluation mode, of the sound data."""
        self.model.eval()
        data = self.fault.evaluated(self.task.data(), self.data)
        train, _ = self._measure(data.x[:200], data.y[:200])
        held_out, accuracy = self._measure(data.x_val[:200], data.y_val[:200])
        self.truth.append({"step": step, "train": train, "val": held_out, "accuracy": accuracy})

    def _log_validation(self, step: int) -> None:
        if not self.recipe.logs_validation:
            return
        if step:
            self.model.eval()
            loss, accuracy = self._measure(self.data.x_val[:200], self.data.y_val[:200])
            self.log[step - 1]["val"] = loss
            if self.data.y_val.dtype == torch.int64:
                self.log[step - 1]["accuracy"] = accuracy

    def moved(self) -> dict[str, float]:
        """By how much each trainable tensor has changed, relative to its size."""
        return {
            name: float((one.detach() - self.before[name]).norm() / (self.before[name].norm() + 1e-12))
            for name, one in self.trainable.items()
        }


def rows_logged(training: Training) -> Iterator[dict[str, float]]:
    """The log as this run's habits have it: its cadence, its smoothing, its names."""
    recipe, names = training.recipe, _NAMES[training.recipe.naming]
    every = {"every step": 1, "every 10 steps": 10, "every epoch": training.epoch}[recipe.cadence]
    smooth = None
    interval: list[float] = []
    for index, point in enumerate(training.log):
        step = index + 1
        smooth = point["loss"] if smooth is None else 0.9 * smooth + 0.1 * point["loss"]
        interval.append(smooth if recipe.smoothed_log else point["loss"])
        row: dict[str, float] = {}
        if step % every == 0 or (every == 1):
            mean = recipe.mean_logged or recipe.cadence == "every epoch"
            row[names["loss"]] = float(np.mean(interval)) if mean else interval[-1]
            interval = []
            if recipe.logs_gradient:
                row[names["grad"]] = point["grad"]
            if recipe.logs_rate:
                row[names["rate"]] = point["rate"]
            if "scale" in point:
                row["loss_scale"] = point["scale"]
        row |= {names[key]: point[key] for key in ("val", "accuracy") if key in point}
        if row:
            yield {"step": step, "epoch": step / training.epoch} | row


def leave(training: Training, folder: Path) -> None:
    """Write what a user would have: the log, the training state and the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = training.recipe
    header: dict[str, Any] = {"type": "config", "batch_size": recipe.batch, "optimizer": recipe.optimizer}
    if recipe.tells_plan:
        header["max_steps"] = recipe.planned
    if recipe.tells_classes and training.data.classes:
        header["num_classes"] = training.data.classes
    if training.task.pretrained:
        header["base_model"] = "base"
    rows = [training.fault.logged(row) for row in rows_logged(training)]
    if recipe.resumed_at is not None:
        again = [row for row in rows if recipe.resumed_at - recipe.steps // 20 <= row["step"] <= recipe.resumed_at]
        cut = next((n for n, row in enumerate(rows) if row["step"] > recipe.resumed_at), len(rows))
        rows[cut:cut] = again
    with (folder / "metrics.jsonl").open("w") as file:
        for row in [header, *rows]:
            file.write(json.dumps(row) + "\n")
    torch.save(
        {"optimizer_state_dict": training.optimizer.state_dict(), "global_step": training.done},
        folder / "training_state.pt",
    )
    kept = {name: one.detach() for name, one in training.model.state_dict().items()}
    if training.task.pretrained:
        adapter = {name: one for name, one in kept.items() if ".lora_" in name}
        save_file({f"base_model.model.{name}": one.contiguous() for name, one in adapter.items()},
                  folder / "adapter_model.safetensors")  # fmt: skip
    else:
        save_file({name: one.contiguous() for name, one in kept.items()}, folder / "model.safetensors")


def truth_of(training: Training) -> dict[str, Any]:
    """What only the one who trained it knows."""
    losses = np.array([point["loss"] for point in training.log])
    norms = np.array([point["grad"] for point in training.log])
    return {
        "task": training.task.name,
        "split": training.task.split,
        "recipe": asdict(training.recipe),
        "evaluations": training.truth,
        "moved": training.moved(),
        "losses": losses.tolist(),
        "gradients_finite": bool(np.isfinite(norms).all()),
        "steps": training.done,
    }
