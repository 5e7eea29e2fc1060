"""MLflow's client of a database that is read from a private copy, so that its files stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracker_health.stores.common.sqlite_files import PrivateCopy

_READS = ("get_", "search_", "list_", "download_", "_tracking_client", "tracking_uri")


class ReadsFromCopy:
    """MLflow's client of a database that reads from the copy, until the database is written to: by this client, or by
    another process.
    """

    def __init__(self, copy: PrivateCopy, make: Callable[[str], Any], uri: str) -> None:
        self._copy = copy
        self._reader = make(copy.uri)
        self._make = make
        self._uri = uri
        self._original: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._original is None:
            if name.startswith(_READS) and self._copy.is_current:
                return getattr(self._reader, name)
            self._original = self._make(self._uri)
        return getattr(self._original, name)
