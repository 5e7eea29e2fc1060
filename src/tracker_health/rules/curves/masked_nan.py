"""LOS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.curve import resolution
from tracker_health.evidence.numerics import lasts_from, longest_run, median
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict

_ACCURACIES = ("train_accuracy", "val_accuracy")
_ZERO_BY_DESIGN = ("train_reward", "val_reward", "kl")  # a policy's objective is 0 before its first update
_DEAD = "look at the labels of one batch: where none of them counts there is nothing to learn from"


@dataclass(frozen=True, kw_only=True)
class MaskedNan(Probe):
    """The loss is pinned at exactly 0.0, as trainers write it in place of NaN.

    What it finds:
        A training loss of exactly 0.0 for several points in a row after it had been positive, or at a step whose
        gradient norm is NaN.

    Why it matters:
        The Hugging Face Trainer replaces a NaN loss by 0.0 in its log (`logging_nan_inf_filter`). The curve then
        looks like a perfect one while the model is dead.

    How it decides:
        Fail at a zero next to a gradient norm that is not finite, and at `min_zeros` zeros in a row. Fail where
        loss and gradient are always 0; warn where the loss is and no gradient is known, except of a policy. The
        level before is the lowest of the last positive values but the very last, which may hold zeros. It
        passes below `descended` of the start (or where that is 0) if the zeros are true: the level is `units`
        of the last digit, as many zeros came before, gradient norms or validation losses are finite, or
        accuracies as before. Unsure below `near_zero`, and before positive losses.

    Known limits:
        Losses that are truly 0 look the same if they arrive there suddenly, as hinge and triplet losses may. A trainer
        that logs a finite gradient norm for a step that it skipped hides NaN in a loss that had come down.

    Worked example:
        train_loss: 2.3 1.9 1.6 1.4 0 0 0 0
        gives: zeros 4, longest_run 4, first_step 4
        fail: four zeros follow 1.4, which is far above a hundredth of 2.3.

    What to do:
        Set `logging_nan_inf_filter=False` to see the truth, and restart from the last checkpoint before the first
        zero.

    References:
        Hugging Face Trainer, `TrainingArguments.logging_nan_inf_filter`.
    """

    code = "LOS002"
    name = "masked-nan"
    symptom = Symptom.COLLAPSED

    min_zeros: Annotated[
        int, Threshold("exact zeros in a row that are taken for masked NaN", "points", "public runs", ge=2)
    ] = 3
    near_zero: Annotated[
        float, Threshold("level before, over the first loss, from which rounding to 0 is plausible", "fraction",
                         "design", ge=0, le=1)
    ] = 0.01  # fmt: skip
    descended: Annotated[
        float, Threshold("level before, over the first loss, from which true zeros are plausible", "fraction", "design",
                         ge=0, le=1)
    ] = 0.1  # fmt: skip
    units: Annotated[float, Threshold("level that the log rounds away", "units of the last digit", "design", ge=0)] = (
        2.0
    )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=2),
            *Need.beside("grad_norm", "val_loss", *_ACCURACIES, *_ZERO_BY_DESIGN),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").clean()
        zero = loss.values == 0.0
        steps, norms = _values(evidence, "grad_norm")
        broken = np.intersect1d(loss.steps[zero], steps[~np.isfinite(norms)])
        start, length = longest_run(zero)
        measured = {"zeros": int(zero.sum()), "longest_run": length, "zeros_with_nonfinite_gradient": len(broken)}
        if len(broken):
            where = f"{len(broken)} steps where the gradient norm is not finite, first at {loss.where(broken[0])}"
            return _finding(f"the loss is exactly 0.0 at {where}", measured, int(broken[0]), loss)
        if length == len(loss) >= self.min_zeros and _is_dead(evidence):
            message, first = f"the loss and the gradient norm are exactly 0 at all {length} points", int(loss.steps[0])
            return Finding(verdict=Verdict.FAIL, message=message, remedy=_DEAD, measured=measured, steps=(first,))
        if length == len(loss) >= self.min_zeros and not any(evidence.find(role) for role in _ZERO_BY_DESIGN):
            return _never_computed(loss, measured)
        before = loss.values[:start]
        before = before[np.isfinite(before) & (before > 0)]
        if length < self.min_zeros or not len(before):
            return Finding.passed("no stretch of exact zeros in the loss", measured)
        first, level = int(loss.steps[start]), _level(before)
        said = f"the loss is exactly 0.0 for {length} points from {loss.where(first)}, after {number(level)}"
        rounded = level <= self.units * resolution(before) or int(zero[:start].sum()) >= self.min_zeros
        true = rounded or _is_alive(evidence, loss.steps[start : start + length])
        began_there = loss.values[0] == 0.0
        if true and (began_there or level <= self.descended * before[0]):
            message = f"{said}: {'the log rounds it' if rounded else 'what was logged beside it is finite'}"
            return Finding.passed(message, measured, sure=False)
        unsure = began_there or level <= self.near_zero * before[0] or bool((loss.values[start + length :] > 0).any())
        return _finding(said, measured, first, loss, unsure=unsure)


def _never_computed(loss: Series, measured: dict[str, int]) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"the loss is exactly 0 at all {len(loss)} points: it is not computed, or nothing counts in it",
        remedy=_DEAD,
        measured=measured,
        steps=(int(loss.steps[0]),),
    )


def _level(before: FloatArray) -> float:
    """The lowest of the last positive values, without the very last of several: of an interval's mean a part may be
    zeros.
    """
    return float((before[:-1][-3:] if len(before) > 1 else before).min())


def _values(evidence: Evidence, role: str) -> tuple[IntArray, FloatArray]:
    series = evidence.find(role)
    clean = series.clean() if series is not None else None
    return (clean.steps, clean.values) if clean is not None else (np.empty(0, dtype=np.int64), np.empty(0))


def _is_alive(evidence: Evidence, zeros: IntArray) -> bool:
    """Whether all gradient norms next to the zeros, or all validation losses since the first of them, are finite, and
    not 0 as the loss is; or whether an accuracy is as high as before, which that of NaN is not.
    """
    if any(_is_as_high(evidence, role, zeros) for role in _ACCURACIES):
        return True
    (steps, norms), (evaluated, held_out) = (_values(evidence, role) for role in ("grad_norm", "val_loss"))
    seen = norms[np.isin(steps, zeros)], held_out[evaluated > zeros[0]]
    return any(len(one) and bool(np.isfinite(one).all()) and bool(one.any()) for one in seen)


def _is_as_high(evidence: Evidence, accuracy: str, zeros: IntArray) -> bool:
    steps, values = _values(evidence, accuracy)
    before, meanwhile = values[steps < zeros[0]], values[(steps >= zeros[0]) & (steps <= zeros[-1])]
    return bool(len(before) and len(meanwhile) and meanwhile.any() and median(meanwhile) >= median(before))


def _is_dead(evidence: Evidence) -> bool:
    """Whether all gradient norms are 0. A loss may be 0 by itself, as that of a policy before its first update."""
    norms = _values(evidence, "grad_norm")[1]
    return len(norms) > 1 and not norms.any()


def _onset(loss: Series) -> Onset | None:
    """Where the loss became 0 to the end; None where it did not, or always was."""
    first = lasts_from(loss.values == 0.0)
    known = 0 < first < len(loss)
    return Onset.on(loss, loss.steps[first], "the loss became 0") if known else None


def _finding(said: str, measured: dict[str, int], step: int, loss: Series, *, unsure: bool = False) -> Finding:
    return Finding(
        verdict=Verdict.FAIL,
        message=f"{said}; it may be rounding, or a batch without an error" if unsure else said,
        remedy=f"set logging_nan_inf_filter=False to see whether it is NaN; if so restart before {loss.place(step)}",
        measured=measured | {"first_step": step},
        steps=(step,),
        confidence="low" if unsure else "high",
        onset=_onset(loss),
    )
