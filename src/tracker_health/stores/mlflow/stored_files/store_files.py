"""A folder of runs is looked at before MLflow reads it: of what it takes for a file it reads all, pipe or device.

It would wait for a pipe until it is stopped, and fill the memory with what a link to a device gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import require_regular
from tracker_health.readers.mlflow_folder import META_FILE, TRASH_FOLDER
from tracker_health.text import printable, size_of

MAX_FILE_BYTES = 2**28
"""Of one file. MLflow makes ten times as much of the history of a metric: three million points have a third of it."""

_READ_WHOLE = ("metrics", "params", "tags", "inputs", "outputs")
_HINT = "take it out of the folder of runs"


def require_plain_run(root: Path, run_id: str) -> None:
    """That MLflow can read a run of a file store.

    Raises:
        ReadError: one of the run's files is a pipe, socket or device, or far too large.
    """
    for experiment in _experiments(root):
        _require_plain([experiment / META_FILE])
        _require_run(experiment / run_id)


def require_plain_experiments(root: Path) -> None:
    """That MLflow can read every run of a file store, as it does to search it.

    Raises:
        ReadError: as for ``require_plain_run``.
    """
    for experiment in _experiments(root):
        _require_plain([experiment / META_FILE, *_files_below(experiment / "tags")])
        for run in _folders(experiment):
            _require_run(run)


def _experiments(root: Path) -> Iterator[Path]:
    for place in (root, root / TRASH_FOLDER):
        yield from _folders(place)


def _require_run(run: Path) -> None:
    _require_plain([run / META_FILE])
    for kind in _READ_WHOLE:
        _require_plain(_files_below(run / kind))


def _require_plain(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            require_regular(path)
            size = path.stat().st_size
        except ReadError as error:
            raise ReadError(f"{printable(path)}: {error.message}", _HINT) from None
        except OSError:  # it is not there, or MLflow may not read it either
            continue
        if size > MAX_FILE_BYTES:
            message = f"{printable(path)}: it is larger than the {size_of(MAX_FILE_BYTES)} that are read"
            raise ReadError(message, _HINT)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _files_below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)
