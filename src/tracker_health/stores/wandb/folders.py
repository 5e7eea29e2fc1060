"""Which run of W&B a path is: the folder of one, its log, or a folder with one below ``wandb/``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracker_health.errors import ReadError, RunNotFound
from tracker_health.readers.files.record_log import is_log
from tracker_health.run_files.reading import relevant_files
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.text import listing, printable

if TYPE_CHECKING:
    from tracker_health.stores.wandb.local import LocalRun

_SUFFIX = ".wandb"
_ROOTS = ("wandb", ".wandb")
_MANY = 5


def open_local_run(run: str | Path, *, sidecar: bool = False) -> LocalRun | None:
    """The run at a path; None where there is none of W&B's. ``sidecar``: see ``LocalRun``.

    Raises:
        RunNotFound: there are several.
    """
    place = Path(run)
    if not place.is_dir():
        return _local(run, place, sidecar=sidecar) if place.suffix == _SUFFIX or _begins_as_log(place) else None
    logs = _logs_in(place) or _logs_below(place)
    if len({log.name for log in logs}) == 1 < len(logs):
        resumed = _local(run, logs[-1], sidecar=sidecar)
        if resumed.has_all_of_its_id:
            return resumed
    if len(logs) > 1:
        names = [log.name if log.parent == place else log.parent.name for log in logs]
        every = "*" + _SUFFIX if logs[0].parent == place else "*run-*"
        root = place if logs[0].parent == place else logs[0].parent.parent
        hint = f"name one of them, or all: {printable(root)}/{every}"
        raise RunNotFound(f"{printable(run)} holds {len(logs)} W&B runs: {listing(names, _MANY)}", hint)
    return _local(run, logs[0], sidecar=sidecar) if logs else None


def _local(run: str | Path, log: Path, *, sidecar: bool) -> LocalRun:
    from tracker_health.stores.wandb.local import LocalRun  # not loaded for a folder that is no run of W&B

    return LocalRun(run, log, sidecar=sidecar)


def _begins_as_log(place: Path) -> bool:
    try:
        return is_log(place)
    except (ReadError, OSError):
        return False


def _logs_in(folder: Path) -> list[Path]:
    """The logs in a run's own folder: what begins as one, or is named as one and empty."""
    try:
        named = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.is_file())
    except OSError:
        return []
    return [path for path in named if _is_of_a_run(path)]


def _is_of_a_run(path: Path) -> bool:
    """Whether a file that is named as a log is one: also one that is empty, or that only others may read."""
    return _begins_as_log(path) or (path.name.startswith("run-") and not (_size(path) and os.access(path, os.R_OK)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _logs_below(folder: Path) -> list[Path]:
    """The logs of the runs in a ``wandb`` folder: in this one or, where nothing else in it is of a run, below it."""
    inside = _logs_of_runs(folder)
    if inside:
        return inside
    below = [log for name in _ROOTS for log in _logs_of_runs(folder / name)]
    return [] if below and relevant_files(DirectoryRun(folder)) else below


def _logs_of_runs(root: Path) -> list[Path]:
    """The logs in the folders of runs (``offline-run-...``, ``run-...``) of a ``wandb`` folder."""
    try:
        with os.scandir(root) as entries:
            runs = sorted(
                entry.path for entry in entries if "run-" in entry.name and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []
    return [log for run in runs for log in _logs_in(Path(run))]
