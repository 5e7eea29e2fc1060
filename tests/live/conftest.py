"""Real stores for trainings that are judged while they go on."""

from __future__ import annotations

import pytest

from ..stores.conftest import _no_telemetry, server_uri, sqlite_uri, wandb_server  # noqa: F401, TID252  fixtures


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow, whose store a test may set: that holds for the whole process."""
    package = pytest.importorskip("mlflow")
    from mlflow.tracking._tracking_service import utils

    monkeypatch.setattr(utils, "_tracking_uri", None)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return package


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    mlflow = pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("live")
    uri = f"sqlite:///{folder}/mlflow.db"
    mlflow.MlflowClient(uri).create_experiment("live", artifact_location=(folder / "artifacts").as_uri())
    return uri


@pytest.fixture
def uri(mlflow, database, monkeypatch):
    """The address of MLflow's database that is the one to log to, and the experiment ``live`` in it."""
    mlflow.set_tracking_uri(database)
    experiment = mlflow.MlflowClient(database).get_experiment_by_name("live").experiment_id
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    return database
