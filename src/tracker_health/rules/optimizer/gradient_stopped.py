"""OPT019."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Parameter, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GradientStopped(Probe):
    """Parameters that gradients no longer reach.

    What it finds:
        Matrices that had gradients once, and have had none for many steps, while others still have some.

    Why it matters:
        Units died, or a part of the model was cut off in the middle of the run. What it learnt until then stays as it
        is.

    How it decides:
        Of matrices with `min_steps` steps. Where no gradient comes, both of Adam's moments decay at their own
        known speed: their quotient says for how many steps there was none. Warn where that shows a stop. At
        least one other matrix must still have a signal: the mean square of its first moment is above
        `still_coming` of its second. Else all is learnt. Embeddings and experts, which may wait for their
        words, are left out.

    Known limits:
        It needs Adam's two moments. A matrix that was frozen on purpose in mid-run, and is still in the optimizer,
        looks the same.

    Worked example:
        optimizer fc1.weight 4x4: step=10000 exp_avg=1e-10*16 exp_avg_sq=1e-6*16
        optimizer fc2.weight 4x4: step=10000 exp_avg=1e-4*16 exp_avg_sq=1e-6*16
        gives: stopped_tensors 1, steps_without 139
        warn: (1e-10)^2 / 1e-6 is 1e-14, below the 1e-8 of a stop. From the usual 0.05 that takes ln(1e-14 / 0.05) / (2
          ln 0.9) = 139 steps. Of fc2 it is 0.01, above `still_coming`.

    What to do:
        If it was frozen on purpose, take it out of the optimizer; else look for units that died.

    References:
        Kingma and Ba (2015), algorithm 1.
    """

    code = "OPT019"
    name = "gradient-stopped"
    symptom = Symptom.DEAD
    since = "0.2.0"
    headline = ("stopped_tensors",)

    min_steps: Annotated[int, Threshold("optimizer steps before a zero means something", "steps", "design", ge=1)] = 50
    still_coming: Annotated[
        float, Threshold("signal to noise that shows that gradients still come", "ratio", "design", gt=0)
    ] = 1e-4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        known = evidence.steps_at_least.steps
        trained = [
            one
            for one in evidence.parameters.with_state
            if one.moment and one.numel and (known if one.steps is None else one.steps) >= self.min_steps
        ]
        matrices = [one for one in trained if one.is_matrix]
        if not matrices:
            return Finding.skipped(f"no matrix has moments of {self.min_steps} optimizer steps")
        stopped = self._stopped(matrices)
        if not stopped:
            return Finding.passed(
                "gradients still reach each matrix, as far as its moments show", {"stopped_tensors": 0}
            )
        names, steps = [one.label for one in stopped], round(min(one.silent_for or 0.0 for one in stopped))
        return Finding(
            verdict=Verdict.WARN,
            message=f"gradients no longer reach {len(stopped)} of {len(trained)} parameters, for at least {steps} "
            f"steps: {listing(names)}",
            remedy="frozen on purpose? Then take them out of the optimizer; else look for units that died",
            measured={"stopped_tensors": len(stopped), "steps_without": steps},
            details={"dead": names[:100]},
        )

    def _stopped(self, matrices: Sequence[Parameter]) -> list[Parameter]:
        """Those that had gradients once and none for long; embeddings and experts may wait for their words."""
        if max((one.snr or 0.0 for one in matrices), default=0.0) < self.still_coming:
            return []  # a loss that is learnt to the last digit
        may_wait = {one.label for one in matrices if one.certain_name and (one.expert or one.may_be_silent)}
        return [one for one in matrices if one.silent_for is not None and one.label not in may_wait]
