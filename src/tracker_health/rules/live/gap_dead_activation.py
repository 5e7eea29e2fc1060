"""GAP002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapDeadActivation(Probe):
    """A module whose output says nothing.

    What it finds:
        Modules whose output is exactly 0, or one single value for each instance, at step after step.

    Why it matters:
        Nothing that comes before a dead rectifier is trained, and nothing after it sees the input.

    How it decides:
        Per module: warn when the variance or the maximum of its activations is exactly 0 at every measured step
        of the run's second half. It needs `min_points` points.

    Known limits:
        A module may rightly give a constant: a mask, a switched-off branch. Summaries by layer only show whole layers.
        Single modules need the file of all statistics.

    Worked example:
        gap activations/relu: max=1,0.5,0,0 mean=0.2,0.1,0,0 var=0.1,0.1,0,0
        gap activations/fc: max=1*4 mean=0*4 var=1*4
        gives: modules 2, dead_modules 1
        warn: the maximum of relu is exactly 0 at both steps of the second half.

    What to do:
        Lower the learning rate, look at the bias and the scale of what enters the module, or use an activation that has
        a gradient everywhere.

    References:
        Lu et al. (2020), dying rectifiers.
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 10 of 10 of the faults that it may see.
    """

    code = "GAP002"
    name = "gap-dead-activation"
    symptom = Symptom.DEAD

    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("activations", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = tracks(evidence, "activations", self.min_points)
        if not every:
            return Finding(verdict=Verdict.SKIP, message="no module has enough finite statistics of its activations")
        dead = [one.name for one in every if one.lasts((one.variance == 0.0) | (one.maximum == 0.0))]
        measured = {"modules": len(every), "dead_modules": len(dead)}
        if not dead:
            message = f"the activations of all {count(len(every), 'module')} vary"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the output of {len(dead)} of {count(len(every), 'module')} does not vary: {listing(dead)}",
            remedy="lower the learning rate, or look at the bias and scale of what enters these modules",
            measured=measured,
            details={"dead": dead[:100]},
        )
