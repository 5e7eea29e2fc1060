"""Train a tiny GPT-2 with the Trainer of transformers, which logs to MLflow; one line has the run judged when it ends.

    pip install 'tracker-health[charts,mlflow,transformers]'
    python examples/transformers_mlflow.py                        # a healthy run
    python examples/transformers_mlflow.py --learning-rate 10     # one that is not

The model is made from a configuration and learns to count: nothing is downloaded. The verdict is on the run, and one
line of it on standard error.
"""

from __future__ import annotations

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import tracker_health

WORDS, LENGTH = 32, 16


def main() -> None:
    """Train for a hundred steps; the Trainer logs the loss of each."""
    tracker_health.autolog()
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=0.003)
    options = parser.parse_args()
    torch.manual_seed(0)
    starts = torch.randint(WORDS, (256,))
    counting = [(start + torch.arange(LENGTH)) % WORDS for start in starts]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        "out",
        report_to=["mlflow"],
        run_name="counting",
        learning_rate=options.learning_rate,
        max_steps=150,
        logging_steps=1,
        per_device_train_batch_size=16,
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model, arguments, train_dataset=[{"input_ids": one, "labels": one} for one in counting]).train()


if __name__ == "__main__":
    main()
