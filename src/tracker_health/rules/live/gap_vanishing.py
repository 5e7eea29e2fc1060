"""GAP004."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import median
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import Track, need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import listing, number
from tracker_health.words.verdict import Verdict

_NUMBER = re.compile(r"(?:^|\.)(\d{1,6})(?:\.|$)")


@dataclass(frozen=True, kw_only=True)
class GapVanishing(Probe):
    """Gradients fade from the last layer to the first.

    What it finds:
        A model in which the gradient of the same parameter shrinks a thousandfold on its way to the first layer.

    Why it matters:
        The first layers are barely trained: the model is only as deep as its gradients reach.

    How it decides:
        Parameters whose names differ in one number are one parameter in several layers. For each that is in
        `min_layers` layers or more, the gradient's root mean square is taken, its median over the run's second
        half. Warn when that of most shrinks by `depth_ratio` or more from the last layer to the first. It has
        to be smaller in each layer of the first half than in each of the second. A loss that clearly came down
        by half passes. It needs `min_points` points.

    Known limits:
        Parameters of one name can differ in kind (in an `nn.Sequential`), which blurs the order. Optimizers that divide
        by the gradient's size train through some of it.

    Worked example:
        gap grads/0.weight: max=1e-5*4 mean=0*4 var=1e-12*4
        gap grads/1.weight: max=1e-4*4 mean=0*4 var=1e-10*4
        gap grads/2.weight: max=1e-3*4 mean=0*4 var=1e-8*4
        gap grads/3.weight: max=0.01*4 mean=0*4 var=1e-6*4
        gap grads/4.weight: max=0.1*4 mean=0*4 var=1e-4*4
        gives: depth_ratio 10000, fading_parameters 1
        warn: the root mean squares rise from 1e-6 to 0.01, tenfold in each layer: 10,000 is above `depth_ratio`.

    What to do:
        Add residual connections or normalisation, initialise as the framework does, replace saturating activations.

    References:
        Hochreiter (1991); Glorot and Bengio (2010).
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 4 of 4 of the faults that it may see. There the median parameter's gradient grows 0.6-fold at most along
        the depth of a healthy model.
    """

    code = "GAP004"
    name = "gap-vanishing"
    symptom = Symptom.VANISHING

    depth_ratio: Annotated[float, Threshold("last layer's gradient over the first's", "ratio", "design", gt=1)] = 1e3
    min_layers: Annotated[int, Threshold("layers needed", "layers", "design", ge=5)] = 5
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("grads", min_points=self.min_points), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        stacks = _stacks(tracks(evidence, "grads", self.min_points))
        judged = {name: levels for name, levels in stacks.items() if len(levels) >= self.min_layers}
        if not judged:
            why = f"no parameter is in {self.min_layers} numbered layers with gradients above 0"
            return Finding(verdict=Verdict.SKIP, message=why)
        ratios = {name: levels[-1] / levels[0] for name, levels in judged.items()}
        faded = [name for name in judged if ratios[name] >= self.depth_ratio and _rises(judged[name])]
        loss, middle = descent(evidence), median(list(ratios.values()))
        measured = {"depth_ratio": middle, "parameters": len(judged), "fading_parameters": len(faded)}
        if 2 * len(faded) <= len(judged) or (loss is not None and loss.sure and loss.share >= 0.5):
            message = f"from the first layer to the last, gradients grow {number(middle)}-fold"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"gradients shrink {number(middle)}-fold from the last layer to the first ({listing(faded)})",
            remedy="add residual connections or normalisation, or replace saturating activations",
            measured=measured,
            details={"ratios": ratios},
        )


def _rises(levels: list[float]) -> bool:
    half = len(levels) // 2
    return max(levels[:half]) < min(levels[half:])


def _stacks(every: list[Track]) -> dict[str, list[float]]:
    """Per parameter its gradient's level in each layer, from the first to the last; layers without one left out."""
    found: dict[str, dict[int, float]] = {}
    for one in every:
        place, size = _NUMBER.search(one.name), median(one.rms[len(one.steps) // 2 :])
        if place is not None and size > 0:
            name = f"{one.name[: place.start(1)]}*{one.name[place.end(1) :]}"
            found.setdefault(name, {})[int(place.group(1))] = size
    return {name: [layers[index] for index in sorted(layers)] for name, layers in found.items()}
