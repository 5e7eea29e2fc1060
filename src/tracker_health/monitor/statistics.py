"""Statistics of many tensors, reduced on their device and fetched together.

A tensor is reduced at once to four numbers a row, so that none is kept; all rows of a step are put together
and fetched with one transfer a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

_SMALL = 2**16
_BLOCK = 2**24  # values that are copied at once where a tensor has to be scaled
_WIDE = 2**18  # values that a processor squares and adds up one after the other without losing digits
_LEAST_NORM = 1e-12  # below it squares may be lost in single precision
_MOST_EXPONENT = 100  # 2**-100 and 2**100 are normal numbers of single precision


class Statistics(NamedTuple):
    """``maximum`` is of absolute values; ``variance`` is None where there is one value an instance."""

    maximum: float
    mean: float
    variance: float | None


@dataclass(frozen=True)
class RowSums:
    """One tensor's sums, row by row: of an activation the rows are the instances of the batch.

    ``totals``, ``norms``, ``highest``, ``lowest``: one value a row, on the tensor's device. ``width``: values a row.
    ``unstored``: zeros of a sparse tensor next to its rows.
    """

    totals: Tensor
    norms: Tensor
    highest: Tensor
    lowest: Tensor
    width: int
    unstored: int = 0


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


def rows_of(tensor: Tensor) -> RowSums | None:
    """A tensor's sums, a row for each place of its first dimension; None for an empty one. Launches a few reductions,
    and waits for nothing on a device that works by itself. Of a sparse tensor only the sums of all rows mean something.
    """
    if not tensor.numel():
        return None
    if is_sparse(tensor):
        return _rows_of_sparse(tensor)
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    if tensor.dim() < 2:
        tensor = tensor.reshape(1, -1)
    if tensor.numel() <= _SMALL and tensor.dtype is not _precise(tensor):
        tensor = tensor.to(_precise(tensor))  # a scale near 1 has a variance that single precision would lose
    elif tensor.element_size() < 2:
        tensor = tensor.to(torch.bfloat16)  # it has all values of eight bits, and reductions
    inner = tuple(range(1, tensor.dim()))
    highest, lowest = tensor.amax(inner), tensor.amin(inner)
    totals, norms = _sums_of_rows(tensor, highest, lowest)
    return RowSums(totals=totals, norms=norms, highest=highest, lowest=lowest, width=tensor[0].numel())


def is_sparse(tensor: Tensor) -> bool:
    """Whether a tensor stores some of its values, and the others are zeros."""
    return tensor.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def _rows_of_sparse(tensor: Tensor) -> RowSums | None:
    values = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    rows = rows_of(values if values.numel() else values.new_zeros(1))
    unstored = tensor.numel() - max(values.numel(), 1)
    if rows is None or not unstored:
        return rows
    return replace(rows, highest=rows.highest.clamp_min(0), lowest=rows.lowest.clamp_max(0), unstored=unstored)


def _sums_of_rows(tensor: Tensor, highest: Tensor, lowest: Tensor) -> tuple[Tensor, Tensor]:
    """The sum and the norm of each row, also of values whose squares single precision cannot hold."""
    if tensor.dtype not in (torch.float32, torch.bfloat16):
        # Half precision has no such values; of double precision the variance itself would overflow.
        return _totals_and_norms(tensor, None)
    if tensor.is_cpu:
        # There it costs no waiting to look: nearly always nothing has to be scaled, which would be a copy.
        totals, norms = _totals_and_norms(tensor, None)
        if _LEAST_NORM < norms.max().item() < math.inf:
            return totals, norms
    scale = _scale(highest, lowest)
    totals, norms = _totals_and_norms(tensor, scale)
    return totals.to(_precise(totals)) / scale, norms.to(_precise(norms)) / scale


def _scale(highest: Tensor, lowest: Tensor) -> Tensor:
    """The power of two that brings the largest value near 1."""
    largest = torch.maximum(highest.amax(), -lowest.amin()).float()
    exponent = largest.log2().floor().clamp(-_MOST_EXPONENT, _MOST_EXPONENT)
    # In the tensor's own type: what it is divided by in the end is exactly what it was multiplied by.
    return (-exponent).exp2().to(highest.dtype)


def _totals_and_norms(tensor: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sum and the norm of each row, times ``scale``."""
    if scale is not None and tensor.numel() > _BLOCK:
        # Only a block is copied at once: activations may fill the memory.
        return _in_blocks(tensor, scale, _BLOCK)
    if tensor.is_cpu and tensor.numel() > _WIDE * len(tensor):
        return _in_blocks(tensor, scale, _WIDE)
    inner = tuple(range(1, tensor.dim()))
    summed = torch.float32 if tensor.element_size() < 4 else tensor.dtype
    if scale is not None:
        tensor = tensor * scale
    return tensor.sum(inner, dtype=summed), torch.linalg.vector_norm(tensor, dim=inner, dtype=summed)


def _in_blocks(tensor: Tensor, scale: Tensor | None, most: int) -> tuple[Tensor, Tensor]:
    """The same of a large tensor, put together from those of parts with about ``most`` values."""
    dimension = next(place for place, size in enumerate(tensor.shape) if size > 1)
    size = max(1, most * tensor.size(dimension) // tensor.numel())
    parts = [_totals_and_norms(part, scale) for part in tensor.split(size, dimension)]  # type: ignore[no-untyped-call]
    totals, norms = (torch.stack(one) if dimension else torch.cat(one) for one in zip(*parts, strict=True))
    return (totals.sum(0), torch.linalg.vector_norm(norms, dim=0)) if dimension else (totals, norms)


def fetched(every: Sequence[RowSums]) -> list[Sums]:
    """The sums of all tensors as plain numbers, with one transfer from each device."""
    found: list[Sums | None] = [None] * len(every)
    places: dict[torch.device, list[int]] = {}
    for place, rows in enumerate(every):
        places.setdefault(rows.totals.device, []).append(place)
    for indices in places.values():
        for place, sums in zip(indices, _from_one_device([every[index] for index in indices]), strict=True):
            found[place] = sums
    return [one for one in found if one is not None]


def _from_one_device(every: Sequence[RowSums]) -> list[Sums]:
    precise = _precise(every[0].totals)
    names = ("totals", "norms", "highest", "lowest")
    columns = torch.stack([torch.cat([getattr(one, name).to(precise) for one in every]) for name in names])
    if precise is not torch.float64:
        columns = columns.to("cpu", torch.float64)
    device = columns.device
    lengths = [len(one.totals) for one in every]
    ends = torch.tensor(lengths).to(device, non_blocking=True)
    widths = torch.tensor([one.width for one in every], dtype=columns.dtype).to(device, non_blocking=True)
    width = widths.repeat_interleave(ends, output_size=sum(lengths))
    total, norm, highest, lowest = columns
    square = norm.square()
    mean = total / width
    spread = (square - total * mean).clamp_min(0) / (width - 1).clamp_min(1)
    variance = torch.where(highest == lowest, torch.zeros_like(spread), spread)
    added = [torch.segment_reduce(one, "sum", lengths=ends) for one in (total, square, mean, variance)]
    extremes = [torch.segment_reduce(highest, "max", lengths=ends), torch.segment_reduce(lowest, "min", lengths=ends)]
    table = torch.stack([*added, *extremes], dim=1).tolist()
    return [
        Sums(float(length * one.width + one.unstored), float(length), *numbers)
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
