"""What torch writes into a pickle: tensors and their storages, as places in a file instead of values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray
from tracker_health.readers.tensors.tensor_values import Room, Values
from tracker_health.readers.torch_files.safe_pickle import Global, Opaque
from tracker_health.text import printable

MAX_DIMENSIONS = 16

_STORAGE_TYPES = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16",
    "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1",
    "BoolStorage": "u1",
}  # fmt: skip
# A complex number is two real ones, side by side.
_COMPLEX = {"unknown ComplexFloatStorage": "f4", "unknown ComplexDoubleStorage": "f8"}
_DTYPE_NAMES = {
    "float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "bf16",
    "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1", "bool": "u1",
    "uint16": "u2", "uint32": "u4", "uint64": "u8",
    "float8_e4m3fn": "f8_e4m3fn", "float8_e5m2": "f8_e5m2",
    "float8_e4m3fnuz": "f8_e4m3fnuz", "float8_e5m2fnuz": "f8_e5m2fnuz",
}  # fmt: skip


class TensorFile(Protocol):
    """A file that tensors are in."""

    def blocks(self, tensor: TensorRef, room: Room) -> Iterator[FloatArray]:
        """The tensor's values in stored order; see ``Values.blocks``."""


@dataclass(frozen=True, eq=False, slots=True)
class StorageRef:
    """A storage of a file: its key there, the dtype of its values (None: bytes), and how many there are."""

    file: TensorFile
    key: str
    dtype: str | None
    count: int


@dataclass(frozen=True, eq=False, slots=True)
class TensorRef(Values):
    """Where a tensor's values are. ``offset`` and ``strides`` count values. Nothing is checked until it is read."""

    storage: StorageRef
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def layout(self) -> Hashable:
        return (self.shape, self.strides)

    @property
    def row(self) -> int | None:
        if len(self.shape) < 2 or len(self.strides) != len(self.shape) or min(self.shape) <= 0:
            return None
        expected = 1
        for stride, size in zip(reversed(self.strides), reversed(self.shape), strict=True):
            if size != 1 and stride != expected:
                return None
            expected *= size
        return self.numel // self.shape[0]

    def blocks(self, room: Room) -> Iterator[FloatArray]:
        return self.storage.file.blocks(self, room)


class UnreadTensor(Opaque):
    """Stands where the file has a tensor whose values cannot be read."""

    __slots__ = ()


def first_of_dense(tensor: TensorRef) -> int:
    """The first value of a tensor that covers a stretch of its storage once, in whatever order of dimensions.

    A stride of 0, a negative one, or a gap would make its size and its bytes two different things.

    Raises:
        ReadError: it does not.
    """
    if len(tensor.shape) != len(tensor.strides):
        raise ReadError("a tensor has more strides than dimensions, or the reverse")
    if tensor.offset < 0 or min(tensor.shape, default=0) < 0:
        raise ReadError("a tensor has a negative offset or size")
    expected = 1
    if tensor.numel:
        for stride, size in sorted(zip(tensor.strides, tensor.shape, strict=True)):
            if size != 1 and stride != expected:
                raise ReadError(f"a tensor of shape {list(tensor.shape)[:8]} does not cover its storage densely")
            expected *= size
    return tensor.offset


def storage_of(file: TensorFile, identity: Any) -> StorageRef:
    """The storage that a persistent id names.

    Raises:
        ReadError: it names none.
    """
    if not (isinstance(identity, tuple) and len(identity) >= 5 and identity[0] == "storage"):
        raise ReadError("its pickle refers to something that is no tensor storage")
    kind, key, count = identity[1], identity[2], identity[4]
    if not (isinstance(kind, Global) and isinstance(key, str) and isinstance(count, int) and 0 <= count < 2**60):
        raise ReadError("its pickle describes a tensor storage in an unknown way")
    if kind.name in ("UntypedStorage", "TypedStorage"):
        return StorageRef(file, key, None, count)
    return StorageRef(file, key, _STORAGE_TYPES.get(kind.name, f"unknown {printable(kind.name, 40)}"), count)


