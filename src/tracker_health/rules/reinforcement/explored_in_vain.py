"""RWD014."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need
from tracker_health.facts.policy import is_solved, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found, levels

_REMEDY = "explore for longer (exploration_fraction), start to learn later, or look at the targets and the reward"


@dataclass(frozen=True, kw_only=True)
class ExploredInVain(Probe):
    """Exploration is over, and the reward never rose.

    What it finds:
        A share of random actions that fell from nearly all to nearly none, next to a reward that stayed where random
        actions had it.

    Why it matters:
        From now on the agent repeats what it does. Nothing new is seen that could teach it more.

    How it decides:
        The share of random actions must begin above `begins` and end below `ends`. Warn when the reward never rose: it
        does not likely end above its start, and no level is clearly above it, or by `rise` of the start's size. A
        reward that solves the environment passes.

    Known limits:
        An environment that random actions solve looks the same, where its reward is not known.

    Worked example:
        exploration: 1 0.8 0.6 0.4 0.2 0.05 0.05 0.05 0.05 0.05 0.05 0.05
        train_reward: -21 -20 -21 -20 -21 -20 -21 -21 -20 -21 -20 -21
        gives: start -21, peak -20.5, end -20.5
        warn: random actions went from 1 to 0.05, and no level of the reward is above the first.

    What to do:
        Look at what the agent is paid, and whether its targets move. Explore for longer, and with larger batches.

    References:
        Mnih et al. (2015), human-level control through deep reinforcement learning.
    """

    code = "RWD014"
    name = "explored-in-vain"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    begins: Annotated[float, Threshold("share of random actions at first", "fraction", "design", gt=0, le=1)] = 0.5
    ends: Annotated[float, Threshold("share that ends exploration", "fraction", "design", gt=0, le=1)] = 0.1
    rise: Annotated[
        float, Threshold("rise of a level that is one, as a share of the start's size", "fraction", "design", gt=0)
    ] = 0.25

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="exploration", min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        random, reward = evidence.curve("exploration"), reward_of(evidence)
        if random is None or random.points < FEWEST_LEVELS or reward is None:
            return Finding.skipped("too few points can be compared")
        over = float(random.series.values[0]) > self.begins and float(random.series.values[-1]) < self.ends
        if not over:
            return Finding.skipped(f"exploration is not over: {course(random)}")
        if reward.rose_by(self.rise) or is_solved(evidence, reward.curve):
            return Finding.passed(f"{course(random)}; {reward.said}", levels(reward.curve))
        said = f"the reward never rose, and exploration is over: {course(random)}, while {reward.said}"
        return found(reward.curve, said, _REMEDY)
