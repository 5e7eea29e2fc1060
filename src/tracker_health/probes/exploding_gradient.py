"""GRD004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import block_medians
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_HOPELESS = 100.0


@dataclass(frozen=True, kw_only=True)
class ExplodingGradient(Probe):
    """The gradient norm grew by orders of magnitude and stayed there.

    What it finds:
        A gradient norm whose last level is a large multiple of its lowest level before, while the loss is no longer at
        its best.

    Why it matters:
        The weights have come to where the loss is steep and training cannot settle; a NaN is often next.

    How it decides:
        Levels are medians of blocks of a tenth of the points. Fail when the last two levels are both above the lowest
        earlier one by `factor`, and the loss ends above its best level by a tenth of its descent; without a loss, or by
        a hundred times `factor`, in any case.

    Known limits:
        Needs 20 points. Norms are compared with those of the same run only.

    What to do:
        Restart from before the rise with a lower learning rate and gradient clipping.

    References:
        Pascanu et al. (2013), on the difficulty of training recurrent networks.
    """

    code = "GRD004"
    name = "exploding-gradient"
    symptom = Symptom.EXPLODING
    headline = ("growth",)

    factor: Annotated[float, Threshold("growth of the norm", "ratio", "calibration", gt=1)] = 100.0
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=20)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="grad_norm", min_points=self.min_points), Need(role="train_loss", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        norm = evidence.first("grad_norm").finite()
        if len(norm) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(norm)} finite gradient norms")
        levels = block_medians(norm.values, len(norm) // 10)
        low, end = float(levels[:-2].min()), float(levels[-2:].min())
        growth = end / low if low > 0 and np.isfinite(end) else 0.0
        measured = {"lowest": low, "end": end, "growth": growth}
        hopeless = growth >= self.factor * _HOPELESS
        if growth < self.factor or not (hopeless or _loss_is_worse(evidence)):
            return Finding(
                verdict=Verdict.PASS,
                message=f"the gradient norm ends at {number(end)}, its lowest level is {number(low)}",
                measured=measured,
            )
        return Finding(
            verdict=Verdict.FAIL,
            message=f"the gradient norm grew {growth:.0f}-fold, from {number(low)} to {number(end)}, and stayed there",
            remedy="restart from before the rise with a lower learning rate and gradient clipping",
            measured=measured,
        )


def _loss_is_worse(evidence: Evidence) -> bool:
    loss = evidence.find("train_loss")
    if loss is None or len(loss.finite()) < 10:
        return True
    values = loss.finite().values
    levels = block_medians(values, len(values) // 10)
    return bool(levels[-1] - levels.min() > 0.1 * max(levels[0] - levels.min(), 0.0))
