"""How a run ended: the few words for it, and what exit codes, signals, exceptions and trackers say in them."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tracker_health.text import printable


class Ended(StrEnum):
    """How a run ended, as the report and the tag ``health.ended`` say it. It is no verdict."""

    FINISHED = "finished"
    FAILED = "failed"
    OUT_OF_MEMORY = "out-of-memory"
    KILLED = "killed"
    PREEMPTED = "preempted"
    INTERRUPTED = "interrupted"
    PRUNED = "pruned"
    SILENT = "silent"
    RUNNING = "running"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is expected of the run."""
        return self is not Ended.RUNNING


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended. ``by``: what says so, in words for people ("SIGKILL", "exit code 3", "MLflow says FAILED")."""

    how: Ended
    by: str


_SIGNALLED = 128
_WANDB_INTERRUPTED = 255
_MOST_CHARACTERS = 200
_LOOKED_AT = 2000

# What a signal means, where nothing else is known; all others are errors of the program itself.
_BY_SIGNAL = {
    "SIGKILL": (Ended.KILLED, "SIGKILL"),
    "SIGTERM": (Ended.INTERRUPTED, "SIGTERM, from a scheduler or by hand"),
    "SIGINT": (Ended.INTERRUPTED, "SIGINT, Ctrl-C"),
    "SIGHUP": (Ended.INTERRUPTED, "SIGHUP, the terminal was closed"),
    "SIGQUIT": (Ended.INTERRUPTED, "SIGQUIT, by hand"),
    "SIGUSR1": (Ended.INTERRUPTED, "SIGUSR1, which schedulers send before a time limit"),
    "SIGUSR2": (Ended.INTERRUPTED, "SIGUSR2, which schedulers send before a time limit"),
    "SIGXCPU": (Ended.INTERRUPTED, "SIGXCPU, its processor time was up"),
    "SIGSEGV": (Ended.FAILED, "SIGSEGV, a crash below Python"),
    "SIGABRT": (Ended.FAILED, "SIGABRT, a crash below Python"),
    "SIGBUS": (Ended.FAILED, "SIGBUS, a crash below Python or a full disk"),
}
_OUT_OF_MEMORY = re.compile(r"(?:^|\.)(?:MemoryError|OutOfMemoryError|ResourceExhaustedError)$")
_SAYS_OUT_OF_MEMORY = re.compile(r"out of memory|RESOURCE_EXHAUSTED|Cannot allocate memory", re.IGNORECASE)
# Optuna's, and what is called after it elsewhere: the search ended the trial, and nothing is wrong with it.
_PRUNED = re.compile(r"(?:^|\.)(?:Trial|Experiment|Run)?(?:Was)?Pruned(?:Exception|Error)?$")
# Of MLflow and W&B. CRASHED is W&B's word for a run that nobody ended and that gives no sign of life any more: it may
# have been killed, or have lost its connection, or a notebook never closed it. OPEN, GONE and SWEPT are ours, for a
# log of W&B's on this machine that has no exit record: its process may go on, is gone, or its sweep ended it. PRUNED is
# Optuna's. ACTIVE and UNFINISHED are ours as well, for trackio, which records no end.
_BY_STATUS = {
    "FINISHED": Ended.FINISHED,
    "FAILED": Ended.FAILED,
    "KILLED": Ended.INTERRUPTED,
    "CRASHED": Ended.SILENT,
    "GONE": Ended.SILENT,
    "PREEMPTED": Ended.PREEMPTED,
    "PRUNED": Ended.PRUNED,
    "SWEPT": Ended.PRUNED,
    "RUNNING": Ended.RUNNING,
    "OPEN": Ended.RUNNING,
    "ACTIVE": Ended.RUNNING,
    "UNFINISHED": Ended.RUNNING,
    "SCHEDULED": Ended.RUNNING,
    "PENDING": Ended.RUNNING,
    "PREEMPTING": Ended.RUNNING,
}
_SAID = {
    "CRASHED": "{} says CRASHED, which is a lost heartbeat",
    "GONE": "{}'s log has no exit record, and no process writes it",
    "OPEN": "{}'s log has no exit record",
    "ACTIVE": "{} got a row of it less than 10 minutes ago",
    "UNFINISHED": "{} records no end",
    "SWEPT": "{}'s log has no exit record, as those of its sweep's other trials that lagged behind",
}


def ending_by_exit_code(code: int) -> Ending:
    """What the exit code of a process says: negative, or 128 and more, where a signal ended it.

    Reference: POSIX for shells; ``subprocess.Popen.returncode``.
    """
    if code == 0:
        return Ending(how=Ended.FINISHED, by="exit code 0")
    number = -code if code < 0 else code - _SIGNALLED
    try:
        name = signal.Signals(number).name
    except ValueError:
        return Ending(how=Ended.FAILED, by=f"exit code {code}")
    how, by = _BY_SIGNAL.get(name, (Ended.FAILED, name))
    return Ending(how=how, by=by)


def ending_by_wandb_code(code: int) -> Ending:
    """What the exit code that W&B records says: what ``sys.exit`` was given, or 255 for Ctrl-C, its own convention."""
    if code == _WANDB_INTERRUPTED:
        return Ending(how=Ended.INTERRUPTED, by="W&B's exit code 255, Ctrl-C")
    ending = ending_by_exit_code(exit_code_of(code))
    return Ending(how=ending.how, by=f"W&B's {ending.by}" if ending.by.startswith("exit code") else ending.by)


def ending_by_exception(error: BaseException) -> Ending:
    """What an exception says that ended a run, by the names of its classes and its text."""
    if isinstance(error, SystemExit):
        return ending_by_exit_code(exit_code_of(error.code))
    names = [_of_others(partial(_name_of, kind)) for kind in type.mro(type(error))]
    name, text = names[0].rpartition(".")[2] or "an exception", _of_others(partial(str, error))
    is_named = text.startswith(f"{name}:")  # as by who raises it again with what was caught
    by = printable(text if is_named else f"{name}: {text}" if text else name, _MOST_CHARACTERS)
    if isinstance(error, KeyboardInterrupt):
        return Ending(how=Ended.INTERRUPTED, by="Ctrl-C")
    if any(map(_PRUNED.search, names)):
        return Ending(how=Ended.PRUNED, by=by)
    of_memory = any(map(_OUT_OF_MEMORY.search, names)) or bool(_SAYS_OUT_OF_MEMORY.search(text))
    return Ending(how=Ended.OUT_OF_MEMORY if of_memory else Ended.FAILED, by=by)


def exit_code_of(status: object) -> int:
    """The exit code that Python makes of what ``sys.exit`` was given."""
    if status is None:
        return 0
    return status & 0xFF if isinstance(status, int) else 1


def ending_by_status(status: str, tracker: str) -> Ending | None:
    """What a tracker's word for a run's state says; None for a word that is not known."""
    how = _BY_STATUS.get(status.upper())
    said = _SAID.get(status.upper(), f"{{}} says {status.upper()}")
    return None if how is None else Ending(how=how, by=said.format(tracker))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _of_others(call: Callable[[], str]) -> str:
    """What someone's own class says as text, as much as is looked at; nothing where it raises, whatever that is."""
    try:
        return call()[:_LOOKED_AT]
    except BaseException:  # noqa: BLE001  in the midst of someone's training
        return ""
