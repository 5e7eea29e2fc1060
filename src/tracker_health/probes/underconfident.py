"""LOS012."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, exp, log, sqrt
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, Need, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import classes_of_loss, measures, pairs, percent, scatter
from tracker_health.probes._classes import begins_at_chance, classes, classes_of_head, counts
from tracker_health.probes._run import is_fine_tuning
from tracker_health.probes._schedules import levelled_off
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_FEWEST_CLASSES = 3.5
_FEWEST_AT_FLOOR, _MOSTLY, _ROUNDED = 20, 0.8, 1e-3
_FEWEST_ADDED = 2.5  # where loss and accuracy add up
_NEAR_FLOOR = 0.95
_AS_SOUND = 1.25
_SURER_THAN_RIGHT = 0.05  # the mean probability of the right answers less their share
_SMOOTHED = 3
_SURE = 3.0
_EXCESS, _LITTLE_EXCESS = 0.2, 0.1  # nats
_SAME_COUNT = 0.05
_GAIN, _SURE_GAIN, _IN_STEP, _PARTS = 0.05, 5.0, 0.25, 5
_OF_ACCURACY = 0.2
_BEYOND = 700.0  # an exponential that is still a number
_REMEDY = "give logits to the loss, without a softmax before it; if the loss is still falling, train longer"


@dataclass(frozen=True, kw_only=True)
class Underconfident(Probe):
    """The answers are right, but the loss is that of a model which hardly prefers them.

    What it finds:
        A classifier whose accuracy is high while its cross-entropy stays close to that of guessing.

    Why it matters:
        The loss cannot come down, and most of the gradient is lost: a softmax is applied twice, before a loss that
        applies it itself; the logits are kept small; or only the last layer learns.

    How it decides:
        Among how many classes the loss chooses is told by the run's params, or by the size of the model's last layer in
        a checkpoint, where the loss begins within 30 % of its logarithm. Else its first values tell (4 to 20), unless
        most answers were right by then. The last tenth of a loss is taken as a share of guessing's, ln C; the accuracy
        of the same samples as a share of the way from guessing to 1. Warn when the two together are at least
        `least_sum` by more than three standard errors (and 1.25 of the other samples, where those were looked at as
        well), the loss is below guessing, and neither it nor the training loss is lower than a softmax of probabilities
        allows: ln(e + C - 1) less the probability of the right answer, which is 1 at most, and on the whole no more
        than the accuracy. Sound classifiers have about 1 together, and less than 1.25.

        Among many classes, or where few answers are right, a second softmax is known by another sum: loss and accuracy,
        as plain numbers, are ln(e + C - 1) then, since the loss is that less the probability of the right answer. Warn
        when they are at the end, to within 0.05 and a fifth of the accuracy, for the C that the params tell. Where
        these are silent, warn when the sum stayed the same, whatever C is, while the accuracy rose by 0.05 or more: in
        fifths of the run to within a quarter of that rise, and the loss did not begin above that sum. Where it did not
        rise, the last layer tells C, or the first training loss, if the run is no fine-tune. In any case the loss has
        to lie 0.2 (that of the other samples 0.1) above that of a model which is as often right, gives its answers just
        that probability and all others the same.

        With no accuracy, or one of 0.8 and more at the end, the least that a second softmax leaves tells by itself:
        ln(e + C - 1) - 1, for the C of the params or the last layer, near whose logarithm the loss began. Warn when the
        training loss levelled off no further above it than `floor_share` of the way to guessing, and never lay below.

    Known limits:
        Needs accuracy and loss of the same samples, and four classes, or three where these add up, or a loss that comes
        to its floor. Losses of bounded logits (cosines at a high temperature, rates of spiking neurons) are
        underconfident on purpose, as are targets that are smoothed by 0.3, or those of a teacher at a high temperature.
        A loss with other terms in it (of a second task, say) may look so, and so may one that contrasts a few samples,
        beside the accuracy of a probe.

    What to do:
        Give logits to the loss, without a softmax. If the loss is still falling, train longer.

    References:
        Guo et al. (2017), on calibration; torch.nn.CrossEntropyLoss expects unnormalised logits.
    """

    code = "LOS012"
    name = "underconfident"
    symptom = Symptom.NOT_LEARNING
    headline = ("sum",)

    least_sum: Annotated[
        float, Threshold("loss and accuracy, each as a share of its range", "fraction", "calibration", gt=1, le=2)
    ] = 1.4
    floor_share: Annotated[
        float,
        Threshold(
            "how near to the least loss of two softmaxes, as a share of its range", "fraction", "calibration", ge=0
        ),
    ] = 0.06
    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            *(Need(role=role, optional=True) for role in ("val_accuracy", "train_accuracy", "val_loss")),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        finite = len(evidence.first("train_loss").finite())
        if finite < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {finite} finite values of the training loss")
        found = self._hardly_preferred(evidence)
        if found.verdict is Verdict.WARN:
            return found
        return self._two_softmaxes(evidence) or self._at_the_floor(evidence) or found

    def _two_softmaxes(self, evidence: Evidence) -> Finding | None:
        """That loss and accuracy add up as behind two softmaxes, where they do."""
        shares = next((one for one in measures(evidence, self.min_points) if one.name == "accuracy"), None)
        paired = pairs(evidence, shares, self.min_points) if shares is not None else []
        ends = [_End(*_ends(loss, accuracy)[:2]) for _, loss, accuracy in paired]
        lowest = _lowest(evidence.first("train_loss"))
        for (whose, loss, accuracy), end in zip(paired, ends, strict=True):
            answers = end.answers
            kept_up = lowest >= _NEAR_FLOOR * (end.sum - 1.0) and end.excess(answers) >= _EXCESS
            excused = min(one.excess(answers) for one in ends) < _LITTLE_EXCESS
            if kept_up and not excused and _adds_up(loss, accuracy, end, evidence):
                return Finding(
                    verdict=Verdict.WARN,
                    message=f"the {whose} accuracy ends at {percent(end.accuracy)}, the loss at {number(end.loss)}: "
                    f"they add up as behind two softmaxes among about {number(float(round(answers)))} answers",
                    remedy=_REMEDY,
                    measured={"loss": end.loss, "accuracy": end.accuracy, "classes": answers},
                )
        return None

    def _at_the_floor(self, evidence: Evidence) -> Finding | None:
        """That the training loss levelled off at the least that two softmaxes allow, where it did."""
        loss, count = evidence.first("train_loss").finite(), classes(evidence) or classes_of_head(evidence)
        if count is None or count < 2 or len(loss) < _FEWEST_AT_FLOOR or not begins_at_chance(loss.values, count):
            return None
        floor = log(e + count - 1.0) - 1.0
        level = median(loss.values[-(len(loss) // 4) :])
        above = (level - floor) / (log(count) - floor)
        right = [one.end for one in measures(evidence, 1) if one.name == "accuracy"]
        near = above <= self.floor_share and loss.values.min() >= floor * (1.0 - _ROUNDED) and levelled_off(loss)
        if not near or any(end < _MOSTLY for end in right):
            return None
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss levelled off at {number(level)}, just above {number(floor)}: the least there is behind "
            f"two softmaxes among {number(float(count))} answers",
            remedy=_REMEDY,
            measured={"loss": level, "floor": floor, "classes": count},
        )

    def _hardly_preferred(self, evidence: Evidence) -> Finding:
        head = classes_of_head(evidence) if classes(evidence) is None else None
        count = classes_of_loss(evidence, head)
        if count is None or count < _FEWEST_CLASSES:
            return Finding(verdict=Verdict.SKIP, message="the loss does not begin as a cross-entropy of four classes")
        shares = next((one for one in measures(evidence, self.min_points) if one.name == "accuracy"), None)
        paired = pairs(evidence, shares, self.min_points) if shares is not None else []
        told = classes(evidence) is not None or count == head
        if paired and not told and all(_begins_late(one[2], count, evidence) for one in paired):
            return Finding(
                verdict=Verdict.SKIP,
                message="most is right at the first loss, which does not tell the number of classes",
            )
        if not paired:
            of_others = "no loss was logged of the samples that the accuracy is of"
            message = of_others if shares is not None else "no accuracy was logged"
            return Finding(verdict=Verdict.SKIP, message=message)
        lowest = _lowest(evidence.first("train_loss"))
        two_softmaxes = log(e + count - 1.0)
        found = [(whose, *_ends(loss, accuracy)) for whose, loss, accuracy in paired]
        sums = [_sum(loss, accuracy, count) for _, loss, accuracy, _ in found]
        worst = int(np.argmax(sums))
        whose, loss, accuracy, error = found[worst]
        measured = {"loss": loss, "accuracy": accuracy, "sum": sums[worst], "classes": count}
        seen = f"the {whose} accuracy ends at {percent(accuracy)}, the loss at {number(loss)}"
        sure = sums[worst] - _SURE * error >= self.least_sum
        doubted = min(sums) < _AS_SOUND
        allowed = lowest >= _NEAR_FLOOR * (two_softmaxes - 1.0) and loss >= two_softmaxes - accuracy - _SURER_THAN_RIGHT
        if not sure or doubted or loss >= log(count) or not allowed:
            return Finding(verdict=Verdict.PASS, message=seen, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{seen}, {loss / log(count):.0%} of what guessing has: the answers are right, but hardly "
            "preferred",
            remedy=_REMEDY,
            measured=measured,
        )


class _End(NamedTuple):
    """Loss and accuracy of the same samples, at the end."""

    loss: float
    accuracy: float

    @property
    def sum(self) -> float:
        return self.loss + self.accuracy

    @property
    def answers(self) -> float:
        """Among how many answers two softmaxes have this sum."""
        return exp(min(self.sum, _BEYOND)) - (e - 1.0)

    def excess(self, answers: float) -> float:
        """How far the loss lies above that of a model which gives its answers the probability that they are right, and
        all others the same; minus infinity for fewer than three.
        """
        wrong = 1.0 - self.accuracy
        if answers < _FEWEST_ADDED or not 0.0 <= wrong < 1.0:
            return -np.inf
        return self.loss + self.accuracy * log(self.accuracy) + (wrong and wrong * log(wrong / (answers - 1.0)))


def _are_told(end: _End, evidence: Evidence) -> bool:
    """Whether the number of answers is the one that the params, or else the last layer or the first training loss
    tell.
    """
    known: list[float] = [*counts(evidence)]
    if not known:
        head, first = classes_of_head(evidence), float(evidence.first("train_loss").finite().values[0])
        known = [one for one in (head, None if is_fine_tuning(evidence) else exp(min(first, _BEYOND))) if one]
    near = min(_SAME_COUNT, _OF_ACCURACY * end.accuracy)
    return any(abs(log(count + e - 1.0) - end.sum) <= near for count in known)


def _adds_up(loss: Series, accuracy: Series, end: _End, evidence: Evidence) -> bool:
    """Whether the sum of loss and accuracy is that of the number of answers, or stayed the same while the accuracy
    rose: which it must have, where that rose and no param tells the number.
    """
    right = np.interp(loss.steps, accuracy.steps, accuracy.values)
    size = max(1, len(right) // 10)
    gain = float(right[-size:].mean() - right[:size].mean())
    if counts(evidence) or gain < max(_GAIN, _SURE_GAIN * scatter(right) * sqrt(2.0 / size)):
        return _are_told(end, evidence)
    sums = [float(part.mean()) for part in np.array_split(loss.values + right, _PARTS)]
    return max(sums) - min(sums) <= _IN_STEP * gain and median(loss.values[:_SMOOTHED]) <= end.sum + _SAME_COUNT


def _begins_late(accuracy: Series, count: float, evidence: Evidence) -> bool:
    """Whether half of the way from guessing was done when the log begins: by means of epochs, say."""
    first, losses = float(accuracy.values[0]), evidence.first("train_loss").finite()
    seen = int(np.searchsorted(losses.steps, accuracy.steps[0], side="right"))
    return seen <= 1 and first - 1.0 / count > 0.5 * (1.0 - 1.0 / count)


def _ends(loss: Series, accuracy: Series) -> tuple[float, float, float]:
    """The means of the last tenths, and the standard error of the accuracy's: its noise is that of the second half."""
    losses, shares = (one.values[-max(_SMOOTHED, len(one) // 10) :] for one in (loss, accuracy))
    noise = scatter(accuracy.values[len(accuracy) // 2 :])
    return float(np.mean(losses)), float(np.mean(shares)), noise / sqrt(len(shares))


def _sum(loss: float, accuracy: float, count: float) -> float:
    return loss / log(count) + (accuracy - 1.0 / count) / (1.0 - 1.0 / count)


def _lowest(loss: Series) -> float:
    """The lowest mean of three neighbours."""
    values = loss.finite().values
    return float(np.convolve(values, np.full(_SMOOTHED, 1.0 / _SMOOTHED), mode="valid").min())
