"""GRD001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import longest_run, placeholders, stretch_ends
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count
from tracker_health.verdict import Verdict

_CALIBRATION = 20
_BEGINNING = 0.25
_FEW, _MANY = 3, 10
_OF_FEW = 4.0  # times the share, where they are few


@dataclass(frozen=True, kw_only=True)
class NonfiniteGradient(Probe):
    """The gradient norm is NaN or infinite, again and again.

    What it finds:
        A gradient norm that is not finite over a stretch of steps, over a large share of them, or at the end.

    Why it matters:
        A step with such a gradient either ruins the weights or is skipped. A half-precision scaler skips single ones
        on purpose; many in a row mean that nothing is trained any more.

    How it decides:
        On the newest value of every step, without a stretch of up to 20 points, and less than a quarter of all, at the
        very beginning, in which a scaler finds its level. Fail at a share of `max_share` that is ten points or more, at
        four times that share for three points or more, at `max_run` in a row, or when the last three points are all
        non-finite. Fewer are what a scaler does, and pass. NaN between norms that come at a regular distance stands for
        steps at which none was taken, and does not count.

    Known limits:
        Needs the gradient norm. In sparse logs a single point stands for many steps that nobody saw.

    What to do:
        Restart from before the first one with a lower learning rate, bf16 in place of fp16, or gradient clipping.

    References:
        Micikevicius et al. (2018), mixed precision training.
    """

    code = "GRD001"
    name = "nonfinite-gradient"
    symptom = Symptom.NONFINITE

    max_share: Annotated[float, Threshold("share of the points", "fraction", "calibration", gt=0, le=1)] = 0.05
    max_run: Annotated[int, Threshold("points in a row", "points", "design", ge=2)] = 5
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=1)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="grad_norm", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        norm = evidence.first("grad_norm").clean()
        norm = norm.at(np.flatnonzero(~placeholders(norm.values)))
        bad = ~np.isfinite(norm.values)
        # A half-precision scaler begins too high, and finds its level by skipping the first few steps.
        first_good = int(np.argmin(bad)) if not bad.all() else len(bad)
        if first_good <= _CALIBRATION and first_good < _BEGINNING * len(bad):
            bad[:first_good] = False
        steps, share = norm.steps[bad], float(bad.mean())
        start, length = longest_run(bad)
        measured = {"nonfinite": len(steps), "points": len(norm), "longest_run": length, "share": share}
        message = f"{len(steps)} of {count(len(norm), 'gradient norm')} are NaN or infinite"
        several = len(steps) >= min(_FEW, self.max_run)
        often = share >= self.max_share * (1.0 if len(steps) >= _MANY else _OF_FEW)
        if not (several and (often or length >= self.max_run or bad[-3:].all())):
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        row = f"{length} in a row from step {int(norm.steps[start])}" if length > 1 else f"from step {int(steps[0])} on"
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{message}, {row}",
            remedy=f"restart from before step {int(steps[0])} with a lower learning rate, clipping, or bf16",
            measured=measured | {"first_step": int(steps[0])},
            steps=tuple(int(step) for step in norm.steps[stretch_ends(bad)]),
        )
