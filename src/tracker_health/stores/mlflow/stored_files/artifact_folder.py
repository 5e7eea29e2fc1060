"""A folder of ours among a run's artifacts: put in and taken out again, on a server or on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracker_health.stores.common.atomic_files import (
    is_leftover,
    link_among,
    refuse_links,
    remove_leftovers,
    replace_file,
)
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.mlflow.stored_files.repositories import is_local, repository_of
from tracker_health.stores.remote import hosts
from tracker_health.text import printable


class ArtifactFolder:
    """The folder ``name`` of one run. Its store may raise anything, already when it is looked up."""

    def __init__(self, artifact_uri: str, tracking_uri: str, name: str) -> None:
        self.repository: Any = repository_of(artifact_uri, tracking_uri)
        self._name = name
        self._uri = tracking_uri

    @property
    def here(self) -> Path | None:
        """Where it is on this machine; None where a server keeps it."""
        return Path(self.repository.artifact_dir, self._name) if is_local(self.repository) else None

    def listed(self) -> dict[str, bool]:
        """The names in it, and whether each is a folder."""
        entries = self.repository.list_artifacts(self._name)
        found = {entry.path.removeprefix(f"{self._name}/"): bool(entry.is_dir) for entry in entries}
        return {name: is_dir for name, is_dir in found.items() if not is_leftover(name)}

    def why_not_written(self) -> str:
        """Why tracker-health may not write here, "" where it may."""
        place = self.here
        if place is None:
            return ""
        if place.parent.is_symlink():
            return f"the folder of its artifacts is a link: {printable(place.parent)}"
        if not hosts.is_of_this_machine(self._uri) and not hosts.is_allowed(self._uri):
            host = hosts.host_of(self._uri)
            named = f"{host} names a folder of this machine as their place: {printable(place.parent)}"
            return f"{named}; trusted_hosts = [{host!r}] in the configuration allows it"
        return ""

    def places(self, names: Iterable[str]) -> list[Path]:
        """Where the folder and these files in it are on this machine; nothing where a server keeps them."""
        return [] if self.here is None else [self.here, *(self.here / name for name in sorted(names))]

    def put(self, files: Mapping[str, bytes]) -> None:
        """Write files, by name."""
        place = self.here
        if place is None:
            with TemporaryFolder() as folder:
                for name, content in files.items():
                    Path(folder, name).write_bytes(content)
                self.repository.log_artifacts(folder, self._name)
            return
        refuse_links(self.places(files))
        place.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place)
        for name, content in files.items():
            replace_file(place / name, content)

    def delete(self, name: str, there: Mapping[str, bool]) -> bool:
        """Whether a file could be deleted. ``there``: what is in the folder. Not every store can delete, and not
        everybody who may write may delete.
        """
        with suppress(Exception):  # whatever a store's own library raises
            place = self.here
            if place is not None:  # MLflow 2 deletes nothing but folders here
                if self.why_not_written() or link_among(self.places([name])):
                    return False
                (place / name).unlink(missing_ok=True)
                return True
            # Object stores of older versions delete all that begins with the path.
            if there[name] or any(other != name and other.startswith(name) for other in there):
                return False
            self.repository.delete_artifacts(f"{self._name}/{name}")
            return True
        return False

    def remove_if_empty(self) -> None:
        """Take the folder away where nothing of the user's is in it."""
        place = self.here
        if place is None:
            self._remove_from_server()
        elif not self.why_not_written() and not place.is_symlink():
            with suppress(OSError):  # it is not there, or not empty
                remove_leftovers(place)
                place.rmdir()

    def _remove_from_server(self) -> None:
        """The same on a server that keeps files in folders. Only of the folder that has our name: what deletes one
        there takes along what someone puts into it that moment.
        """
        with suppress(Exception):  # whatever a store's own library raises
            if self._name == HEALTH_FOLDER and not self.listed():
                self.repository.delete_artifacts(f"{self._name}/")  # object stores delete what begins like that
