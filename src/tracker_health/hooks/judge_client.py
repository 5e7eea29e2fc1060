"""The other end of a training process's judge: a process of its own, which nothing here waits for without a limit.

Judging in the training process would take its memory. It would need threads, which Python refuses when it exits. Every
bug of tracker-health and of a tracker's client would reach the training. The judge is in another session, holds none of
the process's files, and is no child of it: it can be left alone at any moment.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tracker_health.hooks.exec_log import RunToJudge, line_of
from tracker_health.hooks.guard import EXEC_LOG, TREE, UNABLE, from_outside
from tracker_health.hooks.memory import memory_left
from tracker_health.hooks.startup_path import without_startup
from tracker_health.words.tracker_environment import FOR_TRACKERS

BUDGET_SECONDS = 0.08
"""How long a training process waits for a verdict: not to be felt. The judge continues without it."""

BUDGET = "TRACKER_HEALTH_HOOK_SECONDS"

_TO_WAIT = f"{BUDGET}=60 waits for it, as tracker-health exec does"

ROOM_TO_PREPARE = 2 * 2**30
"""Bytes that must be left on the machine and in the container for a judge to wait next to the training."""

MOST_OUTGOING = 2**22
"""Bytes that wait for a busy judge: the names of some ten thousand runs."""

_MAX_LINE = 2**16
_STANDARD_ERROR = 2
# By name: an alarm's TimeoutError is an OSError too, and the program's own.
_OF_STARTING = (
    OSError,
    FileNotFoundError,
    NotADirectoryError,
    PermissionError,
    BlockingIOError,
    subprocess.SubprocessError,
)
# In the background of a shell, which leaves at once: so nobody waits for an interpreter to start, and the judge is
# nobody's child, and no zombie. There its standard input would be /dev/null.
_SHELL = ("/bin/sh", "-c", 'exec 3<&0; "$@" 0<&3 3<&- &', "sh")
# What would make the judge another program than Python as it is installed, or part of the training.
_NOT_INHERITED = ("PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONSAFEPATH", "WANDB_SERVICE", EXEC_LOG, TREE)
# What makes a store another one, or its user; the rest of a training's environment changes while it runs.
_OF_STORES = re.compile(
    r"(MLFLOW|DATABRICKS|WANDB|TRACKIO|HF_HOME|XDG_CACHE|TRACKER_HEALTH|AWS|AZURE|GOOGLE|GCS|S3|PG|MYSQL|KRB5|SSL|REQUESTS|CURL|NETRC|HOME$)"
    r"|(HTTP|HTTPS|ALL|NO)_PROXY$",
    re.IGNORECASE,
)
_NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)


class JudgeProcess:
    """A judge for the runs of one process, started when there is a run to judge and started again when it has left."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.RLock()
        self._waiting = False
        self._line: _Line | None = None
        self._state: tuple[str, frozenset[tuple[str, str]]] | None = None
        self._buffer = self._outgoing = b""
        self._unanswered = 0
        self._told_of_crowd = False
        self._waited_in_vain = 0.0
        self._told_how_to_wait = False

    def prepare(self, run: RunToJudge) -> None:
        """Report a run that has begun: the judge then imports and connects to what it needs while the training runs.

        Does nothing if nobody would wait for the verdict, or if another call is under way. It also does nothing if the
        judge could take the training's last memory.
        """
        left = memory_left()
        if not budget() or (left is not None and left < ROOM_TO_PREPARE) or not self._lock.acquire(blocking=False):
            return
        try:
            if self._line is None or self._state == _state(run):
                self._send("start", run)
        finally:
            self._lock.release()

    def verdict(self, run: RunToJudge, *, wait: bool = True) -> list[str]:
        """Hand a run over; the lines to show that came back, for earlier runs as well.

        Waits up to ``BUDGET_SECONDS`` for one. It does not wait if the judge was too slow for the run before, or if a
        signal handler calls this during another call. Without ``wait`` no verdict comes back, then or later. The same
        holds for a run with a exec_log, in which its verdict is recorded.
        """
        begin = time.monotonic()
        end = begin + budget()
        if not self._acquired(budget()):  # another thread waits for the verdict on a run of its own
            return JudgeProcess().verdict(run, wait=False)
        try:
            idle = not self._unanswered and not self._waiting
            if len(self._outgoing) > MOST_OUTGOING:
                return self._overwhelmed()
            self._send("end", run)
            if run.exec_log:
                return []
            self._unanswered += 1
            lines = self._answers(end if wait and idle else begin)
            is_open = bool(self._unanswered) and not any(line.startswith(UNABLE) for line in lines)
            if not wait:
                self.leave()
            elif idle and is_open:
                self._waited_in_vain = max(self._waited_in_vain, time.monotonic() - begin)
        finally:
            self._lock.release()
        return [*lines, self._promise(run)] if is_open and ((wait and idle) or run.is_offline) else lines

    def rest(self) -> list[str]:
        """What came back of the runs that nobody waited for, at the end of the process."""
        left = max(0.0, budget() - self._waited_in_vain)
        end = time.monotonic() + left
        if not self._acquired(left):  # by a thread that Python's end has not waited for
            return []
        try:
            lines = self._answers(end) if self._unanswered else []
            return [*lines, *(self._overwhelmed() if self._outgoing else [])]
        finally:
            self.leave()
            self._lock.release()

    def leave(self) -> None:
        """Let go of the judge, which does what it has to do and leaves."""
        line, self._line = self._line, None
        self._buffer, self._outgoing, self._unanswered = b"", b"", 0
        if line is not None and line.is_open():
            os.close(line.descriptor)

    def _acquired(self, seconds: float) -> bool:
        """Whether no other thread is in a call any more, within this time."""
        with from_outside():
            return self._lock.acquire(timeout=seconds)

    def _promise(self, run: RunToJudge) -> str:
        """What to say, in place of a verdict; the first time also how to have it waited for."""
        told, self._told_how_to_wait = self._told_how_to_wait, True
        return run.being_judged if told or run.is_offline else f"{run.being_judged}; {_TO_WAIT}"

    def _overwhelmed(self) -> list[str]:
        """What to say, once, of runs that the judge does not take."""
        told, self._told_of_crowd = self._told_of_crowd, True
        return [] if told else ["too many runs wait for the judge; those that end now are left to sweep"]

    def _send(self, event: str, run: RunToJudge) -> None:
        """Tell the judge of an event, now or, where it is busy or not up yet, with the next.

        Raises:
            RuntimeError: it cannot be started, or does not stay.
        """
        state = _state(run)
        if self._state != state:  # another folder, other credentials: another judge
            self.leave()
        line = line_of(event, run)
        for _ in range(2):
            if self._line is None:
                self._line, self._state = _Line(_start(run.folder)), state
            self._outgoing += line
            try:
                self._flush()
            except OSError:  # it had nothing to do for a while, and has left
                self.leave()
            else:
                return
        raise RuntimeError("the judge does not stay")

    def _flush(self) -> None:
        """Send what the socket takes.

        Raises:
            OSError: there is nobody at the other end, or the program has closed ours.
        """
        with suppress(BlockingIOError):
            while self._outgoing:
                self._outgoing = self._outgoing[_send(self._open_descriptor(), self._outgoing) :]

    def _open_descriptor(self) -> int:
        if self._line is None or not self._line.is_open():
            raise OSError("the program has closed the judge's socket")
        return self._line.descriptor

    def _answers(self, end: float) -> list[str]:
        """The lines that come until there is one for every run that was handed over, or the time is up."""
        lines: list[str] = []
        while self._unanswered and self._line is not None:
            # While something waits to be sent, there may be room for it long before there is an answer.
            left = max(0.0, end - time.monotonic())
            if not self._is_ready(min(left, 0.05) if self._outgoing else left):
                if not self._outgoing or not left:
                    break
                with suppress(OSError):  # told below, once all that it has said is read
                    self._flush()
                continue
            chunk = _received(self._line.descriptor) if self._line.is_open() else b""
            if not chunk:
                self.leave()
                lines.append("the judge is gone, and has given no verdict: annotate can be run by hand")
                break
            *whole, self._buffer = (self._buffer + chunk).split(b"\n")
            said = [str(json.loads(line)) for line in whole]
            lines += said
            self._unanswered -= sum(not line.startswith(UNABLE) for line in said)  # which is said of no run
        return lines

    def _is_ready(self, seconds: float) -> bool:
        """Whether the socket can be read, or is closed, within this time."""
        before, self._waiting = self._waiting, True
        try:
            with from_outside(OSError):
                descriptor = self._open_descriptor()
                if not hasattr(select, "poll"):
                    return bool(select.select([descriptor], [], [], seconds)[0])
                poller = select.poll()  # select has no numbers above 1023, and a training may have many files open
                poller.register(descriptor, select.POLLIN)
                return bool(poller.poll(seconds * 1000))
        except OSError:  # closed by the program
            return True
        finally:
            self._waiting = before


