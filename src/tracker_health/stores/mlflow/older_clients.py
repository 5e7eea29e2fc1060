"""What the installed MLflow has not got because it is older, done with what it has: the one place for that."""

from __future__ import annotations

import inspect
import os
from functools import cache
from typing import Any


@cache
def takes_colons() -> bool:
    """Whether the installed MLflow takes a colon in a metric's name: since 2.16, and not on Windows."""
    from mlflow import __version__

    release = tuple(int(part) for part in __version__.split(".")[:2])
    return release >= (2, 16) and os.name != "nt"


def artifact_repository(location: str, tracking_uri: str) -> Any:
    """MLflow's object for an artifact location that a store with this URI gave."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    if "tracking_uri" in inspect.signature(get_artifact_repository).parameters:
        return get_artifact_repository(location, tracking_uri=tracking_uri)
    # Before MLflow 3.0, which takes the process's tracking URI for the server that keeps a run's artifacts.
    if location.startswith("mlflow-artifacts:"):
        from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

        location = MlflowArtifactsRepository.resolve_uri(location, tracking_uri)  # type: ignore[no-untyped-call]
    return get_artifact_repository(location)
