"""RWD004."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.facts.policy import Reward, entropy_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, course, harmless, wrong

_COLLAPSED = "lower the learning rate, raise the temperature, keep the entropy up by a bonus or by clipping higher"
_EXPLODED = "lower the learning rate and an entropy bonus; raise the KL coefficient; take an earlier checkpoint"


@dataclass(frozen=True, kw_only=True)
class PolicyEntropy(PolicyRule):
    """The policy's entropy collapsed or exploded, and the reward did not rise.

    What it finds:
        A policy that gives only one answer before that answer is good, or that has dissolved into random tokens.

    Why it matters:
        Without entropy the policy tries nothing new, and training cannot improve it. Entropy that rises far means
        forgetting: the model loses what it knew before.

    How it decides:
        An entropy that begins above 0 collapsed when it ends surely below `collapse` of its start. It exploded when it
        ends surely above `explosion` times its start. Warn when the reward did not likely rise meanwhile, and fail when
        it surely fell. An entropy that falls to a level while the reward rises passes.

    Known limits:
        Entropy of continuous actions may be below 0, and is not judged. A solved task collapses, too, which the reward
        shows.

    Worked example:
        entropy: 2 1.8 1.5 1.2 0.8 0.4 0.2 0.1 0.05 0.04 0.03 0.03 0.02 0.02 0.02 0.02
        train_reward: 0.5 0.5 0.4 0.5 0.4 0.3 0.3 0.2 0.2 0.1 0.1 0.1 0.1 0.1 0.1 0.1
        gives: start 1.9, peak 1.9, end 0.02
        fail: the entropy ends at 0.02, surely below 0.2 of 2, and the reward fell from 0.5 to 0.1.

    What to do:
        Lower the learning rate. After a collapse, raise the temperature, the entropy bonus or the upper clipping bound.
        After an explosion, lower the bonus and raise the KL coefficient.

    References:
        Cui et al. (2025), the entropy mechanism of reinforcement learning for reasoning; Yu et al. (2025), DAPO.
    """

    code = "RWD004"
    name = "policy-entropy"
    symptom = Symptom.COLLAPSED
    kinds = ("collapsed", "came-apart")
    role = "entropy"

    collapse: Annotated[
        float, Threshold("share of its entropy that a policy must keep", "fraction", "design", gt=0, le=1)
    ] = 0.2
    explosion: Annotated[float, Threshold("growth of the entropy", "times", "design", ge=1)] = 1.3

    @property
    def needs(self) -> tuple[Need, ...]:
        first, *more = super().needs
        return (replace(first, any_of=("entropy_loss",)), *more)

    def curve(self, evidence: Evidence) -> Curve | None:
        return entropy_of(evidence)

    def judge_policy(self, curve: Curve, reward: Reward) -> Finding:
        start = curve.start
        if not start.surely_above(0.0):
            return Finding.skipped("the entropy does not begin above 0")
        if not reward.may_have_risen and curve.end.surely_below(self.collapse * start.value):
            return wrong(curve, reward, f"the policy collapsed: {course(curve)}", _COLLAPSED, kind="collapsed")
        if not reward.may_have_risen and curve.end.surely_above(self.explosion * start.value):
            since = curve.left(self.explosion * start.value)
            return wrong(curve, reward, f"the policy came apart: {course(curve)}", _EXPLODED, since, kind="came-apart")
        return harmless(curve, reward)
