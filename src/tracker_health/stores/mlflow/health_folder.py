"""The ``health`` folder among a run's artifacts: which files are there, ours put in and taken out again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracker_health.readers.regular_file import open_regular
from tracker_health.stores.mlflow.artifacts import is_local, repository_of
from tracker_health.stores.own import HEALTH_FOLDER


class HealthFolder:
    """The folder of one run. Its store may raise anything, already when it is looked up."""

    def __init__(self, artifact_uri: str, tracking_uri: str) -> None:
        self._places = artifact_uri, tracking_uri

    def listed(self) -> dict[str, bool]:
        """The names in it, and whether each is a folder."""
        entries = self._repository().list_artifacts(HEALTH_FOLDER)
        return {entry.path.removeprefix(f"{HEALTH_FOLDER}/"): bool(entry.is_dir) for entry in entries}

    def is_file(self) -> bool:
        """Whether a file of its name stands in its place."""
        entries = self._repository().list_artifacts(None)
        return any(entry.path == HEALTH_FOLDER and not entry.is_dir for entry in entries)

    def read(self, name: str, limit: int) -> bytes:
        """A file's content; empty for one above the limit."""
        repository, path = self._repository(), f"{HEALTH_FOLDER}/{name}"
        if (
            sum(entry.file_size or 0 for entry in repository.list_artifacts(HEALTH_FOLDER) if entry.path == path)
            > limit
        ):
            return b""
        with tempfile.TemporaryDirectory(prefix="tracker-health-") as folder:
            place = Path(folder, "file")
            if is_local(repository):
                place = Path(repository.artifact_dir, path)
            else:
                repository._download_file(path, str(place))  # noqa: SLF001  as in reading
            with open_regular(place) as file:
                return file.read(limit)

    def upload(self, files: Mapping[str, bytes]) -> None:
        """Write files, by name."""
        with tempfile.TemporaryDirectory(prefix="tracker-health-") as folder:
            for name, content in files.items():
                Path(folder, name).write_bytes(content)
            self._repository().log_artifacts(folder, HEALTH_FOLDER)

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        """Delete files; the names of those that are still there, or may be.

        Not every store can delete, and not everybody who may write may delete.
        """
        wanted = frozenset(names)
        if not wanted:
            return wanted
        try:
            repository, there = self._repository(), self.listed()
        except Exception:  # noqa: BLE001  whatever a store's own library raises
            return wanted
        left = frozenset(name for name in sorted(wanted & there.keys()) if not _deleted(repository, name, there))
        if is_local(repository):
            with suppress(OSError):  # it is not empty: something of the user's is in it
                Path(repository.artifact_dir, HEALTH_FOLDER).rmdir()
        return left

    def _repository(self) -> Any:
        return repository_of(*self._places)


def _deleted(repository: Any, name: str, there: Mapping[str, bool]) -> bool:
    """Whether the file could be deleted."""
    with suppress(Exception):
        path = f"{HEALTH_FOLDER}/{name}"
        if is_local(repository):  # MLflow 2 deletes nothing but folders here
            Path(repository.artifact_dir, path).unlink(missing_ok=True)
            return True
        # Object stores of older versions delete all that begins with the path.
        if there[name] or any(other != name and other.startswith(name) for other in there):
            return False
        repository.delete_artifacts(path)
        return True
    return False
