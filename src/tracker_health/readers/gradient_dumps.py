"""Gradients that ``GradientDumps`` or OLMo-core's gradient dumper wrote: a folder a step, of corners or whole."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tracker_health.errors import ReadError
from tracker_health.evidence import TensorHeader
from tracker_health.readers.files.file_pool import FilePool
from tracker_health.readers.files.folder import Folder, LocalFolder
from tracker_health.readers.files.random_access import Stretch
from tracker_health.readers.optimizers.distributed_index import Item, read_distributed_index
from tracker_health.readers.optimizers.distributed_index import ShardedTensor as Located
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.tensors.weights import Budget, StoredTensor, described
from tracker_health.readers.torch_files.chunked import Chunk, ChunkedTensor
from tracker_health.readers.torch_files.torch_archive import open_torch_archive

_STEP = re.compile(r"step(\d{1,18})")
_CORNER = re.compile(r"(?P<name>.+?)(?:_first\d{1,18})?\.safetensors")
_MOST_FILES = 100_000
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
METADATA = ".metadata"


@dataclass(frozen=True, kw_only=True)
class GradientDump:
    """The gradients of one step, with their statistics. ``whole``: all of their values, else a corner of each."""

    step: int
    source: str
    whole: bool
    tensors: tuple[TensorHeader, ...]


def read_gradient_dumps(folder: Path) -> list[GradientDump]:
    """All steps in a folder, in order; ``folder`` is the one that holds them, or the run's own above ``gradients`` or
    OLMo-core's ``gradient_dumper``. Of more than four gigabytes the rest has no statistics, or those of a sample.

    Raises:
        ReadError: a file is cut short, is none, or holds something else, or there are too many.
        OSError: a file cannot be read.
    """
    inner = (folder / name for name in ("gradients", "gradient_dumper") if (folder / name).is_dir())
    root, budget = next(inner, folder), Budget()
    steps = {int(found[1]): one for one in root.iterdir() if one.is_dir() and (found := _STEP.fullmatch(one.name))}
    dumps = []
    for step, one in sorted(steps.items()):
        corners, whole = one / "sampled_gradients", one / "full_gradients"
        if corners.is_dir():
            tensors = _corners(corners, budget)
            dumps.append(GradientDump(step=step, source=str(corners), whole=False, tensors=tensors))
        if whole.is_dir():
            tensors = read_whole(LocalFolder(whole), budget)
            dumps.append(GradientDump(step=step, source=str(whole), whole=True, tensors=tensors))
    return dumps


def corner_name(file: str) -> str | None:
    """The parameter whose corner is in a file of this name; None for another file."""
    found = _CORNER.fullmatch(file)
    return unquote(found["name"]) if found else None


def _corners(folder: Path, budget: Budget) -> tuple[TensorHeader, ...]:
    files = sorted(one for one in folder.iterdir() if _CORNER.fullmatch(one.name))
    if len(files) > _MOST_FILES:
        raise ReadError(f"{folder} has more than the {_MOST_FILES} files that are read")
    return tuple(read_corner(file, file.name, budget) for file in files)


def read_corner(path: Path, source: str, budget: Budget) -> TensorHeader:
    """The one gradient of a file, under the name of its parameter. ``source``: the file's own name, or its path.

    Raises:
        ReadError: it is cut short, is no such file, or holds something else.
        OSError: it cannot be read.
    """
    with open_safetensors(path) as tensors:
        if [one.name for one in tensors] != ["gradient"]:
            raise ReadError(f"{source} holds other tensors than one gradient")
        (header,) = described(tensors, budget)
    return replace(header, name=corner_name(Path(source).name) or source)


def read_whole(folder: Folder, budget: Budget) -> tuple[TensorHeader, ...]:
    """The gradients of a distributed checkpoint.

    Raises:
        ReadError: a file is missing, cut short, or not what it should be.
        OSError: a file cannot be read.
    """
    lead = folder.open(METADATA)
    try:
        index = read_distributed_index(lead)
    finally:
        lead.close()
    with FilePool(folder) as files:
        return described((_stored(name, one, files) for name, one in index.tensors.items()), budget)


def _stored(name: str, tensor: Located, files: FilePool) -> StoredTensor:
    chunks = [Chunk(offsets, sizes, partial(_root, files, item)) for offsets, sizes, item in tensor.pieces]
    values = ChunkedTensor(tensor.shape, chunks) if tensor.dtype in _DTYPES else None
    return StoredTensor(name, tensor.shape, _DTYPES.get(tensor.dtype, tensor.dtype.upper()), values)


def _root(files: FilePool, item: Item) -> Any:
    return open_torch_archive(Stretch(files.get(item.file), item.offset, item.length)).root
