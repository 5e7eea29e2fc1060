"""The files of one folder, wherever that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tracker_health.readers.files.random_access import LocalFile, RandomAccess


class Folder(Protocol):
    """The files that are in one folder, wherever that is."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its files, without those of folders in it."""

    def open(self, name: str) -> RandomAccess:
        """One of its files. Whoever opens it closes it.

        Raises:
            RunError: there is no such file, or it cannot be fetched.
            OSError: it cannot be read.
        """


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def names(self) -> Sequence[str]:
        return sorted(one.name for one in self._path.iterdir() if one.is_file())

    def open(self, name: str) -> RandomAccess:
        return LocalFile(self._path / name)
