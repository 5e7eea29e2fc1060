"""GAP006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.parameters.words import expert_of, often_unused
from tracker_health.report.result import Finding
from tracker_health.rules.live._gap import need, tracks
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GapZeroGradient(Probe):
    """A trained parameter whose gradient is 0.

    What it finds:
        Parameters whose gradient was exactly 0, or not there, at every measured step.

    Why it matters:
        The optimizer holds them, but nothing moves them: they are cut off from the loss.

    How it decides:
        Fail when the largest absolute value of a parameter's gradient is exactly 0 at every measured step after
        the first. Experts of a mixture alone are a warning: the router sent them no token. What many models
        carry along unused, as a pooler, passes by its name. It needs `min_points` points.

    Known limits:
        A branch that is used in few steps may be missed by all that are measured. Other recorders than this package's
        leave out gradients that are not there: then only zeros are seen.

    Worked example:
        gap grads/fc1.weight: max=0.1,0,0,0 mean=0*4 var=0.01,0,0,0
        gap grads/fc2.weight: max=0.1*4 mean=0*4 var=0.01*4
        gives: parameters 2, silent_parameters 1
        fail: the largest gradient of fc1 is exactly 0 at all three steps after the first.

    What to do:
        Look for `.detach()`, `torch.no_grad()`, a dead activation or an unused branch between it and the loss.

    References:
        OPT003 says the same of a checkpoint's second moments.
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 6 of 6 of the faults that it may see.
    """

    code = "GAP006"
    name = "gap-zero-gradient"
    symptom = Symptom.DEAD

    min_points: Annotated[int, Threshold("measured steps needed", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need("grads", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = tracks(evidence, "grads", self.min_points)
        if not every:
            return Finding(verdict=Verdict.SKIP, message="no parameter has enough finite statistics of its gradient")
        silent = [one.name for one in every if not one.maximum[1:].any() and not often_unused(one.name)]
        measured = {"parameters": len(every), "silent_parameters": len(silent)}
        if not silent:
            message = f"gradients reach all {count(len(every), 'parameter')}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        experts = all(expert_of(name) is not None for name in silent)
        return Finding(
            verdict=Verdict.WARN if experts else Verdict.FAIL,
            message=f"no gradient at any measured step in {len(silent)} of {len(every)} parameters: {listing(silent)}",
            remedy="look at the routing"
            if experts
            else "look for .detach(), no_grad, a dead activation or an unused branch between them and the loss",
            measured=measured,
            details={"silent": silent[:100]},
        )
