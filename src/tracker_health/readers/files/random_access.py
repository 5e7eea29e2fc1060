"""The bytes of a file by their offset, wherever the file is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tracker_health.errors import ReadError
from tracker_health.readers.files.closing import Closing
from tracker_health.readers.files.read_ahead import WORTH_IT, ReadAhead
from tracker_health.readers.files.regular_file import open_regular, require_written

SHORTER = "it has become shorter while it was read"


class RandomAccess(Protocol):
    """A file that is read in pieces. ``size`` in bytes."""

    @property
    def size(self) -> int: ...

    def read_into(self, start: int, view: memoryview) -> None:
        """Fill ``view`` with the bytes from ``start`` on.

        Raises:
            ReadError: the file ends before, or a piece could not be fetched.
            OSError: the file cannot be read.
        """

    def expect(self, extents: Iterable[tuple[int, int]]) -> None:
        """Tell that these (start, length) will be read, so that they can be fetched together."""

    def close(self) -> None: ...


class LocalFile(Closing):
    """A regular file of this machine.

    Raises:
        ReadError: it is a folder, pipe, socket or device, or all holes.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        self._ahead: ReadAhead | None = None
        try:
            self.size = self._file.seek(0, 2)
            require_written(self._file.fileno(), self.size)
        except (OSError, ReadError):
            self._file.close()
            raise

    def read_into(self, start: int, view: memoryview) -> None:
        if self._read_at(start, view) != len(view):
            raise ReadError(SHORTER)
        if self._ahead is not None:
            self._ahead.reached(start + len(view))

    def _read_at(self, start: int, view: memoryview) -> int | None:
        if hasattr(os, "preadv"):  # one call of the system's instead of two: a state has many small tensors
            return os.preadv(self._file.fileno(), [view], start)
        self._file.seek(start)
        return self._file.readinto(view)

    def expect(self, extents: Iterable[tuple[int, int]]) -> None:
        """Have much of a file read from disk while what came before is worked on."""
        listed = [(max(start, 0), length) for start, length in extents if length > 0]
        if self._ahead is None and hasattr(os, "posix_fadvise") and sum(length for _, length in listed) >= WORTH_IT:
            self._ahead = ReadAhead(self._file.fileno(), listed)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.stop()
        self._file.close()


class Stretch:
    """A part of a file that is a file of its own, as the items of a distributed checkpoint are."""

    def __init__(self, whole: RandomAccess, start: int, size: int) -> None:
        if start < 0 or size < 0 or start + size > whole.size:
            raise ReadError(f"a part of it, {size} bytes from byte {start}, reaches beyond its end")
        self._whole, self._start, self.size = whole, start, size

    def read_into(self, start: int, view: memoryview) -> None:
        if start < 0 or start + len(view) > self.size:
            raise ReadError(SHORTER)
        self._whole.read_into(self._start + start, view)

    def expect(self, extents: Iterable[tuple[int, int]]) -> None:
        self._whole.expect([(self._start + start, length) for start, length in extents])

    def close(self) -> None:
        """The whole file is not this part's to close."""


def read_bytes(source: RandomAccess, start: int, length: int) -> bytes:
    """A stretch of a file, whose length has been checked to be sane.

    Raises:
        ReadError: the file ends before.
    """
    data = bytearray(length)
    if length:
        source.read_into(start, memoryview(data))
    return bytes(data)
