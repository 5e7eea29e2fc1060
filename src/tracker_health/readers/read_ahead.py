"""Reading a local file from disk while the part before is still being worked on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

WORTH_IT = 64 * 2**20
"""Bytes below which a thread costs more than it brings."""

_PIECE = 4 * 2**20
_FARTHEST = 64 * 2**20  # ahead of the reader: more would only push out of memory what comes next
_FROM_MEMORY = 2.5e9  # bytes a second, above which the file is in memory already
_TRIED = 4
_PAUSE = 0.002


class ReadAhead:
    """A thread that reads extents of a file, in order, so that the system holds them when they are asked for.

    It ends when the first pieces turn out to be in memory already, when the file cannot be read, and at ``stop``.
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
        buffer, pieces, slow = bytearray(_PIECE), 0, 0
        for start, length in self._extents:
            for at in range(start, start + length, _PIECE):
                while at > self._reached + _FARTHEST and not self._stopped.wait(_PAUSE):
                    pass
                if self._stopped.is_set():
                    return
                view = memoryview(buffer)[: min(_PIECE, start + length - at)]
                began = time.perf_counter()
                try:
                    read = os.preadv(self._descriptor, [view], at)
                except OSError:
                    return  # told when the bytes are really read
                pieces += 1
                slow += read < _FROM_MEMORY * (time.perf_counter() - began)
                if pieces == _TRIED and slow <= _TRIED // 2:
                    return
