"""RWD009."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._policy import course, levels
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_BETA = "look whether beta is 0, whether the reference is the model itself, and whether chosen and rejected differ"
_SIGN = "look whether chosen and rejected are swapped, and at the sign of the loss"
_BOTH = "lower the learning rate or raise beta; add a likelihood term for chosen answers (rpo_alpha, SimPO, APO)"


@dataclass(frozen=True, kw_only=True)
class Preferences(Probe):
    """Preference tuning had no effect, the wrong one, or made good answers unlikely as well.

    What it finds:
        DPO and its kin whose margin between chosen and rejected answers stayed at one number or fell, or which pushed
        down chosen answers nearly as much as rejected ones.

    Why it matters:
        The loss only asks for a difference. It falls as well where both likelihoods fall, and what becomes likely then
        is something that nobody chose.

    How it decides:
        Fail when the margin is one number at all points, or ends surely below its start. Warn when the log-probability
        of chosen answers surely fell by more than `most_fall` of its start's size. That counts where it is at least
        `most_share` of what rejected answers fell. It passes when the margin surely rose.

    Worked example:
        margin: 0 0 0 0 0 0 0 0 0 0 0 0
        chosen_logp: -20 -21 -20 -19 -20 -21 -20 -19 -20 -21 -20 -20
        fail: the margin is 0 at all 12 points.

    Known limits:
        Labels that are swapped in the data look like sound training. Log-probabilities are sums over tokens, and wander
        with the lengths of the answers.

    What to do:
        Look at beta, at the reference model and at a few pairs. Where both fall, lower the learning rate, raise beta,
        or add a likelihood term for chosen answers.

    References:
        Rafailov et al. (2023), DPO; Razin et al. (2024), unintentional unalignment.
    """

    code = "RWD009"
    name = "preferences"
    symptom = Symptom.NOT_LEARNING
    vouches = True

    most_fall: Annotated[float, Threshold("fall of chosen answers, of their start", "fraction", "design", gt=0)] = 0.5
    most_share: Annotated[
        float, Threshold("fall of chosen answers, of that of rejected ones", "fraction", "design", gt=0)
    ] = 0.5

    @property
    def needs(self) -> tuple[Need, ...]:
        pairs = ("chosen_logp", "rejected_logp")
        return (
            Need(role="margin", min_points=FEWEST_LEVELS),
            *(Need(role=one, optional=True) for one in pairs),
        )

    def judge(self, evidence: Evidence) -> Finding:
        margin = evidence.curve("margin")
        if margin is None:
            return Finding(verdict=Verdict.SKIP, message="too few points can be compared")
        if margin.levels.min() == margin.levels.max():
            said = f"{printable(margin.series.name)} is {number(margin.end.value)} at all {margin.points} points"
            return _wrong(margin, f"{said}: training has no effect on what is preferred", _BETA, Verdict.FAIL)
        if (margin.end - margin.start).surely_below(0.0):
            return _wrong(margin, f"{course(margin)}: rejected answers are preferred", _SIGN, Verdict.FAIL)
        chosen, rejected = evidence.curve("chosen_logp"), evidence.curve("rejected_logp")
        if chosen is not None and rejected is not None and self._both_fell(chosen, rejected):
            return _wrong(chosen, f"both became unlikely: {course(chosen)}, {course(rejected)}", _BOTH, Verdict.WARN)
        rose = (margin.end - margin.start).surely_above(0.0)
        return Finding(verdict=Verdict.PASS if rose else Verdict.SKIP, message=course(margin), measured=levels(margin))

    def _both_fell(self, chosen: Curve, rejected: Curve) -> bool:
        fall, other = chosen.start - chosen.end, rejected.start - rejected.end
        far = fall.surely_above(self.most_fall * abs(chosen.start.value))
        return far and fall.value >= self.most_share * other.value


def _wrong(curve: Curve, said: str, remedy: str, verdict: Verdict) -> Finding:
    return Finding(
        verdict=verdict if curve.sure else Verdict.WARN,
        message=said,
        remedy=remedy,
        measured=levels(curve),
        steps=(int(curve.steps[0]), curve.last_step),
        confidence="high" if curve.sure else "low",
    )
