"""GEN010."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.scores import by_class, held_out_scores, needs_of_scores
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ClassAtZero(Probe):
    """One class is never predicted.

    What it finds:
        Scores by class, of which one is exactly 0 in every evaluation while others are not.

    Why it matters:
        The mean over the classes hides it. The class is rare, its label has another number in the held-out set, or the
        loss ignores it.

    How it decides:
        Scores are by class where their names differ in the last part alone (`IoU.car`, `IoU.road`). Warn when one is
        exactly 0 in all of `min_evaluations` or more, and another one is above `alive` at the end.

    Known limits:
        A class that the held-out set does not have has no score: some libraries write 0 for it.

    Worked example:
        higher_better_val IoU.road: 0.5 0.7 0.8 0.85
        higher_better_val IoU.car: 0 0 0 0
        gives: classes 2, at_zero 1
        warn: IoU.car is 0 in 4 of 4 evaluations, IoU.road ends at 0.85.

    What to do:
        Count the labels of each class in both sets, and look at the numbers that they have there.

    References:
        None: a comparison of values.
    """

    code = "GEN010"
    name = "class-at-zero"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"
    headline = ("at_zero",)

    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=2)] = 4
    alive: Annotated[float, Threshold("score of another class that shows that they are learnt", "fraction", "design",
                                      gt=0, le=1)] = 0.1  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_scores()

    def judge(self, evidence: Evidence) -> Finding:
        known = [one for one in held_out_scores(evidence) if len(one.series) >= self.min_evaluations and one.unit]
        groups = by_class([one for one in known if one.higher])
        if not groups:
            return Finding.skipped("no scores by class")
        for measure, group in groups.items():
            zero = [one for one in group if not one.values.any()]
            alive = [one for one in group if one.values[-1] > self.alive * (one.unit or 1.0)]
            if zero and alive:
                names = listing([one.name for one in zero])
                times = count(len(zero[0].series), "evaluation")
                return Finding(
                    verdict=Verdict.WARN,
                    message=f"{names} is exactly 0 in all {times}; {alive[0].name} ends at "
                    f"{alive[0].said(float(alive[0].values[-1]))}",
                    remedy="count the labels of each class in both sets, and look at the numbers that they have there",
                    measured={"classes": len(group), "at_zero": len(zero)},
                    details={"measure": measure, "classes": [one.name for one in zero][:100]},
                    steps=(int(zero[0].series.steps[0]), int(zero[0].series.steps[-1])),
                )
        return Finding.passed("no class is at 0 throughout", {"at_zero": 0})
