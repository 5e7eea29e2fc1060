"""Where a run went on from a checkpoint, and how its loss went on there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Curve, Estimate, Evidence
from tracker_health.evidence.numerics import median, median_error
from tracker_health.facts.never_updated import counts_updates

_BEFORE, _AFTER = 5, 3
"""Points on both sides of a resume that are compared: a loss that jumped comes back within a few."""


class Resume(NamedTuple):
    """A step after which a run went on from a checkpoint, and what shows it."""

    step: int
    by: str


def resumes_of(evidence: Evidence) -> tuple[Resume, ...]:
    """Where the run was resumed: by its console or tracker, a counter that went back, what its optimizer counts."""
    log, loss = evidence.text_log, evidence.find("train_loss")
    first = int(loss.clean().steps.min()) if loss is not None and len(loss) else 0
    found = [Resume(step, "the log says so") for step in (log.resumed if log is not None else ())]
    found += [Resume(step, f"{evidence.info.tracker} says so") for step in evidence.info.resumed]
    back = [series.clean().steps for series in evidence.series if series.went_back]
    found += [Resume(int(steps[0]), "the counter went back") for steps in back if len(steps)]
    began = state_begins(evidence)
    if began is not None and began > first:
        found.append(Resume(began, "the optimizer counts from there"))
    return tuple(sorted({one.step: one for one in reversed(found)}.values()))


def state_begins(evidence: Evidence) -> int | None:
    """The step from which the optimizer counts its updates, where that is inside the run; None where it counts all, or
    where the run's steps may be something else.
    """
    state, reached = evidence.optimizer, evidence.info.global_step
    if state is None or reached is None or state.counted is None or not counts_updates(evidence, state):
        return None
    missing = reached - state.counted
    return missing if _NOTICED * reached <= missing < reached else None


_NOTICED = 0.05  # of the steps: fewer are skipped by a loss scale that finds its level


def jump_at(curve: Curve, step: int) -> Estimate | None:
    """How far the points after a step are above those before it; None where there are fewer than three of either."""
    values, at = curve.series.values, int(np.searchsorted(curve.series.steps, step, side="right"))
    before, after = values[max(0, at - _BEFORE) : at], values[at : at + _AFTER]
    if min(len(before), len(after)) < _AFTER:
        return None
    error = float(np.hypot(median_error(curve.noise, len(before)), median_error(curve.noise, len(after))))
    return Estimate(median(after) - median(before), error)