class _Line:
    """Our end of a socket: no socket object, which would warn of itself when Python exits.

    A program that closes all its files closes this one as well, and its number is then another file's.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._file = _identity(descriptor)

    def is_open(self) -> bool:
        """Whether the number is still that of our socket."""
        return _identity(self.descriptor) == self._file


def _identity(descriptor: int) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.fstat(descriptor)
        return status.st_dev, status.st_ino
    return None


def budget() -> float:
    """Seconds to wait for a verdict."""
    with suppress(ValueError):
        return min(max(0.0, float(os.environ.get(BUDGET, "") or BUDGET_SECONDS)), 600.0)  # in this order also of NaN
    return BUDGET_SECONDS


def _send(descriptor: int, line: bytes) -> int:
    connection = socket.socket(fileno=descriptor)
    try:
        # A training that wants to die of SIGPIPE does not want it for our sake.
        return connection.send(line, _NO_SIGPIPE | socket.MSG_DONTWAIT)
    finally:
        connection.detach()


def _received(descriptor: int) -> bytes:
    with suppress(OSError):
        return os.read(descriptor, _MAX_LINE)
    return b""


def _start(folder: str) -> int:
    """Start a judge that works in this folder; the descriptor of the socket to it, closed where it does not come up.

    Raises:
        RuntimeError: there is no interpreter to start it with.
        OSError: there is no shell, or no room.
    """
    if not sys.executable:
        raise RuntimeError("Python does not know its own program (sys.executable): nothing can be judged")
    if getattr(sys, "frozen", False):  # the program is the application itself: it would train once more
        raise RuntimeError("the program is frozen and has no Python next to it: nothing can be judged")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            _start_worker(theirs, folder)
        return _above_standard_streams(ours)


def _start_worker(connection: socket.socket, folder: str) -> None:
    command = [*_SHELL, sys.executable, "-P", "-m", "tracker_health.hooks.judge_process"]
    with from_outside(*_OF_STARTING):
        starter = subprocess.Popen(  # noqa: S603  this interpreter, and a module of ours
            command,
            stdin=connection.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder if Path(folder).is_dir() else "/",
            env=_environment(),
            start_new_session=True,
        )
        try:
            starter.wait()
        except BaseException:  # the program has something better to do
            starter.kill()
            starter.wait()
            raise


def _above_standard_streams(connection: socket.socket) -> int:
    """Its descriptor. Where standard output is closed it would get its number, and what someone prints."""
    if connection.fileno() > _STANDARD_ERROR:
        return connection.detach()
    import fcntl

    return fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    here = str(Path(__file__).parent.parent.parent)
    paths = [*without_startup(environment.pop("PYTHONPATH", "")).split(os.pathsep), here]
    more = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TRACKER_HEALTH_DISABLED": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    return {**FOR_TRACKERS, **environment, **more}


def _state(run: RunToJudge) -> tuple[str, frozenset[tuple[str, str]]]:
    """What a judge cannot change once it has started: its folder, and as whom it comes to which store."""
    return run.folder, frozenset((name, value) for name, value in _environment().items() if _OF_STORES.match(name))


_judges: dict[int, JudgeProcess] = {}
"""By process: a fork inherits its parent's, and has one of its own."""


def of_this_process() -> JudgeProcess:
    """The judge of this process, one also for threads that ask for it at the same moment."""
    pid = os.getpid()
    return _judges.get(pid) or _judges.setdefault(pid, JudgeProcess())


def _leave_to_parent() -> None:
    """Let go of the parent's judge, which would otherwise wait for this fork to end as well."""
    for pid in list(_judges):
        if pid != os.getpid():
            with suppress(OSError):
                _judges.pop(pid).leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
