"""Fewer points for a picture, without hiding anything: every extreme, every gap and both ends stay."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import FloatArray, IntArray

Places = IntArray | FloatArray


def thin(steps: Places, values: FloatArray, buckets: int = 400) -> tuple[Places, FloatArray]:
    """The first, lowest, highest and last point of each of ``buckets`` stretches of equal width in steps, in order.

    ``steps`` ascending, ``values`` finite, of equal length. A short series comes back as it is; a long one in one pass
    over it.
    """
    count = len(values)
    if count <= 4 * buckets:
        return steps, values
    width = (steps[-1] - steps[0]) / buckets
    bucket = (
        np.minimum(((steps - steps[0]) / width).astype(np.int64), buckets - 1) if width > 0 else np.zeros(count, int)
    )
    starts = np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))
    ends = np.append(starts[1:], count) - 1
    lowest = _places_of(values, starts, ends, np.minimum.reduceat(values, starts))
    highest = _places_of(values, starts, ends, np.maximum.reduceat(values, starts))
    kept = np.unique(np.concatenate([starts, lowest, highest, ends]))
    return steps[kept], values[kept]


def _places_of(values: FloatArray, starts: IntArray, ends: IntArray, wanted: FloatArray) -> IntArray:
    """The first place in each stretch whose value is the wanted one."""
    hits = np.flatnonzero(values == np.repeat(wanted, ends - starts + 1))
    return hits[np.searchsorted(hits, starts)]


def level(steps: Places, values: FloatArray, blocks: int = 120) -> tuple[FloatArray, FloatArray]:
    """The median of each of about ``blocks`` runs of equally many points: where the curve runs, noise aside."""
    count = len(values)
    size = max(5, -(-count // blocks))
    whole = count // size * size
    if whole < 2 * size:
        return np.empty(0), np.empty(0)
    # The remainder goes to the beginning, where the curve moves most and one block more is no loss.
    block_steps = steps[count - whole :].reshape(-1, size)
    block_values = values[count - whole :].reshape(-1, size)
    return np.median(block_steps, axis=1), np.median(block_values, axis=1)


def stretches(steps: Places, values: FloatArray) -> list[tuple[int, int, int]]:
    """Where the values are not finite: first step, last step and number of points of each unbroken stretch."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate([[False], bad, [False]]).astype(np.int8)))
    return [
        (int(steps[first]), int(steps[end - 1]), int(end - first))
        for first, end in zip(edges[::2], edges[1::2], strict=True)
    ]
