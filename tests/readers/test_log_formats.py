"""Logs of every format: what is read of them, and that what is no log costs nothing."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.config import Config
from tracker_health.errors import ReadError
from tracker_health.evidence import StepUnit
from tracker_health.judge.engine import needs_of
from tracker_health.readers.log_formats import read_log
from tracker_health.readers.log_formats.csv_table import CsvTable
from tracker_health.readers.log_formats.event_file import EventFile
from tracker_health.readers.log_formats.json_history import JsonHistory
from tracker_health.readers.log_formats.numbers import as_written
from tracker_health.readers.log_formats.row_kinds import RowKind
from tracker_health.readers.log_formats.step_log import StepLog
from tracker_health.readers.log_formats.text_lines import TextLines
from tracker_health.readers.log_formats.text_pairs import Pairs
from tracker_health.roles import RolePlan, assign
from tracker_health.stores.folder.directory import DirectoryRun

LAW = settings(deadline=None, max_examples=draws(100))
E = StepUnit.EPOCH


def read(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_log(path, path.name, RolePlan(every=True))


def points(log):
    return {one.name: list(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for one in log.series}


@pytest.fixture
def text(tmp_path):
    """The points of a console log."""

    def of(content):
        log, form = read(tmp_path / "console.log", content)
        assert isinstance(form, TextLines)
        return points(log)

    return of


# Console logs


def test_nanogpt(text):
    found = text(
        "step 0: train loss 4.2, val loss 4.3\n"
        "iter 0: loss 4.2, time 45.12ms, mfu -100.00%\n"
        "iter 10: loss 3.2, time 5.12ms, mfu 31.00%\n"
        "step 250: train loss 1.9, val loss 2.0\n"
        "iter 250: loss nan, time 5.12ms, mfu 31.00%\n"
    )
    assert found["val loss"] == [(0, 4.3), (250, 2.0)]
    assert found["train loss"] == [(0, 4.2), (250, 1.9)]
    assert found["loss"][:2] == [(0, 4.2), (10, 3.2)]
    assert math.isnan(found["loss"][2][1])


HF = (
    "{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}\n"
    "{'loss': 0.4, 'grad_norm': nan, 'learning_rate': 4e-05, 'epoch': 1.0}\n"
    "{'eval_loss': 0.45, 'eval_runtime': 3.2, 'epoch': 1.0}\n"
    "{'loss': '0.3', 'grad_norm': '1.0', 'learning_rate': '3e-05', 'epoch': '1.1'}\n"
    "{'train_runtime': 33.0, 'train_loss': 0.4, 'epoch': 2.0}\n"
)


def test_dictionaries_of_the_trainer(text):
    found = text(HF)
    assert found["loss"] == [(1, 0.5), (2, 0.4), (3, 0.3)]
    assert found["eval_loss"] == [(2, 0.45)]
    assert found["learning_rate"] == [(1, 5e-05), (2, 4e-05), (3, 3e-05)]
    assert [value for _, value in found["epoch"]] == [0.1, 1.0, 1.0, 1.1, 2.0]


# ruff: noqa: ISC004
LINES = {
    "a logger's prefix": (
        "2024-05-01 12:00:00,123 INFO train.py:12 step 100 loss=0.52\n2024-05-01 12:00:01,124 INFO train.py:12 step 110 loss=0.51\n",
        {"loss": [(100, 0.52), (110, 0.51)]},
    ),
    "no step at all": (
        "loss: 0.52 | lr: 1e-4\nloss: 0.50 | lr: 1e-4\nval_loss: 0.7\nloss: 0.4 | lr: 1e-5\n",
        {"loss": [(1, 0.52), (2, 0.5), (3, 0.4)], "lr": [(1, 1e-4), (2, 1e-4), (3, 1e-5)], "val_loss": [(2, 0.7)]},
    ),
    "Lightning's bar": (
        "\rEpoch 0:  50%|█████     | 50/100 [00:01<00:01, 45.1it/s, v_num=0, train_loss=0.5]"
        "\rEpoch 0: 100%|██████████| 100/100 [00:02<00:00, 45.1it/s, v_num=0, train_loss=0.4]"
        "\rEpoch 1:  50%|█████     | 50/100 [00:01<00:01, 45.1it/s, v_num=0, train_loss=0.3]\n",
        {"train_loss": [(50, 0.5), (100, 0.4), (150, 0.3)]},
    ),
    "tqdm, a bar for each epoch": (
        "\r 50%|█████     | 50/100 [00:01<00:01, 45.1it/s, loss=0.5]\r100%|██████████| 100/100 [00:02<00:00, 45.1it/s, loss=0.4]\n"
        "\r 50%|█████     | 50/100 [00:01<00:01, 45.1it/s, loss=0.3]\n",
        {"loss": [(50, 0.5), (100, 0.4), (150, 0.3)]},
    ),
    "tqdm where there is no room for a bar": (
        "\r 50/100 [00:01<00:01, 45.1it/s, loss=0.5]\r 100/100 [00:02<00:00, 45.1it/s, loss=0.4]\n",
        {"loss": [(50, 0.5), (100, 0.4)]},
    ),
    "Keras": (
        "Epoch 1/3\n\r 10/469 [>....] - ETA: 5s - loss: 0.9\r469/469 [=====] - 5s 10ms/step - loss: 0.5 - val_loss: 0.6\n"
        "Epoch 2/3\n469/469 ━━━━━━━━━━━━ 5s 10ms/step - loss: 0.4 - val_loss: 0.55\n",
        {"loss": [(1, 0.5), (2, 0.4)], "val_loss": [(1, 0.6), (2, 0.55)]},
    ),
    "PyTorch's example": (
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300000\nTrain Epoch: 1 [1280/60000 (2%)]\tLoss: 2.200000\n\n"
        "Test set: Average loss: 0.3100, Accuracy: 9000/10000 (90%)\n\nTrain Epoch: 2 [640/60000 (1%)]\tLoss: 2.00000\n",
        {"Loss": [(640, 2.3), (1280, 2.2), (60640, 2.0)], "test/Average loss": [(60000, 0.31)]},
    ),
    "steps in epochs": (
        "Epoch [1/10], Step [100/600], Loss: 0.5\nEpoch [1/10], Step [200/600], Loss: 0.4\nEpoch [2/10], Step [100/600], Loss: 0.3\n",
        {"Loss": [(100, 0.5), (200, 0.4), (700, 0.3)]},
    ),
    "a line an epoch": (
        "Epoch 1/3 - train_loss: 0.5 - val_loss: 0.6\nEpoch 2/3 - train_loss: 0.4 - val_loss: 0.55\n",
        {"train_loss": [(1, 0.5), (2, 0.4)], "val_loss": [(1, 0.6), (2, 0.55)]},
    ),
    "colours": (
        "\x1b[32m[Step 10]\x1b[0m loss: \x1b[1m0.5\x1b[0m lr=1e-4\n\x1b[32m[Step 20]\x1b[0m loss: \x1b[1m0.4\x1b[0m lr=1e-4\n",
        {"loss": [(10, 0.5), (20, 0.4)], "lr": [(10, 1e-4), (20, 1e-4)]},
    ),
    "Megatron": (
        " iteration      100/  500000 | learning rate: 1.5E-04 | lm loss: 6.5E+00 | loss scale: 1.0 | grad norm: 1.2 |\n"
        " iteration      200/  500000 | learning rate: 1.5E-04 | lm loss: 6.1E+00 | loss scale: 1.0 | grad norm: 1.1 |\n",
        {"lm loss": [(100, 6.5), (200, 6.1)], "grad norm": [(100, 1.2), (200, 1.1)]},
    ),
    "held-out data": (
        "step 5 loss: 1.0\n[eval] step 5 loss: 2.0\nstep 10 loss: 0.5\nValidation: step 10, loss: 1.5\n",
        {"loss": [(5, 1.0), (10, 0.5)], "eval/loss": [(5, 2.0)], "validation/loss": [(10, 1.5)]},
    ),
    "a table": (
        "INFO step nll↓ kl loss↓ gnorm\nINFO   0  2.10 0.00 2.10 1.5\nINFO   6  1.90 0.01 1.90 nan\nINFO  12  1.80 0.02 1,234.5 1.2k\n",
        {"nll": [(0, 2.1), (6, 1.9), (12, 1.8)], "loss": [(0, 2.1), (6, 1.9), (12, 1234.5)]},
    ),
    "large numbers": (
        "step 1 loss=1,234.5 lr=1e-3\nstep 2 loss=1.2k lr=1e-3\nstep 3 loss=-inf lr=.5\n",
        {"loss": [(1, 1234.5), (2, 1200.0), (3, -math.inf)], "lr": [(1, 1e-3), (2, 1e-3), (3, 0.5)]},
    ),
    "dictionaries in the line of a bar": (
        "\r 10%|█         | 20/200 [00:20<03:00,  1.00s/it]{'loss': 2.5, 'epoch': 0.1}\n{'loss': 2.3, 'epoch': 0.2}\n"
        "\r 20%|██        | 41/200 [00:40<03:00,  1.00s/it]\n{'loss': 2.0, 'epoch': 0.3}\n",
        {"loss": [(20, 2.5), (40, 2.3), (60, 2.0)], "epoch": [(20, 0.1), (40, 0.2), (60, 0.3)]},
    ),
    "a bar that is called steps": (
        "\rSteps:   0%|          | 1/1000 [00:02<40:00,  2.40s/it, lr=1e-5, step_loss=0.12]"
        "\rSteps:   0%|          | 2/1000 [00:04<40:00,  2.40s/it, lr=1e-5, step_loss=0.11]\n",
        {"step_loss": [(1, 0.12), (2, 0.11)]},
    ),
    "a bar of an evaluation": (
        "\rTraining: 100%|██| 100/100 [00:10<00:00, 10it/s, loss=0.4]\n\rValidating: 100%|██| 10/10 [00:01<00:00, 10it/s, loss=0.6]\n"
        "\rTraining:  10%|█ | 10/100 [00:01<00:09, 10it/s, loss=0.35]\n\rValidating: 100%|██| 10/10 [00:01<00:00, 10it/s, loss=0.5]\n",
        {"loss": [(100, 0.4), (110, 0.35)], "validation/loss": [(100, 0.6), (110, 0.5)]},
    ),
    "a bar that repeats the last validation": (
        "\rEpoch 0: 100%|██| 100/100 [00:02<00:00, 45it/s, loss=0.4, val_loss=0.6]\rEpoch 1: 50%|█ | 50/100 [00:01<00:01, 45it/s, loss=0.3, val_loss=0.6]"
        "\rEpoch 1: 100%|██| 100/100 [00:02<00:00, 45it/s, loss=0.2, val_loss=0.6]\n",
        {"loss": [(100, 0.4), (150, 0.3), (200, 0.2)], "val_loss": [(100, 0.6), (200, 0.6)]},
    ),
    "Keras going back over its bar": (
        "Epoch 1/2\n" + "\b" * 40 + "10/469 [>....] - ETA: 5s - loss: 0.9" + "\b" * 40 + "469/469 [=====] - 5s 10ms/step - loss: 0.5\n"
        "Epoch 2/2\n" + "\b" * 40 + "469/469 [=====] - 5s 10ms/step - loss: 0.4\n",
        {"loss": [(1, 0.5), (2, 0.4)], "ETA": None},
    ),
    "Keras without a bar, resumed, and what evaluate prints": (
        "Epoch 5/6\n100/100 - 2s - 5ms/step - loss: 0.5 - val_loss: 0.6\nEpoch 6/6\n100/100 - 2s - loss: 0.4 - val_loss: 0.5\n10/10 - 0s - loss: 0.7\n",
        {"loss": [(5, 0.5), (6, 0.4)], "val_loss": [(5, 0.6), (6, 0.5)]},
    ),
    "a line as Keras has it for every batch": (
        "Epoch 1/2\n1/3 - 1s - loss: 0.9 - lr: 1e-3\n2/3 - 1s - loss: 0.8 - lr: 1e-3\n3/3 - 1s - loss: 0.7 - lr: 1e-3\n"
        "Epoch 2/2\n1/3 - 1s - loss: 0.6 - lr: 1e-3\n2/3 - 1s - loss: 0.5 - lr: 1e-3\n3/3 - 1s - loss: 0.4 - lr: 1e-3\n",
        {"loss": [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6), (5, 0.5), (6, 0.4)]},
    ),
    "a line as Keras has it, of batches that are counted on": (
        "Epoch 1/2\n1/6 - 1s - loss: 0.9\nEpoch 1/2\n2/6 - 1s - loss: 0.8\nEpoch 1/2\n3/6 - 1s - loss: 0.7\n"
        "Epoch 2/2\n4/6 - 1s - loss: 0.6\nEpoch 2/2\n5/6 - 1s - loss: 0.5\nEpoch 2/2\n6/6 - 1s - loss: 0.4\n",
        {"loss": [(1, 0.9), (2, 0.8), (3, 0.7), (4, 0.6), (5, 0.5), (6, 0.4)]},
    ),
    "a line of Keras's that was cut off amid an epoch": (
        "Epoch 1/3\n100/100 - 5s - loss: 0.9 - val_loss: 1.0\nEpoch 2/3\n100/100 - 5s - loss: 0.8 - val_loss: 0.9\nEpoch 3/3\n57/100 - 3s - loss: 0.7\n",
        {"loss": [(1, 0.9), (2, 0.8)], "val_loss": [(1, 1.0), (2, 0.9)]},
    ),
    "Megatron's validation": (
        " iteration      100/  500000 | lm loss: 6.5E+00 |\n validation loss at iteration 100 | lm loss value: 6.0E+00 | lm loss PPL: 4.03E+02 |\n",
        {"lm loss": [(100, 6.5)], "validation/lm loss value": [(100, 6.0)]},
    ),
    "torchtitan's validation": (
        "step: 20  loss:  9.8  memory: 14.97GiB(15.76%)\nvalidate step: 20  loss:  9.9  memory: 14.97GiB(15.76%)\n",
        {"loss": [(20, 9.8)], "validation/loss": [(20, 9.9)]},
    ),
    "fairseq's means of an epoch": (
        "INFO | train_inner | epoch 001:    100 / 500 loss=9.5, num_updates=100\nINFO | train | epoch 001 | loss 8.9 | num_updates 500\n"
        "INFO | train_inner | epoch 002:    100 / 500 loss=7.5, num_updates=600\nINFO | train | epoch 002 | loss 7.1 | num_updates 1000\n",
        {"loss": [(100, 9.5), (600, 7.5)], "train_loss": [(500, 8.9), (1000, 7.1)]},
    ),
    "OLMo's blocks": (
        "INFO [step=10/5000,epoch=1]\n    optim/total_grad_norm=4.5\n    train/CrossEntropyLoss=9.8\n"
        "INFO [step=20/5000,epoch=1]\n    optim/total_grad_norm=3.5\n    train/CrossEntropyLoss=8.8\n",
        {"optim/total_grad_norm": [(10, 4.5), (20, 3.5)], "train/CrossEntropyLoss": [(10, 9.8), (20, 8.8)]},
    ),
    "OpenMMLab": (
        "Epoch(train)  [1][  50/7330]  lr: 1e-3  eta: 10:00:00  loss: 2.3\nEpoch(train)  [1][ 100/7330]  lr: 1e-3  eta: 1 day, 10:00:00  loss: 2.1\n"
        "Epoch(val) [1][625/625]  loss: 2.2\nEpoch(train)  [2][  50/7330]  lr: 1e-3  eta: 9:00:00  loss: 1.3\n",
        {"loss": [(50, 2.3), (100, 2.1), (7380, 1.3)], "val/loss": [(7330, 2.2)]},
    ),
    "OpenMMLab by iterations": (
        "Iter(train) [   50/80000]  lr: 1e-3  loss: 2.3\nIter(train) [  100/80000]  lr: 1e-3  loss: 2.1\n", {"loss": [(50, 2.3), (100, 2.1)]},
    ),
    "timm": (
        "Train: 0 [   0/1251 (  0%)]  Loss: 6.95 (6.95)  LR: 1e-06\nTrain: 0 [  50/1251 (  4%)]  Loss: 6.90 (6.93)  LR: 1e-06\n"
        "Test: [   0/195]  Time: 1.0 (1.0)  Loss:   6.8 (6.8)\nTrain: 1 [   0/1251 (  0%)]  Loss: 6.80 (6.80)  LR: 2e-04\n",
        {"Loss": [(0, 6.95), (50, 6.9), (1251, 6.8)], "test/Loss": None},
    ),
    "torchvision": (
        "Epoch: [0]  [   0/5004]  eta: 3:12:00  lr: 0.1  loss: 6.91 (6.91)\nEpoch: [0]  [  20/5004]  eta: 1:12:00  lr: 0.1  loss: 6.81 (6.85)\n"
        "Averaged stats: lr: 0.1  loss: 6.7 (6.7)\nTest:  [ 0/196]  eta: 0:05:00  loss: 6.1 (6.1)\nEpoch: [1]  [   0/5004]  eta: 3:12:00  lr: 0.1  loss: 6.01 (6.01)\n",
        {"loss": [(0, 6.91), (20, 6.81), (5004, 6.01)]},
    ),
    "XGBoost": (
        "[0]\ttrain-rmse:0.6\tvalid-rmse:0.65\n[10]\ttrain-rmse:0.5\tvalid-rmse:0.6\n", {"train-rmse": [(0, 0.6), (10, 0.5)], "valid-rmse": [(0, 0.65), (10, 0.6)]},
    ),
    "LightGBM": (
        "[10]\ttraining's binary_logloss: 0.5\tvalid_1's binary_logloss: 0.6\n[20]\ttraining's binary_logloss: 0.4\tvalid_1's binary_logloss: 0.55\n"
        "Early stopping, best iteration is:\n[15]\ttraining's binary_logloss: 0.45\tvalid_1's binary_logloss: 0.54\n",
        {"training binary_logloss": [(10, 0.5), (20, 0.4)], "valid_1 binary_logloss": [(10, 0.6), (20, 0.55)]},
    ),
    "CatBoost": (
        "Learning rate set to 0.1\n0:\tlearn: 0.65\ttest: 0.64\tbest: 0.64 (0)\ttotal: 47.8ms\tremaining: 2.82s\n"
        "10:\tlearn: 0.55\ttest: 0.56\tbest: 0.56 (10)\ttotal: 50ms\tremaining: 1m 2s\n\nbestTest = 0.56\nbestIteration = 10\n",
        {"learn": [(0, 0.65), (10, 0.55)], "test": [(0, 0.64), (10, 0.56)], "best": None, "total": None},
    ),
    "CatBoost with a metric of the held-out data alone": ("0:\ttest: 0.93\tbest: 0.93 (0)\ttotal: 48ms\n5:\ttest: 0.98\tbest: 0.98 (5)\ttotal: 9s\n", {"test": [(0, 0.93), (5, 0.98)]}),
    "nnU-Net": (
        "".join(
            f"2024-05-01 10:00:00.123456: Epoch {epoch}\n2024-05-01 10:00:00.1: Current learning rate: 0.01\n"
            f"2024-05-01 10:01:00.1: train_loss {-0.1 * epoch}\n2024-05-01 10:01:00.2: val_loss {0.5 - 0.1 * epoch}\nEpoch time: 61.0 s\n"
            for epoch in range(3)
        ),
        {"train_loss": [(0, 0.0), (1, -0.1), (2, -0.2)], "val_loss": [(0, 0.5), (1, 0.4), (2, 0.3)]},
    ),
    "a loss in a sentence": ("Epoch 1: loss=0.5\nwe stop, since the best_loss 0.2\nEpoch 2: loss=0.4\n", {"loss": [(1, 0.5), (2, 0.4)], "best_loss": None}),
    "fastai": (
        "epoch     train_loss  valid_loss  time    \n0         0.8         0.4         00:21   \n1         0.5         #na#        1:01:20 \n",
        {"train_loss": [(0, 0.8), (1, 0.5)], "valid_loss": [(0, 0.4)]},
    ),
    "a banner of settings": (
        "    Num examples = 1,000 | Num Epochs = 1\n    Batch size per device = 2 | Gradient Accumulation steps = 4\n{'loss': 1.8, 'epoch': 0.1}\n{'loss': 1.7, 'epoch': 0.2}\n",
        {"loss": [(1, 1.8), (2, 1.7)]},
    ),
    "settings that are called like axes": (
        "Namespace(epochs=10, batch=64, lr=0.001)\nepochs=10 batch=64 lr=0.001\nmax epoch: 100\nEpoch 1: loss=0.5\nEpoch 2: loss=0.4\n",
        {"loss": [(1, 0.5), (2, 0.4)], "lr": None},
    ),
    "the parts of a loss": (
        "step 1 recon loss: 0.5 kl loss: 0.1 loss: 0.6\nstep 2 loss: 0.5 kl loss: 0.1 recon loss: 0.4\nstep 3 loss: 0.4 mse loss: 0.3\n",
        {"loss": [(1, 0.6), (2, 0.5), (3, 0.4)], "kl loss": [(1, 0.1), (2, 0.1)], "mse loss": [(3, 0.3)]},
    ),
    "the parts of a model": (
        "step 1 loss=0.5\nstep 1 head 1 loss=0.6\nstep 1 task2 loss=0.7\nstep 1 task3 loss=0.8\nstep 2 loss=0.4\n",
        {"loss": [(1, 0.5), (2, 0.4)], "task2 loss": [(1, 0.7)], "task3 loss": [(1, 0.8)]},
    ),
    "training and held-out data in one line": (
        "Epoch 1: train: loss=0.5 acc=0.9; val: loss=0.6 acc=0.8\nEpoch 2: train: loss=0.4 acc=0.9; val: loss=0.5 acc=0.8\n",
        {"loss": [(1, 0.5), (2, 0.4)], "val/loss": [(1, 0.6), (2, 0.5)]},
    ),
    "held-out data named above": (
        "loss: 2.30  [   64/60000]\nloss: 2.20  [ 6464/60000]\nTest Error: \n Accuracy: 40.1%, Avg loss: 2.15 \n\nloss: 2.10  [   64/60000]\n",
        {"loss": [(1, 2.3), (2, 2.2), (3, 2.1)], "test/Avg loss": [(2, 2.15)], "Avg loss": None},
    ),
    "a sentence on held-out data": (
        "Now with evaluation:\nstep 5 loss: 0.5\nstep 6 loss: 0.4\nTraining and evaluation:\nloss: 0.3\nTest:\n  loss: 0.7\nstep 7 loss: 0.3\n",
        {"loss": [(5, 0.5), (6, 0.4), (6, 0.3), (7, 0.3)], "test/loss": [(6, 0.7)]},
    ),
    "held-out data named by the function": (
        "12:00 | INFO | __main__:train:45 - step=100 loss=0.5\n12:00 | INFO | __main__:evaluate:80 - step=100 loss=0.6\n",
        {"loss": [(100, 0.5)], "eval/loss": [(100, 0.6)]},
    ),
    "a validation in the second epoch": (
        "Epoch [1/9], Step [10/20], Loss: 0.5\nEpoch [1/9], Step [20/20], Loss: 0.4\nEpoch [2/9], Step [10/20], Loss: 0.3\nval_loss: 0.6\n",
        {"Loss": [(10, 0.5), (20, 0.4), (30, 0.3)], "val_loss": [(30, 0.6)]},
    ),
    "held-out data alone": ("val_loss: 0.9\nval_loss: 0.8\n", {"val_loss": [(1, 0.9), (2, 0.8)]}),
    "the best so far": (
        "epoch 1 val_loss: 0.6\nepoch 2 val_loss: 0.7\nBest epoch 1 with val_loss: 0.6\nEpoch 2, best val_loss: 0.6\n", {"val_loss": [(1, 0.6), (2, 0.7)]},
    ),
    "other ranks": ("[rank0] step 1 loss: 2.0\n[rank1] step 1 loss: 2.2\n[rank0] step 2 loss: 1.0\n[rank1] step 2 loss: 1.2\n", {"loss": [(1, 2.0), (2, 1.0)]}),
    "the last rank prints the loss": (
        "[default0]: step 1 lr: 0.1\n[default1]: step 1 lr: 0.1\n[default7]: step 1 loss: 2.0\n[default0]: step 2 lr: 0.2\n[default7]: step 2 loss: 1.0\n",
        {"lr": [(1, 0.1), (2, 0.2)], "loss": [(1, 2.0), (2, 1.0)]},
    ),
    "what another rank has beside what is known": (
        "[rank0]: step 1 loss: 2.0\n[rank1]: step 1 loss: 2.5 grad_norm: 7.0\n[rank0]: step 2 loss: 1.0\n[rank1]: step 2 loss: 1.5 grad_norm: 8.0\n",
        {"loss": [(1, 2.0), (2, 1.0)], "grad_norm": [(1, 7.0), (2, 8.0)]},
    ),
    "labels of tasks": (
        "".join(f"{task}: step {step} loss: {task + 1 / step}\n" for step in (1, 2, 4) for task in (0, 1, 10)), {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)]},
    ),
    "labels that are padded, and a line of a task's own": (
        " 0: using cpu\n" + "".join(f" {task}: step {step} loss: {task + 1 / step}\n" for step in (1, 2, 4) for task in (0, 1)),
        {"loss": [(1, 1.0), (2, 0.5), (4, 0.25)]},
    ),
    "epochs at the beginning of lines are no labels": (
        "".join(f"{epoch}: loss: {1 / epoch}\n{epoch}: val_loss: {2 / epoch}\n" for epoch in (1, 2, 4)), {"loss": [(1, 1.0), (2, 0.5), (3, 0.25)]},
    ),
    "units and shares": (
        "step 10 loss: 12ms\nstep 20 loss: 45%\nstep 30 loss: 2.1s\nstep 40 loss: 5/10\nstep 50 loss: 0.5f0\n", {"loss": [(50, 0.5)]},
    ),
    "arrays of one number": (
        "step 1 loss: tensor(2.5, device='cuda:0', grad_fn=<X>)\nstep 2 loss: np.float64(2.25)\nstep 3 loss: Array(nan, dtype=float32)\nstep 4 loss: tensor([1.5])\nstep 5 loss tensor(1.25, device='cuda:0')\n",
        {"loss": [(1, 2.5), (2, 2.25), (4, 1.5), (5, 1.25)]},
    ),
    "steps with thousands": ("step 1,000 | loss 2.5\nstep 12,000 | loss 2.3\n", {"loss": [(1000, 2.5), (12000, 2.3)]}),
    "epochs and batches of a language model": (
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | loss  7.60\n| epoch   1 |   400/ 2983 batches | lr 20.00 | loss  6.60\n"
        "| end of epoch   1 | time: 40.1s | valid loss  5.80\n| epoch   2 |   200/ 2983 batches | lr 20.00 | loss  5.60\n",
        {"loss": [(200, 7.6), (400, 6.6), (3183, 5.6)], "valid loss": [(400, 5.8)]},
    ),
}  # fmt: skip


def of_each_step(style, steps, every, epochs, *, base=1, total=None):
    """The lines of every k-th step of a run, with a validation after each epoch; where they belong."""
    lines, train, held_out = [], [], []
    for epoch in range(epochs):
        for step in range(steps):
            done = epoch * steps + step + base
            if done % every == 0:
                said = step + base if total is None else done
                lines.append(style.format(epoch=epoch + 1, step=said, total=total or steps, loss=1 + 1 / (done + 1)))
                train.append(done)
        lines.append(f"Validation loss: {1 + 2 / (epoch + 1):.4f}, accuracy: {epoch}.50 %")
        held_out.append((epoch + 1) * steps)
    return "\n".join(lines) + "\n", train, held_out


STEPS_OF_EPOCHS = (
    "Epoch [{epoch}/12], Step [{step}/{total}], Loss: {loss:.4f}",
    "Epoch {epoch}/12, Batch {step}/{total}, Loss: {loss:.4f}",
    "Epoch: {epoch} | Batch {step}/{total} | loss {loss:.4f} | lr 0.1",
    "epoch {epoch}, iter {step}/{total}, loss: {loss:.4f}",
    "| epoch {epoch:3d} | {step:5d}/{total:5d} batches | loss {loss:5.4f}",
)


@pytest.mark.parametrize("style", STEPS_OF_EPOCHS)
@pytest.mark.parametrize(("steps", "every"), [(54, 10), (18, 10), (16, 10), (54, 40), (100, 25), (20, 1), (30, 30)])
def test_steps_that_begin_anew_with_each_epoch_are_one_axis(style, steps, every, text):
    """Also where every tenth step of the whole run is printed, so that each epoch begins with another."""
    content, train, held_out = of_each_step(style, steps, every, 12)
    found = text(content)
    loss = found.get("Loss") or found["loss"]
    assert [step for step, _ in loss] == train
    assert [value for _, value in loss] == [pytest.approx(1 + 1 / (step + 1), abs=1e-4) for step in train]
    assert [step for step, _ in found["epoch"]] == train
    assert [step for step, _ in found["Validation loss"]] == held_out
    assert len(found["Validation loss"]) == 12


def test_steps_of_epochs_that_are_counted_from_0(text):
    content, train, held_out = of_each_step(STEPS_OF_EPOCHS[1], 100, 10, 3, base=0)
    found = text(content)
    assert [step for step, _ in found["Loss"]] == train
    assert [step for step, _ in found["Validation loss"]] == held_out


@pytest.mark.parametrize("style", STEPS_OF_EPOCHS)
@pytest.mark.parametrize(("steps", "every"), [(54, 10), (30, 30), (100, 25)])
def test_steps_that_go_on_rising_beside_the_epoch_stay_as_they_are(style, steps, every, text):
    content, train, _ = of_each_step(style, steps, every, 12, total=steps * 12)
    found = text(content)
    assert [step for step, _ in found.get("Loss") or found["loss"]] == train


def test_a_log_that_begins_in_a_later_epoch(text):
    rows = "".join(
        f"Epoch [{epoch}/9], Step [{step}/54], Loss: 0.5\n"
        for epoch in (4, 5, 7)
        for step in (20, 40)
        if epoch + step > 24
    )
    assert [step for step, _ in text(rows)["Loss"]] == [40, 74, 94, 182, 202]


def test_a_validation_within_an_epoch_belongs_to_the_step_before_it(text):
    rows = "".join(
        f"Epoch [{epoch}/9], Step [{step}/60], Loss: 0.5\n" + (f"val_loss: {step / 100}\n" if step % 30 == 0 else "")
        for epoch in (1, 2)
        for step in range(10, 61, 10)
    )
    assert [step for step, _ in text(rows)["val_loss"]] == [30, 60, 90, 120]


def test_the_mean_of_an_epoch_is_no_step_of_its_own(text):
    rows = "".join(
        "".join(f"Epoch [{epoch}/9], Step [{step}/54], Loss: 0.5\n" for step in (20, 40))
        + f"Epoch [{epoch}/9], Loss: 0.7\nEpoch [{epoch}/9], val_loss: 0.6\nEpoch {epoch}: best val_loss: 0.6\n"
        for epoch in (1, 2)
    )
    found = text(rows)
    assert found["Loss"] == [(20, 0.5), (40, 0.5), (74, 0.5), (94, 0.5)]
    assert found["val_loss"] == [(54, 0.6), (108, 0.6)]


def test_a_table_whose_names_have_blanks_in_them(text):
    """As spaCy prints it: the columns are those of the ruler below the names."""
    header = "E    #       LOSS TOK2VEC  LOSS NER  SCORE \n---  ------  ------------  --------  ------\n"
    rows = "".join(
        f"{step // 400:3d}  {step:6d}  {300 / step:12.2f}  {900 / step:8.2f}    0.50\n" for step in (200, 400, 600)
    )
    found = text("Pipeline: ['tok2vec', 'ner']\n" + header + rows)
    assert found["LOSS NER"] == [(200, 4.5), (400, 2.25), (600, 1.5)]
    assert [step for step, _ in found["LOSS TOK2VEC"]] == [200, 400, 600]


@pytest.mark.parametrize("bars", ["│┃", "||", "║║"])
def test_a_table_in_a_box(bars, text):
    """As rich and its like draw it."""
    cell, head = bars
    rows = "".join(
        f"{cell} {epoch}     {cell} {2 / epoch:.2f} {cell} {3 / epoch:.2f}     {cell}\n" for epoch in (1, 2, 4)
    )
    found = text(
        f"┏━━━━━━━┳━━━━━━┳━━━━━━━━━━┓\n{head} Epoch {head} loss {head} val_loss {head}\n┡━━━━━━━╇━━━━━━╇━━━━━━━━━━┩\n{rows}└──┘\n"
    )
    assert found["loss"] == [(1, 2.0), (2, 1.0), (4, 0.5)]
    assert found["val_loss"] == [(1, 3.0), (2, 1.5), (4, 0.75)]


def test_a_table_whose_rows_are_progress_bars(text):
    """As Ultralytics prints it: a header before each epoch, and a row that counts once its bar is full."""
    content = ""
    for epoch in (1, 2):
        content += "      Epoch    GPU_mem   box_loss   Instances       Size\n"
        for done in (50, 100):
            content += f"        {epoch}/3      2.1G     {100 / done / epoch:.3f}   11        640: {done}%|█████| {done}/100 [00:01]\r"
        content += "\n                 Class     Images  Instances      Box(P          R: 100%|█████| 1/1\n"
        content += "                   all          4         17      0.6      0.8\n"
    assert text(content)["box_loss"] == [(1, 1.0), (2, 0.5)]


@pytest.mark.parametrize("name", list(LINES))
def test_lines_that_people_print(name, text):
    content, expected = LINES[name]
    found = text(content)
    finite = {metric: [one for one in found[metric] if one[1] == one[1]] for metric in found}
    assert {metric: finite.get(metric) for metric in expected} == expected


@pytest.mark.parametrize(("rows", "steps", "unit"), [
    ([1, 1, 1, 2, 2, 2], [1, 2, 3, 4, 5, 6], StepUnit.UNKNOWN),
    ([1, 1, 1, 1], [1, 2, 3, 4], StepUnit.UNKNOWN),
    ([1, 2, 3, 3, 4, 5], [1, 2, 3, 3, 4, 5], E),  # resumed
    ([1, 1, 1, 2, 2, 2, 1, 1, 1], [1, 2, 3], StepUnit.UNKNOWN),  # begun again
])  # fmt: skip
def test_several_lines_to_an_epoch_that_say_nothing_else(rows, steps, unit, tmp_path):
    text = "".join(f"Epoch {epoch}/5 | loss {4.0 - 0.1 * place:.2f}\n" for place, epoch in enumerate(rows))
    log, _ = read(tmp_path / "train.log", text)
    (loss,) = (one for one in log.series if one.name == "loss")
    assert (loss.steps.tolist(), loss.step_unit) == (steps, unit)


@pytest.mark.parametrize(("text", "epochs"), [
    ("  0%|  | 5/20 [00:01<00:05, loss=2.0]\r 50%|  | 10/20 [00:01<00:05, loss=1.5]\r100%|  | 20/20 [00:02<00:00, loss=1.0]\n", None),
    ("  0%|  | 5/20 [00:01<00:05, loss=2.0]\r 50%|  | 10/20 [00:01<00:05, loss=1.5]\n", 0),
    ("100%|  | 20/20 [00:01<00:00, loss=2.0]\n 50%|  | 10/20 [00:01<00:05, loss=1.5]\r100%|  | 20/20 [00:02<00:00, loss=1.0]\n", 1),
    ("Epoch 1/9\n 50%|  | 10/20 [00:01<00:05, loss=1.5]\r100%|  | 20/20 [00:02<00:00, loss=1.0]\n", 1),
])  # fmt: skip
def test_one_bar_that_came_to_its_end_may_be_of_all_epochs(text, epochs, tmp_path):
    log, _ = read(tmp_path / "train.log", text)
    last = {one.name: float(one.values[-1]) for one in log.series}
    assert last.get("epoch") == epochs
    assert last["loss"] in {1.0, 1.5}
    assert ("epoch" in log.names) == (epochs is not None)


def test_what_a_line_says_depends_on_no_other_line():
    """Lines that say nothing are known again by their shape: none that says something may be taken for one of them."""
    shared = Pairs(RolePlan(every=True))
    lines = [line for content, _ in LINES.values() for line in content.split("\n")]
    lines += [f"{line} {digits}" for line in lines for digits in ("7", "12", "1.5", "12:30")]
    for line in [*lines, *lines]:
        assert shared.read(line) == Pairs(RolePlan(every=True)).read(line), line


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(encoding, end, tmp_path):
    content = "".join(f"Modèle: step {step} loss={step / 4}{end}" for step in range(3000))
    log, _ = read(tmp_path / "a.log", content.encode(encoding))
    assert points(log)["loss"] == [(step, step / 4) for step in range(3000)]


def test_a_banner_gives_the_plan(tmp_path):
    text = (
        "heal[kl_rev] 40 completions x 3 ep = 120 steps; lora r=8\nSHOULD: tau=0.5\n  Num Epochs = 3\nstep 1 loss=2\n"
    )
    log, _ = read(tmp_path / "a.log", text)
    assert {"max_steps": "120", "tau": "0.5", "num_train_epochs": "3"}.items() <= log.params.items()


SETTINGS = "{'work_dir': './out', 'optimizer': 'Adam', 'step': [25, 35, 45], 'num_epoch': 50, 'base_lr': 0.0001, 'mse': 1.0, 'batch_size': 2}"


@pytest.mark.parametrize(
    "line",
    [
        SETTINGS, f"Config: {SETTINGS}", SETTINGS.replace("'", '"').replace("./out", "a/b"), "Samples -> train: 31000, val: 3900, test: 3900",
        "{'epoch': 100, 'lr': 0.1, 'seed': 3, 'resume': None, 'num_workers': 4, 'amp': False}", '{"event": "start", "step": 0, "world_size": 4}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 3])
def test_settings_and_sizes_are_no_rows(line, at, tmp_path):
    rows = [f"Epoch: {epoch}  Mean training loss: {6 / (1 + epoch):.4f}\n" for epoch in range(20)]
    expected = points(read(tmp_path / "a.log", "".join(rows))[0])
    log, _ = read(tmp_path / "b.log", "".join([*rows[:at], f"{line}\n", *rows[at:]]))
    found = points(log)
    found.pop("world_size", None)
    assert found == expected
    assert at or {"base_lr", "train", "seed"} & log.params.keys() or "event" in line


def test_a_dictionary_with_words_in_it_is_a_row_where_it_has_a_loss(text):
    line = "{{'epoch': {0}, 'split': 'train', 'model': 'a', 'data': 'b', 'loss': {1}, 'lr': 0.1, 'max_norm': 1.0}}\n"
    found = text("".join(line.format(epoch, 3 / epoch) for epoch in range(1, 5)))
    assert found["loss"] == [(epoch, 3 / epoch) for epoch in range(1, 5)]


def test_a_bar_before_the_first_epoch_takes_nothing_from_the_others(text):
    """Lightning's check before the training, and evaluations of an unknown length."""
    bars = "Validation: |          | 0/? [00:00<?, ?it/s]\nEpoch {0}: 100%|████| 640/640 [08:02<00:00, v_num=3, val_loss={1}]\n"
    found = text("".join(bars.format(epoch, 1 / (1 + epoch)) for epoch in range(5)))
    assert found["val_loss"] == [(640 * (1 + epoch), 1 / (1 + epoch)) for epoch in range(5)]


