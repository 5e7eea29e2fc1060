"""How a loss or a learning rate turned: what signs of causes ask of curves. Each number has its meaning next to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import SURELY, Curve, Series

RATE_JUMP = 5.0
"""A learning rate that rises so many times from one point to the next, above the highest it had, jumped."""

NOT_WARMING_UP = 10
"""A jump within the first tenth of the log, one over this, may be a warm-up."""

BACK = 0.35
"""Of the descent: so near to its start a loss is back where it began."""

CAME_DOWN, LOST_AGAIN = 0.2, 0.3
"""A loss that came down by so much of its start has something to lose; so much of it is lost in a fall back."""

AT_ONCE = 3
"""Levels of a curve within which a rise happens at once."""

GREW = 10.0
"""Times its first value: a loss that had grown so far before it was NaN had diverged."""

NEVER_BELOW = 0.1
"""Of the rise: a loss that came down by less than that before only ever rose."""

AN_EXCURSION = 0.1
"""Of the curve's size: how far it must rise and come down again for an excursion."""


class Jump(NamedTuple):
    """A rise from one value to another, and the first step that has it."""

    step: int
    before: float
    after: float


def rate_jump(rates: Iterable[Series]) -> Jump | None:
    """Where a logged learning rate rose at once to ``RATE_JUMP`` times the highest it had: no warm-up does that."""
    for series in rates:
        values, steps = series.values, series.steps
        for at in range(max(2, len(values) // NOT_WARMING_UP), len(values)):
            before = float(values[:at].max())
            if before > 0.0 and values[at] >= RATE_JUMP * before:
                return Jump(int(steps[at]), before, float(values[at]))
    return None


def fell_back(loss: Curve) -> Jump | None:
    """Where a loss, after it had come down, was at once back near the level that it began at."""
    start, descent = loss.start.value, loss.descent.value
    if len(loss.levels) < 2 * AT_ONCE or not loss.descent.surely_above(0.0):
        return None
    for at in range(AT_ONCE, len(loss.levels)):
        low, high = float(loss.levels[:at].min()), float(loss.levels[at])
        fell = start - low
        near = float(loss.levels[max(0, at - AT_ONCE) : at].min())
        if fell > LOST_AGAIN * descent and near < low + LOST_AGAIN * fell and abs(high - start) < BACK * fell:
            return Jump(loss.rose_at(at, (near + high) / 2), near, high)
    return None


def had_come_down(loss: Curve) -> bool:
    """Whether a loss came down far enough for a rise to its start to be a loss of something."""
    return loss.descent.value > CAME_DOWN * abs(loss.start.value)


def rises_throughout(loss: Curve) -> bool:
    """Whether a loss only ever rose: it ends near its highest, and barely was below its first points. However high it
    rose at last, one that had come down before fell once.
    """
    if loss.descent.surely_above(CAME_DOWN * abs(loss.start.value)):
        return False
    came_down = min(loss.head.value, loss.first.value) - loss.best.value
    up = loss.end.value - loss.head.value
    return up > 0 and loss.trend > SURELY and came_down < NEVER_BELOW * up and loss.end.value >= 0.5 * loss.peak.value


def only_spikes(loss: Curve) -> bool:
    """Whether a loss jumped up and came down again by itself, and ends below its start."""
    return bool(loss.excursions(AN_EXCURSION * loss.size)) and loss.end.value < loss.start.value


def grew_before_nan(losses: Iterable[Series]) -> bool:
    """Whether a loss had grown tenfold before it became NaN or infinite."""
    for series in losses:
        values = series.clean().values
        bad = np.flatnonzero(~np.isfinite(values))
        before = np.abs(values[: bad[0]]) if len(bad) else values[:0]
        if len(before) > 1 and before[-1] > GREW * max(float(before[0]), 1e-6):
            return True
    return False


NUMBERS = (
    ("the learning rate jumped", RATE_JUMP, "times the highest rate before"),
    ("the loss came down, and has something to lose", CAME_DOWN, "of its start"),
    ("so much of the descent is lost", LOST_AGAIN, "of the descent"),
    ("the loss is back where it began", BACK, "of the descent, from its start"),
    ("a rise happens at once", AT_ONCE, "levels of a curve of 40"),
    ("the loss had grown before it was NaN", GREW, "times its first value"),
    ("the loss only ever rose", NEVER_BELOW, "of the rise, that it came down before"),
    ("an excursion", AN_EXCURSION, "of the size of the curve"),
)
"""What the facts above go by, for the page of causes."""
