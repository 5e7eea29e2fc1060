"""RWD017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import is_a_share, reward_of, rightness_rose
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found

_REMEDY = "call that reward function on right answers by hand; pay other parts only where the answer is right"


@dataclass(frozen=True, kw_only=True)
class PartOfRewardStands(Probe):
    """The total reward rose, and a part of it never left the bottom.

    What it finds:
        One of several rewards for answers that stays next to 0, while the total rises by the others.

    Why it matters:
        The policy learns what is easy to earn: a form, a length. The part that stays is often what was meant.

    How it decides:
        Only where lengths of answers are logged, and parts whose values are between 0 and 1. Warn when the total
        clearly rose, and a part rose by less than `least_rise` and ends clearly below `least_end`.

    Known limits:
        A part that is rare by design, as a bonus, stays too. Penalties are below 0 and are not looked at.

    Worked example:
        train_reward: 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 0.9 0.9 0.9 0.9
        reward_part: 0.02 0.01 0.02 0.01 0.02 0.02 0.01 0.02 0.02 0.01 0.02 0.02
        response_length: 90 92 91 90 92 91 90 92 91 90 92 91
        gives: rise 0, end 0.02
        warn: the part ends at 0.02, below 0.1, and did not rise.

    What to do:
        Call the reward function of that part on an answer that is right. Make the others depend on it.

    References:
        Skalse et al. (2022), defining and characterizing reward hacking.
    """

    code = "RWD017"
    name = "part-of-reward-stands"
    symptom = Symptom.OVERFIT
    since = "0.2.0"

    least_rise: Annotated[float, Threshold("rise of a part that is one", "reward", "design", gt=0)] = 0.03
    least_end: Annotated[float, Threshold("level of a part that was learnt", "reward", "design", gt=0)] = 0.1

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=REWARDS[0], min_points=FEWEST_LEVELS),
            Need(role="reward_part", min_points=FEWEST_LEVELS),
            Need(role="response_length"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        reward = reward_of(evidence, REWARDS[:1])
        curves = [Curve.of(part) for part in evidence.all_of("reward_part")]
        parts = [one for one in curves if one is not None and one.points >= FEWEST_LEVELS and _may_stand(one)]
        if reward is None:
            return Finding.skipped("too few points can be compared")
        if rightness_rose(evidence):
            return Finding.skipped("more answers are right at the end")
        if not parts:
            return Finding.skipped("no part of the reward is between 0 and 1")
        least = min(parts, key=lambda one: one.end.value)
        rise = least.end - least.start
        measured = {"rise": rise.value, "end": least.end.value}
        if not (reward.rose and rise.value < self.least_rise and least.end.surely_below(self.least_end)):
            return Finding.passed(f"{course(least)}; {reward.said}", measured)
        return found(least, f"{course(least)}, while {reward.said}", _REMEDY, measured=measured, sure=reward.curve.sure)


def _may_stand(part: Curve) -> bool:
    """Whether a part is a share that moves at all: LOS020 judges constant ones."""
    return is_a_share(part) and float(part.series.values.min()) < float(part.series.values.max())
