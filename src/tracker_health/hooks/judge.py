"""The other end of a training process's judge: a process of its own, which nothing here waits for without a limit.

Judging in the training process would take its memory, threads that Python refuses when it exits, and every bug of ours
and of a tracker's client with it. The judge is in another session, holds none of the process's files, and is no child
of it: it can be left alone at any moment.
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
from typing import Any

from tracker_health.hooks.guard import from_outside
from tracker_health.hooks.ledger import VARIABLE, RunToJudge, line_of
from tracker_health.hooks.memory import memory_left
from tracker_health.hooks.startup_path import without_startup

BUDGET_SECONDS = 10.0
"""How long a training process waits for a verdict. The judge goes on without it."""

BUDGET = "TRACKER_HEALTH_HOOK_SECONDS"

ROOM_TO_PREPARE = 2 * 2**30
"""Bytes that must be left on the machine and in the container for a judge to wait beside the training."""

MOST_OUTGOING = 2**22
"""Bytes that wait for a busy judge: the names of some ten thousand runs."""

_MAX_LINE = 2**16
# What would make the judge another program than Python as it is installed, or part of the training.
_NOT_INHERITED = ("PYTHONWARNINGS", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONSAFEPATH", "WANDB_SERVICE", VARIABLE)
# What makes a store another one, or its user; the rest of a training's environment changes while it runs.
_OF_STORES = re.compile(
    r"(MLFLOW|DATABRICKS|WANDB|TRACKER_HEALTH|AWS|AZURE|GOOGLE|GCS|S3|PG|MYSQL|KRB5|SSL|REQUESTS|CURL|NETRC|HOME$)"
    r"|(HTTP|HTTPS|ALL|NO)_PROXY$",
    re.IGNORECASE,
)
_NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)


class Judge:
    """A judge for the runs of one process, started when there is a run to judge and started again when it has left."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.RLock()
        self._waiting = False
        self._descriptor = -1  # no socket object, which would warn of itself when Python exits
        self._state: tuple[str, frozenset[tuple[str, str]]] | None = None
        self._buffer = self._outgoing = b""
        self._unanswered = 0
        self._told_of_crowd = False

    def prepare(self, run: RunToJudge) -> None:
        """Tell of a run that has begun: the judge then imports and connects to what it needs while the training runs.

        Does nothing where nobody would wait for the verdict, where the judge's memory could be the training's last, or
        where another call is on its way.
        """
        left = memory_left()
        if not budget() or (left is not None and left < ROOM_TO_PREPARE) or not self._lock.acquire(blocking=False):
            return
        try:
            if self._descriptor < 0 or self._state == _state(run):
                self._send("start", run)
        finally:
            self._lock.release()

    def verdict(self, run: RunToJudge, *, wait: bool = True) -> list[str]:
        """Hand a run over; the lines to show that came back, for earlier runs as well.

        Waits for one as long as ``BUDGET_SECONDS``, unless the judge was too slow for the run before, or this is called
        by a signal handler in the middle of another call. Without ``wait`` nothing comes back, then or later.
        """
        if not self._lock.acquire(timeout=budget()):  # another thread waits for the verdict on a run of its own
            return Judge().verdict(run, wait=False)
        try:
            idle = not self._unanswered and not self._waiting
            if len(self._outgoing) > MOST_OUTGOING:
                return self._overwhelmed()
            self._send("end", run)
            self._unanswered += 1
            lines = self._answers(budget() if wait and idle else 0.0)
            if not wait:
                self.leave()
        finally:
            self._lock.release()
        if wait and idle and not lines:
            lines.append(f"{run.run} is being judged; the verdict will be on the run")
        return lines

    def rest(self) -> list[str]:
        """What came back of the runs that nobody waited for, at the end of the process."""
        with self._lock:
            try:
                lines = self._answers(budget()) if self._unanswered else []
                return [*lines, *(self._overwhelmed() if self._outgoing else [])]
            finally:
                self.leave()

    def leave(self) -> None:
        """Let go of the judge, which does what it has to do and leaves."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._buffer, self._outgoing, self._unanswered = -1, b"", b"", 0

    def _overwhelmed(self) -> list[str]:
        """What to say, once, of runs that the judge does not take."""
        told, self._told_of_crowd = self._told_of_crowd, True
        return [] if told else ["too many runs wait for the judge; those that end now are left to sweep"]

    def _send(self, event: str, run: RunToJudge) -> None:
        """Tell the judge of an event, now or, where it is busy, with the next.

        Raises:
            RuntimeError: it cannot be started, or does not stay.
        """
        state = _state(run)
        if self._state != state:  # another folder, other credentials: another judge
            self.leave()
        line = line_of(event, run)
        for _ in range(2):
            if self._descriptor < 0:
                self._descriptor, self._state = _start(run.folder), state
            self._outgoing += line
            try:
                self._flush()
            except OSError:  # it had nothing to do for a while, and has left
                self.leave()
            else:
                return
        raise RuntimeError("the judge does not stay")

    def _flush(self) -> None:
        """Send what the socket takes."""
        with suppress(BlockingIOError):
            while self._outgoing:
                self._outgoing = self._outgoing[_send(self._descriptor, self._outgoing) :]

    def _answers(self, seconds: float) -> list[str]:
        """The lines that come until there is one for every run that was handed over, or the time is up."""
        lines: list[str] = []
        end = time.monotonic() + seconds
        while self._unanswered and self._descriptor >= 0:
            # While something waits to be sent, there may be room for it long before there is an answer.
            left = max(0.0, end - time.monotonic())
            if not self._is_ready(min(left, 0.05) if self._outgoing else left):
                if not self._outgoing or not left:
                    break
                with suppress(OSError):  # told below, once all that it has said is read
                    self._flush()
                continue
            chunk = _received(self._descriptor)
            if not chunk:
                self.leave()
                lines.append("the judge is gone, and has given no verdict: annotate can be run by hand")
                break
            *whole, self._buffer = (self._buffer + chunk).split(b"\n")
            lines += [str(json.loads(line)) for line in whole]
            self._unanswered -= len(whole)
        return lines

    def _is_ready(self, seconds: float) -> bool:
        """Whether the socket can be read, or is closed, within this time."""
        poll: Any = getattr(select, "poll", None)
        before, self._waiting = self._waiting, True
        try:
            with from_outside(OSError):
                if poll is None:
                    return bool(select.select([self._descriptor], [], [], seconds)[0])
                poller = poll()  # select has no numbers above 1023, and a training may have many files open
                poller.register(self._descriptor, select.POLLIN)
                return bool(poller.poll(seconds * 1000))
        finally:
            self._waiting = before


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
    """Start a judge that works in this folder; the descriptor of the socket to it.

    Raises:
        RuntimeError: there is no interpreter to start it with, or it did not start.
    """
    if not sys.executable:
        raise RuntimeError("Python does not know its own program (sys.executable): nothing can be judged")
    if getattr(sys, "frozen", False):  # the program is the application itself: it would train once more
        raise RuntimeError("the program is frozen and has no Python beside it: nothing can be judged")
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            command = [sys.executable, "-P", "-m", "tracker_health.hooks.worker"]
            starter = subprocess.Popen(  # noqa: S603  this interpreter, and a module of ours
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder if Path(folder).is_dir() else "/",
                env=_environment(),
                start_new_session=True,
            )
        try:
            # It forks the judge and leaves: so the judge is nobody's child, and no zombie.
            with from_outside(OSError, subprocess.TimeoutExpired):
                code = starter.wait(budget() or BUDGET_SECONDS)
        except subprocess.TimeoutExpired:
            starter.kill()
            starter.wait()
            raise RuntimeError("the judge took too long to start") from None
    except BaseException:
        ours.close()
        raise
    if code:
        ours.close()
        raise RuntimeError(f"the judge did not start ({' '.join(command)} ended with {code})")
    return ours.detach()


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
    patience = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "WANDB_SILENT": "true"}
    return {**patience, **environment, **more}


def _state(run: RunToJudge) -> tuple[str, frozenset[tuple[str, str]]]:
    """What a judge cannot change once it has started: its folder, and as whom it comes to which store."""
    return run.folder, frozenset((name, value) for name, value in _environment().items() if _OF_STORES.match(name))


_judge: Judge | None = None


def of_this_process() -> Judge:
    """The judge of this process; a fork has one of its own."""
    global _judge  # noqa: PLW0603  one per process
    if _judge is None:
        os.register_at_fork(after_in_child=_leave_to_parent)
    if _judge is None or _judge.pid != os.getpid():
        _judge = Judge()
    return _judge


def _leave_to_parent() -> None:
    """Let go of the parent's judge, which would otherwise wait for this fork to end as well."""
    if _judge is not None and _judge.pid != os.getpid():
        with suppress(OSError):
            _judge.leave()
