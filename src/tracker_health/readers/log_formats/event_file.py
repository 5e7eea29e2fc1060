"""TensorBoard's event files: records of protocol buffers. The messages are TensorBoard's own, without TensorFlow."""

from __future__ import annotations

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

_MAX_POINTS = 3_000_000
# A record of scalars has hundreds of bytes. Larger ones hold pictures, graphs and histograms.
_MAX_RECORD = 2**20
_CHECKED = 2**12
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
        problem, points = "", 0
        for record in _records(path, checksum):
            if isinstance(record, str):
                problem = record
                break
            points += _take(columns, record, event_class)
            if points > _MAX_POINTS or len(columns) > MAX_FIELDS:
                raise ReadError(f"it has more than the {_MAX_POINTS} points or {MAX_FIELDS} names that are read")
        names = [prefix + name for name in columns]
        roles = select_names(names)
        series = tuple(
            column.series(prefix + name, roles[prefix + name], source)
            for name, column in columns.items()
            if prefix + name in roles
        )
        return Log(series=series, names=tuple(names), problem=problem)


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


def _records(path: Path, checksum: Any) -> Iterator[bytes | str]:
    """The records that may hold scalars; where the file breaks off, the reason instead of one."""
    with BufferedReader(open_regular(path)) as file:
        place = 0
        while head := file.read(12):
            if len(head) < 12:
                yield "its last record is cut off; those before it were read"
                return
            length = int.from_bytes(head[:8], "little")
            if checksum(head[:8]) != struct.unpack("<I", head[8:])[0]:
                yield f"it is damaged from byte {place} on; the records before it were read"
                return
            place += 16 + length
            if place > MAX_LOG_BYTES:
                raise ReadError(f"it is larger than the {MAX_LOG_BYTES} bytes that are read")
            if length > _MAX_RECORD:
                file.seek(length + 4, 1)
                continue
            content = file.read(length + 4)
            if len(content) < length + 4:
                yield "its last record is cut off; those before it were read"
                return
            if length > _CHECKED or checksum(content[:-4]) == struct.unpack("<I", content[-4:])[0]:
                yield content[:-4]


def _take(columns: dict[str, _Column], record: bytes, event_class: Any) -> int:
    """Add the scalars of a record; how many there were."""
    try:
        event = event_class.FromString(record)
    except Exception:  # noqa: BLE001  the library's DecodeError; a record that is none says nothing
        return 0
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
