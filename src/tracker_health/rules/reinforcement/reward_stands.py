"""RWD003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Estimate, Evidence, Need
from tracker_health.facts.policy import answers_are_right, is_of_one_update, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import fell_at, found, levels
from tracker_health.text import number, printable
from tracker_health.words.verdict import Verdict

_REMEDY = "look whether updates reach the model and rewards their answers; then raise the learning rate"


@dataclass(frozen=True, kw_only=True)
class RewardStands(Probe):
    """The reward did not rise, although some answers were better than others.

    What it finds:
        Training on groups of answers whose rewards differ, without any effect on the mean reward.

    Why it matters:
        Where answers to a prompt get different rewards, the model can improve by giving its better answers more often.
        A constant mean shows that updates do not reach the model, are far too small, or point elsewhere.

    How it decides:
        The spread of rewards must clearly begin above 0, and the reward must have stalled. A reward stalled when it
        did not likely rise, and rose by less than half of what its levels span. Warn when the level of the
        second half less that of the first clearly stays below `least_rise` of that spread. Warn when the
        divergence from a reference is 0 at all points: the policy never moved. It passes when the reward clearly
        rose, and says nothing where nearly all answers are right at the end.

    Known limits:
        With a large model at a small learning rate, a run may be too short to show anything. If a step has few prompts,
        noise may hide a rise or its absence.

    Worked example:
        train_reward: 0.4 0.41 0.39 0.4 0.4 0.41 0.4 0.39 0.4 0.41 0.4 0.4 0.39 0.4 0.41 0.4 0.4 0.39 0.4 0.41 0.4 0.4
        reward_spread: 0.3 0.31 0.3 0.29 0.3 0.31 0.3 0.3 0.29 0.3 0.3 0.31 0.3 0.3 0.3 0.29 0.3 0.3 0.3 0.31 0.3 0.3
        gives: start 0.405, peak 0.4025, end 0.4025
        warn: from half to half it rose by about 0, clearly less than 0.2 of the spread of 0.3.

    What to do:
        Check that the optimizer has the model's weights, and that rewards go to the answers that earned them. Then
        raise the learning rate, or lower the KL coefficient.

    References:
        Shao et al. (2024), DeepSeekMath (GRPO).
    """

    code = "RWD003"
    name = "reward-stands"
    symptom = Symptom.NOT_LEARNING
    least_rise: Annotated[
        float, Threshold("rise to be expected, in spreads of rewards", "fraction", "design", gt=0, le=1)
    ] = 0.2

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="reward_spread", any_of=("kl",), min_points=FEWEST_LEVELS),
            Need(role="kl", optional=True),
            *Need.beside("reward_part"),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        kl, spread, reward = evidence.curve("kl"), evidence.curve("reward_spread"), reward_of(evidence)
        if reward is None or (kl is None and spread is None):
            return Finding.skipped("too few points can be compared")
        if answers_are_right(evidence):
            return Finding.skipped("nearly all answers are right")
        if not reward.stood:
            verdict = Verdict.PASS if reward.rose else Verdict.SKIP
            return Finding(verdict=verdict, message=reward.said, measured=levels(reward.curve))
        why = ""
        if kl is not None and not kl.series.values.any() and not is_of_one_update(kl.series):
            why = f"{printable(kl.series.name)} is 0 throughout, so the policy never left its reference"
        elif spread is not None and self._rises_less(reward.curve, spread.start):
            name, start = printable(spread.series.name), number(spread.start.value)
            why = f"answers differ, {name} began at {start}, and it had no effect"
        if not why:
            return Finding.skipped(reward.said, levels(reward.curve))
        since = fell_at(reward.curve) if reward.fell else None
        return found(reward.curve, f"{reward.said}: {why}", _REMEDY, since)

    def _rises_less(self, reward: Curve, spread: Estimate) -> bool:
        """Whether the reward rose by less than could be expected where answers differ so far."""
        halves = reward.between(0.5, 1.0) - reward.between(0.0, 0.5)
        return spread.surely_above(0.0) and halves.surely_below(self.least_rise * spread.value)
