"""Search a learning rate with Optuna. Trials that are plainly going wrong are pruned, and say why.

pip install 'tracker-health[optuna,torch]' scikit-learn
python examples/optuna_study.py
"""

from __future__ import annotations

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

from tracker_health.live.optuna import CAUSE, STEP, HealthPruner

STEPS = 300
data = load_digits()
inputs, labels = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
train, held_out = slice(0, 1300), slice(1300, None)

pruner = HealthPruner(plan=STEPS, beside=optuna.pruners.MedianPruner(), params={"num_classes": 10})


def objective(trial: optuna.Trial) -> float:
    rate = trial.suggest_float("learning_rate", 1e-3, 1e3, log=True)
    health = pruner.health(trial)  # tracker_health judges what the objective feeds it
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    held_out_loss = float("nan")
    for step in range(STEPS):
        batch = torch.randint(1300, (64,))
        loss = nn.functional.cross_entropy(net(inputs[train][batch]), labels[train][batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        health.step(step=step, loss=loss.item(), learning_rate=rate)
        if step % 20 == 19:
            with torch.no_grad():
                held_out_loss = nn.functional.cross_entropy(net(inputs[held_out]), labels[held_out]).item()
            trial.report(held_out_loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
    return held_out_loss


def main() -> None:
    torch.manual_seed(0)
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=12)
    for trial in study.trials:
        why = (
            f"{trial.user_attrs.get(CAUSE, 'unhealthy')} at step {trial.user_attrs[STEP]}"
            if STEP in trial.user_attrs
            else ""
        )
        print(f"{trial.number:>2} {trial.state.name:<8} learning_rate={trial.params['learning_rate']:<10.3g} {why}")
    print(f"best: learning_rate={study.best_params['learning_rate']:.3g}, loss {study.best_value:.3f}")


if __name__ == "__main__":
    main()
