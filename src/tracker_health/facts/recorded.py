"""Which values of a loss were taken, and which only say that none was."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import Evidence, IntArray, Series
from tracker_health.evidence.numerics import placeholders
from tracker_health.roles import is_perplexity


def taken(series: Series, evidence: Evidence) -> Series:
    """The newest value of every step, without those that only say that none was taken."""
    clean = series.clean()
    bad = ~np.isfinite(clean.values)
    if not bad.any() or bad.all():
        return clean
    if is_perplexity(series.name):  # an exponential of a loss that is still high: it overflows before it has come down
        overflown = int(np.argmax(clean.values != np.inf))
        clean, bad = clean.at(np.arange(overflown, len(clean))), bad[overflown:]
    if series.role == "val_loss":
        first = int(np.argmin(bad))
        not_taken = not bad[first:].any() and 2 * first < len(bad)
    else:
        not_taken = _are_those_of_validation(clean.steps[bad], evidence)
    absent = bad if not_taken else placeholders(clean.values)
    return clean.at(np.flatnonzero(~absent))


def _are_those_of_validation(steps: IntArray, evidence: Evidence) -> bool:
    """Whether these are the very steps of the validation loss, which is finite at all of them."""
    held_out = evidence.find("val_loss")
    if held_out is None:
        return False
    clean = held_out.clean()
    every = clean.steps[~np.isnan(clean.values)]
    return len(steps) > 1 and bool(np.isfinite(clean.values).any()) and np.array_equal(steps, every)
