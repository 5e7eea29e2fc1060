"""RWD006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence
from tracker_health.facts.policy import Reward
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, harmless, wrong
from tracker_health.text import number, printable

_REMEDY = "lower the learning rate, or take fewer updates on each batch of answers"


@dataclass(frozen=True, kw_only=True)
class PolicyClipping(PolicyRule):
    """Most of what was learnt from was clipped, and the reward did not rise.

    What it finds:
        A clip fraction so high that the policy changes far within one batch of rollouts.

    Why it matters:
        Clipping is the guard of PPO and GRPO: what it clips gives no gradient. A tenth or a fifth is usual. Where half
        is clipped the policy that learns is no longer the one that acted.

    How it decides:
        Warn when the clip fraction of the second half is clearly above `most_clipped`, and the reward stalled.
        Fail when the reward clearly fell. A reward stalled when it did not likely rise, and rose by less than half
        of what its levels span.

    Known limits:
        With one update per batch nothing is ever clipped, whatever the rate.

    Worked example:
        clip_fraction: 0.1 0.2 0.4 0.5 0.6 0.6 0.7 0.7 0.7 0.7 0.7 0.7 0.7 0.7 0.7 0.7
        train_reward: 20 22 19 21 20 19 21 20 22 20 19 21 20 21 20 20
        gives: start 0.15, peak 0.7, end 0.7
        warn: 0.7 is clearly above 0.4, and the reward stayed at 20.

    What to do:
        Lower the learning rate, the epochs or iterations over each batch, or stop a batch at a target KL.

    References:
        Schulman et al. (2017), proximal policy optimization; Engstrom et al. (2020), implementation matters.
    """

    code = "RWD006"
    name = "policy-clipping"
    symptom = Symptom.UPDATE_SIZE
    role = "clip_fraction"

    most_clipped: Annotated[float, Threshold("share that may be clipped", "fraction", "design", gt=0, le=1)] = 0.4

    def judge_policy(self, _evidence: Evidence, curve: Curve, reward: Reward) -> Finding:
        late = curve.between(0.5, 1.0)
        if not reward.stood or not late.surely_above(self.most_clipped):
            return harmless(curve, reward)
        said = f"{printable(curve.series.name)} was {number(late.value)} in the second half"
        return wrong(curve, reward, said, _REMEDY, curve.left(self.most_clipped))
