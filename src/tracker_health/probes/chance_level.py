"""LOS006."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import local_noise, median_error
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_EXACT = 0.005
_FEW_POINTS = 6
_MOST_CLASSES = 20
_PINNED_POINTS = 20
_HIGH = 0.25
_LOWER = 0.98
_NEAR = 0.1


@dataclass(frozen=True, kw_only=True)
class ChanceLevel(Probe):
    """The loss is stuck at a level: that of guessing, or one that it fell to at once.

    What it finds:
        A training loss whose end is that of a model that gives every class or token the same probability, or that fell
        within its first few points and never again.

    Why it matters:
        The model has learnt nothing about its inputs, or no more than how frequent each answer is.

    How it decides:
        The number of classes or the size of the vocabulary comes from the run's params. Fail when the last level (the
        median of the last tenth, at least 3 points) lies within `tolerance` of its logarithm.

        Where that tells nothing, warn when the loss is pinned to a level of at least a quarter of its first value.
        Either it came down to it (to within a tenth of the descent) by its third point or within a hundredth of the
        run, and from the end of the first tenth to the last quarter it fell by less than `least_fall`, and by less than
        three times that with one standard error of the noise added. Or it has stood within half a percent of ln 2, ln
        3, ... ln 20 since its first tenth.

    Known limits:
        Chance level needs a cross-entropy in nats. A task with unequal classes has a lower one, which is seen only as a
        pinned loss. A run that learns everything before its third logged point looks pinned.

    What to do:
        Look whether inputs and labels belong together, whether the gradient reaches the first layer, and whether the
        learning rate is not ten times too high or too low.

    References:
        The cross-entropy of a uniform guess among C classes is ln C.
    """

    code = "LOS006"
    name = "chance-level"
    symptom = Symptom.NOT_LEARNING

    tolerance: Annotated[
        float, Threshold("distance from chance that counts as there", "fraction", "design", gt=0, le=1)
    ] = 0.02
    least_fall: Annotated[
        float, Threshold("fall after the first tenth that counts as learning", "fraction", "calibration", gt=0)
    ] = 0.01
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        values, classes = evidence.first("train_loss").finite().values, evidence.classes
        if len(values) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(values)} finite points of the loss")
        end = float(np.median(values[-max(3, len(values) // 10) :]))
        measured: dict[str, float | int] = {"end": end}
        if classes is not None:
            measured |= {"classes": classes, "chance": log(classes)}
            if abs(end - log(classes)) <= self.tolerance * log(classes):
                return self._finding(
                    Verdict.FAIL,
                    f"the loss ends at {number(end)}, the level of guessing among {classes} classes "
                    f"({number(log(classes))})",
                    measured,
                )
        pinned = _small_chance_level(values) if classes is None else None
        if pinned is not None:
            where = f"the level of guessing among {pinned} classes ({number(log(pinned))})"
            return self._finding(Verdict.WARN, f"the loss has stood at {number(end)} all along, {where}", measured)
        if self._fell_at_once(values, end):
            first = number(float(values[0]))
            message = f"the loss fell from {first} to {number(end)} within its first points and not at all afterwards"
            return self._finding(Verdict.WARN, message, measured)
        return Finding(verdict=Verdict.PASS, message=f"the loss ends at {number(end)}", measured=measured)

    @staticmethod
    def _finding(verdict: Verdict, message: str, measured: dict[str, float | int]) -> Finding:
        return Finding(
            verdict=verdict,
            message=message,
            remedy="check that inputs and labels belong together and that the gradient reaches the first layer; then "
            "change the learning rate tenfold",
            measured=measured,
        )

    def _fell_at_once(self, values: FloatArray, end: float) -> bool:
        n = len(values)
        early, late = values[n // 10 : n // 4], values[-(n // 4) :]
        if n < _PINNED_POINTS or not _HIGH * values[0] < end < _LOWER * values[0]:
            return False
        fall = float(np.median(early) - np.median(late))
        noise = local_noise(values[n // 10 :])
        error = float(np.hypot(median_error(noise, len(early)), median_error(noise, len(late))))
        reached = np.flatnonzero(values <= end + _NEAR * (values[0] - end))
        at_once = len(reached) > 0 and reached[0] <= max(2, n // 100)
        least = self.least_fall * float(np.median(early))
        return at_once and fall < least and fall + error < 3.0 * least


def _small_chance_level(values: FloatArray) -> int | None:
    """The number of classes, up to twenty, at whose chance level the loss has stood since its first tenth.

    All thirds of the rest lie within half a percent of it, and the loss did not begin below it.
    """
    rest = values[max(1, len(values) // 10) :]
    if len(rest) < _FEW_POINTS:
        return None
    thirds = [float(np.median(part)) for part in np.array_split(rest, 3)]
    classes = round(exp(min(thirds[0], 4.0)))
    if not 2 <= classes <= _MOST_CLASSES or values[0] < log(classes) * (1.0 - _EXACT):
        return None
    return classes if all(abs(third / log(classes) - 1.0) <= _EXACT for third in thirds) else None
