"""RUN002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class StepOrder(Probe):
    """The history's steps do not follow one another.

    What it finds:
        A training loss whose step counter went back. Several runs or cross-validation folds may have one name, or two
        writers were active at once.

    Why it matters:
        Such a history mixes several runs, and its curve shows none of them correctly.

    How it decides:
        Warn when the counter went back to its beginning and went on for at least half as long as before. Warn when more
        than `disorder` of the steps goes back in no such order. Warn when at least `repeated` of the points stand at a
        step that has another value as well.

    Known limits:
        A resume passes, wherever it continued. The rules on losses judge its loss. The processes of a distributed
        training that all log their loss into one run look like two writers, and may be healthy. So this rule is a
        preview: it is measured and shown, and has no vote.

    What to do:
        Log each run or fold under its own name.

    References:
        None: plain comparisons.
    """

    code = "RUN002"
    name = "step-order"
    symptom = Symptom.LOG_INTEGRITY
    status = "preview"

    repeated: Annotated[
        float, Threshold("share of points at a step with another value", "fraction", "design", gt=0, le=1)
    ] = 0.2
    disorder: Annotated[float, Threshold("share of steps that go back", "fraction", "design", gt=0, le=1)] = 0.05
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
        sick = self._disorder(steps, back) or self._restarts(steps, back)
        if sick is None and not len(back) and repeats >= self.repeated * len(steps):
            sick = f"{count(repeats, 'point')} of {len(steps)} stand at a step that has another value as well"
        if sick is None:
            said = f"the steps went back {count(len(back), 'time')}, and the loss went on" if len(back) else "in order"
            return Finding(verdict=Verdict.PASS, message=f"{len(steps)} points: {said}", measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=sick,
            remedy="log each run or fold under its own name",
            measured=measured,
            steps=[int(step) for step in steps[back][:20]],
        )

    def _disorder(self, steps: IntArray, back: IntArray) -> str | None:
        if len(back) <= self.disorder * len(steps):
            return None
        return (
            f"the steps go back {len(back)} times in {len(steps)} points: two writers, or several runs, under one name"
        )

    @staticmethod
    def _restarts(steps: IntArray, back: IntArray) -> str | None:
        bounds = [0, *back.tolist(), len(steps)]
        lengths = np.diff(bounds)
        rhythm = median(np.abs(np.diff(steps))) if len(steps) > 1 else 1.0
        again = [
            place
            for place in range(1, len(lengths))
            if steps[bounds[place]] <= steps[0] + rhythm and 2 * lengths[place] >= lengths[:place].max()
        ]
        if not again:
            return None
        return f"the steps begin again {count(len(again), 'time')}: {len(again) + 1} runs or folds stand under one name"


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
