"""What the hooks in a training process tell the launcher that outlives it: lines of a file."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tracker_health.hooks.guard import EXEC_LOG
from tracker_health.words.ending import Ended, Ending

_MAX_BYTES = 2**26
"""What is read of such a log at most: of some thirty thousand runs."""


@dataclass(frozen=True, kw_only=True)
class RunToJudge:
    """A run, as another process can find it.

    ``run``: what ``open_run`` takes. ``tracking_uri``: MLflow's store. ``folder``: where relative paths start.
    ``log``: W&B's log on this machine, which has to be complete before the run is judged. ``ended``, ``by``: how its
    process was seen to end, as an ``Ending`` has it. ``left``: nobody ended it, so that its log may have no end.
    ``exec_log``: where the launcher waits for the verdict, which has the same ``token`` as this end of the run.
    ``name``, ``page``: what people call it, and the address of its page; nothing where that is not known.
    """

    run: str
    folder: str
    tracking_uri: str | None = None
    log: str | None = None
    ended: str = ""
    by: str = ""
    left: bool = False
    exec_log: str | None = None
    token: str = ""
    name: str = ""
    page: str = ""

    @property
    def key(self) -> str:
        """The same for the same run."""
        return f"{self.tracking_uri or ''} {self.run}"

    @property
    def ending(self) -> Ending | None:
        """How its process was seen to end; None where nobody saw it."""
        return Ending(how=Ended(self.ended), by=self.by) if self.ended else None

    @property
    def is_offline(self) -> bool:
        """Whether it is a run of W&B's that its owner may sync: the server then has it, and no later verdict on it."""
        return self.log is not None and not self.run.startswith("wandb:")

    @property
    def _until_then(self) -> str:
        return "; wait for it before wandb sync" if self.is_offline else ""

    @property
    def being_judged(self) -> str:
        """What is said where there is no verdict yet."""
        place = self.page or (self.run if self.name else "")
        where = f" ({place})" if place else ""
        return f"{self.name or self.run} is being judged; the verdict will be on the run{where}{self._until_then}"

    def provisional(self, verdict: str) -> str:
        """What is said of a verdict that the final one will replace."""
        return f"provisional: {verdict}; the final verdict will be there{self._until_then}"

    def over(self, ending: Ending | None, exec_log: str | None, *, left: bool = False) -> RunToJudge:
        """The same run at an end of its own: its process was seen to end so, and the verdict goes into this log."""
        how, by = ("", "") if ending is None else (str(ending.how), ending.by)
        token = f"{os.getpid()}-{time.monotonic_ns()}"
        return replace(self, ended=how, by=by, left=left, exec_log=exec_log, token=token)


def line_of(event: str, run: RunToJudge | None = None, **more: Any) -> bytes:
    """What happened, for another process: ``start`` or ``end`` of a run, ``exit`` of this process, ``verdict`` on a
    run.
    """
    more = {key: asdict(value) if isinstance(value, Ending) else value for key, value in more.items()}
    document = {"event": event, "pid": os.getpid(), "run": None if run is None else asdict(run), **more}
    return json.dumps(document).encode() + b"\n"


