"""A safetensors file: names, shapes and dtypes from its header, and how large the values of each tensor are."""

from __future__ import annotations

from dataclasses import replace
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import TensorHeader, Weights
from tracker_health.readers.json_lines import parse_json
from tracker_health.readers.regular_file import open_regular
from tracker_health.readers.stored_values import BFLOAT16, convert, item_size
from tracker_health.text import printable

MAX_HEADER_BYTES = 16 * 2**20

_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64,
    "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip

_FLOATS = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": BFLOAT16}
_BLOCK_VALUES = 1 << 16
_MOST_BLOCKS = 16


def read_safetensors_header(path: Path, source: str) -> Weights:
    """The tensors of a safetensors file, in header order, and how large their values are.

    Raises:
        ReadError: the file is cut short, is none, or its header contradicts itself.
        OSError: the file cannot be read.
    """
    with BufferedReader(open_regular(path)) as file:
        prefix = file.read(8)
        size = file.seek(0, 2)
        if len(prefix) < 8:
            raise ReadError("it is too short for a safetensors file")
        length = int.from_bytes(prefix, "little")
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise ReadError(f"it announces a header of {length} bytes; it is truncated, or no safetensors file")
        file.seek(8)
        header = _parse(file.read(length))
        header.pop("__metadata__", None)
        found = [_checked(name, entry, size - 8 - length) for name, entry in header.items()]
        _check_overlaps([extent for _, extent in found])
        tensors = tuple(replace(tensor, rms=_rms(file, tensor, 8 + length + start)) for tensor, (start, _) in found)
    return Weights(source=source, tensors=tensors)


def _rms(file: BufferedReader[Any], tensor: TensorHeader, start: int) -> float | None:
    """The root mean square of a tensor: of at most a million of its values, in blocks spread over it.

    Weights are as large as the disk; a million values tell their size to a tenth of a percent.
    """
    dtype = _FLOATS.get(tensor.dtype)
    if dtype is None or not tensor.numel:
        return None
    width, count = item_size(dtype), min(_BLOCK_VALUES, tensor.numel)
    blocks = min(_MOST_BLOCKS, -(-tensor.numel // count))
    values, squares = np.empty(count), 0.0
    for place in np.linspace(0, tensor.numel - count, blocks).astype(np.int64):
        file.seek(start + int(place) * width)
        raw = file.read(count * width)
        if len(raw) != count * width:
            raise ReadError("it has become shorter while it was read")
        convert(memoryview(raw), dtype, "<", values)
        with np.errstate(all="ignore"):
            squares += float(values.dot(values))
    return float(np.sqrt(squares / (blocks * count)))


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
