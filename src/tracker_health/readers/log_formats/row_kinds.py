"""The rows of a log that have the same names, kept small."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from tracker_health.evidence import FloatArray, IntArray
from tracker_health.readers.log_formats.axis import BoolArray
from tracker_health.readers.log_formats.names import axis_of

_NULL_BITS, _EMPTY_BITS = 0x7FF8_6E75_6C6C_0000, 0x7FF8_656D_7074_7900
NULL: float = struct.unpack("<d", struct.pack("<Q", _NULL_BITS))[0]
"""JSON's null: not a number, and none that a training ever logs; some writers put it for NaN."""
EMPTY: float = struct.unpack("<d", struct.pack("<Q", _EMPTY_BITS))[0]
"""A cell of a table with no number in it: nothing was logged there, NaN neither."""

_NONFINITE_KEPT = 10_000


def is_null(values: FloatArray) -> BoolArray:
    """Which cells have nothing in them."""
    return _have_bits(values, _NULL_BITS) | _have_bits(values, _EMPTY_BITS)


def may_be_nan(values: FloatArray) -> BoolArray:
    """Which cells hold null, by which a writer may mean NaN."""
    return _have_bits(values, _NULL_BITS)


def _have_bits(values: FloatArray, bits: int) -> BoolArray:
    found: BoolArray = np.ascontiguousarray(values).view(np.uint64) == np.uint64(bits)
    return found


@dataclass(slots=True)
class RowKind:
    """The rows that have the same names: their numbers in arrays, row by row.

    ``rows``: their places in the log; ``keep``: which of the ``names`` are still kept, None for all; ``seen``: how many
    rows there were; ``ordinals``: which ones of the first ``counted`` are still kept, all that came later are;
    ``points``: how many numbers of metrics a kept row has, those of axes do not count.
    """

    names: tuple[str, ...]
    rows: array[int] = field(default_factory=lambda: array("q"))
    data: array[float] = field(default_factory=lambda: array("d"))
    keep: tuple[int, ...] | None = None
    seen: int = 0
    counted: int = 0
    ordinals: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    points: int = 0

    @property
    def kept_names(self) -> tuple[str, ...]:
        return self.names if self.keep is None else tuple(self.names[index] for index in self.keep)

    def __post_init__(self) -> None:
        self.points = self._points()

    def _points(self) -> int:
        return sum(axis_of(name) is None and "\0" not in name for name in self.kept_names)

    def add(self, row: int, values: Iterable[float]) -> None:
        """Add a row; ``values`` are as many as ``names``.

        Raises:
            TypeError, OverflowError: a value is no number; nothing was added.
        """
        before = len(self.data)
        try:
            self.data.extend(values if self.keep is None else map(tuple(values).__getitem__, self.keep))
        except BaseException:
            del self.data[before:]
            raise
        self.seen += 1
        if self.keep != ():
            self.rows.append(row)

    def add_all(self, row: int, values: FloatArray) -> None:
        """Add rows at once, of which the first is the log's row ``row``; ``values``: float64[rows, names]."""
        self.seen += len(values)
        if self.keep != ():
            self.rows.extend(range(row, row + len(values)))
            self.data.frombytes((values if self.keep is None else values[:, self.keep]).tobytes())

    @property
    def positions(self) -> IntArray:
        """The places of the kept rows in the log: int64[rows]."""
        return np.frombuffer(self.rows, dtype=np.int64)

    def matrix(self) -> FloatArray:
        """Their numbers: float64[rows, kept names]."""
        return np.frombuffer(self.data, dtype=np.float64).reshape(len(self.rows), -1)

    def thin(self, stride: int, wanted: Callable[[str], bool]) -> None:
        """Keep only these names from now on; so far every ``stride``-th row, the last, and what is not finite."""
        keep = tuple(at for at, name in enumerate(self.names) if wanted(name))
        column = {name: at for at, name in enumerate(self.kept_names)}
        values = (
            self.matrix()[:, [column[self.names[at]] for at in keep]] if len(self.rows) else np.empty((0, len(keep)))
        )
        ordinals = np.concatenate([self.ordinals, np.arange(self.counted, self.seen, dtype=np.int64)])[: len(values)]
        chosen = (ordinals % stride == 0) | (ordinals == self.seen - 1)
        odd = ~chosen & (~np.isfinite(values) & ~is_null(values)).any(axis=1)
        chosen |= odd & (np.cumsum(odd) <= _NONFINITE_KEPT)
        self.keep, self.counted, self.ordinals = keep, self.seen, ordinals[chosen]
        self.points = self._points()
        self.rows = array("q", self.positions[chosen].tobytes() if keep else b"")
        self.data = array("d", values[chosen].tobytes())
