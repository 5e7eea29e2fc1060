"""LOS005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Evidence, Need, Part
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.facts.learnt import falls_likely, falls_surely, learnt_by, size_of
from tracker_health.report.result import Finding
from tracker_health.rules.curves._undone import REMEDY, only_undone
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class NoProgress(CurveRule):
    """The loss never came down.

    What it finds:
        A training loss (or, where none was logged, a validation loss) whose best level is no lower than its start, or
        than guessing.

    Why it matters:
        Nothing was learnt: the gradient is zero, the parameters are frozen, the learning rate is far off, or labels do
        not belong to inputs.

    How it decides:
        The descent goes from the start to the best level. The first value counts as the start only if what follows
        confirms it. In this order:
        Fail at LOS006's fall to guessing; warn where an explosion came back to where it began. Where only
        the first value is higher, skip; warn where `long` points clearly fell by less than `least_descent` after it,
        and no score rose.
        Pass when the descent is sure and `min_descent` of the start, or `least_descent` of it is left at the end or in
        the second half. Pass, unsure, when a fall to the second half by `large_descent` is likely, or by `min_descent`
        in two ways. Skip where noise may hide more. Warn where the descent is sure and smaller. Else fail when the
        second half is clearly less than `min_descent` lower, and warn when it likely is. A fine-tune needs
        `least_descent`, and only gets warnings. Where noise hides the training loss, the validation loss may answer.

    Known limits:
        What was learnt before the log begins does not show. A loss that comes down within its first points, and is
        flat after them, may have learnt all that there is.

    Worked example:
        train_loss: 2.30 2.31 2.30 2.29 2.30 2.31 2.30 2.30 2.29 2.30 2.31 2.30
        gives: descent_share 0.002174, start 2.3, best 2.295
        fail: the second half is at 2.30, as the start; 5 % of that would be 0.115.

    What to do:
        Overfit one batch; if that fails look for frozen parameters or a zero gradient, else change the learning rate
        threefold.

    References:
        Mann (1945) and Kendall (1975) on trends; Student (1908) on few points.
    """

    code = "LOS005"
    name = "no-progress"
    symptom = Symptom.NOT_LEARNING
    kinds = ("flat", "little", "only-undone")
    vouches = True
    headline = ("descent_share",)
    fewest = FEWEST_POINTS

    min_descent: Annotated[
        float, Threshold("descent needed, as a share of the start", "fraction", "design", ge=0, le=1)
    ] = 0.05
    least_descent: Annotated[
        float, Threshold("descent that counts where it is sure, as a share of the start", "fraction", "calibration",
                         ge=0, le=1)
    ] = 0.03  # fmt: skip

    long: Annotated[int, Threshold("points of which no single one can be the descent", "points", "design", ge=4)] = 40
    large_descent: Annotated[
        float, Threshold("descent that counts where it is likely, as a share of the start", "fraction", "design",
                         gt=0, le=1)
    ] = 0.2  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", any_of=("val_loss",), min_points=self.fewest),
            *Need.beside("objective_weight", "train_accuracy", "val_accuracy", Part.WEIGHTS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        curves = [curve for role in ("train_loss", "val_loss") if (curve := evidence.curve(role)) is not None]
        if not curves:
            return Finding.skipped(f"fewer than {self.fewest} points can be compared")
        first, *other = sorted(curves, key=lambda curve: not curve.sure)
        finding = self.judge_curve(first, evidence)
        if finding.verdict is Verdict.SKIP and other and self._came_down(other[0]):
            return self.judge_curve(other[0], evidence)
        if finding.verdict is Verdict.SKIP and other and all(map(falls_likely, curves)):
            message = "the training and the validation loss likely both came down; each alone is hidden by noise"
            return Finding.passed(message, finding.measured, sure=False)
        return finding

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        undone = only_undone(curve, evidence) if curve.series.role == self.role else None
        if undone is not None:
            return undone
        descent, name, needed = curve.descent, _name(curve), self._needed(curve, evidence)
        scale = size_of(curve)
        measured: dict[str, float | int] = {
            "start": curve.top.value, "best": curve.best.value, "standard_error": descent.error,
            "descent_share": descent.value / scale if scale else 0.0, "trend_z": curve.trend, "points": curve.points,
        }  # fmt: skip
        start, best = contrast(curve.top.value, curve.best.value)
        where = f"in {curve.points} points{curve.note}"
        levels = f"from {start} to {best} {where}" if start != best else f"it stayed at {best} {where}"
        if curve.first_is_alone and curve.first.surely_above(curve.top.value + needed):
            return self._but_for_the_first(curve, evidence, measured)
        if self._came_down(curve):
            return Finding.passed(f"the {name} came down {levels}", measured)
        sure = falls_surely(curve)
        least = self.min_descent if curve.likely_falls else self.large_descent
        if not sure and falls_likely(curve) and curve.kept.value >= least * scale:
            return Finding.passed(f"the {name} likely came down {levels}", measured, sure=False)
        if not sure and not curve.kept.surely_below(needed, LIKELY):
            noise = f"its levels are {levels}, the noise of one point is {number(curve.noise)}"
            return Finding.skipped(f"noise may hide a descent of the {name}: {noise}", measured)
        flat = curve.kept.surely_below(needed) and not (sure or is_fine_tuning(evidence))
        return Finding(
            verdict=Verdict.FAIL if flat else Verdict.WARN,
            kind="little" if sure else "flat",
            message=f"the {name} {'came down by little' if sure else 'did not come down'}: {levels}",
            remedy=REMEDY,
            measured=measured,
            confidence="high" if curve.sure else "low",
        )

    def _needed(self, curve: Curve, evidence: Evidence) -> float:
        return size_of(curve) * (self.least_descent if is_fine_tuning(evidence) else self.min_descent)

    def _came_down(self, curve: Curve) -> bool:
        """Whether it fell for sure, and far enough at its best, or far enough for what was not lost again."""
        lasting = max(curve.kept.value, (curve.top - curve.end).value)  # the best level may be one by chance
        far = curve.descent.value >= self.min_descent * size_of(curve) or lasting >= self.least_descent * size_of(curve)
        return falls_surely(curve) and far

    def _but_for_the_first(self, curve: Curve, evidence: Evidence, measured: dict[str, float | int]) -> Finding:
        """The finding on a loss of which only the first value is higher: one value is no level to come down from."""
        level = curve.top
        first, second, last = contrast(curve.first.value, level.value, curve.end.value)
        then = f"{second} to {last}" if second != last else last
        message = f"only the first value of the {_name(curve)} is higher: {first}, then {then} in {curve.points} points"
        flat = (level - curve.between(0.5, 1.0)).surely_below(self.least_descent * abs(level.value))
        if curve.points < self.long or not flat or is_fine_tuning(evidence) or learnt_by(evidence):
            return Finding.skipped(message, measured)
        return Finding(
            verdict=Verdict.WARN, kind="flat", message=message, remedy=REMEDY, measured=measured,
            confidence="high" if curve.sure else "low",
        )  # fmt: skip


def _name(curve: Curve) -> str:
    return "validation loss" if curve.series.role == "val_loss" else "loss"
