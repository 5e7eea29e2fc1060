"""GEN005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from tracker_health.evidence import FEWEST_POINTS, Curve, Evidence, FloatArray, Need
from tracker_health.evidence.numerics import coarseness
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import number, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class EvaluationStandsStill(CurveRule):
    """The validation loss is one and the same number to the end.

    What it finds:
        A validation loss that repeats a number exactly in at least half of its evaluations, up to the last one.

    Why it matters:
        Weights that move never give the same loss twice. Either the evaluated model is not the trained one, or the
        weights do not move. It may be a copy, or a moving average that is not updated. Early stopping and the choice of
        a checkpoint then use a number that means nothing.

    How it decides:
        Warn when the last `min_repeats` evaluations, half of all, and `longer` times as many as ever before, are one
        number other than 0. The training loss must clearly have fallen since: by `min_fall` of its start and, in
        proportion, by `digits` units of the number's last digit. Warn also, whatever the training loss does, when
        `min_stopped` and `stopped_share` of all are one number with a last digit of `precision` or less.

    Known limits:
        A log that shows the best value so far stands still, too. Other rules on validation (GEN001 to GEN004) are
        skipped where this one finds something.

    Worked example:
        train_loss: 2.3 2.0 1.7 1.5 1.3 1.1 0.9 0.8 0.7 0.6 0.5 0.4
        val_loss: 2.2831 2.1417 2.1417 2.1417 2.1417 2.1417 2.1417 2.1417
        gives: repeats 7, evaluations 8, stands_at 2.142
        warn: the last seven evaluations are one number, while the training loss fell to a fifth.

    What to do:
        Compare the weights that are evaluated with those that the optimizer has: look for an average that is not
        updated, a model that was copied (compiled, wrapped, moved) after the optimizer was made, a cached result.

    References:
        Measured: benchmarks/faults, public training curves.
    """

    code = "GEN005"
    name = "evaluation-stands-still"
    symptom = Symptom.FROZEN
    headline = ("repeats",)
    role: ClassVar[str] = "val_loss"
    fewest: ClassVar[int] = FEWEST_POINTS

    min_repeats: Annotated[int, Threshold("equal evaluations at the end", "evaluations", "design", ge=2)] = 4
    longer: Annotated[float, Threshold("their number over that of equal ones before", "ratio", "design", ge=1)] = (
        4.0  # what a log repeats that has more rows than evaluations
    )
    min_fall: Annotated[
        float, Threshold("fall of the training loss meanwhile, as a share of where it began", "fraction", "design",
                         ge=0, le=1)
    ] = 0.02  # fmt: skip
    digits: Annotated[
        float, Threshold("that fall over the unit of the last digit, both in proportion", "units", "calibration", ge=0)
    ] = 100.0
    min_stopped: Annotated[int, Threshold("equal evaluations that tell alone", "evaluations", "design", ge=2)] = 8
    stopped_share: Annotated[float, Threshold("the same as a share of all", "fraction", "design", gt=0, le=1)] = 0.75
    precision: Annotated[
        float, Threshold("unit of the last digit over the number, then", "fraction", "design", gt=0)
    ] = 1e-4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (*super().needs, Need(role="train_loss", min_points=self.min_repeats))

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        loss, equal, value = evidence.curve("train_loss"), curve.stood, float(curve.series.values[-1])
        measured: dict[str, float | int] = {"repeats": equal, "evaluations": curve.points}
        if loss is None or not self._stands(curve.series.values, equal):
            repeats = "is a new number" if equal == 1 else f"repeats {equal - 1} others"
            return Finding.passed(f"the last of {curve.points} evaluations {repeats}", measured)
        step = int(curve.series.steps[-equal])
        before, after = loss.at_step(step), loss.end
        digit = coarseness(value) / abs(value)
        needed = max(self.min_fall * abs(loss.start.value), self.digits * digit * abs(before.value))
        fell = (before - after).surely_above(needed)
        stopped = equal >= max(self.min_stopped, self.stopped_share * curve.points) and digit <= self.precision
        meanwhile = went(loss.logged_at(step), loss.logged_at(loss.last_step))
        said = (
            f"the validation loss is one number, {number(value)}, in the last {equal} of {curve.points} evaluations, "
            f"from {curve.series.where(step)} on, while the training loss {meanwhile}"
        )
        measured |= {"stands_at": value, "train_before": before.value, "train_after": after.value}
        if not (fell or stopped):
            return Finding.passed(said, measured, sure=False)
        return Finding(
            verdict=Verdict.WARN,
            message=said,
            remedy="check which model is evaluated: an average that is not updated, a copy made before the training; "
            "and whether steps are skipped or the learning rate is 0",
            measured=measured,
            steps=(step,),
        )

    def _stands(self, values: FloatArray, equal: int) -> bool:
        """Whether the last evaluations are equal, and it is not the log that repeats each of them."""
        ends = np.flatnonzero(np.diff(values)) + 1
        before = int(np.diff(ends, prepend=0).max()) if len(ends) else 0
        enough = equal >= max(self.min_repeats, 0.5 * len(values), self.longer * before)
        return enough and bool(values[-1] != 0.0)
