"""RWD015."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import entropy_of, learnt, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found, levels

_REMEDY = "lower the entropy bonus (ent_coef); look whether advantages differ, and whether updates reach the policy"


@dataclass(frozen=True, kw_only=True)
class ActsAtRandom(Probe):
    """At the end the policy still chooses among its actions at random.

    What it finds:
        An entropy that is at its maximum, that of even chances, to the end.

    Why it matters:
        Whatever was learnt, actions do not depend on it.

    How it decides:
        The maximum of a number of actions is its logarithm. The entropy's start must be within `near` of that of 2 to
        `most_actions` actions; of more they are too close. Warn when no level is further than `near` of the start
        from it, and the reward is not known to have been learnt: it rose clearly, by half of what its levels span, or
        it solves the environment.

    Known limits:
        Policies of continuous actions have no maximum. They are left out where their spread is logged; elsewhere their
        entropy may be at such a number by chance.

    Worked example:
        entropy: 0.693 0.693 0.692 0.693 0.692 0.693 0.693 0.692 0.693 0.693 0.692 0.693
        train_reward: 20 22 21 20 22 21 20 21 22 21 20 21
        gives: start 0.693, peak 0.693, end 0.6925
        warn: 0.693 is the logarithm of 2; no level is further than 0.02 of it from it.

    What to do:
        Lower the entropy bonus. Print some advantages, and a weight of the policy before and after an update.

    References:
        Ahmed et al. (2019), understanding the impact of entropy on policy optimization.
    """

    code = "RWD015"
    name = "acts-at-random"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    near: Annotated[float, Threshold("distance from even chances", "fraction", "design", gt=0, le=1)] = 0.02

    most_actions: Annotated[int, Threshold("actions of which the maximum is known", "actions", "design", ge=2)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="entropy", any_of=("entropy_loss",), min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        entropy, reward = entropy_of(evidence), reward_of(evidence)
        if entropy is None or entropy.points < FEWEST_LEVELS or reward is None:
            return Finding.skipped("too few points can be compared")
        if evidence.find("policy_std") is not None or not self._at_most(entropy):
            return Finding.skipped("the entropy does not begin at that of even chances")
        start = entropy.start.value
        stays = float(abs(entropy.levels - start).max()) <= self.near * start
        if not stays or learnt(evidence, reward):
            return Finding.passed(f"{course(entropy)}; {reward.said}", levels(entropy))
        return found(entropy, f"the policy still acts at random: {course(entropy)}, while {reward.said}", _REMEDY)

    def _at_most(self, entropy: Curve) -> bool:
        start = entropy.start.value
        return any(abs(start - log(actions)) <= self.near * log(actions) for actions in range(2, self.most_actions + 1))
