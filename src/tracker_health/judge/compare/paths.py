"""A series as levels at equal parts of an axis that several runs share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray, Series
from tracker_health.evidence.numerics import local_noise

Flags = npt.NDArray[np.bool_]
PARTS = 40
_FEWEST = 4
_MEDIAN_ERROR = 1.2533  # the standard error of a median over that of a mean: sqrt(pi / 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Path:
    """``levels``: float64[PARTS], medians, between the points of a sparse series interpolated; NaN where the run was
    not, and where half of what it logged is not finite. ``errors``: float64[PARTS], the standard errors. ``there``:
    where it logged anything near; ``broken``: where half of that is not finite.
    """

    levels: FloatArray
    errors: FloatArray
    there: Flags
    broken: Flags


def path_of(series: Series, positions: FloatArray, start: float, stop: float) -> Path | None:
    """The path of a series.

    Args:
        series: A series without superseded points; what is not finite is kept.
        positions: float64[n], of its points on the axis.
        start: Where the axis begins.
        stop: Where it ends.

    Returns:
        The path; None of a series with fewer than four points.
    """
    if len(series) < _FEWEST or stop <= start:
        return None
    order = np.argsort(positions, kind="stable")
    at, values = positions[order], series.values[order]
    edges = np.linspace(start, stop, PARTS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    own = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, PARTS - 1)
    inside = (at >= start) & (at <= stop)
    finite = np.isfinite(values)
    levels, counts = np.full(PARTS, np.nan), np.zeros(PARTS)
    broken = np.zeros(PARTS, dtype=bool)
    for part in np.unique(own[inside]):
        here = inside & (own == part)
        good = values[here & finite]
        broken[part] = 2 * len(good) <= int(here.sum())
        if len(good) and not broken[part]:
            levels[part], counts[part] = float(np.median(good)), len(good)
    reach = np.max(np.diff(at), initial=0.0)
    there = (centres >= at[0] - reach / 2) & (centres <= at[-1] + reach / 2 + (stop - start) / PARTS)
    known = np.isfinite(levels)
    if not known.any():
        return Path(levels=levels, errors=levels, there=there, broken=broken)
    broken |= _next_to_broken(broken, known) & there
    between = there & ~known & ~broken
    levels[between] = np.interp(centres[between], centres[known], levels[known])
    noise = local_noise(values[finite])
    errors = _MEDIAN_ERROR * noise / np.sqrt(np.maximum(counts, 1.0))
    return Path(levels=levels, errors=errors, there=there, broken=broken)


def _next_to_broken(broken: Flags, known: Flags) -> Flags:
    """Where the last part that logged anything was broken: a series that stays NaN has no levels after that."""
    last = np.maximum.accumulate(np.where(broken | known, np.arange(len(broken)), -1))
    found: Flags = (last >= 0) & broken[np.maximum(last, 0)]
    return found
