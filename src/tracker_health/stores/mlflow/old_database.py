"""A database of an older MLflow: read from an upgraded copy, for one that is upgraded is lost to those who have that
MLflow. It is never written to.
"""

from __future__ import annotations

import atexit
import logging
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.text import size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 2**31
_copies: dict[str, str] = {}


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
        folder = TemporaryFolder()
        try:
            _copies[uri] = _upgraded(path, Path(folder.name, "copy.db"))
        except BaseException:
            folder.cleanup()
            raise
        atexit.register(folder.cleanup)
    return _copies[uri]


def _upgraded(path: Path, copy: Path) -> str:
    from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine

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
    return target


def copy_of(uri: str) -> str:
    """The URI of the copy that is read in the place of a database; empty where it is read itself."""
    return _copies.get(uri, "")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what MLflow and alembic say of each step of an upgrade."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
