"""WGT004."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod, sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part, TensorHeader, Weights
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import descent
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_EMBEDDING = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|tok|token|tokens|wte|wpe|pos|position|positions|relative_attention_bias)([._]|$)"
)
_TABLE = 4  # times as many rows as columns
_BACK_UP = 0.1  # of the way down


@dataclass(frozen=True, kw_only=True)
class WeightScale(Probe):
    """The weights are far larger or smaller than a layer's width allows.

    What it finds:
        A model whose matrices multiply what goes through them, or let almost nothing through.

    Why it matters:
        Weights that began too large give saturated units and a huge first loss, whose undoing takes the whole training;
        weights that are nearly nothing (pulled there by a weight decay that is too strong, or initialised there) leave
        a model that answers the same to everything.

    How it decides:
        A layer keeps the size of its inputs when its values have a root mean square of about 1 / sqrt(fan-in), so the
        product of the two is near 1 in every trained model; PyTorch's default begins at 0.58. Of the matrices that are
        no embeddings, by name or for having four times as many rows as columns and no bias, the median product is taken
        (of at least `min_matrices`). Warn above `max_scale`, with the smaller of fan-in and fan-out, and below
        `min_scale`, with the fan-in, unless the loss shows that small weights are enough: it came down by
        `healthy_descent` of its start or more, and ended at its best level.

    Known limits:
        Needs matrices in a file of weights, and no adapter. Models that scale their layers otherwise (sine networks,
        some of muP's) lie below; without a loss they are warned of.

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
        float, Threshold("share of its start by which a loss falls where small weights are meant so", "fraction",
                         "calibration", gt=0)
    ] = 0.25  # fmt: skip
    min_matrices: Annotated[int, Threshold("matrices needed", "matrices", "design", ge=1)] = 2

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.WEIGHTS), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        weights = evidence.weights
        known = _matrices(weights) if weights is not None else []
        if weights is None or weights.has_adapter or len(known) < self.min_matrices:
            return Finding(verdict=Verdict.SKIP, message="no two matrices of a whole model are read")
        scales = [_rms(one) * sqrt(prod(one.shape[1:])) for one in known]
        cautious = [_rms(one) * sqrt(min(one.shape[0], prod(one.shape[1:]))) for one in known]
        low, high = median(scales), median(cautious)
        measured = {"scale": low, "scale_by_smaller_side": high, "matrices": len(known)}
        if self.min_scale <= low and high <= self.max_scale:
            return Finding(
                verdict=Verdict.PASS, message=f"the weights have a scale of {number(low)}", measured=measured
            )
        small = low < self.min_scale
        loss = descent(evidence) if small else None
        if loss is not None and loss.sure and loss.share >= self.healthy_descent and loss.lost <= _BACK_UP:
            message = f"the weights have a scale of only {number(low)}, yet the loss came down by {loss.share:.0%}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured | {"descent": loss.share})
        return Finding(
            verdict=Verdict.WARN,
            message=f"the weights have a scale of {number(low if small else high)}, trained models mostly have 0.4 to "
            "4: they are almost nothing, by their initialisation or by their decay"
            if small
            else f"the weights have a scale of {number(high)}, trained models mostly have 0.4 to 4",
            remedy="lower the weight decay times the learning rate; look at the initialisation"
            if small
            else "initialise the weights as the framework does, and lower the learning rate",
            measured=measured,
        )


def _matrices(weights: Weights) -> list[TensorHeader]:
    """Those that are read, without embeddings."""
    with_bias = {one.name.rpartition(".")[0] for one in weights.tensors if "bias" in one.name.rpartition(".")[2]}
    read = [one for one in weights.tensors if one.rms is not None and np.isfinite(one.rms) and one.numel > 1]
    return [one for one in read if len(one.shape) >= 2 and not _is_embedding(one, with_bias)]


def _is_embedding(tensor: TensorHeader, with_bias: AbstractSet[str]) -> bool:
    """By its name, or by many rows and no bias beside them: a table of vectors, which begin normal.

    ``with_bias``: the modules that have one.
    """
    if _EMBEDDING.search(tensor.name):
        return True
    owner = tensor.name.rpartition(".")[0]
    return len(tensor.shape) == 2 and owner not in with_bias and tensor.shape[0] >= _TABLE * tensor.shape[1]


def _rms(tensor: TensorHeader) -> float:
    return tensor.rms or 0.0
