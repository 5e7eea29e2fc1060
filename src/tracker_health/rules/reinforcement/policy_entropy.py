"""RWD004."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.facts.environments import SOLVED, environment_of
from tracker_health.facts.policy import Reward, entropy_of, learnt, rightness_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, course, fell_at, harmless, wrong

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
        An entropy that begins above 0 collapsed when it ends clearly below `collapse` of its start. It exploded
        when it ends clearly above `explosion` times its start. Warn when the reward stalled. Warn, too, next to a
        reward that rose, where no more than `gone` of the entropy is left. Either it went in the first `early`
        of the run, and the policy did not learn. Or the reward gains less than `late_gain` of its rise in the
        second half, and the task is known to be unsolved: right answers stay clearly below `right`, or the
        environment's reward does. Fail when the reward clearly fell. A reward stalled when it did not likely rise,
        and rose by less than half of what its levels span.

    Known limits:
        Entropy of continuous actions has no zero, and is not judged. A solved task collapses, too, which the reward
        shows.

    Worked example:
        entropy: 2 1.8 1.5 1.2 0.8 0.4 0.2 0.1 0.05 0.04 0.03 0.03 0.02 0.02 0.02 0.02
        train_reward: 0.5 0.5 0.4 0.5 0.4 0.3 0.3 0.2 0.2 0.1 0.1 0.1 0.1 0.1 0.1 0.1
        gives: start 1.9, peak 1.9, end 0.02
        fail: the entropy ends at 0.02, clearly below 0.2 of 2, and the reward fell from 0.5 to 0.1.

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
    gone: Annotated[float, Threshold("share of its entropy that is none", "fraction", "design", gt=0, le=1)] = 0.1
    early: Annotated[float, Threshold("share of the run that is its beginning", "fraction", "design", gt=0, le=1)] = (
        0.125
    )
    late_gain: Annotated[
        float, Threshold("share of its rise that a reward gains in the second half", "fraction", "design", gt=0, le=1)
    ] = 0.1
    right: Annotated[float, Threshold("share of right answers that is high", "fraction", "design", gt=0, le=1)] = 0.9
    explosion: Annotated[float, Threshold("growth of the entropy", "times", "design", ge=1)] = 1.3

    @property
    def needs(self) -> tuple[Need, ...]:
        first, *more = super().needs
        return (replace(first, any_of=("entropy_loss",)), *more, *Need.beside("reward_part"))

    def curve(self, evidence: Evidence) -> Curve | None:
        return entropy_of(evidence)

    def judge_policy(self, evidence: Evidence, curve: Curve, reward: Reward) -> Finding:
        start = curve.start
        if not start.surely_above(0.0):
            return Finding.skipped("the entropy does not begin above 0")
        collapsed = reward.stood and curve.end.surely_below(self.collapse * start.value)
        if collapsed or self._is_gone_for_nothing(evidence, curve, reward):
            said = f"the policy collapsed: {course(curve)}"
            return wrong(curve, reward, said, _COLLAPSED, fell_at(curve), kind="collapsed")
        if reward.stood and curve.end.surely_above(self.explosion * start.value):
            since = curve.left(self.explosion * start.value)
            return wrong(curve, reward, f"the policy came apart: {course(curve)}", _EXPLODED, since, kind="came-apart")
        return harmless(curve, reward)

    def _is_gone_for_nothing(self, evidence: Evidence, curve: Curve, reward: Reward) -> bool:
        """Whether next to no entropy is left from early on, or where the reward is before the task is solved."""
        early = curve.between(self.early, 1.0).surely_below(self.gone * curve.head.value)
        if early and not learnt(evidence, reward):
            return True
        late = reward.curve.end.value - reward.curve.level(len(reward.curve.levels) // 2).value
        stalls = late < self.late_gain * reward.rise.value
        return stalls and curve.end.surely_below(self.gone * curve.start.value) and self._is_unsolved(evidence, reward)

    def _is_unsolved(self, evidence: Evidence, reward: Reward) -> bool:
        """Whether it is known that the task is not solved: by the share of right answers, or by the environment."""
        right, least = rightness_of(evidence), SOLVED.get(environment_of(evidence))
        few = right is not None and right.end.surely_below(self.right)
        return few or (least is not None and reward.curve.end.surely_below(least))
