"""RWD005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.facts.policy import Reward, entropy_of, is_of_one_update, reward_of
from tracker_health.facts.settings import Settings
from tracker_health.report.result import Finding
from tracker_health.roles import word_set, words_of
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, course, harmless, wrong

_OF_AN_ANSWER = word_set("objective sum")
"""In a name of these the divergence is the sum over an answer's tokens, as in TRL's PPO: ``objective/kl``."""
_REMEDY = "lower the learning rate, raise the KL coefficient, clip gradients; go on from before the KL left its course"


@dataclass(frozen=True, kw_only=True)
class PolicyDivergence(PolicyRule):
    """The policy's KL divergence blew up, and the reward did not rise.

    What it finds:
        A divergence from the reference or the last policy that suddenly jumped, or that is far larger than in updates
        that help.

    Why it matters:
        KL measures how far training has taken a policy from what it could do. It grows slowly in healthy runs. Where it
        jumps, the policy has usually lost its language, and estimates of its gradient are worthless.

    How it decides:
        A straight line's second half is three times as high as its first. The KL blew up when its second half
        is clearly above `growth` times its first half. It is far when its end is clearly above its first
        value and `most`, or `most_of_answer` where its name says that it is a sum. That of one update
        (approx_kl) is far when it is clearly above `of_update` in a `stretch` of the run. Warn of both when
        the reward stalled, or fell from its best level. Warn of a far one when the held-out reward did not likely
        rise, or no more than `gone` of the entropy is left. Fail when the reward clearly fell. With a
        coefficient of 0, only growth counts. A reward stalled when it did not likely rise, and rose by less than
        half of what its levels span.

    Known limits:
        `most` is meant for a mean over tokens. Trainers that sum the KL over an answer log more. They pass if their
        reward rose.

    Worked example:
        kl: 0.01 0.02 0.02 0.03 0.03 0.04 0.05 0.06 0.5 5 20 30 30 30 31 30
        train_reward: 0.5 0.5 0.6 0.5 0.6 0.5 0.6 0.5 0.4 0.2 0.1 0 0 0 0 0
        gives: start 0.015, peak 30.5, end 30.5
        fail: the KL ends at 30, clearly above 1, and the reward fell from 0.5 to 0.

    What to do:
        Lower the learning rate, raise the KL coefficient (beta) and clip gradients. Continue from a checkpoint before
        the KL jumped.

    References:
        Schulman (2020), approximating KL divergence; Ziegler et al. (2019), fine-tuning from human preferences.
    """

    code = "RWD005"
    name = "policy-divergence"
    symptom = Symptom.DIVERGED
    role = "kl"

    growth: Annotated[float, Threshold("growth from the first half to the second", "times", "design", ge=3)] = 10.0
    most: Annotated[float, Threshold("divergence from a reference that is far", "nats", "design", gt=0)] = 1.0
    most_of_answer: Annotated[
        float, Threshold("divergence that is far, summed over an answer", "nats", "design", gt=0)
    ] = 100.0
    of_update: Annotated[float, Threshold("divergence of one update that is far", "nats", "design", gt=0)] = 0.5
    stretch: Annotated[
        float, Threshold("share of the run in which it is looked at", "fraction", "design", gt=0, le=1)
    ] = 0.25
    gone: Annotated[float, Threshold("share of its entropy that is none", "fraction", "design", gt=0, le=1)] = 0.1

    @property
    def needs(self) -> tuple[Need, ...]:
        return (*super().needs, *Need.beside("entropy", "entropy_loss"))

    def judge_policy(self, evidence: Evidence, curve: Curve, reward: Reward) -> Finding:
        first, second = curve.between(0.0, 0.5), curve.between(0.5, 1.0)
        left = first.value > 0.0 and second.surely_above(self.growth * first.value)
        far = self._is_far(evidence, curve)
        harmed = reward.stood or reward.fell_from_its_best
        beside = far and (_held_out_stands(evidence, reward) or self._entropy_is_gone(evidence))
        if not ((harmed and (left or far)) or beside):
            return harmless(curve, reward)
        since = curve.left(self.growth * first.value if left else far or self.most)
        return wrong(curve, reward, f"the policy left its course: {course(curve)}", _REMEDY, since)

    def _is_far(self, evidence: Evidence, curve: Curve) -> float:
        """The limit beyond which the divergence is: of one update in any quarter, of a reference at the end; else 0.
        With a coefficient of 0 nothing is meant to hold the policy, and only its growth counts.
        """
        if is_of_one_update(curve.series):
            begins = np.arange(0.0, 1.0, self.stretch)
            parts = [curve.between(at, at + self.stretch) for at in begins]
            return self.of_update * any(one.surely_above(self.of_update) for one in parts)
        held, most = Settings(evidence).kl_coefficient != 0.0, self.most
        if not _OF_AN_ANSWER.isdisjoint(words_of(curve.series.name)):
            most = self.most_of_answer
        return most * (held and curve.end.surely_above(max(most, curve.first.value)))

    def _entropy_is_gone(self, evidence: Evidence) -> bool:
        entropy = entropy_of(evidence)
        return entropy is not None and entropy.end.surely_below(self.gone * entropy.start.value)


def _held_out_stands(evidence: Evidence, reward: Reward) -> bool:
    """Whether a held-out reward stalled, and clearly rose by less than half as much as that of training."""
    held_out = reward_of(evidence, ("val_reward",))
    return held_out is not None and held_out.stood and held_out.rise.surely_below(reward.rise.value / 2.0)