def _tensor(arguments: tuple[Any, ...]) -> Any:
    storage, offset, shape, strides = arguments[:4]
    dtype = storage.dtype if isinstance(storage, StorageRef) else None
    return checked_tensor(storage, dtype, offset, shape, strides)


def _tensor_with_dtype(arguments: tuple[Any, ...]) -> Any:
    storage, offset, shape, strides = arguments[:4]
    dtype = arguments[6] if len(arguments) > 6 else None
    name = _DTYPE_NAMES.get(dtype.name) if isinstance(dtype, Global) else None
    return checked_tensor(storage, name, offset, shape, strides)


def checked_tensor(storage: Any, dtype: str | None, offset: Any, shape: Any, strides: Any) -> TensorRef | UnreadTensor:
    """A tensor in place, as a file describes it: an ``UnreadTensor`` where its dtype is not read.

    Raises:
        ReadError: it is described in an unknown way.
    """
    if dtype in _COMPLEX and isinstance(storage, StorageRef) and isinstance(offset, int):
        halves = StorageRef(storage.file, storage.key, _COMPLEX[dtype], 2 * storage.count)
        shape, strides = (*sizes(shape), 2), (*(2 * one for one in sizes(strides)), 1)
        return TensorRef(halves, _COMPLEX[dtype], 2 * offset, shape, strides)
    if dtype is None or dtype.startswith("unknown"):
        told = "" if dtype is None else f" ({dtype.removeprefix('unknown ')})"
        return UnreadTensor(f"tensors of an unknown dtype{told}")
    if not isinstance(storage, StorageRef) or not isinstance(offset, int):
        raise ReadError("its pickle describes a tensor in an unknown way")
    return TensorRef(storage, dtype, offset, sizes(shape), sizes(strides))


def sizes(values: Any) -> tuple[int, ...]:
    """A shape, strides or an offset, as a pickle gives them.

    Raises:
        ReadError: it is none, or larger than any file.
    """
    if (
        not isinstance(values, (tuple, list))
        or len(values) > MAX_DIMENSIONS
        or not all(isinstance(one, int) for one in values)
    ):
        raise ReadError("its pickle gives a tensor's shape in an unknown way")
    if any(abs(one) >= 2**60 for one in values):
        raise ReadError("its pickle gives a tensor a size that no file holds")
    return tuple(values)


def _size(arguments: tuple[Any, ...]) -> Any:
    return arguments[0] if arguments and isinstance(arguments[0], tuple) else ()


def _first_argument(arguments: tuple[Any, ...]) -> Any:
    return arguments[0]


def _typed(arguments: tuple[Any, ...]) -> Any:
    function, _, inner = arguments[:3]
    builder = BUILDERS.get(function.path) if isinstance(function, Global) else None
    if builder is None or builder is _typed or not isinstance(inner, tuple):
        return UnreadTensor("a tensor subclass")
    return builder(inner)


def _unread(words: str) -> Callable[[tuple[Any, ...]], Any]:
    return lambda _: UnreadTensor(words)


BUILDERS = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _first_argument,
    "torch._utils._rebuild_parameter_with_state": _first_argument,
    "torch._tensor._rebuild_from_type_v2": _typed,
    "torch.Size": _size,
    "torch._utils._rebuild_meta_tensor_no_storage": _unread("tensors without values (of the meta device)"),
    "torch._utils._rebuild_sparse_tensor": _unread("sparse tensors"),
    "torch._utils._rebuild_nested_tensor": _unread("nested tensors"),
    "torch._utils._rebuild_qtensor": _unread("quantised tensors"),
    "torch._utils._rebuild_wrapper_subclass": _unread("a tensor subclass"),
    "torch._utils._rebuild_device_tensor_from_numpy": _unread("tensors that only their own device reads"),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _unread("tensors that only their own device reads"),
}
"""What ``SafePickle`` may make of torch's own callables."""

RECORDS = frozenset({"deepspeed.utils.tensor_fragment.fragment_address"})
"""The classes in a file of ``torch.save`` whose objects are kept as records."""
