"""RWD020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need
from tracker_health.facts.environments import SOLVED, environment_of
from tracker_health.facts.policy import reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import found, levels
from tracker_health.text import number

_REMEDY = "look at what the agent sees and is paid, and whether updates reach its policy; then train for longer"


@dataclass(frozen=True, kw_only=True)
class NeverRose(Probe):
    """In an environment that is known the reward never rose, and it is far from solved.

    What it finds:
        Agents that end where they began: observations that say nothing, a reward of the wrong sign, a discount of 0.

    Why it matters:
        Losses of an agent need not fall, and its log looks like any other. Where it is known what can be earned, a
        reward that stays at its first level shows that nothing was learnt.

    How it decides:
        Only where a param names one of Gymnasium's environments that have a level at which they count as solved. Warn
        when the reward ends clearly below that level, and never rose. It does not likely end above its start, and no
        level is clearly above it, or by `rise` of the start's size.

    Known limits:
        A run that was far too short for its task looks the same.

    Worked example:
        param env_id: CartPole-v1
        train_reward: 22 21 22 23 22 21 22 22 21 22 23 22
        gives: start 22, peak 23, end 22.5
        warn: no level is 0.25 of it above 22, and CartPole counts as solved at 475.

    What to do:
        Print an observation, an action and its reward. Look at the sign of the reward, the discount, and whether
        weights of the policy change.

    References:
        Towers et al. (2024), Gymnasium.
    """

    code = "RWD020"
    name = "never-rose"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    rise: Annotated[
        float, Threshold("rise of a level that is one, as a share of the start's size", "fraction", "design", gt=0)
    ] = 0.25

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),)

    def judge(self, evidence: Evidence) -> Finding:
        reward, name = reward_of(evidence), environment_of(evidence)
        solved = SOLVED.get(name)
        if reward is None or solved is None:
            return Finding.skipped("no param names an environment of which it is known when it is solved")
        if reward.rose_by(self.rise) or not reward.curve.end.surely_below(solved):
            return Finding.passed(f"{reward.said}; {name} counts as solved at {number(solved)}", levels(reward.curve))
        said = f"the reward never rose: {reward.said}, where {name} counts as solved at {number(solved)}"
        return found(reward.curve, said, _REMEDY)
