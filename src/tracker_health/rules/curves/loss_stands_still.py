"""LOS018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class LossStandsStill(CurveRule):
    """The loss is one number from its first points to the end.

    What it finds:
        A training loss that is the same to its last digit at all points but the first few.

    Why it matters:
        Different batches have different losses. One number means that the model gives one answer for all inputs, or
        that the loss is not computed from the batch. Often the gradient died in the first steps.

    How it decides:
        Of `long` points or more, warn where `stands_share` of them, up to the end, are one number other than 0.

    Known limits:
        A loss that a log rounds to two digits may stand still while it falls. An exact 0 is LOS002's.

    Worked example:
        train_loss: 241.774 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205
            118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205 118.6205
        gives: standing 22, points 23
        warn: 22 of 23 points, 96 %, are 118.6205.

    What to do:
        Print the model's answers to two different batches, and the gradient of its last layer.

    References:
        None: a comparison of values.
    """

    code = "LOS018"
    name = "loss-stands-still"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    long: Annotated[int, Threshold("points of which one may stand for chance", "points", "design", ge=4)] = 20
    stands_share: Annotated[
        float, Threshold("share of the points that are one number, up to the end", "fraction", "design", gt=0, le=1)
    ] = 0.95

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:  # noqa: ARG002
        measured: dict[str, float | int] = {"standing": curve.stood, "points": curve.points, "end": curve.end.value}
        since, end = int(curve.series.steps[-curve.stood]), float(curve.series.values[-1])
        if curve.points < self.long or curve.stood < self.stands_share * curve.points or end == 0.0:
            stood = f"the last {curve.stood} of {curve.points} points are one number"
            return Finding.passed(stood if curve.stood > 1 else "the loss moves to the end", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss is {end:.7g} at every point from {curve.series.where(since)} on",
            remedy="print the model's answers to two batches, and the gradient of its last layer",
            measured=measured,
            steps=(since,),
            confidence="high" if curve.sure else "low",
        )
