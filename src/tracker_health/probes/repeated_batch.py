"""LOS013."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.evidence.numerics import in_range, median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import unaltered
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_HALF_AS_FAR = 0.5
_MAD_TO_SIGMA = 1.4826
_THIRD_DIFFERENCES = float(np.sqrt(20.0))  # standard deviation of those of noise of deviation 1


@dataclass(frozen=True, kw_only=True)
class RepeatedBatch(Probe):
    """The loss of single steps has no noise, as if every step saw the same batch.

    What it finds:
        A training loss, or a gradient norm, that is logged several times in each epoch and follows a smooth line to its
        last point.

    Why it matters:
        Batches differ, and so do their losses. Where they do not, the loader yields one batch again and again: the
        model learns that by heart, its loss comes down beautifully, and nothing else is learnt.

    How it decides:
        The roughness of a stretch is its noise, estimated from third differences, which a smooth line hardly has, over
        the size of the usual difference between neighbours: about 1 for noise alone. Warn when it is below
        `max_roughness` in the second and in the last third of the run, and each epoch, as the log or the run's params
        count them, holds `min_per_epoch` points or more: a training that takes all samples at once has one step in an
        epoch, and means over epochs have little noise. So it is with the gradient norm, which the log rounds less,
        below `max_norm_roughness`; not where more than a tenth of the neighbours are the same to five digits, as after
        clipping. It passes where the validation loss came down by half as large a share of itself as the training loss.
        In the first third a steep descent, of which every tenth step was logged, bends too much to tell.

    Known limits:
        Needs `min_points` points, and a number of epochs. Dropout and augmentation make noise of their own, and a log
        of few decimals looks rough when little is left: such runs pass. To fit one batch on purpose, as a test, looks
        the same; so does a training on all samples at once that takes several steps in what it calls an epoch, without
        a validation loss; and so does the slow moving average (a decay of 0.99) of batches that differ by 1 %.

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
        optional = (Need(role=role, optional=True) for role in ("epoch", "grad_norm", "val_loss"))
        return (Need(role="train_loss", min_points=self.min_points), *optional)

    def judge(self, evidence: Evidence) -> Finding:
        values = evidence.first("train_loss").finite().values
        n, epochs = len(values), _epochs(evidence)
        if n < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {n} finite points of the loss")
        if epochs is None:
            return Finding(verdict=Verdict.SKIP, message="neither the log nor the run's params count epochs")
        if n < self.min_per_epoch * epochs:
            said = f"the loss was logged {n} times in {number(epochs)} epochs: means over epochs have little noise"
            return Finding(verdict=Verdict.SKIP, message=said)
        rough = {"loss": _late_roughness(values)}
        norm = unaltered(evidence.find("grad_norm"))
        if norm is not None and len(norm.finite()) >= max(self.min_points, self.min_per_epoch * epochs):
            rough["gradient norm"] = _late_roughness(norm.finite().values)
        limits = {"loss": self.max_roughness, "gradient norm": self.max_norm_roughness}
        smooth = next((what for what, value in rough.items() if value <= limits[what]), None)
        measured = {"roughness": rough[smooth or "loss"], "points_per_epoch": n / epochs, "points": n}
        if smooth is not None and _generalises(evidence):
            message = "the loss has no noise, but the validation loss came down as well: of all samples at once"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        if smooth is None:
            message = f"the loss has the noise of different batches: {number(rough['loss'])} of its usual step"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the {smooth} has no noise ({number(rough[smooth])} of its usual step) at {n} points in "
            f"{number(epochs)} epochs: every step may have seen the same batch",
            remedy="print the samples of two batches in a row; look for next(iter(loader)) inside the loop",
            measured=measured,
        )


def _epochs(evidence: Evidence) -> float | None:
    """How many epochs the log spans, the one that it begins in included, or else were planned; None where nothing
    tells.
    """
    counted = evidence.find("epoch")
    values = counted.finite().values if counted is not None else np.empty(0)
    known = [float(values.max()) - float(values.min()) + 1.0] if len(values) else []
    progress = evidence.progress
    if progress is not None and progress.unit == "epochs":
        known.append(progress.planned)
    if evidence.info.epoch is not None:
        known.append(evidence.info.epoch)
    return max((epochs for epochs in known if 0 < epochs < np.inf), default=None)


def _generalises(evidence: Evidence) -> bool:
    """Whether the validation loss came down by half as large a share of itself as the training loss, or more."""
    held_out = evidence.find("val_loss")
    if held_out is None or len(held_out.finite()) < 2:
        return False
    falls = [
        1.0 - median(values[-3:]) / values[0]
        for values in (held_out.finite().values, evidence.first("train_loss").finite().values)
        if values[0] > 0
    ]
    return len(falls) == 2 and falls[0] >= _HALF_AS_FAR * falls[1] > 0


def _late_roughness(values: FloatArray) -> float:
    """The roughness of the second and of the last third, the larger of them."""
    return max(_roughness(third) for third in np.array_split(in_range(values)[0], 3)[1:])


def _roughness(values: FloatArray) -> float:
    """Noise over the usual difference between neighbours: 0 of a smooth line, about 1 of noise; 1 of a flat one."""
    usual = median(np.abs(np.diff(values)))
    noise = _MAD_TO_SIGMA * median(np.abs(np.diff(values, 3))) / _THIRD_DIFFERENCES
    return noise / usual if usual > 0 else 1.0
