"""The alert that a verdict becomes, in trackio's own table.

It is written as trackio writes its own: into the same columns, under the lock that its processes take in turn, with an
id of its own in ``alert_id``. trackio's function for that is not called. Before it writes it brings the tables of the
database to its own version, and the training may be of an older one.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.judge.annotations import CAUSE, CERTAINTY, PAGE_FILE, REPORT_FILE, SUMMARY, SYMPTOMS, Annotations
from tracker_health.stores.base import Overtaken
from tracker_health.stores.common.locks import locked
from tracker_health.stores.trackio.database import Database, Layout, RunRow
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

LEVELS = {Verdict.WARN: "warn", Verdict.FAIL: "error"}
"""What trackio calls the level of an alert; no other verdict is worth one."""
TITLE = "tracker-health: "
"""With this the title of every alert of ours begins, also of those that a training gives itself while it is running."""
_ID = "tracker-health-"
_TURN_SECONDS, _PAUSE_SECONDS = 10.0, 0.1
"""How long a training's writing is waited for: trackio's own processes wait for each other as long."""
_OURS = "(alert_id LIKE :id || '%' OR substr(title, 1, length(:title)) = :title)"
_MOST = 1_000


class Alert(NamedTuple):
    """What an alert says. ``step``: where what is found began, None where that is no step."""

    title: str
    text: str
    level: str
    step: int | None


def alert_of(annotations: Annotations, folder: Path) -> Alert | None:
    """The alert for a verdict; None for one that is not worth any. ``folder``: where its files are."""
    level = LEVELS.get(annotations.verdict)
    if level is None:
        return None
    cause, certainty = annotations.tags.get(CAUSE, ""), annotations.tags.get(CERTAINTY, "")
    seen = annotations.tags.get(SYMPTOMS, "").partition(",")[0]
    named = f"{cause} ({certainty})" if cause else seen
    report = next((name for name in (PAGE_FILE, REPORT_FILE) if name in annotations.files), "")
    where = f"\nReport: {folder / report}" if report else ""
    return Alert(
        title=printable(f"{TITLE}{str(annotations.verdict).upper()} {named}".rstrip(), 200),
        text=f"{printable(annotations.tags.get(SUMMARY, ''), 600)}{where}",
        level=level,
        step=annotations.began,
    )


def ours_in(database: Database, run: RunRow) -> list[Alert]:
    """The alerts of ours that a run has, also those from while it was running."""
    if "alerts" not in database.layout.tables:
        return []
    query = f"SELECT title, text, level, step FROM alerts WHERE {database.layout.key} = :run AND {_OURS} LIMIT {_MOST}"  # noqa: S608 - names of ours
    rows = database.read(lambda connection: connection.execute(query, _named(run)).fetchall())
    return [Alert(*row) for row in rows]


def put(database: Database, run: RunRow, alert: Alert | None) -> None:
    """Have a run that alert, and no other of ours: all of it or nothing.

    Raises:
        StoreRefused: no permission.
        WriteError: someone else writes to the database all the time, or it cannot be written.
    """
    layout, doing = database.layout, f"the alert could not be written into {printable(database.path)}"
    try:
        with _turn(database.path), closing(_opened(database.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"DELETE FROM alerts WHERE {layout.key} = :run AND {_OURS}", _named(run))  # noqa: S608
            if alert is not None:
                connection.execute(_insertion(layout), {**_named(run), **_values(run, alert)})
            connection.execute("COMMIT")
    except Overtaken:
        raise WriteError(f"{doing}: its training writes to it all the time", "annotate it again later") from None
    except (sqlite3.Error, OSError) as error:
        if "readonly" in str(error) or isinstance(error, PermissionError):
            raise StoreRefused(f"{doing}: no permission", "may this account write there?") from error
        busy = "its training writes to it all the time" if "locked" in str(error) else printable(error, 200)
        raise WriteError(f"{doing}: {busy}", "annotate it again later") from error


def _insertion(layout: Layout) -> str:
    columns = ["timestamp", "run_name", "title", "text", "level", "step", "alert_id"]
    columns += [layout.key] if layout.has_ids else []
    return f"INSERT INTO alerts ({', '.join(columns)}) VALUES ({', '.join(f':new_{one}' for one in columns)})"  # noqa: S608


def _values(run: RunRow, alert: Alert) -> dict[str, object]:
    # By its content, so that the same one is never there twice.
    content = sha256("\0".join([run.key, *map(str, alert)]).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    now = datetime.now(UTC).isoformat()
    row = {"timestamp": now, "run_id": run.key, "run_name": run.name, "alert_id": f"{_ID}{content}", **alert._asdict()}
    return {f"new_{name}": value for name, value in row.items()}


def _named(run: RunRow) -> dict[str, object]:
    return {"run": run.key, "id": _ID, "title": TITLE}


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=_TURN_SECONDS)
    connection.isolation_level = None
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Trackio's own lock, by which its processes write in turn, once the others are done.

    Raises:
        Overtaken: they are not in time.
    """
    place, end = path.with_suffix(".lock"), time.monotonic() + _TURN_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(place, place.name, flags=os.O_RDWR | os.O_CREAT))
                break
            except Overtaken:
                if time.monotonic() > end:
                    raise
            time.sleep(_PAUSE_SECONDS)
        yield
