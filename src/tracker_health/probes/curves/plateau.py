"""LRS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.rates import learning_rates
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Plateau(Probe):
    """The loss stopped falling under a constant learning rate, with noise that a decay would take away.

    What it finds:
        A second half of the run in which the loss no longer falls, at a learning rate that never came down, and well
        above zero.

    Why it matters:
        At a constant rate the weights jitter around a minimum; a decay at the end usually lowers the loss at once.

    How it decides:
        Warn when the learning rate's second half lies within `rate_change` of its peak. The loss must surely have come
        down, by `min_descent` of its start. Its second half neither brought `late_share` of that descent nor clearly
        falls. The noise of a point must be `noise` of the loss's level, and that above `floor` of its start.

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
    min_descent: Annotated[
        float, Threshold("descent of a loss that learnt something, as a share of its start", "fraction", "design", ge=0)
    ] = 0.1
    rate_change: Annotated[
        float, Threshold("change of a learning rate that is constant", "fraction", "design", ge=0, le=1)
    ] = 0.01
    noise: Annotated[float, Threshold("noise over the loss's level", "fraction", "design", gt=0)] = 0.02
    floor: Annotated[float, Threshold("level over the loss's start", "fraction", "design", ge=0, le=1)] = 0.1
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=48)] = 64

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="learning_rate", min_points=2),
            Need(role="objective_weight", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.curve("train_loss")
        if loss is None or loss.points < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {loss.points if loss else 0} points can be compared")
        middle = loss.steps[len(loss.steps) // 2]
        start, end, kept = loss.start.value, loss.end.value, loss.kept
        late = loss.between(0.5, 0.5 + 0.5**2) - loss.between(0.5 + 0.5**2, 1.0)
        came_down = kept.surely_above(0.0) and kept.value >= self.min_descent * abs(start)
        flat = late.value <= self.late_share * kept.value and loss.trend_since(middle) > -2.0
        noisy = end > self.floor * start and loss.noise >= self.noise * abs(end)
        share = late.value / kept.value if came_down else 0.0
        measured = {"start": start, "end": end, "late_share": share, "noise": loss.noise}
        if not (came_down and flat and noisy and self._is_constant(evidence)):
            said = f"the second half brought {share:.0%} of the descent"
            return Finding(verdict=Verdict.PASS, message=said, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"under a constant learning rate the loss stayed at {number(end)} for the second half of the run, "
            f"with a noise of {number(loss.noise)}",
            remedy="let the learning rate decay over the last part of the run",
            measured=measured,
            steps=(int(middle), loss.last_step),
            confidence="medium",
        )

    def _is_constant(self, evidence: Evidence) -> bool:
        rates = max((one.values for one in learning_rates(evidence)), key=lambda one: float(one.max()), default=None)
        late = rates[len(rates) // 2 :] if rates is not None else None
        return rates is not None and late is not None and bool(late.min() >= (1.0 - self.rate_change) * rates.max() > 0)
