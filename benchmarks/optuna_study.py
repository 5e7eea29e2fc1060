"""What pruning by health saves in a study, beside Optuna's MedianPruner.

    python benchmarks/optuna_study.py [--trials 60] [--steps 600]

Small networks learn to read digits. Of the settings, which are the same ones in the same order each time, two thirds
are healthy: learning rates over a factor of forty, three widths, two weight decays. A third is not: a learning rate far
too high, units that are dead from the beginning, a softmax that overflows in half precision, labels that were shuffled.
Each objective feeds its loss, gradient norm and learning rate, and reports the validation loss every twentieth step.

Steps are exact where a trial is judged whenever its history has grown (``rest=0``). Seconds are of processor time,
judging included.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, field

import numpy as np
import optuna
import torch
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from sklearn.datasets import load_digits
from torch import Tensor, nn

from tracker_health.live.optuna import CAUSE, STEP, HealthPruner

FAULTS = ("learning rate", "dead units", "overflow", "shuffled labels")
HEALTHY = "none"
CLASSES, BATCH, REPORT_EVERY, SEED = 10, 128, 20, 0


def settings(trials: int) -> list[dict[str, object]]:
    """A third of all with a fault, the kinds in turn, in a fixed disorder."""
    draw = random.Random(SEED)
    every = []
    for index in range(trials):
        fault = FAULTS[index // 3 % len(FAULTS)] if index % 3 == 0 else HEALTHY
        rate = 10 ** draw.uniform(-2.3, -0.7)
        every.append({
            "learning_rate": 10 ** draw.uniform(1, 2) if fault == "learning rate" else rate,
            "width": draw.choice([128, 256, 512]),
            "weight_decay": draw.choice([0.0, 1e-4]),
            "fault": fault,
        })  # fmt: skip
    draw.shuffle(every)
    return every


@dataclass
class Digits:
    """Samples of 64 pixels, in two parts."""

    inputs: Tensor
    labels: Tensor
    held_out_inputs: Tensor
    held_out_labels: Tensor

    @classmethod
    def load(cls, *, shuffled: bool) -> Digits:
        found = load_digits()
        order = np.random.default_rng(SEED).permutation(len(found.target))
        inputs = torch.tensor(found.data[order] / 16, dtype=torch.float32)
        labels = torch.tensor(found.target[order])
        train = 1300
        shuffle = torch.randperm(train, generator=torch.Generator().manual_seed(SEED)) if shuffled else slice(None)
        return cls(inputs[:train], labels[:train][shuffle], inputs[train:], labels[train:])


def network(width: int, *, dead: bool) -> nn.Sequential:
    net = nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )  # fmt: skip
    if dead:
        nn.init.constant_(net[2].bias, -100.0)
    return net


def overflowing_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """A softmax by hand in half precision: its exponential is infinite from 11.1 on."""
    powers = (4 * logits).half().exp()
    return -(powers / powers.sum(1, keepdim=True)).float().gather(1, labels[:, None]).clamp_min(1e-7).log().mean()


@dataclass
class Count:
    """Steps that were trained, by the fault of the trial."""

    steps: dict[str, int] = field(default_factory=dict)

    def one(self, fault: str) -> None:
        self.steps[fault] = self.steps.get(fault, 0) + 1


def objective(trial: optuna.Trial, pruner: BasePruner, steps: int, count: Count) -> float:
    rate = trial.suggest_float("learning_rate", 1e-3, 100, log=True)
    width = trial.suggest_categorical("width", [128, 256, 512])
    decay = trial.suggest_categorical("weight_decay", [0.0, 1e-4])
    fault = trial.suggest_categorical("fault", [HEALTHY, *FAULTS])
    health = pruner.health(trial) if isinstance(pruner, HealthPruner) else None
    torch.manual_seed(SEED)
    data = Digits.load(shuffled=fault == "shuffled labels")
    net = network(width, dead=fault == "dead units")
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=decay)
    loss_of = overflowing_loss if fault == "overflow" else nn.functional.cross_entropy
    held_out = float("nan")
    for step in range(steps):
        batch = torch.randint(len(data.inputs), (BATCH,))
        loss = loss_of(net(data.inputs[batch]), data.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([one.grad for one in net.parameters()])
        optimizer.step()
        count.one(fault)
        if health is not None:
            health.step(step=step, loss=loss.item(), grad_norm=norm.item(), learning_rate=rate)
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            with torch.no_grad():
                held_out = nn.functional.cross_entropy(net(data.held_out_inputs), data.held_out_labels).item()
            trial.report(held_out, step)
            if trial.should_prune():
                raise optuna.TrialPruned
    return held_out


def run(pruner: BasePruner, every: list[dict[str, object]], steps: int) -> tuple[optuna.Study, Count, float]:
    """A study of all these settings."""
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.TPESampler(seed=SEED))
    for one in every:
        study.enqueue_trial(one)
    count = Count()
    begin = time.process_time()
    study.optimize(lambda trial: objective(trial, pruner, steps, count), n_trials=len(every))
    return study, count, time.process_time() - begin


def row(name: str, study: optuna.Study, count: Count, seconds: float, steps: int) -> str:
    healthy = [trial for trial in study.trials if trial.params["fault"] == HEALTHY]
    faulty = [trial for trial in study.trials if trial.params["fault"] != HEALTHY]
    pruned = [[trial for trial in some if trial.state.name == "PRUNED"] for some in (healthy, faulty)]
    trained = sum(count.steps.values())
    of_faulty = trained - count.steps.get(HEALTHY, 0)
    some = f"{f'{len(pruned[0])} of {len(healthy)}':>14} {f'{len(pruned[1])} of {len(faulty)}':>13}"
    return (
        f"{name:<28} {trained:>6} ({trained / len(study.trials) / steps:>4.0%}) {of_faulty:>6} {seconds:>7.1f} "
        f"{study.best_value:>8.4f} {some}"
    )


def faults(study: optuna.Study) -> list[str]:
    """Of each kind of fault how many trials were pruned, at which steps, and the causes that were named."""
    lines = []
    for fault in (HEALTHY, *FAULTS):
        trials = [trial for trial in study.trials if trial.params["fault"] == fault]
        stopped = [trial.user_attrs for trial in trials if STEP in trial.user_attrs]
        at = sorted(one[STEP] for one in stopped)
        causes = sorted({one.get(CAUSE, "no one cause") for one in stopped})
        lines.append(f"  {fault:<16} {len(stopped)} of {len(trials)}, at steps {at}: {', '.join(causes) or '-'}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    every, plan = settings(options.trials), options.steps - 1
    by_health = {"plan": plan, "params": {"num_classes": CLASSES}}
    ways: dict[str, BasePruner] = {
        "no pruner": NopPruner(),
        "HealthPruner": HealthPruner(rest=0, **by_health),
        "MedianPruner": MedianPruner(),
        "HealthPruner beside Median": HealthPruner(rest=0, beside=MedianPruner(), **by_health),
    }
    print(
        f"{'':<28} {'steps':>13} {'faulty':>6} {'seconds':>7} {'best':>8} {'healthy pruned':>10} {'faulty pruned':>10}"
    )
    details = []
    for name, pruner in ways.items():
        study, count, seconds = run(pruner, every, options.steps)
        print(row(name, study, count, seconds, options.steps), flush=True)
        if name == "HealthPruner":
            details = faults(study)
    print("\nHealthPruner, by fault:", *details, sep="\n")


if __name__ == "__main__":
    main()
