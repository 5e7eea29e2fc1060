"""Reading a local file from disk while the part before is still being worked on."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

WORTH_IT = 64 * 2**20
"""Bytes below which a thread costs more than it brings."""

_PIECE = 4 * 2**20
_FARTHEST = 64 * 2**20  # ahead of the reader: more would only push out of memory what comes next
_PAUSE = 0.002


class ReadAhead:
    """A thread that asks the system for extents of a file, in order, so that it holds them when they are read.

    Asking copies nothing, and costs almost nothing where the file is in memory already; but it waits for room in
    memory and for the disk's queue, which the reader of the bytes should not. It ends at ``stop``.
    """

    def __init__(self, descriptor: int, extents: Sequence[tuple[int, int]]) -> None:
        self._descriptor = descriptor
        self._extents = sorted(extents)
        self._reached = 0  # by the one who works on it
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def reached(self, end: int) -> None:
        """Tell how far the bytes have been used."""
        self._reached = max(self._reached, end)

    def stop(self) -> None:
        """End the thread; afterwards the file may be closed."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for start, length in self._extents:
            for at in range(start, start + length, _PIECE):
                while at > self._reached + _FARTHEST and not self._stopped.wait(_PAUSE):
                    pass
                if self._stopped.is_set():
                    return
                try:
                    os.posix_fadvise(self._descriptor, at, min(_PIECE, start + length - at), os.POSIX_FADV_WILLNEED)
                except OSError:
                    return  # told when the bytes are really read
