"""Names that real trainers and repositories log: the roles that they get, and one verdict for one curve under any of them.

``data/names/sets.jsonl``: one run's names a line, each with the role that a person gave it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tracker_health
from tracker_health.roles import assign

SETS = [json.loads(line) for line in (Path(__file__).parent / "data" / "names" / "sets.jsonl").read_text().splitlines()]
LOSSES = ("train_loss", "val_loss")
JUDGED = {*LOSSES, "train_accuracy", "val_accuracy", "train_auc", "val_auc", "train_reward", "val_reward"}
TERMS = {"train_loss_term", "val_loss_term"}
SINCE = {"workload", "elapsed"}
"""Roles that were none when the names were looked at."""
AS_TERMS = {"loss_part", "objective_loss", "val_loss_term"}


def fits(role, given, truth):
    """Whether a name's role does no harm: it is the right one, or none, or nothing that changes a verdict."""
    if given is None or given == role or (role is None and given in SINCE):
        return True
    if role in TERMS or role == "objective_loss":
        return given in AS_TERMS
    if role == "lower_better_val":
        return given == "val_loss" and "val_loss" not in truth.values()
    return role is None and given == "train_loss" and "train_loss" not in truth.values()


def faults(one):
    """The roles of a set that are wrong, and the losses that were missed."""
    truth, given = one["names"], assign(one["names"])
    wrong = {name: given.get(name) for name, role in truth.items() if not fits(role, given.get(name), truth)}
    missed = [
        role
        for role in LOSSES
        if role in truth.values() and not any(given.get(name) == role for name, is_ in truth.items() if is_ == role)
    ]
    return wrong, missed


def test_the_roles_of_real_names():
    found = {one["id"]: faults(one) for one in SETS}
    faulty = {name for name, (wrong, missed) in found.items() if wrong or missed}
    losses = {name for name, (wrong, missed) in found.items() if missed or set(LOSSES) & {*wrong.values()}}
    judged_wrongly = {name for name, (wrong, _) in found.items() if JUDGED & {*wrong.values()}}
    assert len(found) == 163
    assert len(faulty) <= 21, faulty
    assert len(losses) <= 9, losses
    assert len(judged_wrongly) <= 4, judged_wrongly


@pytest.mark.parametrize("one", SETS, ids=[one["id"] for one in SETS])
def test_a_held_out_loss_is_never_a_part_of_the_training_loss(one):
    given = assign(one["names"])
    said = ("val", "eval", "test", "valid")
    held_out = [name for name in one["names"] if name.lower().split("/")[0].split("_")[0] in said]
    assert not {given.get(name) for name in held_out} & {"loss_part", "train_loss"}


# The same two curves as different trainers call them; of terms each has its share.
TRAINERS = {
    "Hugging Face": (["loss"], ["eval_loss"]),
    "Lightning": (["train_loss_epoch"], ["val_loss"]),
    "Keras": (["loss"], ["val_loss"]),
    "fairseq": (["train_loss"], ["valid_loss"]),
    "LLaMA-Factory with a named set": (["train/loss"], ["eval/alpaca_en_loss"]),
    "names with capitals": (["trainLoss"], ["valLoss"]),
    "Megatron": (["lm loss"], ["lm loss validation"]),
    "nnU-Net": (["train_losses"], ["val_losses"]),
    "OLMo": (["train/CE loss"], ["eval/lm/c4-validation/CE loss"]),
    "FunASR": (["rank0_loss/train"], ["rank0_loss/val"]),
    "Coqui": (["TrainEpochStats/avg_loss"], ["EvalStats/avg_loss"]),
    "Composer": (["metrics/train/LanguageCrossEntropy"], ["metrics/eval/LanguageCrossEntropy"]),
    "XGBoost": (["train-logloss"], ["eval-logloss"]),
    "Ultralytics": (["train/box_loss", "train/cls_loss"], ["val/box_loss", "val/cls_loss"]),
    "Chainer": (["main/loss"], ["validation/main/loss"]),
    "Spanish": (["perdida_train"], ["perdida_val"]),
}
N = 60
FALL = 0.2 + 2.1 * 0.93 ** np.arange(N) + 0.01 * (np.arange(N) % 3 - 1)
CURVES = {
    "pass": (FALL, 0.1 + FALL),
    "warn": (FALL, 0.1 + FALL + 0.05 * np.maximum(np.arange(N) - 15, 0)),
    "fail": (np.where(np.arange(N) < 40, FALL, np.nan), 0.1 + FALL),
}
"""By the verdict on them: healthy, overfitted, not a number from the 40th step on."""


def rows(trainer, curves):
    """The curves, step by step, under a trainer's names."""
    shares = [
        (name, values / len(names)) for names, values in zip(TRAINERS[trainer], curves, strict=True) for name in names
    ]
    return [{"step": step, **{name: float(values[step - 1]) for name, values in shares}} for step in range(1, N + 1)]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("verdict", CURVES)
@pytest.mark.thinned(3)
def test_one_curve_has_one_verdict_in_files(trainer, verdict, tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in rows(trainer, CURVES[verdict]))
    (tmp_path / "log.jsonl").write_text(lines)
    report = tracker_health.check(tmp_path)
    assert report.verdict == verdict, (report.summary, report.notes)


@pytest.mark.exhaustive
def test_one_curve_has_one_verdict_in_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("names", artifact_location=str(tmp_path / "artifacts"))
    given = {}
    for trainer in TRAINERS:
        run = client.create_run(experiment)
        points = [
            mlflow.entities.Metric(name, value, 0, row["step"])
            for row in rows(trainer, CURVES["warn"])
            for name, value in row.items()
            if name != "step"
        ]
        for start in range(0, len(points), 500):
            client.log_batch(run.info.run_id, metrics=points[start : start + 500])
        client.set_terminated(run.info.run_id)
        given[trainer] = str(tracker_health.check(run.info.run_id, tracking_uri=uri).verdict)
    assert given == dict.fromkeys(TRAINERS, "warn")
