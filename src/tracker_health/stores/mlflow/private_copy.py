"""A SQLite database with a log or journal next to it: read from a private copy, so that its files stay as they are.

When the last connection is closed, SQLite moves what is in the log of a killed process into the database, and deletes
the log. It does so even if nothing was written.
"""

from __future__ import annotations

import atexit
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.text import size_of

MAX_BYTES = 2**31
_LOGS = ("-wal", "-journal")
_READS = ("get_", "search_", "list_", "download_", "_tracking_client", "tracking_uri")
_CHUNK = 2**20
_PAGES = 4096  # copied at once; between two such steps SQLite lets others write

State = tuple[tuple[str, int, int], ...]


class PrivateCopy(NamedTuple):
    """``path``: of the copy; ``original``: of the database; ``state``: of its files when the copy was made."""

    path: Path
    original: Path
    state: State

    @property
    def uri(self) -> str:
        """The tracking URI of the copy."""
        return f"sqlite:///{self.path}"

    @property
    def is_current(self) -> bool:
        """Whether nothing has been written to the database since."""
        return _state_of(self.original) == self.state


_copies: dict[Path, PrivateCopy] = {}
_read_itself: dict[Path, str] = {}


def has_log(path: Path) -> bool:
    """Whether there is a log or a journal next to a database: of a process that uses it, or that was killed."""
    return any(Path(f"{path}{ending}").exists() for ending in _LOGS)


def read_only(path: Path) -> str:
    """SQLite's URI of a database that is opened without a change to any of its files. With a journal of a killed
    process, or a log without its index, SQLite refuses that.
    """
    return f"{path.resolve().as_uri()}?mode=ro&readonly_shm=1"


def private_copy(path: Path) -> PrivateCopy | None:
    """A copy of a database with a log or journal, made once in a process and deleted at its end. None where the
    database is read itself: it has neither, it is too large, or a process is writing to it, whose log it is then.
    """
    path = path.resolve()
    if not has_log(path):
        return None
    if path not in _copies and path not in _read_itself:
        size = sum(bytes_ for _, _, bytes_ in _state_of(path))
        if size > MAX_BYTES:
            _read_itself[path] = f"it is {size_of(size)} large, more than is copied"
            return None
        try:
            _copies[path] = _copied(path)
        except (OSError, ReadError, sqlite3.Error) as error:
            _read_itself[path] = f"no copy could be made: {error}"
    copy = _copies.get(path)
    return copy if copy is not None and copy.is_current else None


def why_not_private(path: Path) -> str:
    """Why a database with a log or journal was not copied; empty where it was, or has neither."""
    return _read_itself.get(path.resolve(), "") if _read_itself else ""


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


def _copied(path: Path) -> PrivateCopy:
    state, folder = _state_of(path), TemporaryFolder()
    copy = Path(folder.name, "copy.db")
    try:
        try:
            _back_up(path, copy)
        except sqlite3.Error:
            # No process has it open: else its log would have an index, and its journal a lock.
            copy.unlink(missing_ok=True)
            for ending in ("", *_LOGS):
                _copy_bytes(Path(f"{path}{ending}"), Path(f"{copy}{ending}"))
    except BaseException:
        folder.cleanup()
        raise
    atexit.register(folder.cleanup)
    return PrivateCopy(copy, path, state)


def _back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(read_only(path), uri=True)) as old, closing(sqlite3.connect(copy)) as new:
        new.execute("PRAGMA synchronous = OFF")
        old.backup(new, pages=_PAGES, sleep=0)


def _copy_bytes(source: Path, target: Path) -> None:
    if source.exists():
        with open_regular(source) as file, target.open("xb") as new:
            for chunk in _chunks(file):
                new.write(chunk)


def _chunks(file: Any) -> Iterator[bytes]:
    copied = 0
    while chunk := file.read(_CHUNK):
        copied += len(chunk)
        if copied > MAX_BYTES:
            raise ReadError("it grows while it is copied")
        yield chunk


def _state_of(path: Path) -> State:
    """Name, time and size of each of a database's files."""
    found = []
    for name in (f"{path}{ending}" for ending in ("", *_LOGS)):
        with suppress(OSError):
            status = Path(name).stat()
            found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)
