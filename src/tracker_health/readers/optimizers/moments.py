"""Which tensors an optimizer keeps for a parameter, and what they are: told by their keys, as optimizers name them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, MomentStats
from tracker_health.readers.tensors.tensor_values import BLOCK_VALUES, Room, TensorStatistics, Values
from tracker_health.readers.torch_files.torch_pickle import TensorRef, UnreadTensor

_QUANTISED = "__bnb_optimizer_quant_state__"


class _Kind(NamedTuple):
    """How an optimizer names its moments. ``second``: one key and those that tell it from others with that one, or a
    row's and a column's.
    """

    name: str
    first: str | None
    second: tuple[str, ...]
    is_adam: bool = False

    @property
    def telling(self) -> tuple[str, ...]:
        """The keys by which it is known."""
        return self.second or (str(self.first),)

    @property
    def read(self) -> tuple[str, ...]:
        """The keys of what is read."""
        second = self.second if self.second in _FACTORS else self.second[:1]
        return (self.first, *second) if self.first else second


# In order: the first whose second moment is there, or, without one, whose first is. ``sum`` of Adagrad adds squares up,
# ``exp_inf`` of Adamax is the largest gradient and no square: both are 0 where no gradient arrived.
_KINDS = (
    _Kind("schedule-free", None, ("exp_avg_sq", "z")),
    _Kind("amsgrad", "exp_avg", ("exp_avg_sq", "max_exp_avg_sq"), is_adam=True),
    _Kind("adam", "exp_avg", ("exp_avg_sq",), is_adam=True),
    _Kind("adafactor", "exp_avg", ("exp_avg_sq_row", "exp_avg_sq_col")),
    _Kind("adafactor", None, ("row_var", "col_var")),
    _Kind("adafactor", None, ("variance",)),
    _Kind("adamax", "exp_avg", ("exp_inf",)),
    _Kind("adadelta", None, ("square_avg", "acc_delta")),
    _Kind("rmsprop", "momentum_buffer", ("square_avg",)),
    _Kind("adagrad", None, ("sum",)),
    _Kind("adam-8bit", "state1", ("state2",), is_adam=True),
    _Kind("lion", "exp_avg", ()),
    _Kind("lion-8bit", "state1", ()),
    _Kind("momentum", "momentum_buffer", ()),
)
MOMENT_KEYS = frozenset(key for kind in _KINDS for key in (kind.first, *kind.second) if key)
"""The keys by which the state of some optimizer is known."""

_READ = (*MOMENT_KEYS, "step", "qmap1", "qmap2", "absmax1", "absmax2")
_MOST_KEPT = 30  # tensors of a parameter that are looked at for its shape

_FACTORS = (("exp_avg_sq_row", "exp_avg_sq_col"), ("row_var", "col_var"))
_CODES_IN_BLOCK = 256  # of one absmax; older files have 2,048


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The statistics of one parameter's moments; ``kind`` is the optimizer's, "" where nothing of it is known.

    ``ratio``: the mean of first squared over second, where both are Adam's.
    """

    kind: str = ""
    shape: tuple[int, ...] = ()
    first: MomentStats | None = None
    second: MomentStats | None = None
    ratio: float | None = None


def read_moments(entry: Mapping[str, Any], statistics: TensorStatistics) -> Moments:
    """Reduce what an optimizer keeps for one parameter.

    Raises:
        ReadError: a moment is there and cannot be read.
    """
    entry = _flat(entry)
    kind = _kind(entry)
    if kind is None:
        return Moments(shape=_shape(islice(entry.values(), _MOST_KEPT)))
    first = None if kind.first is None else _values(entry, kind.first)
    if kind.second in _FACTORS:
        return _factored(kind, entry, first, statistics)
    second = _values(entry, kind.second[0]) if kind.second else None
    shape = _shape([first, second])
    if first is not None and second is not None:
        one, two, ratio = statistics.of_moments(first, second)
        return Moments(kind=kind.name, shape=shape, first=one, second=two, ratio=ratio if kind.is_adam else None)
    return Moments(
        kind=kind.name,
        shape=shape,
        first=None if first is None else statistics.of(first),
        second=None if second is None else statistics.of(second),
    )


def first_moment(entry: Mapping[str, Any]) -> Values | None:
    """The first moment of what an optimizer keeps for one parameter, where it has one.

    Raises:
        ReadError: it is there and of a kind that is not read.
    """
    entry = _flat(entry)
    kind = _kind(entry)
    return None if kind is None or kind.first is None else _values(entry, kind.first)


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = entry.get(_QUANTISED)
    if not isinstance(inner, Mapping):
        return entry
    return {key: one[key] for one in (entry, inner) for key in _READ if key in one}


def tensors_to_read(entry: Mapping[str, Any]) -> Iterator[TensorRef]:
    """The tensors of a file that ``read_moments`` will read, and the step."""
    entry = _flat(entry)
    kind = _kind(entry)
    keys = ["step"] if kind is None else ["step", *kind.read]
    keys += [f"{table}{key.removeprefix('state')}" for key in keys for table in ("qmap", "absmax")]
    for value in map(entry.get, keys):
        if isinstance(value, TensorRef):
            yield value


