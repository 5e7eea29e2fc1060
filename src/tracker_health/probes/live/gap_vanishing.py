"""GAP004."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import mann_kendall
from tracker_health.facts.descent import descent
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes.live._gap import MIN_POINTS, Track, level, need, tracks
from tracker_health.result import Finding
from tracker_health.text import listing, number
from tracker_health.verdict import Verdict

_IN_ORDER = 2.0  # of the trend's standard normal score
_HALF = 0.5
_MOST_LAYERS = 200


@dataclass(frozen=True, kw_only=True)
class GapVanishing(Probe):
    """Gradients fade from the last layer to the first.

    What it finds:
        A model in which the gradient of the same parameter shrinks a thousandfold on its way to the first layer.

    Why it matters:
        The first layers are hardly trained: the model is only as deep as its gradients reach.

    How it decides:
        Parameters whose names differ in one number are one parameter in several layers. For each that is in
        `min_layers` layers or more, the level of the gradient's root mean square in the run's second half is followed
        through them. Warn when in most of these it falls towards the first layer, in order (Mann-Kendall above two), by
        more than `depth_ratio`, and the loss, where there is one, came down by less than half.

    Known limits:
        Parameters of one name can differ in kind (in an `nn.Sequential`), which blurs the order. Optimizers that divide
        by the gradient's size train through some of it.

    What to do:
        Add residual connections or normalisation, initialise as the framework does, replace saturating activations.

    References:
        Hochreiter (1991); Glorot and Bengio (2010); Mann (1945) and Kendall.
        The thresholds were chosen by hand; `benchmarks/faults/live.py` trains ten kinds of models to check them.
        There the median parameter's gradient grows 0.6-fold at most along the depth of a healthy model.
    """

    code = "GAP004"
    name = "gap-vanishing"
    symptom = Symptom.VANISHING
    status = "preview"

    depth_ratio: Annotated[float, Threshold("last layer's gradient over the first's", "ratio", "design", gt=1)] = 1e3
    min_layers: Annotated[int, Threshold("layers needed", "layers", "design", ge=5)] = 5
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = MIN_POINTS

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("grads", min_points=self.min_points), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        stacks = _stacks(tracks(evidence, "grads", self.min_points))
        judged = {name: np.array(levels) for name, levels in stacks.items() if len(levels) >= self.min_layers}
        if not judged:
            why = f"no parameter is in {self.min_layers} numbered layers with gradients above 0"
            return Finding(verdict=Verdict.SKIP, message=why)
        ratios = {name: float(levels[-1] / levels[0]) for name, levels in judged.items()}
        faded = [name for name in judged if ratios[name] >= self.depth_ratio and mann_kendall(judged[name]) > _IN_ORDER]
        loss = descent(evidence)
        middle = level(np.array(list(ratios.values())))
        measured = {"depth_ratio": middle, "parameters": len(judged), "fading_parameters": len(faded)}
        if 2 * len(faded) <= len(judged) or (loss is not None and loss.sure and loss.share >= _HALF):
            message = f"from the first layer to the last, gradients grow {number(middle)}-fold"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"gradients shrink {number(middle)}-fold from the last layer to the first ({listing(faded)})",
            remedy="add residual connections or normalisation, or replace saturating activations",
            measured=measured,
            details={"ratios": ratios},
        )


def _stacks(every: list[Track]) -> dict[str, list[float]]:
    """Per parameter its gradient's level in each layer, from the first to the last; layers without one left out."""
    found: dict[str, dict[int, float]] = {}
    for one in every:
        place = re.search(r"(?:^|\.)(\d{1,6})(?:\.|$)", one.name)
        size = level(one.rms[one.late])
        if place is not None and size > 0:
            name = f"{one.name[: place.start(1)]}*{one.name[place.end(1) :]}"
            found.setdefault(name, {})[int(place.group(1))] = size
    return {name: [layers[index] for index in sorted(layers)][:_MOST_LAYERS] for name, layers in found.items()}
