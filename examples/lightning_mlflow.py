"""Train a small network with Lightning, which logs to MLflow; one line has the run judged when it ends.

    pip install 'tracker-health[charts,mlflow,lightning]' scikit-learn
    python examples/lightning_mlflow.py                        # a healthy run
    python examples/lightning_mlflow.py --learning-rate 30     # one that is not

The verdict is on the run, and one line of it on standard error.
"""

from __future__ import annotations

import argparse

import mlflow
import pytorch_lightning
import torch
from pytorch_lightning.loggers import MLFlowLogger
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import tracker_health


class Digits(pytorch_lightning.LightningModule):
    """A perceptron for handwritten digits."""

    def __init__(self, learning_rate: float) -> None:  # noqa: ARG002  Lightning takes it from here
        super().__init__()
        self.save_hyperparameters()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch, which Lightning logs."""
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Momentum."""
        return torch.optim.SGD(self.parameters(), lr=self.hparams["learning_rate"], momentum=0.9)


def main() -> None:
    """Train for a few epochs; Lightning logs the loss of each step."""
    tracker_health.autolog()
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=0.1)
    options = parser.parse_args()
    pytorch_lightning.seed_everything(0)
    images, labels = (torch.tensor(one) for one in load_digits(return_X_y=True))
    data = DataLoader(TensorDataset(images.float() / 16, labels), batch_size=128, shuffle=True)
    trainer = pytorch_lightning.Trainer(
        max_epochs=10,
        log_every_n_steps=1,
        logger=MLFlowLogger(run_name="digits", tracking_uri=mlflow.get_tracking_uri()),
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Digits(options.learning_rate), data)


if __name__ == "__main__":
    main()
