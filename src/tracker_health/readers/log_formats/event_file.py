"""TensorBoard's event files: records of protocol buffers, read by the numbers of their fields."""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from io import BufferedReader
from pathlib import Path

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_LOG_BYTES, MAX_NAME_CHARACTERS
from tracker_health.readers.files.protobuf import double, fields, signed, text, varint
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.readers.log_formats.base import Log
from tracker_health.roles import RolePlan
from tracker_health.text import count, size_of

_MAX_POINTS = 3_000_000
# A record of scalars has hundreds of bytes. Larger ones hold pictures, graphs and histograms.
_MAX_RECORD = 2**20
_CHECKED = 2**12
_MOST_DAMAGED = 0.1  # of the records: more is a problem, and no note
# Time, step, and then a graph or what else TensorFlow writes once, in records of any size: nothing is lost with it.
_HEAD = 64
_IS_NO_SUMMARY = re.compile(rb"\x09.{8}(?:\x10[\x80-\xff]{0,9}[\x00-\x7f])?[\x22\x32\x3a\x42\x4a\x52]", re.DOTALL)
_MARK = b"brain.Event:"
_SCALARS = ("scalars", "")
_CUT_OFF = "its last record is cut off; those before it were read"
# The fields of tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
_WALL_TIME, _STEP, _SUMMARY, _VALUE = 1, 2, 5, 1
_TAG, _SIMPLE_VALUE, _TENSOR, _METADATA = 1, 2, 8, 9
_PLUGIN_DATA, _PLUGIN_NAME = 1, 1
_DTYPE, _SHAPE, _CONTENT, _DIMENSION, _SIZE = 1, 2, 4, 2, 1
_VALUES = {5: "<f", 6: "<d"}
_WHOLE_VALUES = (7, 10)
_OF_TYPES = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}


class EventFile:
    """The scalars of one event file, with the times at which they were written."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        return _MARK in head[:64]

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        columns: dict[str, _Column] = {}
        records = _Records(path)
        points = 0
        for record in records:
            taken = _take(columns, record)
            if taken is None:
                records.damaged += 1
                continue
            points += taken
            if points > _MAX_POINTS or len(columns) > MAX_FIELDS:
                raise ReadError(f"it has more than the {_MAX_POINTS} points or {MAX_FIELDS} names that are read")
        read = roles.needed(columns)
        series = tuple(column.series(name, read[name], source) for name, column in columns.items() if name in read)
        return Log(series=series, names=tuple(columns), problem=records.problem, note=records.note)


@dataclass(slots=True)
class _Column:
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))

    def series(self, name: str, role: str, source: str) -> Series:
        return Series(
            name=name,
            role=role,
            source=source,
            step_unit=StepUnit.UNKNOWN,
            steps=np.array(self.steps, dtype=np.int64),
            values=np.array(self.values, dtype=np.float64),
            times=np.array(self.times, dtype=np.float64),
        )


class _Records:
    """The records of a file that may hold scalars. What is passed over is counted meanwhile; ``damaged``: also by
    whoever finds that one is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = self.damaged = self._large = 0
        self._broke_off = ""

    def __iter__(self) -> Iterator[bytes]:
        with BufferedReader(open_regular(self._path)) as file:
            place = 0
            while head := file.read(12):
                if len(head) < 12:
                    self._broke_off = _CUT_OFF
                    return
                length = int.from_bytes(head[:8], "little")
                if checksum(head[:8]) != struct.unpack("<I", head[8:])[0]:
                    self._broke_off = f"it is damaged from byte {place} on; the records before it were read"
                    return
                place += 16 + length
                if place > MAX_LOG_BYTES:
                    raise ReadError(f"it is larger than the {MAX_LOG_BYTES} bytes that are read")
                is_large = length > _MAX_RECORD
                content = file.read(_HEAD if is_large else length + 4)
                if is_large:
                    self._large += _IS_NO_SUMMARY.match(content) is None
                    file.seek(place)
                if place > os.fstat(file.fileno()).st_size if is_large else len(content) < length + 4:
                    self._broke_off = _CUT_OFF
                    return
                self._count += 1
                if is_large:
                    continue
                if length > _CHECKED or checksum(content[:-4]) == struct.unpack("<I", content[-4:])[0]:
                    yield content[:-4]
                else:
                    self.damaged += 1

    @property
    def _damage(self) -> str:
        return f"{self.damaged} of {count(self._count, 'record')} are damaged" if self.damaged else ""

    @property
    def problem(self) -> str:
        """What of the file could not be read."""
        share = self._damage if self.damaged > _MOST_DAMAGED * self._count else ""
        return "; ".join(filter(None, (share, self._broke_off)))

    @property
    def note(self) -> str:
        """What a reader of the verdict should know besides."""
        share = self._damage if self.damaged <= _MOST_DAMAGED * self._count else ""
        large = (
            f"{self._large} of {count(self._count, 'record')} are larger than the {size_of(_MAX_RECORD)} that are read"
        )
        return "; ".join(filter(None, (share, large if self._large else "")))


