"""A database of an older MLflow: read from an upgraded copy, for one that is upgraded is lost to those who have that
MLflow. It is never written to.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracker_health.stores.temporary import TemporaryFolder
from tracker_health.text import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 2**31
_copies: dict[str, tuple[TemporaryFolder, str]] = {}


def why_not_copied(path: Path) -> str:
    """Why a database is too much to copy; empty where it is not."""
    size = path.stat().st_size
    return f"it is {size_of(size)} large, more than is copied" if size > MAX_BYTES else ""


def copied(uri: str, path: Path) -> str:
    """The URI of an upgraded copy of a SQLite database, made once in a process and deleted at its end.

    Raises:
        Exception: whatever SQLite or MLflow's own migrations raise.
    """
    if uri not in _copies:
        from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine

        folder = TemporaryFolder()
        copy = Path(folder.name, "copy.db")
        source = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(source, uri=True)) as old, closing(sqlite3.connect(copy)) as new:
            old.backup(new)
        target = f"sqlite:///{copy}"
        engine = create_sqlalchemy_engine(target)  # type: ignore[no-untyped-call]
        try:
            with _quiet():
                _upgrade_db(engine)  # type: ignore[no-untyped-call]
        finally:
            engine.dispose()
        _copies[uri] = folder, target
    return _copies[uri][1]


def copy_of(uri: str) -> str:
    """The URI of the copy that is read in the place of a database; empty where it is read itself."""
    return _copies[uri][1] if uri in _copies else ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what MLflow and alembic say of each step of an upgrade."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
