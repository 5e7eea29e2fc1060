"""LOS006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, SURELY, Curve, Evidence, Part
from tracker_health.facts.chance import Chance, chance_fallen_to, chance_of_level, chance_of_loss
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ChanceLevel(CurveRule):
    """The loss ends at chance level.

    What it finds:
        A training loss that ends at the level of a model that gives every class or token the same probability.

    Why it matters:
        The model has learnt nothing about its inputs.

    How it decides:
        The number of classes comes from params or last layer. Fail when second half and end are within `tolerance` of
        its logarithm, at most `least_fall` below. Warn where noise is larger, or the start `began_above` higher. Fail
        after a fall from three times that to 30 % above. The accuracy, which may tell the number, never rose, or it
        began at 30 times. An unknown number is that at whose logarithm the loss stays within 1 %. Then warn, unless
        validation ends clearly below.

    Known limits:
        Needs a cross-entropy in nats. With unequal classes guessing has a lower loss, which is not known. If the number
        of classes is unknown, a loss may be near its logarithm by coincidence. Fine-tunes are then left alone.

    Worked example:
        train_loss: 2.35 2.32 2.31 2.30 2.31 2.30 2.30 2.31 2.30 2.30 2.31 2.30
        param num_classes: 10
        gives: end 2.305, classes 10, chance 2.303
        fail: ln 10 is 2.303, and the loss ends at 2.305.

    What to do:
        Check that inputs and labels belong together, and that the gradient reaches the first layer. Check that the
        learning rate is not ten times too high or too low.

    References:
        The cross-entropy of a uniform guess among C classes is ln C.
    """

    code = "LOS006"
    name = "chance-level"
    symptom = Symptom.NOT_LEARNING
    also, fewest = ("val_loss", "train_accuracy", "val_accuracy", Part.WEIGHTS), FEWEST_POINTS

    tolerance: Annotated[
        float, Threshold("distance from chance that counts as there", "fraction", "design", gt=0, le=1)
    ] = 0.02
    least_fall: Annotated[
        float, Threshold("fall below chance that counts as learning", "fraction", "calibration", gt=0)
    ] = 0.01
    began_above: Annotated[
        float, Threshold("start above chance up to which the loss is a cross-entropy", "fraction", "design", ge=0)
    ] = 0.3

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        told, fallen_to = chance_of_loss(evidence), chance_fallen_to(evidence)
        measured: dict[str, float | int] = {"end": curve.end.value}
        if fallen_to is not None:
            began = max(curve.start.value, curve.first.value)
            return self._finding(Verdict.FAIL, curve, fallen_to, measured, began)
        if told is not None:
            measured |= {"classes": int(told.answers), "chance": told.loss}
            if told.holds(curve, self.least_fall * told.loss, self.tolerance * told.loss):
                began = curve.start.value <= (1.0 + self.began_above) * told.loss
                sure = began and SURELY * curve.between(0.5, 1.0).error <= self.tolerance * told.loss
                return self._finding(Verdict.FAIL if sure else Verdict.WARN, curve, told, measured)
        guessed = chance_of_level(evidence) if told is None and not is_fine_tuning(evidence) else None
        if guessed is not None:
            return self._finding(Verdict.WARN, curve, guessed, measured)
        at = f"; {told.level}" if told is not None else ""
        return Finding.passed(f"the loss {went(curve.start.value, curve.end.value)}{at}", measured)

    @staticmethod
    def _finding(
        verdict: Verdict, curve: Curve, chance: Chance, measured: dict[str, float | int], began: float | None = None
    ) -> Finding:
        start = curve.start.value if began is None else began
        first, last = contrast(start, curve.end.value)
        return Finding(
            verdict=verdict,
            message=f"the loss began at {first} and ends at {last}, the chance level ({chance.level})",
            remedy="check that inputs and labels belong together and that the gradient reaches the first layer; then "
            "change the learning rate tenfold",
            measured=measured | {"classes": int(chance.answers), "chance": chance.loss},
            steps=(int(curve.series.steps[0]),),
            # Few points make large errors, and what fails in spite of those is sure.
            confidence="high" if curve.sure or verdict is Verdict.FAIL else "low",
        )
