"""GEN011."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.scores import Score, held_out_scores, needs_of_scores
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count
from tracker_health.words.verdict import Verdict

_BY_NATURE = "where nothing is to be measured (no positive sample, a constant), log nothing"


@dataclass(frozen=True, kw_only=True)
class NonfiniteScore(Probe):
    """A held-out score is NaN or infinite.

    What it finds:
        A score of the held-out samples that is NaN or infinite in an evaluation, or in all of them.

    Why it matters:
        Whoever chooses the best checkpoint by it chooses by chance. A correlation of constant answers is NaN, and so is
        the score of a class without a sample: the model may give one answer for all.

    How it decides:
        Warn when `share` of the evaluations or more are not finite, or the last one is not. It needs `min_evaluations`.

    Known limits:
        Whether NaN is due to the model or to how the score is computed is not visible.

    Worked example:
        higher_better_val spearman: nan nan nan nan nan
        gives: nonfinite 5, evaluations 5
        warn: 5 of 5 evaluations are NaN.

    What to do:
        Print what the score's function gets. Where nothing is to be measured, log nothing.

    References:
        IEEE 754 arithmetic; a correlation with a constant is 0 over 0.
    """

    code = "GEN011"
    name = "nonfinite-score"
    symptom = Symptom.NONFINITE
    since = "0.2.0"

    share: Annotated[float, Threshold("share of the evaluations", "fraction", "design", gt=0, le=1)] = 0.2
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=1)] = 2

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_scores()

    def judge(self, evidence: Evidence) -> Finding:
        scores = list(held_out_scores(evidence, self.min_evaluations))
        if not scores:
            return Finding.skipped(f"no score has {self.min_evaluations} values")
        broken = [one for one in scores if self._is_broken(one)]
        if not broken:
            one = max(scores, key=lambda score: len(score.all) - len(score.series))
            message = f"{len(one.all) - len(one.series)} of {count(len(one.all), 'evaluation')} of {one.name} are NaN"
            return Finding.passed(message, {"nonfinite": len(one.all) - len(one.series), "evaluations": len(one.all)})
        one = max(broken, key=lambda score: len(score.all) - len(score.series))
        bad = ~np.isfinite(one.all.values)
        since = int(one.all.steps[bad][0])
        again = "" if bad[-1] else f"; finite again, {one.said(float(one.all.values[-1]))} at the end"
        others = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"{one.name}{others} is NaN or infinite in {int(bad.sum())} of "
            f"{count(len(bad), 'evaluation')}, first at {one.all.where(since)}{again}",
            remedy=f"print what its function gets: one answer for all samples? {_BY_NATURE.capitalize()}",
            measured={"nonfinite": int(bad.sum()), "evaluations": len(bad)},
            steps=(since,),
        )

    def _is_broken(self, score: Score) -> bool:
        bad = ~np.isfinite(score.all.values)
        return bool(bad[-1] or bad.mean() >= self.share)
