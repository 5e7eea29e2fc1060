"""RWD012."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need
from tracker_health.facts.policy import reward_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found, levels

_REMEDY = "lower the entropy bonus (ent_coef) and the learning rate, and normalise the rewards"


@dataclass(frozen=True, kw_only=True)
class ActionNoiseGrows(Probe):
    """The spread of a policy's actions grew tenfold, and the reward is not known to have risen.

    What it finds:
        A standard deviation of continuous actions that grows without bound.

    Why it matters:
        Actions beyond the limits of the environment are clipped: the policy becomes a coin that is thrown between the
        limits, whatever its mean is.

    How it decides:
        Warn when the spread ends clearly above `growth` times its start, and no reward that was logged clearly rose.

    Known limits:
        A spread that falls to 0 too early is the matter of the entropy.

    Worked example:
        policy_std: 1 1.2 1.5 2 3 4 6 9 12 16 20 26 33 40 41 41
        gives: start 1.1, peak 41, end 41
        warn: 41 is clearly above 10 times 1.1, and no reward was logged.

    What to do:
        Lower the entropy bonus and the learning rate, normalise rewards, or bound the spread of the actions.

    References:
        Andrychowicz et al. (2021), what matters for on-policy deep actor-critic methods.
    """

    code = "RWD012"
    name = "action-noise-grows"
    symptom = Symptom.COLLAPSED
    since = "0.2.0"

    growth: Annotated[float, Threshold("growth of the spread", "times", "design", gt=1)] = 10.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="policy_std", min_points=FEWEST_LEVELS), *Need.beside("train_reward", "val_reward"))

    def judge(self, evidence: Evidence) -> Finding:
        spread, reward = evidence.curve("policy_std"), reward_of(evidence)
        if spread is None or spread.points < FEWEST_LEVELS:
            return Finding.skipped("too few points can be compared")
        if spread.start.value <= 0.0:
            return Finding.skipped("the spread does not begin above 0: it may be a logarithm")
        beside = f"; {reward.said}" if reward is not None else ""
        limit = self.growth * spread.start.value
        if not spread.end.surely_above(limit) or (reward is not None and reward.rose):
            return Finding.passed(f"{course(spread)}{beside}", levels(spread))
        return found(spread, f"actions become random: {course(spread)}{beside}", _REMEDY, spread.left(limit))
