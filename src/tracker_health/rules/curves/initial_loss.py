"""LOS009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Evidence, Part
from tracker_health.facts.accuracy import measures
from tracker_health.facts.chance import chance_of_loss
from tracker_health.facts.intent import is_distillation
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class InitialLoss(CurveRule):
    """The loss begins far above guessing.

    What it finds:
        A training loss that begins several times as high as that of a model which knows nothing.

    Why it matters:
        An untrained model should be unsure. One that is sure and wrong was initialised with weights that are too large,
        or gets inputs that were never scaled. Its first steps are spent on undoing that, and some units never recover.

    How it decides:
        The number of classes, or the size of the vocabulary, comes from the params or the last layer. Warn when the
        start is `factor` times its logarithm, and likely above it. What shows a cross-entropy is an accuracy. So does a
        loss clearly below that logarithm from `soon` to twice that share of the run. Neither is needed from
        `plain_factor` times on.

    Known limits:
        Needs a cross-entropy in nats, averaged and not summed. A distillation is skipped if the params say so. A log
        that begins in mid-training is not recognised as one. A fine-tune that keeps a head for other labels begins as
        high.

    Worked example:
        train_loss: 24 10 5 2.1 1.8 1.5 1.3 1.2 1.1 1.0
        train_accuracy: 0.1 0.12 0.15 0.3 0.4 0.5 0.55 0.6 0.62 0.65
        param num_classes: 10
        gives: classes 10, chance 2.303, first 24
        warn: guessing has ln 10 = 2.303, and 24 is ten times that.

    What to do:
        Scale the inputs to mean 0 and deviation 1; use the framework's default initialisation.

    References:
        The cross-entropy of a uniform guess among C classes is ln C.
    """

    code = "LOS009"
    name = "initial-loss"
    symptom = Symptom.UPDATE_SIZE
    also, fewest = ("val_accuracy", "train_accuracy", Part.WEIGHTS), FEWEST_POINTS

    factor: Annotated[float, Threshold("first loss over that of guessing", "ratio", "design", gt=1)] = 3.0
    plain_factor: Annotated[
        float, Threshold("the same where nothing else shows a cross-entropy", "ratio", "calibration", gt=1)
    ] = 30.0
    soon: Annotated[
        float,
        Threshold("share of the run after which an untrained certainty is unlearnt", "fraction", "design", gt=0, le=1),
    ] = 0.125

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        chance = chance_of_loss(evidence)
        if chance is None or is_distillation(evidence):
            said = "no number of classes is known that the loss may be of, by num_classes, vocab_size or the last layer"
            return Finding.skipped("a teacher's answers are no classes" if chance else said)
        begins, level = curve.start, chance.loss
        measured = {"classes": int(chance.answers), "chance": level, "first": begins.value}
        answers = any(one.name == "accuracy" for one in measures(evidence, 1))
        shown = answers or curve.between(self.soon, 2.0 * self.soon).surely_below(level)
        high = begins.value > level * (self.factor if shown else self.plain_factor)
        if not (high and begins.surely_above(level, LIKELY)):
            first, guessed = contrast(begins.value, level)
            message = f"the loss begins at {first}; {chance.said} has {guessed}"
            return Finding.passed(message, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss begins at {number(begins.value)}, {number(begins.value / level)} times that of "
            f"{chance.said}",
            remedy="scale the inputs, and initialise the weights as the framework does",
            measured=measured,
            steps=(int(curve.series.steps[0]),),
            confidence="high" if curve.sure else "low",
        )
