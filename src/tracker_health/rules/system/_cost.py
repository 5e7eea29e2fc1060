"""What a slow-down cost, as far as a run says how long it took."""

from __future__ import annotations

from tracker_health.evidence import Evidence
from tracker_health.facts.pace import Pace
from tracker_health.text import number, percent

HOUR = 3600.0
_HOURS, _MINUTES = 1.0, 0.05  # from which on a time is in that unit


def hours_of(evidence: Evidence, pace: Pace) -> float | None:
    """How long the steps took, in hours.

    Args:
        evidence: What was read of the run.
        pace: How long each took.

    Returns:
        The hours; None where nothing says so.
    """
    return pace.spent / HOUR if pace.in_seconds else hours_between(evidence)


def hours_between(evidence: Evidence) -> float | None:
    """How long the run took from its first point to its last, in hours.

    Args:
        evidence: What was read of the run.

    Returns:
        The hours; None where no times were logged and its tracker does not say it either.
    """
    timed = [one.times for one in evidence.series if one.times is not None and len(one.times) > 1]
    if timed:
        span = max(float(one.max()) for one in timed) - min(float(one.min()) for one in timed)
        if span > 0.0:
            return span / HOUR
    began, ended = evidence.info.started, evidence.info.ended
    return (ended - began) / HOUR if began is not None and ended is not None and ended > began else None


def cost_in_words(share: float, hours: float | None) -> str:
    """A share of the whole time, in the unit that fits: ``21 % of 14 h``.

    Args:
        share: From 0 to 1.
        hours: The whole; None where it is not known.

    Returns:
        The words.
    """
    if hours is None:
        return f"{percent(share)} of the run's time"
    unit, value = ("h", hours) if hours >= _HOURS else ("min", 60.0 * hours)
    if hours < _MINUTES:
        unit, value = "s", HOUR * hours
    return f"{percent(share)} of {number(value)} {unit}"
