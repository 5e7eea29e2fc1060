"""Whether the process that writes a run's log is still there. One that is still written must not be replaced."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

_PROCESSES = Path("/proc")
# A constant of the kernel's interface (PID_NS_INIT_INO in linux/nsfs.h).
_FIRST_NAMESPACE = 0xEFFFFFFC
_SILENCE_SECONDS = 7 * 24 * 3600


class Writer(StrEnum):
    """What is known of the writer of a log that has no exit in it. ``ELSEWHERE``: it writes another file of this name,
    so that this one is a copy.
    """

    AT_WORK = "at work"
    ELSEWHERE = "elsewhere"
    GONE = "gone"
    UNKNOWN = "unknown"


def writer_of(log: Path, host: str) -> Writer:
    """Whether a process has the log open for writing; ``host``: the machine on which the run says that it runs.

    A process is only called gone if it cannot be elsewhere. The run must have been on this machine, and all processes
    that may have the file open can be looked at. Those are its owner's, and the superuser's too where we are the
    superuser. A container sees only its own processes, and may have the machine's name.
    """
    status = log.stat()
    if not (_PROCESSES / "self" / "fd").is_dir():
        return Writer.UNKNOWN
    held = set(_held_open(log))
    if held:
        return Writer.AT_WORK if (status.st_dev, status.st_ino) in held else Writer.ELSEWHERE
    here = bool(host) and host == socket.gethostname() and os.geteuid() in (0, status.st_uid)
    return Writer.GONE if here and _sees_every_process() else Writer.UNKNOWN


def is_long_ago(when: float) -> bool:
    """Whether a log that was last written to then, in seconds since 1970, has no writer any more, wherever that was.

    W&B records the machine's load four times a minute, and writes whenever 32 KiB have come together.
    """
    return time.time() - when > _SILENCE_SECONDS


def _sees_every_process() -> bool:
    """Whether this process is in no container: in the machine's first namespace of process ids."""
    try:
        return (_PROCESSES / "self" / "ns" / "pid").stat().st_ino == _FIRST_NAMESPACE
    except OSError:
        return False


def _held_open(log: Path) -> Iterator[tuple[int, int]]:
    """The files of the log's name, which has the run's id in it, that a process has open for writing: device and
    inode.
    """
    name = log.resolve().name
    for process in _PROCESSES.iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):  # it has ended, or is someone else's
            for link in (process / "fd").iterdir():
                with suppress(OSError):
                    if link.readlink().name == name and _is_writing(process, link):
                        status = link.stat()
                        yield status.st_dev, status.st_ino


def _is_writing(process: Path, link: Path) -> bool:
    flags = (process / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