def test_a_row_before_all_steps_counts_as_they_do(tmp_path):
    rows = [f"Epoch: [{at // 4}][{at % 4 * 25}/100]\tLoss {9 / (1 + at):.4f} (9.1)\n" for at in range(12)]
    log, _ = read(tmp_path / "a.log", "Resuming from epoch 0, lr 0.0005\n" + "".join(rows))
    assert {one.name: one.step_unit for one in log.series if one.name in ("lr", "Loss")} == {
        "lr": StepUnit.UNKNOWN,
        "Loss": StepUnit.UNKNOWN,
    }


@pytest.mark.parametrize(
    "content",
    [
        "", "\n\n", "A chapter about loss.\n", "the error was 0.5 at 12:30\n" * 100, "Saved at step 500 in 3 seconds\n", "step 100\nstep 200\n",
        "2024-05-01 12:00:00 10.0.0.1 GET /a?loss 200\n" * 50, "version 1.2.3\nport=8080\n",
    ],
)  # fmt: skip
def test_other_texts_hold_no_history(content, tmp_path):
    log, _ = read(tmp_path / "a.log", content)
    assert (log.series, log.names, log.problem) == ((), (), "")


@LAW
@given(
    rows=st.lists(st.tuples(st.integers(0, 10**9), st.floats(allow_nan=False), st.floats(1e-9, 1e9)), min_size=1, max_size=30),
    form=st.sampled_from(["step {} loss={} lr={}", "[{}] ignore\nStep {}: loss {}, lr {}", "iter={} | loss: {} | lr: {}", "{{'step': {}, 'loss': {}, 'lr': {}}}"]),
)  # fmt: skip
def test_whatever_numbers_are_printed_are_read(rows, form, tmp_path_factory):
    rows.sort()
    lines = [form.format(*((7, *row) if form.count("{}") == 4 else row)) for row in rows]
    log, _ = read(tmp_path_factory.getbasetemp() / "law.log", "\n".join(lines) + "\n")
    assert points(log) == {"loss": [row[:2] for row in rows], "lr": [(row[0], row[2]) for row in rows]}