def _kind(entry: Mapping[str, Any]) -> _Kind | None:
    there = {key for key in MOMENT_KEYS if key in entry and isinstance(entry[key], (Values, UnreadTensor))}
    return next((kind for kind in _KINDS if there.issuperset(kind.telling)), None) if there else None


def _values(entry: Mapping[str, Any], key: str) -> Values | None:
    value = entry.get(key)
    if isinstance(value, UnreadTensor):
        # Not to be taken for an optimizer that keeps no such moment.
        raise ReadError(f"its moments are kept as {value.name}, which is not read")
    if not isinstance(value, Values):
        return None
    suffix = key.removeprefix("state")
    qmap, absmax = entry.get(f"qmap{suffix}"), entry.get(f"absmax{suffix}")
    if key.startswith("state") and isinstance(qmap, Values) and isinstance(absmax, Values):
        return _Quantised(value, qmap, absmax)
    return value


def _shape(values: Any) -> tuple[int, ...]:
    shapes = [value.shape for value in values if isinstance(value, Values)]
    return max(shapes, key=len, default=())


def _factored(kind: _Kind, entry: Mapping[str, Any], first: Values | None, statistics: TensorStatistics) -> Moments:
    """Adafactor's second moment is row times column over the row's mean: its statistics follow from theirs.

    Shazeer and Stern (2018), algorithm 2.
    """
    rows, columns = (_values(entry, key) for key in kind.second)
    if rows is None or columns is None:
        raise ReadError("it keeps a row's second moment without a column's")
    if kind.second == _FACTORS[1]:  # torch keeps the dimension that was averaged over
        if rows.shape[-1:] != (1,) or columns.shape[-2:-1] != (1,):
            raise ReadError("the factors of a second moment have shapes that do not fit")
        shape = (*rows.shape[:-1], *columns.shape[-1:])
        leading = prod(rows.shape[:-2])
    else:
        shape = (*rows.shape, *columns.shape[-1:])
        leading = prod(rows.shape[:-1])
    row, column = statistics.of(rows), statistics.of(columns)
    return Moments(
        kind=kind.name,
        shape=shape,
        first=None if first is None else statistics.of(first),
        second=_product(row, column, prod(shape)) if leading == 1 else _bounds(row, column, prod(shape)),
    )


def _product(row: MomentStats, column: MomentStats, count: int) -> MomentStats:
    """The statistics of ``row[i] * column[j] / mean(row)``."""
    with np.errstate(all="ignore"):
        scale = float(np.float64(1.0) / np.float64(row.mean))
    whole = row.nonfinite + column.nonfinite == 0
    if whole and row.mean == 0.0:
        scale = 0.0
    zeros = count - (row.count - row.zeros) * (column.count - column.zeros)
    nonfinite = count - (row.count - row.nonfinite) * (column.count - column.nonfinite)
    return MomentStats(
        count=count,
        mean=row.mean * column.mean * scale,
        rms=row.rms * column.rms * scale,
        minimum=row.minimum * column.minimum * scale,
        maximum=row.maximum * column.maximum * scale,
        zeros=zeros if whole else 0,
        nonfinite=nonfinite,
        zero_rows=row.zeros if whole and column.zeros < column.count else None,
    )


def _bounds(row: MomentStats, column: MomentStats, count: int) -> MomentStats:
    """For a stack of matrices, of which each has a mean of its own: the mean is exact, the rest is the columns'."""
    share = count // max(column.count, 1)
    return MomentStats(
        count=count,
        mean=column.mean,
        rms=column.rms,
        minimum=column.minimum,
        maximum=column.maximum,
        zeros=column.zeros * share,
        nonfinite=max(column.nonfinite * share, row.nonfinite),
    )


class _Quantised(Values):
    """Values kept as eight-bit codes: a code's value times the largest size in its block. Dettmers et al. (2022)."""

    def __init__(self, codes: Values, table: Values, sizes: Values) -> None:
        if table.numel != 256 or sizes.numel > codes.numel or sizes.numel < 1:
            raise ReadError("its eight-bit moments have tables of an unknown size")
        self._codes, self._table, self._sizes = codes, table, sizes
        self.shape = codes.shape

    @property
    def layout(self) -> Hashable:
        return self._codes.layout

    @property
    def row(self) -> int | None:
        return self._codes.row

    def blocks(self, room: Room) -> Iterator[FloatArray]:
        table, sizes = _all_of(self._table), _all_of(self._sizes)
        width = next((size for size in (_CODES_IN_BLOCK, 2048) if -(-self.numel // size) == len(sizes)), 0)
        if not width:
            raise ReadError(f"its eight-bit moments have {len(sizes)} scales for {self.numel} values")
        scaled, at = np.empty(BLOCK_VALUES), 0
        for codes in self._codes.blocks(room):
            values = scaled[: len(codes)]
            np.take(table, codes.astype(np.int64), out=values)
            values *= _scales(sizes, width, at, len(codes))
            yield values
            at += len(codes)


def _scales(sizes: FloatArray, width: int, at: int, count: int) -> FloatArray:
    """The scale of each of ``count`` values from the place ``at`` on."""
    first, last = at // width, (at + count - 1) // width
    return np.repeat(sizes[first : last + 1], width)[at - first * width :][:count]


def _all_of(tensor: Values) -> FloatArray:
    return np.concatenate([block.copy() for block in tensor.blocks(Room())] or [np.empty(0)])
