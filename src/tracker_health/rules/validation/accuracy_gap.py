"""GEN004."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.facts.accuracy import NEEDS, Shares, accuracy_said, measures, wrong
from tracker_health.facts.chance import Chance, chance_of_start
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class AccuracyGap(Probe):
    """The validation accuracy stays far behind that of the training samples, or falls again.

    What it finds:
        An accuracy (or area under the ROC curve) that improves on the training samples only. Or one whose best
        validation value was lost again while training went on.

    Why it matters:
        The model memorises its training samples, the labels of one set do not belong to its inputs, or the sets are
        prepared differently. After a fall, the last checkpoint is not the best one.

    How it decides:
        From the share `late` of the run on, the gap has to be clearly more than `gap_share` of what the training
        accuracy gained since guessing. That is `least_gain` at least. Without a training accuracy, the wrong
        answers count that its cross-entropy leaves room for. Warn also when the validation accuracy ends clearly
        below its best: by `least_fall` and `fall_share` of its gain. Meanwhile that of the training must have
        lost no more than `train_lost`, and the validation loss be clearly above its best. It needs `min_points`
        points.

    Known limits:
        Needs 5 evaluations. A loss of both accuracies is a divergence, which the loss shows. An accuracy of another
        task than the training's, or of whole sequences next to that of tokens, does not count as a smaller gain.

    Worked example:
        train_accuracy: 0.3 0.5 0.7 0.8 0.9 0.95 0.98 0.99 1 1 1 1
        val_accuracy: 0.1 0.11 0.1 0.12 0.11 0.1 0.11 0.12 0.11 0.1 0.11 0.11
        train_loss: 2.2 1.8 1.2 0.8 0.5 0.3 0.1 0.05 0.02 0.01 0.01 0.01
        param num_classes: 10
        gives: gap_share 0.9889, start 0.1, train_end 1
        warn: the training accuracy gained 70 points, that of the validation samples one.

    What to do:
        Check that the labels belong to their inputs and that both sets are prepared alike. Otherwise take the best
        checkpoint; more data, augmentation, dropout or weight decay.

    References:
        Prechelt (1998), Early stopping: but when?
    """

    code = "GEN004"
    name = "accuracy-gap"
    symptom = Symptom.OVERFIT
    headline = ("gap_share", "end")

    gap_share: Annotated[
        float, Threshold("distance of the two accuracies, as a share of the training's gain", "fraction", "calibration",
                         gt=0)
    ] = 0.5  # fmt: skip
    fall_share: Annotated[
        float, Threshold("fall of the validation accuracy, as a share of what it had gained", "fraction", "calibration",
                         gt=0)
    ] = 0.2  # fmt: skip
    late: Annotated[
        float, Threshold("share of the run from which the two are compared", "fraction", "design", ge=0, le=1)
    ] = 0.66
    least_gain: Annotated[
        float, Threshold("gain of the training accuracy that is one", "share of answers", "design", gt=0)
    ] = 0.2
    least_fall: Annotated[
        float, Threshold("fall of the validation accuracy that is one", "share of answers", "design", ge=0)
    ] = 0.05
    train_lost: Annotated[
        float, Threshold("fall of the training accuracy that goes with it", "share of answers", "design", ge=0)
    ] = 0.05
    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        every = [(shares, wrong(shares.held_out)) for shares in measures(evidence, self.min_points)]
        known = [(shares, curve) for shares, curve in every if curve is not None]
        if not known:
            return Finding.skipped("too few values of a validation accuracy")
        for shares, curve in known:
            chance = Chance(2) if shares.name == "AUC" else chance_of_start(evidence)
            train = wrong(shares.train) or (_room(evidence, chance) if shares.name != "AUC" else None)
            finding = self._apart(shares, curve, train, chance) or self._fell(shares, curve, train, chance, evidence)
            if finding is not None:
                return finding
        shares = known[0][0]
        return Finding.passed(f"the validation {shares.name} ends at {accuracy_said(shares.end)}", {"end": shares.end})

    def _apart(self, shares: Shares, curve: Curve, train: Curve | None, chance: Chance | None) -> Finding | None:
        """The finding that the two are too far apart."""
        if train is None:
            return None
        reached, followed = (one.between(self.late, 1.0) for one in (train, curve))
        began, at_first = train.start.value, max(0.0, curve.first.value - train.at_step(int(curve.steps[0])).value)
        if chance is not None:
            began, at_first = max(began, 1.0 - chance.share), 0.0
        gain, gap = began - reached.value, followed - reached
        if gain < self.least_gain or not gap.surely_above(at_first + self.gap_share * gain):
            return None
        first, last, other = contrast(1.0 - began, 1.0 - reached.value, 1.0 - followed.value, show=accuracy_said)
        went = f"rose from {first} to {last}" if shares.train is not None else f"is at least {last}, as its loss shows"
        measured = {"start": 1.0 - began, "train_end": 1.0 - reached.value, "val_end": 1.0 - followed.value}
        measured["gap_share"] = (gap.value - at_first) / gain
        said = f"the training {shares.name} {went}, that of the validation samples is {other}"
        said = f"{said}: most of the gain holds for the training samples only"
        return _finding(said, measured, curve, int(curve.series.steps[0]))

    def _fell(
        self, shares: Shares, curve: Curve, train: Curve | None, chance: Chance | None, evidence: Evidence
    ) -> Finding | None:
        """The finding that the validation accuracy fell from its best level."""
        began = max(curve.start.value, 1.0 - chance.share if chance is not None else 0.0)
        fall, needed = curve.end - curve.best, max(self.fall_share * (began - curve.best.value), self.least_fall)
        losses = evidence.curve("val_loss")
        as_low = losses is not None and not (losses.end - losses.best).surely_above(0.0)
        as_good = train.at_step(curve.best_step).value + self.train_lost if train is not None else 1.0
        lost = train is not None and shares.train is not None and train.end.value > as_good
        if lost or as_low or fall.value <= needed or not fall.surely_above(0.0):
            return None
        high, end = 1.0 - curve.best.value, 1.0 - curve.end.value
        where, measured = curve.series.where(curve.best_step), {"best": high, "end": end, "best_step": curve.best_step}
        best, last = contrast(high, end, show=accuracy_said)
        said = f"the validation {shares.name} fell from {best} about {where} to {last}"
        found, what = _finding(said, measured, curve, curve.best_step), f"the best validation {shares.name}"
        return replace(found, onset=Onset.on(curve.series, curve.best_step, what, is_best=True))


def _room(evidence: Evidence, chance: Chance | None) -> Curve | None:
    """The most wrong answers that the training loss leaves room for: one has a probability of a half at most, and costs
    ln 2 or more. None where it is no cross-entropy among several classes.
    """
    curve = evidence.curve("train_loss")
    if curve is None or chance is None or chance.answers <= 2:
        return None
    values = np.minimum(curve.series.values / log(2.0), 1.0)
    return Curve.of(replace(curve.series, values=values))


def _finding(said: str, measured: dict[str, float | int], curve: Curve, step: int) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=said,
        remedy=f"check that labels belong to their inputs and both sets are prepared alike; else take the checkpoint "
        f"next to {curve.series.place(curve.best_step)}, add data or regularise",
        measured=measured,
        steps=(step,),
        confidence="high" if curve.sure else "low",
    )
