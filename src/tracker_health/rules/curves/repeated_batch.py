"""LOS013."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.evidence.numerics import roughness
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class RepeatedBatch(Probe):
    """The loss of single steps has no noise, as if every step saw the same batch.

    What it finds:
        A training loss, or a gradient norm, that is logged several times in each epoch and follows a smooth line to its
        last point.

    Why it matters:
        Batches differ, and so do their losses. Where they do not, the loader yields one batch again and again. The
        model memorises that batch: its loss comes down, and nothing else is learnt.

    How it decides:
        The roughness of a stretch is its noise, by third differences, over the usual difference between
        neighbours. Of noise alone it is about 1, of a smooth line 0. Warn when the second and the last third
        have less than `max_roughness` (of the gradient norm `max_norm_roughness`). Each epoch, by log or
        params, must have `min_per_epoch` points: means over epochs have little noise. It passes where the
        validation loss kept half as large a share of itself as the training loss. It needs `min_points` points.

    Known limits:
        Needs `min_points` points, and a number of epochs. Dropout, augmentation and a log of few decimals make noise of
        their own: such runs pass. Fitting one batch on purpose looks the same. So do, without a validation loss,
        several steps per epoch on all samples at once. So do slow moving averages of batches that barely differ.

    Worked example:
        train_loss: 900 841 784 729 676 625 576 529 484 441 400 361 324 289 256 225 196 169 144 121 100 81 64 49 36 25
            16 9 4 1
        epoch: 0 1 2 3 4 5 6 7 8 9
        gives: points_per_epoch 3
        warn: third differences of the squares from 30 to 1 are 0, and so is the roughness; each epoch has 3 points.

    What to do:
        Print what identifies the samples of two batches in a row; look for `next(iter(loader))` inside the loop, and
        for a data set whose `__getitem__` does not use its index.

    References:
        Gasser, Sroka and Jennen-Steinmetz (1986), on the noise of a smooth regression from its differences.
    """

    code = "LOS013"
    name = "repeated-batch"
    symptom = Symptom.OVERFIT
    headline = ("roughness",)

    max_roughness: Annotated[
        float, Threshold("noise over the usual difference of neighbours", "ratio", "calibration", gt=0)
    ] = 0.015
    max_norm_roughness: Annotated[float, Threshold("the same of the gradient norm", "ratio", "calibration", gt=0)] = (
        0.06
    )
    min_per_epoch: Annotated[float, Threshold("points of the loss in an epoch", "points", "design", gt=1)] = 3.0
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=15)] = 30

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points), *Need.beside("epoch", "grad_norm", "val_loss"))

    def judge(self, evidence: Evidence) -> Finding:
        values, epochs = evidence.first("train_loss").finite().values, _epochs(evidence)
        n, norms = len(values), evidence.find("grad_norm")
        if n < self.min_points or epochs is None:
            few = f"only {n} finite points of the loss"
            none = "neither the log nor the run's params count epochs"
            return Finding.skipped(few if epochs is not None else none)
        if n < self.min_per_epoch * epochs:
            said = f"the loss was logged {n} times in {number(epochs)} epochs: means over epochs have little noise"
            return Finding.skipped(said)
        rough = {"loss": _late_roughness(values)}
        if norms is not None and len(norms.finite()) >= max(self.min_points, self.min_per_epoch * epochs):
            rough["gradient norm"] = _late_roughness(norms.finite().values)
        limits = {"loss": self.max_roughness, "gradient norm": self.max_norm_roughness}
        smooth = next((what for what, value in rough.items() if value <= limits[what]), None)
        measured = {"roughness": rough[smooth or "loss"], "points_per_epoch": n / epochs, "points": n}
        if smooth is None or _generalises(evidence):
            noise = "has no noise, but the validation loss came down, too" if smooth else "has the noise of batches"
            message = f"the loss {noise}: {number(measured['roughness'])} of its usual step"
            return Finding.passed(message, measured, sure=False)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the {smooth} has no noise ({number(rough[smooth])} of its usual step) at {n} points in "
            f"{number(epochs)} epochs: every step may have seen the same batch",
            remedy="print the samples of two batches in a row; look for next(iter(loader)) inside the loop",
            measured=measured,
            steps=(int(evidence.first("train_loss").finite().steps[n // 2]),),
        )


def _epochs(evidence: Evidence) -> float | None:
    """How many epochs the log spans, the one that it begins in included, or else were planned; None where nothing
    tells.
    """
    counted, progress = evidence.find("epoch"), evidence.progress
    values = counted.finite().values if counted is not None else np.empty(0)
    spanned = float(np.ptp(values)) + 1.0 if len(values) else 0.0
    planned = progress.planned if progress is not None and progress.unit == "epochs" else 0.0
    known = (spanned, planned, evidence.info.epoch or 0.0)
    return max((epochs for epochs in known if 0 < epochs < np.inf), default=None)


def _generalises(evidence: Evidence) -> bool:
    """Whether the validation loss kept half as large a share of itself as the training loss, or more."""
    kept = [
        one.kept.value / one.start.value
        for one in (evidence.curve("val_loss"), evidence.curve("train_loss"))
        if one is not None and one.start.value > 0
    ]
    return len(kept) == 2 and kept[0] >= 0.5 * kept[1] > 0


def _late_roughness(values: FloatArray) -> float:
    """The roughness of the second and of the last third, the larger of them; before, a steep descent bends too much."""
    return max(roughness(quarter) for quarter in np.array_split(values[len(values) // 3 :], 2))
