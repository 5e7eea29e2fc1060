"""Logs of records in blocks, as LevelDB writes them and W&B its transaction log: what is damaged costs one block.

A block is 32 KiB; in it are chunks of CRC-32, length, kind and content. A record is one chunk or, across blocks, a
first one, middle ones and a last one. Fewer than seven bytes at the end of a block are padding. W&B's log begins with
seven bytes of its own, the checksum is plain CRC-32 over kind and content, and nothing is compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import open_regular, pass_hole

BLOCK = 2**15
IDENT, MAGIC, VERSION = b":W&B", 0xBEE1, 0
HEADER = IDENT + struct.pack("<HB", MAGIC, VERSION)
MAX_RECORD_BYTES = 32 * 2**20
"""A longer record counts as damage: a table of a million rows is a file of its own, and not in the log."""

_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class LogRecord(NamedTuple):
    """``start``: the offset of its first chunk in the file; ``end``: that behind its last one."""

    start: int
    end: int
    content: bytes


def is_log(path: Path) -> bool:
    """Whether a file begins as W&B's transaction logs do, in whatever version.

    Raises:
        ReadError: it is no regular file.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        return file.read(len(IDENT)) == IDENT


class RecordLog:
    """The records of one log, read once from its beginning to its end.

    ``damaged``: how many times something had to be passed over so far. ``end``: the offset behind the last whole
    record, or behind the damaged block after it. ``torn``: the beginning of another record is there, as a writer
    that was killed leaves it.

    Raises:
        ReadError: it is empty, another kind of file, or of a version that is not known.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        header = file.read(len(HEADER))
        if not header:
            raise ReadError("the log is empty (0 bytes): nothing was written before the run ended")
        if header[: len(IDENT)] != IDENT:
            raise ReadError("it is no transaction log of W&B")
        if header != HEADER:
            raise ReadError("it is a transaction log of a version that is not known here")
        self.damaged = 0
        self.end = len(HEADER)
        self.torn = False

    def __iter__(self) -> Iterator[LogRecord]:
        parts: list[bytes] = []
        start = length = 0
        for place, kind, content in self._chunks():
            if parts and kind in (_FULL, _FIRST, 0):
                self.damaged += kind != 0  # what broke it off is counted already
                parts = []
            if kind == _FULL:
                self.end = place + _CHUNK.size + len(content)
                yield LogRecord(place, self.end, content)
            elif kind == _FIRST:
                parts, start, length = [content], place, len(content)
            elif parts:
                parts.append(content)
                length += len(content)
                if length > MAX_RECORD_BYTES:
                    self.damaged += 1
                    parts = []
                elif kind == _LAST:
                    self.end = place + _CHUNK.size + len(content)
                    joined, parts = b"".join(parts), []
                    yield LogRecord(start, self.end, joined)
        self.torn = self.torn or bool(parts)

    def _chunks(self) -> Iterator[tuple[int, int, bytes]]:
        """Offset, kind and content of each chunk that is whole; kind 0 where something was passed over."""
        base, skip = 0, len(HEADER)
        while block := self._file.read(BLOCK - skip):
            if block == bytes(BLOCK):
                pass_hole(self._file)
                base = (self._file.tell() // BLOCK) * BLOCK
                self._file.seek(base)
                yield base, 0, b""
                continue
            block = bytes(skip) + block
            place, skip = skip, 0
            while place + _CHUNK.size <= len(block):
                checksum, length, kind = _CHUNK.unpack_from(block, place)
                content = block[place + _CHUNK.size : place + _CHUNK.size + length]
                if not (checksum or length or kind):  # room that was made and not used
                    yield base + place, 0, b""
                    break
                if len(content) < length or not 1 <= kind <= _LAST or crc32(content, crc32(bytes([kind]))) != checksum:
                    self.torn = place + _CHUNK.size + length > len(block) < BLOCK
                    self.damaged += not self.torn
                    self.end = base + BLOCK if len(block) == BLOCK else self.end
                    yield base + place, 0, b""
                    break
                yield base + place, kind, content
                place += _CHUNK.size + length
            base += BLOCK


def framed(contents: list[bytes], start: int) -> bytes:
    """The bytes of records as they are in a log from the offset ``start`` on."""
    chunks = bytearray()
    for content in contents:
        rest, kind = memoryview(content), _FIRST
        while True:
            left = BLOCK - (start + len(chunks)) % BLOCK
            if left < _CHUNK.size:
                chunks += bytes(left)
                left = BLOCK
            part, rest = rest[: left - _CHUNK.size], rest[left - _CHUNK.size :]
            last = not rest
            kind = (_FULL if kind == _FIRST else _LAST) if last else kind
            chunks += _CHUNK.pack(crc32(part, crc32(bytes([kind]))), len(part), kind) + part
            if last:
                break
            kind = _MIDDLE
    return bytes(chunks)
