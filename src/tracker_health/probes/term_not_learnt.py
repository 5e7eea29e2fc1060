"""LOS016."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import local_noise, median, median_error
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import settled
from tracker_health.probes._run import is_fine_tuning
from tracker_health.result import Finding
from tracker_health.roles import HELD_OUT_WORDS, LOSS_PART, words_of
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_MOST_TERMS = 8
_MOST_POINTS = 10_000
_POINTS_OF_A_TERM = 3
_PARTS = 8
_EXACT = 0.01  # of the loss
_ILL_CONDITIONED = 1e6
_BEGINS = 0.1  # of the steps
_SURELY = 2.0
_ROSE = 1.5


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
        Which of the other losses are terms is not told by their names: the loss must be a weighted sum of those that
        were logged at its own steps, to within a hundredth at nine of ten points, with weights that least squares find,
        none below 0. Warn when a term makes up `least_share` of the loss at the end, the median of its last eighth lies
        no more than `least_fall` below that of its first, and less than twice that for sure, and the loss fell by
        `least_fall` and by two standard errors. One that rose by half is no task: such are a divergence that starts at
        0 and penalties. Fine-tunes, and objectives with a weight that rises, are left alone.

    Known limits:
        Needs `min_points` points of all terms at the loss's own steps, three for each term, and a log that begins with
        the training. A penalty that stays (weight decay, a commitment, a divergence in balance) and a term that is
        learnt within the first eighth look the same: that is why it has no vote. Of more than eight terms, and of terms
        that are logged by another clock, nothing is said.

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
    min_points: Annotated[int, Threshold("points of all terms needed", "points", "design", ge=8)] = 12

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role=LOSS_PART, min_points=self.min_points),
            Need(role="objective_weight", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").finite()
        terms = _terms(evidence, loss, self.min_points)
        if terms is None or is_fine_tuning(evidence) or settled(evidence) is not None:
            said = (
                "the loss is no sum of losses that were logged beside it" if terms is None else "its terms may not fall"
            )
            return Finding(verdict=Verdict.SKIP, message=said)
        total = _Course.of(terms.total)
        if not total.fell(self.least_fall, surely=True):
            return Finding(verdict=Verdict.PASS, message="the loss as a whole did not come down")
        courses = {name: _Course.of(values) for name, values in zip(terms.names, terms.values.T, strict=True)}
        shares = {
            name: weight * courses[name].end / total.end
            for name, weight in zip(terms.names, terms.weights, strict=True)
        }
        stuck = [name for name in terms.names if shares[name] >= self.least_share and self._stays(courses[name])]
        if not stuck:
            return Finding(verdict=Verdict.PASS, message=f"of {len(terms.names)} terms none of weight stayed")
        worst = max(stuck, key=lambda name: shares[name])
        return Finding(
            verdict=Verdict.WARN,
            message=f"{printable(worst, 60)}, {shares[worst]:.0%} of the loss, began at {number(courses[worst].start)} "
            f"and ends at {number(courses[worst].end)}, while the loss fell from {number(total.start)} to "
            f"{number(total.end)}",
            remedy="train on that term alone; look at its labels, and whether its gradient reaches the shared layers",
            measured={"share": shares[worst], "start": courses[worst].start, "end": courses[worst].end},
        )

    def _stays(self, course: _Course) -> bool:
        return course.end < _ROSE * course.start and not course.fell(self.least_fall) and course.stays(self.least_fall)


class _Course(NamedTuple):
    """Where a loss begins and ends, and the standard error of the difference."""

    start: float
    end: float
    error: float

    @classmethod
    def of(cls, values: FloatArray) -> _Course:
        size = max(2, len(values) // _PARTS)
        error = float(np.sqrt(2.0)) * median_error(local_noise(values), size)
        return cls(median(values[:size]), median(values[-size:]), error)

    def fell(self, share: float, *, surely: bool = False) -> bool:
        """Whether it fell by a share of its start; ``surely``: and beyond the noise."""
        fall = self.start - self.end
        return fall > share * self.start and (not surely or fall > _SURELY * self.error)

    def stays(self, share: float) -> bool:
        """Whether it surely fell by less than twice that share."""
        return self.start - self.end + _SURELY * self.error < 2.0 * share * self.start


class _Terms(NamedTuple):
    """A loss, its terms (float64[points, terms]), and their weights in it."""

    total: FloatArray
    names: Sequence[str]
    values: FloatArray
    weights: FloatArray


def _terms(evidence: Evidence, loss: Series, fewest: int) -> _Terms | None:
    """The terms of which the loss is the sum; None where none are, or the log begins later than the training."""
    parts = [
        one.finite()
        for one in evidence.series
        if one.role == LOSS_PART and frozenset(words_of(one.name)).isdisjoint(HELD_OUT_WORDS)
    ]
    parts = [one for one in parts if one.source == loss.source and len(one) >= fewest][:_MOST_TERMS]
    steps = loss.steps
    for one in parts:
        steps = np.intersect1d(steps, one.steps)
    late = len(loss) and loss.steps[0] > _BEGINS * float(loss.steps[-1]) + 1.0
    if len(parts) < 2 or late or len(steps) < max(fewest, _POINTS_OF_A_TERM * len(parts)):
        return None
    steps = steps[:: max(1, len(steps) // _MOST_POINTS)]
    total, *columns = (one.values[np.searchsorted(one.steps, steps)] for one in (loss, *parts))
    values = np.stack(columns, axis=1)
    return _solved(total, [one.name for one in parts], values)


def _solved(total: FloatArray, names: Sequence[str], values: FloatArray) -> _Terms | None:
    """The weights with which these add up to the loss; None where they do not, or others would do as well."""
    sizes = np.abs(values).max(axis=0)
    if not (sizes > 0).all() or not (total > 0).all() or not np.isfinite(total).all():
        return None
    scaled = values / sizes
    weights, _, rank, singular = np.linalg.lstsq(scaled, total, rcond=None)
    if rank < len(names) or singular[0] > _ILL_CONDITIONED * singular[-1] or (weights < 0).any():
        return None
    off = np.abs(scaled @ weights - total)
    if np.quantile(off / total, 0.9) > _EXACT:
        return None
    return _Terms(total, names, values, weights / sizes)
