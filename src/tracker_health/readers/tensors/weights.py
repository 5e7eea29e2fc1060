"""The tensors of saved weights, whatever the file: their statistics, and how far they moved between two checkpoints.

Everything goes through the same small buffers, block by block; what is beyond a few gigabytes is only sampled, or left.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import TensorHeader, WeightChange
from tracker_health.readers.tensors.stored_values import item_size
from tracker_health.readers.tensors.tensor_values import Room, TensorStatistics, Values, sum_of_squares

MAX_TENSORS = 100_000
"""Of one model, whatever files they are in."""
MOST_BYTES = 4 * 2**30

# The words of safetensors for dtypes, and our codes. Quantised weights (eight-bit floats, integers) are next to scales
# of their own: their statistics are those of the codes, and no size of a weight.
DTYPES = {
    "F64": "f8", "F32": "f4", "F16": "f2", "BF16": "bf16",
    "F8_E4M3": "f8_e4m3fn", "F8_E5M2": "f8_e5m2", "F8_E4M3FNUZ": "f8_e4m3fnuz", "F8_E5M2FNUZ": "f8_e5m2fnuz",
    "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})


class StoredTensor(NamedTuple):
    """A tensor of an open file. ``dtype`` is safetensors' word for it; ``values`` is None where they are not read."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: Values | None

    @property
    def size(self) -> int:
        """Bytes of its values."""
        code = DTYPES.get(self.dtype)
        return 0 if self.values is None or code is None else self.values.numel * item_size(code)


class Budget:
    """How many bytes may still be read."""

    def __init__(self, limit: int = MOST_BYTES) -> None:
        self._left = limit

    def takes(self, size: int) -> bool:
        """Whether so many bytes may be read; they then count."""
        if size > self._left:
            return False
        self._left -= size
        return True


def described(tensors: Iterable[StoredTensor], budget: Budget | None) -> tuple[TensorHeader, ...]:
    """The tensors with their statistics: of all values while the budget lasts, then of a sample for their size.

    ``budget`` None: names, shapes and dtypes are all that is wanted, and no value is read.

    Raises:
        ReadError: a tensor's values cannot be read.
    """
    statistics = TensorStatistics()
    return tuple(_described(one, statistics, budget) for one in tensors)


def _described(tensor: StoredTensor, statistics: TensorStatistics, budget: Budget | None) -> TensorHeader:
    header = TensorHeader(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype)
    if budget is None or tensor.values is None or not tensor.values.numel:
        return header
    is_float = tensor.dtype in FLOATS
    if not budget.takes(tensor.size):
        rms = tensor.values.sampled_rms() if is_float and isinstance(tensor.values, Sampled) else None
        return TensorHeader(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, rms=rms)
    stats = statistics.of(tensor.values)
    rms = stats.rms if is_float else None
    return TensorHeader(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype, rms=rms, stats=stats)


class Sampled(Values):
    """Values of which a sample can be taken."""

    __slots__ = ()

    @abstractmethod
    def sampled_rms(self) -> float:
        """The root mean square of at most a million values, in blocks spread over the tensor.

        A million values tell it to a tenth of a percent.

        Raises:
            ReadError: they cannot be read.
        """


def changes(now: Iterable[StoredTensor], before: Mapping[str, StoredTensor], budget: Budget) -> Iterator[WeightChange]:
    """How far each tensor moved that both have under the same name, of the same shape; as many as the budget allows.

    Raises:
        ReadError: a tensor's values cannot be read.
    """
    rooms = (Room(), Room())
    for tensor in now:
        other = before.get(tensor.name)
        if other is None or tensor.values is None or other.values is None or tensor.dtype not in FLOATS:
            continue
        comparable = other.dtype in FLOATS and tensor.values.layout == other.values.layout and tensor.values.numel
        if comparable and budget.takes(max(tensor.size, other.size)):
            yield _change(tensor.name, tensor.values, other.values, rooms)


def _change(name: str, now: Values, before: Values, rooms: tuple[Room, Room]) -> WeightChange:
    squares, unchanged = 0.0, True
    with np.errstate(all="ignore"):
        for one, two in zip(now.blocks(rooms[0]), before.blocks(rooms[1]), strict=True):
            unchanged = unchanged and bool(((one == two) | (np.isnan(one) & np.isnan(two))).all())
            if not unchanged:
                np.subtract(one, two, out=one)
                squares += sum_of_squares(one)
        return WeightChange(name=name, rms=float(np.sqrt(squares / now.numel)), unchanged=unchanged)
