"""The entries of a zip file, of a kind and in a number that torch writes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import RandomAccess, read_bytes
from tracker_health.text import printable

MAX_ENTRIES = 200_000
MAX_DIRECTORY_BYTES = 32 * 2**20

# Records of a zip file from its end backwards: the end, where its 64-bit form is, that form; an entry of the
# directory, a part of its extra field; the header before an entry's bytes.
_END = struct.Struct("<4s6xHIIH")
_END64_LOCATOR = struct.Struct("<4s4xQ4x")
_END64 = struct.Struct("<4s28xQQQ")
_ENTRY = struct.Struct("<4s4xHH8xIIHHH8xI")
_EXTRA = struct.Struct("<HH")
_LOCAL = struct.Struct("<4s22xHH")


class ZipEntry(NamedTuple):
    """An entry of a zip file: where its header begins, its size in bytes, and whether it is stored as it is."""

    header: int
    size: int
    stored: bool


def zip_directory(file: RandomAccess) -> dict[str, ZipEntry]:
    """The entries of a zip file by name.

    The module zipfile is not used, for two reasons. It makes a large object of each entry before they can be counted,
    whatever number is announced. It also takes the 64-bit record before the locator for the one that the locator names.
    So it may read something else than what a guard has checked.

    Raises:
        ReadError: it is no whole zip file, has too many entries, or two of one name.
    """
    start, length, count = _directory_extent(file)
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise ReadError(f"it announces {count} entries in a directory of {length} bytes: more than are read")
    data, at = read_bytes(file, start, length), 0
    entries: dict[str, ZipEntry] = {}
    try:
        for _ in range(count):
            name, entry, at = _entry(data, at)
            if name in entries:
                raise ReadError(f"two of its entries have the name {printable(name, 80)}")
            if name.startswith("/") or (".." in name and ".." in name.split("/")):
                raise ReadError(f"its entry {printable(name, 80)} points out of the archive")
            entries[name] = entry
    except struct.error as error:
        raise ReadError("its zip directory is cut short or malformed") from error
    return entries


def entry_extent(file: RandomAccess, name: str, entry: ZipEntry) -> tuple[int, int]:
    """Offset and length of an entry's bytes in the file.

    Raises:
        ReadError: the entry is compressed, has no header, or reaches beyond the end.
    """
    if not entry.stored:
        raise ReadError(f"its entry {printable(name, 80)} is compressed or encrypted; torch.save does neither")
    inside = entry.header + _LOCAL.size <= file.size
    header = read_bytes(file, entry.header, _LOCAL.size) if inside else b""
    if not header.startswith(b"PK\x03\x04"):
        raise ReadError(f"its entry {printable(name, 80)} has no header")
    _, name_length, extra_length = _LOCAL.unpack(header)
    start = entry.header + _LOCAL.size + name_length + extra_length
    if start + entry.size > file.size:
        raise ReadError(f"its entry {printable(name, 80)} reaches beyond the end of the file")
    return start, entry.size


def _directory_extent(file: RandomAccess) -> tuple[int, int, int]:
    """Offset and length of the zip directory, and how many entries it has, from the records that end the file."""
    size = file.size
    if size < _END.size:
        raise ReadError("it is empty" if size == 0 else "it is too short for a file of torch.save")
    signature, count, length, start, comment = _END.unpack(read_bytes(file, size - _END.size, _END.size))
    if signature != b"PK\x05\x06" or comment:
        raise ReadError("it is not a whole zip file, as torch.save writes them: truncated or foreign")
    located = size - _END.size - _END64_LOCATOR.size
    if located >= _END64.size:
        signature, end64 = _END64_LOCATOR.unpack(read_bytes(file, located, _END64_LOCATOR.size))
        if signature == b"PK\x06\x07" and end64 <= located - _END64.size:
            signature, count, length, start = _END64.unpack(read_bytes(file, end64, _END64.size))
            if signature != b"PK\x06\x06":
                raise ReadError("its zip directory is not where the file's end says")
    if start + length > size:
        raise ReadError("its zip directory reaches beyond the end of the file: truncated")
    return start, length, count


def _entry(data: bytes, at: int) -> tuple[str, ZipEntry, int]:
    """One entry of the zip directory: its name, what it says, and where the next begins."""
    fields = _ENTRY.unpack_from(data, at)
    signature, flags, method, packed, plain, name_length, extra_length, comment_length, header = fields
    extra = at + _ENTRY.size + name_length
    end = extra + extra_length + comment_length
    if signature != b"PK\x01\x02" or end > len(data):
        raise ReadError("its zip directory is cut short or malformed")
    name = data[at + _ENTRY.size : extra].decode("utf-8", "surrogateescape")
    if 0xFFFFFFFF in (packed, plain, header):
        plain, packed, header = _large(data[extra : extra + extra_length], plain, packed, header)
    return name, ZipEntry(header, plain, method == 0 and plain == packed and not flags & 1), end


def _large(extra: bytes, *values: int) -> list[int]:
    """The values, with those that do not fit in 32 bits taken from an entry's extra field."""
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == 1:
            large = iter(struct.unpack_from(f"<{sum(one == 0xFFFFFFFF for one in values)}Q", extra, at))
            return [next(large) if one == 0xFFFFFFFF else one for one in values]
        at += length
    return list(values)
