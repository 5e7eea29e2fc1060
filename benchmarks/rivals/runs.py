"""Ten runs with a known truth, each trained on the spot in a second or two, with as many seeds as wanted.

Every run leaves ``metrics.jsonl`` (step, loss, eval_loss, lr, grad_norm) and ``checkpoint.pt`` with weights and
optimizer state. What a run is called is measured as well: a run that does not come out as its truth says is an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

INPUTS, CLASSES, HELD_OUT = 20, 10, 500
STEPS, EVALUATIONS = 400, 20
CHANCE = math.log(CLASSES)

Rows = list[dict[str, float]]
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Run:
    """One run: what is true of it, how it is made, and how the truth is measured on what was logged.

    ``names``: what a finding must say to name the fault; empty for a healthy run.
    """

    name: str
    names: str
    truth: str
    train: Callable[[Path], Rows]
    holds: Callable[[Rows], bool]

    def make(self, folder: Path, seed: int = 0) -> None:
        """Train it into a folder. The seed is of the model and the batches; the data are the same.

        Raises:
            SystemExit: It did not come out as its truth says.
        """
        folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        rows = self.train(folder)
        if not self.holds(rows):
            raise SystemExit(f"{self.name}: the training did not come out as its truth says; see {folder}")
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@dataclass
class Classifier:
    """A classifier of noisy clusters, trained well unless a field says otherwise."""

    rate: float = 3e-3
    batch: int = 64
    samples: int = 3000
    steps: int = STEPS
    every: int = 5
    mislabelled: float = 0.0
    clip: float = 1.0
    warm_up_to_the_end: bool = False
    adam: bool = True
    detached: bool = False
    zero_for_nan: bool = False
    spoil: Callable[[int, Tensor, Tensor], Batch] = field(default=lambda _step, x, y: (x, y))

    def __call__(self, folder: Path) -> Rows:
        x, y, held_out = self._data()
        model = nn.Sequential(
            nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
        )  # fmt: skip
        if self.detached:
            model[2].register_forward_hook(lambda _module, _input, output: output.detach())
        kind = torch.optim.AdamW if self.adam else torch.optim.SGD
        optimizer = kind(model.parameters(), lr=self.rate)
        rows = list(self._steps(model, optimizer, (x, y), held_out))
        state = {"model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict()}
        torch.save(state | {"step": self.steps}, folder / "checkpoint.pt")
        return rows

    def _data(self) -> tuple[Tensor, Tensor, Batch]:
        """Training inputs and targets, and the held-out ones."""
        draw = torch.Generator().manual_seed(1)
        centres = 0.8 * torch.randn(CLASSES, INPUTS, generator=draw)
        y = torch.randint(CLASSES, (self.samples + HELD_OUT,), generator=draw)
        x = centres[y] + torch.randn(len(y), INPUTS, generator=draw)
        wrong = torch.rand(len(y), generator=draw) < self.mislabelled
        y = torch.where(wrong, torch.randint(CLASSES, y.shape, generator=draw), y)
        return x[HELD_OUT:], y[HELD_OUT:], (x[:HELD_OUT], y[:HELD_OUT])

    def _steps(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, data: Batch, held_out: Batch
    ) -> Iterator[dict[str, float]]:
        recent: list[float] = []
        for step in range(1, self.steps + 1):
            rate = self._rate(step)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss, norm = self._step(model, optimizer, data, step)
            recent.append(loss)
            if step % self.every:
                continue
            mean, recent = sum(recent) / len(recent), []
            row = {"step": step, "loss": 0.0 if self.zero_for_nan and math.isnan(mean) else mean}
            row |= {"lr": rate, "grad_norm": norm}
            yield row | (
                {"eval_loss": self._evaluate(model, held_out)} if step % (self.steps // EVALUATIONS) == 0 else {}
            )

    def _rate(self, step: int) -> float:
        done = step / self.steps
        return self.rate * (done if self.warm_up_to_the_end else 1.0 - 0.99 * done)

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, data: Batch, step: int) -> tuple[float, float]:
        rows = torch.randint(len(data[0]), (self.batch,))
        x, y = self.spoil(step, data[0][rows], data[1][rows])
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), self.clip))
        optimizer.step()
        return float(loss.detach()), norm

    @staticmethod
    @torch.no_grad()
    def _evaluate(model: nn.Module, held_out: Batch) -> float:
        return float(functional.cross_entropy(model(held_out[0]), held_out[1]))


def without_signal(folder: Path) -> Rows:
    """A policy trained on answers in groups of eight, where no answer ever earns a reward: TRL's names of metrics."""
    groups, size, length, vocabulary = 8, 8, 12, 32
    policy = nn.Sequential(nn.Linear(groups, 64), nn.Tanh(), nn.Linear(64, length * vocabulary))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.0)
    prompts = torch.eye(groups)
    wanted = torch.randint(vocabulary, (groups, 1, length))
    rows = []
    for step in range(1, 201):
        chances = policy(prompts).view(groups, 1, length, vocabulary).expand(-1, size, -1, -1).log_softmax(-1)
        answers = torch.distributions.Categorical(logits=chances).sample()
        reward = (answers == wanted).all(-1).float()
        advantage = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)
        taken = chances.gather(-1, answers[..., None]).squeeze(-1)
        loss = -(advantage[..., None] * (taken - taken.detach()).exp()).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(policy.parameters(), 1.0))
        optimizer.step()
        rows.append(_logged(step, loss, norm, reward, -(chances.exp() * chances).sum(-1).mean()))
    torch.save(
        {"model_state_dict": policy.state_dict(), "optimizer_state_dict": optimizer.state_dict(), "step": 200},
        folder / "checkpoint.pt",
    )
    return rows


