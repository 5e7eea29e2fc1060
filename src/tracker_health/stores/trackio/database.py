"""A project of trackio's: a SQLite database in the user's folder, looked into read-only.

trackio creates and changes its tables as it is updated, so they are known by their columns. Until 0.23 a run is its
name; since then it has an id. A database may come from anybody: what would run in it (a view, a trigger, a virtual
table, a generated column) is refused, and what is read of it has limits.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tracker_health.errors import ReadError, RunNotFound
from tracker_health.stores.common.sqlite_files import State, is_at_rest, is_sqlite, reading, state_of
from tracker_health.text import printable

ENDING, INBOX_FOLDER = ".db", "inbox"
TRIED = "0.20 to 0.43"
"""The versions of trackio whose databases were tried."""
MAX_ROW_BYTES = 2**20
_MAX_VALUE_BYTES = 2**26
_MAX_NAME_BYTES = 2_000
_READING_SECONDS = 60.0
_TRIES, _PAUSE_SECONDS = 20, 0.05
_MOST_RUNS = 100_000
_MOST_NAMED = 5
_NEEDED = {"metrics": frozenset({"id", "timestamp", "run_name", "step", "metrics"})}
_WANTED = {
    "configs": frozenset({"run_name", "config"}),
    "alerts": frozenset({"timestamp", "run_name", "title", "text", "level", "step", "alert_id"}),
    "project_metadata": frozenset({"key", "value"}),
}

_Read = TypeVar("_Read")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """``key``: the column by which a run is known. ``tables``: those that have all that is used of them."""

    key: str
    tables: frozenset[str]

    @property
    def has_ids(self) -> bool:
        """Whether a run is known by an id, and keeps it when it is renamed."""
        return self.key == "run_id"


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """What the rows of a run come to. ``key``: its id, in older databases its name; ``first`` and ``last``: the times
    of its rows, in seconds since 1970, None where they say none; ``last_said``: the last of them as trackio wrote it.
    """

    key: str
    name: str
    rows: int
    last_step: int
    first: float | None
    last: float | None
    last_said: str


_kept: dict[str, tuple[State | tuple[()], list[RunRow]]] = {}


def projects_folder() -> Path:
    """The folder that has a database for each project: ``TRACKIO_DIR``, else the one in Hugging Face's cache."""
    if chosen := os.environ.get("TRACKIO_DIR"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HF_HOME") or Path(cache, "huggingface")).expanduser() / "trackio"


def file_name(project: str) -> str:
    """What trackio calls the database of a project: of its name it keeps letters, digits, - and _."""
    kept = "".join(one for one in project if one.isalnum() or one in "-_")
    return f"{kept or 'default'}{ENDING}"


class Database:
    """The database of a project, which is there and is trackio's.

    Raises:
        RunNotFound: there is no such project.
        ReadError: it cannot be read, or is not as trackio makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.project = path.name.removesuffix(ENDING)
        self.layout = self.read(_layout_of)

    @classmethod
    def of(cls, project: str) -> Database:
        """That of a project by its name."""
        folder = projects_folder()
        path = folder / file_name(project)
        if not path.is_file():
            shown = printable(project, 100)
            raise RunNotFound(f"there is no project {shown!r} of trackio's in {printable(folder)}", _what_is_in(folder))
        return cls(path)

    def read(self, query: Callable[[sqlite3.Connection], _Read]) -> _Read:
        """What a function reads of it, all of one moment.

        Raises:
            ReadError: it cannot be read.
        """
        shown = f"the trackio database {printable(self.path)}"
        if not is_sqlite(self.path):
            raise ReadError(f"{shown} is no SQLite database", "give TRACKIO_DIR, or restore it from a copy")
        try:
            return self._read(query)
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise ReadError(f"{shown} cannot be read: another process holds it", "try again later") from None
            what = "it took too long" if "interrupted" in str(error) else printable(error, 200)
            hint = "copy it from where it was written, with the -wal and -shm files next to it"
            raise ReadError(f"{shown} cannot be read: {what}", hint) from None

    def _read(self, query: Callable[[sqlite3.Connection], _Read]) -> _Read:
        for _ in range(_TRIES):
            before, at_rest = state_of(self.path), is_at_rest(self.path)
            try:
                with reading(self.path, _READING_SECONDS, at_rest=at_rest) as connection:
                    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
                    connection.execute("BEGIN")
                    found = query(connection)
            except sqlite3.Error as error:
                came_or_went = _is_of_opening(error) and not at_rest
                if state_of(self.path) == before and not came_or_went:
                    raise
            else:
                if not at_rest or state_of(self.path) == before:
                    return found
            time.sleep(_PAUSE_SECONDS)  # it was written to meanwhile, or its log came or went
        raise sqlite3.OperationalError("it is written to all the time")

    def runs(self) -> list[RunRow]:
        """All its runs, the newest first. They are kept until the database changes: whoever goes through all of them
        looks for each by its name.
        """
        state = state_of(self.path)
        kept, runs = _kept.get("last", ((), []))
        if kept != state:
            runs = self.read(lambda connection: _runs_of(connection, self.layout.key))
            _kept["last"] = state, runs
        return runs

    def run(self, key: str) -> RunRow | None:
        """The run that is known by this; None where it has no rows."""
        return self.read(lambda connection: _run_of(connection, self.layout.key, key))

    def find(self, text: str) -> RunRow:
        """The run of this id or name.

        Raises:
            RunNotFound: there is none, or several have the name.
        """
        if (found := self.run(text)) is not None:
            return found
        named = self._named(text)
        shown = f"{printable(text, 100)} in the trackio project {printable(self.project, 100)}"
        if len(named) > 1:
            hint = f"give one by its id: {', '.join(printable(one.key, 40) for one in named[:_MOST_NAMED])}"
            raise RunNotFound(f"there are {len(named)} runs {shown}", hint)
        if not named:
            raise RunNotFound(f"there is no run {shown}", self.what_is_there())
        return named[0]

    def _named(self, name: str) -> list[RunRow]:
        """The runs of this name, the newest first: by their configurations, which have an index of names."""
        if "configs" in self.layout.tables and self.layout.has_ids:
            query = "SELECT DISTINCT run_id FROM configs WHERE run_name = ? LIMIT ?"
            keys = self.read(lambda connection: connection.execute(query, (name, _MOST_RUNS)).fetchall())
            found = [one for (key,) in keys if (one := self.run(str(key))) is not None and one.name == name]
            if found:
                return sorted(found, key=lambda one: one.first or 0.0, reverse=True)
        return [one for one in self.runs() if one.name == name]

    def what_is_there(self) -> str:
        """For a hint: the names of its newest runs."""
        names = [f"trackio:{self.project}/{one.name}" for one in self.runs()]
        more = ", ..." if len(names) > _MOST_NAMED else ""
        return f"it has {', '.join(printable(name, 100) for name in names[:_MOST_NAMED])}{more}"

    def config(self, run: RunRow) -> bytes:
        """The configuration of a run, as JSON; empty where it has none."""
        return b"".join(self._texts("configs", "config", run))[:MAX_ROW_BYTES]

    def _texts(self, table: str, column: str, run: RunRow) -> list[bytes]:
        if table not in self.layout.tables:
            return []
        query = f"SELECT {column} FROM {table} WHERE {self.layout.key} = ? AND length({column}) <= ? LIMIT 1"  # noqa: S608 - names of ours
        rows = self.read(lambda connection: connection.execute(query, (run.key, MAX_ROW_BYTES)).fetchall())
        return [as_bytes(value) for (value,) in rows]

    def space(self) -> str:
        """The Space that its runs are sent to; empty where they stay here."""
        if "project_metadata" not in self.layout.tables:
            return ""
        query = "SELECT value FROM project_metadata WHERE key = 'space_id' AND length(value) <= ?"
        rows = self.read(lambda connection: connection.execute(query, (_MAX_NAME_BYTES,)).fetchall())
        return str(rows[0][0]) if rows else ""


def is_of_trackio(path: Path) -> bool:
    """Whether a file is a database that has trackio's table of metrics."""
    if not is_sqlite(path):
        return False
    try:
        with reading(path) as connection:
            return _NEEDED["metrics"] <= _columns(connection, "metrics")
    except sqlite3.Error:
        return False


def rows_of(connection: sqlite3.Connection, layout: Layout, key: str) -> Iterator[tuple[int, str, bytes]]:
    """Step, time and values (JSON) of each row of a run, in the order in which they were logged."""
    query = (
        "SELECT step, timestamp, metrics FROM metrics "  # noqa: S608 - a name of ours
        f"WHERE {layout.key} = ? AND length(metrics) <= ? AND length(timestamp) <= ? ORDER BY timestamp, id"
    )
    for step, said, values in connection.execute(query, (key, MAX_ROW_BYTES, _MAX_NAME_BYTES)):
        yield step if isinstance(step, int) else 0, str(said), as_bytes(values)


def _is_of_opening(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN


def as_bytes(value: object) -> bytes:
    """What SQLite has as text or as bytes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def seconds_of(said: object) -> float | None:
    """A time as trackio writes it, in seconds since 1970; None for what is none."""
    try:
        return datetime.fromisoformat(str(said)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _run_of(connection: sqlite3.Connection, key: str, run: str) -> RunRow | None:
    """The run that is known by this, each part by the index that is made for it; None where it has no rows."""
    of_run = f"FROM metrics WHERE {key} = :run"
    parts = ("substr(run_name, 1, :most)", "step", "substr(timestamp, 1, :most)", "substr(timestamp, 1, :most)")
    orders = ("LIMIT 1", "ORDER BY step DESC LIMIT 1", "ORDER BY timestamp LIMIT 1", "ORDER BY timestamp DESC LIMIT 1")
    queries = [f"(SELECT {part} {of_run} {order})" for part, order in zip(parts, orders, strict=True)]
    query = f"SELECT (SELECT count(*) {of_run}), {', '.join(queries)}"
    rows, *found = connection.execute(query, {"run": run, "most": _MAX_NAME_BYTES}).fetchone()
    return _row((run, found[0], rows, *found[1:])) if rows else None


def _runs_of(connection: sqlite3.Connection, key: str) -> list[RunRow]:
    query = (
        f"SELECT {key}, max(run_name), count(*), max(step), min(timestamp), max(timestamp) FROM metrics "  # noqa: S608 - a name of ours
        f"WHERE length({key}) <= :most AND length(run_name) <= :most AND length(timestamp) <= :most "
        f"GROUP BY {key} ORDER BY min(timestamp) DESC, {key} LIMIT :runs"
    )
    return [_row(row) for row in connection.execute(query, {"most": _MAX_NAME_BYTES, "runs": _MOST_RUNS})]


def _row(found: tuple[Any, ...]) -> RunRow:
    run, name, rows, step, first, last = found
    return RunRow(
        key=str(run),
        name=str(name),
        rows=rows,
        last_step=step if isinstance(step, int) else 0,
        first=seconds_of(first),
        last=seconds_of(last),
        last_said=str(last),
    )


def _layout_of(connection: sqlite3.Connection) -> Layout:
    """What a database is known by.

    Raises:
        ReadError: it is not as trackio makes it.
    """
    strange = connection.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()
    if strange is not None:
        raise ReadError(
            f"the database has a {strange[0]}, {printable(strange[1], 80)}, which trackio never makes", _NOT_READ
        )
    for table, needed in _NEEDED.items():
        if lacking := sorted(needed - _columns(connection, table)):
            message = f"the table {table} lacks {', '.join(lacking)}: trackio {TRIED} has it"
            raise ReadError(message, "update tracker-health, if this trackio is newer; else update trackio")
    tables = {table for table, columns in _WANTED.items() if columns <= _columns(connection, table)}
    key = "run_id" if "run_id" in _columns(connection, "metrics") else "run_name"
    if key == "run_id":
        tables = {table for table in tables if table == "project_metadata" or key in _columns(connection, table)}
    return Layout(key=key, tables=frozenset({*_NEEDED, *tables}))


_NOT_READ = "it is not read: nothing of such a database is run"


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, empty for none and for one that is no plain table."""
    made = connection.execute(
        "SELECT substr(sql, 1, 20) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if made is None or not str(made[0]).upper().startswith("CREATE TABLE"):
        return set()
    found = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
    return {str(name) for name, hidden in found if not hidden}


def _what_is_in(folder: Path) -> str:
    try:
        names = sorted(path.stem for path in folder.glob(f"*{ENDING}"))
    except OSError:
        names = []
    if not names:
        return "is it in another folder? Give that as TRACKIO_DIR"
    more = ", ..." if len(names) > _MOST_NAMED else ""
    shown = ", ".join(printable(name, 60) for name in names[:_MOST_NAMED])
    return f"there are {shown}{more}; TRACKIO_DIR names another folder"
