"""Projects of trackio for tests: databases that real trackio wrote, and rows as it writes them."""

from __future__ import annotations

import gzip
import json
import sqlite3
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "trackio"
VERSIONS = sorted(path.name.removesuffix(".db.gz") for path in DATA.glob("*.db.gz"))
WITHOUT_IDS = [one for one in VERSIONS if one.startswith(("0.20", "0.22"))]
NEWEST = "0.43.0"
AGO = 1200.0
"""Seconds since the last row of a run: it is over, and young enough for an alert."""


def unpacked(folder, version=NEWEST, name="project"):
    """The database of a project, as that version of trackio left it in a folder for its runs."""
    path = Path(folder, f"{name}.db")
    path.write_bytes(gzip.decompress((DATA / f"{version}.db.gz").read_bytes()))
    return path


def said(seconds):
    """A time as trackio writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def columns(connection, table):
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


def insert(connection, table, row):
    """A row with those of its columns that this version has."""
    known = {name: value for name, value in row.items() if name in columns(connection, table)}
    places = ", ".join("?" for _ in known)
    connection.execute(f"INSERT INTO {table} ({', '.join(known)}) VALUES ({places})", tuple(known.values()))


def log(path, name, rows, *, run_id="", config=None, last=None):
    """Log rows (step and values) to a run of a database, the last at a time in seconds since 1970; the run's id."""
    run_id = run_id or uuid.uuid4().hex
    last = datetime.now(UTC).timestamp() - AGO if last is None else last
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, (step, values) in enumerate(rows):
            time = said(last - 0.1 * (len(rows) - 1 - number))
            content = json.dumps(values, separators=(",", ":")).encode()
            row = {"run_id": run_id, "run_name": name, "timestamp": time, "step": step, "metrics": content}
            insert(connection, "metrics", {**row, "log_id": uuid.uuid4().hex})
        if config is not None:
            content = json.dumps(config).encode()
            insert(connection, "configs", {"run_id": run_id, "run_name": name, "config": content, "created_at": time})
    return run_id


def age(path, seconds):
    """Have all rows of a database be so old, in whole, the last of each run."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("metrics", "configs", "alerts"):
            column = "created_at" if table == "configs" else "timestamp"
            connection.execute(f"UPDATE {table} SET {column} = ?", (said(datetime.now(UTC).timestamp() - seconds),))


def rows_in(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def alerts_in(path, run_id=None):
    """Title, text, level and step of each alert, of a run where one is given."""
    with closing(sqlite3.connect(path)) as connection:
        key = "run_id" if "run_id" in columns(connection, "alerts") else "run_name"
        where, values = ("", ()) if run_id is None else (f" WHERE {key} = ?", (run_id,))
        return connection.execute(f"SELECT title, text, level, step FROM alerts{where} ORDER BY id", values).fetchall()
