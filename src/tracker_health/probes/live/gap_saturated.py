"""GAP003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes.live._gap import MIN_POINTS, Track, need, tracks
from tracker_health.result import Finding
from tracker_health.text import count, listing
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapSaturated(Probe):
    """Activations at the ends of their range.

    What it finds:
        Modules with outputs from -1 to 1 (tanh) or 0 to 1 (sigmoid), nearly all of which lie at the ends.

    Why it matters:
        There these functions are flat: hardly any gradient passes.

    How it decides:
        A module whose maximum is from 0.99 to 1 at every measured step is taken for bounded. Warn when, at nine tenths
        of the steps of the run's second half and at the last, its mean square is at least `share` (then it is at -1 and
        1), or at least that share of a mean between 0.1 and 0.9 (at 0 and 1). The last module of the forward pass is
        left out: predictions may be sure.

    Known limits:
        Gates that are meant to be open or closed look the same. Means are averaged before they are squared, so that
        differences between instances hide some of it.

    What to do:
        Normalise what enters the module, initialise with smaller weights, or lower the learning rate.

    References:
        Glorot and Bengio (2010).
        The thresholds were chosen by hand; `benchmarks/faults/live.py` trains ten kinds of models to check them.
    """

    code = "GAP003"
    name = "gap-saturated"
    symptom = Symptom.SATURATED
    status = "preview"

    share: Annotated[
        float, Threshold("mean square over that of values at the ends", "fraction", "design", gt=0, le=1)
    ] = 0.95
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = MIN_POINTS

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("activations", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = tracks(evidence, "activations", self.min_points)[:-1]
        bounded = [one for one in every if _is_bounded(one)]
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
        gate = (track.mean > 0.1) & (track.mean < 0.9) & (square >= self.share * track.mean)
        found: npt.NDArray[np.bool_] = (square >= self.share) | gate
        return found


def _is_bounded(track: Track) -> bool:
    return bool((track.maximum <= 1.0 + 1e-6).all() and (track.maximum[track.late] >= 0.99).all())
