"""How often a run logs: its usual gap, its longest ones, and the silence that is longer than any of them explains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracker_health.evidence.series import FloatArray, Series

SYSTEM_PREFIXES = ("system/", "system.")
"""How trackers name what they measure of the machine by themselves: MLflow and W&B. A training that stands has it."""

_FIRST_TIME, _LAST_TIME = 946_684_800.0, 4_102_444_800.0  # of the years 2000 and 2100
_BURST = 0.1  # of the gap in which most of the time went by: points closer together came at once
_PAUSE = 4.0  # usual gaps that a pause is long
_ALIKE = 2.0  # a gap has come back where another one is at least the half of it


def is_of_the_machine(name: str) -> bool:
    """Whether a metric is one that a tracker measures of the machine, whatever the training does.

    Args:
        name: Of the metric.

    Returns:
        True where it is.
    """
    return name.startswith(SYSTEM_PREFIXES)


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """When a run last gave a sign of life, in seconds since 1970.

    ``points``: its newest metric, those of the machine aside; None without any. ``vital``: its newest metric of the
    machine, or another sign of its process that needs no training; None where there is none. ``until``: what its source
    knows of it ends then; None where that is up to date.
    """

    points: float | None = None
    vital: float | None = None
    until: float | None = None


@dataclass(frozen=True, kw_only=True)
class Pace:
    """From which silence on a run stands still.

    ``factor``: times of the longest gap that came back; ``once``: times of the longest gap of all; ``floor``: seconds,
    whatever the gaps. As long as the run has shown no evaluation, a first one may take a ``share`` of the time so far,
    but no more than ``most`` seconds. It takes so many ``arrivals`` to know a run, and that points came for as long as
    the floor.
    """

    factor: float
    once: float
    floor: float
    share: float
    most: float
    arrivals: int


@dataclass(frozen=True, eq=False)
class Rhythm:
    """The times at which points of a run came: float64[n], seconds since 1970, ascending, none twice; n is 2 or more.

    Points that came almost together are one arrival: a buffer that was flushed, a row that was logged name by name.
    """

    times: FloatArray

    @cached_property
    def _gaps(self) -> FloatArray:
        return np.sort(np.diff(self.times))

    @cached_property
    def _apart(self) -> FloatArray:
        """The gaps between arrivals, ascending: those that are no part of a burst."""
        gone_by = np.cumsum(self._gaps)
        dominant = self._gaps[np.searchsorted(gone_by, gone_by[-1] / 2)]
        apart: FloatArray = self._gaps[self._gaps >= _BURST * dominant]
        return apart

    @property
    def arrivals(self) -> int:
        """How many times there are at which points came."""
        return len(self._apart) + 1

    @property
    def usual(self) -> float:
        """The usual gap in seconds: the median between arrivals."""
        return float(np.median(self._apart))

    @property
    def longest(self) -> float:
        """The longest gap in seconds."""
        return float(self._gaps[-1])

    @property
    def recurring(self) -> float:
        """The longest gap in seconds that came back: that of evaluations, say. The shortest where none did."""
        came_back = self._gaps[1:][self._gaps[:-1] * _ALIKE >= self._gaps[1:]]
        return float(came_back[-1] if len(came_back) else self._gaps[0])

    @property
    def pauses(self) -> bool:
        """Whether it pauses again and again, as for evaluations: a gap came back that is several usual ones long."""
        return self.recurring >= _PAUSE * self.usual

    @property
    def span(self) -> float:
        """Seconds from the first point to the last."""
        return float(self.times[-1] - self.times[0])

    @property
    def last(self) -> float:
        """When the last point came, in seconds since 1970."""
        return float(self.times[-1])

    def limit(self, pace: Pace) -> float | None:
        """The longest silence in seconds that is normal for this run.

        Args:
            pace: How many times of which gap.

        Returns:
            The limit; None where too few points came, or for too short a time, to know it.
        """
        if self.arrivals < pace.arrivals or self.span < pace.floor:
            return None
        first = 0.0 if self.pauses else min(pace.share * self.span, pace.most)
        return max(pace.floor, pace.factor * self.recurring, pace.once * self.longest, first)


def rhythm_of(series: Iterable[Series]) -> Rhythm | None:
    """The rhythm in which points of any name came, metrics of the machine aside.

    Args:
        series: All that was read of a run.

    Returns:
        The rhythm; None where fewer than two times are known.
    """
    known = [one.times for one in series if one.times is not None and not is_of_the_machine(one.name)]
    times = np.concatenate(known) if known else np.zeros(0)
    times = np.unique(times[(times > _FIRST_TIME) & (times < _LAST_TIME)])
    return Rhythm(times) if len(times) > 1 else None
