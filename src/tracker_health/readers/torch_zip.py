"""The zip format of ``torch.save``, without torch: the pickled structure, and tensors that are read in place.

Only what is asked for is read from disk, through one small buffer, so memory does not grow with the file. Every storage
is checked before use: stored uncompressed, inside the file, as long as it says, and covered densely by its tensor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, MomentStats
from tracker_health.readers.regular_file import open_regular
from tracker_health.readers.safe_pickle import MAX_BYTES, Global, Opaque, SafePickle
from tracker_health.readers.stored_values import convert, item_size
from tracker_health.text import printable

MAX_ENTRIES = 200_000
MAX_DIRECTORY_BYTES = 32 * 2**20
MAX_DIMENSIONS = 16
_BLOCK_VALUES = 1 << 16
# The largest m * m / v of any gradients, (1 - b1)**2 / (1 - b2) / (1 - b1**2 / b2) by Cauchy and Schwarz, is 52.9 for
# the usual b1 = 0.9 and b2 = 0.999, and less for a smaller b2. With a smaller b1, which is
# rare, it is larger, and the ratio may go unread.
_MOST_OF_ADAM = 60.0

_STORAGE_TYPES = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16",
    "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "u1",
}  # fmt: skip
_DTYPE_NAMES = {
    "float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "bf16",
    "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1", "bool": "u1",
}  # fmt: skip


# Records of a zip file from its end backwards: the end, where its 64-bit form lies, that form; an entry of the
# directory, a part of its extra field; the header before an entry's bytes.
_END = struct.Struct("<4s6xHIIH")
_END64_LOCATOR = struct.Struct("<4s4xQ4x")
_END64 = struct.Struct("<4s28xQQQ")
_ENTRY = struct.Struct("<4s4xHH8xIIHHH8xI")
_EXTRA = struct.Struct("<HH")
_LOCAL = struct.Struct("<4s22xHH")


class _Entry(NamedTuple):
    """An entry of a zip file: where its header begins, its size in bytes, and whether it is stored as it is."""

    header: int
    size: int
    stored: bool


@dataclass(frozen=True, eq=False, slots=True)
class StorageRef:
    """A storage of the archive: its entry's key, the dtype of its values (None: bytes), and how many there are."""

    key: str
    dtype: str | None
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class TensorRef:
    """Where a tensor's values lie. ``offset`` and ``strides`` count values. Nothing is checked until it is read."""

    storage: StorageRef
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        return prod(self.shape)


class UnreadTensor(Opaque):
    """Stands where the file has a tensor whose values cannot be read."""

    __slots__ = ()


class _Buffer:
    """Room for one block of values: as stored, and as float64."""

    def __init__(self) -> None:
        self.raw = bytearray(_BLOCK_VALUES * 8)
        self.values = np.empty(_BLOCK_VALUES, dtype=np.float64)


