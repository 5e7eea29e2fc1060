"""The ``health`` folder among a run's artifacts: which files are there, ours put in and taken out again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tracker_health.readers.files.regular_file import read_regular
from tracker_health.stores.base import NoPlace
from tracker_health.stores.common.atomic_files import refuse_links
from tracker_health.stores.common.ownership import HEALTH_FOLDER, OUR_FILES, in_the_way
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.mlflow.stored_files.artifact_folder import ArtifactFolder

IMAGES_TAG = "mlflow.loggedImages"
"""By this tag MLflow's pages know that a run has images among its metrics."""

# Earlier versions put a picture among them: as MLflow's pages take the name apart, key, step, time and a random part.
_IMAGES, _IMAGE = "images", "health~loss+step+0+timestamp+1+5b0f3c7e-2d6b-4c1a-9f0e-7468656c7468"
_PICTURES = frozenset({f"{_IMAGE}.png", f"{_IMAGE}+compressed.webp"})


class HealthFolder:
    """The folder of one run. Its store may raise anything, already when it is looked up."""

    def __init__(self, run: str, artifact_uri: str, tracking_uri: str) -> None:
        self._run, self._places = run, (artifact_uri, tracking_uri)

    def listed(self, ours: frozenset[str]) -> dict[str, bool]:
        """The names in it, and whether each is a folder. ``ours``: of our files, by the run's record.

        Raises:
            NoPlace: nothing may be written into it.
            WriteError: a link, or a file, is in its place.
        """
        folder = self._folder()
        if why := folder.why_not_written():
            raise NoPlace(why)
        refuse_links(folder.places(OUR_FILES | ours))
        found = folder.listed()
        if not found and self._is_file(folder):
            raise in_the_way(f"the artifact {HEALTH_FOLDER}", self._run)
        return found

    def _is_file(self, folder: ArtifactFolder) -> bool:
        """Whether a file of its name is in its place."""
        entries = folder.repository.list_artifacts(None)
        return any(entry.path == HEALTH_FOLDER and not entry.is_dir for entry in entries)

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

    def remove_picture(self) -> tuple[frozenset[str], bool]:
        """Take the picture of an earlier version out of the metrics. The paths of what is left of it; and whether no
        image of anybody else's is there, False where that is not known.
        """
        with suppress(Exception):  # whatever a store's own library raises
            folder = self._folder(_IMAGES)
            there = folder.listed()
            ours = sorted(_PICTURES & there.keys())
            for name in ours:
                folder.delete(name, there)
            folder.remove_if_empty()
            left = frozenset(folder.listed())
            return frozenset(f"{_IMAGES}/{name}" for name in left & _PICTURES), bool(ours) and left <= _PICTURES
        return frozenset(), False

    def _folder(self, name: str = HEALTH_FOLDER) -> ArtifactFolder:
        return ArtifactFolder(*self._places, name)
