"""The files of a checkpoint that has more of them than may be open at a time."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

from tracker_health.errors import ReadError
from tracker_health.readers.files.closing import Closing
from tracker_health.readers.files.folder import Folder
from tracker_health.readers.files.random_access import RandomAccess

_OPEN_FILES = 64


class FilePool(Closing):
    """The files that items are in, of which only so many are open at a time."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.names = frozenset(folder.names)
        self._open: OrderedDict[str, RandomAccess] = OrderedDict()
        self._seen: dict[str, _Shared] = {}

    def get(self, name: str) -> RandomAccess:
        """A file that is opened again whenever it is needed.

        Raises:
            RunError: it is missing, or cannot be fetched.
            OSError: it cannot be read.
        """
        if name not in self.names:
            raise ReadError("this file of the checkpoint is missing")
        if name not in self._seen:
            self._seen[name] = _Shared(self, name, self.opened(name).size)
        return self._seen[name]

    def opened(self, name: str) -> RandomAccess:
        """The file itself, until others are needed more."""
        if name not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            self._open[name] = self._folder.open(name)
        self._open.move_to_end(name)
        return self._open[name]

    def expect(self, items: Iterable[tuple[str, int, int]]) -> None:
        """Report which files which stretches (name, start, length) will be read."""
        by_file: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, start, length in items:
            by_file[name].append((start, length))
        for name, extents in by_file.items():
            if name in self.names:
                self.opened(name).expect(extents)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class _Shared:
    """See ``RandomAccess``: a file of a checkpoint, through whatever has it open at the time."""

    def __init__(self, files: FilePool, name: str, size: int) -> None:
        self._files, self._name, self.size = files, name, size

    def read_into(self, start: int, view: memoryview) -> None:
        self._files.opened(self._name).read_into(start, view)

    def expect(self, extents: Iterable[tuple[int, int]]) -> None:
        self._files.opened(self._name).expect(extents)

    def close(self) -> None:
        """The checkpoint closes it."""
