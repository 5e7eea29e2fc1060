"""Processes that train together: when they look, and what the first of them decides for all.

A process that does not take part in a broadcast leaves the others waiting. So when one is due depends on nothing but
how many steps were logged, which is the same everywhere: not on a clock, a value, or whether judging works.
"""

from __future__ import annotations

import sys
from typing import TypeVar

T = TypeVar("T")


def is_one_of_several() -> bool:
    """Whether torch has other processes that train together with this one."""
    if "torch" not in sys.modules:
        return False
    from tracker_health.monitor.distributed import world_size

    return world_size() > 1


def is_first() -> bool:
    """Whether this process decides: it is the first, or alone."""
    if not is_one_of_several():
        return True
    from tracker_health.monitor.distributed import is_first as is_rank_zero

    return is_rank_zero()


def from_first(value: T) -> T:
    """What the first process has, in all of them. All of them have to call it."""
    if not is_one_of_several():
        return value
    from tracker_health.monitor.distributed import from_first as broadcast

    return broadcast(value)


class LookSchedule:
    """How many steps were logged, and when the next look is due."""

    def __init__(self, fewest: int, growth: float) -> None:
        self._growth, self._next = growth, float(fewest)
        self._count, self._last = 0, -1

    def add(self, step: int | None) -> int:
        """Count a step, by default the one after the last; a repeated one counts once. Gives the step."""
        step = self._last + 1 if step is None else int(step)
        if step != self._last:
            self._count, self._last = self._count + 1, step
        return step

    def is_due(self) -> bool:
        """Whether all processes are to look now; once for each time that they are."""
        if self._count < self._next:
            return False
        self._next = max(self._count + 1, self._count * self._growth)
        return True
