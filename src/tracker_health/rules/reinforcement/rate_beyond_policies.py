"""RWD019."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need
from tracker_health.facts.policy import learnt_nothing, reward_of
from tracker_health.facts.settings import Settings
from tracker_health.report.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import setting
from tracker_health.words.verdict import Verdict

_OF_NETWORKS = (OBJECTIVE_LOSS, "train_loss", "grad_norm", "kl", "entropy", "entropy_loss")


@dataclass(frozen=True, kw_only=True)
class RateBeyondPolicies(Probe):
    """The learning rate is one that no policy network trains with, and the policy did not learn.

    What it finds:
        A learning rate of a hundred times what is usual in reinforcement learning.

    Why it matters:
        A policy makes its own data. One step that is too large gives data of no worth, and the next step learns from
        these.

    How it decides:
        Only for networks, which a loss, a gradient, a divergence or an entropy in the log shows. Warn when the
        highest learning rate is `most_rate` or more, and the reward stalled, in an environment that does not
        count as solved. A reward stalled when it did not likely rise, and rose by less than half of what its
        levels span.

    Known limits:
        Without a rate in the log or the params it says nothing.

    Worked example:
        learning_rate: 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1
        entropy: 0.6 0.1 0 0 0 0 0 0
        train_reward: 22 10 9 9 9 9 9 9
        gives: rate 0.1
        warn: 0.1 is above 0.03, and the reward did not rise.

    What to do:
        Take 3e-4 for control, and 1e-6 for language models.

    References:
        Andrychowicz et al. (2021), what matters for on-policy deep actor-critic methods.
    """

    code = "RWD019"
    name = "rate-beyond-policies"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    most_rate: Annotated[float, Threshold("learning rate that is too high for a policy", "rate", "design", gt=0)] = 0.03

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
            Need(role=_OF_NETWORKS[0], any_of=_OF_NETWORKS[1:]),
            *Need.beside("learning_rate"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        rate, reward = Settings(evidence).rate, reward_of(evidence)
        if rate is None or reward is None:
            return Finding.skipped("no learning rate is known, or too little of a reward")
        measured = {"rate": rate}
        if rate < self.most_rate or not learnt_nothing(evidence, reward):
            return Finding.passed(f"the learning rate is {setting(rate)}; {reward.said}", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"a learning rate of {setting(rate)} is far beyond what policies train with, while {reward.said}",
            remedy="take a learning rate of 3e-4 for control, and of 1e-6 for language models",
            measured=measured,
            confidence="high" if reward.curve.sure else "low",
        )
