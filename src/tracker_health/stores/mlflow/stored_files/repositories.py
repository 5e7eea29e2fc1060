"""MLflow's own objects for the places where artifacts lie."""

from __future__ import annotations

from typing import Any

from tracker_health.stores.mlflow.credentials import guard_repository
from tracker_health.stores.mlflow.older_clients import artifact_repository
from tracker_health.stores.remote.deadline import Bounded


def repository_of(artifact_uri: str, tracking_uri: str) -> Any:
    """MLflow's object for an artifact location; if that is elsewhere, its calls are given up after a time."""
    # Not the client's: it keeps one per run id in the process, whatever the tracking URI.
    from mlflow.utils.uri import add_databricks_profile_info_to_artifact_uri

    location = add_databricks_profile_info_to_artifact_uri(artifact_uri, tracking_uri)  # type: ignore[no-untyped-call]
    repository = guard_repository(artifact_repository(location, tracking_uri))
    return repository if is_local(repository) else Bounded(repository)


def is_local(repository: Any) -> bool:
    """Whether the artifacts lie on this machine, to be read in place."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    return isinstance(repository, LocalArtifactRepository)
