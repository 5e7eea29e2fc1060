"""RWD009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, LIKELY, Curve, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.roles import word_set, words_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, fell_at, found, levels
from tracker_health.text import number, printable
from tracker_health.words.verdict import Verdict

_BETA = "look whether beta is 0, whether the reference is the model itself, and whether chosen and rejected differ"
_SIGN = "look whether chosen and rejected are swapped, and at the sign of the loss"
_PAIRS = "read some pairs: what is chosen may be no better than what is rejected; take fewer epochs"
_SWAPPED = "look whether chosen and rejected are swapped in one of the data sets"
_REWARDS = word_set("reward rewards")
_BESIDE = ("chosen_logp", "train_accuracy", "val_accuracy")
_BOTH = "lower the learning rate or raise beta; add a likelihood term for chosen answers (rpo_alpha, SimPO, APO)"


@dataclass(frozen=True, kw_only=True)
class Preferences(Probe):
    """Preference tuning had no effect, the wrong one, or made good answers unlikely as well.

    What it finds:
        Trainings with DPO or a related method whose margin between chosen and rejected answers fell or stayed at one
        number. Also those that made chosen answers unlikely, or that memorised their pairs.

    Why it matters:
        The loss only asks for a difference. It also falls where both likelihoods fall. Answers that nobody chose then
        become likely.

    How it decides:
        Fail when the margin is one number at all points, or ends clearly below its start. Warn when the log-probability
        of chosen answers clearly fell by more than `most_fall` of its start's size. Warn when in both halves a share of
        held-out pairs clearly below `reversed_below` is preferred rightly. Warn when in the second half pairs of
        training are clearly preferred rightly by more than half, and held-out pairs not likely. Both need
        `min_evaluations`. It passes when the margin clearly rose.

    Known limits:
        Labels that are swapped in the data look like a healthy run. Log-probabilities are sums over tokens, and wander
        with the lengths of the answers.

    Worked example:
        margin: 0 0 0 0 0 0 0 0 0 0 0 0
        chosen_logp: -20 -21 -20 -19 -20 -21 -20 -19 -20 -21 -20 -20
        gives: start 0, end 0
        fail: the margin is 0 at all 12 points.

    What to do:
        Look at beta, at the reference model and at a few pairs. Where both fall, lower the learning rate, raise beta,
        or add a likelihood term for chosen answers.

    References:
        Rafailov et al. (2023), DPO; Razin et al. (2024), unintentional unalignment.
    """

    code = "RWD009"
    name = "preferences"
    symptom = Symptom.NOT_LEARNING
    kinds = ("no-effect", "rejected-preferred", "chosen-unlikely", "held-out-by-chance", "held-out-reversed")
    vouches = True

    reversed_below: Annotated[
        float, Threshold("share of held-out pairs that shows swapped ones", "fraction", "design", gt=0, le=0.5)
    ] = 0.3
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=4)] = 5
    most_fall: Annotated[float, Threshold("fall of chosen answers, of their start", "fraction", "design", gt=0)] = 0.5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="margin", min_points=FEWEST_LEVELS), *Need.beside(*_BESIDE))

    def judge(self, evidence: Evidence) -> Finding:
        margin = evidence.curve("margin")
        if margin is None:
            return Finding.skipped("too few points can be compared")
        if margin.levels.min() == margin.levels.max():
            said = f"{printable(margin.series.name)} is {number(margin.end.value)} at all {margin.points} points"
            return found(
                margin, f"{said}: training has no effect on what is preferred", _BETA, fails=True, kind="no-effect"
            )
        if (margin.end - margin.start).surely_below(0.0):
            return found(
                margin,
                f"{course(margin)}: rejected answers are preferred",
                _SIGN,
                fails=True,
                kind="rejected-preferred",
            )
        chosen, training, held_out = evidence.curve(_BESIDE[0]), *(_of_pairs(evidence, role) for role in _BESIDE[1:])
        if chosen is not None and self._fell(chosen):
            said = f"chosen answers became unlikely: {course(chosen)}, while {course(margin)}"
            return found(chosen, said, _BOTH, fell_at(chosen), kind="chosen-unlikely")
        if held_out is not None and self._is_reversed(held_out):
            said = f"held-out pairs are preferred the wrong way: {course(held_out)}"
            return found(held_out, said, _SWAPPED, kind="held-out-reversed")
        if training is not None and held_out is not None and self._only_in_training(training, held_out):
            below = held_out.between(0.5, 1.0).surely_below(0.5)
            how = "more often the wrong way" if below else "as by chance"
            said = f"held-out pairs are preferred {how}: {course(held_out)}, while {course(training)}"
            return found(held_out, said, _PAIRS, kind="held-out-by-chance")
        rose = (margin.end - margin.start).surely_above(0.0)
        return Finding(verdict=Verdict.PASS if rose else Verdict.SKIP, message=course(margin), measured=levels(margin))

    def _is_reversed(self, held_out: Curve) -> bool:
        halves = held_out.between(0.0, 0.5), held_out.between(0.5, 1.0)
        return self._is_enough(held_out) and all(half.surely_below(self.reversed_below) for half in halves)

    def _only_in_training(self, training: Curve, held_out: Curve) -> bool:
        """Whether pairs of training are preferred rightly, and others as by chance."""
        here, there = training.between(0.5, 1.0), held_out.between(0.5, 1.0)
        return self._is_enough(held_out) and here.surely_above(0.5) and not there.surely_above(0.5, LIKELY)

    def _is_enough(self, held_out: Curve) -> bool:
        return held_out.points >= self.min_evaluations

    def _fell(self, chosen: Curve) -> bool:
        return (chosen.start - chosen.end).surely_above(self.most_fall * abs(chosen.start.value))


def _of_pairs(evidence: Evidence, role: str) -> Curve | None:
    """How many pairs are preferred rightly: the accuracy whose name speaks of rewards, else the longest."""
    named = [one for one in evidence.all_of(role) if not _REWARDS.isdisjoint(words_of(one.name))]
    return Curve.of(named[0]) if named else evidence.curve(role)