@LAW
@given(
    names=st.lists(st.from_regex(r"[a-z][a-z_]{1,8}", fullmatch=True).filter(lambda name: name not in ("inf", "nan", "epoch", "step", "iter")), min_size=1, max_size=4, unique=True),
    rows=st.lists(st.integers(0, 10**6), min_size=2, max_size=20).map(sorted),
    prefix=st.sampled_from(["", "INFO:root: ", "[rank 0] "]),
    data=st.data(),
)  # fmt: skip
def test_whatever_table_is_printed_is_read(names, rows, prefix, data, tmp_path_factory):
    cells = [[data.draw(st.floats(-1e6, 1e6).map(lambda one: round(one, 4))) for _ in names] for _ in rows]
    lines = [
        "  ".join(["step", *names]),
        *("  ".join(map(str, [step, *line])) for step, line in zip(rows, cells, strict=True)),
    ]
    log, _ = read(tmp_path_factory.getbasetemp() / "table.log", "".join(f"{prefix}{line}\n" for line in lines))
    assert points(log) == {
        name: [(step, line[at]) for step, line in zip(rows, cells, strict=True)] for at, name in enumerate(names)
    }


@LAW
@given(st.text(max_size=300) | st.lists(st.sampled_from(["step", "loss", "=", ":", " ", "1", "nan", "[", "/", "\r", "\n", "epoch", "%|", "it/s", "e", "-", "{", "'", "|"]), max_size=60).map("".join))  # fmt: skip
def test_no_text_breaks_the_reader(tmp_path_factory, content):
    log, _ = read(tmp_path_factory.getbasetemp() / "any.log", content.encode("utf-8", "surrogatepass"))
    for one in log.series:
        assert len(one.steps) == len(one.values) > 0