class _Tally:
    """The statistics of a tensor, block by block."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._total, self._squares, self._zeros, self._nonfinite = 0.0, 0.0, 0, 0
        self._minimum, self._maximum = np.inf, -np.inf

    def add(self, values: FloatArray) -> float:
        """Count a block in; its lowest value."""
        self._total += float(values.sum())
        self._squares += float(values.dot(values))
        low, high = float(values.min()), float(values.max())
        # A NaN makes min and max NaN, so two finite ones vouch for the whole block.
        if not (np.isfinite(low) and np.isfinite(high)):
            self._nonfinite += int(np.count_nonzero(~np.isfinite(values)))
        if not low > 0.0:
            self._zeros += len(values) - int(np.count_nonzero(values))
        self._minimum, self._maximum = float(np.minimum(self._minimum, low)), float(np.maximum(self._maximum, high))
        return low

    def result(self) -> MomentStats:
        count, nothing = self._count, float("nan")
        return MomentStats(
            count=count,
            mean=self._total / count if count else nothing,
            rms=float(np.sqrt(self._squares / count)) if count else nothing,
            minimum=self._minimum if count else nothing,
            maximum=self._maximum if count else nothing,
            zeros=self._zeros,
            nonfinite=self._nonfinite,
        )


class TorchArchive:
    """An open file of ``torch.save``. ``root`` is the saved structure, with a ``TensorRef`` for each tensor.

    Raises:
        ReadError: not such a file, or one that cannot be trusted.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        try:
            self._size = self._file.seek(0, 2)
            self._entries = _directory(self._file, self._size)
            self._prefix = self._find_prefix()
            self._order = self._byte_order()
            machine = SafePickle(self._bytes("data.pkl", MAX_BYTES), _BUILDERS, _storage)
            self.root: Any = machine.load()
            self.stubs = machine.stubs
        except BaseException:
            self._file.close()
            raise
        self._unread = self._size
        self._buffers = (_Buffer(), _Buffer())
        self._ratios = np.empty(_BLOCK_VALUES, dtype=np.float64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def stats(self, tensor: TensorRef) -> MomentStats:
        """Statistics over all values of a tensor, in one pass.

        Raises:
            ReadError: its storage is missing, too short, or not covered densely.
        """
        tally = _Tally(tensor.numel)
        with np.errstate(all="ignore"):
            for values in self._blocks(tensor, self._buffers[0]):
                tally.add(values)
        return tally.result()

    def moment_stats(self, first: TensorRef, second: TensorRef) -> tuple[MomentStats, MomentStats, float | None]:
        """Statistics of both moments of one parameter, and the mean of first squared over second, in one pass.

        The mean is over the values whose second moment is above 0. None where there are none, where the two tensors are
        laid out differently, or where more than a thousandth lie beyond what Adam can make of any gradients.

        Raises:
            ReadError: as for ``stats``.
        """
        if first.shape != second.shape or first.strides != second.strides:
            return self.stats(first), self.stats(second), None
        ones, twos = _Tally(first.numel), _Tally(second.numel)
        total, counted, impossible = 0.0, 0, 0
        pairs = zip(self._blocks(first, self._buffers[0]), self._blocks(second, self._buffers[1]), strict=True)
        with np.errstate(all="ignore"):
            for one, two in pairs:
                ones.add(one)
                lowest = twos.add(two)
                ratios = self._ratios[: len(two)]
                np.multiply(one, one, out=ratios)
                if lowest > 0.0:
                    ratios /= two
                    counted += len(two)
                else:
                    positive = two > 0.0
                    np.divide(ratios, two, out=ratios, where=positive)
                    ratios[~positive] = 0.0
                    counted += int(np.count_nonzero(positive))
                total += float(ratios.sum())
                impossible += int(np.count_nonzero(ratios > _MOST_OF_ADAM))
        known = counted > 0 and impossible <= counted // 1000
        return ones.result(), twos.result(), total / counted if known else None

    def scalar(self, tensor: TensorRef) -> float:
        """The value of a tensor of one element.

        Raises:
            ReadError: it has another size, or its storage cannot be read.
        """
        if tensor.numel != 1:
            raise ReadError(f"a tensor of shape {list(tensor.shape)[:8]} stands where one number belongs")
        for values in self._blocks(tensor, self._buffers[0]):
            return float(values[0])
        raise ReadError("a tensor has no values")

    def _find_prefix(self) -> str:
        found = [name for name in self._entries if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(found) != 1:
            raise ReadError("it is a zip file, but not one of torch.save (no data.pkl)")
        prefix = found[0].removesuffix("data.pkl")
        if f"{prefix}constants.pkl" in self._entries:
            raise ReadError("it is a TorchScript program, not a training state")
        return prefix

    def _byte_order(self) -> str:
        if f"{self._prefix}byteorder" not in self._entries:
            return "<"
        return ">" if self._bytes("byteorder", 16) == b"big" else "<"

    def _extent(self, name: str) -> tuple[int, int]:
        """Offset and length of an entry's bytes in the file."""
        entry = self._entries.get(self._prefix + name)
        if entry is None:
            raise ReadError(f"its entry {printable(name, 80)} is missing")
        if not entry.stored:
            raise ReadError(f"its entry {printable(name, 80)} is compressed or encrypted; torch.save does neither")
        inside = entry.header + _LOCAL.size <= self._size
        header = _read(self._file, entry.header, _LOCAL.size) if inside else b""
        if not header.startswith(b"PK\x03\x04"):
            raise ReadError(f"its entry {printable(name, 80)} has no header")
        _, name_length, extra_length = _LOCAL.unpack(header)
        start = entry.header + _LOCAL.size + name_length + extra_length
        if start + entry.size > self._size:
            raise ReadError(f"its entry {printable(name, 80)} reaches beyond the end of the file")
        return start, entry.size

    def _bytes(self, name: str, limit: int) -> bytes:
        start, length = self._extent(name)
        if length > limit:
            raise ReadError(f"its entry {name} is {length} bytes long, more than the {limit} that are read")
        return _read(self._file, start, length)

    def _blocks(self, tensor: TensorRef, buffer: _Buffer) -> Iterator[FloatArray]:
        """The values in stored order, as float64, in a buffer that the next block overwrites."""
        first = _first_of_dense(tensor)
        itemsize = item_size(tensor.dtype)
        start, length = self._extent(f"data/{tensor.storage.key}")
        declared = tensor.storage.count * (itemsize if tensor.storage.dtype is not None else 1)
        if length != declared:
            raise ReadError(f"its storage {printable(tensor.storage.key, 20)} has {length} bytes instead of {declared}")
        if (first + tensor.numel) * itemsize > length:
            raise ReadError(f"a tensor reaches beyond its storage {printable(tensor.storage.key, 20)}")
        # A hundred thousand tensors that share one large storage would be read a hundred thousand times.
        self._unread -= tensor.numel * itemsize
        if self._unread < 0:
            raise ReadError("its tensors lie upon each other: together they are larger than the file")
        at, end = start + first * itemsize, start + (first + tensor.numel) * itemsize
        while at < end:
            size = min(end - at, _BLOCK_VALUES * itemsize)
            view = memoryview(buffer.raw)[:size]
            self._file.seek(at)  # another tensor may be read at the same time
            if self._file.readinto(view) != size:
                raise ReadError("it ends in the middle of a tensor")
            values = buffer.values[: size // itemsize]
            convert(view, tensor.dtype, self._order, values)
            yield values
            at += size


def _first_of_dense(tensor: TensorRef) -> int:
    """The first value of a tensor that covers a stretch of its storage once, in whatever order of dimensions.

    A stride of 0, a negative one, or a gap would make its size and its bytes two different things.
    """
    if len(tensor.shape) != len(tensor.strides):
        raise ReadError("a tensor has more strides than dimensions, or the reverse")
    if tensor.offset < 0 or any(size < 0 for size in tensor.shape):
        raise ReadError("a tensor has a negative offset or size")
    expected = 1
    if tensor.numel:
        for stride, size in sorted(zip(tensor.strides, tensor.shape, strict=True)):
            if size != 1 and stride != expected:
                raise ReadError(f"a tensor of shape {list(tensor.shape)[:8]} does not cover its storage densely")
            expected *= size
    return tensor.offset


def _directory(file: FileIO, size: int) -> dict[str, _Entry]:
    """The entries of a zip file by name.

    Not by the module zipfile: it makes a large object of each entry before they can be counted.
    """
    start, length, count = _directory_extent(file, size)
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise ReadError(f"it announces {count} entries in a directory of {length} bytes: more than are read")
    data, at = _read(file, start, length), 0
    entries: dict[str, _Entry] = {}
    try:
        for _ in range(count):
            name, entry, at = _entry(data, at)
            if name in entries:
                raise ReadError(f"two of its entries have the name {printable(name, 80)}")
            if name.startswith("/") or (".." in name and ".." in name.split("/")):
                raise ReadError(f"its entry {printable(name, 80)} points out of the archive")
            entries[name] = entry
    except struct.error as error:
        raise ReadError("its zip directory is cut short or malformed") from error
    return entries


def _directory_extent(file: FileIO, size: int) -> tuple[int, int, int]:
    """Offset and length of the zip directory, and how many entries it has, from the records that end the file."""
    if size < _END.size:
        raise ReadError("it is empty" if size == 0 else "it is too short for a file of torch.save")
    signature, count, length, start, comment = _END.unpack(_read(file, size - _END.size, _END.size))
    if signature != b"PK\x05\x06" or comment:
        raise ReadError("it is not a whole zip file, as torch.save writes them: truncated, legacy or foreign")
    located = size - _END.size - _END64_LOCATOR.size
    if located >= _END64.size:
        signature, end64 = _END64_LOCATOR.unpack(_read(file, located, _END64_LOCATOR.size))
        if signature == b"PK\x06\x07" and end64 <= located - _END64.size:
            signature, count, length, start = _END64.unpack(_read(file, end64, _END64.size))
            if signature != b"PK\x06\x06":
                raise ReadError("its zip directory is not where the file's end says")
    if start + length > size:
        raise ReadError("its zip directory reaches beyond the end of the file: truncated")
    return start, length, count


def _entry(data: bytes, at: int) -> tuple[str, _Entry, int]:
    """One entry of the zip directory: its name, what it says, and where the next begins."""
    fields = _ENTRY.unpack_from(data, at)
    signature, flags, method, packed, plain, name_length, extra_length, comment_length, header = fields
    extra = at + _ENTRY.size + name_length
    end = extra + extra_length + comment_length
    if signature != b"PK\x01\x02" or end > len(data):
        raise ReadError("its zip directory is cut short or malformed")
    name = data[at + _ENTRY.size : extra].decode("utf-8", "surrogateescape")
    if 0xFFFFFFFF in (packed, plain, header):
        plain, packed, header = _large(data[extra : extra + extra_length], plain, packed, header)
    return name, _Entry(header, plain, method == 0 and plain == packed and not flags & 1), end


def _large(extra: bytes, *values: int) -> list[int]:
    """The values, with those that do not fit in 32 bits taken from an entry's extra field."""
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        at += _EXTRA.size
        if kind == 1:
            large = iter(struct.unpack_from(f"<{sum(one == 0xFFFFFFFF for one in values)}Q", extra, at))
            return [next(large) if one == 0xFFFFFFFF else one for one in values]
        at += length
    return list(values)


def _read(file: FileIO, start: int, length: int) -> bytes:
    file.seek(start)
    data = file.read(length)
    if len(data) != length:
        raise ReadError("it has become shorter while it was read")
    return data


def _storage(identity: Any) -> StorageRef:
    if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage"):
        raise ReadError("its pickle refers to something that is no tensor storage")
    kind, key, count = identity[1], identity[2], identity[4]
    if not (isinstance(kind, Global) and isinstance(key, str) and isinstance(count, int) and 0 <= count < 2**60):
        raise ReadError("its pickle describes a tensor storage in an unknown way")
    if kind.name in ("UntypedStorage", "TypedStorage"):
        return StorageRef(key, None, count)
    return StorageRef(key, _STORAGE_TYPES.get(kind.name, f"unknown {kind.name[:40]}"), count)


def _tensor(arguments: tuple[Any, ...]) -> Any:
    storage, offset, shape, strides = arguments[:4]
    dtype = storage.dtype if isinstance(storage, StorageRef) else None
    return _checked_tensor(storage, dtype, offset, shape, strides)


def _tensor_with_dtype(arguments: tuple[Any, ...]) -> Any:
    storage, offset, shape, strides = arguments[:4]
    dtype = arguments[6] if len(arguments) > 6 else None
    name = _DTYPE_NAMES.get(dtype.name) if isinstance(dtype, Global) else None
    return _checked_tensor(storage, name, offset, shape, strides)


def _checked_tensor(storage: Any, dtype: str | None, offset: Any, shape: Any, strides: Any) -> Any:
    if dtype is None or dtype.startswith("unknown"):
        return UnreadTensor("tensors of an unknown dtype")
    if not isinstance(storage, StorageRef) or not isinstance(offset, int):
        raise ReadError("its pickle describes a tensor in an unknown way")
    return TensorRef(storage, dtype, offset, _sizes(shape), _sizes(strides))


def _sizes(values: Any) -> tuple[int, ...]:
    if (
        not isinstance(values, (tuple, list))
        or len(values) > MAX_DIMENSIONS
        or not all(isinstance(one, int) for one in values)
    ):
        raise ReadError("its pickle gives a tensor's shape in an unknown way")
    if any(abs(one) >= 2**60 for one in values):
        raise ReadError("its pickle gives a tensor a size that no file holds")
    return tuple(values)


def _first_argument(arguments: tuple[Any, ...]) -> Any:
    return arguments[0]


def _typed(arguments: tuple[Any, ...]) -> Any:
    function, _, inner = arguments[:3]
    builder = _BUILDERS.get(function.path) if isinstance(function, Global) else None
    if builder is None or builder is _typed or not isinstance(inner, tuple):
        return UnreadTensor("a tensor subclass")
    return builder(inner)


_BUILDERS = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _first_argument,
    "torch._utils._rebuild_parameter_with_state": _first_argument,
    "torch._tensor._rebuild_from_type_v2": _typed,
}
