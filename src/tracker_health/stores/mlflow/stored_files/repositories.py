"""MLflow's own objects for the places where artifacts are."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
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
    return _listed_by_entry(repository) if is_local(repository) else Bounded(repository)


def is_local(repository: Any) -> bool:
    """Whether the artifacts are on this machine, to be read in place."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    return isinstance(repository, LocalArtifactRepository)


def _listed_by_entry(repository: Any) -> Any:
    """The same, whose list of a folder lacks what leads nowhere: MLflow gives no list of a folder with such a link."""
    kind = type(repository)
    repository.__class__ = type(kind.__name__, (_ByEntry, kind), {})
    return repository


class _ByEntry:
    """Before MLflow's class for artifacts on this machine."""

    artifact_dir: str

    def list_artifacts(self, path: str | None = None) -> list[Any]:
        """As MLflow's."""
        try:
            found: list[Any] = super().list_artifacts(path)  # type: ignore[misc]
        except OSError as error:  # of one entry, or of the folder itself
            try:
                with os.scandir(Path(self.artifact_dir, path or "")) as entries:
                    known = [_info_of(entry, path) for entry in entries]
            except OSError:
                raise error from None
            found = sorted(filter(None, known), key=lambda info: str(info.path))
        return found


def _info_of(entry: os.DirEntry[str], folder: str | None) -> Any:
    from mlflow.entities import FileInfo

    path = str(PurePosixPath(folder or "", entry.name))
    try:
        size = None if entry.is_dir() else entry.stat().st_size
    except OSError:
        return None
    return FileInfo(path, size is None, size)
