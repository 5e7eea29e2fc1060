"""GEN008."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.scores import Score, held_out_scores, needs_of_scores, training_falls
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScoreAtWorst(Probe):
    """A held-out score never left its worst value.

    What it finds:
        A score of the held-out samples (an F1, a mAP, a WER, ...) that is as bad as it can be in all evaluations, while
        the training loss comes down.

    Why it matters:
        What is learnt does not arrive in the evaluation: labels do not match, answers are decoded wrongly, nothing is
        detected. Or the model learns something else than what is asked.

    How it decides:
        Worst is 0, within `near`, of a score that should rise, and 1 less `near_of_errors` of an error rate (WER, CER).
        Warn when `share` of `min_evaluations` or more are so, the last one among them. The training loss must clearly
        have come down, if there is one. Of several scores that should rise all must be so. Unsure below `few`
        evaluations. Accuracies are GEN003's, and scores of one class GEN010's.

    Known limits:
        A score of whole answers (exact matches) may be 0 for long while the model learns. Correlations may be near 0 by
        chance, and count only where they are exactly 0. The chance level of an accuracy is GEN003's.

    Worked example:
        train_loss: 2.3 1.8 1.5 1.3 1.1 1.0 0.9 0.85
        higher_better_val f1: 0 0 0 0 0 0 0 0
        gives: at_worst 8, evaluations 8
        warn: 8 of 8 evaluations are 0, and the training loss fell from 2.3 to 0.85.

    What to do:
        Look at ten held-out samples with their labels and the model's answers, as the score's function gets them.

    References:
        None: a comparison of values.
    """

    code = "GEN008"
    name = "score-at-worst"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"
    headline = ("at_worst",)

    near: Annotated[float, Threshold("distance from the worst value that is there", "fraction", "design", ge=0)] = 0.001
    near_of_errors: Annotated[
        float, Threshold("the same of an error rate, of which some answers are right by chance", "fraction", "design",
                         ge=0)
    ] = 0.05  # fmt: skip
    share: Annotated[float, Threshold("share of the evaluations", "fraction", "design", gt=0, le=1)] = 0.95
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=1)] = 4
    few: Annotated[int, Threshold("evaluations below which it is unsure", "evaluations", "design", ge=1)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_scores()

    def judge(self, evidence: Evidence) -> Finding:
        known = (one for one in held_out_scores(evidence) if len(one.series) >= self.min_evaluations and one.unit)
        scores = [one for one in known if one.series.role != "val_accuracy"]  # GEN003 judges accuracies
        if not scores:
            return Finding.skipped(f"no score has {self.min_evaluations} finite values between 0 and 1, or 0 and 100")
        found = [(self._at_worst(one), one) for one in scores]
        worst = [(at, one) for at, one in found if at >= self.share * len(one.series) and self._is_worst_at_end(one)]
        # Of several that should rise all must be so: one at 0 next to others is a class, or a matter of its threshold.
        rising = sum(one.higher for one in scores)
        worst = [(at, one) for at, one in worst if not one.higher or sum(two.higher for _, two in worst) == rising]
        if not worst or not training_falls(evidence):
            at, one = max(found, key=lambda pair: pair[0])
            message = f"{one.name} is at its worst in {at} of {count(len(one.series), 'evaluation')}"
            return Finding.passed(message, {"at_worst": at, "evaluations": len(one.series)})
        at, one = max(worst, key=lambda pair: len(pair[1].series))
        others = f", as {count(len(worst) - 1, 'other score')}" if len(worst) > 1 else ""
        falls = ", while the training loss came down" if evidence.curve("train_loss") is not None else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"{one.name} is {one.said(float(one.values[-1]))} at the end, and at its worst in {at} of "
            f"{count(len(one.series), 'evaluation')}{others}{falls}",
            remedy="look at ten held-out samples with labels and answers, as the score's function gets them",
            measured={"at_worst": at, "evaluations": len(one.series)},
            steps=(int(one.series.steps[0]), int(one.series.steps[-1])),
            confidence="high" if len(one.series) >= self.few else "low",
        )

    def _at_worst(self, score: Score) -> int:
        return int(score.is_worst(self._near(score)).sum())

    def _is_worst_at_end(self, score: Score) -> bool:
        return bool(score.is_worst(self._near(score))[-1])

    def _near(self, score: Score) -> float:
        return 0.0 if score.is_signed else self.near if score.higher else self.near_of_errors
