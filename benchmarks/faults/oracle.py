"""What is true of a run, from what only its maker knows: evaluations on fixed, sound samples, and its siblings.

Nothing here looks at a log that is judged, or at any rule, and no logged value is made of the held-out samples. The
margins are judgements, made while the benchmark was; they were not fixed beforehand: ``LOST_OF_BEST``, with
``LOST_LEAST``, was added after false alarms on runs that overfit a little, and took those runs' certificates; so was
what is said of layers that are frozen at their random start.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

# A healthy run has most of its siblings' descent, keeps it, has levelled off, and moved every weight.
DESCENT_SHARE = 0.6
LOST_SHARE = 0.1
LOST_OF_BEST = 0.25  # an end a quarter above the minimum is overfitting to an expert's eye, however low both are
LOST_LEAST = 0.02
CLIMB_SHARE = 0.25
LATE_SHARE = 0.25
LEAST_MOVE = 1e-4
LEAST_STEPS = 50
# A fault has shown itself when the run is worse than its siblings by this.
WORSE_SHARE = 0.15
WORSE_SIGMAS = 3.0
SPIKE_FACTOR = 3.0


@dataclass(frozen=True)
class Label:
    """``certified``: healthy beyond doubt. ``manifested``: a fault that did something. ``reason``: why not.
    ``slight``: a fault that did so little that the run would be certified, had nothing been done to it.
    """

    certified: bool
    manifested: bool
    reason: str
    slight: bool = False


@dataclass(frozen=True)
class Siblings:
    """Medians over a task's runs without a fault."""

    descent: dict[str, float]
    end: dict[str, float]
    spread: dict[str, float]

    def worst_end(self, which: str) -> float:
        """Where a run ends worse than they do, by ``train`` or ``val``."""
        return self.end[which] + max(WORSE_SHARE * self.descent[which], WORSE_SIGMAS * self.spread[which])


def labels(truths: dict[str, dict[str, Any]]) -> dict[str, Label]:
    """The label of every run, by its id."""
    siblings = siblings_of(truths)
    return {
        key: _certified(truth, siblings[truth["task"]])
        if truth["fault"] == "none"
        else manifested(truth, siblings[truth["task"]])
        for key, truth in truths.items()
    }


def siblings_of(truths: dict[str, dict[str, Any]]) -> dict[str, Siblings]:
    """The medians of each task's runs, by its name."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for truth in truths.values():
        if truth["fault"] == "none":
            groups[truth["task"]].append(truth)
    return {task: _medians(group) for task, group in groups.items()}


def _medians(group: list[dict[str, Any]]) -> Siblings:
    descent, end, spread = {}, {}, {}
    for which in ("train", "val"):
        ends = np.array([curve_of(truth, which)[-1] for truth in group])
        end[which] = float(np.median(ends))
        spread[which] = float(1.4826 * np.median(np.abs(ends - end[which])))
        descent[which] = float(np.median([curve_of(truth, which)[0] - curve_of(truth, which)[-1] for truth in group]))
    return Siblings(descent, end, spread)


def curve_of(truth: dict[str, Any], which: str) -> np.ndarray:
    """The evaluations of a run on one of the two fixed sets, ``train`` or ``val``."""
    return np.array([point[which] for point in truth["evaluations"]])


def _certified(truth: dict[str, Any], siblings: Siblings) -> Label:
    reason = _why_not_healthy(truth, siblings)
    return Label(certified=not reason, manifested=False, reason=reason)


def _why_not_healthy(truth: dict[str, Any], siblings: Siblings) -> str:
    if not (np.isfinite(truth["losses"]).all() and truth["gradients_finite"]):
        return "not finite"
    if truth["steps"] < LEAST_STEPS:
        return "too short"
    if min(truth["moved"].values()) < LEAST_MOVE:
        return "a tensor did not move"
    if truth["recipe"]["frozen"]:
        return "frozen at its random start: what it leaves is what a forgotten layer leaves, however good its loss is"
    for which in ("train", "val"):
        curve, usual = curve_of(truth, which), siblings.descent[which]
        if curve[0] - curve[-1] < DESCENT_SHARE * usual:
            return f"little descent ({which})"
        lost = curve[-1] - curve.min()
        if lost > LOST_SHARE * usual or (lost > LOST_OF_BEST * curve.min() and lost > LOST_LEAST * usual):
            return f"lost again ({which})"
        if curve.max() - curve[0] > CLIMB_SHARE * usual:
            return f"climbed ({which})"
    curve = curve_of(truth, "train")
    if curve[len(curve) * 3 // 4] - curve[-1] > LATE_SHARE * (curve[0] - curve[-1]):
        return "still falling"
    return ""


def manifested(truth: dict[str, Any], siblings: Siblings) -> Label:
    """The label of a run with a fault."""
    done = ends_worse(truth, siblings) or spiked(truth)
    slight = not _why_not_healthy(truth, siblings)
    return Label(certified=False, manifested=done, reason="" if done else "no worse than its siblings", slight=slight)


def ends_worse(truth: dict[str, Any], siblings: Siblings) -> bool:
    """Whether a run ends worse than its siblings by the margin, or was not finite at some time."""
    worse = [not curve_of(truth, which)[-1] < siblings.worst_end(which) for which in ("train", "val")]
    return any(worse) or not bool(np.isfinite(truth["losses"]).all())


def spiked(truth: dict[str, Any]) -> bool:
    """Whether the loss of a batch, after the first tenth of the run, was far above that of the first batch."""
    return late_peak(truth) > SPIKE_FACTOR * truth["losses"][0]


def late_peak(truth: dict[str, Any]) -> float:
    """The highest loss of a batch after the first tenth of the run; NaN does not count."""
    losses = np.array(truth["losses"])
    late = losses[len(losses) // 10 :]
    return float(np.max(late, initial=0.0, where=~np.isnan(late)))