def checksum(content: bytes) -> int:
    """The masked CRC-32C that TFRecord writes behind a length and behind a record."""
    table, value = _table(), 0xFFFF_FFFF
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFF_FFFF
    return ((value >> 15 | value << 17) + 0xA282_EAD8) & 0xFFFF_FFFF


@cache
def _table() -> tuple[int, ...]:
    """The remainders of all bytes by Castagnoli's polynomial, its bits in reverse order."""
    remainders = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)
        remainders.append(value)
    return tuple(remainders)


def _take(columns: dict[str, _Column], record: bytes) -> int | None:
    """Add the scalars of a record; how many there were, None where it is no message."""
    step, time, taken, summaries = 0, 0.0, 0, []
    try:
        for number, value in fields(record):
            if number == _STEP and isinstance(value, int):
                step = signed(value)
            elif number == _WALL_TIME and isinstance(value, bytes) and len(value) == 8:
                time = double(value)
            elif number == _SUMMARY and isinstance(value, bytes):
                summaries.append(value)
        for summary in summaries:
            for number, value in fields(summary):
                scalar = _scalar(value) if number == _VALUE and isinstance(value, bytes) else None
                if scalar is not None and len(scalar[0]) <= MAX_NAME_CHARACTERS:
                    column = columns.setdefault(scalar[0], _Column())
                    column.steps.append(step)
                    column.values.append(scalar[1])
                    column.times.append(time)
                    taken += 1
    except (ReadError, struct.error):
        return None
    return taken


def _scalar(message: bytes) -> tuple[str, float] | None:
    """Tag and number of a summary's value, in the old form or in that of a tensor with one element."""
    tag, number, tensor, plugin = "", None, b"", ""
    for key, value in fields(message):
        if not isinstance(value, bytes):
            continue
        if key == _TAG:
            tag = value.decode("utf-8", "replace")
        elif key == _SIMPLE_VALUE:
            number = float(struct.unpack("<f", value)[0])
        elif key == _TENSOR:
            tensor = value
        elif key == _METADATA:
            plugin = next((text(data, _PLUGIN_NAME) for at, data in _messages(value) if at == _PLUGIN_DATA), "")
    if number is None and tensor and plugin in _SCALARS:
        number = _of_tensor(tensor)
    return None if number is None else (tag, number)


def _of_tensor(tensor: bytes) -> float | None:
    """The number of a tensor with one element; None for any other."""
    form, content, numbers = None, b"", []
    for key, value in fields(tensor):
        if key == _DTYPE and isinstance(value, int):
            form = _OF_TYPES.get(value)
        elif key == _SHAPE and isinstance(value, bytes):
            dimensions = [one for at, one in _messages(value) if at == _DIMENSION]
            if any(size != 1 for one in dimensions for at, size in fields(one) if at == _SIZE):
                return None
        elif key == _CONTENT and isinstance(value, bytes):
            content = value
        elif key in _VALUES and isinstance(value, bytes):
            numbers += [number for (number,) in struct.iter_unpack(_VALUES[key], value)]
        elif key in _WHOLE_VALUES:
            numbers += [signed(value)] if isinstance(value, int) else _packed(value)
    if numbers:
        return float(numbers[0]) if len(numbers) == 1 else None
    return float(struct.unpack(form, content)[0]) if form and len(content) == struct.calcsize(form) else None


def _packed(content: bytes) -> list[int]:
    """The whole numbers of a packed field, two at most: more are no scalar."""
    found: list[int] = []
    place = 0
    while place < len(content) and len(found) < 2:
        value, place = varint(content, place)
        found.append(signed(value))
    return found


def _messages(message: bytes) -> Iterator[tuple[int, bytes]]:
    return ((number, value) for number, value in fields(message) if isinstance(value, bytes))
