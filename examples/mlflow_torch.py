"""Train a small network on handwritten digits and log it to MLflow; one line has each run judged when it ends.

    pip install 'tracker-health[charts,mlflow]' torch scikit-learn
    python examples/mlflow_torch.py                        # a healthy run
    python examples/mlflow_torch.py --learning-rate 30     # one that is not

The verdict is on the run, and one line of it on standard error.
"""

from __future__ import annotations

import argparse

import mlflow
import torch
from sklearn.datasets import load_digits

import tracker_health


def main() -> None:
    """Train for a few epochs, and log the loss of each step."""
    tracker_health.autolog()
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    images, labels = (torch.tensor(one) for one in load_digits(return_X_y=True))
    images = images.float() / 16
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    step = 0
    with mlflow.start_run():
        mlflow.log_params({**vars(options), "num_classes": 10})
        for _ in range(options.epochs):
            for batch in torch.randperm(len(images)).split(128):
                loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                mlflow.log_metric("loss", loss.item(), step=step)
                step += 1
    print(f"{step} steps")


if __name__ == "__main__":
    main()
