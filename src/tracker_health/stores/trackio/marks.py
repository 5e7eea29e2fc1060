"""Our marks on the runs of a project: a table in a database of ours next to trackio's.

Not in trackio's own: there a mark would wait for the training that writes to it. It would be in the way when a newer
trackio changes its tables. ``tracker-health/PROJECT/marks.sqlite`` has a row for each mark; next to
it is a folder for each run that has files of ours.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError, StoreRefused, WriteError
from tracker_health.stores.common.atomic_files import refuse_links
from tracker_health.stores.common.record import Mark
from tracker_health.stores.common.sqlite_files import reading
from tracker_health.text import printable

OWN_FOLDER = "tracker-health"
MARKS_FILE = "marks.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS marks (run TEXT, name TEXT, value, PRIMARY KEY (run, name)) WITHOUT ROWID"
_MOST_MARKS, _MAX_CHARACTERS = 20_000, 100_000
_WAIT_SECONDS = 10.0
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")
_TRIES = 5


def folder_of(database: Path, run: str) -> Path:
    """Where the files of ours are that belong to a run."""
    name = run if _PLAIN.fullmatch(run) else hashlib.sha256(run.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return database.parent / OWN_FOLDER / database.stem / name


class MarksTable:
    """The marks of the runs of a project. ``database``: trackio's."""

    def __init__(self, database: Path) -> None:
        self.path = database.parent / OWN_FOLDER / database.stem / MARKS_FILE

    def of(self, run: str) -> dict[str, Mark]:
        """The marks of a run.

        Raises:
            ReadError: the table cannot be read.
        """
        refuse_links([self.path])
        if not self.path.exists() or not self.path.stat().st_size:
            return {}
        query = "SELECT name, value FROM marks WHERE run = ? AND length(value) <= ? AND length(name) <= ? LIMIT ?"
        limits = (run, _MAX_CHARACTERS, _MAX_CHARACTERS, _MOST_MARKS)
        try:
            with reading(self.path) as connection:
                return {name: value for name, value in connection.execute(query, limits) if _is_mark(name, value)}
        except sqlite3.Error as error:
            if not self.path.exists():  # someone took the last mark off meanwhile
                return {}
            raise ReadError(f"{printable(self.path)} cannot be read: {printable(error, 200)}", _SAVED) from None

    def change(self, run: str, changes: Mapping[str, Any]) -> None:
        """Set marks of a run, and take off those whose value is None: all of it or nothing. With its last mark the
        table goes.

        Raises:
            StoreRefused: no permission.
            WriteError: it cannot be written.
        """
        try:
            with self._writing() as connection:
                connection.execute(_TABLE)
                for name, value in changes.items():
                    connection.execute("DELETE FROM marks WHERE run = ? AND name = ?", (run, name))
                    if value is not None:
                        connection.execute("INSERT INTO marks VALUES (?, ?, ?)", (run, name, value))
                is_empty = connection.execute("SELECT 1 FROM marks LIMIT 1").fetchone() is None
            if is_empty:
                self._remove()
        except (sqlite3.Error, OSError) as error:
            what = f"{printable(self.path)} could not be written: {printable(error, 200)}"
            if "readonly" in str(error) or isinstance(error, PermissionError):
                raise StoreRefused(what, "may this account write there?") from error
            raise WriteError(what, "annotate it again") from error

    def _remove(self) -> None:
        """Delete the table, if it is still empty. Nothing is written in that transaction: a journal would be taken for
        that of the next file here.
        """
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM marks LIMIT 1").fetchone() is None:
                self.path.unlink()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A connection that keeps all others off the file that is at the path: another may have taken that away since
        it was opened.
        """
        refuse_links([self.path])
        for _ in range(_TRIES):
            self.path.touch()
            known = self.path.stat().st_ino
            with closing(_opened(self.path)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                if self._inode() == known:
                    yield connection
                    connection.execute("COMMIT")
                    return
        raise sqlite3.OperationalError("others take it away all the time")

    def _inode(self) -> int:
        with suppress(FileNotFoundError):
            return self.path.stat().st_ino
        return 0


_SAVED = "move it away: the runs are then without a verdict, and are judged again"


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _is_mark(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, (str, int, float))
