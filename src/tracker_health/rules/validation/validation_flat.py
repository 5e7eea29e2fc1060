"""GEN002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Evidence
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.text import contrast, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ValidationFlat(CurveRule):
    """The training loss falls, the validation loss never does.

    What it finds:
        A validation loss that never came below its own first evaluations or far below the start of training, while the
        training loss fell clearly.

    Why it matters:
        What is learnt holds only for the training samples. Their labels are shuffled, or the loader yields the same
        batch again and again. Or the validation data are different, or prepared differently.

    How it decides:
        Warn when the training loss clearly fell by `train_descent` of its start, and the validation loss did not. That
        means three things. It did not clearly fall. Its second half is likely less than `min_gain` of its start below
        that start. Its best level is no further than `train_descent` below the start of the training loss.

    Known limits:
        What was learnt before the first evaluation shows only in the training loss's start. Losses of margins
        (triplets, hinge) depend on how many samples are compared.

    Worked example:
        train_loss: 1.45 1.3 1.15 1.0 0.9 0.8 0.7 0.6 0.5 0.4 0.35 0.3
        val_loss: 1.39 1.38 1.39 1.38 1.39 1.39 1.38 1.39 1.39 1.38 1.39 1.39
        gives: gain_share 0.007194, start 1.45, train_end 0.3
        warn: the training loss fell by four fifths, the validation loss stayed at ln 4.

    What to do:
        Check that labels belong to their inputs, that the loader shuffles, and that both sets are prepared alike.

    References:
        Zhang et al. (2017), networks fit random labels.
    """

    code = "GEN002"
    name = "validation-flat"
    symptom = Symptom.NOT_LEARNING
    headline = ("gain_share",)
    role, also, fewest = "val_loss", ("train_loss",), FEWEST_POINTS

    min_gain: Annotated[
        float, Threshold("gain of the validation loss that is one, as a share of its start", "fraction", "design", ge=0,
                         le=1)
    ] = 0.02  # fmt: skip
    train_descent: Annotated[
        float, Threshold("fall of the training loss that is a clear one", "fraction", "calibration", gt=0, le=1)
    ] = 0.2

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        train = evidence.curve("train_loss")
        if train is None:
            return Finding.skipped("no training loss to compare the validation loss with")
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        start, began = abs(curve.start.value), abs(train.start.value)
        gained = curve.descent.surely_above(0.0) or not curve.kept.surely_below(self.min_gain * start, LIKELY)
        learnt = train.start.value - curve.best.value > self.train_descent * began
        fell = train.kept.surely_above(self.train_descent * began)
        measured: dict[str, float | int] = {
            "start": train.start.value, "train_end": train.end.value, "val_best": curve.best.value,
            "gain_share": curve.descent.value / start if start else 0.0,
            "train_share": train.kept.value / began if began else 0.0,
        }  # fmt: skip
        lowest, first = contrast(curve.best.value, curve.start.value)
        if gained or learnt or not fell:
            return Finding.passed(f"the best validation loss is {lowest}, it began at {first}", measured)
        rose = (curve.end - curve.start).surely_above(0.0)
        of_validation = went(curve.start.value, curve.end.value, "rose") if rose else f"stayed: {first} at first"
        return Finding(
            verdict=Verdict.WARN,
            message=f"the training loss {went(train.start.value, train.end.value, 'fell')}, but the validation loss "
            f"{of_validation}, {lowest} at best",
            remedy="check that labels belong to their inputs, that the loader shuffles, and that validation data is "
            "prepared like training data",
            measured=measured,
            steps=(int(curve.steps[0]),),
            confidence="high" if curve.sure else "low",
        )
