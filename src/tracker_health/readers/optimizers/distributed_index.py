"""The ``.metadata`` of a torch distributed checkpoint: which items it holds, and where each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import RandomAccess, read_bytes
from tracker_health.readers.torch_files.safe_pickle import MAX_BYTES, Global, PickledObject, SafePickle
from tracker_health.readers.torch_files.torch_pickle import BUILDERS, sizes
from tracker_health.text import printable

_METADATA = "torch.distributed.checkpoint.metadata"
_RECORDS = frozenset(
    {*(f"{_METADATA}.{name}" for name in (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")),
     # Where torch before 2.3 has the same.
     "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
     "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
     "torch.distributed.checkpoint.filesystem._StorageInfo",
     "torch.distributed.checkpoint.filesystem._StoragePrefix",
     "torch.serialization._get_layout", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath"}
)  # fmt: skip
_MOST_NAME = 1000

Offsets = tuple[int, ...]


class Item(NamedTuple):
    """Where an item is: a file of the same folder, and the bytes in it."""

    file: str
    offset: int
    length: int


class ShardedTensor(NamedTuple):
    """A tensor: its dtype as torch calls it (``float32``), its shape, and offsets, sizes and place of its pieces."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[tuple[Offsets, tuple[int, ...], Item], ...]


class DistributedIndex(NamedTuple):
    """What a checkpoint holds, by the names of its items. ``stubs``: names in the pickle that were not looked up."""

    tensors: dict[str, ShardedTensor]
    others: dict[str, Item]
    stubs: tuple[str, ...]


def read_distributed_index(source: RandomAccess) -> DistributedIndex:
    """The items of a checkpoint, of which each has a stretch of a file to itself.

    Raises:
        ReadError: it is no such file, or it contradicts itself.
        OSError: it cannot be read.
    """
    if source.size > MAX_BYTES:
        raise ReadError(f"it is {source.size} bytes long, more than the {MAX_BYTES} that are read")
    machine = SafePickle(read_bytes(source, 0, source.size), BUILDERS, records=_RECORDS)
    root = machine.load()
    if not isinstance(root, PickledObject) or root.path != f"{_METADATA}.Metadata":
        raise ReadError("it does not describe a torch distributed checkpoint")
    described, storage = root.get("state_dict_metadata"), root.get("storage_data")
    if not isinstance(described, dict) or not isinstance(storage, dict):
        raise ReadError("it does not say which items there are, or where they are")
    places = _places(storage)
    tensors: dict[str, ShardedTensor] = {}
    others: dict[str, Item] = {}
    left = len(places)
    for name, entry in described.items():
        if not isinstance(name, str) or len(name) > _MOST_NAME or not isinstance(entry, PickledObject):
            raise ReadError("it describes an item in an unknown way")
        if entry.path.endswith(".TensorStorageMetadata"):
            tensors[name] = _tensor(name, entry, places, left)
            left -= len(tensors[name].pieces)
        elif (name, None) in places:
            others[name] = places[name, None]
    return DistributedIndex(tensors, others, machine.stubs)


def _tensor(
    name: str, entry: PickledObject, places: Mapping[tuple[str, Offsets | None], Item], most: int
) -> ShardedTensor:
    properties, chunks = entry.get("properties"), entry.get("chunks")
    dtype = (
        properties.state[0] if isinstance(properties, PickledObject) and isinstance(properties.state, tuple) else None
    )
    if not isinstance(dtype, Global) or not isinstance(chunks, list):
        raise ReadError(f"it describes the tensor {printable(name, 80)} in an unknown way")
    # One list of a thousand pieces can be that of a million tensors; but each piece has a place of its own.
    if len(chunks) > most:
        raise ReadError(f"it describes more pieces than it has places for, at the tensor {printable(name, 80)}")
    pieces = []
    for chunk in chunks:
        if not isinstance(chunk, PickledObject):
            raise ReadError(f"it describes a piece of the tensor {printable(name, 80)} in an unknown way")
        offsets, extent = sizes(chunk.get("offsets")), sizes(chunk.get("sizes"))
        if min((*offsets, *extent), default=0) < 0:
            raise ReadError(f"a piece of the tensor {printable(name, 80)} has a negative offset or size")
        item = places.get((name, offsets))
        if item is None:
            raise ReadError(f"it does not say where a piece of the tensor {printable(name, 80)} is")
        pieces.append((offsets, extent, item))
    return ShardedTensor(dtype.name, sizes(entry.get("size")), tuple(pieces))


def _places(storage: Mapping[Any, Any]) -> dict[tuple[str, Offsets | None], Item]:
    """Where each item is, by its name and, for a tensor's pieces, where in the tensor it begins."""
    places: dict[tuple[str, Offsets | None], Item] = {}
    for index, info in storage.items():
        name = index.get("fqn") if isinstance(index, PickledObject) else None
        if not isinstance(name, str) or len(name) > _MOST_NAME or not isinstance(info, PickledObject):
            raise ReadError("it says in an unknown way where an item is")
        offsets = index.get("offset")
        places[name, None if offsets is None else sizes(offsets)] = _item(name, info)
    _check_overlaps(places)
    return places


def _item(name: str, info: PickledObject) -> Item:
    file, offset, length = info.get("relative_path"), info.get("offset"), info.get("length")
    shown = printable(name, 80)
    if not isinstance(file, str) or not all(type(one) is int and 0 <= one < 2**60 for one in (offset, length)):
        raise ReadError(f"it says in an unknown way where {shown} is")
    if not file or "/" in file or "\\" in file or "\0" in file or file in {".", ".."}:
        raise ReadError(f"it says that {shown} is outside of the folder: {printable(file, 80)}")
    if info.get("transform_descriptors"):
        raise ReadError(f"its item {shown} is compressed or encrypted, which is not read")
    return Item(file, offset, length)


def _check_overlaps(places: Mapping[tuple[str, Offsets | None], Item]) -> None:
    """Items that share bytes would be read again and again: ten thousand of them can claim the same gigabyte."""
    file, end = "", 0
    for item in sorted(places.values()):
        if item.file == file and item.offset < end and item.length:
            raise ReadError(f"two of its items overlap in {printable(file, 80)}, at byte {item.offset}")
        end = item.offset + item.length if item.file != file else max(end, item.offset + item.length)
        file = item.file
