"""A loss that came down only from what its first steps had done to it, for LOS005."""

from __future__ import annotations

from tracker_health.evidence import Curve, Evidence
from tracker_health.facts.chance import came_back_to_its_start, chance_fallen_to
from tracker_health.report.result import Finding
from tracker_health.text import contrast, number
from tracker_health.words.verdict import Verdict

REMEDY = (
    "overfit one batch: if that fails look for frozen parameters or a zero gradient; if not change the learning rate "
    "threefold"
)


def only_undone(curve: Curve, evidence: Evidence) -> Finding | None:
    """The finding on such a loss of training; None of any other."""
    chance = chance_fallen_to(evidence)
    if chance is not None:
        return _found(curve, f"{chance.said} has", chance.loss, Verdict.FAIL)
    if came_back_to_its_start(curve):
        return _found(curve, "it began at", curve.first.value, Verdict.WARN)
    return None


def _found(curve: Curve, what: str, level: float, verdict: Verdict) -> Finding:
    """What a loss shows that came down to a level at which nothing is learnt, and no further."""
    highest = max(curve.top.value, curve.first.value, float(curve.series.values.max()))
    start, end = contrast(highest, curve.end.value)
    return Finding(
        verdict=verdict,
        message=f"the loss came down from {start} to {end} and no further, where {what} {number(level)}",
        remedy=REMEDY,
        measured={"start": curve.top.value, "best": curve.best.value, "level": level, "points": curve.points},
        kind="only-undone",
        confidence="high" if curve.sure else "low",
    )
