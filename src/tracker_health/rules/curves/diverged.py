"""LOS004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, SURELY, Curve, Evidence
from tracker_health.evidence.curve import resolution
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.text import contrast, ends, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Diverged(CurveRule):
    """The loss went up and stayed there, or climbed past its start.

    What it finds:
        A training loss that clearly ends above its best level, or that falls below 0 without a bound. Also one that
        climbed far above its start, even if it came down again.

    Why it matters:
        The final weights are worse than earlier ones of the same run; often they are worthless.

    How it decides:
        Fail when the end is clearly (by `sigmas` standard errors) above the best level by `rise_share` of the
        descent; of a flat curve a fifth of the best level counts as descent. Warn when it clearly is `multiple`
        times the best level, and `least_rise` of the descent above it. The rise must be steady, for half of the
        points. Fail when a level is clearly above the start by `climb_share` of it. Where both are 0 in print,
        `from_zero` counts. Fail when a loss ends below 0, `runaway` times as large as it began. Levels are
        medians of up to 40 blocks. Unsure of few points, and where the learning rate began again after the best
        level.

    Known limits:
        An objective that is made harder looks like a divergence, unless a logged weight says so. Examples are pruning
        or quantisation that sets in, a curriculum, and targets of a network that learns too. Below 8 points only large
        rises show.

    Worked example:
        train_loss: 4 3 2 1.5 1.2 1 1 1.5 2 2.5 2.5 2.5
        gives: rise_share 0.4828, start 4, best 1.1
        fail: the end, 2.5, is 1.4 above the best level, and `rise_share` of the descent of 2.9 is 0.44.

    What to do:
        Take the checkpoint at the best level. Restart from there with a lower learning rate, a longer warm-up, or
        gradient clipping.

    References:
        Standard error of a median; Student (1908) on few points.
    """

    code = "LOS004"
    name = "diverged"
    symptom = Symptom.DIVERGED
    kinds = ("rose", "climbed", "without-a-bound")
    headline = ("rise_share", "climb_share")
    fewest = FEWEST_POINTS

    rise_share: Annotated[
        float, Threshold("rise above the best level that counts, as a share of the descent", "fraction", "design", gt=0)
    ] = 0.15
    sigmas: Annotated[float, Threshold("what is sure, in standard errors", "standard errors", "design", ge=0)] = SURELY
    climb_share: Annotated[
        float, Threshold("climb past the start that counts, as a share of it", "fraction", "first calibration", gt=0)
    ] = 0.5
    from_zero: Annotated[float, Threshold("loss that a rise from a printed 0 is measured by", "", "design", gt=0)] = 1.0
    multiple: Annotated[
        float, Threshold("end over the best level, of a rise over half of the run", "ratio", "design", gt=1)
    ] = 2.0
    least_rise: Annotated[float, Threshold("the same rise as a share of the descent", "fraction", "design", gt=0)] = (
        0.05
    )
    runaway: Annotated[
        float, Threshold("size below 0, in sizes of the start, of a loss without a bound", "ratio", "design", gt=1)
    ] = 3000.0

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        rise, climb = curve.end - curve.best, curve.peak - curve.outset
        began = abs(curve.outset.value)
        is_nothing = max(began, abs(curve.best.value)) <= resolution(curve.series.values)  # there is no share of a 0
        least = self.from_zero if is_nothing else 0.0
        rose = rise.surely_above(self.rise_share * max(curve.size, least), self.sigmas)
        climbed = climb.surely_above(self.climb_share * max(began, least), self.sigmas)
        steadily = not (rose or climbed) and self._rose_steadily(curve)
        ran_away = curve.end.surely_below(-self.runaway * max(1.0, abs(curve.start.value)))
        measured: dict[str, float | int] = {
            "start": curve.start.value, "best": curve.best.value, "end": curve.end.value, "peak": curve.peak.value,
            "noise": curve.noise, "points": curve.points, "rise_share": rise.value / curve.size if curve.size else 0.0,
        }  # fmt: skip
        if ran_away:
            return _without_a_bound(curve, measured)
        if not (rose or climbed or steadily):
            end, best = curve.end.value, curve.best.value
            return Finding.passed(f"the loss {ends(end, best, at_best=end <= best)}{curve.note}", measured)
        began_anew = any(step > curve.best_step for step in curve.restarts)
        doubtful = not curve.sure or evidence.first(self.role).went_back or (began_anew and not climbed)
        rose = rose or steadily
        limit = curve.best.value + (self.least_rise if steadily else self.rise_share) * curve.size
        onset = curve.left(limit) if rose else curve.peak_step
        near = curve.series.place_before(curve.best_step, onset)
        restart = f"restart from a checkpoint near {near}" if rose else "start again"
        if not rose:
            del measured["rise_share"]  # what it was judged by is the climb
            measured["climb_share"] = climb.value / abs(curve.outset.value) if curve.outset.value else 0.0
        return Finding(
            verdict=Verdict.WARN if steadily else Verdict.FAIL,
            message=_message(curve, onset if rose else None) + curve.note,
            remedy=f"{restart} with a lower learning rate, a longer warm-up or gradient clipping",
            measured=measured | {"best_step": curve.best_step},
            steps=(onset, curve.last_step) if rose else (onset,),
            confidence="low" if doubtful else "high",
            kind="rose" if rose else "climbed",
            onset=Onset.on(curve.series, self._began_to_rise(curve, onset), "the loss rose") if rose else None,
        )

    def _began_to_rise(self, curve: Curve, onset: int) -> int:
        """From where on all levels are clearly above the best: what is saved later may have a part of the rise."""
        return min(onset, curve.left(curve.best.value + self.sigmas * curve.best.error))

    def _rose_steadily(self, curve: Curve) -> bool:
        """Whether it clearly rose to a multiple of its best level, little by little, for half of the run or more."""
        best, since = curve.best.value, curve.since(curve.best_step)
        needed = max((self.multiple - 1.0) * best, self.least_rise * curve.size)
        rose = best > 0.0 and (curve.end - curve.best).surely_above(needed, self.sigmas)
        return rose and 2 * since >= curve.points and curve.trend_since(curve.best_step) > self.sigmas


def _message(curve: Curve, onset: int | None) -> str:
    """``onset``: where it rose for good; None where it climbed and came down."""
    start, best, end = contrast(curve.first.value, curve.best.value, curve.end.value)
    if onset is None:
        start, end, peak = contrast(curve.first.value, curve.end.value, float(curve.series.values.max()))
        return f"the loss climbed from {start} to {peak} at {curve.series.where(curve.peak_step)}; it ends at {end}"
    where = curve.series.where(onset)
    return f"the loss rose at {where}, from about {best} to {end}, and stayed there; it began at {start}"


def _without_a_bound(curve: Curve, measured: dict[str, float | int]) -> Finding:
    return Finding(
        verdict=Verdict.FAIL,
        message=f"the loss {went(curve.start.value, curve.end.value, 'fell')}: nothing bounds it",
        remedy="look for a sign that is turned round, or a term that is rewarded without a limit",
        measured=measured | {"last_step": curve.last_step},
        steps=(curve.last_step,),
        kind="without-a-bound",
        confidence="high" if curve.sure else "low",
    )
