"""What a console log says of its process: exceptions, signals, memory and disks that ran out, and resumes."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from tracker_health.evidence import TextLog, Trouble
from tracker_health.readers.log_formats import text_collectives
from tracker_health.readers.log_formats.history import History
from tracker_health.readers.log_formats.table import LogTable

_CAUSES = {
    "out of memory": r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|RESOURCE_EXHAUSTED|std::bad_alloc|"
    r"\bMemoryError\b|CUBLAS_STATUS_ALLOC_FAILED|Cannot allocate memory|DefaultCPUAllocator: (?:can't|not enough)",
    "no space left on the disk": r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]",
    "a data loader worker died": r"DataLoader worker \(pid(?:\(s\))?[^)]{0,200}\) (?:is killed|exited unexpectedly)",
    "a collective operation timed out": r"Watchdog caught collective operation timeout|NCCL[^\n]{0,200}time[d ]*out|"
    r"ncclSystemError|ncclRemoteError|gloo[^\n]{0,200}Timed out waiting|"
    r"failed to pass monitoredBarrier|reached monitoredBarrier",
    "collective operations that differ between ranks": r"Detected mismatch between collectives on ranks",
    "too few samples kept": r"(?:\bneeds?\b|\bfewer\b|\bbelow\b|\bat least\b|[<>]=?)[^\n]{0,80}\bmin_train\b",
    "a prompt that is no prefix of its completion": r"not a (?:token[- ])?prefix\b",
    "interrupted": r"\bKeyboardInterrupt\b",
    "a search that stopped the trial": r"^(?:\w+\.)*(?:Trial|Experiment)?Pruned\b",
}


def _by_shell(words: str, of_zsh: str) -> str:
    """How shells report that a command was ended by a signal, with these words."""
    return (
        rf"(?:^|\])[\w./-]+: line \d+:\s+\d+ (?:{words})\b|"
        rf"^(?:{words})(?:: \d{{1,2}})?(?: \(core dumped\))?\s*$|^zsh: (?:{of_zsh})\b"
    )


_MEMORY_LIMITS = r"\bTERM_MEMLIMIT\b|\b[Ee]xceeded (?:job |step )?memory limit\b|\bnode running low on memory\b"
# What only the system says: the process is gone with it.
_OF_THE_SYSTEM = {
    "out of memory": r"[Oo]ut of memory: Killed process|\boom[-_]kill(?:er)? event|\boom-kill:|invoked oom-killer|"
    r"\boom_kill [1-9]|\bOOM ?Killed\b|terminate called [^\n]{0,80}(?:bad_alloc|OutOfMemory)|" + _MEMORY_LIMITS,
    "a collective operation timed out": r"Watchdog caught collective operation timeout",
    # A shell says it at once, and a progress bar leaves its line open.
    "SIGKILL": _by_shell("Killed", "killed") + r"|Signal 9 \(SIGKILL\)|exitcode: -9\b",
    "SIGTERM": _by_shell("Terminated", "terminated"),
    "a crash below Python": _by_shell(
        "Segmentation fault|Bus error|Aborted|Abort trap", "segmentation fault|bus error|abort"
    )
    + r"|\(core dumped\)|exitcode: -(?:11|6|7)\b|Fatal Python error|^terminate called (?:after|without)\b",
    "an exception": r"^RuntimeError: Early stopping conditioned on metric",
    "its time was up": r"DUE TO TIME LIMIT",
    "a preemption": r"DUE TO PREEMPTION",
    "a cancelled job": r"CANCELLED AT \d",
}
_BEGINNING = "Traceback (most recent call last)"
_CHAINED = " above exception "
_LOGGED = ("ERROR", "WARN", "CRITICAL", "EXCEPTION")
# A record of the logger of an experiment tracker, by the logger's name after a level, or by the form that W&B's own has
# ("ERROR   MainThread:123 [wandb_init.py:init():80] ..."). The traceback that follows is of an error that the tracker
# caught: it logs it, and lets the program go on. One that nobody caught begins in the program itself.
_OF_A_TRACKER = re.compile(
    r"\b(?:ERROR|WARN(?:ING)?|CRITICAL|EXCEPTION)\b[\s:|\]-]{1,12}(?:"
    r"[\[(]?(?:aim|clearml|comet_ml|dvclive|mlflow|neptune|swanlab|tensorboard|trackio|wandb)[.:\s|\])]|"
    r"[A-Za-z][\w-]{0,40}\s{0,10}:\d{1,9} \[\w{1,80}\.py:\w{1,80}\(\):\d{1,6}\])"
)
_OF_THE_PROGRAM = ", in <module>"
# A frame of a traceback in which the program evaluated, or wrote a checkpoint.
_FRAME = re.compile(r", in _{0,2}(?:(?P<evaluation>evaluat|validat|predict|eval_|run_eval|test_loop)|(?P<saving>save))")
_RECORD_LINES = 2
"""How many lines the message of such a record has before its traceback."""
_RAISED = re.compile(
    r"(?:\[?[\w .:-]{0,40}\]?[:|]\s?)?"
    r"(?P<said>Exception: .*|"
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Iteration|Group)\b.*|"
    r"(?:[A-Za-z_]\w*\.)+[A-Z]\w*(?:: .*)?|[A-Z]\w*\s*)$"
)
# A time, a level and the like, which a logger or a container writes before each line ("stderr F": a full one); what is
# indented stays so.
_PREFIX = re.compile(
    r"(?:(?:\[[^\]\n]{1,60}\]|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL|stdout|stderr)(?: F(?= ))?)(?:[ ]?[-:|](?=[ ]))?[ ]?){1,8}"
)
# What torchrun says at its end of the rank that failed first; each rank's own lines begin with [rankN].
_ROOT_CAUSE = "Root Cause (first observed failure)"
_ROOT_LINES = 8
_OF_RANK = re.compile(r"\[rank(\d{1,6})\]")
_ROOT_RANK = re.compile(r"\s*rank\s*: (\d{1,6})\b")
_ROOT_EXIT = re.compile(r"\s*exitcode\s*: (-?\d{1,6})\b")
_BY_EXIT_CODE = {
    -9: "SIGKILL",
    -15: "SIGTERM",
    -11: "a crash below Python",
    -7: "a crash below Python",
    -6: "a crash below Python",
}
# What a launcher or a scheduler says of a program's exit code: DeepSpeed, Slurm, LSF.
_EXITED = re.compile(
    r"\bexits with return code = (?P<launcher>-?\d{1,6})\b|\btask \d+: Exited with exit code (?P<slurm>\d{1,3})\b|"
    r"^Exited with exit code (?P<lsf>\d{1,3})\.\s*$"
)
_OUTPUT_FOLLOWS = "The output (if any) follows"  # LSF's report comes after the program, and may be before its output
_SIGNALLED = 128
_IGNORED = "Exception ignored"  # while Python ends, or in a destructor: it is printed, and nothing comes of it
# A batch that was under way when its worker died: the queue's connection breaks before the loader looks at its workers.
_LOADER_QUEUE = "_try_get_data"
_BROKEN_QUEUE = re.compile(r"(?:ConnectionResetError|ConnectionRefusedError|BrokenPipeError|EOFError)\b")
_DONE = re.compile(
    r"training\s+(?:is\s+|has\s+)?(?:complete|finished|done)|'train_runtime'|\bdone training\b|"
    r"`Trainer\.fit` stopped: `max_(?:epochs|steps)=\d+` reached",
    re.IGNORECASE,
)
_RESUMED = re.compile(
    r"\bresum(?:ed|ing)\b[^\n]{0,60}\b(?:from|training|checkpoint|at|step|epoch)\b|"
    r"\bcontinuing training from\b|"
    r"\b(?:restor(?:ed|ing)|load(?:ed|ing))\b[^\n]{0,60}\bcheckpoint\b|"
    r"\b(?:optimizer|scheduler)(?:\.pt)?\b[^\n]{0,40}\bnot (?:been )?(?:found|loaded|restored)\b",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"\*{3,} ?Running training ?\*{3,}")  # once more: it was started again, unless it had ended
_BAR = re.compile(r"\| {0,8}0/(\d{1,12}) \[")  # at its beginning
_NEARLY_THROUGH = 0.9  # bars that are taken away may not show their last steps
_CAUSE = {cause: re.compile(pattern) for cause, pattern in _CAUSES.items()}
_SYSTEM = {cause: re.compile(pattern) for cause, pattern in _OF_THE_SYSTEM.items()}
# One of these is in every line that says something of the kind: plain words are found ten times as fast as a pattern.
_SUSPICIOUS = (
    _BEGINNING, _IGNORED, _CHAINED, *_LOGGED, _ROOT_CAUSE,
    "Watchdog", "terminate called", "zsh: ", "Abort trap", "PREEMPTION", "Killed",
    "oom", "OOM", "MEMLIMIT", "memory limit", "low on memory",
    "Terminated", "Segmentation fault", "Bus error", "Aborted", "core dumped",
    "SIGKILL", "exitcode: -", "Fatal Python error", "TIME LIMIT", "CANCELLED AT", "train_runtime",
    "esum", "ontinuing training", "estor", "heckpoint", "not found", "0%|",
    "omplete", "inished", "done", "return code = ", "Exited with exit code", "`Trainer.fit` stopped", _OUTPUT_FOLLOWS,
    "arly stopping conditioned", "unning training", *text_collectives.SUSPICIOUS,
)  # fmt: skip
_KEPT = 50
_MAX_CHARACTERS = 300
_TRACEBACK_LINES = 2000
_GOES_ON = 5  # rows after a trouble: also of a training that continues from an earlier checkpoint


@dataclass(slots=True)
class _Seen:
    cause: str
    text: str
    line: int
    rows: int
    place: int
    rank: int | None = None
    where: str = ""


class Troubles:
    """Collects them while a log is read. ``lines``, ``rows``: how many there were, blank ones left out."""

    def __init__(self, table: LogTable) -> None:
        self._table = table
        self.lines = 0
        self.rows = 0
        self._seen: deque[_Seen] = deque(maxlen=_KEPT)
        self._done: int | None = None
        self._starts: list[tuple[int, int]] = []
        self._traceback = 0
        self._where = ""
        self._of_loader = self._ignored = False
        self._reported: _Seen | None = None
        self._report_first = False
        self._by_tracker, self._record = False, -_RECORD_LINES
        self._rank: int | None = None
        self._root: int | None = None
        self._root_lines = 0
        self._collectives = text_collectives.Collectives()

    def suspects(self, line: str) -> bool:
        """Whether a line must be looked at."""
        return bool(self._traceback or self._root_lines) or any(map(line.__contains__, _SUSPICIOUS))

    def look(self, line: str) -> None:
        """Note what a line says; it has been counted."""
        self._collectives.look(line)
        line = line[:_MAX_CHARACTERS]
        if _DONE.search(line):
            self._done = self.lines
        self._look_for_a_start(line)
        prefix = _PREFIX.match(line)
        bare = line[prefix.end() :] if prefix is not None else line
        of_rank = _OF_RANK.search(line[: prefix.end()]) if prefix is not None else None
        self._rank = int(of_rank[1]) if of_rank is not None else None
        if self._root_lines or _ROOT_CAUSE in line:
            self._look_for_the_root(line)
        elif _OF_A_TRACKER.search(line):
            self._record, self._traceback = self.lines, 0
        elif _BEGINNING in line:
            self._traceback, self._of_loader, self._where = 1, False, ""
            self._by_tracker = self.lines - self._record <= _RECORD_LINES
        elif _CHAINED in line and self._by_tracker:
            self._record = self.lines
        elif _IGNORED in line:
            self._ignored = True
        elif self._traceback and bare.startswith((" ", "\t")):
            self._of_loader |= _LOADER_QUEUE in bare
            frame = _FRAME.search(bare)
            self._where = (frame.lastgroup or "") if frame is not None else self._where
            self._by_tracker &= self._traceback > 1 or _OF_THE_PROGRAM not in bare
            self._go_on()
        elif not self._is_of_the_system(bare) and self._traceback:
            self._look_for_the_end(bare)

    def _look_for_a_start(self, line: str) -> None:
        """Note that the log says that it continues from a checkpoint, or that a progress bar begins."""
        bar = _BAR.search(line)
        total = int(bar[1]) if bar is not None else 0
        again = self._done is None and _BEGINS.search(line)
        if self.rows and len(self._starts) < _KEPT and (total or again or _RESUMED.search(line)):
            self._starts.append((self._table.rows, total))

    def _look_for_the_root(self, line: str) -> None:
        """Which rank failed first, and how: what the others say of it is that their connection to it broke."""
        self._root_lines = _ROOT_LINES if _ROOT_CAUSE in line else self._root_lines - 1
        rank, code = _ROOT_RANK.match(line), _ROOT_EXIT.match(line)
        self._root = int(rank[1]) if rank is not None else self._root
        if code is None or self._root is None:
            return
        self._collectives.note_first(self._root)
        # Other ranks may have printed some rows by the time it was printed.
        said = next((one for one in self._seen if one.rank == self._root and self.rows - one.rows < _GOES_ON), None)
        while self._seen and self._seen[-1].rows == self.rows:
            self._seen.pop()
        number = int(code[1])
        cause = said.cause if said is not None else _BY_EXIT_CODE.get(number, "an exception")
        self._rank = self._root
        self._note(cause, f"rank {self._root}: {said.text if said is not None else f'exit code {number}'}")
        self._root, self._root_lines, self._traceback = None, 0, 0

    def _is_of_the_system(self, line: str) -> bool:
        for cause, pattern in _SYSTEM.items():
            if pattern.search(line):
                self._traceback, self._ignored = 0, False
                self._note(cause, line)
                return True
        return self._is_of_an_exit(line)

    def _is_of_an_exit(self, line: str) -> bool:
        """Whether a launcher says that the program failed: that is the cause where nothing else is."""
        self._report_first |= _OUTPUT_FOLLOWS in line and self._reported is not None
        said = _EXITED.search(line)
        code = int(next(filter(None, said.groups()))) if said is not None else 0
        if not code:
            return False
        if not any(one.rows == self.rows for one in self._seen):
            number = code if code < 0 else _SIGNALLED - code
            self._note(_BY_EXIT_CODE.get(number, "an exit code other than 0"), line)
            self._reported = self._seen[-1] if said is not None and said["lsf"] else None
        self._traceback = 0
        return True

    def _go_on(self) -> None:
        self._traceback = self._traceback + 1 if self._traceback < _TRACEBACK_LINES else 0

    def _look_for_the_end(self, line: str) -> None:
        """A traceback ends with what was raised: the first line that is not indented and names an exception."""
        raised = _RAISED.match(line.strip())
        if raised is None:
            self._go_on()
            return
        if not (self._ignored or self._by_tracker):
            cause = self._cause(raised["said"])
            self._note(cause, raised["said"], self._where)
            if self._rank is not None and "collective operation" not in cause:
                self._collectives.note_raised(self._rank, raised["said"])
        self._traceback, self._ignored = 0, False

    def _cause(self, said: str) -> str:
        if self._of_loader and _BROKEN_QUEUE.match(said):
            return "a data loader worker died"
        return next((cause for cause, pattern in _CAUSE.items() if pattern.search(said)), "an exception")

    def _note(self, cause: str, text: str, where: str = "") -> None:
        self._seen.append(
            _Seen(cause, text.lstrip(":| ").rstrip(), self.lines, self.rows, self._table.rows, self._rank, where)
        )

    def _rows_after(self, seen: _Seen, history: History) -> int:
        """A bar drawn once more, a state that is saved, a last line of another process: training does not go on."""
        rows = self.rows - seen.rows
        goes_on = rows >= _GOES_ON or (rows > 1 and history.goes_on_after(seen.place))
        return rows if goes_on else 0

    def _resumed(self, history: History) -> tuple[int, ...]:
        """The steps after which it says so; a bar, where one of the same length was not through."""
        told = (row for row, total in self._starts if not total or history.breaks_off(row, total, _NEARLY_THROUGH))
        return tuple(dict.fromkeys(step for row in told if (step := history.before(row)) is not None))

    def log(self, source: str, history: History) -> TextLog:
        """What was seen, each with how much came after it."""
        if self._report_first and self._reported is not None:
            self._reported.line, self._reported.rows, self._reported.place = self.lines, self.rows, self._table.rows
        return TextLog(
            source=source,
            lines=self.lines,
            rows=self.rows,
            done=self._done,
            troubles=tuple(
                Trouble(
                    cause=one.cause,
                    text=one.text,
                    line=one.line,
                    rows_after=self._rows_after(one, history),
                    where=one.where,
                )
                for one in self._seen
            ),
            span=history.span,
            resumed=self._resumed(history),
            reports=self._collectives.reports(),
        )
