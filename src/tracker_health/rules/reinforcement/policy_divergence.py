"""RWD005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve
from tracker_health.facts.policy import Reward
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, course, harmless, wrong

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
        A straight line's second half lies three times as high as its first. The KL blew up when its second half lies
        surely above `growth` times its first half, or its end surely above `most`. Warn when the reward did not likely
        rise meanwhile, and fail when it surely fell.

    Known limits:
        `most` is meant for a mean over tokens. Trainers that sum the KL over an answer log more. They pass if their
        reward rose.

    Worked example:
        kl: 0.01 0.02 0.02 0.03 0.03 0.04 0.05 0.06 0.5 5 20 30 30 30 31 30
        train_reward: 0.5 0.5 0.6 0.5 0.6 0.5 0.6 0.5 0.4 0.2 0.1 0 0 0 0 0
        gives: start 0.015, peak 30.5, end 30.5
        fail: the KL ends at 30, surely above 10, and the reward fell from 0.5 to 0.

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
    most: Annotated[float, Threshold("divergence that no update should reach", "nats", "design", gt=0)] = 10.0

    def judge_policy(self, curve: Curve, reward: Reward) -> Finding:
        first, second = curve.between(0.0, 0.5), curve.between(0.5, 1.0)
        left = first.value > 0.0 and second.surely_above(self.growth * first.value)
        far = curve.end.surely_above(self.most)
        if reward.may_have_risen or not (left or far):
            return harmless(curve, reward)
        since = curve.left(self.most if far else self.growth * first.value)
        return wrong(curve, reward, f"the policy left its course: {course(curve)}", _REMEDY, since)
