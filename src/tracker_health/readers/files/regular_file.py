"""The one place where files are opened that nobody vouches for: what a run left, or a link to anywhere.

Nothing else in ``readers`` and ``stores`` opens a file of a run; a test keeps it so. Whoever reads bounds what is read.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache
from gzip import GzipFile
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from tracker_health.errors import ReadError
from tracker_health.text import size_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_GZIP, _BUFFER_BYTES = b"\x1f\x8b", 2**18
# Without O_NONBLOCK, opening a pipe waits for someone to write to it. On a regular file the flag does nothing.
_FLAGS = ("O_NONBLOCK", "O_NOCTTY")
# Their files are regular by name only: to read one can have effects, take as long as it likes, or never end.
_KERNEL_FOLDERS = ("/proc", "/sys")
_LARGE = 2**28
_MOSTLY_HOLES = 16  # to one part that was written
_DISK_BLOCK = 512
_NOT_REGULAR = "it is not a regular file"

_Read = TypeVar("_Read")

_confined_to: set[Path] | None = None
_fetched: set[Path] = set()


class RegularFile(FileIO):
    """A file open for reading, without a buffer."""

    def read(self, size: int | None = -1, /) -> bytes:
        """At most so many bytes, all that are left for -1: see ``FileIO.read``."""
        content: bytes | None = super().read(size)
        return _there(content)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """See ``FileIO.readinto``."""
        count: int | None = super().readinto(buffer)
        return _there(count)


def confine(*folders: Path) -> None:
    """Let this process open no file of a run outside of these folders any more, wherever links lead. What it fetches
    itself stays open to it.

    Args:
        folders: Folders of this machine.
    """
    global _confined_to  # noqa: PLW0603 - of the process, as the files that are open are
    _confined_to = {folder.resolve() for folder in folders}


def note_fetched(folder: Path, *, gone: bool = False) -> None:
    """Note that this process fetches files into a folder, or that the folder is gone."""
    (_fetched.discard if gone else _fetched.add)(folder.resolve())


def _require_inside(path: Path) -> None:
    if _confined_to is not None:
        place = path.resolve()
        if not any(place.is_relative_to(folder) for folder in (*_confined_to, *_fetched)):
            raise ReadError("it is outside of the folders that may be read", "name its folder as another root")


def require_regular(path: Path) -> None:
    """Raises unless a path leads to a regular file, through however many links.

    Raises:
        ReadError: it is a folder, pipe, socket, device, or a file of the kernel's; or outside of what may be read.
        OSError: it is not there, or may not be looked at.
    """
    _require_inside(path)
    if not _is_regular(path.stat()):
        raise ReadError(_NOT_REGULAR)


def open_regular(path: Path) -> RegularFile:
    """A regular file, open for reading.

    Its size may still be a lie (a file that grows): readers bound what they read, not what they were given.

    Raises:
        ReadError: it is a folder, pipe, socket, device, or a file of the kernel's.
        OSError: the file cannot be read.
    """
    # Both before and after opening: to open a device can have effects, and what a path leads to can change in between.
    require_regular(path)
    return RegularFile(path, opener=_opened)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """All of a regular file.

    Raises:
        ReadError: it is no regular file, or larger than ``most_bytes``.
        OSError: the file cannot be read.
    """
    with BufferedReader(open_regular(path)) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ReadError(f"it is larger than the {most_bytes} bytes that are read")
    return content


def pass_hole(file: BinaryIO) -> None:
    """Go on where the file has bytes again that were once written. A file can be a million times as long as its disk,
    with holes that read as zeros; where nothing follows, this is its end.
    """
    if not hasattr(os, "SEEK_DATA") or isinstance(getattr(file, "raw", None), GzipFile):
        return
    place, descriptor = file.tell(), file.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)  # where the buffer around it takes it to be
    try:
        found = os.lseek(descriptor, place, os.SEEK_DATA)
    except OSError as error:
        found = os.fstat(descriptor).st_size if error.errno == errno.ENXIO else place
    os.lseek(descriptor, before, os.SEEK_SET)
    file.seek(found)


def require_written(descriptor: int, size: int) -> None:
    """Raises for a large file of which almost nothing was ever written: to read its holes takes as long as data.

    Raises:
        ReadError: it is one.
    """
    status = os.fstat(descriptor)
    on_disk = getattr(status, "st_blocks", size) * _DISK_BLOCK
    if size <= _LARGE or on_disk * _MOSTLY_HOLES > size or not hasattr(os, "SEEK_DATA"):
        return
    # Some file systems do not say how much of a file they keep, but know no holes either.
    before, written, place = os.lseek(descriptor, 0, os.SEEK_CUR), 0, 0
    try:
        while place < size and written * _MOSTLY_HOLES <= size:
            start = os.lseek(descriptor, place, os.SEEK_DATA)
            place = os.lseek(descriptor, start, os.SEEK_HOLE)
            written += place - start
    except OSError:  # there are no more data
        pass
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)
    if written * _MOSTLY_HOLES <= size:
        raise ReadError(f"it is all holes: of its {size_of(size)} only {size_of(written)} were ever written")


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
    if not _is_regular(os.fstat(descriptor)):
        os.close(descriptor)
        raise ReadError(_NOT_REGULAR)
    try:
        _require_inside(_place_of(path, descriptor))
    except ReadError:
        os.close(descriptor)
        raise
    return descriptor


def _place_of(path: str, descriptor: int) -> Path:
    """What was opened, as far as the system says so: a link may lead elsewhere by now."""
    opened = Path(f"/proc/self/fd/{descriptor}")
    return opened if _confined_to is not None and opened.exists() else Path(path)


def _is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_dev not in _kernel_devices()


@cache
def _kernel_devices() -> frozenset[int]:
    """The numbers of the file systems that are the kernel's own."""
    found = set()
    for folder in _KERNEL_FOLDERS:
        try:
            found.add(Path(folder).stat().st_dev)
        except OSError:
            continue
    # Where one of them is not mounted, its folder is of the same file system as all else.
    return frozenset(found) - {Path("/").stat().st_dev}


def _there(read: _Read | None) -> _Read:
    """What was read; without O_NONBLOCK a file that has nothing to give now would be waited for."""
    if read is None:
        raise ReadError(_NOT_REGULAR)
    return read
