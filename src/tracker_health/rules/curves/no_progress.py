"""LOS005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, LIKELY, SURELY, Curve, Evidence, Need, Part
from tracker_health.facts.chance import came_back_to_its_start, chance_fallen_to
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.report.result import Finding
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict

_REMEDY = (
    "overfit one batch: if that fails look for frozen parameters or a zero gradient; if not change the learning rate "
    "threefold"
)


@dataclass(frozen=True, kw_only=True)
class NoProgress(CurveRule):
    """The loss never came down.

    What it finds:
        A training loss (or, where none was logged, a validation loss) whose best level lies no lower than its start, or
        than guessing.

    Why it matters:
        Nothing was learnt: the gradient is zero, the parameters are frozen, the learning rate is far off, or labels do
        not belong to inputs.

    How it decides:
        The descent goes from the start to the best level. It passes when that is sure and `min_descent` of the start,
        or `least_descent` is left at the end or in the second half. It warns where it is sure and smaller. Else it
        fails when the second half surely is less than `min_descent` lower, and warns when it likely is. A fine-tune
        needs `least_descent`, and only gets warnings. Noise or the first value may hide the answer: passed unsure. It
        fails at LOS006's fall to guessing. An explosion undone warns.

    Known limits:
        Where noise could hide a descent, a run that learnt nothing passes. What was learnt before the log begins does
        not show.

    Worked example:
        train_loss: 2.30 2.31 2.30 2.29 2.30 2.31 2.30 2.30 2.29 2.30 2.31 2.30
        fail: the second half lies at 2.30, as the start; 5 % of that would be 0.115.

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

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", any_of=("val_loss",), min_points=self.fewest),
            *Need.beside("objective_weight", "train_accuracy", "val_accuracy", Part.WEIGHTS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        curves = [evidence.curve(role) for role in ("train_loss", "val_loss")]
        curve = max((one for one in curves if one is not None), key=lambda one: one.sure, default=None)
        if curve is None:
            return Finding.skipped(f"fewer than {self.fewest} points can be compared")
        return self.judge_curve(curve, evidence)

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        if curve.series.role == self.role and (chance := chance_fallen_to(evidence)) is not None:
            return _only_undone(curve, f"{chance.said} has", chance.loss)
        if curve.series.role == self.role and came_back_to_its_start(curve):
            return _only_undone(curve, "it began at", curve.first.value, Verdict.WARN)
        fine_tuning, descent, name = is_fine_tuning(evidence), curve.descent, _name(curve)
        scale = max(abs(curve.start.value), abs(curve.best.value))
        needed = scale * (self.least_descent if fine_tuning else self.min_descent)
        sure = descent.surely_above(0.0) or (curve.trend < -SURELY and descent.value > 0.0)
        measured: dict[str, float | int] = {
            "start": curve.start.value, "best": curve.best.value, "standard_error": descent.error,
            "descent_share": descent.value / scale if scale else 0.0, "trend_z": curve.trend, "points": curve.points,
        }  # fmt: skip
        levels = f"from {number(curve.start.value)} to {number(curve.best.value)} in {curve.points} points{curve.note}"
        lasting = max(curve.kept.value, (curve.start - curve.end).value)  # the best level may be one by chance
        enough = descent.value >= self.min_descent * scale or lasting >= self.least_descent * scale
        if curve.first_is_alone and curve.first.surely_above(curve.settled.value + needed):
            return Finding.passed(f"only the first value of the {name} lies higher: {levels}", measured, sure=False)
        if sure and enough:
            return Finding.passed(f"the {name} came down {levels}", measured)
        if not sure and not curve.kept.surely_below(needed, LIKELY):
            return Finding.passed(f"noise may hide a descent of the {name} {levels}", measured, sure=False)
        flat = curve.kept.surely_below(needed) and not (sure or fine_tuning)
        return Finding(
            verdict=Verdict.FAIL if flat else Verdict.WARN,
            kind="little" if sure else "flat",
            message=f"the {name} {'came down by little' if sure else 'did not come down'}: {levels}",
            remedy=_REMEDY,
            measured=measured,
            confidence="high" if curve.sure else "low",
        )


def _only_undone(curve: Curve, what: str, level: float, verdict: Verdict = Verdict.FAIL) -> Finding:
    """What a loss shows that came down to a level at which nothing is learnt, and no further."""
    highest = max(curve.start.value, curve.first.value, float(curve.series.values.max()))
    came = f"came down from {number(highest)} to {number(curve.end.value)}"
    return Finding(
        verdict=verdict,
        message=f"the loss {came} and no further, where {what} {number(level)}",
        remedy=_REMEDY,
        measured={"start": curve.start.value, "best": curve.best.value, "level": level, "points": curve.points},
        kind="only-undone",
        confidence="high" if curve.sure else "low",
    )


def _name(curve: Curve) -> str:
    return "validation loss" if curve.series.role == "val_loss" else "loss"
