"""The format of ``torch.save`` before torch 1.6, and of ``_use_new_zipfile_serialization=False`` since.

Five pickles come first: a magic number, a version, facts about the machine, the saved structure, and the storages'
keys. Then come the storages in the order of their keys, each behind its number of values. No pickle says how long it
is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import RandomAccess, read_bytes
from tracker_health.readers.tensors.stored_values import item_size
from tracker_health.readers.torch_files.safe_pickle import MAX_BYTES, SafePickle
from tracker_health.readers.torch_files.torch_pickle import BUILDERS, StorageRef, TensorRef, storage_of
from tracker_health.readers.torch_files.torch_storages import TorchArchive
from tracker_health.text import printable, short_name

_MAGIC = 0x1950A86A20F9469CFC6C
_BEGINNING = b"\x80\x02\x8a\x0a" + _MAGIC.to_bytes(10, "little") + b"."
_VERSION = 1001
# Of storages whose values are not read, but that are before others.
_OTHER_WIDTHS = {
    "ComplexFloatStorage": 8, "ComplexDoubleStorage": 16, "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4,
    "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
}  # fmt: skip
_MOST_STORAGES = 200_000
_FIRST_TRY = 1 << 20


def is_legacy(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is in this format."""
    return beginning.startswith(_BEGINNING)


class LegacyTorchArchive(TorchArchive):
    """An open file of this format.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """

    def __init__(self, source: RandomAccess) -> None:
        super().__init__(source)
        self._storages: dict[str, StorageRef] = {}
        try:
            end = self._load(min(source.size, _FIRST_TRY))
        except ReadError:
            if source.size <= _FIRST_TRY:
                raise
            end = self._load(min(source.size, MAX_BYTES))
        self._extents = self._walk(end)

    @property
    def order(self) -> str:
        return self._order

    def storage_extent(self, key: str) -> tuple[int, int]:
        extent = self._extents.get(key)
        if extent is None:
            raise ReadError(f"its storage {printable(key, 20)} is missing")
        # Now and not for all of them at once: each would be a request, where the file is elsewhere.
        counted = int.from_bytes(read_bytes(self.source, extent[0] - 8, 8), "little")
        if counted != self._storages[key].count:
            raise ReadError(f"its storage {printable(key, 20)} has another size than its pickle says")
        return extent

    def expect(self, tensors: Iterable[TensorRef]) -> None:
        found = {key: self._extents[key] for one in tensors if (key := one.storage.key) in self._extents}
        self.source.expect([(start - 8, length + 8) for start, length in found.values()])

    def _load(self, size: int) -> int:
        """Interpret the pickles in the first ``size`` bytes; where the last of them ends."""
        data = read_bytes(self.source, 0, size)
        self._storages.clear()
        _, at = _next(data, 0)
        version, at = _next(data, at)
        if version != _VERSION:
            raise ReadError(f"its format has version {printable(version, 20)}; known is {_VERSION}")
        machine, at = _next(data, at)
        self._order = ">" if isinstance(machine, dict) and machine.get("little_endian") is False else "<"
        pickle = SafePickle(data, BUILDERS, self._storage, at=at)
        self.root, self.stubs = pickle.load(), pickle.stubs
        self._keys, at = _next(data, pickle.end)
        return at

    def _storage(self, identity: Any) -> StorageRef:
        storage = storage_of(self, identity)
        if len(identity) > 5 and identity[5] is not None:
            raise ReadError("its storages are views of each other, which is not read")
        return self._storages.setdefault(storage.key, storage)

    def _walk(self, at: int) -> dict[str, tuple[int, int]]:
        """Where each storage is."""
        keys = self._keys
        if not isinstance(keys, list) or len(keys) > _MOST_STORAGES or not all(isinstance(one, str) for one in keys):
            raise ReadError("it does not list its storages as torch.save does")
        extents: dict[str, tuple[int, int]] = {}
        for key in keys:
            storage = self._storages.get(key)
            if storage is None or key in extents:
                raise ReadError(f"it lists a storage {printable(key, 20)} that nothing refers to, or twice")
            length = storage.count * _width(storage)
            if at + 8 + length > self.source.size:
                raise ReadError(f"its storage {printable(key, 20)} reaches beyond the end of the file: truncated")
            extents[key] = (at + 8, length)
            at += 8 + length
        return extents


def _width(storage: StorageRef) -> int:
    """Bytes of one value of a storage."""
    if storage.dtype is None:
        return 1
    if width := _OTHER_WIDTHS.get(storage.dtype.removeprefix("unknown ")):
        return width
    if storage.dtype.startswith("unknown"):
        raise ReadError(f"it holds a storage of an {short_name(storage.dtype)}, whose size is not known")
    return item_size(storage.dtype)


def _next(data: bytes, at: int) -> tuple[Any, int]:
    """A pickle of plain values that begins at a place, and where it ends."""
    pickle = SafePickle(data, at=at)
    return pickle.load(), pickle.end