def _logged(step: int, loss: Tensor, norm: float, reward: Tensor, entropy: Tensor) -> dict[str, float]:
    """A row of the log; 0.0 is added because the loss is -0.0."""
    return {
        "step": step, "loss": float(loss.detach()) + 0.0, "grad_norm": norm, "learning_rate": 1e-3,
        "reward": float(reward.mean()), "reward_std": float(reward.std(1).mean()),
        "frac_reward_zero_std": float((reward.std(1) == 0).float().mean()), "entropy": float(entropy.detach()),
    }  # fmt: skip


def _nan_sample(step: int, x: Tensor, y: Tensor) -> Batch:
    return (x * (math.nan if step == 240 else 1.0), y)


def _outlier(step: int, x: Tensor, y: Tensor) -> Batch:
    return (x * (40.0 if step == 200 else 1.0), y)


def _guessed(_step: int, x: Tensor, y: Tensor) -> Batch:
    return x, torch.randint(CLASSES, y.shape)


def _of(rows: Rows, name: str) -> list[float]:
    return [row[name] for row in rows if name in row]


def _ends_well(rows: Rows) -> bool:
    """The held-out loss fell to less than a third of chance level, and stayed within a tenth of its best."""
    held_out = _of(rows, "eval_loss")
    return held_out[-1] < CHANCE / 3 and held_out[-1] < 1.1 * min(held_out)


def _ends_nan(rows: Rows) -> bool:
    return math.isfinite(rows[0]["loss"]) and math.isnan(_of(rows, "eval_loss")[-1])


RUNS = (
    Run("healthy", "", "A classifier that learns and finishes its schedule.", Classifier(), _ends_well),
    Run("healthy-noisy", "",
        "A fifth of the labels is drawn at random, and a batch has four samples. The loss is noisy, and falls.",
        Classifier(batch=4, mislabelled=0.2, every=1, rate=2e-3, steps=1000),
        lambda rows: _of(rows, "eval_loss")[-1] < 0.75 * CHANCE),
    Run("healthy-spike", "", "One batch of outliers at step 200. The loss jumps once and is back within a few steps.",
        Classifier(spoil=_outlier, every=1),
        lambda rows: _ends_well(rows) and rows[199]["loss"] > 10 * rows[189]["loss"]),
    Run("nan", "the loss is NaN",
        "A sample that is NaN reaches the weights at step 240. Every loss after it is NaN.",
        Classifier(spoil=_nan_sample), lambda rows: _ends_nan(rows) and math.isnan(rows[-1]["loss"])),
    Run("diverged", "the loss diverged",
        "The learning rate rises until the end, to far too much. The loss falls, then climbs.",
        Classifier(adam=False, rate=12.0, clip=math.inf, warm_up_to_the_end=True),
        lambda rows: math.isfinite(rows[-1]["loss"]) and rows[-1]["loss"] > 2 * min(_of(rows, "loss"))),
    Run("chance-level", "nothing is learned, or the loss is at chance level",
        "Labels are drawn at random in every batch. The loss stays at ln 10.",
        Classifier(spoil=_guessed), lambda rows: abs(sum(_of(rows[-20:], "loss")) / 20 - CHANCE) < 0.05),
    Run("overfit", "the model overfits",
        "Sixty samples, a third of them mislabelled. The training loss goes to 0 while the held-out loss climbs.",
        Classifier(samples=60, mislabelled=0.35),
        lambda rows: rows[-1]["loss"] < 0.05 and rows[-1]["eval_loss"] > 1.3 * min(_of(rows, "eval_loss"))),
    Run("hidden-nan", "something is NaN: the gradients, the held-out loss or the weights",
        "The same NaN at step 240. The trainer logs 0.0 for a training loss of NaN; the gradient norm is NaN.",
        Classifier(spoil=_nan_sample, zero_for_nan=True),
        lambda rows: _ends_nan(rows) and rows[-1]["loss"] == 0.0 and math.isnan(rows[-1]["grad_norm"])),
    Run("no-gradient", "layers get no gradient, or are not trained",
        "The output of the second layer is detached. The first two layers get no gradient, the last one learns.",
        Classifier(detached=True), lambda rows: rows[-1]["loss"] < 0.65 * CHANCE),
    Run("no-reward", "the reward is 0 or gives no signal",
        "Reinforcement learning in groups (GRPO) in which no answer ever earns a reward.",
        without_signal, lambda rows: not any(_of(rows, "reward"))),
)  # fmt: skip
"""Chosen and written down before any tool saw them. They are not exchanged afterwards."""
