"""GEN006."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Annotated

import numpy as np

from tracker_health.evidence import FEWEST_POINTS, Curve, Evidence, FloatArray, accumulation
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScaledTrainingLoss(CurveRule):
    """The training loss is a whole multiple of the validation loss.

    What it finds:
        A training loss that is 4, 8, 16, ... times the validation loss from the first evaluation to the last.

    Why it matters:
        It is a sum over the batches of one update where a mean is meant. If the gradient is that of the sum, each step
        is as many times too large. Otherwise only the logged number is wrong.

    How it decides:
        At each evaluation the level of the training loss is divided by the validation loss. The factor is the number of
        accumulated batches that the params give, if that is `least_factor` or more. Else it is the power of two from
        there to `most_factor` next to the first quotient.
        Warn when the median quotient of the first half and that of the second half both are within `near` of it.

    Known limits:
        A training loss with further parts (regularisation, auxiliary heads) may be a multiple by coincidence. A sum
        over a number that is no power of two shows only where the params give it.

    Worked example:
        train_loss: 9.2 8.1 7.2 6.5 5.9 5.4 5.0 4.7
        val_loss: 2.3 2.02 1.8 1.63 1.48 1.36 1.26 1.18
        gives: first_quotient 4, last_quotient 3.977, factor 4
        warn: the quotients are 4, and so is the factor.

    What to do:
        Divide the loss by the number of accumulated batches, where it is summed and where it is logged.

    References:
        Hugging Face Transformers 4.46: the loss of accumulated batches is a mean over all their tokens.
    """

    code = "GEN006"
    name = "scaled-training-loss"
    symptom = Symptom.LOG_INTEGRITY
    since = "0.2.0"
    role, also, fewest = "val_loss", ("train_loss",), FEWEST_POINTS

    least_factor: Annotated[int, Threshold("smallest factor that counts", "ratio", "design", ge=2)] = 4
    most_factor: Annotated[int, Threshold("largest power of two that counts", "ratio", "design", ge=2)] = 256
    near: Annotated[
        float, Threshold("distance of the quotient from the factor, as a share of it", "fraction", "design", gt=0, le=1)
    ] = 0.15

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        train = evidence.curve("train_loss")
        if train is None:
            return Finding.skipped("no training loss to compare the validation loss with")
        quotients = _quotients(train, curve)
        if len(quotients) < self.fewest:
            return Finding.skipped("fewer than four evaluations above 0 are among the points of the training loss")
        first, second = (float(np.median(half)) for half in np.array_split(quotients, 2))
        factor = self._factor(evidence, first)
        measured: dict[str, float | int] = {"first_quotient": first, "last_quotient": second, "factor": factor}
        early, late = contrast(first, second)
        said = f"the training loss is {early} times the validation loss in the first half, {late} after"
        if not all(abs(one - factor) <= self.near * factor for one in (first, second)):
            return Finding.passed(said, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the training loss is {factor} times the validation loss from the first evaluation on "
            f"({early}, then {late} times)",
            remedy=f"divide it by {factor}: it looks like a sum over accumulated batches; check the gradient, too",
            measured=measured,
            confidence="high" if curve.sure else "low",
        )

    def _factor(self, evidence: Evidence, quotient: float) -> int:
        """The number of batches that a loss may be a sum of: that of the params, or else a power of two."""
        batches = accumulation(evidence.info.params)
        if batches >= self.least_factor:
            return batches
        near = min(max(quotient, float(self.least_factor)), float(self.most_factor))
        return int(min(max(2 ** round(log2(near)), self.least_factor), self.most_factor))


def _quotients(train: Curve, held_out: Curve) -> FloatArray:
    """The training loss over the validation loss, at the evaluations that are among its points."""
    series = held_out.series
    inside = (series.steps >= train.series.steps[0]) & (series.steps <= train.last_step) & (series.values > 0.0)
    levels = np.array([train.at_step(step).value for step in series.steps[inside]])
    return np.asarray(levels / series.values[inside])
