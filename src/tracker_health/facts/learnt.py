"""What else than a loss shows that a run learnt something."""

from __future__ import annotations

from tracker_health.evidence import FEWEST_POINTS, LIKELY, SURELY, Curve, Evidence
from tracker_health.facts.accuracy import accuracy_said, measures, scores, wrong
from tracker_health.text import went

_LEAST = 0.1
"""Of the way from where a score began to its best possible value: what it has to gain to show anything."""


def learnt_by(evidence: Evidence) -> str:
    """The score that clearly rose, with its numbers; empty where none did."""
    for shares in (*measures(evidence, FEWEST_POINTS), *scores(evidence, FEWEST_POINTS)):
        mistakes = wrong(shares.judged)
        if mistakes is None:
            continue
        gained = mistakes.top - mistakes.end
        rose = gained.surely_above(0.0) or mistakes.is_monotone
        if rose and gained.value >= _LEAST * mistakes.top.value:
            said = went(1.0 - mistakes.top.value, 1.0 - mistakes.end.value, "rose", show=accuracy_said)
            return f"the {shares.whose} {shares.name} {said}"
    return ""


def is_drawn(evidence: Evidence) -> bool:
    """Whether single values of the training loss scatter by as much as the whole of it, and it does not clearly fall:
    how hard each step is was drawn, as a diffusion model's timesteps are. Such a loss shows no trend in healthy runs
    either.
    """
    curve = evidence.curve("train_loss")
    if curve is None or curve.descent.surely_above(0.0):
        return False
    return curve.noise >= size_of(curve) > 0.0


def falls_surely(curve: Curve) -> bool:
    """Whether its best level is clearly below its top, or its levels clearly fall by their ranks."""
    return curve.descent.surely_above(0.0) or (curve.trend < -SURELY and curve.descent.value > 0.0)


def falls_likely(curve: Curve) -> bool:
    """Whether it fell at every point, or likely by its ranks, or by what was kept."""
    return curve.is_monotone or curve.trend < -LIKELY or curve.kept.surely_above(0.0, LIKELY)


def size_of(curve: Curve) -> float:
    """What a descent is a share of."""
    return max(abs(curve.top.value), abs(curve.best.value))
