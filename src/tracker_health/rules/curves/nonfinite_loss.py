"""LOS001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.evidence.numerics import lasts_from, stretch_ends
from tracker_health.facts.recorded import taken
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.roles import LOSS_PART, OBJECTIVE_LOSS, is_perplexity
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, short_name
from tracker_health.words.verdict import Verdict, worst_verdict

_HUGE = "restart with a lower learning rate or gradient clipping; look at the scale of inputs and targets"
_LOSSES = ("train_loss", "val_loss", OBJECTIVE_LOSS)


@dataclass(frozen=True, kw_only=True)
class NonfiniteLoss(Probe):
    """The loss is NaN or infinite.

    What it finds:
        NaN or infinite values in the training, validation or objective loss.

    Why it matters:
        A NaN that reaches the weights never leaves them: every later step trains a model that computes nothing. A
        single one that the training skipped (a bad batch, an fp16 overflow that the scaler caught) does no harm.

    How it decides:
        On the newest value of every step. Warn at a single non-finite one that finite ones follow, or at several, up
        to `recovered` of the points, that changing ones follow. Otherwise fail from `max_share` on, when one is in the
        last `tail_share`, or these are beyond `as_infinite`. What was not taken does not count: NaN at a regular
        distance, at the steps of the validation loss, or before its first value; a perplexity that begins infinite.
        Warn where a part of the loss ends so, after `min_part` finite values.

    Known limits:
        A trainer that writes 0.0 in place of NaN hides it from this rule; LOS002 looks for that.

    Worked example:
        train_loss: 2.3 1.9 1.6 1.4 nan nan nan nan
        gives: nonfinite 4, share 0.5, first_step 4
        fail: half of the points are NaN, and so are the last.

    What to do:
        Restart from the last checkpoint before the first non-finite step, with a lower learning rate, gradient
        clipping, or bf16 in place of fp16; look at the batch of that step.

    References:
        IEEE 754 arithmetic: every operation on a NaN gives a NaN.
    """

    code = "LOS001"
    name = "nonfinite-loss"
    symptom = Symptom.NONFINITE
    fails_on_guesses = True

    max_share: Annotated[
        float, Threshold("share of non-finite points that fails a run", "fraction", "design", gt=0, le=1)
    ] = 0.01
    recovered: Annotated[
        float,
        Threshold("share of non-finite points of a loss that recovered from each", "fraction", "design", gt=0, le=1),
    ] = 0.05
    tail_share: Annotated[
        float, Threshold("share of the points that counts as the end", "fraction", "design", gt=0, le=1)
    ] = 0.1
    as_infinite: Annotated[
        float, Threshold("size that is as good as infinite: single precision ends at 3.4e38", "", "design", gt=0)
    ] = 1e30
    min_part: Annotated[
        int, Threshold("finite values of a part of the loss, and non-finite ones", "points", "design", ge=1)
    ] = 3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=_LOSSES[0], any_of=_LOSSES[1:]), Need(role=LOSS_PART, optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        # Not only the longest history of a role: a NaN in any of them is one.
        losses = sorted((one for one in evidence.series if one.role in _LOSSES and len(one)), key=lambda one: -len(one))
        judged = [self._judge_one(taken(series, evidence)) for series in losses]
        parts = (series.clean() for series in evidence.series if series.role == LOSS_PART)
        judged += [_of_part(series) for series in parts if self._was_lost(series)]
        verdict = worst_verdict(finding.verdict for finding in judged)
        return next(finding for finding in judged if finding.verdict is verdict)

    def _judge_one(self, series: Series) -> Finding:
        clean = series.clean()
        bad = ~np.isfinite(clean.values)
        steps = clean.steps[bad]
        total, share = len(clean), float(bad.mean())
        measured = {"nonfinite": len(steps), "points": total, "share": share}
        name = short_name(series.name)
        if not len(steps):
            at_end = np.sort(np.abs(clean.values[-max(1, round(total * self.tail_share)) :]))
            last = float(at_end[len(at_end) // 2])  # one that was logged: the mean of two may overflow
            if last > self.as_infinite and not is_perplexity(series.name):
                message = f"{name} ends at {number(last)}, as good as infinite"
                return Finding(verdict=Verdict.FAIL, message=message, remedy=_HUGE, measured=measured)
            return Finding.passed(f"all {total} points of {name} are finite", measured)
        tail = max(1, round(total * self.tail_share))
        recovered = self._has_recovered(clean, bad)
        dead = not recovered and (share >= self.max_share or bool(bad[-tail:].any()))
        ends = f"first at {series.where(steps[0])}, last at {series.place(steps[-1])}"
        where = f"at {series.places(steps)}" if recovered else ends
        ending = "" if bad[-1] else f"; finite again, {number(float(clean.values[-1]))} at the end"
        return Finding(
            verdict=Verdict.FAIL if dead else Verdict.WARN,
            message=f"{len(steps)} of {count(total, 'point')} of {name} are NaN or infinite, {where}{ending}",
            remedy=_remedy(clean, bad),
            measured=measured | {"first_step": int(steps[0]), "last_step": int(steps[-1])},
            steps=tuple(int(step) for step in clean.steps[stretch_ends(bad)]),
            onset=_onset(series, bad),
        )

    def _has_recovered(self, clean: Series, bad: npt.NDArray[np.bool_]) -> bool:
        """Whether few are non-finite, and the loss is alive after the last: broken weights give one number for all."""
        after = clean.values[lasts_from(~bad) :]
        if not len(after) or bad.sum() == 1:
            return len(after) > 0
        moves = bool(after.min() < after.max()) and abs(float(after[-1])) < self.as_infinite
        return moves and float(bad.mean()) <= self.recovered

    def _was_lost(self, part: Series) -> bool:
        """Whether a part of the loss was finite, and is no more from some point on to the end."""
        finite = np.flatnonzero(np.isfinite(part.values))
        lost = len(part) - 1 - int(finite[-1]) if len(finite) else 0
        return len(finite) >= self.min_part and lost >= max(self.min_part, self.tail_share * len(part))


def _onset(series: Series, bad: npt.NDArray[np.bool_]) -> Onset | None:
    """Where a loss of training left the finite values that it had, to the end; None where it came back, or had none: a
    NaN in the weights stays in every later loss.
    """
    first = lasts_from(bad)
    if series.role == _LOSSES[1] or not 0 < first < len(bad):
        return None
    return Onset.on(series, series.clean().steps[first], f"{short_name(series.name)} became NaN or infinite")


def _of_part(part: Series) -> Finding:
    last = int(part.steps[np.isfinite(part.values)][-1])
    first = int(part.steps[int(np.searchsorted(part.steps, last)) + 1])
    return Finding(
        verdict=Verdict.WARN,
        message=f"{short_name(part.name)}, a part of the loss, is NaN or infinite from {part.where(first)} to the end",
        remedy=f"look at what it measures from {part.place(first)} on; where there is nothing to measure, log nothing",
        measured={"first_step": first},
        steps=(first,),
        about=(part.name,),
    )


def _remedy(clean: Series, bad: npt.NDArray[np.bool_]) -> str:
    first = int(np.argmax(bad))
    advice = "lower the learning rate, clip gradients, or train in bf16 instead of fp16"
    if first == 0:
        return f"the very first value is non-finite: check inputs and initialisation, then {advice}"
    last = clean.place_before(clean.steps[first - 1], clean.steps[first])
    return f"restart from a checkpoint at or before {last}, the last finite one; {advice}"
