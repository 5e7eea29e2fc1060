"""GEN004."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import (
    NEEDS,
    Shares,
    chance_of,
    least_accuracy,
    mean_at_end,
    measures,
    percent,
    samples_of,
    scatter,
    without_a_loss,
)
from tracker_health.probes._run import is_fine_tuning
from tracker_health.probes._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.result import Finding
from tracker_health.roles import HELD_OUT_WORDS, words_of
from tracker_health.verdict import Verdict

_SURE = 3.0
_LAST = 3
_FEWEST = 3
_TRAIN_LOST = 0.05
_LEAST_GAINED = 0.05
_CHANCE_ANSWERS = 9  # three times their own root, by which as many changed answers may differ
_FEWEST_OF_ALL = 5
_FALL = 0.1  # share of answers
_WORSE, _LEARNT = 1.05, 0.8
_FAR = 0.5  # share of answers
_BEGINS = 0.2  # of the steps
_REMEDY = "check that labels belong to their inputs and both sets are prepared alike; else add data or regularise"


@dataclass(frozen=True, kw_only=True)
class AccuracyGap(Probe):
    """The validation accuracy stays far behind that of the training samples, or falls again.

    What it finds:
        An accuracy (or area under the ROC curve) whose gain holds for the training samples only, or whose best
        validation value was lost again while training went on.

    Why it matters:
        The model learns its training samples by heart, the labels of one set do not belong to its inputs, or the sets
        are prepared differently. After a fall, the last checkpoint is not the best one.

    How it decides:
        What was gained is counted from the level of guessing where that is known (see GEN003), otherwise from the first
        training value, and from what the two were apart at the first evaluation. Warn when the training accuracy gained
        at least `least_gain`, and its last tenth lies further above the last third of the validation values than
        `gap_share` of that gain and beyond three standard errors of the two. Where no training accuracy was logged, the
        least one counts that the training loss leaves room for, if it begins as a cross-entropy among the classes that
        the params tell, or among 3 to 20 (a wrong answer costs ln 2 at least), and no loss is lower than that allows
        beside an accuracy of the same samples. Warn also when the best three neighbouring validation values lie above
        the last ones by `fall_share` of what had been gained and three standard errors, with at least three evaluations
        after them, while the training accuracy lost no more than 5 %; it has to have gained 5 %, and to lose more than
        nine answers, where the values tell of how many samples they are. And warn when the first value is the best: the
        others lie a tenth below it in the middle and a twentieth at least, no later validation loss comes within 5 % of
        its first, and the training loss fell by a fifth. Whatever the values begin with, warn where all thirds of the
        training values lie above those of the validation values by a half of all answers, and these rose by no more
        than 5 %: of the same measure by its name, in a log that begins with the training, and not of fine-tunes.

    Known limits:
        Needs 5 evaluations. What is lost with the training accuracy is a divergence, which the loss tells. An accuracy
        of whole sequences lies below that of the tokens, which the loss is of; and that of another task (a probe beside
        a contrastive loss) has nothing to do with the training's.

    What to do:
        Check that the labels belong to their inputs and that both sets are prepared alike. Otherwise take the best
        checkpoint; more data, augmentation, dropout or weight decay.

    References:
        Prechelt (1998), Early stopping: but when?
    """

    code = "GEN004"
    name = "accuracy-gap"
    symptom = Symptom.OVERFIT
    headline = ("gap_share",)

    gap_share: Annotated[
        float, Threshold("distance of the two accuracies, as a share of the training's gain", "fraction", "calibration",
                         gt=0)
    ] = 0.5  # fmt: skip
    fall_share: Annotated[
        float, Threshold("fall of the validation accuracy, as a share of what it had gained", "fraction", "calibration",
                         gt=0)
    ] = 0.2  # fmt: skip
    least_gain: Annotated[
        float, Threshold("gain of the training accuracy that is one", "share of answers", "design", gt=0)
    ] = 0.2
    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding(verdict=Verdict.SKIP, message=OF_ANOTHER_MODEL)
        known = [shares for shares in measures(evidence, self.min_points) if shares.held_out is not None]
        if not known:
            return Finding(verdict=Verdict.SKIP, message="too few values of a validation accuracy")
        for shares in known:
            finding = (
                self._apart(evidence, shares)
                or self._by_heart(evidence, shares)
                or self._fell(evidence, shares)
                or _fell_at_once(evidence, shares)
                or (None if is_fine_tuning(evidence) else _apart_throughout(shares))
            )
            if finding is not None:
                return finding
        if without_a_loss(evidence):
            return Finding(verdict=Verdict.SKIP, message="no fall and no gap, but no loss was logged beside it")
        message = f"the validation {known[0].name} ends at {percent(known[0].end)}"
        return Finding(verdict=Verdict.PASS, message=message, measured={"end": known[0].end})

    def _apart(self, evidence: Evidence, shares: Shares) -> Finding | None:
        """The finding that the two lie too far apart."""
        train, held_out = shares.train, shares.held_out
        if train is None or held_out is None:
            return None
        chance = chance_of(evidence, shares)
        begin = float(np.mean(train.values[: max(1, len(train) // 50)]))
        begin = min(begin, chance.share) if chance else begin
        reached, followed = _ends(train, held_out)
        gain, gap = (
            reached.mean - begin,
            reached.mean - followed.mean - (0.0 if chance else _gap_at_first(train, held_out)),
        )
        if not self._is_apart(gain, gap, reached, followed):
            return None
        return Finding(
            verdict=Verdict.WARN,
            message=f"the training {shares.name} rose from {percent(begin)} to {percent(reached.mean)}, that of the "
            f"validation samples is {percent(followed.mean)}: most of the gain holds for the training samples only",
            remedy=_REMEDY,
            measured={"start": begin, "train_end": reached.mean, "val_end": followed.mean, "gap_share": gap / gain},
        )

    def _by_heart(self, evidence: Evidence, shares: Shares) -> Finding | None:
        """The finding that the training loss leaves no room for as many wrong answers as the validation samples get."""
        found = least_accuracy(evidence) if shares.name == "accuracy" and shares.train is None else None
        if found is None or shares.held_out is None:
            return None
        train, chance = found
        if len(train) < self.min_points:
            return None
        reached, followed = _ends(train, shares.held_out)
        gain, gap = reached.mean - chance, reached.mean - followed.mean
        if not self._is_apart(gain, gap, reached, followed):
            return None
        return Finding(
            verdict=Verdict.WARN,
            message=f"the training loss leaves no room for less than {percent(reached.mean)} right answers, of the "
            f"validation samples {percent(followed.mean)} are: most of the gain holds for the training samples only",
            remedy=_REMEDY,
            measured={"least_train_end": reached.mean, "val_end": followed.mean, "gap_share": gap / gain},
        )

    def _is_apart(self, gain: float, gap: float, reached: _Level, followed: _Level) -> bool:
        error = float(np.hypot(reached.error, followed.error))
        return gain >= self.least_gain and gap - _SURE * error > self.gap_share * gain

    def _fell(self, evidence: Evidence, shares: Shares) -> Finding | None:
        """The finding that the validation accuracy fell from its best level."""
        held_out, train = shares.held_out, shares.train
        if held_out is None or len(held_out) < 2 * _LAST:
            return None
        values = held_out.values
        smooth = np.convolve(values, np.full(_LAST, 1.0 / _LAST), mode="valid")
        best = int(np.argmax(smooth))
        after = len(smooth) - 1 - best
        high, end = float(smooth[best]), float(smooth[-1])
        chance = chance_of(evidence, shares)
        gained = high - (chance.share if chance else float(values.min()))
        # The best of many noisy means lies above their level.
        error = scatter(values) / sqrt(_LAST)
        # All evaluations are of the same samples: a few other answers, of some twenty, are no fall.
        samples = samples_of(values)
        if gained < _LEAST_GAINED or (samples is not None and (high - end) * samples <= _CHANCE_ANSWERS):
            return None
        needed = max(self.fall_share * gained, (_SURE + sqrt(2.0 * np.log(len(smooth)))) * error)
        if after < _LAST or high - end <= needed or not _went_on(train, int(held_out.steps[best + 1])):
            return None
        step = int(held_out.steps[best + 1])
        return Finding(
            verdict=Verdict.WARN,
            message=f"the validation {shares.name} fell from {percent(high)} about step {step} to {percent(end)}",
            remedy=f"take the checkpoint next to step {step}; stop there, add data or regularise",
            measured={"best": high, "end": end, "best_step": step},
            steps=(step,),
        )


def _fell_at_once(evidence: Evidence, shares: Shares) -> Finding | None:
    """The finding that the first evaluation was the best by far, of the loss as well, while the training loss fell."""
    if shares.held_out is None:
        return None
    values, losses = shares.held_out.values, [evidence.find(role) for role in ("val_loss", "train_loss")]
    held_out, train = (one.finite().values if one is not None else np.empty(0) for one in losses)
    if min(len(held_out), len(train)) < _FEWEST_OF_ALL:
        return None
    fell = median(values[1:]) <= values[0] - _FALL and values[1:].max() < values[0] - _FALL / 2.0
    rose = held_out[0] > 0 and held_out[1:].min() > _WORSE * held_out[0]
    learnt = median(train[-_LAST:]) < _LEARNT * train[0]
    if not (fell and rose and learnt):
        return None
    end = mean_at_end(values)
    return Finding(
        verdict=Verdict.WARN,
        message=f"the validation {shares.name} fell from {percent(float(values[0]))} at the first evaluation to "
        f"{percent(end)}, its loss rose, and that of the training fell",
        remedy=_REMEDY,
        measured={"best": float(values[0]), "end": end, "best_step": int(shares.held_out.steps[0])},
        steps=(int(shares.held_out.steps[0]),),
    )


def _apart_throughout(shares: Shares) -> Finding | None:
    """The finding that the training accuracy lay far above the other from the start, which did not rise."""
    train, held_out = shares.train, shares.held_out
    if train is None or held_out is None or min(len(train), len(held_out)) < _FEWEST_OF_ALL:
        return None
    late = train.steps[0] > max(1.0, _BEGINS * float(train.steps[-1]))
    if late or _measure_of(train) != _measure_of(held_out):
        return None
    reached, followed = ([float(np.mean(part)) for part in np.array_split(one.values, 3)] for one in (train, held_out))
    gap = min(above - below for above, below in zip(reached, followed, strict=True))
    if gap < _FAR or max(followed) - followed[0] > _LEAST_GAINED:
        return None
    return Finding(
        verdict=Verdict.WARN,
        message=f"the training {shares.name} was {percent(reached[0])} from the start, that of the validation samples "
        f"{percent(followed[0])}, and at the end {percent(followed[-1])}",
        remedy=_REMEDY,
        measured={"start": reached[0], "train_end": reached[-1], "val_end": followed[-1], "gap": gap},
    )


def _measure_of(shares: Series) -> frozenset[str]:
    """The words of a name without those that tell of which samples it is: an accuracy of tokens, or of answers."""
    return frozenset(words_of(shares.name)).difference(("train", "training", "tr"), HELD_OUT_WORDS)


class _Level(NamedTuple):
    mean: float
    error: float


def _level(values: FloatArray, noise: float) -> _Level:
    return _Level(float(np.mean(values)), noise / sqrt(len(values)))


def _ends(train: Series, held_out: Series) -> tuple[_Level, _Level]:
    """The last tenth of the training values, and the last third of the validation values, which are fewer.

    Of the training values the mean since that third began, where it is lower: what has just been learnt is in few of
    the validation values.
    """
    late = max(_FEWEST, len(held_out) // 3)
    since = train.values[np.searchsorted(train.steps, held_out.steps[-late]) :]
    reached = _level(train.values[-max(_FEWEST, len(train) // 10) :], scatter(train.values))
    if len(since) and float(np.mean(since)) < reached.mean:
        reached = _level(since, scatter(train.values))
    return reached, _level(held_out.values[-late:], scatter(held_out.values))


def _gap_at_first(train: Series, held_out: Series) -> float:
    """How far apart the two already were at the first evaluation: what a training goes on from."""
    size = max(1, min(_LAST, len(train) // 20))
    at = int(np.clip(np.searchsorted(train.steps, held_out.steps[0]), size, len(train)))
    return max(0.0, float(np.mean(train.values[at - size : at])) - float(held_out.values[0]))


def _went_on(train: Series | None, step: int) -> bool:
    """Whether the training accuracy is about what it was at a step, or more. Unknown counts as so."""
    if train is None:
        return True
    size = max(2, len(train) // 10)
    at = int(np.clip(np.searchsorted(train.steps, step), size, len(train)))
    return float(np.mean(train.values[-size:])) >= float(np.mean(train.values[at - size : at])) - _TRAIN_LOST
