"""GEN003."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.facts.accuracy import NEEDS, SCORE, Shares, measures, percent, scores, wrong
from tracker_health.facts.chance import Chance, chance_of_accuracy, chance_of_classes, chance_of_level
from tracker_health.facts.classes import vocabulary
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class AccuracyAtChance(Probe):
    """The accuracy is that of guessing, all along.

    What it finds:
        An accuracy, or an area under the ROC curve, that stays at the level of guessing. It is that of the validation
        samples, or of the training samples if there are no others. Or other scores, such as a Dice, that never move.

    Why it matters:
        The loss may fall nevertheless, because the model learns how frequent each answer is, recovers from a bad start,
        or memorises its training samples. It says nothing about new samples.

    How it decides:
        Guessing is one in the number of classes, of the area one half. An unknown number is LOS006's, or fits accuracy
        and first loss. Warn when nothing is surely above guessing by `tolerance` (or `of_chance` of it), and surely
        less than `learnt` of the way to 1 was learnt. Fail when both accuracies stay there, of a known number. Warn
        when `min_still` values after the first fifth, or of every other score, span less than `still`: from
        `constant_above` to a half, or below `constant_below` beside a flat loss.

    Known limits:
        A classifier that gives one answer only is right as often as that answer occurs. It is flagged where the classes
        are about equally frequent, or where nothing moves at all. An accuracy below half of guessing is not judged.

    Worked example:
        val_accuracy: 0.10 0.11 0.10 0.09 0.10 0.10 0.11 0.10 0.09 0.10 0.10 0.10
        train_loss: 2.31 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30
        param num_classes: 10
        warn: guessing among 10 has 10 %, and so has every third of the run.

    What to do:
        Check that inputs and labels belong together in each set, and that both sets are prepared alike. Then change the
        learning rate tenfold.

    References:
        Zhang et al. (2017), networks fit random labels.
    """

    code = "GEN003"
    name = "accuracy-at-chance"
    symptom = Symptom.NOT_LEARNING
    headline = ("end",)

    tolerance: Annotated[
        float, Threshold("distance from guessing that counts as there", "share of answers", "design", gt=0, le=0.5)
    ] = 0.02
    of_chance: Annotated[float, Threshold("the same as a share of guessing", "fraction", "design", gt=0)] = 0.2
    learnt: Annotated[
        float, Threshold("gain that is none, of the way from guessing to 1", "fraction", "design", gt=0, le=1)
    ] = 0.1
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
    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        first, *others = NEEDS
        return (replace(first, any_of=(*first.any_of, SCORE)), *others)

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        said = "no level of guessing is known, or too few values"
        passed = Finding.skipped(said)
        for shares in measures(evidence, self.min_points):
            chance = _chance(shares, evidence)
            if chance is not None and self._guesses(shares.judged, chance):
                return self._at_chance(shares, chance)
            if self._stands(shares.judged, evidence):
                return _standing(shares)
            if chance is not None and passed.verdict is Verdict.SKIP:
                measured = {"end": shares.end, "chance": chance.share}
                said = f"the {shares.name} ends at {percent(shares.end)}, guessing has {percent(chance.share)}"
                passed = Finding.passed(said, measured)
        others = scores(evidence, self.min_points)
        if others and all(self._stands(one.judged, evidence) for one in others):
            return _standing(others[0])
        return passed

    def _guesses(self, shares: Series, chance: Chance) -> bool:
        """Whether nothing was surely learnt, and surely no more than a little could have been."""
        curve, guessing = wrong(shares), 1.0 - chance.share
        if curve is None:
            return False
        near = min(self.tolerance, self.of_chance * chance.share)
        late, least = curve.between(0.5, 1.0), (1.0 - self.learnt) * guessing
        above = any(one.surely_below(guessing - near) for one in (curve.best, late, curve.end))
        little = late.surely_above(least) and curve.end.value > least
        return little and not above and late.value < guessing + 0.5 * chance.share

    def _at_chance(self, shares: Shares, chance: Chance) -> Finding:
        total = chance.told and shares.train is not None and self._guesses(shares.train, chance)
        said = f"the {shares.whose} {shares.name} stays at {percent(shares.end)}, guessing has {percent(chance.share)}"
        measured: dict[str, float | int] = {"end": shares.end, "chance": chance.share, "points": len(shares.judged)}
        if shares.train is not None and shares.held_out is not None:
            measured["train_end"] = Shares(shares.name, shares.train, None).end
            said += f"; of the training samples {percent(measured['train_end'])} are right"
        return _finding(Verdict.FAIL if total else Verdict.WARN, said, measured, shares)

    def _stands(self, shares: Series, evidence: Evidence) -> bool:
        """Whether hardly an answer changed, of a model that gives all samples the same one."""
        values, loss = shares.values[len(shares) // 5 :], evidence.curve("train_loss")
        fell = loss is None or loss.kept.surely_above(0.0)
        least, most = (self.constant_above, 0.5) if fell else (-1.0, self.constant_below)
        if len(values) < self.min_still or not least < values.max() < most:
            return False
        return bool(np.ptp(values) < self.still)


def _chance(shares: Shares, evidence: Evidence) -> Chance | None:
    """What guessing has of a measure; None where nothing tells."""
    told = Chance(2) if shares.name == "AUC" else chance_of_classes(evidence) or chance_of_level(evidence)
    if told is not None or vocabulary(evidence) is not None:
        return told
    guessed, loss = chance_of_accuracy(shares), evidence.curve("train_loss")
    return guessed if guessed is not None and loss is not None and guessed.begins(loss.start) else None


def _standing(shares: Shares) -> Finding:
    n = len(shares.judged)
    rest = shares.judged.values[n // 5 :]
    low, high = (percent(float(one)) for one in (rest.min(), rest.max()))
    said = f"the {shares.whose} {shares.name} stays between {low} and {high} after the first fifth of {n} values"
    return _finding(Verdict.WARN, f"{said}: one answer for all", {"end": shares.end, "points": n}, shares)


def _finding(verdict: Verdict, said: str, measured: dict[str, float | int], shares: Shares) -> Finding:
    curve = wrong(shares.judged)
    return Finding(
        verdict=verdict,
        message=said,
        remedy="check that inputs and labels belong together and both sets are prepared alike; then change the rate "
        "tenfold",
        measured=measured,
        steps=(int(shares.judged.steps[0]),),
        # Few points make large errors, and what fails in spite of those is sure.
        confidence="high" if verdict is Verdict.FAIL or (curve is not None and curve.sure) else "low",
    )
