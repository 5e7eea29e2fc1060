"""What ranks report of collective operations in a console: NCCL's watchdog, Gloo, torchrun's table of failures."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar

from tracker_health.evidence.collectives import (
    Counted,
    Left,
    Missed,
    Raised,
    Ran,
    RankReports,
    Wait,
    operation_of,
)

# One of these is in every line that says something of the kind, but for frames of tracebacks.
SUSPICIOUS = (
    "Watchdog caught", "ast enqueued ", "Timed out waiting ", "monitoredBarrier", "Detected mismatch between coll",
    " (local_rank: ", "  exitcode  : ", "distributed_c10d.py",
)  # fmt: skip
_MOST_CHARACTERS = 4000  # of a line: a mismatch names two operations with all that their tensors are
_MOST, _MOST_FRAMES, _MOST_TEXT = 5000, 5000, 200
_MILLISECONDS = 1000.0
_TAG = re.compile(r"\[(?:rank|default)(\d{1,6})\]")
# "[Rank 1]", "[PG 1 Rank 0]", "[PG ID 0 PG GUID 0(default_pg) Rank 1]"
_OWN = r"\[(?:(?P<group>PG [^\]\n]{1,200}?) )?Rank (?P<rank>\d{1,6})\]"
_WATCHDOG = re.compile(
    _OWN + r"[^\n]{0,40}Watchdog caught collective operation timeout: Work\w{1,12}\("
    r"(?:SeqNum=(?P<number>\d{1,15}))?(?:, )?(?:OpType=(?P<operation>\w{1,40}))?[^)\n]{0,400}\)?[^\n]{0,80}\) "
    r"ran for (?P<ran>\d{1,15}) milliseconds"
)
_PROGRESS = re.compile(
    _OWN + r"[^\n]{0,300}?[Ll]ast enqueued (?:NCCL )?work: (?P<entered>\d{1,15})[^\n]{0,60}?"
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,15})"
)
_GUID = re.compile(r"GUID (?P<name>[^\]\n]{1,160})")
_GLOO = re.compile(r"gloo[^\n]{0,200}Timed out waiting (?P<ms>\d{1,12})ms for (?:send|recv) operation")
_BARRIER = re.compile(
    r"(?:\[Rank (?P<own>\d{1,6})\]: )?Ranks? (?P<ranks>\d{1,6}(?:, \d{1,6}){0,5000}) failed to pass monitoredBarrier "
    r"in (?P<ms>\d{1,12}) ?ms"
)
_REACHED = re.compile(r"\bRank (?P<rank>\d{1,6}) successfully reached monitoredBarrier")
_RAN = re.compile(
    r"Rank (?P<rank>\d{1,6}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<number>\d{1,15}), ?)?OpType=(?P<operation>\w{1,40})"
    r"(?:, ?TensorShape=\[(?P<shape>[\d, ]{0,200})\])?"
)
_FRAME = re.compile(r"distributed_c10d\.py\", line \d{1,7}, in (?P<operation>[a-z]\w{0,40})")
_IN_TABLE = re.compile(r"\s*rank\s{1,12}: (?P<rank>\d{1,6}) \(local_rank: \d{1,6}\)")
_EXIT_CODE = re.compile(r"\s*exitcode\s{1,12}: (?P<code>-?\d{1,6}) \(pid: ")

_Key = TypeVar("_Key", bound=Hashable)
_Report = TypeVar("_Report")


class Collectives:
    """Collects the reports while a log is read."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, str, int | None], Wait] = {}
        self._counted: dict[tuple[int, str], Counted] = {}
        self._ran: dict[int, Ran] = {}
        self._missed: dict[int, Missed] = {}
        self._left: dict[int, Left] = {}
        self._raised: dict[int, Raised] = {}
        self._operation: dict[int | None, str] = {}
        self._row: int | None = None
        self._first: int | None = None

    def look(self, line: str) -> None:
        """Note what a line says."""
        if not any(map(line.__contains__, SUSPICIOUS)):
            return
        line = line[:_MOST_CHARACTERS]
        tag = _TAG.search(line[:80])
        rank = int(tag[1]) if tag is not None else None
        self._look_at_the_table(line)
        self._look_for_waits(line, rank)
        self._look_for_differences(line)
        frame = _FRAME.search(line)
        if frame is not None and len(self._operation) < _MOST_FRAMES:
            self._operation[rank] = frame["operation"]

    def note_raised(self, rank: int, text: str) -> None:
        """Note the exception that ended a rank, which is none about a collective operation."""
        if "gloo" not in text and "NCCL" not in text:
            _keep(self._raised, rank, Raised(rank=rank, text=text[:_MOST_TEXT]))

    def note_first(self, rank: int) -> None:
        """Note the rank that failed first, by its launcher."""
        self._first = rank

    def _look_at_the_table(self, line: str) -> None:
        row, code = _IN_TABLE.match(line), _EXIT_CODE.match(line)
        self._row = int(row["rank"]) if row is not None else self._row
        if code is not None and self._row is not None:
            _keep(self._left, self._row, Left(rank=self._row, code=int(code["code"])))
            self._row = None

    def _look_for_waits(self, line: str, rank: int | None) -> None:
        watchdog, progress, gloo = _WATCHDOG.search(line), _PROGRESS.search(line), _GLOO.search(line)
        if watchdog is not None:
            self._note_wait(
                Wait(
                    rank=int(watchdog["rank"]) if rank is None else rank,
                    operation=operation_of(watchdog["operation"] or ""),
                    number=None if watchdog["number"] is None else int(watchdog["number"]),
                    seconds=int(watchdog["ran"]) / _MILLISECONDS,
                )
            )
        elif progress is not None:
            self._note_progress(progress, rank)
        elif gloo is not None and rank is not None:
            self._note_wait(Wait(rank=rank, seconds=int(gloo["ms"]) / _MILLISECONDS))

    def _note_wait(self, wait: Wait) -> None:
        _keep(self._waits, (wait.rank, wait.group, wait.number), wait)

    def _note_progress(self, said: re.Match[str], rank: int | None) -> None:
        name = _GUID.search(said["group"] or "")
        group = name["name"] if name is not None else said["group"] or ""
        number = int(said["rank"]) if rank is None else rank
        one = Counted(rank=number, group=group, entered=int(said["entered"]), completed=int(said["completed"]))
        _keep(self._counted, (number, group), one)

    def _look_for_differences(self, line: str) -> None:
        barrier, reached = _BARRIER.search(line), _REACHED.search(line)
        if barrier is not None:
            seconds = int(barrier["ms"]) / _MILLISECONDS
            for rank in map(int, barrier["ranks"].split(", ")):
                _keep(self._missed, rank, Missed(rank=rank, seconds=seconds))
            if barrier["own"] is not None:
                self._note_wait(Wait(rank=int(barrier["own"]), seconds=seconds))
        if reached is not None:
            self._note_wait(Wait(rank=int(reached["rank"])))
        for said in _RAN.finditer(line):
            one = Ran(
                rank=int(said["rank"]),
                operation=operation_of(said["operation"]),
                number=None if said["number"] is None else int(said["number"]),
                shape=said["shape"] or "",
            )
            _keep(self._ran, one.rank, one)

    def reports(self) -> RankReports | None:
        """All of them; None where there are none."""
        found = RankReports(
            waits=tuple(map(self._with_its_operation, self._waits.values())),
            counted=tuple(self._counted.values()),
            ran=tuple(self._ran.values()),
            missed=tuple(self._missed.values()),
            left=tuple(self._left.values()),
            raised=tuple(self._raised.values()),
            first=self._first,
        )
        return found if found != RankReports() else None

    def _with_its_operation(self, wait: Wait) -> Wait:
        """A wait, with what the rank's traceback calls the operation where its message does not."""
        return wait if wait.operation else replace(wait, operation=self._operation.get(wait.rank, ""))


def _keep(kept: dict[_Key, _Report], key: _Key, report: _Report) -> None:
    """Keep the first report of a key: what follows is what came of it."""
    if len(kept) < _MOST:
        kept.setdefault(key, report)
