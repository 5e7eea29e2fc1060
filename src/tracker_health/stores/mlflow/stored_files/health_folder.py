"""The ``health`` folder among a run's artifacts: which files are there, ours put in and taken out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tracker_health.readers.files.regular_file import read_regular
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.mlflow.stored_files.artifact_folder import ArtifactFolder


class HealthFolder:
    """The folder of one run. Its store may raise anything, already when it is looked up."""

    def __init__(self, artifact_uri: str, tracking_uri: str) -> None:
        self._places = artifact_uri, tracking_uri

    def listed(self) -> dict[str, bool]:
        """The names in it, and whether each is a folder."""
        return self._folder().listed()

    def is_file(self) -> bool:
        """Whether a file of its name stands in its place."""
        entries = self._folder().repository.list_artifacts(None)
        return any(entry.path == HEALTH_FOLDER and not entry.is_dir for entry in entries)

    def why_not_written(self) -> str:
        """Why nothing may be written into it, "" where it may."""
        return self._folder().why_not_written()

    def places(self, names: Iterable[str]) -> list[Path]:
        """Where it and these files in it are on this machine; nothing where a server keeps them."""
        return self._folder().places(names)

    def read(self, name: str, limit: int) -> bytes:
        """A file's content; empty for one above the limit.

        Raises:
            ReadError: it is no regular file.
        """
        folder, path = self._folder(), f"{HEALTH_FOLDER}/{name}"
        entries = folder.repository.list_artifacts(HEALTH_FOLDER)
        if sum(entry.file_size or 0 for entry in entries if entry.path == path) > limit:
            return b""
        if folder.here is not None:
            return read_regular(folder.here / name, limit)
        with TemporaryFolder() as fetched:
            place = Path(fetched, "file")
            folder.repository._download_file(path, str(place))  # noqa: SLF001  as in reading
            return read_regular(place, limit)

    def upload(self, files: Mapping[str, bytes]) -> None:
        """Write files, by name."""
        self._folder().put(files)

    def delete(self, names: Iterable[str]) -> frozenset[str]:
        """Delete files; the names of those that are still there, or may be.

        Not every store can delete, and not everybody who may write may delete.
        """
        wanted = frozenset(names)
        if not wanted:
            return wanted
        try:
            folder = self._folder()
            there = folder.listed()
        except Exception:  # noqa: BLE001  whatever a store's own library raises
            return wanted
        left = frozenset(name for name in sorted(wanted & there.keys()) if not folder.delete(name, there))
        folder.remove_if_empty()
        return left

    def _folder(self) -> ArtifactFolder:
        return ArtifactFolder(*self._places, HEALTH_FOLDER)
