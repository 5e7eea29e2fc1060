"""Train a small network on handwritten digits and log it to W&B offline: no account, no network.

    pip install wandb scikit-learn
    python examples/wandb_offline.py                        # a healthy run
    python examples/wandb_offline.py --learning-rate 3      # one that is not

The last line that it prints is the command that judges the run and writes the verdict into it.
"""

from __future__ import annotations

import argparse

import wandb
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def main() -> None:
    """Train for a few epochs, and log both losses and the accuracy after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    train_x, val_x, train_y, val_y = train_test_split(images / 16.0, labels, random_state=0)
    model = MLPClassifier((64,), learning_rate_init=options.learning_rate, random_state=0)
    with wandb.init(mode="offline", project="digits", config={**vars(options), "num_classes": 10}) as run:
        for epoch in range(options.epochs):
            model.partial_fit(train_x, train_y, classes=range(10))
            validation = log_loss(val_y, model.predict_proba(val_x), labels=range(10))
            accuracy = model.score(val_x, val_y)
            run.log({"epoch": epoch, "train": {"loss": model.loss_}, "val": {"loss": validation}, "accuracy": accuracy})
        folder = run.settings.sync_dir
    print(f"tracker-health annotate {folder}")


if __name__ == "__main__":
    main()
