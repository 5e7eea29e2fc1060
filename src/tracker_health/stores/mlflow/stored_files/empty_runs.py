"""Which runs of a batch have no artifacts, told by one list of the runs' folders instead of a list for each run."""

from __future__ import annotations

import threading
import time
from pathlib import PurePosixPath
from typing import Any

from tracker_health.errors import RunError
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.stored_files.repositories import repository_of

EMPTY_BEFORE = 20
"""Runs that were listed and had nothing: only then is the list of all asked for, which may be long."""
_MOST_FOLDERS = 200_000
_SKEW_SECONDS = 60
"""How far behind the clock may be that says when a run ended."""
# Stores that are asked directly may report folders in their own ways: of those each run is listed.
_OF_SERVERS = "mlflow-artifacts:"


class EmptyRuns:
    """What is known of the artifacts of runs that are read about one after the other, by one thread or several."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}

    def has_none(self, run: Any) -> bool:
        """Whether the server has no folder for a run that had ended before the folders were listed."""
        location, ended = _location_of(run), run.info.end_time
        if not location or not ended:
            return False
        with self._lock:
            place = self._places.setdefault(location, _Place())
            if place.empty >= EMPTY_BEFORE and not place.listed_at:
                place.listed_at, place.folders = time.time(), self._folders(location)
        if place.folders is None or run.info.run_id in place.folders:
            return False
        return bool(ended / 1000 < place.listed_at - _SKEW_SECONDS)

    def note(self, run: Any, *, empty: bool) -> None:
        """Note what a run's own list said."""
        if empty and (location := _location_of(run)):
            with self._lock:
                self._places.setdefault(location, _Place()).empty += 1

    def _folders(self, location: str) -> frozenset[str] | None:
        """The names of the folders at a place; None where they are not known, or are too many."""
        try:
            with translated("the folders of the runs could not be listed", self._uri, at=location):
                entries = repository_of(location, self._uri).list_artifacts(None)
        except RunError:
            return None
        return frozenset(PurePosixPath(one.path).name for one in entries) if len(entries) <= _MOST_FOLDERS else None


class _Place:
    """Where the folders of many runs are: how many of them had nothing in them, and, once listed, which there are."""

    def __init__(self) -> None:
        self.empty = 0
        self.listed_at = 0.0
        self.folders: frozenset[str] | None = None


def _location_of(run: Any) -> str:
    """The place of a run's folder among others; empty where it is not called by the run's id, or not on the server."""
    uri, folder = run.info.artifact_uri or "", f"/{run.info.run_id}/artifacts"
    if not (uri.startswith(_OF_SERVERS) and uri.endswith(folder)):
        return ""
    return uri.removesuffix(folder) + "/"
