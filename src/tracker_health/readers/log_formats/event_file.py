"""TensorBoard's event files: records of protocol buffers. The messages are TensorBoard's own, without TensorFlow."""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError, optional_packages
from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_LOG_BYTES, MAX_NAME_CHARACTERS
from tracker_health.readers.log_formats.base import Log, SelectNames
from tracker_health.readers.regular_file import open_regular
from tracker_health.text import count, size_of

_MAX_POINTS = 3_000_000
# A record of scalars has hundreds of bytes. Larger ones hold pictures, graphs and histograms.
_MAX_RECORD = 2**20
_CHECKED = 2**12
_MOST_DAMAGED = 0.1  # of the records: more is a problem, and no note
# Time, step, and then a graph or what else TensorFlow writes once, in records of any size: nothing is lost with it.
_HEAD = 64
_IS_NO_SUMMARY = re.compile(rb"\x09.{8}(?:\x10[\x80-\xff]{0,9}[\x00-\x7f])?[\x22\x32\x3a\x42\x4a\x52]", re.DOTALL)
_CUT_OFF = "its last record is cut off; those before it were read"
_MARK = b"brain.Event:"
_SCALARS = ("scalars", "")


class EventFile:
    """The scalars of one event file, with the times at which they were written."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        return _MARK in head[:64]

    def read(self, path: Path, source: str, select_names: SelectNames, prefix: str = "") -> Log:
        event_class, checksum = _library()
        columns: dict[str, _Column] = {}
        records = _Records(path, checksum)
        points = 0
        for record in records:
            taken = _take(columns, record, event_class)
            if taken is None:
                records.damaged += 1
                continue
            points += taken
            if points > _MAX_POINTS or len(columns) > MAX_FIELDS:
                raise ReadError(f"it has more than the {_MAX_POINTS} points or {MAX_FIELDS} names that are read")
        names = [prefix + name for name in columns]
        roles = select_names(names)
        series = tuple(
            column.series(prefix + name, roles[prefix + name], source)
            for name, column in columns.items()
            if prefix + name in roles
        )
        return Log(series=series, names=tuple(names), problem=records.problem, note=records.note)


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


def _library() -> tuple[Any, Any]:
    with optional_packages("tensorboard"):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    return Event, masked_crc32c


class _Records:
    """The records of a file that may hold scalars. What is passed over is counted meanwhile; ``damaged``: also by
    whoever finds that one is none.
    """

    def __init__(self, path: Path, checksum: Any) -> None:
        self._path = path
        self._checksum = checksum
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
                if self._checksum(head[:8]) != struct.unpack("<I", head[8:])[0]:
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
                if length > _CHECKED or self._checksum(content[:-4]) == struct.unpack("<I", content[-4:])[0]:
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


def _take(columns: dict[str, _Column], record: bytes, event_class: Any) -> int | None:
    """Add the scalars of a record; how many there were, None where it is no record."""
    try:
        event = event_class.FromString(record)
    except Exception:  # noqa: BLE001  the library's DecodeError
        return None
    taken = 0
    for value in event.summary.value if event.HasField("summary") else ():
        number = _scalar(value)
        if number is None or len(value.tag) > MAX_NAME_CHARACTERS:
            continue
        column = columns.setdefault(value.tag, _Column())
        column.steps.append(event.step)
        column.values.append(number)
        column.times.append(event.wall_time)
        taken += 1
    return taken


def _scalar(value: Any) -> float | None:
    """The number of a summary's value, in the old form or in that of a tensor with one element."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.metadata.plugin_data.plugin_name not in _SCALARS:
        return None
    tensor = value.tensor
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    for numbers in (tensor.float_val, tensor.double_val, tensor.int64_val, tensor.int_val):
        if len(numbers) == 1:
            return float(numbers[0])
    form = _FORMS.get(tensor.dtype)
    if form is None or len(tensor.tensor_content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, tensor.tensor_content)[0])


_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
