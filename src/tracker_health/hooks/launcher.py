"""``tracker-health exec``: runs a command with the hooks in it, outlives it, and judges the runs that it left open."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tracker_health.hooks import judge
from tracker_health.hooks.guard import is_disabled, safely, say
from tracker_health.hooks.ledger import VARIABLE, left_runs
from tracker_health.hooks.startup_path import with_startup
from tracker_health.hooks.witness import Witness

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_SIGNALLED = 128
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def run(command: Sequence[str]) -> int:
    """Run a command with the hooks in it and all that it starts; its exit code, or 128 and the signal that killed it.

    Its streams, its signals and its terminal are its own. What runs it left open is judged when it is gone.
    """
    try:
        return _exit_code(_supervised(command, os.environ) if is_disabled() else _hooked(command))
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _hooked(command: Sequence[str]) -> int:
    ledger = safely(_new_ledger)
    if ledger is None:  # no room for a file: the command runs all the same
        return _supervised(command, _environment({}))
    try:
        code = _supervised(command, _environment({VARIABLE: str(ledger)}))
        with suppress(KeyboardInterrupt), _caught(_wait_no_longer):  # the judge goes on without us
            safely(_judge_left, ledger, code)
        return code
    finally:
        with suppress(OSError):
            ledger.unlink()


def _wait_no_longer(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _new_ledger() -> Path:
    descriptor, path = tempfile.mkstemp(prefix="tracker-health-")
    os.close(descriptor)
    return Path(path)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    path = with_startup(os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": path, "TRACKER_HEALTH_AUTO": "1", **more}


# The command


def _supervised(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """What the command returned, as ``Popen`` has it.

    Raises:
        OSError: it cannot be run.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None = None) -> None:
        if not started:
            early.append(number)
        elif witness is None or not _has_reached(started[0], number, witness):
            started[0].send_signal(number)

    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited so, the system forgets what the command returned, and it would count as 0.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with _caught(pass_on) as caught, _witness(caught) as witness:
        # The files that we were given for it stay open; ours are not inherited anyway.
        process = subprocess.Popen(command, env=environment, close_fds=False)  # noqa: S603  what we are asked to run
        started.append(process)
        for number in early:  # whoever else got it, the command was not there yet
            process.send_signal(number)
        return process.wait()


def _has_reached(process: subprocess.Popen[bytes], number: int, witness: Witness) -> bool:
    """Whether a signal that has come to us has come to the command as well; where that cannot be told it has not."""
    with suppress(OSError):
        return os.getpgid(process.pid) == os.getpgrp() and witness.saw(number)
    return False


@contextmanager
def _witness(caught: list[int]) -> Iterator[Witness | None]:
    """Somebody who sees which of the signals reach the command anyway; nobody where there is no room for it."""
    try:
        witness = Witness(caught) if hasattr(signal, "pthread_sigmask") else None
    except OSError:
        witness = None
    if witness is None:
        yield None
        return
    try:
        yield witness
    finally:
        witness.leave()


@contextmanager
def _caught(handler: Callable[[int, FrameType | None], None]) -> Iterator[list[int]]:
    """Have the signals that are passed on call a handler; which these are."""
    known = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    # What the command inherits as ignored stays ignored, as under nohup.
    caught = [number for number in known if before[number] not in (signal.SIG_IGN, None)]
    for number in caught:
        signal.signal(number, handler)
    try:
        yield caught
    finally:
        for number in caught:
            signal.signal(number, before[number])


def _exit_code(code: int) -> int:
    return _SIGNALLED - code if code < 0 else code


# The runs


def _judge_left(ledger: Path, code: int) -> None:
    """Judge the runs that the command began and did not end, unless the process that began one goes on."""
    for left in left_runs(ledger):
        if _is_alive(left.pid):
            say(f"{left.run.run} goes on in process {left.pid}: not judged")
            continue
        run = left.run if left.in_order else replace(left.run, ended_by=_death(code))
        for line in judge.of_this_process().verdict(run):
            say(line)
    for line in judge.of_this_process().rest():
        say(line)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and nobody has asked how: in a container without an init that is us."""
    with suppress(OSError, IndexError):  # gone meanwhile, or anywhere but on Linux
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    return False


def _death(code: int) -> str:
    """What a process died of, by what the command returned: its own end, or what its shell or launcher made of it."""
    number = -code if code < 0 else code - _SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"it left with exit code {code}, without ending the run"
    return f"{name}, {_MEANINGS[name]}" if name in _MEANINGS else name


_MEANINGS = {
    "SIGKILL": "which is also what a lack of memory comes to",
    "SIGTERM": "from a scheduler, or by hand",
    "SIGSEGV": "a crash below Python",
    "SIGABRT": "a crash below Python",
    "SIGBUS": "a crash below Python, or a full disk",
}
