"""The runs whose judgement the documentation shows: logs in folders, and an MLflow database with a registered model.

Everything is made from fixed numbers, so that commands print the same on every machine.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

_STEPS, _EVERY, _EVALUATED = 1000, 10, 50
_BREAKS, _AFTER = 620, 660
_DAY = 86_400_000
_TRAIN = """import math
import mlflow

mlflow.set_experiment("by-hand")
with mlflow.start_run(run_name="late-shift"):
    mlflow.log_params({"learning_rate": 0.03, "optimizer": "adamw", "num_classes": 10})
    for step in range(10, 1001, 10):
        loss = 0.35 + 1.95 * math.exp(-step / 180) if step < 620 else 2.31 + 0.01 * (step % 7)
        mlflow.log_metrics({"loss": loss, "learning_rate": 0.03}, step=step)
"""


def make_folders(place: Path) -> None:
    """``outputs/run-12``, whose loss breaks, six healthy runs, and a ``train.py`` that logs to MLflow."""
    for number in (*range(5, 12), 12):
        folder = place / "outputs" / f"run-{number}"
        folder.mkdir(parents=True)
        rate = 0.03 if number == 12 else 0.001
        settings = {"learning_rate": rate, "optimizer": "adamw", "max_steps": _STEPS, "num_classes": 10}
        (folder / "config.json").write_text(json.dumps(settings))
        rows = _rows(number, rate, breaks=number == 12)
        (folder / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (place / "train.py").write_text(_TRAIN)


def _rows(seed: int, rate: float, *, breaks: bool) -> list[dict[str, float]]:
    """A loss that comes down to 0.3 to 0.5, with a noise of 2 %; or that breaks, with the gradient norm before it."""
    draw = random.Random(seed)  # noqa: S311  fixed numbers are what it is for
    pace, floor, rows = draw.uniform(130, 240), draw.uniform(0.28, 0.48), []
    for step in range(_EVERY, _STEPS + 1, _EVERY):
        loss, norm = floor + 1.95 * math.exp(-step / pace), 0.9 + 0.1 * draw.random()
        if breaks and step >= _BREAKS:
            norm *= 14
            loss = 2.31 + 0.05 * draw.random() if step > _AFTER else 3.9 - 0.03 * (step - _BREAKS)
        loss = round(loss * (1 + 0.02 * draw.gauss(0, 1)), 4)
        row = {"step": step, "loss": loss, "grad_norm": round(norm, 3), "learning_rate": rate}
        rows.append(row | ({"val_loss": round(1.06 * loss, 4)} if step % _EVALUATED == 0 else {}))
    return rows


def make_store(place: Path, uri: str) -> None:
    """An experiment ``nightly`` of four runs, one of which breaks and one of which is NaN, and a model ``net`` of a
    healthy one.
    """
    import logging

    logging.getLogger("mlflow").setLevel(logging.ERROR)  # it tells of each table that it makes
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.create_experiment("nightly", artifact_location=(place / "artifacts").as_uri())
    for number, (name, breaks) in enumerate([("mon", False), ("tue", True), ("wed", False), ("thu", False)]):
        rows = _rows(30 + number, 0.03 if breaks else 0.001, breaks=breaks)
        run = client.create_run(experiment, run_name=name, start_time=_now() - _DAY)
        logged = [
            Metric(key, math.nan if (name, key) == ("wed", "loss") and step > _BREAKS else value, 0, step)
            for row in rows
            for step in (int(row["step"]),)
            for key, value in row.items()
            if key != "step"
        ]
        params = [Param("learning_rate", str(rows[0]["learning_rate"])), Param("optimizer", "adamw")]
        client.log_batch(run.info.run_id, metrics=logged, params=params)
        client.set_terminated(run.info.run_id)
        if name == "mon":
            _register(client, run, place)


def _now() -> int:
    import time

    return int(time.time() * 1000)


def _register(client: Any, run: Any, place: Path) -> None:
    """A version of the model ``net``, with weights as a trained model has them."""
    import numpy as np
    from safetensors.numpy import save_file

    folder = place / "model"
    folder.mkdir()
    draw = np.random.default_rng(0)
    tensors = {f"{name}.weight": draw.standard_t(5, (64, 64)).astype(np.float32) / 8 for name in ("first", "second")}
    save_file(tensors, folder / "model.safetensors")
    client.log_artifacts(run.info.run_id, str(folder), "model")
    client.create_registered_model("net")
    client.create_model_version("net", f"runs:/{run.info.run_id}/model", run_id=run.info.run_id)
