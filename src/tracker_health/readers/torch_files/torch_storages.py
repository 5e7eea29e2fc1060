"""An open file of ``torch.save``: where its tensors are, and how their values are read in place.

Only what is asked for is read, through one small buffer, so memory does not grow with the file. Every storage is
checked before use: inside the file, as long as it says, and covered densely by its tensor.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray
from tracker_health.readers.files.closing import Closing
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.readers.tensors.stored_values import convert, item_size
from tracker_health.readers.tensors.tensor_values import BLOCK_VALUES, Room
from tracker_health.readers.torch_files.torch_pickle import TensorRef, first_of_dense
from tracker_health.text import printable


class TorchArchive(Closing):
    """An open file of ``torch.save``. ``root`` is the saved structure, with a ``TensorRef`` for each tensor; ``stubs``
    are the names of what was not rebuilt. ``is_model``: the format is one of models; else names tell weights from data.
    """

    root: Any
    stubs: tuple[str, ...]
    is_model = False

    def __init__(self, source: RandomAccess) -> None:
        self.source = source
        self.begin_pass()

    def close(self) -> None:
        self.source.close()

    def begin_pass(self) -> None:
        """Let everything be read once more."""
        # Twice the file: some tensors are shared, as the tables of eight-bit moments are.
        self._unread = 2 * self.source.size

    @property
    @abstractmethod
    def order(self) -> str:
        """The order of bytes in a stored value, ``<`` or ``>``."""

    @abstractmethod
    def storage_extent(self, key: str) -> tuple[int, int]:
        """Offset and length of a storage's bytes in the file.

        Raises:
            ReadError: there is none of this key, or it is not inside the file.
        """

    @abstractmethod
    def expect(self, tensors: Iterable[TensorRef]) -> None:
        """Tell the source which tensors will be read. Reads nothing itself."""

    def blocks(self, tensor: TensorRef, room: Room) -> Iterator[FloatArray]:
        """The values in stored order, as float64, in a buffer that the next block overwrites.

        Raises:
            ReadError: the storage is missing, too short, or not covered densely.
        """
        at, end = self._place(tensor)
        itemsize = item_size(tensor.dtype)
        while at < end:
            # Several blocks at a time: the disk likes long reads, above all where two tensors are read in turn.
            size = min(end - at, len(room.raw))
            raw = memoryview(room.raw)[:size]
            self.source.read_into(at, raw)
            for first in range(0, size, BLOCK_VALUES * itemsize):
                block = raw[first : first + BLOCK_VALUES * itemsize]
                values = room.values[: len(block) // itemsize]
                convert(block, tensor.dtype, self.order, values)
                yield values
            at += size

    def _place(self, tensor: TensorRef) -> tuple[int, int]:
        """Where a tensor's bytes begin and end in the file."""
        first, itemsize = first_of_dense(tensor), item_size(tensor.dtype)
        key, values = tensor.storage.key, tensor.numel
        start, length = self.storage_extent(key)
        declared = tensor.storage.count * (itemsize if tensor.storage.dtype is not None else 1)
        if length != declared:
            raise ReadError(f"its storage {printable(key, 20)} has {length} bytes instead of {declared}")
        if (first + values) * itemsize > length:
            raise ReadError(f"a tensor reaches beyond its storage {printable(key, 20)}")
        # A hundred thousand tensors that share one large storage would be read a hundred thousand times.
        self._unread -= values * itemsize
        if self._unread < 0:
            raise ReadError("its tensors overlap: together they are much larger than the file")
        return start + first * itemsize, start + (first + values) * itemsize
