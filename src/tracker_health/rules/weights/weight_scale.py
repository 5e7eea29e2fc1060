"""WGT004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class WeightScale(Probe):
    """The weights are far larger or smaller than a layer's width allows.

    What it finds:
        A model whose matrices greatly amplify what goes through them, or let almost nothing through.

    Why it matters:
        Weights that began too large give saturated units and a huge first loss. Undoing that takes the whole training.
        A model whose weights are nearly 0 gives the same answer to everything. They began there, or a weight decay that
        is too strong pulled them there.

    How it decides:
        A layer keeps the size of its inputs when its values have a root mean square of about 1 / sqrt(fan-in). So the
        product is near 1 in trained models; PyTorch begins at 0.58. Of the matrices that are no embeddings the median
        product is taken (of `min_matrices` or more). Warn above `max_scale`, with the smaller of fan-in and fan-out.
        Warn below `min_scale`, unless the loss came down by `healthy_descent` and lost no more than `lost_again`. Fail
        above `exploded` where it did not come down.

    Known limits:
        Needs matrices in a file of weights, and no adapter. Models that scale their layers otherwise (sine networks,
        some of muP's) are below. Without a loss they get a warning.

    Worked example:
        weights fc1.weight 4x4: 5*16
        weights fc2.weight 4x4: 5*16
        gives: scale 10, scale_by_smaller_side 10
        warn: fan-in and fan-out are 4; 5 times the root of 4 is 10, above `max_scale`.

    What to do:
        Look at the initialisation, and at the weight decay times the learning rate.

    References:
        Glorot and Bengio (2010); He et al. (2015).
    """

    code = "WGT004"
    name = "weight-scale"
    symptom = Symptom.UPDATE_SIZE
    headline = ("scale",)

    max_scale: Annotated[float, Threshold("largest median scale", "ratio", "calibration", gt=1)] = 5.0
    min_scale: Annotated[float, Threshold("smallest median scale", "ratio", "calibration", gt=0, le=1)] = 0.15
    healthy_descent: Annotated[
        float, Threshold("fall of the loss where small weights are intended, as a share of its start", "fraction",
                         "calibration", gt=0)
    ] = 0.25  # fmt: skip
    min_matrices: Annotated[int, Threshold("matrices needed", "matrices", "design", ge=1)] = 2

    lost_again: Annotated[
        float, Threshold("share of its descent that the loss may have lost again", "fraction", "design", ge=0)
    ] = 0.1
    exploded: Annotated[float, Threshold("scale of weights that exploded", "ratio", "design", gt=1)] = 200.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.WEIGHTS), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        known = evidence.parameters.scaled
        if evidence.weights is None or evidence.weights.has_adapter or len(known) < self.min_matrices:
            return Finding(verdict=Verdict.SKIP, message="no two matrices of a whole model are read")
        low, high = median([one.scale for one in known]), evidence.parameters.weight_scale
        measured = {"scale": low, "scale_by_smaller_side": high, "matrices": len(known)}
        usual, loss = "(usual 0.4 to 4, {} {})", descent(evidence)
        if self.min_scale <= low and high <= self.max_scale:
            message = f"the weights are {number(low)} times the size of a fresh layer (usual 0.4 to 4)"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        learnt = loss is not None and loss.sure and loss.share >= self.healthy_descent
        if high > self.max_scale:
            shown, limit = contrast(high, self.max_scale)
            lost = high > self.exploded and loss is not None and not learnt
            return Finding(
                verdict=Verdict.FAIL if lost else Verdict.WARN,
                message=f"the weights are {shown} times the size of a fresh layer {usual.format('limit', limit)}"
                f"{', and the loss did not come down: they exploded' if lost else ''}",
                remedy="lower the learning rate, and initialise the weights as the framework does",
                measured=measured,
            )
        if loss is not None and learnt and loss.lost <= self.lost_again:
            message = (
                f"the weights are only {number(low)} times the size of a fresh layer, yet the loss came down by "
                f"{percent(loss.share)}"
            )
            return Finding(verdict=Verdict.PASS, message=message, measured=measured | {"descent": loss.share})
        shown, limit = contrast(low, self.min_scale)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the weights are {shown} times the size of a fresh layer "
            f"{usual.format('at least', limit)}: almost nothing, by initialisation or decay",
            remedy="lower the weight decay times the learning rate; look at the initialisation",
            measured=measured,
        )
