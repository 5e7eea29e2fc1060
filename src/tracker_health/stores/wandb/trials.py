"""Whether the sweep of a trial ended it, by the logs of the other trials on this machine: a log of W&B's does not say.

A trial that is stopped from outside leaves a log without an end, as one does that crashed. A search stops those that do
worse than others had done by then, and stops several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.roles import TRAIN_LOSS, VAL_LOSS, assign
from tracker_health.stores.wandb.segments import run_logs
from tracker_health.stores.wandb.transaction_log import read_log, rows_of
from tracker_health.stores.wandb.values import STEP, is_metric, number

_MOST_TRIALS, _MOST_BYTES = 60, 64 * 2**20
_FEWEST_STOPPED, _FEWEST_BEYOND = 3, 3
_MOSTLY = 0.8
"""Of the trials without an end that lag behind: then it is what ended them."""


@dataclass(frozen=True)
class _Trial:
    """``ended``: its log has an end. ``losses``: of each loss its values by step."""

    sweep: str
    ended: bool
    losses: Mapping[str, tuple[np.ndarray, np.ndarray]]


def was_stopped_by_sweep(path: Path) -> bool:
    """Whether a trial whose log has no end lagged behind those that went on, as others did that ended so."""
    own = _trial(path, _stamp(path))
    trials = [own, *_others(path, own.sweep)] if own.sweep else []
    stopped = [one for one in trials if not one.ended and one.losses]
    if len(stopped) < _FEWEST_STOPPED or not _lags(own, trials):
        return False
    return sum(_lags(one, trials) for one in stopped) >= _MOSTLY * len(stopped)


def _lags(trial: _Trial, trials: list[_Trial]) -> bool:
    """Whether a loss of a trial was at its end above the middle of those that came further, when they were there."""
    for name, (steps, values) in trial.losses.items():
        known = [one.losses[name] for one in trials if one is not trial and name in one.losses]
        beyond = [values_[steps_ <= steps[-1]][-1] for steps_, values_ in known if steps_[0] <= steps[-1] < steps_[-1]]
        if len(beyond) >= _FEWEST_BEYOND:
            return bool(values[-1] > np.median(beyond))
    return False


def _others(path: Path, sweep: str) -> Iterator[_Trial]:
    """The other trials of a sweep whose folders are next to that of a log, as many as are looked at."""
    read = 0
    for log in [log for log in run_logs(path) if log.parent != path.parent][:_MOST_TRIALS]:
        stamp = _stamp(log)
        read += stamp[0]
        if read > _MOST_BYTES:
            return
        trial = _trial(log, stamp)
        if trial.sweep == sweep:
            yield trial


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1024)
def _trial(path: Path, _changed: tuple[int, int]) -> _Trial:
    try:
        log = read_log(path)
        roles = assign(filter(is_metric, log.names)) if log.sweep else {}
        names = frozenset(name for name, role in roles.items() if role in (TRAIN_LOSS, VAL_LOSS))
        return _Trial(log.sweep, log.exit_code is not None, dict(_losses_in(path, names)) if names else {})
    except (ReadError, OSError):
        return _Trial("", ended=True, losses={})


def _losses_in(path: Path, names: frozenset[str]) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for at, row in enumerate(rows_of(path, names | {STEP})):
        step = number(row.get(STEP))
        for name in names & row.keys():
            if (value := number(row[name])) is not None and np.isfinite(value):
                points[name].append((at if step is None else step, value))
    for name, found in sorted(points.items()):
        if found:
            steps, values = np.array(found).T
            yield name, (np.maximum.accumulate(steps), values)
