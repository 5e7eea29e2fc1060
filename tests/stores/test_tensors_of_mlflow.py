"""The tensors of a run whose checkpoint is an artifact."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracker_health
from tracker_health.evidence import Attribution

mlflow = pytest.importorskip("mlflow")

ADAPTER = Path(__file__).parent.parent / "data" / "attribution" / "lora_layers"


def test_a_logged_checkpoint_is_fetched_and_named(sqlite_uri):
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    experiment = client.get_experiment_by_name("local").experiment_id
    run = client.create_run(experiment).info.run_id
    client.log_artifacts(run, str(ADAPTER), "checkpoint-4")
    client.set_terminated(run)
    table = tracker_health.read_tensors(run, tracking_uri=sqlite_uri)
    assert table.run.store == "mlflow"
    assert table.attribution is Attribution.CONTENT_CHECKED
    assert len(table.rows) == 12
    assert table.weights_source.endswith("adapter_model.safetensors")
