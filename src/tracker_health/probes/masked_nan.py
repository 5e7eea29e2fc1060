"""LOS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import longest_run, median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_DECIMALS = (1, 2, 3, 4, 5, 6)
_UNITS = 2.0
_LAST = 3
_DESCENDED = 0.1
_SEEN = 2
_LEAPT = 1.5


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
        On cleaned points. A zero loss beside a non-finite gradient norm fails. So does a run of at least `min_zeros`
        exact zeros that follows a positive loss; where the loss had come down to less than `near_zero` of its start
        before, the zeros may be rounding of a memorised data set, and the rule is unsure (a warning), as where it had
        come down below a tenth and the gradient norm is exactly 0 as well, or where at least as many positive losses
        follow. It passes where the log has no more than six decimals and the loss had come down to two units of the
        last of them, and below a tenth of its start; and where three zeros or more lie among positive losses before,
        which had come down below a tenth of the first: hinge, ranking and triplet losses are truly 0 for a batch
        without an error. So it does where the loss had come down below a tenth of its start, and the gradient norm
        beside each zero is finite, and not 0 beside all (unless the loss had come down to `near_zero`), or the
        validation loss after the first of them, which then did not leap to half as much again as before.

    Known limits:
        Losses that are truly 0 look the same if they arrive there suddenly, and NaN behind a loss of the last decimal
        that is logged looks like rounding. A trainer that logs a finite gradient norm for a step that it skipped hides
        NaN in a loss that had come down.

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
        float,
        Threshold(
            "level, as a share of the first loss, from which rounding to 0 is plausible",
            "fraction",
            "design",
            ge=0,
            le=1,
        ),
    ] = 0.01

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=2),
            Need(role="grad_norm", optional=True),
            Need(role="val_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").clean()
        zero = loss.values == 0.0
        beside_nan = _zero_beside_nonfinite_gradient(loss, evidence.find("grad_norm"))
        start, length = longest_run(zero)
        measured = {"zeros": int(zero.sum()), "longest_run": length, "zeros_with_nonfinite_gradient": len(beside_nan)}
        before = loss.values[:start]
        before = before[np.isfinite(before) & (before > 0)]
        if len(beside_nan):
            where = f"{len(beside_nan)} steps where the gradient norm is not finite, first at step {beside_nan[0]}"
            message = f"the loss is exactly 0.0 at {where}"
            return self._finding(Verdict.FAIL, message, measured, int(beside_nan[0]))
        if length < self.min_zeros or not len(before):
            return Finding(verdict=Verdict.PASS, message="no stretch of exact zeros in the loss", measured=measured)
        first = int(loss.steps[start])
        if _rounded_away(before):
            message = f"the loss rounds to 0.0 from step {first} on, after {number(float(before[-1]))}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        if before.min() < _DESCENDED * before[0] and _is_well(
            evidence, loss.steps[start : start + length], gradual=bool(before[-1] <= self.near_zero * before[0])
        ):
            message = f"the loss is exactly 0.0 from step {first} on, and what was logged beside it is finite"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        if _comes_and_goes(loss.values[:start], before):
            message = "the loss is exactly 0.0 now and then, on its way down: for batches without an error, as it seems"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        gradual = bool(before[-1] <= self.near_zero * before[0])
        later = loss.values[start + length :]
        recovers = int(np.count_nonzero(np.isfinite(later) & (later > 0))) >= max(length, self.min_zeros)
        descended = before.min() < _DESCENDED * before[0]
        silent = descended and _is_silent(evidence, loss.steps[start : start + length])
        message = f"the loss is exactly 0.0 for {length} points from step {first}, after {number(float(before[-1]))}"
        if gradual:
            message += "; it had come close to 0 before, so this may be rounding"
        elif recovers:
            message += "; it is positive again later"
        elif silent:
            message += ", and so is the gradient: as where NaN is replaced, or of a loss that has nothing left to learn"
        return self._finding(Verdict.FAIL, message, measured, first, unsure=gradual or recovers or silent)

    def _finding(
        self, verdict: Verdict, message: str, measured: dict[str, int], step: int, *, unsure: bool = False
    ) -> Finding:
        return Finding(
            verdict=verdict,
            message=message,
            remedy=f"set logging_nan_inf_filter=False to see whether it is NaN; if so restart from before step {step}",
            measured=measured | {"first_step": step},
            steps=(step,),
            confidence="low" if unsure else "high",
        )


def _is_well(evidence: Evidence, steps: IntArray, *, gradual: bool) -> bool:
    """Whether the gradient norm beside each zero, or the validation loss meanwhile, is a finite number. Gradients of 0
    are hidden as the loss is, unless that came down to nothing before; a validation loss that leapt is no good sign.
    """
    gradient, held_out = evidence.find("grad_norm"), evidence.find("val_loss")
    if gradient is not None:
        beside = gradient.clean().finite()
        if np.isin(steps, beside.steps).all() and (gradual or beside.values[np.isin(beside.steps, steps)].any()):
            return True
    if held_out is None:
        return False
    clean = held_out.clean()
    before, meanwhile = clean.values[clean.steps < steps[0]], clean.values[clean.steps > steps[0]]
    if len(meanwhile) < _SEEN or not (np.isfinite(meanwhile).all() and (meanwhile > 0).all()):
        return False
    # A loss that is truly 0 changes nothing any more; what broke the weights shows here.
    return gradual or not len(before) or not median(meanwhile) > _LEAPT * before[-1]


def _is_silent(evidence: Evidence, steps: IntArray) -> bool:
    """Whether the gradient norm beside each zero is exactly 0."""
    gradient = evidence.find("grad_norm")
    beside = gradient.clean() if gradient is not None else None
    return beside is not None and bool(np.isin(steps, beside.steps[beside.values == 0.0]).all())


def _comes_and_goes(values: FloatArray, positive: FloatArray) -> bool:
    """Whether zeros lie among positive losses that had come down; ``positive``: these, in order."""
    up_to = int(np.flatnonzero(values > 0)[-1])
    return int(np.count_nonzero(values[:up_to] == 0.0)) >= _LAST and positive.min() < _DESCENDED * positive[0]


def _rounded_away(before: FloatArray) -> bool:
    """Whether a log of a few decimals had come down to the last of them: the next value below is 0."""
    last = median(before[-_LAST:])
    for decimals in _DECIMALS:
        unit = 10.0**-decimals
        rounded = np.round(before, decimals)
        if rounded.min() > 0 and np.abs(before - rounded).max() < 1e-6 * unit:
            return last <= _UNITS * unit and last < _DESCENDED * float(before[0])
    return False


def _zero_beside_nonfinite_gradient(loss: Series, gradient: Series | None) -> list[int]:
    if gradient is None:
        return []
    clean = gradient.clean()
    bad_steps = clean.steps[~np.isfinite(clean.values)]
    return [int(step) for step in np.intersect1d(loss.steps[loss.values == 0.0], bad_steps)]