def note(event: str, run: RunToJudge | None = None, *, path: str | None = None, **more: Any) -> None:
    """Tell the launcher, if there is one, what happened."""
    path = path or os.environ.get(EXEC_LOG)
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
    """A run that was begun and not ended. ``pid``: of the process that began it."""

    run: RunToJudge
    pid: int


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that was ended, and is being judged. ``pid``: of the process that did it; ``leaving``: at its own end;
    ``doubt``: during an exception, which says so, and which may have been handled. ``after``: the rank that had failed
    first by then, if another had.
    """

    run: RunToJudge
    pid: int
    leaving: bool
    doubt: Ending | None
    after: FailedRank | None = None


@dataclass(frozen=True, kw_only=True)
class FailedRank:
    """One of several processes that train together, and how it failed."""

    pid: int
    rank: int
    ending: Ending

    @property
    def said(self) -> Ending:
        """How a run ended that this process took with it."""
        return Ending(how=self.ending.how, by=f"rank {self.rank}: {self.ending.by}")


@dataclass(frozen=True, kw_only=True)
class JudgeLine:
    """What a judge wrote of a run. ``final``: nothing more will come; ``ended``: how it found that the run ended."""

    line: str
    final: bool
    ended: str


class ExecLog:
    """What a command's processes have written by now. Runs are in the order in which they were begun, or ended.

    ``told``: by the token of an end. ``exits``: by the processes that came to their end in order, how they did, None
    where they saw nothing out of the ordinary. ``failed``: the ranks among them that failed, in this order, of the last
    time that a launcher started them. ``full``: more was written than is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended: list[EndedRun] = []
        self.told: dict[str, list[JudgeLine]] = {}
        self.exits: dict[int, Ending | None] = {}
        self.failed: list[FailedRank] = []
        self.full = False
        self._ranks: dict[int, int] = {}
        self._attempt = ""
        self._begun: dict[str, dict[int, RunToJudge]] = {}
        self._read_to = 0
        self._rest = b""

    def read(self) -> ExecLog:
        """Take in what was written since the last time."""
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            content = file.read(_MAX_BYTES - self._read_to)
            self._read_to = file.tell()
        self.full = self._read_to >= _MAX_BYTES
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError, KeyError):  # cut off by a kill
                self._take(json.loads(line))
        return self

    @property
    def left(self) -> list[LeftRun]:
        """The runs that were begun and not ended.

        A process that continues the run of another and ends it has not ended it for the other.
        """
        owners = (next(iter(by_process.items())) for by_process in self._begun.values())
        return [LeftRun(run=run, pid=pid) for pid, run in owners]

    def _take(self, document: dict[str, Any]) -> None:
        event, pid, run = document["event"], document["pid"], _run_of(document)
        if event == "ready":
            self._take_rank(pid, document.get("rank"), str(document.get("attempt", "")))
        elif event == "exit":
            self._take_exit(pid, _ending_of(document.get("ending")))
        elif run is None:
            return
        elif event == "start":
            self._begun.setdefault(run.key, {})[pid] = run
        elif event == "verdict":
            told = JudgeLine(line=str(document["line"]), final=document["final"] is True, ended=str(document["ended"]))
            self.told.setdefault(run.token, []).append(told)
        elif event == "end":
            by_process = self._begun.get(run.key, {pid: run})
            if pid in by_process and pid != next(iter(by_process)):
                del by_process[pid]
            else:
                self._begun.pop(run.key, None)
            leaving, doubt = document.get("leaving") is True, _ending_of(document.get("doubt"))
            self.ended.append(EndedRun(run=run, pid=pid, leaving=leaving, doubt=doubt, after=self.failed_before(pid)))

    def failed_before(self, pid: int) -> FailedRank | None:
        """The rank that failed first, if it is another than this process; None where this one did, or none has."""
        first = self.failed[0] if self.failed else None
        return None if first is None or first.pid == pid else first

    def _take_rank(self, pid: int, rank: Any, attempt: str) -> None:
        """Note which rank a process is: the first that says so, as what it starts inherits its environment."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._ranks.clear()
            self.failed.clear()
        if isinstance(rank, int) and rank not in self._ranks.values():
            self._ranks[pid] = rank

    def _take_exit(self, pid: int, ending: Ending | None) -> None:
        self.exits[pid] = ending
        if ending is not None and ending.how is not Ended.FINISHED and pid in self._ranks:
            self.failed.append(FailedRank(pid=pid, rank=self._ranks[pid], ending=ending))


def _ending_of(document: Any) -> Ending | None:
    return None if document is None else Ending(how=Ended(document["how"]), by=document["by"])


def _run_of(document: dict[str, Any]) -> RunToJudge | None:
    return None if document["run"] is None else RunToJudge(**document["run"])


def event_of(line: bytes) -> tuple[str, int, RunToJudge | None]:
    """The event that a line shows, the process that it happened in, and the run.

    Raises:
        ValueError, TypeError, KeyError: it is no line of ours.
    """
    document: dict[str, Any] = json.loads(line)
    return document["event"], document["pid"], _run_of(document)
