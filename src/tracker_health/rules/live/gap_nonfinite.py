"""GAP001."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.live._gap import measures, need
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.text import count, listing
from tracker_health.words.gap_names import KINDS
from tracker_health.words.verdict import Verdict

_IN_ORDER = ("params", "activations", "activation_grads", "grads")  # as one makes the next faulty


@dataclass(frozen=True, kw_only=True)
class GapNonfinite(Probe):
    """NaN or infinity in gradients, activations or parameters.

    What it finds:
        The first measured step at which a statistic is not finite, and the tensors in which it was.

    Why it matters:
        A value that is not finite spreads to everything that is computed from it. It began in the first such tensor of
        the forward pass. The loss shows it later, or not at all.

    How it decides:
        Fail when the maximum or the mean of a tensor is NaN or infinite at its last measured step; warn when all are
        finite again by then.

    Known limits:
        Only every n-th step is measured. A gradient scaler for half precision skips steps whose gradients are not
        finite, and so does this rule. A sum that overflowed single precision looks the same.

    Worked example:
        gap activations/fc: max=1,2,inf,nan mean=0,0,inf,nan var=1*4
        gap grads/fc.weight: max=1,1,1,nan mean=0,0,0,nan var=1*4
        gives: tensors_with_nonfinite 2, still_nonfinite 2
        fail: the activations are infinite from step 2, the gradient NaN from step 3; both still are at the last step.

    What to do:
        Look at the first module that is named: its input, a division, a logarithm, an exponential in half precision.

    References:
        OLMo-core's monitor of gradients, activations and parameters has the same statistics.
        `benchmarks/faults/live.py` trains ten kinds of small models. Of 112 healthy trainings it objected to none; it
        found 4 of 4 with a NaN built in.
    """

    code = "GAP001"
    name = "gap-nonfinite"
    symptom = Symptom.NONFINITE

    @property
    def needs(self) -> tuple[Need, ...]:
        return (need(*KINDS, min_points=1),)

    def judge(self, evidence: Evidence) -> Finding:
        first: dict[str, int] = {}
        lasting = set()
        for kind in _IN_ORDER:
            for name, statistic, series in measures(evidence, kind):
                odd = ~np.isfinite(series.values)
                if statistic == "var" or not odd.any():
                    continue
                label = f"{kind}/{name}"
                first[label] = min(int(series.steps[odd][0]), first.get(label, int(series.steps[-1])))
                lasting |= {label} if odd[-1] else set()
        measured = {"tensors_with_nonfinite": len(first), "still_nonfinite": len(lasting)}
        if not first:
            return Finding(verdict=Verdict.PASS, message="all statistics are finite", measured=measured)
        step = min(first.values())
        began = [label for label, at in first.items() if at == step]
        return Finding(
            verdict=Verdict.FAIL if lasting else Verdict.WARN,
            message=f"from step {step} {count(len(first), 'tensor')} had NaN or infinity, first {listing(began)}",
            remedy="look at the first of them: its input, a division, a logarithm, an exponential in half precision",
            measured=measured,
            details={"first_steps": dict(list(first.items())[:100])},
            steps=(step,),
            onset=Onset(step=step, what="a layer had NaN") if lasting else None,
        )
