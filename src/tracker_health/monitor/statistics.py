"""Statistics of many tensors, reduced on their device and fetched together.

A tensor is reduced at once to four numbers a row, so that none is kept or copied; all rows of a step are put together
and fetched with one transfer a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_SMALL = 2**16


class Statistics(NamedTuple):
    """``maximum`` is of absolute values; ``variance`` is None where there is one value an instance."""

    maximum: float
    mean: float
    variance: float | None


@dataclass(frozen=True)
class Rows:
    """One tensor's sums, row by row: of an activation the rows are the instances of the batch.

    ``totals``, ``norms``, ``highest``, ``lowest``: one value a row, on the tensor's device. ``width``: values a row.
    """

    totals: Tensor
    norms: Tensor
    highest: Tensor
    lowest: Tensor
    width: int


class Sums(NamedTuple):
    """Sums over the rows of a tensor, as plain numbers; they add up over micro-batches, shards and processes.

    ``values``, ``instances``: how many there are. ``means`` and ``variances``: sums of each instance's own.
    """

    values: float
    instances: float
    total: float
    square: float
    means: float
    variances: float
    highest: float
    lowest: float

    @classmethod
    def merged(cls, parts: Sequence[Sums]) -> Sums:
        """Those of several parts as those of one."""
        values, instances, total, square, means, variances, *_ = map(sum, zip(*parts, strict=True))
        return cls(
            values,
            instances,
            total,
            square,
            means,
            variances,
            _extreme(max, [one.highest for one in parts]),
            _extreme(min, [one.lowest for one in parts]),
        )

    @property
    def largest(self) -> float:
        """The largest absolute value; 0 for an empty shard."""
        return _extreme(max, [abs(one) for one in (self.highest, self.lowest) if self.values]) if self.values else 0.0

    def of_all(self, factor: float = 1.0) -> Statistics:
        """Of all values together, those multiplied by ``factor``; the variance with n - 1."""
        mean = self.total / self.values
        variance = _positive(self.square - self.total * mean) / (self.values - 1) if self.values > 1 else None
        if self.highest == self.lowest and variance is not None:
            variance = 0.0
        return _scaled(Statistics(self.largest, mean, variance), factor)

    def of_instances(self, factor: float = 1.0) -> Statistics:
        """Of each instance by itself, averaged over the instances."""
        variance = self.variances / self.instances if self.values > self.instances else None
        return _scaled(Statistics(self.largest, self.means / self.instances, variance), factor)


def rows_of(tensor: Tensor) -> Rows | None:
    """A tensor's sums, a row for each place of its first dimension; None for an empty one. Launches four reductions
    and waits for nothing.
    """
    if not tensor.numel():
        return None
    if tensor.dim() < 2:
        tensor = tensor.reshape(1, -1)
    if tensor.numel() <= _SMALL and tensor.dtype is not _precise(tensor):
        tensor = tensor.to(_precise(tensor))  # a scale near 1 has a variance that single precision would lose
    inner = tuple(range(1, tensor.dim()))
    summed = torch.float32 if tensor.element_size() < 4 else tensor.dtype
    return Rows(
        totals=tensor.sum(inner, dtype=summed),
        norms=torch.linalg.vector_norm(tensor, dim=inner, dtype=summed),
        highest=tensor.amax(inner),
        lowest=tensor.amin(inner),
        width=tensor[0].numel(),
    )


def fetched(every: Sequence[Rows]) -> list[Sums]:
    """The sums of all tensors as plain numbers, with one transfer from each device."""
    found: list[Sums | None] = [None] * len(every)
    places: dict[torch.device, list[int]] = {}
    for place, rows in enumerate(every):
        places.setdefault(rows.totals.device, []).append(place)
    for device, indices in places.items():
        for place, sums in zip(indices, _from_one_device(device, [every[index] for index in indices]), strict=True):
            found[place] = sums
    return [one for one in found if one is not None]


def _from_one_device(device: torch.device, every: Sequence[Rows]) -> list[Sums]:
    precise = _precise(every[0].totals)
    lengths = [len(one.totals) for one in every]
    ends = torch.tensor(lengths).to(device, non_blocking=True)
    widths = torch.tensor([one.width for one in every], dtype=precise).to(device, non_blocking=True)
    width = widths.repeat_interleave(ends, output_size=sum(lengths))

    def column(name: str) -> Tensor:
        return torch.cat([getattr(one, name).to(precise) for one in every])

    total, square = column("totals"), column("norms").square()
    highest, lowest = column("highest"), column("lowest")
    mean = total / width
    spread = (square - total * mean).clamp_min(0) / (width - 1).clamp_min(1)
    variance = torch.where(highest == lowest, torch.zeros_like(spread), spread)
    added = [torch.segment_reduce(one, "sum", lengths=ends) for one in (total, square, mean, variance)]
    extremes = [torch.segment_reduce(highest, "max", lengths=ends), torch.segment_reduce(lowest, "min", lengths=ends)]
    table = torch.stack([*added, *extremes], dim=1).tolist()
    return [
        Sums(float(length * one.width), float(length), *numbers)
        for length, one, numbers in zip(lengths, every, table, strict=True)
    ]


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.device.type == "mps" else torch.float64  # which has no double precision


def _scaled(found: Statistics, factor: float) -> Statistics:
    variance = None if found.variance is None else found.variance * factor * factor
    return Statistics(found.maximum * abs(factor), found.mean * factor, variance)


def _positive(value: float) -> float:
    return 0.0 if value < 0 else value  # NaN stays


def _extreme(choose: Callable[[Iterable[float]], float], numbers: Sequence[float]) -> float:
    """As torch does it, and other than Python's own: NaN wins."""
    return math.nan if any(map(math.isnan, numbers)) else choose(numbers)
