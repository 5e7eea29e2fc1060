"""LOS006."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.evidence.numerics import local_noise, median, median_error
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._classes import begins_at_chance, counts
from tracker_health.probes._run import is_fine_tuning
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_EXACT = 0.005
_COINCIDENCE = 0.06
_FEW_POINTS = 6
_MOST_CLASSES = 20
_PINNED_POINTS = 20
_HIGH = 0.25
_LOWER = 0.98
_NEAR = 0.1
_HALF = 0.5
_LITTLE, _NEARLY, _SETTLED = 0.1, 0.015, 0.01
_FEW_EVALUATIONS = 3
_VANISHED = 1e-3
_FAR = 2.0


@dataclass(frozen=True, kw_only=True)
class ChanceLevel(Probe):
    """The loss is stuck at a level: that of guessing, or one that it fell to at once.

    What it finds:
        A training loss whose end is that of a model that gives every class or token the same probability, or that fell
        within its first few points and never again.

    Why it matters:
        The model has learnt nothing about its inputs, or no more than how frequent each answer is.

    How it decides:
        The number of classes and the size of the vocabulary come from the run's params, and count only where the loss
        began (the median of its first three values) within 30 % of their logarithm: most other losses of models with
        classes are no plain cross-entropy. Fail when the last level (the median of the last tenth, at least 3 points)
        lies within `tolerance` of that logarithm, no lower than half a percent or three standard errors below it, and
        the loss has not just come down to it: the first third of what follows the first tenth was no higher than
        twice the tolerance.

        Warn when the loss has stood at that logarithm since its first tenth, within half a percent, wherever it began;
        or at ln 2, ln 3, ... ln 20 (ln 2 alone, in a fine-tune): then also within a seventeenth of the distance to the
        next, lest any loss be near one of them. So it does where the training loss came down to such a level from at
        most a tenth above, was there to within a hundredth in the middle third of what follows, and the validation loss
        ends no more than 1.5 % below it. Where the params tell the level and the loss began at more than twice of that,
        it may take a third of the run to come down to it.

        Warn as well when the loss is pinned to a level of at least a quarter of its first value, if the run is no
        fine-tune, of which no more may be asked: it came down to it (to within a tenth of the descent) by its
        third point or within a hundredth of the run and stayed there for a tenth of it, and from the end of the first
        tenth to the last quarter it fell by less than `least_fall`, and by less than three times that with one standard
        error of the noise added. A noisy task that is learnt at once looks like that too, so that there must be a
        second sign: it is a cross-entropy among three or more that keeps more than half of its chance level, or the
        gradient norm of the last quarter is below a thousandth of the first.

    Known limits:
        Chance level needs a cross-entropy in nats. A task with unequal classes has a lower one, which is seen only as a
        pinned loss. A run that learns everything before its third logged point looks pinned. One whose first loss is
        far off chance because its weights were badly initialised is found only at the small levels.

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
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="val_loss", optional=True),
            Need(role="grad_norm", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        values = evidence.first("train_loss").finite().values
        if len(values) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(values)} finite points of the loss")
        end = median(values[-max(3, len(values) // 10) :])
        measured: dict[str, float | int] = {"end": end}
        known = [count for count in counts(evidence) if begins_at_chance(values, count)]
        if known:
            stuck = next((count for count in known if self._stuck(values, end, count)), None)
            measured |= {"classes": stuck or known[0], "chance": log(stuck or known[0])}
            if stuck is not None:
                where = f"the level of guessing among {stuck} classes ({number(log(stuck))})"
                return self._finding(Verdict.FAIL, f"the loss ends at {number(end)}, {where}", measured)
        fine_tuning = is_fine_tuning(evidence)
        pinned = _small_chance_level(values, evidence.find("val_loss"), 2 if fine_tuning else _MOST_CLASSES)
        pinned = pinned or next((one for one in counts(evidence) if _stands_at(values, one, 1.0, settles=True)), None)
        if pinned is not None:
            where = f"the level of guessing among {pinned} classes ({number(log(pinned))})"
            stood = f"the loss began at {number(float(values[0]))} and has stood at {number(end)}"
            return self._finding(Verdict.WARN, f"{stood}, {where}", measured)
        sign = "" if fine_tuning else _second_sign(evidence, end, known)
        if sign and self._fell_at_once(values, end):
            first = number(float(values[0]))
            message = f"the loss fell from {first} to {number(end)} within its first points and not at all afterwards"
            return self._finding(Verdict.WARN, f"{message}; {sign}", measured)
        return Finding(verdict=Verdict.PASS, message=f"the loss ends at {number(end)}", measured=measured)

    def _stuck(self, values: FloatArray, end: float, count: int) -> bool:
        """Whether the loss ends at the level of guessing, having learnt nothing, and is not just passing by."""
        chance, size = log(count), max(3, len(values) // 10)
        rest = values[len(values) // 10 :]
        below = max(_EXACT * chance, 3.0 * median_error(local_noise(rest), size))
        near = -min(below, self.tolerance * chance) <= end - chance <= self.tolerance * chance
        early = median(rest[: max(1, len(rest) // 3)])
        return near and early <= chance * (1.0 + 2.0 * self.tolerance)

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
        fall = float(median(early) - median(late))
        noise = local_noise(values[n // 10 :])
        error = float(np.hypot(median_error(noise, len(early)), median_error(noise, len(late))))
        near = end + _NEAR * (values[0] - end)
        reached = np.flatnonzero(values <= near)
        at_once = len(reached) > 0 and reached[0] <= max(2, n // 100) and median(values[2 : max(5, n // 10)]) <= near
        least = self.least_fall * median(early)
        return at_once and fall < least and fall + error < 3.0 * least


def _second_sign(evidence: Evidence, end: float, known: list[int]) -> str:
    """What speaks against a noisy task that was learnt at once; empty if nothing does."""
    count = next((count for count in known if count > 2 and end > _HALF * log(count)), None)
    if count is not None:
        return f"guessing among {count} classes is {number(log(count))}"
    gradient = evidence.find("grad_norm")
    norms = gradient.finite().values if gradient is not None else np.empty(0)
    if len(norms) < _PINNED_POINTS:
        return ""
    first, last = median(norms[:3]), median(norms[-(len(norms) // 4) :])
    return f"the gradient norm fell from {number(first)} to {number(last)}" if last < _VANISHED * first else ""


def _small_chance_level(values: FloatArray, held_out: Series | None, most: int) -> int | None:
    """The number of classes, up to ``most``, at whose chance level the loss has stood since its first tenth, or to
    which both losses came down from little above.
    """
    rest = _after_first_tenth(values)
    for level in (median(rest), median(rest[-max(1, len(rest) // 3) :])):
        classes = round(exp(min(level, 4.0)))
        # The levels lie closer and closer together: any loss would be near one of them.
        distance = _COINCIDENCE / classes if classes else 0.0
        if 2 <= classes <= most and (
            _stands_at(values, classes, distance) or _came_down_to(values, held_out, classes, distance)
        ):
            return classes
    return None


def _came_down_to(values: FloatArray, held_out: Series | None, classes: int, distance: float) -> bool:
    """Whether a training loss that began little above the level of guessing came down to it, and the validation loss
    ends there or above: what was unlearnt is a random beginning.
    """
    rest, chance = _after_first_tenth(values), log(classes)
    evaluations = held_out.finite().values if held_out is not None else np.empty(0)
    if len(rest) < _FEW_POINTS or len(evaluations) < _FEW_EVALUATIONS:
        return False
    *before, last = (median(part) / chance - 1.0 for part in np.array_split(rest, 3))
    near = min(_EXACT, distance / chance)
    began = -_EXACT <= median(values[:3]) / chance - 1.0 <= _LITTLE
    came = all(-near <= third <= _LITTLE for third in before) and before[-1] <= _SETTLED and abs(last) <= near
    ends = median(evaluations[-_FEW_EVALUATIONS:]) / chance - 1.0
    return began and came and -_NEARLY <= ends <= _LITTLE


def _stands_at(values: FloatArray, classes: int, distance: float, *, settles: bool = False) -> bool:
    """Whether all thirds of what follows the first tenth lie so near to the level of guessing, and within half a
    percent of it, and the loss did not begin below it. A loss that ``settles`` may begin far above; then the first of
    the thirds may still be higher.
    """
    rest, chance = _after_first_tenth(values), log(classes)
    if len(rest) < _FEW_POINTS or values[0] < chance * (1.0 - _EXACT):
        return False
    early, *late = (median(part) for part in np.array_split(rest, 3))
    near = min(_EXACT * chance, distance)
    if not settles or values[0] <= _FAR * chance or early < chance:
        late.append(early)
    return all(abs(third - chance) <= near for third in late)


def _after_first_tenth(values: FloatArray) -> FloatArray:
    return values[max(1, len(values) // 10) :]
