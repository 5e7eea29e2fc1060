"""GEN001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import (
    block_medians,
    depth_of_minimum,
    evaluation_noise,
    mann_kendall,
    median,
    median_error,
)
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import MOSTLY_RIGHT, mean_at_end, measures, right_at_end, scatter
from tracker_health.probes._comparable import begins_late, is_of_margins, lacks_beginning, settled
from tracker_health.probes._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict

_SIGNIFICANT = 3.0
_ERROR_OF_THREE = 0.75  # standard error of a median of three, for a deviation of 1
_STEADY_POINTS = 6
_FEW_POINTS = 6
_LEFT = 0.15
_HALF = 0.5
_NEAR = 0.05
_ANOTHER_UNIT = 10.0
_TRAIN_LOST = 0.1
_FELL, _FELL_ON, _LATE = 0.05, 0.2, 0.1
_ALIKE = 1.1
_AT_ONCE, _EARLY = 0.02, 0.1  # of all steps


@dataclass(frozen=True, kw_only=True)
class Overfit(Probe):
    """The validation loss rises while the training loss falls.

    What it finds:
        A validation loss whose end lies clearly above its minimum, in a training whose own loss went on falling.

    Why it matters:
        From the minimum on the model learns its training samples by heart. The last checkpoint is not the best one.

    How it decides:
        The minimum is the lowest validation loss, the end the median of the last three (of two, where there are fewer
        than six). Warn when the end lies above the minimum by `rise_share` of it and by `descent_share` of the descent
        (from the highest of the first values and the first training loss, unless that ends ten times higher than the
        validation loss ever was); or, where the values since the minimum climb steadily (Mann-Kendall), by
        `steady_rise_share` and `steady_descent_share`. In either case also by what the lowest of that many noisy values
        lies below the others and three standard errors, with at least `min_after` evaluations after the minimum, and
        while the training loss, where there is one, ended no more than a tenth higher than it was then. Where the first
        point of the training loss comes after ten steps or more and it halves up to the second, the log does not show
        what was learnt before: then the rise must be `steady_rise_share` in any case, and the next paragraph holds
        where the validation loss begins above the training loss only. It does not hold, either, where the log begins
        after ten steps or more and nine in ten validation answers are right. And the rise must be `steady_rise_share`
        where as many of them are right at the end as at the minimum, but for what they scatter.

        Warn also when the two losses end further apart, beyond what they were apart when both began (or at the first
        evaluation, within a tenth of the steps, if the validation loss then fell half as far as the training loss or
        further), than `gap_share` of the training loss's descent, or when the training loss ends below
        `memorised_share` of the validation loss and that is still above 15 % of where training began. Not where the
        validation loss followed: it fell by a twentieth from its first values, ends no more than 5 % or its noise above
        its minimum, and came as near to that when less than a fifth of the training loss's descent was left, or was
        still falling: its last quarter brought more than a tenth of its fall, beyond the noise. Losses of survival
        times, of pairs or of larger batches look like that: they are normalised or sampled otherwise in validation. But
        it did not follow where it ends above half of where training began, the training loss below `memorised_share` of
        it, and more than one in ten validation answers, which were logged, is wrong. Samples learnt by heart do not
        count either where the validation loss lost more than half of where training began and ends as near to its
        minimum: that is how a training usually ends that fits its samples; nor where nine in ten validation answers are
        right.

        Where a weight of the objective rises (`kl_weight`), what comes after that is judged.

    Known limits:
        Needs 4 evaluations. How far apart the two losses end is not judged of losses of margins, which are exactly 0
        where no sample violates one: they hang on how many are compared. Accuracy may still rise while the loss does:
        overconfidence is overfitting of the loss. A gap alone is not seen where the validation loss falls on to the
        end; one whose normalisation makes it far larger than the training loss may fall by less than that, and is
        taken for a gap.

    What to do:
        Take the checkpoint at the minimum, and stop there the next time; more data, augmentation, dropout or weight
        decay.

    References:
        Prechelt (1998), Early stopping: but when?
    """

    code = "GEN001"
    name = "overfit"
    symptom = Symptom.OVERFIT
    headline = ("rise_share",)

    rise_share: Annotated[float, Threshold("rise above the minimum, as a share of it", "fraction", "design", gt=0)] = (
        0.1
    )
    descent_share: Annotated[
        float, Threshold("the same as a share of the validation's descent", "fraction", "calibration", ge=0)
    ] = 0.1
    steady_rise_share: Annotated[
        float, Threshold("rise above the minimum where it is a steady climb", "fraction", "public runs", gt=0)
    ] = 0.3
    steady_descent_share: Annotated[
        float, Threshold("the same as a share of the descent", "fraction", "calibration", ge=0)
    ] = 0.03
    gap_share: Annotated[
        float, Threshold("distance of the two losses at the end, as a share of the training's descent", "fraction",
                         "calibration", gt=0)
    ] = 0.5  # fmt: skip
    memorised_share: Annotated[
        float, Threshold("training loss over validation loss at which the samples are learnt by heart", "fraction",
                         "calibration", gt=0, le=1)
    ] = 0.02  # fmt: skip
    min_after: Annotated[int, Threshold("evaluations after the minimum", "evaluations", "design", ge=1)] = 2
    min_points: Annotated[int, Threshold("finite evaluations needed", "evaluations", "design", ge=4)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="val_loss", min_points=self.min_points),
            Need(role="train_loss", optional=True),
            Need(role="val_accuracy", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding(verdict=Verdict.SKIP, message=OF_ANOTHER_MODEL)
        held_out = evidence.first("val_loss").finite()
        rise = settled(evidence)
        if rise is not None:
            held_out = held_out.at(np.flatnonzero(held_out.steps >= rise[1]))
        values, n = held_out.values, len(held_out)
        if n < self.min_points and rise is not None:
            said = f"only {n} finite evaluations from step {rise[1]} on, when {printable(rise[0], 60)} had risen"
            return Finding(verdict=Verdict.SKIP, message=said)
        if n < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {n} finite evaluations")
        course = _course(values, held_out.steps, _first_loss(evidence, values))
        needed = self._needed_rise(course, values, evidence)
        if course.rise > needed and n - 1 - course.at >= self.min_after and _training_went_on(evidence, course.step):
            return self._rose(course, n, evidence)
        gap = _gap(evidence, values, course.noise)
        by_heart = gap is not None and self._memorised(gap, course, n) and not right_at_end(evidence) >= MOSTLY_RIGHT
        far = gap is not None and (gap.share > self.gap_share or by_heart)
        if gap is not None and far and not self._followed(held_out, course, gap, evidence):
            return self._apart(course, n, gap, by_heart=gap.share <= self.gap_share)
        message = f"the validation loss ends at {number(course.end)}, its minimum is {number(course.low)}"
        return Finding(verdict=Verdict.PASS, message=message, measured=course.measured(n))

    def _needed_rise(self, course: _Course, values: FloatArray, evidence: Evidence) -> float:
        """The rise above the minimum that counts: a share, and what the noise alone would make of that many values."""
        loss = evidence.find("train_loss")
        # How far the validation loss came down is not seen where the log begins when that is done.
        late = loss is not None and begins_late(loss.finite())
        share = self.steady_rise_share if late or _no_less_right(evidence, course.step) else self.rise_share
        needed = max(share * abs(course.low), self.descent_share * course.descent)
        if _climbs(values[course.at :]):
            steady = max(self.steady_rise_share * abs(course.low), self.steady_descent_share * course.descent)
            needed = min(needed, steady)
        return max(needed, (depth_of_minimum(len(values)) + _SIGNIFICANT * _ERROR_OF_THREE) * course.noise)

    @staticmethod
    def _rose(course: _Course, evaluations: int, evidence: Evidence) -> Finding:
        share = f"{course.rise / abs(course.low):.0%}, " if course.low else ""
        meanwhile = ", while the training loss did not rise" if evidence.find("train_loss") is not None else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"the validation loss rose from {number(course.low)} at step {course.step} to "
            f"{number(course.end)}, {share}over {count(evaluations - 1 - course.at, 'evaluation')}{meanwhile}",
            remedy=f"take the checkpoint at step {course.step}; stop there, add data or regularise",
            measured=course.measured(evaluations),
            steps=(course.step,),
        )

    @staticmethod
    def _apart(course: _Course, evaluations: int, gap: _Gap, *, by_heart: bool) -> Finding:
        consequence = (
            "its samples are learnt by heart"
            if by_heart
            else f"{gap.share:.0%} of the training's descent holds for its own samples only"
        )
        return Finding(
            verdict=Verdict.WARN,
            message=f"the validation loss ends at {number(course.end)}, the training loss at {number(gap.train_end)}: "
            f"{consequence}",
            remedy="check that the loader shuffles and both sets are prepared alike; else add data or regularise",
            measured=course.measured(evaluations) | {"gap_share": gap.share, "train_end": gap.train_end},
        )

    def _memorised(self, gap: _Gap, course: _Course, evaluations: int) -> bool:
        """Whether nothing is left of the training loss, and a good deal of the validation loss."""
        left = gap.train_end < self.memorised_share * gap.val_end
        learnt = course.rise <= course.near(evaluations) and course.end < _HALF * gap.start
        return left and gap.val_end > _LEFT * gap.start and not learnt

    def _followed(self, held_out: Series, course: _Course, gap: _Gap, evidence: Evidence) -> bool:
        """Whether the validation loss, too, came down, stays at its minimum, and had not stopped there long before the
        training: it is normalised or sampled otherwise then, as of survival times, of pairs or of larger batches.
        """
        values, near = held_out.values, course.near(len(held_out))
        top = float(values[: max(1, len(values) // 4)].max())
        nothing_left = gap.train_end < self.memorised_share * gap.val_end and course.end > _HALF * gap.start
        if (
            (nothing_left and right_at_end(evidence) < MOSTLY_RIGHT)
            or course.rise > near
            or top - course.end < _FELL * abs(top)
        ):
            return False
        late = float(values[-1 - max(2, len(values) // 4)] - values[-1])
        if late > max(_LATE * (top - course.end), course.noise_of_lowest(len(values))):
            return True
        stopped = int(held_out.steps[np.argmax(values <= course.low + near)])
        then, _ = _then_and_now(evidence.first("train_loss").finite(), stopped)
        return then - gap.train_end < _FELL_ON * (gap.start - gap.train_end)


class _Course(NamedTuple):
    """The validation loss: its minimum (at which index and step), its end, its descent from the start, its noise."""

    at: int
    step: int
    low: float
    end: float
    descent: float
    noise: float

    @property
    def rise(self) -> float:
        return self.end - self.low

    def near(self, evaluations: int) -> float:
        """How far above the lowest of so many values one may lie that is at the minimum as well."""
        return max(_NEAR * abs(self.low), self.noise_of_lowest(evaluations))

    def noise_of_lowest(self, evaluations: int) -> float:
        """How far noise alone puts the lowest of so many below the others."""
        return (depth_of_minimum(evaluations) + _ERROR_OF_THREE) * self.noise

    def measured(self, evaluations: int) -> dict[str, float | int]:
        return {
            "best": self.low, "end": self.end, "best_step": self.step, "noise": self.noise,
            "rise_share": self.rise / abs(self.low) if self.low else 0.0, "evaluations": evaluations,
        }  # fmt: skip


def _course(values: FloatArray, steps: IntArray, first_loss: float) -> _Course:
    """``first_loss``: of the training, which may have begun higher than the first evaluations."""
    n, at = len(values), int(np.argmin(values))
    low, end = float(values[at]), median(values[-3:] if n >= 6 else values[-2:])
    descent = max(float(values[: max(1, n // 4)].max()), first_loss) - low
    return _Course(at, int(steps[at]), low, end, descent, evaluation_noise(values))


class _Gap(NamedTuple):
    """Where the two losses end, where they began, and their distance as a share of the training's descent, without the
    distance that was there from the ``first``.
    """

    start: float
    train_end: float
    val_end: float
    first: float

    @property
    def share(self) -> float:
        return (self.val_end - self.train_end - self.first) / (self.start - self.train_end)


def _gap(evidence: Evidence, held_out: FloatArray, noise: float) -> _Gap | None:
    """The two losses side by side, the validation loss two standard errors lower than it seems; None where they cannot
    be compared, or training did not get far.
    """
    loss = evidence.find("train_loss")
    if loss is None or len(loss.finite()) < _FEW_POINTS:
        return None
    values = loss.finite().values
    if is_of_margins(values):
        return None
    if begins_late(loss.finite()) and held_out[0] <= _ALIKE * values[0]:
        return None
    if lacks_beginning(loss.finite()) and right_at_end(evidence) >= MOSTLY_RIGHT:
        return None
    start, end = max(float(values[0]), float(held_out[0])), median(values[-max(2, len(values) // 10) :])
    falls = held_out[0] > 3.0 * values[0] and held_out[-1] < 0.8 * held_out[0]
    another_unit = falls or held_out.min() > _ANOTHER_UNIT * values[0]
    if another_unit or start - end <= 0.2 * abs(start) or start <= 0:
        return None
    last = held_out[-max(3, len(held_out) // 3) :]
    first = _gap_at_first(loss.finite(), evidence.first("val_loss").finite())
    return _Gap(start, end, median(last) - 2.0 * median_error(noise, len(last)), first)


def _gap_at_first(loss: Series, held_out: Series) -> float:
    """How far apart the two losses already were when training began to be logged: what it goes on from. Or were at an
    early evaluation, where the validation loss then followed: what hangs on the number of samples, as a partial
    likelihood does, is larger by that all along.
    """
    first, last = int(held_out.steps[0]), float(loss.steps[-1])
    size = max(1, min(5, len(loss) // 20))
    if abs(first - int(loss.steps[0])) <= max(1.0, _AT_ONCE * last):
        return max(0.0, float(held_out.values[0]) - median(loss.values[:size]))
    then, now = _then_and_now(loss, first)
    fell = float(held_out.values[0]) - median(held_out.values[-3:])
    followed = first <= _EARLY * last and fell >= _HALF * (then - now) > 0
    return max(0.0, float(held_out.values[0]) - then) if followed else 0.0


def _no_less_right(evidence: Evidence, step: int) -> bool:
    """Whether as many validation answers are right at the end as about a step, or more, but for what they scatter."""
    known = next((one for one in measures(evidence, _FEW_POINTS) if one.held_out is not None), None)
    if known is None:
        return False
    shares = known.judged
    at = int(np.argmin(np.abs(shares.steps - step)))
    return known.end >= mean_at_end(shares.values[: at + 2]) - 2.0 * scatter(shares.values)


def _climbs(since_best: FloatArray) -> bool:
    """Whether the values rise all along, by Mann-Kendall."""
    blocks = block_medians(since_best, max(1, len(since_best) // 60))
    return len(blocks) >= _STEADY_POINTS and mann_kendall(blocks) > _SIGNIFICANT


def _first_loss(evidence: Evidence, held_out: FloatArray) -> float:
    """Where the training began: the first evaluation comes when the better part of an epoch has been learnt. Unknown
    where it ends far above all that the validation loss ever was: in another unit, or on account of outliers.
    """
    loss = evidence.find("train_loss")
    values = loss.finite().values if loss is not None else np.empty(0)
    if not len(values) or median(values[-max(2, len(values) // 10) :]) > _ANOTHER_UNIT * held_out.max() > 0:
        return -np.inf
    return float(values[0])


def _training_went_on(evidence: Evidence, step: int) -> bool:
    """Whether the training loss ended no higher than it was when the validation loss was lowest. Unknown counts as
    so.
    """
    loss = evidence.find("train_loss")
    if loss is None or len(loss.finite()) < 4:
        return True
    then, now = _then_and_now(loss.finite(), step)
    return now <= then + _TRAIN_LOST * abs(then)


def _then_and_now(loss: Series, step: int) -> tuple[float, float]:
    """The level of a loss at a step and at its end."""
    size = max(2, len(loss) // 10)
    at = int(np.clip(np.searchsorted(loss.steps, step), size, len(loss)))
    return median(loss.values[at - size : at]), median(loss.values[-size:])
