"""Real stores for trainings that are watched."""

from __future__ import annotations

import pytest


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow, whose store a test or a trainer's logger may set: that holds for the whole process, and its children."""
    package = pytest.importorskip("mlflow")
    from mlflow.tracking._tracking_service import utils

    monkeypatch.setattr(utils, "_tracking_uri", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    return package


@pytest.fixture
def store(mlflow, tmp_path):
    """A client of MLflow's database that is the one to log to, its address, and an experiment ``watched`` in it."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(uri)
    return client, uri, client.create_experiment("watched", artifact_location=(tmp_path / "artifacts").as_uri())
