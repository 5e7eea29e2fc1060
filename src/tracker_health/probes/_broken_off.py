"""Schedules that break off: of how many steps a learning rate was laid out that was still coming down at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Series
from tracker_health.probes._run import learning_rates

_FEWEST = 5
_LEAST_DROP = 0.1  # of the peak
_LINE, _COSINE = 2e-3, 5e-3  # of the drop
_STILL = 2.0  # times as long as between two changes
_HIGHER = np.linspace(1.0, 1.05, 51)  # the peak itself may lie between two points


@dataclass(frozen=True, kw_only=True)
class BrokenOff:
    """``shape`` is a line or a cosine; ``done`` the last step, ``planned`` the one at which the rate comes to 0;
    ``left`` the last rate over the highest.
    """

    shape: str
    done: float
    planned: float
    left: float


def broken_off(evidence: Evidence) -> BrokenOff | None:
    """The schedule by the logged rate that came down least; None where each came to its end, rose again, or follows
    neither a line nor half a cosine from its peak to 0, down to which it still was on its way.
    """
    found = [one for rate in learning_rates(evidence) if (one := schedule_of(rate)) is not None]
    return min(found, key=lambda one: one.done / one.planned, default=None)


def schedule_of(rate: Series) -> BrokenOff | None:
    """The line or cosine that a finite series of rates follows from its peak on."""
    steps, values = rate.steps.astype(np.float64), rate.values
    top = values.max()
    if not top > 0 or values.min() < 0 or (np.diff(steps) <= 0).any():
        return None
    peak = int(np.flatnonzero(values == top)[-1])
    if (np.diff(values[: peak + 1]) < 0).any():
        return None
    # A rate that is set once an epoch, and logged at each step, is taken where it changes.
    changed = peak + 1 + np.flatnonzero(np.diff(values[peak:]))
    at, share = steps[changed], values[changed] / top
    if len(at) < _FEWEST or (np.diff(share) >= 0).any() or not 0.0 < share[-1] <= 1.0 - _LEAST_DROP:
        return None
    if steps[-1] - at[-1] > _STILL * np.diff(at).max():
        return None
    for shape, end in (("line", _line(at, share)), ("cosine", _cosine(at, share))):
        if end is not None:
            return BrokenOff(shape=shape, done=float(steps[-1]), planned=end, left=float(share[-1]))
    return None


def _line(at: FloatArray, share: FloatArray) -> float | None:
    """The step at which a line through the shares comes to 0; None where they lie on none."""
    slope, level, missed = _fit(at, share)
    return -level / slope if slope < 0 and missed <= _LINE * (1.0 - share[-1]) else None


def _cosine(at: FloatArray, share: FloatArray) -> float | None:
    """The step at which half a cosine through the shares comes to 0; None where they lie on none."""
    best, end = np.inf, None
    for peak in _HIGHER:
        phases = np.arccos(2.0 * share / peak - 1.0)
        slope, level, _ = _fit(at, phases)
        missed = np.abs(0.5 * peak * (1.0 + np.cos(slope * at + level)) - share).max()
        if slope > 0 and missed < best:
            best, end = missed, (np.pi - level) / slope
    return end if best <= _COSINE * (1.0 - share[-1]) else None


def _fit(at: FloatArray, values: FloatArray) -> tuple[float, float, float]:
    """The line of least squares, and by how much it misses the value that lies farthest from it."""
    centre = at.mean()
    slope = float((at - centre) @ (values - values.mean()) / ((at - centre) @ (at - centre)))
    level = float(values.mean() - slope * centre)
    return slope, level, float(np.abs(slope * at + level - values).max())
