"""What the hooks in a training process tell the launcher that outlives it: lines of a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "TRACKER_HEALTH_LEDGER"

_MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class RunToJudge:
    """A run, as another process can find it.

    ``run``: what ``open_run`` takes. ``tracking_uri``: MLflow's store. ``folder``: where relative paths start.
    ``log``: W&B's log on this machine, which has to be complete before the run is judged. ``ended_by``: what the run's
    process died of.
    """

    run: str
    folder: str
    tracking_uri: str | None = None
    log: str | None = None
    ended_by: str = ""

    @property
    def key(self) -> str:
        """The same for the same run."""
        return f"{self.tracking_uri or ''} {self.run}"


def line_of(event: str, run: RunToJudge | None = None) -> bytes:
    """What happened, for another process: ``start`` or ``end`` of a run, ``exit`` of this process."""
    return (
        json.dumps({"event": event, "pid": os.getpid(), "run": None if run is None else asdict(run)}).encode() + b"\n"
    )


def note(event: str, run: RunToJudge | None = None) -> None:
    """Tell the launcher, if there is one, what happened."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    with suppress(OSError):  # the launcher is gone, or another user's: the run is judged all the same
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        try:
            os.write(descriptor, line_of(event, run))
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class LeftRun:
    """A run that was begun and not ended. ``pid``: of the process that began it; ``in_order``: that came to its end."""

    run: RunToJudge
    pid: int
    in_order: bool


def left_runs(path: Path) -> list[LeftRun]:
    """The runs of a ledger that were begun and not ended, in the order in which they were begun.

    A process that goes on with the run of another and ends it has not ended it for the other.
    """
    begun: dict[str, dict[int, RunToJudge]] = {}
    left: set[int] = set()
    for event, pid, run in _events(path):
        if event == "start" and run is not None:
            begun.setdefault(run.key, {})[pid] = run
        elif event == "end" and run is not None:
            by_process = begun.get(run.key, {pid: run})
            if pid in by_process and pid != next(iter(by_process)):
                del by_process[pid]
            else:
                begun.pop(run.key, None)
        elif event == "exit":
            left.add(pid)
    found = (next(iter(by_process.items())) for by_process in begun.values())
    return [LeftRun(run=run, pid=pid, in_order=pid in left) for pid, run in found]


def _events(path: Path) -> Iterator[tuple[str, int, RunToJudge | None]]:
    with path.open("rb") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):  # cut off by a kill
            yield event_of(line)


def event_of(line: bytes) -> tuple[str, int, RunToJudge | None]:
    """The event that a line tells of, the process that it happened in, and the run.

    Raises:
        ValueError, TypeError, KeyError: it is no line of ours.
    """
    document: dict[str, Any] = json.loads(line)
    run = document["run"]
    return document["event"], document["pid"], None if run is None else RunToJudge(**run)
