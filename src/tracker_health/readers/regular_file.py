"""Opening files that nobody vouches for: a pipe, a socket or a device among them must not stop the reader."""

from __future__ import annotations

import os
import stat
from gzip import GzipFile
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError

_GZIP, _BUFFER_BYTES = b"\x1f\x8b", 2**18
# Without O_NONBLOCK, opening a pipe waits for somebody to write to it. On a regular file the flag does nothing.
_FLAGS = ("O_NONBLOCK", "O_NOCTTY")


def require_regular(path: Path) -> None:
    """Raises unless a path leads to a regular file, through however many links.

    Raises:
        ReadError: it is a folder, pipe, socket or device.
        OSError: it is not there, or may not be looked at.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ReadError("it is not a regular file")


def open_regular(path: Path) -> FileIO:
    """A regular file, open for reading.

    Its size may still be a lie (``/proc``, a file that grows): readers bound what they read, not what they were told.

    Raises:
        ReadError: it is a folder, pipe, socket or device.
        OSError: the file cannot be read.
    """
    # Both before and after opening: to open a device can have effects, and what a path leads to can change in between.
    require_regular(path)
    return FileIO(path, opener=_opened)


def open_log(path: Path) -> BufferedReader[Any]:
    """The bytes of a regular file, of one that gzip compressed what is in it.

    Raises:
        ReadError: it is a folder, pipe, socket or device.
        OSError: the file cannot be read.
    """
    file: BufferedReader[Any] = BufferedReader(open_regular(path), _BUFFER_BYTES)
    if file.peek(2)[:2] != _GZIP:
        return file
    return BufferedReader(GzipFile(fileobj=file, mode="rb"), _BUFFER_BYTES)


def _opened(path: str, flags: int) -> int:
    for name in _FLAGS:
        flags |= getattr(os, name, 0)  # not there on Windows
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ReadError("it is not a regular file")
    return descriptor
