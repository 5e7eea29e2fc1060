"""The zip format of ``torch.save``: one pickle, and an entry for each storage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from tracker_health.errors import ReadError
from tracker_health.readers.files.random_access import RandomAccess, read_bytes
from tracker_health.readers.files.zip_directory import ZipEntry, entry_extent, zip_directory
from tracker_health.readers.torch_files.safe_pickle import MAX_BYTES, SafePickle
from tracker_health.readers.torch_files.torch_pickle import BUILDERS, RECORDS, TensorRef, storage_of
from tracker_health.readers.torch_files.torch_storages import TorchArchive
from tracker_health.text import printable

_MOST_BEFORE = 4096  # bytes of an entry's header, with the padding that torch puts into it


class ZippedTensors(TorchArchive):
    """An open zip archive whose entries are storages. ``prefix``: of the names of all of them; ``folder``: below it, of
    the entries that are storages.
    """

    folder = "data/"

    def __init__(self, source: RandomAccess, entries: Mapping[str, ZipEntry], prefix: str) -> None:
        super().__init__(source)
        self._entries = entries
        self._extents: dict[str, tuple[int, int]] = {}
        self._prefix = prefix
        self._order = ">" if self._has("byteorder") and self._bytes("byteorder", 16) == b"big" else "<"

    @property
    def order(self) -> str:
        return self._order

    def storage_extent(self, key: str) -> tuple[int, int]:
        return self._extent(f"{self.folder}{key}")

    def expect(self, tensors: Iterable[TensorRef]) -> None:
        # Up to the next header, not up to where the bytes are: that says only the header before them, which would have
        # to be read first. An entry that is not there is reported when its tensor is read.
        headers = sorted(entry.header for entry in self._entries.values())
        extents = []
        for key in {one.storage.key for one in tensors}:
            entry = self._entries.get(f"{self._prefix}{self.folder}{key}")
            if entry is not None:
                after = bisect_right(headers, entry.header)
                end = entry.header + entry.size + _MOST_BEFORE
                extents.append(
                    (entry.header, (min(end, headers[after]) if after < len(headers) else end) - entry.header)
                )
        self.source.expect(extents)

    def _has(self, name: str) -> bool:
        return self._prefix + name in self._entries

    def _extent(self, name: str) -> tuple[int, int]:
        if name not in self._extents:
            entry = self._entries.get(self._prefix + name)
            if entry is None:
                raise ReadError(f"its entry {printable(name, 80)} is missing")
            self._extents[name] = entry_extent(self.source, name, entry)
        return self._extents[name]

    def _bytes(self, name: str, limit: int) -> bytes:
        start, length = self._extent(name)
        if length > limit:
            shown = printable(name, 80)
            raise ReadError(f"its entry {shown} is {length} bytes long, more than the {limit} that are read")
        return read_bytes(self.source, start, length)


class TorchZip(ZippedTensors):
    """An open zip archive of ``torch.save``.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """

    def __init__(self, source: RandomAccess, entries: Mapping[str, ZipEntry] | None = None) -> None:
        known = zip_directory(source) if entries is None else entries
        super().__init__(source, known, _prefix_of(known))
        pickle = self._bytes("data.pkl", MAX_BYTES)
        machine = SafePickle(pickle, BUILDERS, lambda identity: storage_of(self, identity), records=RECORDS)
        self.root = machine.load()
        self.stubs = machine.stubs


def _prefix_of(entries: Mapping[str, ZipEntry]) -> str:
    found = [name for name in entries if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(found) != 1:
        raise ReadError("it is a zip file, but not one of torch.save (no data.pkl)")
    prefix = found[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in entries:
        raise ReadError("it is a TorchScript program, not a training state")
    return prefix
