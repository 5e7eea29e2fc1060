"""AMP001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part, Series
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, number, printable, went
from tracker_health.words.verdict import Verdict

_REMEDY = "find the layer that overflows, train in bf16, or lower the learning rate"


@dataclass(frozen=True, kw_only=True)
class LossScale(Probe):
    """The loss scale of half precision collapses.

    What it finds:
        A loss scale that falls below 1, or that is halved again and again, in the log or in the checkpoint.

    Why it matters:
        The scaler halves its scale each time a gradient overflows, and skips the step. A scale that keeps falling
        means that every step is skipped: the run looks alive and learns nothing.

    How it decides:
        Fail when the scale ends below `min_scale`, logged or as the scaler saved it. Fail when its lowest value
        so far was halved `halvings` times or more within `window` steps. The first `calibration` of the run
        does not count: there it finds its level. Between two logged points the fall counts as even. A reset to
        a higher scale, as a resume brings, does not move the lowest. It needs `min_points` points.

    Known limits:
        Sparse logs show how far the scale fell, not how often. A logged scale that is 0 throughout counts as no scale.
        A saved scale of 0 does count, since a scaler that is off saves nothing. Distributed checkpoints are not read.

    Worked example:
        loss_scale: 65536 65536 65536 65536 32768 16384 8192 4096 2048 2048
        gives: first 6.554e+04, end 2048, most_halvings 5
        fail: from 65536 to 2048 are five factors of two, as many as `halvings`, within 5 steps.

    What to do:
        Look for the layer that overflows; train in bf16; lower the learning rate.

    References:
        Micikevicius et al. (2018), mixed precision training; torch.amp.GradScaler.
    """

    code = "AMP001"
    name = "loss-scale"
    symptom = Symptom.SCALE_COLLAPSE

    min_scale: Annotated[float, Threshold("scale at the end below which it has collapsed", "scale", "design", gt=0)] = (
        1.0
    )
    halvings: Annotated[int, Threshold("halvings within the window", "halvings", "design", ge=2)] = 5
    window: Annotated[int, Threshold("steps of the window", "steps", "design", ge=1)] = 100
    calibration: Annotated[
        float, Threshold("share of the run in which a scale is searched for", "fraction", "design", ge=0, le=1)
    ] = 0.1
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=2)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="loss_scale", any_of=(Part.SAVED_LOSS_SCALE,)), *Need.beside("train_loss"))

    def judge(self, evidence: Evidence) -> Finding:
        logged, state = self._logged(evidence), evidence.optimizer
        saved = state.loss_scale if state is not None else None
        if state is None or saved is None or saved < 0 or logged.verdict is Verdict.FAIL:
            return logged
        shown, limit = contrast(saved, self.min_scale)
        kept = f"the loss scale saved in {printable(state.source)} is {shown}"
        if saved < self.min_scale:
            fell = f"{kept}, below {limit}: one overflow after another, and each skips a step"
            return Finding(verdict=Verdict.FAIL, message=fell, remedy=_REMEDY, measured={"end": saved})
        if logged.verdict is Verdict.SKIP:
            return Finding.passed(kept, {"end": saved})
        return logged

    def _logged(self, evidence: Evidence) -> Finding:
        """What the log says."""
        series = evidence.find("loss_scale")
        scale = series.finite() if series is not None else None
        scale = scale.at(np.flatnonzero(scale.values >= 0)) if scale is not None else None
        if scale is None or len(scale) < self.min_points or not scale.values.any():
            return Finding.skipped(f"fewer than {self.min_points} loss scales above 0 in the log")
        first, end, highest = (float(one) for one in (scale.values[0], scale.values[-1], scale.values.max()))
        most, step = self._most_halvings(scale, evidence.find("train_loss"))
        measured = {"first": first, "end": end, "most_halvings": most}
        if end >= self.min_scale and most < self.halvings:
            return Finding.passed(f"the loss scale ends at {number(end)}", measured)
        fell = f"the loss scale {went(highest, end, 'fell')}"
        if highest <= end:
            shown, limit = contrast(end, self.min_scale)
            fell = f"the loss scale is {shown}, below {limit}, and never was higher"
        often = f"; it was halved {most:.0f} times within {self.window} steps from {scale.where(step)} on"
        return Finding(
            verdict=Verdict.FAIL,
            message=fell + often * (most >= self.halvings),
            remedy=_REMEDY,
            measured=measured,
            steps=(step,),
            onset=Onset.on(scale, step, "the loss scale fell") if highest > end else None,
        )

    def _most_halvings(self, scale: Series, loss: Series | None) -> tuple[float, int]:
        """By how many factors of two the lowest scale fell within a window, at most, and at which step that began."""
        # A console may print a scale only where a step overflowed: the loss has all steps.
        steps = np.concatenate([scale.steps, loss.steps if loss is not None else scale.steps]).astype(np.float64)
        begin = steps.min() + self.calibration * (steps.max() - steps.min())
        lowest = np.minimum.accumulate(np.log2(np.maximum(scale.values, np.finfo(np.float64).tiny)))
        at = np.maximum(scale.steps, begin)
        before = np.interp(np.maximum(at - self.window, begin), scale.steps, lowest)
        falls = np.where(scale.steps > begin, before - lowest, 0.0)
        most = int(np.argmax(falls))
        fallen = (lowest < before[most]) & (scale.steps > at[most] - self.window)
        return float(falls.max()), int(scale.steps[np.argmax(fallen) if fallen.any() else most])
