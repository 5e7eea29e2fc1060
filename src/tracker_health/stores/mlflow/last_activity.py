"""When a run of MLflow's was last heard of, by its record alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from tracker_health.evidence import is_of_the_machine

_BEGIN, _DAY = 946_684_800.0, 86_400.0  # 2000-01-01
# Times are in milliseconds. Whoever gives their own also gives seconds, or what Python's time_ns() has.
_UNITS = (1e3, 1.0, 1e6, 1e9)


def last_heard_of(started: float | None, logged: Iterable[float]) -> float | None:
    """In seconds since 1970: when the last metric was logged, else when the run began; None where nothing says so.

    ``started`` and ``logged``: as MLflow has them, in ms, or in what someone took for that.
    """
    known = [seconds for one in logged if (seconds := in_seconds(one)) is not None]
    return max(known, default=in_seconds(started))


def pulse_of(last: Mapping[str, float | None]) -> tuple[float | None, float | None]:
    """When the newest point came, and the newest metric of the machine, by the last times of all metrics, in seconds
    since 1970.
    """
    known = [(name, when) for name, when in last.items() if when is not None]
    points = (when for name, when in known if not is_of_the_machine(name))
    machine = (when for name, when in known if is_of_the_machine(name))
    return max(points, default=None), max(machine, default=None)


def in_seconds(stamp: float | None) -> float | None:
    """A time as MLflow has it in seconds since 1970; None where it is none, or none that can be."""
    if stamp is None:
        return None
    now = time.time()
    plausible = (stamp / unit for unit in _UNITS if _BEGIN <= stamp / unit <= now + _DAY)
    return next(plausible, None)
