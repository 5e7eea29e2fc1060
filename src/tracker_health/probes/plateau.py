"""LRS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import block_medians, local_noise, mann_kendall, median, median_error, start_level
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import learning_rates
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_BLOCKS = 12
_FALLS = -2.0
_SURE = 3.0


@dataclass(frozen=True, kw_only=True)
class Plateau(Probe):
    """The loss stopped falling under a constant learning rate, with noise that a decay would take away.

    What it finds:
        A second half of the run in which the loss no longer falls, at a learning rate that never came down, and well
        above zero.

    Why it matters:
        At a constant rate the weights jitter around a minimum; a decay at the end usually lowers the loss at once.

    How it decides:
        Warn when the learning rate's second half is constant to 1 % and at its peak, the first half brought at least a
        tenth of the loss's start and three standard errors, the second half at most `late_share` of that descent with a
        Mann-Kendall score above -2 over twelve blocks, and the noise from point to point is at least `noise` of the
        loss's level, which is above `floor` of its start.

    Known limits:
        A floor that the data set (label noise) looks the same. Per-epoch averages hide the noise that it looks for.

    What to do:
        Let the learning rate decay (cosine, linear) over the last part of the run.

    References:
        Mann-Kendall test; stochastic gradient descent's noise floor.
    """

    code = "LRS002"
    name = "plateau-at-constant-lr"
    symptom = Symptom.SCHEDULE
    status = "preview"

    late_share: Annotated[
        float, Threshold("share of the descent in the second half", "fraction", "design", ge=0, le=1)
    ] = 0.02
    noise: Annotated[float, Threshold("noise over the loss's level", "fraction", "design", gt=0)] = 0.02
    floor: Annotated[float, Threshold("level over the loss's start", "fraction", "design", ge=0, le=1)] = 0.1
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=48)] = 64

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points), Need(role="learning_rate", min_points=4))

    def judge(self, evidence: Evidence) -> Finding:
        values = evidence.first("train_loss").finite().values
        if len(values) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(values)} finite points of the loss")
        half = values[len(values) // 2 :]
        noise = local_noise(values)
        start = start_level(values, max(1, min(3, len(values) // 10)), noise)
        quarter = len(half) // 2
        middle, end = median(half[:quarter]), median(half[quarter:])
        descent = start - end
        share = (middle - end) / descent if descent > 0 else 0.0
        measured = {"start": start, "end": end, "late_share": share, "noise": noise}
        came_down = descent >= 0.1 * abs(start) and descent > _SURE * median_error(noise, 1)
        flat = share <= self.late_share and mann_kendall(block_medians(half, len(half) // _BLOCKS)) > _FALLS
        above = end > self.floor * start and noise >= self.noise * abs(end)
        if not (came_down and flat and above and _is_constant(evidence)):
            return Finding(
                verdict=Verdict.PASS, message=f"the second half brought {share:.0%} of the descent", measured=measured
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"under a constant learning rate the loss stayed at {number(end)} for the second half of the run, "
            f"with a noise of {number(noise)}",
            remedy="let the learning rate decay over the last part of the run",
            measured=measured,
            confidence="medium",
        )


def _is_constant(evidence: Evidence) -> bool:
    rates = [one.values for one in learning_rates(evidence)]
    if not rates:
        return False
    values = max(rates, key=lambda one: float(one.max()))
    late = values[len(values) // 2 :]
    return bool(late.min() > 0 and late.min() >= 0.99 * values.max())
