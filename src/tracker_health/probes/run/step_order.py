"""RUN002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import local_noise, median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_AT_THE_SEAM = 5
_SURE = 4.0
_DISORDER = 0.05


@dataclass(frozen=True, kw_only=True)
class StepOrder(Probe):
    """The history's steps do not follow one another.

    What it finds:
        A training loss whose step counter went back: several runs or cross-validation folds under one name, a resume
        that did not go on where it left off, two writers at once.

    Why it matters:
        Such a history mixes what does not belong together, and its curve shows none of the runs in it. A loss that
        jumps at the seam of a resume shows state that was not restored.

    How it decides:
        Warn when the counter went back to its beginning and went on for at least half as long as before; when after a
        resume the median of the first points is higher than that of the earlier points at the same steps by `jump` of
        the loss's size and four standard deviations of the noise; when more than a twentieth of the steps goes back in
        no such order; and when at least `repeated` of the points stand at a step that has another value as well.

    Known limits:
        A resume from the exact step at which the log ended has no overlap, and is not looked at.

    What to do:
        Log each run or fold under its own name; restore optimizer, schedule and data order when resuming.

    References:
        None: plain comparisons.
    """

    code = "RUN002"
    name = "step-order"
    symptom = Symptom.LOG_INTEGRITY
    status = "preview"

    jump: Annotated[float, Threshold("rise of the loss at a resume", "fraction", "design", gt=0)] = 0.1
    repeated: Annotated[
        float, Threshold("share of points at a step with another value", "fraction", "design", gt=0, le=1)
    ] = 0.2
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=8)] = 16

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points, any_of=("objective_loss",)),)

    def judge(self, evidence: Evidence) -> Finding:
        found = [one for role in ("train_loss", "objective_loss") if (one := evidence.find(role)) is not None]
        steps, values = as_they_came(max(found, key=len))
        back = np.flatnonzero(steps[1:] < steps[:-1]) + 1
        repeats = _repeats(steps, values)
        measured = {"points": len(steps), "went_back": len(back), "repeated": repeats / len(steps)}
        sick = self._disorder(steps, back) or self._restarts(steps, back) or self._jumps(steps, values, back)
        if sick is None and not len(back) and repeats >= self.repeated * len(steps):
            sick = f"{count(repeats, 'point')} of {len(steps)} stand at a step that has another value as well"
        if sick is None:
            said = f"the steps went back {count(len(back), 'time')}, and the loss went on" if len(back) else "in order"
            return Finding(verdict=Verdict.PASS, message=f"{len(steps)} points: {said}", measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=sick,
            remedy="log each run or fold under its own name; restore optimizer, schedule and data order on a resume",
            measured=measured,
            steps=[int(step) for step in steps[back][:20]],
        )

    @staticmethod
    def _disorder(steps: IntArray, back: IntArray) -> str | None:
        if len(back) <= _DISORDER * len(steps):
            return None
        return (
            f"the steps go back {len(back)} times in {len(steps)} points: two writers, or several runs, under one name"
        )

    @staticmethod
    def _restarts(steps: IntArray, back: IntArray) -> str | None:
        bounds = [0, *back.tolist(), len(steps)]
        lengths = np.diff(bounds)
        rhythm = median(np.abs(np.diff(steps))) if len(steps) > 1 else 1.0
        anew = [
            place
            for place in range(1, len(lengths))
            if steps[bounds[place]] <= steps[0] + rhythm and 2 * lengths[place] >= lengths[:place].max()
        ]
        if not anew:
            return None
        return f"the steps begin anew {count(len(anew), 'time')}: {len(anew) + 1} runs or folds stand under one name"

    def _jumps(self, steps: IntArray, values: FloatArray, back: IntArray) -> str | None:
        noise = local_noise(values[np.isfinite(values)])
        for seam in back.tolist():
            after = values[seam : seam + _AT_THE_SEAM]
            place = np.flatnonzero(steps[:seam] >= steps[seam])[-2 * _AT_THE_SEAM :][:_AT_THE_SEAM]
            before = values[place]
            if not (len(before) and np.isfinite(before).all() and np.isfinite(after).all()):
                continue
            old, new = median(before), median(after)
            if new - old > max(_SURE * noise, self.jump * abs(old)):
                rise = f"from {number(old)} to {number(new)}"
                return f"at step {steps[seam]}, where the run was resumed, the loss jumped {rise}"
        return None


def as_they_came(series: Series) -> tuple[IntArray, FloatArray]:
    """Steps and values in the order of arrival, without summaries at the end."""
    order = np.arange(len(series)) if series.times is None else np.argsort(series.times, kind="stable")
    order = order[: len(order) - series.summaries]
    return series.steps[order], series.values[order]


def _repeats(steps: IntArray, values: FloatArray) -> int:
    """How many points stand at a step at which there is another value."""
    order = np.lexsort((values, steps))
    same = steps[order][1:] == steps[order][:-1]
    other = ~((values[order][1:] == values[order][:-1]) | (np.isnan(values[order][1:]) & np.isnan(values[order][:-1])))
    return int(np.count_nonzero(same & other))
