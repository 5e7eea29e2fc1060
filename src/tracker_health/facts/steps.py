"""Whether enough optimizer steps are known for anything to be said of what they did."""

from __future__ import annotations

from tracker_health.evidence import Evidence
from tracker_health.text import printable

SMOKE_STEPS = 10
"""Of fewer optimizer steps nothing can be said."""


def why_too_few_steps(evidence: Evidence, fewest: int) -> str:
    """Why nothing is said of what the optimizer's steps did; empty where it did enough of them."""
    known = evidence.steps_at_least
    if known.steps >= fewest:
        return ""
    by = f"{known.steps}, counted by {printable(known.by, 80)}" if known.by else "none"
    return f"fewer than {fewest} optimizer steps are known: {by}"


def plan_reached(evidence: Evidence) -> bool | None:
    """Whether the run came to the end of its plan, or its console said that training was done; None without a plan."""
    if evidence.text_log is not None and evidence.text_log.done is not None:
        return True
    return None if evidence.progress is None else evidence.progress.is_whole


def is_smoke_test(evidence: Evidence, fewest: int = SMOKE_STEPS) -> bool:
    """Whether all of the plan was done, and it was fewer optimizer steps than say anything: a test of the code."""
    steps, progress = evidence.optimizer_steps, evidence.progress
    if steps is None or progress is None or progress.snapshot:
        return False
    return steps < fewest and progress.is_whole
