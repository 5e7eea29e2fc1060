"""A file somewhere else of which only the parts that are needed are fetched, several at a time, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tracker_health.errors import ReadError, TrackerHealthError
from tracker_health.readers.files.random_access import SHORTER, LocalFile, RandomAccess, read_bytes

NEAR = 256 * 2**10
"""Bytes between two needed parts that are fetched along: a request more costs as much."""
PIECE = 8 * 2**20
BLOCK = 64 * 2**10
WORTH = 0.7
"""The share of a file up to which its parts are fetched; above, all of it. Of weights and two moments of each, the
moments are two thirds, and the pickle comes on top."""
SMALLEST = 4 * 2**20
"""Bytes of a file below which its parts are not worth the requests."""
_TOGETHER = 4
_AHEAD = 3
_HELD = 6 * PIECE  # bytes of pieces at a time
_UNREAD = 256  # bytes of an extent that need not be read: a zip entry's end, up to the next one's header
_KEPT_BLOCKS = 16
_KEPT_BYTES = 4 * 2**20  # of all blocks: what shows a file's tensors is read again by each who opens it


class PartsRefused(TrackerHealthError):
    """The server gives the whole file whatever part is asked for, or makes a new copy for each request."""

    def __init__(self) -> None:
        super().__init__("only the whole file is to be had")


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file of ``size`` bytes somewhere else, and the ways to it.

    ``fetch`` gives a part, from a start on of a length, exactly; it is called from several threads, and raises
    ``PartsRefused`` where only the whole file is to be had. ``whole`` gives all of it, as a file of this machine.
    ``reserve`` raises unless so many bytes more may be fetched. All raise a RunError for what fails.
    """

    size: int
    fetch: Callable[[int, int], bytes | bytearray]
    whole: Callable[[], Path]
    reserve: Callable[[int], None]


class _Piece:
    """A stretch that will be read, and its bytes once they are on their way."""

    __slots__ = ("future", "left", "length", "start")

    def __init__(self, start: int, length: int, needed: int) -> None:
        self.start, self.length = start, length
        self.future: Future[bytes | bytearray] | None = None
        self.left = needed  # bytes that will be read, in whatever order; what is between them is not

    @property
    def finished(self) -> bool:
        return self.left <= 0


