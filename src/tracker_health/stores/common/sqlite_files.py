"""SQLite databases that nobody vouches for: looked into without a change to their files, for a limited time.

One with a log or journal next to it is read from a private copy where SQLite would change it: when the last connection
is closed, SQLite moves what is in the log of a killed process into the database, and deletes the log. It does so even
if nothing was written.
"""

from __future__ import annotations

import atexit
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.text import size_of

_HEADER = b"SQLite format 3\0"
_FORMAT_AT, _WITH_LOG = 18, b"\x02"  # of the header
_LOOKING_SECONDS = 10.0
_INSTRUCTIONS = 100_000  # of SQLite, between two looks at the clock
MAX_BYTES = 2**31
_LOGS = ("-wal", "-journal")
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
        """As MLflow and SQLAlchemy name the copy."""
        return f"sqlite:///{self.path}"

    @property
    def is_current(self) -> bool:
        """Whether nothing has been written to the database since."""
        return state_of(self.original) == self.state


_copies: dict[Path, PrivateCopy] = {}
_read_itself: dict[Path, str] = {}


def is_sqlite(path: Path) -> bool:
    """Whether a file is a SQLite database, by its content."""
    return _beginning(path).startswith(_HEADER)


@contextmanager
def reading(
    path: Path, seconds: float = _LOOKING_SECONDS, *, at_rest: bool | None = None
) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, and that no query keeps for longer than that: the file may be anybody's.

    ``at_rest``: as ``is_at_rest`` said. Such a database is read as if nobody wrote to it: whoever expects that looks
    at its ``state_of`` before and after.
    """
    # SQLite would make a log for a database that has one when it is in use.
    alone = is_at_rest(path) if at_rest is None else at_rest
    source = f"{read_only(path)}{'&immutable=1' if alone else ''}"
    if has_log(path) and not _opens(source) and (copy := private_copy(path)) is not None:
        source = copy.path.as_uri()
    with _opened(source) as connection:
        end = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > end, _INSTRUCTIONS)
        connection.execute("PRAGMA trusted_schema = OFF")
        yield connection


def is_at_rest(path: Path) -> bool:
    """Whether a database is one that has a log when it is in use, and has none now."""
    is_logging = _beginning(path)[_FORMAT_AT : _FORMAT_AT + 1] == _WITH_LOG
    return is_logging and not Path(f"{path}-wal").exists()


def _beginning(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return bytes(file.read(_FORMAT_AT + 1))
    except (ReadError, OSError):  # whoever reads it says so
        return b""


def _opens(source: str) -> bool:
    try:
        with _opened(source) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error:
        return False
    return True


def _opened(source: str) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(source, uri=True, timeout=_LOOKING_SECONDS))


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
        size = sum(bytes_ for _, _, bytes_ in state_of(path))
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


def _copied(path: Path) -> PrivateCopy:
    state, folder = state_of(path), TemporaryFolder()
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


def state_of(path: Path) -> State:
    """Name, time and size of each of a database's files."""
    found = []
    for name in (f"{path}{ending}" for ending in ("", *_LOGS)):
        with suppress(OSError):
            status = Path(name).stat()
            found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)
