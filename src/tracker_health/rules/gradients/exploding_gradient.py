"""GRD004."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, ends, number
from tracker_health.words.verdict import Verdict

_LARGEST = log(np.finfo(np.float64).max)


@dataclass(frozen=True, kw_only=True)
class ExplodingGradient(Probe):
    """The gradient norm grew by orders of magnitude and stayed there.

    What it finds:
        A gradient norm whose last level is a large multiple of its lowest level before, while the loss is no longer at
        its best.

    Why it matters:
        The weights are in a region where the loss is steep and training cannot settle. A NaN is often next.

    How it decides:
        On the curve of the norm's logarithm. Fail when its last two levels are clearly above its lowest, by
        `factor`. The loss or the reward, where one is logged, must end clearly worse than its best level. It
        needs `min_points` points.

    Known limits:
        Needs `min_points` norms above 0. Norms are compared with those of the same run only.

    Worked example:
        grad_norm: 1.1 0.9 1.0 1.1 0.9 1.0 1.1 0.9 1.0 1.1 0.9 1.0 1.1 0.9 1.0 900 1100 1000 900 1100
        gives: growth 1000, lowest 1.022, end 1022
        fail: the last levels are about 1000, the lowest is 1; the ratio is clearly above 100, which is `factor`.

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
        beside = Need.beside("train_loss", "objective_weight", *REWARDS)
        return (Need(role="grad_norm", min_points=self.min_points), *beside)

    def judge(self, evidence: Evidence) -> Finding:
        norm = evidence.first("grad_norm").finite()
        norm = norm.at(np.flatnonzero(norm.values > 0.0))
        curve = Curve.of(replace(norm, values=np.log(norm.values)))
        if curve is None or len(norm) < self.min_points:
            return Finding.skipped(f"only {len(norm)} finite gradient norms above 0")
        late = min(curve.end, curve.level(-2), key=lambda level: level.value)
        rise, aim = late - curve.best, _aim(evidence)
        low, end, growth = exp(curve.best.value), exp(late.value), exp(min(rise.value, _LARGEST))
        measured = {"lowest": low, "end": end, "growth": growth}
        worse = aim is None or (aim.end - aim.best).surely_above(0.0)
        if not (worse and rise.surely_above(log(self.factor))):
            return Finding.passed(f"the gradient norm {ends(end, low, at_best=end <= low)}", measured)
        lowest, last = contrast(low, end)
        first = curve.left(curve.best.value + log(self.factor))
        return Finding(
            verdict=Verdict.FAIL,
            message=f"the gradient norm grew {number(round(growth))}-fold, from {lowest} to {last}, and stayed there",
            remedy="restart from before the rise with a lower learning rate and gradient clipping",
            measured=measured,
            steps=(first, curve.last_step),
            confidence="high" if curve.sure else "low",
            onset=Onset.on(norm, first, "the gradient norm grew"),
        )


def _aim(evidence: Evidence) -> Curve | None:
    """What was to fall: the loss, or a reward upside down."""
    rewards = (curve.upside_down for role in REWARDS if (curve := evidence.curve(role)) is not None)
    return evidence.curve("train_loss") or next(rewards, None)
