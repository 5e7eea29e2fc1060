"""One real training, with a fault or without, and the truth about it."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from faults import Fault
from recipes import Recipe, momentum_at, rate_at
from tasks import Data, Task, loss_of
from torch import Tensor, nn

EVALUATIONS = 24
HALF_MAXIMUM = 65504.0
UNUSED = "pooler"
SETTLED, IDLE = 1e-3, 1e-3


@dataclass(frozen=True)
class Checkpoint:
    """What is saved at a step."""

    step: int
    optimizer: dict[str, Any]
    weights: dict[str, Tensor]


class LossScale:
    """The scale of half precision, grown and backed off as torch's GradScaler does, at a pace for short trainings."""

    def __init__(self, interval: int) -> None:
        self.scale, self.interval, self._good = 65536.0, interval, 0

    def after_step(self, *, overflowed: bool) -> None:
        self._good = 0 if overflowed else self._good + 1
        if overflowed:
            self.scale = float(np.float32(self.scale * 0.5))  # which ends at 0, as torch's does
        elif self._good == self.interval:
            self.scale, self._good = self.scale * 2.0, 0


class Training:
    """One model, its optimizer and data, trained step by step.

    ``seed``: of the initial weights, the order of the samples and the dropout; by default the recipe's. What the fault
    is, as how far off a rate is, is always drawn by the recipe's seed.
    """

    def __init__(self, task: Task, recipe: Recipe, fault: Fault, seed: int | None = None) -> None:
        torch.manual_seed(recipe.seed if seed is None else seed)
        self.task, self.fault = task, fault
        drawn = np.random.default_rng([recipe.seed, 5])
        self.rng = drawn if seed is None else np.random.default_rng([seed, 5])
        self.recipe = fault.recipe(recipe, task, drawn)
        data = task.data()
        if self.recipe.samples is not None:
            data = Data(
                data.x[: self.recipe.samples], data.y[: self.recipe.samples], data.x_val, data.y_val, data.classes
            )
        self.data = fault.data(data, drawn)
        self.model = task.build(self.recipe.dropout)
        fault.model(self.model, drawn)
        for parameter in list(self.model.parameters())[: self.recipe.frozen]:
            parameter.requires_grad_(False)
        self.trainable = {name: one for name, one in self.model.named_parameters() if one.requires_grad}
        self.before = {name: one.detach().clone() for name, one in self.trainable.items()}
        self._add_what_is_unused()
        self.shares: list[float] = []
        self.optimizer = self._optimizer()
        self.scaler = LossScale(int(drawn.choice([50, 100, 200]))) if self.recipe.half else None
        self.overflowed = False
        self.average = {name: one.detach().clone() for name, one in self.trainable.items()}
        self.earlier: Checkpoint | None = None
        self.order: list[int] = []
        self.done = 0
        self.log: list[dict[str, float]] = []
        self.truth: list[dict[str, float]] = []

    def _add_what_is_unused(self) -> None:
        """A layer that no input goes through, as the pooler of an encoder; a chain of layers would go through it."""
        if self.recipe.unused and not isinstance(self.model, nn.Sequential) and not self.task.pretrained:
            self.model.add_module(UNUSED, nn.Linear(16, 16))

    def _optimizer(self) -> torch.optim.Optimizer:
        groups = self._groups()
        rate = self.recipe.rate
        if self.recipe.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=rate, momentum=0.9)
        kind = torch.optim.AdamW if self.recipe.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, lr=rate)

    def _groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups: those of the same weight decay and the same share of the rate."""
        given = self.fault.parameters(dict(self.trainable))
        groups: dict[tuple[float, float], list[Any]] = {}
        for name, one in self.model.named_parameters():
            listed = self.recipe.lists_frozen if not one.requires_grad else name.startswith(UNUSED)
            if name in given or (listed and name not in self.trainable):
                key = self._decay_of(name, one), self._share_of(name)
                groups.setdefault(key, []).append((name, one) if self.recipe.named else one)
        self.shares = [share for _, share in groups]
        return [{"params": members, "weight_decay": decay} for (decay, _), members in groups.items()]

    def _decay_of(self, name: str, parameter: nn.Parameter) -> float:
        spared = self.recipe.groups == "no decay" and (parameter.dim() < 2 or name.endswith("bias"))
        return 0.0 if spared or self.recipe.optimizer == "adam" else self.recipe.weight_decay

    def _share_of(self, name: str) -> float:
        if self.recipe.groups != "layer rates":
            return 1.0
        if self.task.pretrained:  # as LoRA+ has it: sixteen times the rate for the matrix that begins with zeros
            return 2.0 if ".lora_B" in name else 0.125
        head = list(self.trainable)[-1].rpartition(".")[0]
        return 1.0 if name.rpartition(".")[0] == head else 0.4

    def run(self) -> None:
        """Train to the end, evaluating on fixed samples all along."""
        points = set(np.linspace(0, self.recipe.steps, EVALUATIONS + 1).round().astype(int).tolist())
        self._evaluate(0)
        self._log_validation(0)
        while self.done < self.recipe.steps:
            self.log.append(self._step())
            self.done += 1
            if self.done == self.recipe.steps - self.recipe.steps // 5:
                self.earlier = self.checkpoint()
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
        self._set_rates(rate)
        if not self.fault.keeps_gradients:
            self.optimizer.zero_grad(set_to_none=self.recipe.seed % 2 == 0)
        losses, hits = zip(*(self._backward() for _ in range(self.recipe.accumulate)), strict=True)
        self.overflowed = self._overflows()
        norm = float(nn.utils.clip_grad_norm_(self.trainable.values(), self.recipe.clip or float("inf")))
        extra = self.fault.step(self)
        self.fault.after_step(self)
        if self.recipe.averaged:
            for name, one in self.trainable.items():
                self.average[name].lerp_(one.detach(), 0.02)
        row = {"loss": float(np.mean(losses)), "grad": norm, "rate": rate * self.shares[0]}
        return row | ({"hits": float(np.mean(hits))} if self.data.classes else {}) | extra

    def _set_rates(self, rate: float) -> None:
        momentum = momentum_at(self.recipe, self.done)
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] = rate * share
            if "betas" in group:
                group["betas"] = (momentum, group["betas"][1])
            else:
                group["momentum"] = momentum

    def _overflows(self) -> bool:
        """Whether half precision could not hold the scaled gradients."""
        if self.scaler is None:
            return False
        gradients = [one.grad for one in self.trainable.values() if one.grad is not None]
        largest = max((float(one.abs().max()) for one in gradients), default=0.0)
        return not largest * self.scaler.scale <= HALF_MAXIMUM

    def update(self) -> dict[str, float]:
        """The optimizer's step, which the loss scale skips on an overflow; the scale, where there is one."""
        self.fault.before_update(self)
        if self.scaler is None:
            self.optimizer.step()
            return {}
        scale, skipped = self.scaler.scale, self.overflowed
        if not skipped:
            self.optimizer.step()
        self.scaler.after_step(overflowed=skipped)
        return {"scale": scale} | ({"grad": math.inf, "skipped": 1.0} if skipped else {})

    def checkpoint(self) -> Checkpoint:
        """What a trainer would save now."""
        weights = {name: one.detach().clone() for name, one in self.model.state_dict().items()}
        return Checkpoint(self.done, deepcopy(self.optimizer.state_dict()), weights)

    def _backward(self) -> tuple[float, float]:
        """The loss of a batch, and its accuracy: 0 where the targets are no classes."""
        rows = self._next_rows()
        x, y = self.fault.batch(self.data.x[rows], self.data.y[rows], self)
        output = self.model(x)
        loss = self.fault.loss(loss_of(output, y, self.recipe.smoothing))
        if loss.requires_grad:
            (loss / self.recipe.accumulate).backward()
        return float(loss.detach()), accuracy_of(output.detach(), y)

    def _next_rows(self) -> list[int]:
        if len(self.order) < self.recipe.batch:
            self.order = self.fault.order(self.rng.permutation(len(self.data.x)), self.data).tolist()
        rows, self.order = self.order[: self.recipe.batch], self.order[self.recipe.batch :]
        return rows

    @staticmethod
    @torch.no_grad()
    def _measure(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
        """The loss and the accuracy in evaluation mode."""
        output = model.eval()(x)
        return float(loss_of(output, y)), accuracy_of(output, y)

    def _evaluate(self, step: int) -> None:
        """The truth: the loss on fixed samples, in evaluation mode, of the sound data."""
        data = self.fault.evaluated(self.task.data(), self.data)
        train, _ = self._measure(self.model, data.x[:200], data.y[:200])
        half = len(data.x_val) // 2  # the other half is for the log
        held_out, accuracy = self._measure(self.model, data.x_val[:half][:200], data.y_val[:half][:200])
        self.truth.append({"step": step, "train": train, "val": held_out, "accuracy": accuracy})

    def _log_validation(self, step: int) -> None:
        """What the log may have of the validation samples."""
        if step:
            model = self.fault.validated(self.model)
            half = len(self.data.x_val) // 2
            loss, accuracy = self._measure(model, self.data.x_val[half:][:200], self.data.y_val[half:][:200])
            self.log[step - 1] |= {"val": loss} | ({"accuracy": accuracy} if self.data.classes else {})

    def moved(self) -> dict[str, float]:
        """By how much each trainable tensor that matters has changed, relative to its size."""
        moved = {
            name: float((one.detach() - self.before[name]).norm() / (self.before[name].norm() + 1e-12))
            for name, one in self.trainable.items()
        }
        still = [name for name, share in moved.items() if share < SETTLED and self.trainable[name].dim() == 1]
        return {name: share for name, share in moved.items() if name not in still or self._matters(name)}

    @torch.no_grad()
    def _matters(self, name: str) -> bool:
        """Whether the output depends on a tensor: not on a bias before a normalisation, or on the bias of keys."""
        model = deepcopy(self.model).train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        x = self.data.x[:64]
        before = model(x)
        model.get_parameter(name).add_(1.0 + torch.rand_like(model.get_parameter(name)))
        return not float((model(x) - before).abs().max()) < IDLE * float(before.abs().max())


def accuracy_of(output: Tensor, target: Tensor) -> float:
    """The share of right answers; 0 where the targets are no classes."""
    return float((output.argmax(-1) == target).float().mean()) if target.dtype == torch.int64 else 0.0


def truth_of(training: Training) -> dict[str, Any]:
    """What only the one who trained it knows."""
    losses = np.array([point["loss"] for point in training.log])
    # That a step is skipped now and then is how a loss scale finds its level.
    norms = np.array([point["grad"] for point in training.log if "skipped" not in point])
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