# Numbers


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1,234", 1234.0), ("1,234.5", 1234.5), ("12,345,678", 12345678.0), ("0,52", 0.52), ("0,523", 0.523), ("1,23", 1.23), ("1.2k", 1200.0),
        ("3M", 3e6), ("2.5B", 2.5e9), ("3e-4", 3e-4), ("-.5", -0.5), ("5.", 5.0), ("45%", 45.0), ("inf", math.inf), ("-Infinity", -math.inf),
        ("+7", 7.0), (" 8 ", 8.0), ("1e400", math.inf),
    ],
)  # fmt: skip
def test_numbers_as_written(written, value):
    assert as_written(written) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1.2.3", "1,23,4", "12:30", "k", "--1", "1e", "nano", "9" * 100, "1,234,5", "0x10", "1_000"]
)
def test_what_is_no_number(text):
    assert as_written(text) is None


@LAW
@given(st.floats(allow_nan=False))
def test_every_float_is_read_as_python_writes_it(value):
    assert as_written(repr(value)) == value


@LAW
@given(st.integers(-(10**15), 10**15))
def test_thousands(value):
    assert as_written(f"{value:,}") == value


# CSV


def test_lightnings_metrics(tmp_path):
    log, form = read(
        tmp_path / "metrics.csv",
        "epoch,step,train_loss_step,val_loss\n0,49,2.5,\n0,99,2.0,\n0,99,,2.2\n1,149,nan,\n",
    )
    found = points(log)
    assert isinstance(form, CsvTable)
    assert found["val_loss"] == [(99, 2.2)]
    assert found["train_loss_step"][:2] == [(49, 2.5), (99, 2.0)]
    assert math.isnan(found["train_loss_step"][2][1])
    assert found["epoch"] == [(49, 0), (99, 0), (99, 0), (149, 1)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_keras_logger(delimiter, tmp_path):
    lines = [["epoch", "accuracy", "loss", "val_loss"], ["0", "0.5", "2.0", "2.1"], ["1", "0.6", "1.5", "1.7"]]
    log, _ = read(tmp_path / "a.csv", "\r\n".join(map(delimiter.join, lines)))
    assert points(log)["loss"] == [(0, 2.0), (1, 1.5)]
    assert {one.step_unit for one in log.series} == {E}


def test_a_header_again_after_a_restart(tmp_path):
    log, _ = read(tmp_path / "a.csv", "step,loss\n1,3\n2,2\nstep,loss\n2,2.5\n3,1\n")
    assert points(log)["loss"] == [(1, 3), (2, 2), (2, 2.5), (3, 1)]


def test_odd_tables(tmp_path):
    assert points(read(tmp_path / "a.csv", '# made by us\n,Step,"train, loss"\n0,1,"2.5"\n1,2,"2"\n')[0]) == {
        "train, loss": [(1, 2.5), (2, 2)]
    }
    assert points(read(tmp_path / "run-a-tag-train_loss.csv", "Wall time,Step,Value\n1.0,1,2.5\n2.0,2,2\n")[0]) == {
        "train_loss": [(1, 2.5), (2, 2)]
    }
    log, _ = read(tmp_path / "b.csv", "step,loss\n1,3\n2,2\n3")
    assert (points(log)["loss"], log.problem[:6]) == ([(1, 3), (2, 2)], "line 4")
    for number, foreign in enumerate(("2,2,9", "-----", "best model saved")):
        log, _ = read(tmp_path / f"c{number}.csv", f"step,loss\n1,3\n{foreign}\n3,1\n")
        assert (points(log)["loss"], log.problem) == ([(1, 3), (3, 1)], "")
        assert "1 line of 4" in log.note
    text = "commit,val_bpb,status\na1,0.99,keep\nb2,0.98,discard\nc3,0.97,keep\n"
    assert points(read(tmp_path / "d.csv", text)[0]) == {"val_bpb": [(1, 0.99), (2, 0.98), (3, 0.97)]}


@pytest.mark.parametrize("content", ["name,age\nx,3\n", "a,b\n1,2\n", "step,note\na,b\n", "text\n1\n"])
def test_other_tables_hold_no_history(content, tmp_path):
    assert read(tmp_path / "a.csv", content)[0].names == ()


TABLES = {
    "decimal commas": ("epoch;loss;n\n1;0,5;1.000\n2;0,4;2.000\n", {"loss": [(1, 0.5), (2, 0.4)]}),
    "a header with more columns after a restart": (
        "epoch,loss\n1,3\n2,2\nepoch,loss,val_loss\n3,1,2\n", {"loss": [(1, 3), (2, 2), (3, 1)], "val_loss": [(3, 2)]},
    ),
    "an index without a name": (",loss,val_loss\n0,3,4\n1,2,3\n", {"loss": [(0, 3), (1, 2)], "val_loss": [(0, 4), (1, 3)]}),
    "everything quoted": ('"Step","loss"\n"1","3"\n"2","2"\n', {"loss": [(1, 3), (2, 2)]}),
    "shares of an epoch": ("epoch,loss\n0.5,3\n1.0,2\n1.5,1\n", {"loss": [(1, 3), (2, 2), (3, 1)]}),
    "a mark of the byte order": ("\ufeffstep,loss\n1,3\n2,2\n", {"loss": [(1, 3), (2, 2)]}),
    "words in cells": ("step,loss\n1,3\n2,tensor(2.0)\n3,45%\n4,1\n", {"loss": [(1, 3), (4, 1)]}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TABLES))
def test_tables_that_tools_write(name, tmp_path):
    content, expected = TABLES[name]
    log, form = read(tmp_path / "metrics.csv", content)
    assert isinstance(form, CsvTable)
    assert {metric: points(log).get(metric) for metric in expected} == expected


@LAW
@given(st.lists(st.tuples(st.integers(0, 10**6), st.none() | st.floats(), st.floats()), min_size=3, max_size=40))
def test_a_table_is_what_was_written(tmp_path_factory, rows):
    text = "step,a,b\n" + "".join(f"{step},{'' if a is None else a},{b}\n" for step, a, b in rows)
    log, form = read(tmp_path_factory.getbasetemp() / "law.csv", text)
    assert isinstance(form, CsvTable)
    found = points(log)
    assert repr(found["b"]) == repr([(step, b) for step, _, b in rows])
    written = [(step, a) for step, a, _ in rows if a is not None]
    assert repr(found.get("a", [])) == repr(written), "an empty cell is no point, wherever it is"


def test_a_row_without_the_trainings_numbers_is_no_nan(tmp_path):
    """As Stable-Baselines3 wrote it, whose last evaluation took the numbers of the training's last update."""
    content = (Path(__file__).parents[1] / "data" / "tables" / "progress.csv").read_bytes()
    assert content.splitlines()[-1].endswith(b"," * 12)
    log, _ = read(tmp_path / "progress.csv", content)
    found = {name: [value for _, value in known] for name, known in points(log).items()}
    assert len(found["train/loss"]) == 23
    assert [name for name, values in found.items() if not np.isfinite(values).all()] == []


def test_cells_that_pandas_leaves_empty_are_told(tmp_path):
    """It writes NaN so: nothing in the file says whether that is meant, or that nothing was logged."""
    rows = [f"{epoch},{'' if epoch > 6 else 3 / (1 + epoch)},0.5" for epoch in range(12)]
    log, _ = read(tmp_path / "history.csv", "\n".join([",loss,accuracy", *rows]))
    assert [len(one) for one in log.series if one.name == "loss"] == [7]
    assert log.note.startswith("loss has no number in the last 5 rows")
    assert read(tmp_path / "b.csv", "\n".join([",loss,accuracy", *rows[:8]]))[0].note == ""


def test_null_in_a_column_is_nan_only_where_the_numbers_end(tmp_path):
    columns = {
        "loss": [3.0, 2.0, None, 1.0, 0.9, 0.8],
        "val_loss": [None, 2.5, None, 1.9, None, 1.8],
        "val_accuracy": [None, 0.5, None, 0.6, 0.7, None],
        "lr": [0.1, 0.1, 0.1, 0.1, None, None],
    }
    found = points(read(tmp_path / "history.json", json.dumps(columns))[0])
    bad = {name: [step for step, value in known if math.isnan(value)] for name, known in found.items()}
    assert bad == {"epoch": [], "loss": [], "val_loss": [], "val_accuracy": [], "lr": [5, 6]}


# JSON


def test_keras_history(tmp_path):
    for text in (
        json.dumps({"loss": [3.0, 2.0], "val_loss": [3.1, None]}),
        json.dumps({"history": {"loss": [3.0, 2.0], "val_loss": [3.1, math.nan]}}, indent=1),
    ):
        log, form = read(tmp_path / "history.json", text)
        assert isinstance(form, JsonHistory)
        assert points(log)["loss"] == [(1, 3.0), (2, 2.0)]
        assert math.isnan(points(log)["val_loss"][1][1])
        assert {one.step_unit for one in log.series} == {E}


def test_columns_with_their_steps(tmp_path):
    text = json.dumps({"train": {"steps": [10, 20, 30], "loss": [3, 2, 1]}, "val": {"loss": [4, 3]}})
    assert points(read(tmp_path / "a.json", text)[0]) == {
        "train/loss": [(10, 3), (20, 2), (30, 1)],
        "val/loss": [(1, 4), (2, 3)],
    }


def test_a_validation_every_few_epochs(tmp_path):
    text = json.dumps({"loss": [4, 3, 2, 1], "val_loss": [3, 2]})
    assert points(read(tmp_path / "a.json", text)[0])["val_loss"] == [(2, 3), (4, 2)]


def test_the_batches_of_an_evaluation_are_no_steps(tmp_path):
    text = (
        '{"mode": "train", "epoch": 1, "iter": 50, "loss": 2}\n{"mode": "train", "epoch": 1, "iter": 100, "loss": 1}\n'
        '{"mode": "val", "epoch": 1, "iter": 625, "loss": 3}\n'
    )
    assert points(read(tmp_path / "a.log.json", text)[0])["val/loss"] == [(100, 3)]


@pytest.mark.parametrize("indent", [None, 1])
def test_lists_of_records(indent, tmp_path):
    rows = [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 2.0}]
    for value in (rows, {"config": {"lr": 1}, "log": rows}):
        assert points(read(tmp_path / "a.json", json.dumps(value, indent=indent))[0])["loss"] == [(1, 3.0), (2, 2.0)]
    bare = [{"loss": 3.0}, {"loss": 2.0}]
    assert points(read(tmp_path / "a.json", json.dumps(bare, indent=indent))[0])["loss"] == [(1, 3.0), (2, 2.0)]


