"""LOS012."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, exp, hypot, log
from typing import Annotated, NamedTuple

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Estimate, Evidence, Part
from tracker_health.facts.accuracy import accuracy_said, measures, pairs
from tracker_health.facts.chance import LARGEST, Chance, chance_of
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Underconfident(CurveRule):
    """The answers are right, but the loss is that of a model which barely prefers them.

    What it finds:
        A classifier whose accuracy is high while its cross-entropy stays as high as two softmaxes keep it.

    Why it matters:
        The loss cannot come down, and most of the gradient is lost: a softmax is applied before a loss that applies it
        itself, or the logits are kept small.

    How it decides:
        Params or last layer say the answers C, if the loss begins near ln C. Else the loss does, unless twice 1 / C are
        right then. From `min_classes` on, two softmaxes leave L = ln(e + C - 1) less the accuracy. Warn when both add
        up to L, `slack` less or `unsure` of the accuracy more. No loss may be clearly below L - 1. It must be below
        guessing, likely `least_excess` above the least for that accuracy. Without accuracies, warn at `floor_share`
        above L - 1.

    Known limits:
        Losses of bounded logits (cosines at a high temperature) are underconfident on purpose. A loss with other terms
        in it may look so, and so may one that contrasts samples, next to the accuracy of a probe.

    Worked example:
        train_loss: 2.30 2.1 1.9 1.75 1.65 1.6 1.56 1.53 1.52 1.51 1.5 1.5
        train_accuracy: 0.1 0.4 0.6 0.75 0.85 0.9 0.94 0.97 0.98 0.98 0.99 0.99
        param num_classes: 10
        gives: sum 2.49, loss 1.5, accuracy 0.99
        warn: 99 % are right, at a loss of 1.5; a second softmax keeps it above 1.46.

    What to do:
        Give logits to the loss, without a softmax. If the loss is still falling, train longer.

    References:
        Guo et al. (2017), on calibration; torch.nn.CrossEntropyLoss expects unnormalised logits.
    """

    code = "LOS012"
    name = "underconfident"
    symptom = Symptom.NOT_LEARNING
    headline = ("sum",)
    also, fewest = ("val_accuracy", "train_accuracy", "val_loss", Part.WEIGHTS), FEWEST_POINTS

    slack: Annotated[float, Threshold("how far loss and accuracy may add up to less", "nats", "calibration", ge=0)] = (
        0.05
    )
    unsure: Annotated[
        float, Threshold("how far they may add up to more, as a share of the accuracy", "fraction", "calibration", ge=0)
    ] = 0.3
    least_excess: Annotated[
        float, Threshold("loss above that of a model that knows how often it is right", "nats", "calibration", gt=0)
    ] = 0.2
    floor_share: Annotated[
        float,
        Threshold(
            "how near to the least loss of two softmaxes, as a share of its range", "fraction", "calibration", ge=0
        ),
    ] = 0.06
    min_classes: Annotated[int, Threshold("answers that a loss chooses among", "classes", "design", ge=3)] = 3

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        told, start = chance_of(evidence), curve.start.value
        seen = Chance(exp(start), told=False) if told is None and 0.0 < start < LARGEST else None
        chance = told if told is not None and told.begins(curve.start) else seen
        if chance is None or chance.answers < self.min_classes:
            return Finding.skipped("the loss does not begin as a cross-entropy of several answers")
        least = _two_softmaxes(chance) - 1.0
        shares = next((one for one in measures(evidence, self.fewest) if one.name == "accuracy"), None)
        both = list(pairs(evidence, shares, self.fewest)) if shares is not None else []
        if not chance.told and any(wrong.start.value < 1.0 - 2 * chance.share for _, _, wrong in both):
            return Finding.skipped("much is right at the first loss, which does not tell the number of answers")
        ends = [_End(whose, loss.end, wrong.end) for whose, loss, wrong in both]
        kept_up = not curve.best.surely_below(least)
        if not ends:
            return self._at_the_floor(curve, chance, least) if kept_up and chance.told else _without_pairs()
        worst = max(ends, key=lambda one: one.surplus(chance))
        loss, right = worst.loss.value, worst.right
        measured = {"loss": loss, "accuracy": right, "classes": chance.answers, "sum": loss + right}
        said = f"the {worst.whose} accuracy ends at {accuracy_said(right)}, the loss at {number(loss)}"
        hardly_prefers = worst.surplus(chance) > self.least_excess and loss < chance.loss
        if not (kept_up and hardly_prefers and all(self._adds_up(one, chance) for one in ends)):
            return Finding.passed(said, measured)
        return _finding(f"{said}: they add up as behind two softmaxes, {chance.said}", curve, measured)

    def _adds_up(self, end: _End, chance: Chance) -> bool:
        """Whether both are together what two softmaxes leave, which answers that are not sure make more."""
        more = end.loss.value + end.right - _two_softmaxes(chance)
        return -self.slack <= more <= self.unsure * end.right

    def _at_the_floor(self, curve: Curve, chance: Chance, least: float) -> Finding:
        level, above = curve.end.value, self.floor_share * (chance.loss - least)
        if not all(0.0 <= one.value - least <= above for one in (curve.between(0.5, 1.0), curve.end)):
            return _without_pairs()
        end, floor = contrast(level, least)
        said = f"the loss levelled off at {end}, just above {floor}"
        measured = {"loss": level, "floor": least, "classes": chance.answers}
        return _finding(f"{said}: the least there is behind two softmaxes, {chance.said}", curve, measured)


class _End(NamedTuple):
    """The loss and the share of wrong answers of the same samples, at the end."""

    whose: str
    loss: Estimate
    wrong: Estimate

    @property
    def right(self) -> float:
        return 1.0 - self.wrong.value

    def surplus(self, chance: Chance) -> float:
        """How far, at least, the loss is likely above that of a calibrated model.

        That model gives its answers the probability that they are right, and all other answers the same one.
        """
        right, wrong = self.right, self.wrong.value
        others = wrong * log(wrong / (chance.answers - 1.0)) if wrong > 0.0 else 0.0
        least = -(right * log(right) if right > 0.0 else 0.0) - others
        return self.loss.value - least - LIKELY * hypot(self.loss.error, self.wrong.error)


def _two_softmaxes(chance: Chance) -> float:
    """What the loss behind two softmaxes and the probability of the right answer add up to, where that is near 1."""
    return log(e - 1.0 + chance.answers)


def _without_pairs() -> Finding:
    return Finding.skipped("no accuracy was logged of the samples that a loss is of")


def _finding(said: str, curve: Curve, measured: dict[str, float | int]) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=said,
        remedy="give logits to the loss, without a softmax before it; if the loss is still falling, train longer",
        measured=measured,
        steps=(int(curve.series.steps[0]),),
        confidence="high" if curve.sure else "low",
    )
