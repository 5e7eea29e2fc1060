"""GEN003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.facts.accuracy import NEEDS, Shares, accuracy_said, measures, wrong
from tracker_health.facts.chance import Chance, chance_of_accuracy, chance_of_classes, chance_of_level
from tracker_health.facts.classes import vocabulary
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.text import contrast
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class AccuracyAtChance(Probe):
    """The accuracy is that of guessing, all along.

    What it finds:
        An accuracy, or an area under the ROC curve, that stays at chance level. It is that of the validation
        samples, or of the training samples if there are no others.

    Why it matters:
        The loss may fall nevertheless, because the model learns how frequent each answer is, recovers from a bad start,
        or memorises its training samples. It says nothing about new samples.

    How it decides:
        Guessing is one in the number of classes, of the area one half. An unknown number of classes is the one
        that LOS006 finds, or else one that fits accuracy and first loss. It needs `min_points` values. Warn
        when neither the best, nor the end, nor the second half is clearly above guessing. Above means by
        `tolerance`, or by `of_chance` of guessing if that is less. Clearly less than `learnt` of the way from
        guessing to 1 must have been learnt. Fail when the accuracies of both sets stay there, of a known number
        of classes.

    Known limits:
        A classifier that gives one answer only is right as often as that answer occurs. It is flagged where the classes
        are about equally frequent. An accuracy below half of guessing is not judged. GEN007 finds scores that never
        move.

    Worked example:
        val_accuracy: 0.10 0.11 0.10 0.09 0.10 0.10 0.11 0.10 0.09 0.10 0.10 0.10
        train_loss: 2.31 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30
        param num_classes: 10
        gives: chance 0.1
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

    min_points: Annotated[int, Threshold("finite values needed", "points", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def judge(self, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        said = "no chance level is known, or too few values"
        passed = Finding.skipped(said)
        for shares in measures(evidence, self.min_points):
            chance = _chance(shares, evidence)
            if chance is not None and self._guesses(shares.judged, chance):
                return self._at_chance(shares, chance)
            if chance is not None and passed.verdict is Verdict.SKIP:
                measured = {"end": shares.end, "chance": chance.share}
                end, guessed = contrast(shares.end, chance.share, show=accuracy_said)
                said = f"the {shares.name} ends at {end}, guessing has {guessed}"
                passed = Finding.passed(said, measured)
        return passed

    def _guesses(self, shares: Series, chance: Chance) -> bool:
        """Whether nothing was clearly learnt, and clearly no more than a little could have been."""
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
        end, guessed = accuracy_said(shares.end), accuracy_said(chance.share)
        said = f"the {shares.whose} {shares.name} stays at {end}, guessing has {guessed}"
        measured: dict[str, float | int] = {"end": shares.end, "chance": chance.share, "points": len(shares.judged)}
        if shares.train is not None and shares.held_out is not None:
            measured["train_end"] = Shares(shares.name, shares.train, None).end
            said += f"; of the training samples {accuracy_said(measured['train_end'])} are right"
        return _finding(Verdict.FAIL if total else Verdict.WARN, said, measured, shares)


def _chance(shares: Shares, evidence: Evidence) -> Chance | None:
    """What guessing has of a measure; None where nothing tells."""
    told = Chance(2) if shares.name == "AUC" else chance_of_classes(evidence) or chance_of_level(evidence)
    if told is not None or vocabulary(evidence) is not None:
        return told
    guessed, loss = chance_of_accuracy(shares), evidence.curve("train_loss")
    return guessed if guessed is not None and loss is not None and guessed.begins(loss.start) else None


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
