"""What the hooks in a training process tell the launcher that outlives it: lines of a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracker_health.ending import Ending

VARIABLE = "TRACKER_HEALTH_LEDGER"

_MAX_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class RunToJudge:
    """A run, as another process can find it.

    ``run``: what ``open_run`` takes. ``tracking_uri``: MLflow's store. ``folder``: where relative paths start.
    ``log``: W&B's log on this machine, which has to be complete before the run is judged. ``ended``, ``by``: how its
    process was seen to end, as an ``Ending`` has it. ``ledger``: where the launcher waits for the verdict, which has
    the same ``token`` as this end of the run.
    """

    run: str
    folder: str
    tracking_uri: str | None = None
    log: str | None = None
    ended: str = ""
    by: str = ""
    ledger: str | None = None
    token: str = ""

    @property
    def key(self) -> str:
        """The same for the same run."""
        return f"{self.tracking_uri or ''} {self.run}"

    @property
    def ending(self) -> Ending | None:
        """How its process was seen to end; None where nobody saw anything out of the ordinary."""
        from tracker_health.ending import Ended, Ending

        return Ending(how=Ended(self.ended), by=self.by) if self.ended else None

    def over(self, ending: Ending | None, ledger: str | None) -> RunToJudge:
        """The same run at an end of its own: its process was seen to end so, and the verdict goes into this ledger."""
        seen = {} if ending is None else {"ended": str(ending.how), "by": ending.by}
        return replace(self, **seen, ledger=ledger, token=f"{os.getpid()}-{time.monotonic_ns()}")


def line_of(event: str, run: RunToJudge | None = None, **more: Any) -> bytes:
    """What happened, for another process: ``start`` or ``end`` of a run, ``exit`` of this process, ``verdict`` on a
    run.
    """
    document = {"event": event, "pid": os.getpid(), "run": None if run is None else asdict(run), **more}
    return json.dumps(document).encode() + b"\n"


def note(event: str, run: RunToJudge | None = None, *, path: str | None = None, **more: Any) -> None:
    """Tell the launcher, if there is one, what happened."""
    path = path or os.environ.get(VARIABLE)
    if not path:
        return
    with suppress(OSError):  # the launcher is gone, or another user's: the run is judged all the same
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        try:
            os.write(descriptor, line_of(event, run, **more))
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class LeftRun:
    """A run that was begun and not ended. ``pid``: of the process that began it; ``in_order``: that came to its end."""

    run: RunToJudge
    pid: int
    in_order: bool


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that was ended, and is being judged. ``pid``: of the process that did it; ``leaving``: at its own end."""

    run: RunToJudge
    pid: int
    leaving: bool


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a judge wrote of a run. ``final``: nothing more will come."""

    line: str
    final: bool


@dataclass(kw_only=True)
class Ledger:
    """What a command's processes wrote. Runs are in the order in which they were begun, or ended."""

    left: list[LeftRun] = field(default_factory=list)
    ended: list[EndedRun] = field(default_factory=list)
    told: dict[str, list[Told]] = field(default_factory=dict)
    """By the token of an end."""


def read_ledger(path: Path) -> Ledger:
    """What a ledger says by now.

    A process that goes on with the run of another and ends it has not ended it for the other.
    """
    found = Ledger()
    begun: dict[str, dict[int, RunToJudge]] = {}
    left: set[int] = set()
    for document in _events(path):
        event, pid, run = document["event"], document["pid"], _run_of(document)
        if event == "exit":
            left.add(pid)
        elif run is None:
            continue
        elif event == "start":
            begun.setdefault(run.key, {})[pid] = run
        elif event == "verdict":
            told = Told(line=str(document["line"]), final=document["final"] is True)
            found.told.setdefault(run.token, []).append(told)
        elif event == "end":
            by_process = begun.get(run.key, {pid: run})
            if pid in by_process and pid != next(iter(by_process)):
                del by_process[pid]
            else:
                begun.pop(run.key, None)
            found.ended.append(EndedRun(run=run, pid=pid, leaving=document.get("leaving") is True))
    owners = (next(iter(by_process.items())) for by_process in begun.values())
    found.left = [LeftRun(run=run, pid=pid, in_order=pid in left) for pid, run in owners]
    return found


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):  # cut off by a kill
            document = json.loads(line)
            event_of(line)
            yield document


def _run_of(document: dict[str, Any]) -> RunToJudge | None:
    return None if document["run"] is None else RunToJudge(**document["run"])


def event_of(line: bytes) -> tuple[str, int, RunToJudge | None]:
    """The event that a line tells of, the process that it happened in, and the run.

    Raises:
        ValueError, TypeError, KeyError: it is no line of ours.
    """
    document: dict[str, Any] = json.loads(line)
    return document["event"], document["pid"], _run_of(document)
