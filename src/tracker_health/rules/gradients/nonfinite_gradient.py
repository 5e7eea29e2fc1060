"""GRD001."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import LIKELY, SURELY, Estimate, Evidence, Need
from tracker_health.evidence.numerics import lasts_from, longest_run, placeholders, stretch_ends
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class NonfiniteGradient(Probe):
    """The gradient norm is NaN or infinite, again and again.

    What it finds:
        A gradient norm that is not finite over a stretch of steps, over a large share of them, or at the end.

    Why it matters:
        A step with such a gradient either ruins the weights or is skipped. A half-precision scaler skips single ones
        on purpose; many in a row mean that nothing is trained any more.

    How it decides:
        A stretch at the very beginning, of less than `calibration` of all, is left out: there a scaler finds
        its level. Fail when the share of non-finite norms is clearly above `max_share`, when `max_run` follow
        each other, or the last `at_end` are non-finite. Warn when it is likely. NaN at a regular distance was
        not taken. Pass where the training loss is finite and clearly falls from the first, the longest and the
        last stretch on: steps were skipped, or norms are means. Warn there at NaN before finite norms. Pass,
        too, where all are infinite, none lasts, and the loss came down and rose again by less than `regained`
        of that. It needs `min_points` points.

    Known limits:
        Needs the gradient norm. In sparse logs a single point stands for many steps that nobody saw.

    Worked example:
        grad_norm: 1.2 0.9 1.1 1.0 0.8 nan nan nan
        gives: nonfinite 3, longest_run 3, share 0.375
        fail: the last 3 norms are NaN, as many as `at_end`.

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
    at_end: Annotated[int, Threshold("points in a row at the end", "points", "design", ge=1)] = 3
    calibration: Annotated[
        float, Threshold("share of the points in which a scaler finds its level", "fraction", "design", ge=0, le=1)
    ] = 0.25
    regained: Annotated[
        float, Threshold("rise of a loss that stayed down, as a share of its descent", "fraction", "design", gt=0)
    ] = 0.1
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=1)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="grad_norm", min_points=self.min_points), *Need.beside("train_loss", "objective_weight"))

    def judge(self, evidence: Evidence) -> Finding:
        norm = evidence.first("grad_norm").clean()
        norm = norm.at(np.flatnonzero(~placeholders(norm.values)))
        bad = ~np.isfinite(norm.values)
        first_good = int(np.argmin(bad))
        if first_good < self.calibration * len(bad):
            bad[:first_good] = False
        steps, value = norm.steps[bad], float(bad.mean())
        share = Estimate(value, sqrt(value * (1.0 - value) / len(bad)))
        start, length = longest_run(bad)
        measured = {"nonfinite": len(steps), "points": len(norm), "longest_run": length, "share": value}
        message = f"{len(steps)} of {count(len(norm), 'gradient norm')} are NaN or infinite"
        lasting = length >= self.max_run or (len(bad) >= self.at_end and bool(bad[-self.at_end :].all()))
        if not (lasting or share.surely_above(self.max_share, LIKELY)):
            return Finding.passed(message, measured)
        first = lasts_from(bad)
        ends = tuple(int(step) for step in norm.steps[stretch_ends(bad)])
        places = {int(np.argmax(bad)), start, first if lasting and bad[-1] else start}
        overflows = not (lasting or np.isnan(norm.values[bad]).any()) and _stayed_down(evidence, self.regained)
        if overflows or _falls_from(evidence, [int(norm.steps[place]) for place in places]):
            fell_on = f"the loss continued to fall from {norm.where(steps[0])} on"
            message = f"{message}, but {fell_on}: such steps were skipped"
            # Overflow alone gives infinity, and a mean over many steps stays so to the end.
            if np.isnan(norm.values[bad]).any() and not bad[-self.at_end :].all():
                remedy = f"look at the batch of {norm.place(steps[0])}: a gradient of NaN is more than an overflow"
                return Finding(verdict=Verdict.WARN, message=message, remedy=remedy, measured=measured, steps=ends)
            return Finding.passed(f"{message}, or each norm is a mean over many steps", measured, sure=False)
        lost = 0 < first < len(bad)
        onset = Onset.on(norm, norm.steps[first], "the gradient norm became NaN or infinite") if lost else None
        row = (
            f"{length} in a row from {norm.where(norm.steps[start])}"
            if length > 1
            else f"from {norm.where(steps[0])} on"
        )
        return Finding(
            verdict=Verdict.FAIL if lasting or share.surely_above(self.max_share) else Verdict.WARN,
            message=f"{message}, {row}",
            remedy=f"restart from before {norm.place(steps[0])} with a lower learning rate, clipping, or bf16",
            measured=measured | {"first_step": int(steps[0])},
            steps=ends,
            onset=onset,
        )


def _falls_from(evidence: Evidence, steps: list[int]) -> bool:
    """Whether the training loss is finite at its end, and clearly falls from each of these steps on."""
    loss, curve = evidence.find("train_loss"), evidence.curve("train_loss")
    if loss is None or curve is None or not np.isfinite(loss.clean().values[-1]):
        return False
    return all(curve.trend_since(step - 1) < -SURELY for step in steps)


def _stayed_down(evidence: Evidence, regained: float) -> bool:
    """Whether the training loss is finite throughout, clearly fell, and did not clearly rise again."""
    loss, curve = evidence.find("train_loss"), evidence.curve("train_loss")
    if loss is None or curve is None or not np.isfinite(loss.clean().values).all():
        return False
    rose = curve.end - curve.best
    return curve.trend < -SURELY and not rose.surely_above(regained * curve.descent.value)
