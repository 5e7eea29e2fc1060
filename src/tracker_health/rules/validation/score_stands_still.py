"""GEN007."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.curve import FEW_POINTS
from tracker_health.facts.accuracy import NEEDS, SCORE, Shares, accuracy_said, measures, scores
from tracker_health.facts.learnt import falls_surely
from tracker_health.facts.scores import LOWER, Score, held_out_scores, training_falls
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScoreStandsStill(Probe):
    """An accuracy or another score never moves.

    What it finds:
        An accuracy, an area under the ROC curve, or all other scores (a Dice, an F1), that stay on one number.

    Why it matters:
        The model gives one answer for all samples, or no answer that counts, whatever its loss does.

    How it decides:
        After the first fifth of the values, `min_still` of them or more. Warn when they span less than `still`,
        and the highest is between `constant_above` and a half. Where the training loss did not clearly come
        down, warn below `constant_below` instead, and above nothing. Of other scores than accuracies and areas
        all have to stand. Warn, too, when all scores are one number from the first of `min_still` evaluations
        to the last, and not their best one. A training loss that was logged must have come down, and a
        validation loss not.

    Known limits:
        An accuracy above a half that stands may be that of a model which was good from the start. Below
        `constant_above` it may be one of whole sequences, of which none is right yet.

    Worked example:
        val_accuracy: 0.2 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25
        train_loss: 1.5 1.45 1.41 1.4 1.4 1.39 1.39 1.39 1.39 1.39 1.39 1.39
        gives: end 0.25
        warn: ten values after the first fifth are 25 %.

    What to do:
        Look at what the model answers to ten samples, and at how the score is computed.

    References:
        None: a comparison of values.
    """

    code = "GEN007"
    name = "score-stands-still"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    constant_above: Annotated[
        float, Threshold("accuracy up to which one number all along may be that of whole sequences", "share of answers",
                         "design", ge=0, le=1)
    ] = 0.05  # fmt: skip
    constant_below: Annotated[
        float, Threshold("accuracy below which one number all along is none that was learnt", "share of answers",
                         "design", gt=0, le=1)
    ] = 0.9  # fmt: skip
    still: Annotated[float, Threshold("span of values that stand still", "share of answers", "design", ge=0)] = 0.001
    min_still: Annotated[int, Threshold("values that stand still", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        first, *others = NEEDS
        return (replace(first, any_of=(*first.any_of, SCORE, *LOWER)), *others)

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        known, others = list(measures(evidence, self.min_still)), scores(evidence, self.min_still)
        logged = [one for one in held_out_scores(evidence) if len(one.series) >= self.min_still]
        if not (known or logged):
            return Finding.skipped(f"no score has {self.min_still} values that say anything")
        still = [one for one in known if self._stands(one.judged, evidence)]
        if not still and others and all(self._stands(one.judged, evidence) for one in others):
            still = others
        if still:
            return _standing(still[0])
        frozen = [one for one in logged if self._is_frozen(one)]
        alive = (held_out := evidence.curve("val_loss")) is not None and falls_surely(held_out)
        if frozen and len(frozen) == len(logged) and training_falls(evidence) and not alive:
            return _frozen(frozen[0], falls=evidence.curve("train_loss") is not None)
        if not logged and not any(one.judged.values.any() for one in known):
            return Finding.skipped("the accuracy is 0 throughout, as that of a regression is")
        if not logged:
            return Finding.passed(f"the {known[0].whose} {known[0].name} {_span(known[0].judged.values, 'moves')}")
        return Finding.passed(f"{logged[0].name} moves, and ends at {logged[0].said(float(logged[0].values[-1]))}")

    def _stands(self, shares: Series, evidence: Evidence) -> bool:
        """Whether almost no answer changed, of a model that gives all samples the same one."""
        values, loss = shares.values[len(shares) // 5 :], evidence.curve("train_loss")
        fell = loss is None or loss.kept.surely_above(0.0)
        least, most = (self.constant_above, 0.5) if fell else (-1.0, self.constant_below)
        if len(values) < self.min_still or not least < values.max() < most:
            return False
        return bool(np.ptp(values) < self.still)

    @staticmethod
    def _is_frozen(score: Score) -> bool:
        """Whether it is one number from the first evaluation to the last, and not the best that there is."""
        best = score.values[0] == score.unit if score.higher else score.values[0] == 0.0
        worst = bool(score.is_worst(0.0).all())  # GEN008's
        return bool(np.ptp(score.values) == 0.0) and not (best or worst)


def _frozen(score: Score, *, falls: bool) -> Finding:
    value, n = score.said(float(score.values[0])), len(score.series)
    return Finding(
        verdict=Verdict.WARN,
        message=f"{score.name} is {value} in all {n} evaluations, to the last digit"
        + (", while the training loss came down" if falls else ""),
        remedy="evaluate the model that is trained: look for a copy, or answers that are not those of the model",
        measured={"end": float(score.values[-1]), "points": n},
        steps=(int(score.series.steps[0]), int(score.series.steps[-1])),
        confidence="high" if n >= FEW_POINTS else "low",
    )


def _span(values: FloatArray, verb: str) -> str:
    low, high = contrast(float(values.min()), float(values.max()), show=accuracy_said)
    return f"stays at {low}" if low == high else f"{verb} between {low} and {high}"


def _standing(shares: Shares) -> Finding:
    n = len(shares.judged)
    rest = shares.judged.values[n // 5 :]
    said = f"the {shares.whose} {shares.name} {_span(rest, 'stays')} after the first fifth of {n} values"
    return Finding(
        verdict=Verdict.WARN,
        message=f"{said}: one answer for all",
        remedy="look at what the model answers to ten samples, and at how the score is computed",
        measured={"end": shares.end, "points": n},
        steps=(int(shares.judged.steps[0]),),
        confidence="high" if n >= FEW_POINTS else "low",
    )
