"""AMP001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_LEAST = 2.0**-30


@dataclass(frozen=True, kw_only=True)
class LossScale(Probe):
    """The loss scale of half precision collapses.

    What it finds:
        A loss scale that falls below 1, or that is halved again and again.

    Why it matters:
        The scaler halves its scale each time a gradient overflows, and skips the step. A scale that goes on falling
        means that every step is skipped: the run looks alive and learns nothing.

    How it decides:
        Fail when the scale ends below `min_scale`; or when it was halved `halvings` times or more within `window`
        steps, not counting the first tenth of the run, in which it finds its level.

    Known limits:
        Needs the loss scale. Sparse logs show how far it fell, not how often; a fall counts by its factors of two.

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
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=2)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="loss_scale", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        scale = evidence.first("loss_scale").finite()
        scale = scale.at(np.flatnonzero(scale.values >= 0))
        if len(scale) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(scale)} finite loss scales")
        settled = scale.at(np.arange(len(scale) // 10, len(scale)))
        falls, at = _halvings(settled.values), settled.steps
        total = np.concatenate([[0.0], np.cumsum(falls)])
        within = total[1:] - total[np.searchsorted(at, at - self.window, side="right")]
        most, end = float(within.max()), float(scale.values[-1])
        step = int(at[int(np.argmax(within))])
        measured = {"first": float(scale.values[0]), "end": end, "most_halvings": most}
        if end >= self.min_scale and most < self.halvings:
            return Finding(verdict=Verdict.PASS, message=f"the loss scale ends at {number(end)}", measured=measured)
        return Finding(
            verdict=Verdict.FAIL,
            message=f"the loss scale fell to {number(end)}; it was halved {most:.0f} times within {self.window} steps "
            f"around step {step}",
            remedy="find the layer that overflows, train in bf16, or lower the learning rate",
            measured=measured,
            steps=(step,),
        )


def _halvings(values: np.ndarray) -> np.ndarray:
    """By how many factors of two each value lies below the one before."""
    return np.concatenate([[0.0], np.maximum(0.0, -np.diff(np.log2(np.maximum(values, _LEAST))))])
