"""A loss curve in one line of text."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracker_health.evidence import Evidence

_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "x"
_NOTHING = " "
_ORDERS = 100.0  # highest over lowest, from which the heights are logarithmic


def sketch(evidence: Evidence, columns: int = 40) -> str:
    """The course of the training loss, or else the validation loss: in each column the median of its points.

    Columns are stretches of steps; ``x`` stands where most values are NaN or infinite. Empty where there are fewer than
    three points, or none to tell high from low.
    """
    series = evidence.find("train_loss") or evidence.find("val_loss")
    points = None if series is None else series.clean()
    if points is None or len(points) < 3 or points.steps[-1] == points.steps[0]:
        return ""
    columns = min(columns, len(points))
    place = (points.steps - points.steps[0]) / float(points.steps[-1] - points.steps[0])
    column = np.minimum((place * columns).astype(np.int64), columns - 1)
    starts = np.searchsorted(column, np.arange(columns + 1))
    groups = [np.sort(points.values[start:end]) for start, end in pairwise(starts)]  # NaN last
    finite = [group[np.isfinite(group)] for group in groups]
    levels = [0.5 * one[(len(one) - 1) // 2] + 0.5 * one[len(one) // 2] if len(one) else np.nan for one in finite]
    return "".join(
        _NOTHING if not len(group) else _NOT_FINITE if 2 * len(rest) < len(group) else mark
        for group, rest, mark in zip(groups, finite, _marks(np.array(levels)), strict=True)
    )


def _marks(levels: np.ndarray) -> list[str]:
    finite = levels[np.isfinite(levels)]
    if not len(finite):
        return [_NOT_FINITE] * len(levels)
    if finite.min() > 0 and finite.max() / finite.min() > _ORDERS:
        levels, finite = np.log(levels), np.log(finite)
    low, half = float(finite.min()), 0.5 * float(finite.max()) - 0.5 * float(finite.min())
    heights = (0.5 * levels - 0.5 * low) / half if half > 0 else np.full(len(levels), 0.5)
    return [_HEIGHTS[round(height * (len(_HEIGHTS) - 1))] if np.isfinite(height) else _NOTHING for height in heights]
