"""LOS016."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Curve, Evidence, FloatArray, Need, Series
from tracker_health.evidence.comparable import settled
from tracker_health.evidence.numerics import MOST_TERMS, weights_of_sum
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.roles import HELD_OUT_WORDS, LOSS_PART, words_of
from tracker_health.text import number, short_name
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class TermNotLearnt(Probe):
    """One term of the loss never came down, while the others did.

    What it finds:
        A training loss that is the sum of several logged terms, one for each task or head, say, of which one stays
        where it began and makes up a good part of what is left.

    Why it matters:
        The total falls, and looks like any other's: one head may be detached, one task's labels may belong to other
        samples, one weight may be far too small.

    How it decides:
        The loss must be a weighted sum of losses that were logged at its own steps, whatever their names. Warn when a
        term makes up `least_share` of it at the end, and fell by no more than `least_fall`, surely by less than twice
        that. The loss as a whole must surely have fallen, by `least_fall`. A term that rose by `most_rise` is no task:
        such are a divergence that starts at 0 and penalties. Fine-tunes, and objectives with a weight that rises, are
        left alone.

    Known limits:
        A penalty that stays (weight decay, a commitment, a divergence in balance), and a term that is learnt before the
        log begins, look the same: that is why it has no vote. Eight terms are looked at.

    What to do:
        Train on that term alone. Look whether its labels belong to its samples, and whether its gradient reaches the
        layers that it shares with the others.

    References:
        None: plain arithmetic.
    """

    code = "LOS016"
    name = "term-not-learnt"
    symptom = Symptom.NOT_LEARNING
    status = "preview"
    headline = ("share",)

    least_share: Annotated[float, Threshold("share of the loss at the end", "fraction", "design", gt=0, le=1)] = 0.25
    least_fall: Annotated[
        float, Threshold("fall that is one, as a share of the start", "fraction", "design", gt=0, le=1)
    ] = 0.05
    most_rise: Annotated[
        float, Threshold("rise that no task has, as a share of the start", "fraction", "design", gt=0)
    ] = 0.5
    min_points: Annotated[int, Threshold("points of all terms needed", "points", "design", ge=8)] = 12

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role=LOSS_PART, min_points=self.min_points),
            Need(role="objective_weight", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        terms = _terms(evidence, evidence.first("train_loss").finite(), self.min_points)
        if terms is None:
            said = "the loss is no sum of losses that were logged beside it"
            return Finding(verdict=Verdict.SKIP, message=said)
        if is_fine_tuning(evidence) or settled(evidence.all_of("objective_weight")) is not None:
            return Finding(verdict=Verdict.SKIP, message="its terms may not fall")
        total = terms.total
        if not (total.start - total.end).surely_above(0.0) or not self._fell(total):
            return Finding(verdict=Verdict.PASS, message="the loss as a whole did not come down")
        shares = [
            float(weight) * one.end.value / total.end.value
            for weight, one in zip(terms.weights, terms.courses, strict=True)
        ]
        stuck = [
            (share, one)
            for share, one in zip(shares, terms.courses, strict=True)
            if share >= self.least_share and self._stays(one)
        ]
        if not stuck:
            return Finding(verdict=Verdict.PASS, message=f"of {len(shares)} terms none of weight stayed")
        share, worst = max(stuck, key=lambda one: one[0])
        start, end = worst.start.value, worst.end.value
        return Finding(
            verdict=Verdict.WARN,
            message=f"{short_name(worst.series.name)}, {share:.0%} of the loss, began at {number(start)} and ends "
            f"at {number(end)}, while the loss fell from {number(total.start.value)} to {number(total.end.value)}",
            remedy="train on that term alone; look at its labels, and whether its gradient reaches the shared layers",
            measured={"share": share, "start": start, "end": end},
            steps=(int(worst.series.steps[0]),),
            confidence="high" if worst.sure else "low",
        )

    def _fell(self, course: Curve) -> bool:
        return course.start.value - course.end.value > self.least_fall * course.start.value

    def _stays(self, course: Curve) -> bool:
        """Whether it fell by too little, surely by less than twice that, and did not rise as a penalty does."""
        start, fall = course.start.value, course.start - course.end
        little = not self._fell(course) and fall.surely_below(2.0 * self.least_fall * start)
        return little and course.end.value < (1.0 + self.most_rise) * start


class _Terms(NamedTuple):
    """A loss, its terms, and their weights in it."""

    total: Curve
    courses: Sequence[Curve]
    weights: FloatArray


def _terms(evidence: Evidence, loss: Series, fewest: int) -> _Terms | None:
    """The terms of which the loss is the sum; None where none are."""
    parts = [
        one.finite()
        for one in evidence.series
        if one.role == LOSS_PART and frozenset(words_of(one.name)).isdisjoint(HELD_OUT_WORDS)
    ]
    parts = [one for one in parts if one.source == loss.source and len(one) >= fewest][:MOST_TERMS]
    steps = loss.steps
    for one in parts:
        steps = np.intersect1d(steps, one.steps)
    if len(parts) < 2 or len(steps) < max(fewest, 2 * len(parts)):
        return None
    total, *terms = (one.at(np.searchsorted(one.steps, steps)) for one in (loss, *parts))
    weights = weights_of_sum(total.values, np.stack([one.values for one in terms], axis=1))
    curve, *courses = (Curve.of(one) for one in (total, *terms))
    known = [one for one in courses if one is not None]
    return _Terms(curve, known, weights) if weights is not None and curve is not None else None
