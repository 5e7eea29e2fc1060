"""AMP001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict

_LEAST = 2.0**-30
_FAR_BELOW = 0.01
_RESET = 8.0  # times the scale before: growth doubles it
_CALIBRATION = 20
_REMEDY = "find the layer that overflows, train in bf16, or lower the learning rate"


@dataclass(frozen=True, kw_only=True)
class LossScale(Probe):
    """The loss scale of half precision collapses.

    What it finds:
        A loss scale that falls below 1, or that is halved again and again: in the log, or as the scaler saved it with
        the checkpoint.

    Why it matters:
        The scaler halves its scale each time a gradient overflows, and skips the step. A scale that goes on falling
        means that every step is skipped: the run looks alive and learns nothing.

    How it decides:
        Fail when the scale ends below `min_scale`; or when it was halved `halvings` times or more within `window`
        steps, not counting the first tenth of the run, in which it finds its level, and not counting the way back to
        the level before, within 20 points of a reset to a higher scale, as a resume does. Halvings between two points
        that lie further apart than the window are spread evenly over the steps between them. Fail, too, when the
        checkpoint's scaler holds a scale below `min_scale`, whatever is logged. Of fewer than `min_points` logged
        scales the last one has to be below a hundredth of that.

    Known limits:
        Sparse logs show how far the scale fell, not how often; a fall counts by its factors of two. A logged scale that
        is 0 throughout is taken for none; a saved one of 0 is not, since a scaler that is off saves nothing. Scalers in
        distributed checkpoints are not read.

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
        return (Need(role="loss_scale", any_of=(Part.SAVED_LOSS_SCALE,)),)

    def judge(self, evidence: Evidence) -> Finding:
        logged, state = self._logged(evidence), evidence.optimizer
        saved = state.loss_scale if state is not None else None
        if state is None or saved is None or saved < 0 or logged.verdict is Verdict.FAIL:
            return logged
        kept = f"the loss scale saved in {printable(state.source, 80)} is {number(saved)}"
        if saved < self.min_scale:
            fell = f"{kept}, below {number(self.min_scale)}: one overflow after another, and each skips a step"
            return Finding(verdict=Verdict.FAIL, message=fell, remedy=_REMEDY, measured={"end": saved})
        if logged.verdict is Verdict.SKIP:
            return Finding(verdict=Verdict.PASS, message=kept, measured={"end": saved})
        return logged

    def _logged(self, evidence: Evidence) -> Finding:
        """What the log says."""
        series = evidence.find("loss_scale")
        scale = series.finite() if series is not None else None
        scale = scale.at(np.flatnonzero(scale.values >= 0)) if scale is not None else None
        if scale is None or (len(scale) < self.min_points and not self._has_collapsed(scale)):
            found = 0 if scale is None else len(scale)
            return Finding(verdict=Verdict.SKIP, message=f"only {count(found, 'finite loss scale')} in the log")
        if not scale.values.any():
            return Finding(verdict=Verdict.SKIP, message="the loss scale is 0 throughout: none is in use")
        first, end = float(scale.values[0]), float(scale.values[-1])
        most, step = self._most_halvings(scale.at(np.arange(_calibrated(scale, evidence), len(scale))))
        measured = {"first": first, "end": end, "most_halvings": most}
        if end >= self.min_scale and most < self.halvings:
            return Finding(verdict=Verdict.PASS, message=f"the loss scale ends at {number(end)}", measured=measured)
        often = f"it was halved {most:.0f} times within {self.window} steps around step {step}"
        fell = f"the loss scale fell from {number(float(scale.values.max()))} to {number(end)}"
        if scale.values.max() <= end:
            fell = f"the loss scale is {number(end)}, below {number(self.min_scale)}, and never was higher"
        return Finding(
            verdict=Verdict.FAIL,
            message=f"{fell}; {often}" if most >= self.halvings else fell,
            remedy=_REMEDY,
            measured=measured,
            steps=(step,),
        )

    def _has_collapsed(self, scale: Series) -> bool:
        """Whether few points are enough: they end below what any scale should be."""
        return len(scale) > 0 and 0 < scale.values[-1] < _FAR_BELOW * self.min_scale

    def _most_halvings(self, scale: Series) -> tuple[float, int]:
        """The most halvings within a window, and at which step it ends."""
        falls, at = _halvings(_without_resets(scale.values)), scale.steps
        apart = np.diff(at, prepend=at[0])
        falls = np.where(apart > self.window, falls * self.window / np.maximum(apart, 1), falls)
        total = np.concatenate([[0.0], np.cumsum(falls)])
        within = total[1:] - total[np.searchsorted(at, at - self.window, side="right")]
        return float(within.max()), int(at[int(np.argmax(within))])


def _calibrated(scale: Series, evidence: Evidence) -> int:
    """Where the search for a first scale is over: after a tenth of the points, and of the training's steps, as a
    console may print a scale only where a step overflowed. At least the last point counts.
    """
    loss, few = evidence.find("train_loss"), len(scale) // 10
    if loss is None or not len(loss):
        return few
    first, last = min(loss.steps[0], scale.steps[0]), max(loss.steps[-1], scale.steps[-1])
    begin = int(np.searchsorted(scale.steps, first + (last - first) / 10, side="right"))
    return max(few, min(begin, len(scale) - 1))


def _without_resets(values: FloatArray) -> FloatArray:
    """The scales, a reset to a far higher one held down at the level before until it is back there."""
    tamed = values.copy()
    for index in np.flatnonzero(values[1:] >= _RESET * np.maximum(values[:-1], _LEAST)) + 1:
        after = values[index : index + _CALIBRATION]
        back = np.flatnonzero(after <= values[index - 1])
        length = int(back[0]) if len(back) else len(after)
        tamed[index : index + length] = values[index - 1]
    return tamed


def _halvings(values: FloatArray) -> FloatArray:
    """By how many factors of two each value lies below the one before."""
    return np.concatenate([[0.0], np.maximum(0.0, -np.diff(np.log2(np.maximum(values, _LEAST))))])
