"""OPT008."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Attribution, Evidence, Need, Part
from tracker_health.evidence.numerics import median, robust_sigma
from tracker_health.layers import place_of
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import listing, number
from tracker_health.verdict import Verdict

_NAMED = (Attribution.NAMED, Attribution.CONTENT_CHECKED)
_LEAST_SPREAD = 0.3  # of a logarithm: layers that are alike to a third tell no outlier


@dataclass(frozen=True, kw_only=True)
class LayerOutlier(Probe):
    """One layer's gradients are of another size than those of its like.

    What it finds:
        A parameter whose second moment lies far from that of the same parameter in the other layers.

    Why it matters:
        A layer that gets gradients ten times larger or smaller than its like is often about to diverge, badly
        initialised, or cut off in part.

    How it decides:
        The logarithm of the mean second moment is compared with that of the same parameter in the other layers of the
        stack (`min_layers` or more): warn when it lies more than `max_score` robust standard deviations (median
        absolute deviation, at least 0.3) from their median. Never on an assumed order of the parameters: names must
        come from the file, or be confirmed by its contents.

    Known limits:
        The first and the last layer of a model often differ from the others. Needs second moments and names.

    What to do:
        Look at that layer's initialisation and activations, and at its weights' size in earlier checkpoints.

    References:
        Hampel (1974), on the median absolute deviation.
    """

    code = "OPT008"
    name = "layer-outlier"
    symptom = Symptom.UNSTABLE
    status = "preview"
    headline = ("largest_score",)

    max_score: Annotated[float, Threshold("robust standard deviations", "deviations", "design", gt=0)] = 6.0
    min_layers: Annotated[int, Threshold("layers needed", "layers", "design", ge=4)] = 5
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 50

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        if state is None or state.attribution not in _NAMED:
            why = "the names of the optimizer's parameters are not known for sure"
            return Finding(verdict=Verdict.SKIP, message=why)
        families: dict[tuple[str, str, str], list[tuple[float, str]]] = defaultdict(list)
        for tensor in state.with_second_moment:
            place, mean = place_of(tensor.name or ""), tensor.second_moment.mean if tensor.second_moment else 0.0
            if place is not None and 0 < mean < float("inf"):
                families[tensor.optimizer, place.stack, place.role].append((log(mean), tensor.label))
        scored = [one for family in families.values() if len(family) >= self.min_layers for one in _scores(family)]
        if not scored:
            return Finding(verdict=Verdict.SKIP, message=f"no parameter is there in {self.min_layers} layers")
        scored.sort(key=lambda one: -abs(one[0]))
        outliers = [one for one in scored if abs(one[0]) > self.max_score]
        measured = {"tensors": len(scored), "outliers": len(outliers), "largest_score": abs(scored[0][0])}
        if not outliers:
            message = f"no layer's gradients lie more than {number(abs(scored[0][0]))} deviations from its like"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        score, distance, name = outliers[0]
        times = sqrt(np.exp(min(abs(distance), 600.0)))
        how = f"{number(times)} times {'larger' if score > 0 else 'smaller'} than in the other layers"
        return Finding(
            verdict=Verdict.WARN,
            message=f"the gradients of {listing([name])} are {how}, {number(abs(score))} deviations away; "
            f"{len(outliers)} of {len(scored)} parameters are such outliers",
            remedy="look at that layer's initialisation and activations",
            measured=measured,
            details={"outliers": [label for _, _, label in outliers[:100]]},
        )


def _scores(family: list[tuple[float, str]]) -> list[tuple[float, float, str]]:
    """Per member: robust deviations from the median, distance from it, label."""
    values = np.array([value for value, _ in family])
    centre = median(values)
    spread = max(robust_sigma(values), _LEAST_SPREAD)
    return [((value - centre) / spread, value - centre, label) for value, label in family]
