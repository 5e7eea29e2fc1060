"""A tensor whose values are in several pieces, as each process of a training run saves its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray
from tracker_health.readers.tensors.tensor_values import Room, Values
from tracker_health.readers.torch_files.torch_pickle import TensorRef, UnreadTensor


class Chunk(NamedTuple):
    """A piece: where it begins in the whole tensor and how large it is, in values of each dimension, and what opens it.

    ``open`` may raise ``ReadError`` and ``OSError``.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    open: Callable[[], Any]


class ChunkedTensor(Values):
    """A tensor of ``shape`` in pieces, which are opened when their values are read and closed behind them.

    Raises:
        ReadError: the pieces overlap, reach beyond the tensor, or leave some of it out.
    """

    __slots__ = ("_chunks", "_opened", "shape")

    def __init__(self, shape: tuple[int, ...], chunks: Sequence[Chunk]) -> None:
        self.shape = shape
        self._chunks = sorted((one for one in chunks if prod(one.sizes)), key=lambda one: one.offsets)
        self._opened: list[TensorRef] | None = None
        check_tiling(shape, [(one.offsets, one.sizes) for one in self._chunks])

    @property
    def layout(self) -> Hashable:
        pieces = zip(self._chunks, self._open(), strict=True)
        return (self.shape, *((chunk.offsets, chunk.sizes, tensor.strides) for chunk, tensor in pieces))

    @property
    def row(self) -> int | None:
        # Sharded on other dimensions, a row's values are in several pieces.
        if len(self.shape) < 2 or not self.numel or any(one.sizes[1:] != self.shape[1:] for one in self._chunks):
            return None
        by_row = all(one.row is not None for one in self._open())
        return prod(self.shape[1:]) if by_row else None

    def blocks(self, room: Room) -> Iterator[FloatArray]:
        for tensor in self._open():
            yield from tensor.blocks(room)
        self._opened = None

    def _open(self) -> list[TensorRef]:
        """The pieces. Kept from asking for the layout until the values are read, no longer: there are many tensors."""
        if self._opened is None:
            self._opened = [_checked(one) for one in self._chunks]
        return self._opened


def _checked(chunk: Chunk) -> TensorRef:
    tensor = chunk.open()
    if isinstance(tensor, UnreadTensor):
        raise ReadError(f"a piece of it is kept as {tensor.name}, which is not read")
    if not isinstance(tensor, TensorRef) or tensor.shape != chunk.sizes:
        shown = f"shape {list(tensor.shape)[:8]}" if isinstance(tensor, TensorRef) else "something that is no tensor"
        raise ReadError(f"where a piece of shape {list(chunk.sizes)[:8]} should be is {shown}")
    return tensor


def check_tiling(shape: tuple[int, ...], pieces: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
    """Raises unless pieces (offsets, sizes), none of them empty, cover a tensor of this shape exactly once.

    They are in a grid, as shards over a mesh of processes do: their borders in each dimension cut it from end to end,
    and there are as many as the grid has cells.

    Raises:
        ReadError: they do not.
    """
    if any(len(offsets) != len(shape) or len(sizes) != len(shape) for offsets, sizes in pieces):
        raise ReadError("its pieces have another number of dimensions than the whole")
    if prod(shape) == 0:
        if pieces:
            raise ReadError("a tensor without values has pieces with some")
        return
    cells = 1
    for dimension, size in enumerate(shape):
        cuts = sorted({(offsets[dimension], sizes[dimension]) for offsets, sizes in pieces})
        at = 0
        for start, length in cuts:
            if start != at or length <= 0:
                raise ReadError(f"its pieces overlap, or leave gaps, in dimension {dimension}")
            at += length
        if at != size:
            raise ReadError(f"its pieces cover {at} of {size} in dimension {dimension}: some are missing or too many")
        cells *= len(cuts)
    if cells != len(pieces) or len({offsets for offsets, _ in pieces}) != cells:
        raise ReadError(f"it is saved in {len(pieces)} pieces, where {cells} would cover it once")


class JoinedTensor(Values):
    """A tensor of ``shape`` whose values, in order, are those of one piece after the other.

    Raises:
        ReadError: the pieces have more values than the shape, or less.
    """

    __slots__ = ("_pieces", "shape")

    def __init__(self, shape: tuple[int, ...], pieces: Sequence[TensorRef]) -> None:
        self.shape = shape
        self._pieces = [one for one in pieces if one.numel]
        there = sum(one.numel for one in self._pieces)
        if there != prod(shape):
            raise ReadError(f"{there} values are there of a tensor of shape {list(shape)[:8]}")

    @property
    def layout(self) -> Hashable:
        return (self.shape, *((one.shape, one.strides) for one in self._pieces))

    @property
    def row(self) -> int | None:
        return prod(self.shape[1:]) if len(self.shape) > 1 and self.numel else None

    def blocks(self, room: Room) -> Iterator[FloatArray]:
        for piece in self._pieces:
            yield from piece.blocks(room)


def part_of(flat: TensorRef, start: int, count: int) -> TensorRef:
    """``count`` values of a tensor of one dimension, from ``start`` on.

    Raises:
        ReadError: it has another number of dimensions, or not so many values.
    """
    if len(flat.shape) != 1 or flat.strides != (1,) or start < 0 or count < 0 or start + count > flat.numel:
        raise ReadError(f"{count} values from {start} on are not in a partition of shape {list(flat.shape)[:8]}")
    return replace(flat, offset=flat.offset + start, shape=(count,))
