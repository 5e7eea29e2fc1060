"""The runs of trackio by their names: ``PROJECT/RUN``, where RUN is a run's name or its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tracker_health.errors import RunNotFound
from tracker_health.stores.trackio.database import Database
from tracker_health.stores.trackio.run import TrackioRun
from tracker_health.text import count, printable


def open_run(address: str, *, over: bool = False) -> TrackioRun:
    """The run of an address; that of a project alone is its run where it has one.

    Raises:
        RunNotFound: there is no such project or run, or there are several.
        ReadError: the project's database cannot be read.
    """
    project, _, run = address.strip("/").partition("/")
    if not project:
        raise RunNotFound("trackio: names no run", "give trackio:PROJECT/RUN")
    database = Database.of(project)
    return TrackioRun(database, database.find(run), over=over) if run else _only_run(database, over=over)


def open_file(path: Path) -> TrackioRun:
    """The run of a project whose database is given as a file, where it has one.

    Raises:
        RunNotFound: it has none, or several.
        ReadError: it cannot be read.
    """
    return _only_run(Database(path), over=False)


def run_names(project: str) -> Iterator[str]:
    """The addresses of a project's runs, the newest first: by name where one run alone has it.

    Raises:
        RunNotFound: there is no such project.
        ReadError: its database cannot be read.
    """
    database = Database.of(project.strip("/"))
    rows = database.runs()
    called = Counter(one.name for one in rows)
    for one in rows:
        yield f"{database.project}/{one.name if called[one.name] == 1 else one.key}"


def _only_run(database: Database, *, over: bool) -> TrackioRun:
    rows = database.runs()
    if len(rows) == 1:
        return TrackioRun(database, rows[0], over=over)
    project = printable(database.project, 100)
    what = f"the trackio project {project} has {count(len(rows), 'run')}"
    if not rows:
        raise RunNotFound(what, "log something to it first")
    raise RunNotFound(what, f"give one, or --project trackio:{project}; {database.what_is_there()}")
