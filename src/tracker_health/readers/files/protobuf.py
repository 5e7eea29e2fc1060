"""Protocol buffers' wire format: the fields of a message by their numbers, read and written without a schema.

Field numbers and their types are a format's promise. Reading a few of them needs no generated classes, and not the
import of the package that has these. Unknown fields pass through unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

from tracker_health.errors import ReadError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MAX_FIELDS = 200_000
_MAX_TEXTS = 10_000
_MAX_VARINT_BYTES = 10
_CUT_OFF = "a message in it is cut off"
_DOUBLE = struct.Struct("<d")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field, in their order: an int for a varint, else the bytes of the value.

    Raises:
        ReadError: these bytes are no message, or one of more fields than are read.
    """
    place, end, left = 0, len(message), MAX_FIELDS
    while place < end:
        left -= 1
        if left < 0:
            raise ReadError(f"a message in it has more than the {MAX_FIELDS} fields that are read")
        tag, place = varint(message, place)
        kind = tag & 7
        if kind == VARINT:
            value, place = varint(message, place)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            length, place = varint(message, place)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ReadError("a message in it has a field of a kind that there is not")
        if length > end - place:
            raise ReadError(_CUT_OFF)
        yield tag >> 3, message[place : place + length]
        place += length


def varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer of variable length, and the place behind it.

    Raises:
        ReadError: the message ends before, or the integer does not end.
    """
    value = shift = 0
    for byte in message[place : place + _MAX_VARINT_BYTES]:
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    raise ReadError(_CUT_OFF)


def signed(value: int) -> int:
    """What an ``int32`` or ``int64`` is that was read as a varint."""
    return value - 2**64 if value >= 2**63 else value


def zigzag(value: int) -> int:
    """What a ``sint64`` is that was read as a varint."""
    return (value >> 1) ^ -(value & 1)


def double(value: bytes) -> float:
    """What the eight bytes of a ``double`` are.

    Raises:
        ReadError: they are not eight.
    """
    if len(value) != _DOUBLE.size:
        raise ReadError(_CUT_OFF)
    return float(_DOUBLE.unpack(value)[0])


def texts(message: bytes, number: int) -> list[str]:
    """The strings of a field, ten thousand at most; bytes that are not UTF-8 are replaced.

    Raises:
        ReadError: these bytes are no message.
    """
    found = (value for key, value in fields(message) if key == number and isinstance(value, bytes))
    return [value.decode("utf-8", "replace") for value in islice(found, _MAX_TEXTS)]


def text(message: bytes, number: int) -> str:
    """The last string of a field, empty where there is none.

    Raises:
        ReadError: these bytes are no message.
    """
    return (texts(message, number) or [""])[-1]


def written(number: int, value: int | bytes | str) -> bytes:
    """A field as it is written: an integer as a varint, all else with its length before it."""
    if isinstance(value, int):
        return _as_varint(number << 3 | VARINT) + _as_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _as_varint(number << 3 | BYTES) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def without(message: bytes, numbers: frozenset[int], entries: frozenset[bytes] = frozenset()) -> bytes:
    """The message without the fields of these numbers, and without those that are written like one of ``entries``; all
    other bytes of it as they are.

    Raises:
        ReadError: these bytes are no message.
    """
    kept = bytearray()
    start = 0
    for number, end in _extents(message):
        if number not in numbers and (not entries or message[start:end] not in entries):
            kept += message[start:end]
        start = end
    return bytes(kept)


def _extents(message: bytes) -> Iterator[tuple[int, int]]:
    """Number and end of each field."""
    place = 0
    for number, value in fields(message):
        tag, place = varint(message, place)
        if tag & 7 == VARINT:
            _, place = varint(message, place)
        else:
            if tag & 7 == BYTES:
                _, place = varint(message, place)
            assert isinstance(value, bytes)  # noqa: S101 - as fields gives them
            place += len(value)
        yield number, place
