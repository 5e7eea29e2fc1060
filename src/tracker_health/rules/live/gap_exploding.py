"""GAP005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import Track, first_and_last, need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapExploding(Probe):
    """Activations or gradients grow by orders of magnitude.

    What it finds:
        Modules whose activations became very large, and gradients that grew a thousandfold all over.

    Why it matters:
        The next steps overflow half precision, and updates are decided by a few values.

    How it decides:
        Warn when a module's activations had a root mean square above `size` at two measured steps in a row, and
        `growth` times the first one. The first one is that of the first measured step, or the median of the first
        `min_points`, if smaller. Warn too when the gradients of most parameters grew `gradient_growth` times. Medians
        of the first and the last `min_points` measured steps are compared.

    Known limits:
        It sees only growth within the run, and only if it lasts until the next measured step. Parameters whose gradient
        was 0 at first are left out.

    Worked example:
        gap activations/fc: max=5,50,5000,5000 mean=0*4 var=1,100,4e6,4e6
        gives: largest_activation_rms 2000, exploding_modules 1
        warn: the root of 4e6 is 2000 at two steps in a row, above `size`; over the first one, 1, it is above `growth`.

    What to do:
        Lower the learning rate, clip gradients, add normalisation or weight decay.

    References:
        Pascanu, Mikolov and Bengio (2013).
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 9 of 10 of the faults that it may see. There healthy activations reach 28 (root mean square), and healthy
        gradients grow 173-fold.
    """

    code = "GAP005"
    name = "gap-exploding"
    symptom = Symptom.EXPLODING

    growth: Annotated[float, Threshold("largest over first activations", "ratio", "design", gt=1)] = 100.0
    size: Annotated[float, Threshold("root mean square that is large", "activation", "design", gt=0)] = 1000.0
    gradient_growth: Annotated[float, Threshold("late over early gradients", "ratio", "design", gt=1)] = 1000.0
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("activations", "grads", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        activations = {one.name: self._peak(one) for one in tracks(evidence, "activations", self.min_points)}
        gradients = {
            one.name: first_and_last(one.rms, self.min_points) for one in tracks(evidence, "grads", self.min_points)
        }
        grown = [
            name for name, (first, peak) in activations.items() if peak >= self.size and peak >= self.growth * first
        ]
        known = {name: late / early for name, (early, late) in gradients.items() if early > 0}
        wild = [name for name, ratio in known.items() if ratio >= self.gradient_growth]
        largest = max((peak for _, peak in activations.values()), default=0.0)
        middle = median(list(known.values())) if known else 0.0
        measured = {"largest_activation_rms": largest, "gradient_growth": middle, "exploding_modules": len(grown)}
        if not grown and 2 * len(wild) <= len(known):
            message = (
                f"activations are at most {number(largest)} (root mean square), gradients grew {number(middle)}-fold"
            )
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        what = f"activations of {count(len(grown), 'module')} ({listing(grown)}) grew to {number(largest)}"
        return Finding(
            verdict=Verdict.WARN,
            message=what if grown else f"gradients of {count(len(wild), 'parameter')} grew {number(middle)}-fold",
            remedy="lower the learning rate, clip gradients, add normalisation or weight decay",
            measured=measured,
            details={"modules": grown[:100], "parameters": wild[:100]},
        )

    def _peak(self, track: Track) -> tuple[float, float]:
        """Where activations began, and the most that they were at two measured steps in a row."""
        first, _ = first_and_last(track.rms, self.min_points)
        return min(first, float(track.rms[0])), float(np.minimum(track.rms[1:], track.rms[:-1]).max())
