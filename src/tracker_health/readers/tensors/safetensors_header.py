"""A safetensors file: names, shapes and dtypes from its header, and the values of its tensors where they are."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, TensorHeader
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.random_access import LocalFile, RandomAccess, read_bytes
from tracker_health.readers.tensors.stored_values import convert, item_size
from tracker_health.readers.tensors.tensor_values import BLOCK_VALUES, Room, sum_of_squares
from tracker_health.readers.tensors.weights import DTYPES, Sampled, StoredTensor
from tracker_health.text import printable

MAX_HEADER_BYTES = 16 * 2**20

_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64,
    "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip

_SAMPLE_BLOCKS = 16


@contextmanager
def open_safetensors(source: Path | RandomAccess) -> Iterator[list[StoredTensor]]:
    """The tensors of a safetensors file, in header order, while it is open.

    Raises:
        ReadError: the file is cut short, is none, or its header contradicts itself.
        OSError: the file cannot be read.
    """
    file = LocalFile(source) if isinstance(source, Path) else source
    try:
        yield _tensors(file)
    finally:
        file.close()


def _tensors(file: RandomAccess) -> list[StoredTensor]:
    if file.size < 8:
        raise ReadError("it is too short for a safetensors file")
    length = int.from_bytes(read_bytes(file, 0, 8), "little")
    if length > min(MAX_HEADER_BYTES, file.size - 8):
        raise ReadError(f"it announces a header of {length} bytes; it is truncated, or no safetensors file")
    header = _parse(read_bytes(file, 8, length))
    header.pop("__metadata__", None)
    found = [_checked(name, entry, file.size - 8 - length) for name, entry in header.items()]
    _check_overlaps([extent for _, extent in found])
    return [_stored(file, tensor, 8 + length + start) for tensor, (start, _) in found]


def _stored(file: RandomAccess, tensor: TensorHeader, start: int) -> StoredTensor:
    dtype = DTYPES.get(tensor.dtype)
    values = None if dtype is None else SafetensorsValues(file, tensor.shape, dtype, start)
    return StoredTensor(tensor.name, tensor.shape, tensor.dtype, values)


@dataclass(frozen=True, eq=False, slots=True)
class SafetensorsValues(Sampled):
    """The values of a tensor: row after row from the byte ``start`` of its file on."""

    file: RandomAccess
    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def layout(self) -> Hashable:
        strides = tuple(prod(self.shape[place + 1 :]) for place in range(len(self.shape)))
        return (self.shape, strides)  # as torch has it: weights of one run may be in files of both kinds

    @property
    def row(self) -> int | None:
        return self.numel // self.shape[0] if len(self.shape) >= 2 and min(self.shape) > 0 else None

    def blocks(self, room: Room) -> Iterator[FloatArray]:
        for place in range(0, self.numel, BLOCK_VALUES):
            yield self._block(place, min(BLOCK_VALUES, self.numel - place), room)

    def sampled_rms(self) -> float:
        room, count = Room(), min(BLOCK_VALUES, self.numel)
        blocks = min(_SAMPLE_BLOCKS, -(-self.numel // count))
        squares = 0.0
        with np.errstate(all="ignore"):
            for place in np.linspace(0, self.numel - count, blocks).astype(np.int64):
                values = self._block(int(place), count, room)
                squares += sum_of_squares(values)
        return float(np.sqrt(squares / (blocks * count)))

    def _block(self, place: int, count: int, room: Room) -> FloatArray:
        width = item_size(self.dtype)
        view, values = memoryview(room.raw)[: count * width], room.values[:count]
        self.file.read_into(self.start + place * width, view)
        convert(view, self.dtype, "<", values)
        return values


def _parse(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ReadError("its header is not JSON of a sane size; it is no safetensors file") from error
    if not isinstance(header, dict):
        raise ReadError("its header is not a JSON object; it is no safetensors file")
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ReadError("its header has the same key twice")
    return found


def _checked(name: str, entry: Any, available: int) -> tuple[TensorHeader, tuple[int, int]]:
    shown = printable(name, 80)
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        bits = _BITS[dtype]
        whole = all(type(one) is int and one >= 0 for one in (*shape, start, end)) and len(shape) <= 64
    except (KeyError, TypeError, ValueError) as error:
        raise ReadError(f"its header describes {shown} in an unknown way") from error
    if not whole or not start <= end <= available:
        raise ReadError(f"its tensor {shown} reaches beyond the end of the file")
    if prod(shape) * bits != (end - start) * 8:
        raise ReadError(f"its tensor {shown} has {end - start} bytes, which its shape and dtype contradict")
    return TensorHeader(name=name, shape=tuple(shape), dtype=dtype), (start, end)


def _check_overlaps(extents: list[tuple[int, int]]) -> None:
    end = 0
    for start, stop in sorted(extents):
        if start < end:
            raise ReadError("two of its tensors overlap")
        end = stop
