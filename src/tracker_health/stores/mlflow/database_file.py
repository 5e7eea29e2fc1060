"""A SQLite database of MLflow's that was given as a file, or with the folder that it is in: which runs it has.

The file is known by its content, and looked into read-only. A run of it is then read through MLflow.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path
from typing import NamedTuple

from tracker_health.errors import ReadError, RunNotFound
from tracker_health.stores.common.sqlite_files import is_sqlite, reading
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.text import count, printable

_TABLES = frozenset({"alembic_version", "experiments", "runs", "metrics", "params", "tags"})
_ENDINGS = (".db", ".sqlite", ".sqlite3")
_ARTIFACTS = ("mlruns", "mlartifacts")
_MOST_FILES = 10_000
_MOST_NAMED = 5
_ACTIVE = (
    "FROM runs JOIN experiments USING (experiment_id) "
    "WHERE runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'"
)
_NEWEST = f"SELECT run_uuid, runs.name {_ACTIVE} ORDER BY start_time DESC, run_uuid LIMIT ?"
_COUNT = f"SELECT count(*) {_ACTIVE}"


class DatabaseFile(NamedTuple):
    """``given``: what the user named; ``path``: of the database; ``runs``: how many it has that are not deleted;
    ``newest``: id and name of the newest of them.
    """

    given: Path
    path: Path
    runs: int
    newest: tuple[tuple[str, str], ...]

    @property
    def uri(self) -> str:
        """The tracking URI of it."""
        return f"sqlite:///{self.path.resolve()}"


def database_at(given: str | Path) -> DatabaseFile | None:
    """The database that a path leads to: the file, or the one in the folder. None where there is none of MLflow's.

    Raises:
        RunNotFound: the folder has several.
        ReadError: it is one of SQLite's, and cannot be read.
    """
    place = Path(given)
    if not place.is_dir():
        return _looked_into(place, place)
    found = [one for path in _candidates(place) if (one := _looked_into(place, path)) is not None]
    if len(found) > 1:
        names = ", ".join(printable(one.path.name, 80) for one in found[:_MOST_NAMED])
        raise RunNotFound(f"{printable(place)} holds {len(found)} MLflow databases: {names}", "name one of them")
    return found[0] if found else None


def open_run_of(database: DatabaseFile) -> TrackedRun:
    """The run of a database that has one.

    Raises:
        RunNotFound: it has none, or several.
        RunError: it cannot be opened by the installed MLflow.
    """
    from tracker_health.stores.mlflow.connection import connect
    from tracker_health.stores.mlflow.run import open_mlflow_run

    if database.runs == 1:
        return open_mlflow_run(database.newest[0][0], database.uri)
    connect(database.uri)
    what = f"{printable(database.path)} is an MLflow database with {count(database.runs, 'run')}"
    if not database.newest:
        raise RunNotFound(what, "log a run to it first, or restore one that was deleted: mlflow runs restore")
    named = ", ".join(f"{printable(name or run_id, 80)} ({run_id})" for run_id, name in database.newest[:_MOST_NAMED])
    uri = shlex.quote(printable(database.uri))
    hint = f"name one, or an experiment: --tracking-uri {uri} RUN_ID, --tracking-uri {uri} --experiment NAME"
    raise RunNotFound(f"{what}, the newest: {named}", hint)


def holds_databases(folder: Path) -> bool:
    """Whether there is a SQLite database in a folder, of whatever kind."""
    return any(map(is_sqlite, _candidates(folder)))


def is_of_a_store(path: str) -> bool:
    """Whether a file of a folder with a database is among the artifacts of that database's runs."""
    return path.partition("/")[0] in _ARTIFACTS


def _candidates(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        named = [entry.path for _, entry in zip(range(_MOST_FILES), entries, strict=False)]
    return [Path(path) for path in sorted(named) if path.lower().endswith(_ENDINGS)]


def _looked_into(given: Path, path: Path) -> DatabaseFile | None:
    if not is_sqlite(path):
        return None
    try:
        with reading(path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if not {str(name) for (name,) in tables} >= _TABLES:
                return None
            rows = connection.execute(_NEWEST, (_MOST_NAMED,)).fetchall()
            runs = int(connection.execute(_COUNT).fetchone()[0])
    except sqlite3.Error as error:
        hint = "copy it from where it was written, with the -wal and -journal files next to it"
        raise ReadError(
            f"the SQLite database {printable(path)} cannot be read: {printable(error, 200)}", hint
        ) from None
    newest = tuple((str(run_id)[:250], str(name or "")) for run_id, name in rows)
    return DatabaseFile(given, path, runs, newest)