class RangedFile:
    """A ``RandomAccess`` to a file somewhere else. Holds at most ``_HELD`` bytes of pieces and ``_KEPT_BLOCKS`` blocks.

    What is announced to ``expect`` is fetched in pieces, ahead of the reading; anything else in blocks, as it is read.
    Where that would be no gain, the whole file is fetched instead and read on this machine.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.size = remote.size
        self._local: RandomAccess | None = None
        self._pieces: list[_Piece] = []
        self._starts: list[int] = []
        self._held: OrderedDict[int, _Piece] = OrderedDict()  # by index, least recently read first
        self._blocks: OrderedDict[int, bytes | bytearray] = OrderedDict()
        self._fetched = 0
        self._pool: ThreadPoolExecutor | None = None

    def read_into(self, start: int, view: memoryview) -> None:
        if start < 0 or start + len(view) > self.size:
            raise ReadError(SHORTER)
        done = 0
        while done < len(view):
            if self._local is not None:
                self._local.read_into(start + done, view[done:])
                return
            try:
                done += self._copy(start + done, view[done:])
            except PartsRefused:
                self._use_whole()

    def expect(self, extents: Iterable[tuple[int, int]]) -> None:
        if self._local is not None:
            return
        pieces = list(_pieces(list(extents), self.size))
        planned = sum(piece.length for piece in pieces)
        if planned > WORTH * self.size:
            self._use_whole()
            return
        self._remote.reserve(planned)
        self._forget_pieces()
        self._pieces, self._starts = pieces, [piece.start for piece in pieces]

    def close(self) -> None:
        """Let go of all but the blocks: of a file that was looked into, what shows its tensors is read again."""
        self._forget_pieces()
        if self._local is not None:
            self._local.close()
            self._local = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _copy(self, start: int, view: memoryview) -> int:
        """Fill the beginning of ``view``, as far as one fetch goes; how many bytes that was."""
        index = bisect_right(self._starts, start) - 1
        if index >= 0:
            piece = self._pieces[index]
            if start < piece.start + piece.length and not (piece.finished and piece.future is None):
                return self._copy_from_piece(index, start, view)
        return self._copy_from_block(start, view)

    def _copy_from_piece(self, index: int, start: int, view: memoryview) -> int:
        piece = self._pieces[index]
        future = self._requested(index)
        for later in range(index + 1, min(index + 1 + _AHEAD, len(self._pieces))):
            self._request_if_room(later)
        offset = start - piece.start
        count = min(len(view), piece.length - offset)
        view[:count] = memoryview(future.result())[offset : offset + count]
        piece.left -= count
        return count

    def _requested(self, index: int) -> Future[bytes | bytearray]:
        piece = self._pieces[index]
        future = piece.future
        if future is None:
            while self._held and not self._room(piece):
                self._drop_one()
            future = piece.future = self._submitted(piece)
            self._held[index] = piece
        self._held.move_to_end(index)
        return future

    def _request_if_room(self, index: int) -> None:
        piece = self._pieces[index]
        if piece.future is not None or piece.finished:
            return
        while not self._room(piece) and any(one.finished for one in self._held.values()):
            self._drop_one()
        if self._room(piece):
            piece.future = self._submitted(piece)
            self._held[index] = piece

    def _room(self, piece: _Piece) -> bool:
        return sum(one.length for one in self._held.values()) + piece.length <= _HELD

    def _drop_one(self) -> None:
        """Let go of a piece: one that has been read to its end, else the one that was read longest ago."""
        index = next((index for index, piece in self._held.items() if piece.finished), next(iter(self._held)))
        piece = self._held.pop(index)
        if piece.future is not None:
            piece.future.cancel()
        piece.future = None

    def _submitted(self, piece: _Piece) -> Future[bytes | bytearray]:
        self._count(piece.length)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_TOGETHER, thread_name_prefix="tracker-health fetch")
        return self._pool.submit(self._remote.fetch, piece.start, piece.length)

    def _copy_from_block(self, start: int, view: memoryview) -> int:
        for begin, block in self._blocks.items():
            if begin <= start < begin + len(block):
                self._blocks.move_to_end(begin)
                count = min(len(view), begin + len(block) - start)
                view[:count] = memoryview(block)[start - begin :][:count]
                return count
        count = min(len(view), PIECE)
        # The last block whole, for a zip file's end is read backwards.
        begin = start if count >= BLOCK else max(0, min(start, self.size - BLOCK))
        length = max(start - begin + count, min(BLOCK, self.size - begin))
        self._remote.reserve(length)
        self._count(length)
        block = self._remote.fetch(begin, length)
        if length <= _KEPT_BYTES:
            self._blocks[begin] = block
            self._drop_blocks()
        view[:count] = memoryview(block)[start - begin :][:count]
        return count

    def _drop_blocks(self) -> None:
        """Let go of those that were read longest ago, as far as there are too many."""
        while len(self._blocks) > _KEPT_BLOCKS or sum(map(len, self._blocks.values())) > _KEPT_BYTES:
            self._blocks.popitem(last=False)

    def _count(self, length: int) -> None:
        """Count what is about to be fetched: in parts, never more than the file."""
        self._fetched += length
        if self._fetched > self.size:
            raise PartsRefused

    def _use_whole(self) -> None:
        self._forget_pieces()
        local = LocalFile(self._remote.whole())
        try:
            self._require_same(local)
        except BaseException:
            local.close()
            raise
        self._local = local

    def _require_same(self, whole: LocalFile) -> None:
        """Raise unless the whole file has the parts in it that were fetched before."""
        same = whole.size == self.size
        for begin, block in self._blocks.items():
            same = same and read_bytes(whole, begin, len(block)) == block
        if not same:
            raise ReadError("it has changed while it was read")

    def _forget_pieces(self) -> None:
        while self._held:
            self._drop_one()
        self._pieces, self._starts = [], []


def _pieces(extents: list[tuple[int, int]], size: int) -> Iterable[_Piece]:
    """The stretches to fetch for these (start, length): neighbours together, none longer than ``PIECE``."""
    needed = _merged(extents, size, -1)
    for begin, end in _merged(extents, size, NEAR):
        for start in range(begin, end, PIECE):
            stop = min(end, start + PIECE)
            parts = needed[max(0, bisect_right(needed, (start, 0)) - 1) : bisect_right(needed, (stop, 0))]
            left = sum(max(0, min(stop, to) - max(start, since) - _UNREAD) for since, to in parts)
            yield _Piece(start, stop - start, max(1, left))


def _merged(extents: Iterable[tuple[int, int]], size: int, gap: int) -> list[tuple[int, int]]:
    """From where to where these (start, length) reach, those not more than ``gap`` apart as one.

    Not by ``fsspec.utils.merge_offset_ranges``, which cuts nothing at a file's size nor into pieces: fsspec is no
    dependency of most who fetch parts (MLflow's and W&B's stores), and takes 65 ms to import.
    """
    merged: list[tuple[int, int]] = []
    for start, length in sorted(extents):
        begin, end = max(0, start), min(size, start + length)
        if merged and begin <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif begin < end:
            merged.append((begin, end))
    return merged
