"""GAP003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import Track, need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapSaturated(Probe):
    """Activations at the ends of their range.

    What it finds:
        Modules with outputs from -1 to 1 (tanh) or 0 to 1 (sigmoid) that are nearly all at the ends of this range.

    Why it matters:
        There these functions are flat: almost no gradient passes.

    How it decides:
        A module whose maximum is never above 1, and `bound` or more in the second half, is taken for bounded.
        Its mean square has to be at least `share` at every measured step of the run's second half: then it is
        at -1 and 1. Or it is at least `share` of the mean, and the mean is `least_mean` away from 0 and 1: then
        it is at 0 and 1. Warn of both. The last module of the forward pass is left out: predictions may be
        sure. It needs `min_points` points.

    Known limits:
        Gates that are meant to be open or closed look the same. Means are averaged before they are squared, so that
        differences between instances hide some of it.

    Worked example:
        gap activations/tanh: max=1*4 mean=0*4 var=0.5,0.8,0.98,0.98
        gap activations/head: max=4*4 mean=0*4 var=1*4
        gives: bounded_modules 1, saturated_modules 1
        warn: 0 squared and the variance of 0.98 make a mean square of 0.98 in the second half, above `share`.

    What to do:
        Normalise what enters the module, initialise with smaller weights, or lower the learning rate.

    References:
        Glorot and Bengio (2010).
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 4 of 4 of the faults that it may see.
    """

    code = "GAP003"
    name = "gap-saturated"
    symptom = Symptom.SATURATED

    share: Annotated[
        float, Threshold("mean square over that of values at the ends", "fraction", "design", gt=0, le=1)
    ] = 0.95
    bound: Annotated[
        float, Threshold("maximum from which outputs reach the end of their range", "activation", "design", gt=0, le=1)
    ] = 0.99
    least_mean: Annotated[
        float, Threshold("mean of outputs of both ends, and 1 less the mean", "activation", "design", gt=0, le=0.5)
    ] = 0.1
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("activations", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = tracks(evidence, "activations", self.min_points)[:-1]
        bounded = [one for one in every if self._is_bounded(one)]
        saturated = [one.name for one in bounded if one.lasts(self._at_the_ends(one))]
        measured = {"bounded_modules": len(bounded), "saturated_modules": len(saturated)}
        if not saturated:
            message = f"{count(len(bounded), 'bounded module')} seen, none at the ends of its range"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{len(saturated)} of {count(len(bounded), 'bounded module')} saturated: {listing(saturated)}",
            remedy="normalise what enters them, initialise with smaller weights, or lower the learning rate",
            measured=measured,
            details={"saturated": saturated[:100]},
        )

    def _at_the_ends(self, track: Track) -> npt.NDArray[np.bool_]:
        square = track.rms**2
        mixed = (track.mean > self.least_mean) & (track.mean < 1.0 - self.least_mean)
        ends: npt.NDArray[np.bool_] = (square >= self.share) | (mixed & (square >= self.share * track.mean))
        return ends

    def _is_bounded(self, track: Track) -> bool:
        return bool((track.maximum <= 1.0).all()) and track.lasts(track.maximum >= self.bound)
