"""Statistics of stored tensors: one pass over blocks of values, in float64, through buffers that do not grow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from math import isfinite, isnan, prod, sqrt

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, MomentStats

BLOCK_VALUES = 1 << 16
# The largest m * m / v of any gradients, (1 - b1)**2 / (1 - b2) / (1 - b1**2 / b2) by Cauchy and Schwarz, is 52.9 for
# the usual b1 = 0.9 and b2 = 0.999, and less for a smaller b2. With a smaller b1, which is
# rare, it is larger, and the ratio may go unread.
_MOST_OF_ADAM = 60.0


# Of longer vectors OpenBLAS has the products taken by all cores, which then spin: on a busy machine that took ten times
# the processor time of all the rest.
_OF_ONE_CORE = 8192


def sum_of_squares(values: FloatArray) -> float:
    """The sum of the squares of contiguous values."""
    rows = len(values) // _OF_ONE_CORE
    whole = values[: rows * _OF_ONE_CORE]
    rest = values[len(whole) :]
    total = float(rest.dot(rest))
    if rows:
        squares = np.matmul(whole.reshape(rows, 1, _OF_ONE_CORE), whole.reshape(rows, _OF_ONE_CORE, 1))
        total += float(np.add.reduce(squares, axis=None))
    return total


class Room:
    """Room for a few blocks of values as they are stored, and for one as float64."""

    def __init__(self) -> None:
        self.raw = bytearray(BLOCK_VALUES * 16)
        self.values = np.empty(BLOCK_VALUES, dtype=np.float64)


class Values(ABC):
    """The values of a tensor, somewhere."""

    __slots__ = ()
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    @abstractmethod
    def layout(self) -> Hashable:
        """Two tensors with the same one give their values in the same order and in blocks of the same size."""

    @property
    @abstractmethod
    def row(self) -> int | None:
        """How many values make a row (an output unit), where they come row after row; else None."""

    @abstractmethod
    def blocks(self, room: Room) -> Iterator[FloatArray]:
        """The values in stored order, as float64, in a buffer of ``room`` that the next block overwrites.

        Raises:
            ReadError: they are missing, cut short, or not where they should be.
        """


class TensorStatistics:
    """Reduces tensors to their statistics, one after the other, in the same few buffers."""

    def __init__(self) -> None:
        self._rooms = (Room(), Room())
        self._ratios = np.empty(BLOCK_VALUES, dtype=np.float64)

    def of(self, tensor: Values) -> MomentStats:
        """Statistics over all values of a tensor, in one pass.

        Raises:
            ReadError: its values cannot be read.
        """
        tally = _Tally(tensor.numel, tensor.row)
        with np.errstate(all="ignore"):
            for values in tensor.blocks(self._rooms[0]):
                tally.add(values)
        return tally.result()

    def of_moments(self, first: Values, second: Values) -> tuple[MomentStats, MomentStats, float | None]:
        """Statistics of both moments of one parameter, and the mean of first squared over second, in one pass.

        The mean is over the values whose second moment is above 0. None where there are none, or where the two tensors
        are laid out differently. None also where more than a thousandth are beyond what Adam can make of any gradients.

        Raises:
            ReadError: as for ``of``.
        """
        if first.layout != second.layout:
            return self.of(first), self.of(second), None
        ones, twos = _Tally(first.numel, first.row), _Tally(second.numel, second.row)
        total, counted, impossible = 0.0, 0, 0
        pairs = zip(first.blocks(self._rooms[0]), second.blocks(self._rooms[1]), strict=True)
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
                total += float(np.add.reduce(ratios))
                impossible += int(np.count_nonzero(ratios > _MOST_OF_ADAM))
        known = counted > 0 and impossible <= counted // 1000
        return ones.result(), twos.result(), total / counted if known else None

    def scalar(self, tensor: Values) -> float:
        """The value of a tensor of one element.

        Raises:
            ReadError: it has another size, or its value cannot be read.
        """
        if tensor.numel != 1:
            raise ReadError(f"a tensor of shape {list(tensor.shape)[:8]} stands where one number belongs")
        for values in tensor.blocks(self._rooms[0]):
            return float(values[0])
        raise ReadError("a tensor has no values")


class _Tally:
    """The statistics of a tensor, block by block."""

    def __init__(self, count: int, row: int | None) -> None:
        self._count = count
        self._total, self._squares, self._zeros, self._nonfinite = 0.0, 0.0, 0, 0
        self._minimum, self._maximum = np.inf, -np.inf
        self._rows = None if row is None else _ZeroRows(row)

    def add(self, values: FloatArray) -> float:
        """Count a block in; its lowest value."""
        self._total += float(np.add.reduce(values))
        self._squares += sum_of_squares(values)
        low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
        # A NaN makes min and max NaN, so two finite ones vouch for the whole block.
        if not (isfinite(low) and isfinite(high)):
            self._nonfinite += int(np.count_nonzero(~np.isfinite(values)))
        # Not len - count_nonzero(values): that looks at one float after the other.
        zeros = 0 if low > 0.0 else int(np.count_nonzero(values == 0.0))
        self._zeros += zeros
        if self._rows is not None:
            self._rows.add(values, zeros)
        # Once NaN they stay it.
        self._minimum = low if low < self._minimum or isnan(low) else self._minimum
        self._maximum = high if high > self._maximum or isnan(high) else self._maximum
        return low

    def result(self) -> MomentStats:
        count, nothing = self._count, float("nan")
        return MomentStats(
            count=count,
            mean=self._total / count if count else nothing,
            rms=sqrt(self._squares / count) if count else nothing,
            minimum=self._minimum if count else nothing,
            maximum=self._maximum if count else nothing,
            zeros=self._zeros,
            nonfinite=self._nonfinite,
            zero_rows=None if self._rows is None else self._rows.count,
        )


class _ZeroRows:
    """How many rows of ``length`` values hold nothing but exact zeros. Rows may span blocks, and blocks rows."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.count = 0
        self._filled = 0  # values of the present row seen so far
        self._silent = True  # all of which were 0

    def add(self, values: FloatArray, zeros: int) -> None:
        """Count a block in, of whose values so many are 0."""
        if zeros:
            self._count_rows(values)
        else:
            self._filled = (self._filled + len(values)) % self._length
            self._silent = self._filled == 0

    def _count_rows(self, values: FloatArray) -> None:
        starts = np.arange(-self._filled, len(values), self._length)
        starts[0] = 0
        alive = np.logical_or.reduceat(values != 0.0, starts)
        alive[0] |= self._filled > 0 and not self._silent
        filled = (self._filled + len(values)) % self._length
        whole = len(alive) if filled == 0 else len(alive) - 1
        self.count += whole - int(np.count_nonzero(alive[:whole]))
        self._silent = True if filled == 0 else not bool(alive[-1])
        self._filled = filled
