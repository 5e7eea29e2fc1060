"""GEN009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import SURELY, Evidence, Need
from tracker_health.facts.scores import Score, held_out_scores, needs_of_scores
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, ends
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScoreLost(Probe):
    """A held-out score ends far below its best.

    What it finds:
        A score of the held-out samples that had become good, and lost much of that again, though the losses do not show
        it.

    Why it matters:
        The last checkpoint is not the best one. What people care about got worse while training looked fine.

    How it decides:
        The score's course is turned so that lower is better. Its best is the lowest of overlapping parts. Warn
        when the end is clearly worse than the best by `fall_share` of what had been gained since the start. It
        must be worse by `of_scale` of the scale, too: of an error its best value, of a share 1 or 100. The best
        is `min_after` evaluations or more before the end. A score that never got better must clearly fall from
        evaluation to evaluation, by `without_gain` of the best of an error, or of the scale. It needs
        `min_evaluations`. Of several scores more than half must be lost.

    Known limits:
        A score of which most was there at the start has gained little, and a small loss counts. The scores of a task
        that gets harder fall as well.

    Worked example:
        higher_better_val f1: 0.2 0.4 0.6 0.7 0.75 0.76 0.75 0.6 0.5 0.45 0.42 0.4
        gives: best 0.75, end 0.41, fall_share 0.618
        warn: 0.41 is 0.34 below the best level, 62 % of the 0.55 that was gained since 0.2.

    What to do:
        Take the checkpoint at the best score, and stop there the next time. Look at what the score measures and the
        loss does not.

    References:
        Prechelt (1998), Early stopping: but when?
    """

    code = "GEN009"
    name = "score-lost"
    symptom = Symptom.OVERFIT
    since = "0.2.0"
    headline = ("fall_share",)

    fall_share: Annotated[
        float, Threshold("loss that counts, as a share of what was gained", "fraction", "design", gt=0)
    ] = 0.3
    of_scale: Annotated[float, Threshold("the same as a share of the scale", "fraction", "design", gt=0)] = 0.05
    without_gain: Annotated[
        float, Threshold("loss of a score that never got better, as a share of the best", "fraction", "design", gt=0)
    ] = 0.25
    min_after: Annotated[int, Threshold("evaluations after the best", "evaluations", "design", ge=1)] = 2
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_scores()

    def judge(self, evidence: Evidence) -> Finding:
        scores = [one for one in held_out_scores(evidence) if len(one.series) >= self.min_evaluations]
        if not scores:
            return Finding.skipped(f"no score has {self.min_evaluations} finite values")
        found = [finding for one in scores if (finding := self._of(one)) is not None]
        lost = [one for one in found if one.verdict is Verdict.WARN]
        # Several scores of one run rise and fall together: one of them alone is a matter of its threshold or its noise.
        if 2 * len(lost) > len(found):
            return max(lost, key=lambda one: float(one.measured["fall_share"]))
        passed = [one for one in found if one.verdict is Verdict.PASS]
        return passed[0] if passed else Finding.skipped("no score has a course that can be judged")

    def _of(self, score: Score) -> Finding | None:
        curve = score.badness
        if curve is None:
            return None
        best = min((curve.between(at / self.min_evaluations, (at + 2) / self.min_evaluations)
                    for at in range(self.min_evaluations - 1)), key=lambda part: part.value)  # fmt: skip
        fall, gained = curve.end - best, (curve.start - best).value
        share = fall.value / gained if gained > 0.0 else 0.0
        sign = -1.0 if score.higher else 1.0
        top, end = sign * best.value, sign * curve.end.value
        scale = score.unit or 1.0 if score.higher else abs(best.value)
        measured: dict[str, float | int] = {
            "best": top, "end": end, "fall_share": share, "evaluations": curve.points
        }  # fmt: skip
        late = curve.since(curve.best_step) >= self.min_after
        lost = gained > 0.0 and late and fall.surely_above(self.fall_share * gained)
        only_fell = curve.trend > SURELY and fall.surely_above(self.without_gain * scale)
        if not ((lost and fall.value >= self.of_scale * scale) or only_fell):
            at_best = curve.end.value <= best.value
            return Finding.passed(f"{score.name} {ends(end, top, at_best=at_best, show=score.said)}", measured)
        highest, last = contrast(sign * curve.best_value, end, show=score.said)
        where, said = curve.series.place(curve.best_step), curve.series.where(curve.best_step)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{score.name} went from {highest} at {said} to about {last} at the end",
            remedy=f"take the checkpoint at {where}; look at what the score measures and the loss does not",
            measured=measured,
            steps=(curve.best_step,),
            confidence="high" if curve.sure else "low",
            onset=Onset.on(curve.series, curve.best_step, f"the best {score.name}", is_best=True),
        )
