"""OPT002."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.evidence import Evidence, Need, Part, TensorState
from tracker_health.facts.saved import nan_saved
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.text import listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class NonfiniteMoments(Probe):
    """The optimizer's moments hold NaN or infinities.

    What it finds:
        Parameters whose first or second moment in the saved optimizer state is not finite everywhere.

    Why it matters:
        A moment is a running mean: once it has taken in a NaN it stays NaN, and every update of that parameter is NaN
        too. The log may show nothing of it when the loss is filtered.

    How it decides:
        Fail for any parameter with a non-finite value in a moment; the message says whether it is some or all.

    Known limits:
        A half-precision moment that overflowed to infinity after a single huge gradient counts, too: its updates stay
        0.

    Worked example:
        optimizer conv 2x2: step=100 exp_avg=0.01,nan,0.01,0.01 exp_avg_sq=1e-3*4
        optimizer fc 2x2: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        gives: nonfinite_tensors 1, nonfinite_values 1
        fail: one of four values of a moment is NaN, in one of two parameters.

    What to do:
        Go back to a checkpoint from before the first NaN; training cannot recover from this one.

    References:
        Kingma and Ba (2015), algorithm 1: both moments are exponential moving averages.
    """

    code = "OPT002"
    name = "nonfinite-moments"
    symptom = Symptom.NONFINITE
    headline = ("nonfinite_tensors",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SECOND_MOMENTS),)

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        tensors = state.with_second_moment if state is not None else ()
        faulty = [tensor for tensor in tensors if _nonfinite(tensor)]
        measured = {
            "tensors": len(tensors),
            "nonfinite_tensors": len(faulty),
            "nonfinite_values": sum(_nonfinite(one) for one in faulty),
        }
        details = {
            "tensors": [tensor.label for tensor in faulty[:100]],
            "not_rebuilt": list(state.stubs) if state is not None else [],
        }
        if not faulty:
            message = f"the moments of all {len(tensors)} parameters are finite"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, details=details)
        which = f"all {len(faulty)}" if len(faulty) == len(tensors) else f"{len(faulty)} of {len(tensors)}"
        return Finding(
            verdict=Verdict.FAIL,
            message=f"NaN or infinity in the moments of {which} parameters: {listing([one.label for one in faulty])}",
            remedy="go back to a checkpoint from before the first NaN: these moments cannot recover",
            measured=measured,
            details=details,
            onset=nan_saved(state),
        )


def _nonfinite(tensor: TensorState) -> int:
    moments = (tensor.first_moment, tensor.second_moment)
    return sum(moment.nonfinite for moment in moments if moment is not None)
