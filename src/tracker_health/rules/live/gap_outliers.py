"""GAP007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import Track, first_and_last, need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapOutliers(Probe):
    """A few activations outgrow all others.

    What it finds:
        Modules whose largest activation moves ever further away from the rest.

    Why it matters:
        Such outliers decide the scale of quantised and half-precision arithmetic, and often come before a loss spike.

    How it decides:
        Per module the largest absolute value over the root mean square. Warn when its median over the last
        `min_points` measured steps is at least `ratio`, and `growth` times that of the first ones.

    Known limits:
        Large language models have massive activations in a few channels and train well. Sparse outputs have them by
        nature, but from the beginning. The rule has no vote: no training is known in which outliers did harm, and no
        fault of `benchmarks/faults/live.py` makes them grow.

    What to do:
        Watch the module; normalise queries and keys, or add weight decay, if the loss becomes unstable.

    References:
        Dettmers et al. (2022); Sun et al. (2024), massive activations.
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none.
        There the largest activation of a healthy model is 32 times the root mean square of its module.
    """

    code = "GAP007"
    name = "gap-outliers"
    symptom = Symptom.UNSTABLE
    status = "preview"

    ratio: Annotated[float, Threshold("largest activation over the root mean square", "ratio", "design", gt=1)] = 200.0
    growth: Annotated[float, Threshold("late over early ratio", "ratio", "design", gt=1)] = 5.0
    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("activations", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        ratios = {one.name: self._first_and_last(one) for one in tracks(evidence, "activations", self.min_points)}
        if not ratios:
            return Finding(verdict=Verdict.SKIP, message="no module has enough finite statistics of its activations")
        outliers = [
            name for name, (early, late) in ratios.items() if late >= self.ratio and late >= self.growth * early
        ]
        largest = max(late for _, late in ratios.values())
        measured = {"modules": len(ratios), "outlier_modules": len(outliers), "largest_ratio": largest}
        if not outliers:
            message = f"the largest activation is {number(largest)} times the root mean square of its module"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"outliers grow in {count(len(outliers), 'module')} ({listing(outliers)}), up to {number(largest)} "
            "times the root mean square",
            remedy="normalise queries and keys, or add weight decay, if the loss becomes unstable",
            measured=measured,
            details={"outliers": outliers[:100]},
        )

    def _first_and_last(self, track: Track) -> tuple[float, float]:
        ratio = np.divide(track.maximum, track.rms, out=np.ones(len(track.steps)), where=track.rms > 0)
        return first_and_last(ratio, self.min_points)
