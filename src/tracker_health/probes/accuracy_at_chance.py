"""GEN003."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import coarseness, mann_kendall, median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import (
    NEEDS,
    Chance,
    Shares,
    chances_of,
    mean_at_end,
    measures,
    percent,
    scatter,
    without_a_loss,
)
from tracker_health.probes._run import is_fine_tuning
from tracker_health.probes._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.result import Finding
from tracker_health.verdict import Verdict

_SURE = 3.0
_LAST = 3
_ENOUGH = 0.1  # of what lies above guessing: what must be told from the noise
_SHARE = 0.2  # of the chance level
_MANY, _FINE = 10, 0.002  # values, where their last digit is no smaller than that
_LITTLE, _RARE, _HALF = 0.05, 0.05, 0.5
_HARDLY, _EARLY, _FEW_DOZENS = 0.001, 0.2, 60
_BELOW = 0.5  # of the level of guessing
_REMEDY = (
    "check that inputs and labels belong together in both sets and are prepared alike; then change the learning rate "
    "tenfold"
)


@dataclass(frozen=True, kw_only=True)
class AccuracyAtChance(Probe):
    """The accuracy is that of guessing, all along.

    What it finds:
        An accuracy, or an area under the ROC curve, that was at the level of guessing from the first tenth of the run
        to its end: of the validation samples, or of the training samples where no others were looked at.

    Why it matters:
        A loss may fall all the same: because the model learns how frequent each answer is, forgets a bad beginning, or
        learns its training samples by heart. It says nothing about new samples.

    How it decides:
        Guessing is one in the number of classes, from the run's params; of the area under the curve, one half. Where
        no param tells, it is the nearest such share with up to 20 classes, and that of one class more or fewer, where
        the loss of the same samples has the logarithm of that number to within 10 %; if the first loss lies within
        30 % of that logarithm, or its median within 10 % (30 % of a loss that began above all of those logarithms),
        and the last layer of the saved weights does not choose among more or fewer (to within 30 % of that
        logarithm). All thirds of the values after the first tenth have to lie at the level of guessing: within
        `tolerance` (or a fifth of the level, if that is less), or within three standard errors of the third's mean,
        or down to half of it; so have the last three values, by the noise before. That error must be small enough to
        show a tenth of what lies above guessing. Fail when neither accuracy ever left it, and the level is known for
        sure; warn otherwise. Warn also, whatever guessing has, when all values after the first fifth are one number
        from 5 % to `constant_below`, to the last digit (at least ten of them, or five with three digits or more). One
        of a half and more may be the share of the more frequent of two answers: then all values have to be that
        number, and the loss of the same samples, or else the training loss, must have come down by less than 5 %.
        Where accuracies are all that was logged, the rule finds what is wrong, and is skipped where nothing is. Warn,
        too, when ten values and more below a half all lie within a thousandth and do not climb or fall for sure, in a
        log that begins with the training, unless a trained model was trained on: such a model gives the most frequent
        answer.

    Known limits:
        A classifier that gives one answer only is right as often as that is: found where the classes are about equally
        frequent. Needs 5 values.

    What to do:
        Look whether inputs and labels belong together in each set, and whether both are prepared alike; then change
        the learning rate tenfold.

    References:
        Zhang et al. (2017), networks fit random labels.
    """

    code = "GEN003"
    name = "accuracy-at-chance"
    symptom = Symptom.NOT_LEARNING
    headline = ("tolerance",)

    tolerance: Annotated[
        float, Threshold("distance from guessing that counts as there", "share of answers", "design", gt=0, le=0.5)
    ] = 0.02
    constant_below: Annotated[
        float, Threshold("accuracy below which one number all along is none that was learnt", "share of answers",
                         "design", gt=0, le=1)
    ] = 0.9  # fmt: skip
    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding(verdict=Verdict.SKIP, message=OF_ANOTHER_MODEL)
        there = list(measures(evidence, self.min_points))
        constant = next((one for one in there if self._never_changed(one, evidence)), None)
        if constant is not None:
            return _constant(constant)
        still = next((one for one in there if _hardly_changed(one.judged)), None)
        if still is not None and not is_fine_tuning(evidence):
            return _still(still)
        known = [(shares, chance) for shares in there for chance in chances_of(evidence, shares)]
        if not known:
            return Finding(verdict=Verdict.SKIP, message="no level of guessing is known, or too few values")
        guessing = next((one for one in known if self._guesses(one[0].judged.values, one[1].share)), None)
        if guessing is not None:
            return self._finding(*guessing)
        if without_a_loss(evidence):
            return Finding(verdict=Verdict.SKIP, message="above guessing, but no loss was logged beside it")
        shares, chance = known[0]
        end = shares.end
        message = f"the {shares.name} ends at {percent(end)}, guessing has {percent(chance.share)}"
        return Finding(verdict=Verdict.PASS, message=message, measured={"end": end, "chance": chance.share})

    def _never_changed(self, shares: Shares, evidence: Evidence) -> bool:
        """Whether the values are one number, that of a model which gives every sample the same answer, or never changed
        one.
        """
        values = shares.judged.values
        rest = values[len(values) // 5 :]
        value = float(rest[0])
        if rest.min() != rest.max() or not _RARE < value < self.constant_below:
            return False
        if len(rest) < (_MANY if coarseness(value) > _FINE else self.min_points):
            return False
        # A loss comes down to what the frequencies of the answers make of it. Of two answers one may be rare.
        return value < _HALF or (values.min() == values.max() and _hardly_came_down(shares, evidence))

    def _guesses(self, values: FloatArray, chance: float) -> bool:
        """Whether the values stay at the level of guessing from the first tenth on, for sure."""
        rest = values[len(values) // 10 :]
        if len(rest) < self.min_points:
            return False
        noise, near = scatter(rest), min(self.tolerance, _SHARE * chance)
        # What leaves at last makes its own third noisy.
        before = scatter(rest[: len(rest) * 2 // 3]) / sqrt(_LAST)
        if not _is_at(float(np.mean(rest[-_LAST:])), chance, max(near, _SURE * before)):
            return False
        thirds = [(float(np.mean(part)), noise / sqrt(len(part))) for part in np.array_split(rest, 3)]
        return all(
            _SURE * error <= _ENOUGH * (1.0 - chance) and _is_at(mean, chance, max(near, _SURE * error))
            for mean, error in thirds
        )

    def _finding(self, shares: Shares, chance: Chance) -> Finding:
        train = shares.train if shares.held_out is not None else None
        learnt = train is not None and not self._guesses(train.values, chance.share)
        whose = "training" if shares.held_out is None else "validation"
        message = (
            f"the {whose} {shares.name} is that of guessing all along: {percent(shares.end)} at the end, guessing has "
            f"{percent(chance.share)}"
        )
        measured: dict[str, float | int] = {"end": shares.end, "chance": chance.share, "points": len(shares.judged)}
        if train is not None:
            measured["train_end"] = mean_at_end(train.values)
            message += f"; of the training samples it is {percent(measured['train_end'])}"
        return Finding(
            verdict=Verdict.FAIL if chance.told and shares.train is not None and not learnt else Verdict.WARN,
            message=message,
            remedy=_REMEDY,
            measured=measured,
        )


def _hardly_changed(shares: Series) -> bool:
    """Whether hardly one answer in a thousand changed since the first value, of answers that mostly are wrong: in a
    log that begins with the training, and not in one direction.
    """
    values = shares.values
    begins = shares.steps[0] <= max(1.0, _EARLY * float(shares.steps[-1]))
    within = len(values) >= _MANY and values.min() > _RARE and values.max() < min(_HALF, values.min() + _HARDLY)
    return bool(begins and within) and abs(mann_kendall(values[:_FEW_DOZENS])) < _SURE


def _is_at(mean: float, chance: float, near: float) -> bool:
    """Whether it is at the level of guessing: no further above it, and not far below."""
    return -max(near, _BELOW * chance) <= mean - chance <= near


def _hardly_came_down(shares: Shares, evidence: Evidence) -> bool:
    """Whether the loss of the same samples, or else the training loss, is there and has come down by little."""
    losses = [evidence.find(role) for role in ("val_loss" if shares.held_out is not None else "", "train_loss")]
    values = next((one.finite().values for one in losses if one is not None and len(one.finite()) > 1), None)
    return values is not None and float(values[0]) - median(values[-_LAST:]) < _LITTLE * abs(float(values[0]))


def _still(shares: Shares) -> Finding:
    whose, values = "training" if shares.held_out is None else "validation", shares.judged.values
    return Finding(
        verdict=Verdict.WARN,
        message=f"the {whose} {shares.name} stays between {percent(float(values.min()))} and "
        f"{percent(float(values.max()))} in all of {len(values)} values, as where the most frequent answer is given",
        remedy=_REMEDY,
        measured={"end": shares.end, "points": len(values)},
    )


def _constant(shares: Shares) -> Finding:
    whose, n = "training" if shares.held_out is None else "validation", len(shares.judged)
    return Finding(
        verdict=Verdict.WARN,
        message=f"the {whose} {shares.name} is {percent(shares.end)} in all but the first of {n} values: every sample "
        "gets the same answer, or no answer ever changed",
        remedy=_REMEDY,
        measured={"end": shares.end, "points": n},
    )