def test_a_list_with_a_record_on_each_line(tmp_path):
    """Which is no file of JSON lines: all but the last end with a comma."""
    rows = [{"step": step, "loss": 3 / step} for step in range(1, 40)]
    log, form = read(tmp_path / "metrics.json", "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    assert isinstance(form, JsonHistory)
    assert points(log)["loss"] == [(step, 3 / step) for step in range(1, 40)]
    assert not log.problem


def test_the_rounds_of_catboost(tmp_path):
    meta = {
        "test_sets": ["test"],
        "test_metrics": [{"best_value": "Max", "name": "AUC"}, {"best_value": "Min", "name": "Logloss"}],
        "learn_sets": ["learn"],
        "learn_metrics": [{"best_value": "Min", "name": "Logloss"}],
    }
    rounds = [
        {"learn": [1 / place], "iteration": place - 1, "passed_time": 0.1, "test": [0.9, 2 / place]}
        for place in (1, 2, 4)
    ]
    lines = ",\n".join(map(json.dumps, rounds))
    text = f'{{\n"meta":{json.dumps(meta)},\n"iterations":[\n{lines}\n]}}'
    found = points(read(tmp_path / "catboost_training.json", text)[0])
    assert found["learn/Logloss"] == [(0, 1.0), (1, 0.5), (3, 0.25)]
    assert found["test/Logloss"] == [(0, 2.0), (1, 1.0), (3, 0.5)]
    assert found["test/AUC"] == [(0, 0.9), (1, 0.9), (3, 0.9)]
    assert assign(found) == {"learn/Logloss": "train_loss", "test/Logloss": "val_loss", "test/AUC": "val_auc"}
    many = {"learn_sets": [f"set {place}" for place in range(9000)], "learn_metrics": [{"name": "a"}] * 9000}
    for wrong in (
        {"meta": many, "iterations": [{"set 1": [1.0], "iteration": 0}]},
        {"meta": meta, "iterations": [3, {"learn": 5, "iteration": 0}]},
        {"meta": {"learn_sets": 1}, "iterations": [{}]},
    ):
        assert not points(read(tmp_path / "catboost_training.json", json.dumps(wrong))[0])


def test_a_history_cut_short_is_told_and_other_json_is_not(tmp_path):
    with pytest.raises(ReadError, match="cut short"):
        read(tmp_path / "history.json", '{"loss": [3.0, 2.0')
    assert read(tmp_path / "a.json", '{"accuracy": 0.5}')[0].names == ()


@pytest.mark.parametrize(
    "text", ['[{"step": 1, "loss": 0.5}, {"step": 2, "lo', '[{"loss": 0.5},\n{"lo\nss": 0.4}, {"loss": 0.3}]']
)
def test_damaged_records_are_told_to_be_damaged(text, tmp_path):
    with pytest.raises(ReadError, match="cut short"):
        read(tmp_path / "log.json", text)


RAISED = "Traceback (most recent call last):\n  File \"train.py\", line 7, in step\nKeyError: 'label'\n"
BEGINNINGS = {
    "a rank": "[rank0] world size 4\n",
    "a time": "[2026-11-26 10:00:00] INFO start\n",
    "a bracket": "[\n",
    "an event": '{"event": "start"}\nloading\n',
    "events": "".join(f'{{"event": "load", "seconds": {one}}}\n' for one in range(30)),
    "settings over several lines": '{\n  "lr": 0.1,\n  "model": {"width": 3}\n}\nloading\n',
    "a list": '["a", "b"]\nloading\n',
    "a dictionary of Python's": "{'lr': 0.1}\nloading\n",
    "steps in JSON": "".join(f'{{"step": {step}, "loss": {3 / step}}}\n' for step in range(1, 40)),
    "a table": "epoch,loss\n1,3\n2,2\n3,1\n",
}


@pytest.mark.parametrize("end", [RAISED, "Killed\n"], ids=["an exception", "a signal"])
@pytest.mark.parametrize("name", list(BEGINNINGS))
def test_how_a_log_ends_is_read_whatever_it_begins_with(name, end, tmp_path):
    log, _ = read(tmp_path / "train.log", BEGINNINGS[name] + end)
    assert [(one.cause, one.rows_after) for one in log.text.troubles] == [
        ("an exception" if end == RAISED else "SIGKILL", 0)
    ]


def test_a_form_that_fits_half_of_the_lines_gives_way(tmp_path):
    lines = [
        f'{{"event": "batch", "milliseconds": {step}}}\nstep {step} loss={3 / step:.4f}\n' for step in range(1, 40)
    ]
    (tmp_path / "train.log").write_text("".join(lines))
    log, form = read_log(tmp_path / "train.log", "train.log", RolePlan())
    assert isinstance(form, TextLines)
    assert len(points(log)["loss"]) == 39


def test_each_form_reads_a_file_once_at_most(tmp_path, monkeypatch):
    from tracker_health.readers import log_formats

    calls = Counter()

    def counted(read):
        def of(self, *args):
            calls[type(self).__name__] += 1
            return read(self, *args)

        return of

    for one in map(type, log_formats.FORMATS):
        monkeypatch.setattr(one, "read", counted(one.read))
    for number, beginning in enumerate(BEGINNINGS.values()):
        calls.clear()
        read(tmp_path / f"{number}.log", beginning + RAISED)
        assert max(calls.values()) == 1


# TensorBoard


def write_events(path, scalars, start=1000.0):
    """An event file of (tag, step, value), as TensorBoard's own writer frames it."""
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    events = [event_pb2.Event(wall_time=start, file_version="brain.Event:2")]
    for index, (tag, step, value) in enumerate(scalars):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        events.append(event_pb2.Event(wall_time=start + index, step=step, summary=summary))
    with path.open("wb") as file:
        for event in events:
            content = event.SerializeToString()
            head = struct.pack("<Q", len(content))
            file.write(
                head + struct.pack("<I", masked_crc32c(head)) + content + struct.pack("<I", masked_crc32c(content))
            )
    return path


def test_event_files(tmp_path):
    path = write_events(
        tmp_path / "events.out.tfevents.1.host", [("train/loss", 1, 2.0), ("lr", 1, 0.5), ("train/loss", 2, math.nan)]
    )
    log, form = read_log(path, path.name, RolePlan(every=True))
    assert isinstance(form, EventFile)
    assert repr(points(log)) == repr({"train/loss": [(1, 2.0), (2, math.nan)], "lr": [(1, 0.5)]})
    assert [one.times.tolist() for one in log.series] == [[1000.0, 1002.0], [1001.0]]


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64", "float16"])
@pytest.mark.parametrize("packed", [True, False])
def test_scalars_as_tensors(kind, packed, tmp_path):
    """As TensorFlow 2 and JAX write them: the number in a field of its type, or in the tensor's content."""
    tensor_util = pytest.importorskip("tensorboard.util.tensor_util")
    writer_of = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    writer = writer_of.EventFileWriter(str(tmp_path))
    for step in range(5):
        value = np.array(3 - step, dtype=kind)
        tensor = tensor_util.make_tensor_proto(value)
        if not packed:
            tensor.tensor_content = value.tobytes()
            for name in ("float_val", "double_val", "int_val", "int64_val", "half_val"):
                tensor.ClearField(name)
        summary = Summary(value=[Summary.Value(tag="loss", tensor=tensor, metadata=metadata)])
        writer.add_event(Event(wall_time=step, step=step, summary=summary))
    writer.close()
    (path,) = tmp_path.iterdir()
    found = points(read_log(path, path.name, RolePlan(every=True))[0])
    assert found.get("loss", []) == ([] if packed and kind == "float16" else [(step, 3.0 - step) for step in range(5)])


def test_an_event_file_by_tensorboards_own_loader(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    path = write_events(tmp_path / "events.out.tfevents.1.host", [("loss", step, 1 / (step + 1)) for step in range(50)])
    theirs = [
        (event.step, event.summary.value[0].tensor.float_val[0])
        for event in loader.EventFileLoader(str(path)).Load()
        if event.summary.value
    ]
    assert points(read_log(path, path.name, RolePlan(every=True))[0])["loss"] == theirs


def test_damaged_event_files(tmp_path):
    path = write_events(tmp_path / "events.out.tfevents.1.host", [("loss", step, 1.0) for step in range(9)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    log, _ = read_log(path, path.name, RolePlan(every=True))
    assert (len(points(log)["loss"]), log.problem) == (8, "its last record is cut off; those before it were read")
    size = len(whole) // 10
    path.write_bytes(whole[: 6 * size] + b"\xff" * 40 + whole[6 * size + 40 :])
    log, _ = read_log(path, path.name, RolePlan(every=True))
    assert 0 < len(points(log)["loss"]) < 9
    path.write_bytes(b"junk" * 100)
    assert "damaged" in read_log(path, path.name, RolePlan(every=True))[0].problem


def with_wrong_checksums(path, every):
    """Spoil a byte of the content of each so-many-th record."""
    content, place, number = bytearray(path.read_bytes()), 0, 0
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "little")
        if number and number % every == 0:
            content[place + 12 + length - 1] ^= 0xFF
        number += 1
        place += 16 + length
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("every", "problem", "note"),
    [(2, "50 of 101 records are damaged", ""), (50, "", "2 of 101 records are damaged"), (1000, "", "")],
)
def test_records_with_wrong_checksums_are_counted(every, problem, note, tmp_path):
    path = write_events(tmp_path / "events.out.tfevents.1.host", [("loss", step, 1.0) for step in range(100)])
    with_wrong_checksums(path, every)
    log, _ = read_log(path, path.name, RolePlan(every=True))
    assert (log.problem, log.note) == (problem, note)
    assert len(points(log)["loss"]) == 100 - 100 // every


def test_a_record_that_is_no_message_is_damaged_too(tmp_path):
    path = write_events(tmp_path / "events.out.tfevents.1.host", [("loss", step, 1.0) for step in range(9)])
    append_record(path, b"\xff" * 100)
    assert read_log(path, path.name, RolePlan(every=True))[0].problem == ""
    assert read_log(path, path.name, RolePlan(every=True))[0].note == "1 of 11 records are damaged"


def append_record(path, content):
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    head = struct.pack("<Q", len(content))
    framed = head + struct.pack("<I", masked_crc32c(head)) + content + struct.pack("<I", masked_crc32c(content[:100]))
    path.write_bytes(path.read_bytes() + framed)


def test_large_records_are_counted_unless_they_are_graphs(tmp_path):
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    from tensorboard.compat.proto.summary_pb2 import Summary

    path = write_events(tmp_path / "events.out.tfevents.1.host", [("loss", step, 1.0) for step in range(9)])
    picture = Summary.Image(encoded_image_string=bytes(2**20))
    append_record(path, event_pb2.Event(wall_time=1.0, step=3, graph_def=bytes(2**20)).SerializeToString())
    append_record(path, event_pb2.Event(wall_time=1.0, step=300, meta_graph_def=bytes(2**20)).SerializeToString())
    assert (read_log(path, path.name, RolePlan(every=True))[0].note) == ""
    shown = Summary(value=[Summary.Value(tag="samples", image=picture)])
    append_record(path, event_pb2.Event(wall_time=1.0, step=3, summary=shown).SerializeToString())
    log, _ = read_log(path, path.name, RolePlan(every=True))
    assert (log.problem, log.note) == ("", "1 of 13 records are larger than the 1.0 MB that are read")
    assert len(points(log)["loss"]) == 9
    path.write_bytes(path.read_bytes()[:-100])
    assert "cut off" in read_log(path, path.name, RolePlan(every=True))[0].problem


def test_json_lines_come_first(tmp_path):
    assert isinstance(read(tmp_path / "a.txt", '{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n')[1], StepLog)


@LAW
@given(
    values=st.lists(st.lists(st.sampled_from([1.0, 2.5, math.nan, math.inf]), min_size=2, max_size=2), max_size=60),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    stride=st.sampled_from([1, 2, 4, 8]),
    forgotten=st.booleans(),
)
def test_rows_at_once_are_rows_one_by_one(values, sizes, stride, forgotten):
    """Of a long log as of a short one: the same rows stay, and the last counts."""
    bulk, single = kinds = [RowKind(("step", "loss", "lr")) for _ in range(2)]
    start = 0
    for size in sizes:
        rows = [[3.0 * place, *row] for place, row in enumerate(values[start : start + size], start)]
        if rows:
            bulk.add_all(start, np.array(rows))
        for place, row in enumerate(rows, start):
            single.add(place, row)
        start += len(rows)
        for kind in kinds:
            kind.thin(stride, lambda name: name != "lr" or not forgotten)
    assert bulk.positions.tolist() == single.positions.tolist()
    assert (bulk.seen, bulk.kept_names, bulk.data.tobytes()) == (single.seen, single.kept_names, single.data.tobytes())
    written = values[:start]
    kept = [
        place
        for place, row in enumerate(written)
        if place % stride == 0 or not all(map(math.isfinite, row[: 1 + (not forgotten)]))
    ]
    assert sorted({*kept, *range(start - 1, start)}) <= bulk.positions.tolist() or not start


def test_a_banner_gives_words_too(tmp_path):
    banner = "Namespace(lr=0.1, optimizer='adam', freeze='backbone', ema=False, resume=None, path='it\\'s', epochs=3)"
    log, _ = read(tmp_path / "a.log", f"{banner}\nstep 1 loss=2\nstep 2 loss=1\n")
    known = {"lr": "0.1", "optimizer": "adam", "freeze": "backbone", "ema": "False", "epochs": "3"}
    assert log.params == known


CASES = Path(__file__).parents[3] / "shared" / "cases"
KINDS = {".csv": CsvTable, ".tsv": CsvTable, ".jsonl": StepLog, ".log": TextLines}


@pytest.mark.skipif(not CASES.exists(), reason="the cases are not there")
def test_no_format_takes_a_file_of_another():
    """By the endings that say it: what people's files are called and what they hold is one thing there."""
    files = [
        path for path in sorted(CASES.rglob("*")) if path.is_file() and path.suffix in KINDS and path.stat().st_size
    ]
    wrong = [
        path for path in files if not isinstance(read_log(path, path.name, RolePlan(every=True))[1], KINDS[path.suffix])
    ]
    named_by_keras = "expected.csv", "training.log"  # its CSVLogger's examples have the latter
    assert [str(path.relative_to(CASES)) for path in wrong if path.name not in named_by_keras] == []


def test_a_monitor_of_episodes_has_the_steps_that_were_played(tmp_path):
    """Gym's and Stable-Baselines3's: reward, length and time of each episode, behind a line about the environment."""
    path = tmp_path / "monitor.csv"
    path.write_text('#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n21.0,21,1.7\n40.0,40,1.9\n9.5,9,2.5\n')
    log, _ = read(path, path.read_text())
    found = {one.name: (one.steps.tolist(), one.values.tolist()) for one in log.series}
    assert found["episode_reward"] == ([21, 61, 70], [21.0, 40.0, 9.5])
    assert found["episode_length"][1] == [21.0, 40.0, 9.0]


def test_dvclive_calls_a_metric_by_its_path(tmp_path):
    """A file for each metric, below ``plots/metrics``; whatever the metric is called, its file is a log."""
    for name in ("train/loss", "val/acc", "lr"):
        path = tmp_path / "dvclive" / "plots" / "metrics" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        column = name.rpartition("/")[2]
        path.write_text(f"step\t{column}\n" + "".join(f"{step}\t{1.0 / (step + 1)}\n" for step in range(20)))
    run = DirectoryRun(tmp_path)
    before = run.fingerprint(needs_of(Config()))
    roles = {one.name: one.role for one in run.read(needs_of(Config())).series}
    assert roles == {"train/loss": "train_loss", "val/acc": "val_accuracy", "lr": "learning_rate"}
    path.write_text(path.read_text() + "20\t0.01\n")
    assert DirectoryRun(tmp_path).fingerprint(needs_of(Config())) != before


def test_a_bare_loss_beside_a_training_loss_is_the_held_out_one(tmp_path):
    rough = 0.01 * np.random.default_rng(1).standard_normal((2, 21))

    def roles_of(gap, noise=1):
        losses = [(1.0 / at + rough[0][at], 1.0 / at + rough[noise][at]) for at in range(1, 21)]
        rows = [{"epoch": at, "train_loss": one, "loss": two + gap(at)} for at, (one, two) in enumerate(losses, 1)]
        (tmp_path / "metrics.json").write_text(json.dumps(rows))
        return {one.name: one.role for one in DirectoryRun(tmp_path).read(needs_of(Config())).series}

    assert roles_of(lambda at: 0.1 + 0.01 * at)["loss"] == "val_loss"
    assert roles_of(lambda at: 0.01 * (-1) ** at)["loss"] == "train_loss", "as often below it as above"
    assert roles_of(lambda at: 0.1 + 0.01 * at, noise=0)["loss"] == "train_loss", (
        "a total has the noise of its main term"
    )


TWO_TRAININGS = "".join(
    f"Epoch [{epoch}/{of}] loss: {top * 0.8**epoch:.4f}\n" for top, of in ((9.0, 20), (2.0, 10)) for epoch in range(1, of + 1)
)  # fmt: skip


@pytest.mark.parametrize(("segment", "epochs", "first", "said"), [
    (None, 10, 1.6, "the last one is judged, --segment N judges another"), (1, 20, 7.2, "number 1 is judged"),
    (2, 10, 1.6, "the last one is judged"), (9, 10, 1.6, "there is no number 9, and the last one is judged"),
])  # fmt: skip
def test_one_of_several_trainings(segment, epochs, first, said, tmp_path):
    path = tmp_path / "train.log"
    path.write_text(TWO_TRAININGS)
    log, _ = read_log(path, path.name, RolePlan(segment=segment))
    loss = next(one for one in log.series if one.role == "train_loss")
    assert (len(loss), loss.values[0], log.epochs) == (epochs, first, epochs)
    assert "2 trainings are in it" in log.note
    assert "1: epochs 1 to 20, loss 7.2 to 0.104" in log.note
    assert said in log.note


def test_attempts_that_overlap_are_said(tmp_path):
    rows = [(epoch, 2.0 * 0.9**epoch) for start, stop in ((6, 11), (8, 16), (10, 21)) for epoch in range(start, stop)]
    path = tmp_path / "train.log"
    path.write_text("".join(f"epoch {epoch} loss {loss:.4f}\n" for epoch, loss in rows))
    assert "its epochs went back 2 times, at first from 10 to 8" in read_log(path, path.name, RolePlan())[0].note
