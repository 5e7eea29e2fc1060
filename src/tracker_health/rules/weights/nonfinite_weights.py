"""WGT001."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan

from tracker_health.evidence import Evidence, Need, Part, TensorHeader
from tracker_health.evidence.parameters.words import parameters_of
from tracker_health.facts.saved import nan_saved
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class NonfiniteWeights(Probe):
    """Saved weights hold NaN or infinite values.

    What it finds:
        Tensors of the checkpoint's weights with a value that is NaN or infinite.

    Why it matters:
        One such value spreads through every output: the model is unusable, whatever the log says.

    How it decides:
        Any NaN in any tensor fails, and any infinity in a parameter. An infinity in a buffer is not counted: masks are
        made of them. Of a tensor that was not read to the last value, the values that were read tell.

    Known limits:
        Only a part of very large tensors is read, so a single value may be missed. In a file of 64-bit floats an
        infinite norm may be an overflow. It counts only where all values were read.

    Worked example:
        weights conv 2x2: 1,nan,1,1
        weights fc 2x2: 1*4
        gives: tensors 2, nonfinite_tensors 1
        fail: one of four values of the first tensor is NaN.

    What to do:
        Go back to the last checkpoint whose weights are finite; look for the step at which the loss or the gradient
        stopped being so.

    References:
        IEEE 754: NaN propagates through arithmetic.
    """

    code = "WGT001"
    name = "nonfinite-weights"
    symptom = Symptom.NONFINITE
    headline = ("nonfinite_tensors",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.WEIGHTS),)

    def judge(self, evidence: Evidence) -> Finding:
        tensors = evidence.weights.tensors if evidence.weights is not None else ()
        read = [one for one in tensors if one.rms is not None or one.stats is not None]
        if not read:
            return Finding(verdict=Verdict.SKIP, message="the weights hold no floating-point values that are read")
        parameters = {one.name for one in parameters_of(tensors)[0]}
        bad = [one for one in read if _has_nan(one) or (one.name in parameters and _has_infinity(one))]
        measured = {"tensors": len(read), "nonfinite_tensors": len(bad)}
        if not bad:
            message = f"all values of {count(len(read), 'tensor')} are finite"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        names = [one.name for one in bad]
        which = f"{count(len(read), 'tensor')} {'holds' if len(bad) == 1 else 'hold'}"
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{len(bad)} of {which} NaN or infinite values: {listing(names)}",
            remedy="go back to the last checkpoint with finite weights, and lower the learning rate or clip gradients",
            measured=measured,
            details={"tensors": names[:200]},
            onset=nan_saved(evidence.optimizer),
        )


def _has_nan(tensor: TensorHeader) -> bool:
    if tensor.stats is not None and tensor.stats.nonfinite:
        return isnan(tensor.stats.mean) or isnan(tensor.stats.rms)
    return tensor.rms is not None and isnan(tensor.rms)


def _has_infinity(tensor: TensorHeader) -> bool:
    if tensor.stats is not None:
        return tensor.stats.nonfinite > 0
    return tensor.rms is not None and not isfinite(tensor.rms) and tensor.dtype != "F64"
