"""RWD010."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence
from tracker_health.facts.policy import Reward
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.reinforcement._policy import PolicyRule, harmless, wrong
from tracker_health.text import number, printable

_REMEDY = "train the value function more or with a larger rate, normalise rewards, and look at its inputs and targets"


@dataclass(frozen=True, kw_only=True)
class ValueFunction(PolicyRule):
    """The value function predicts returns worse than a constant, and the reward did not rise.

    What it finds:
        An explained variance below 0 in the second half of a run.

    Why it matters:
        Advantages are returns minus what the value function predicted. A value function that is worse than a constant
        adds noise to every update.

    How it decides:
        Warn when the explained variance of the second half is clearly below `least`, and the reward stalled.
        Fail when the reward clearly fell. A reward stalled when it did not likely rise, and rose by less than half
        of what its levels span.

    Known limits:
        Returns that barely vary have no variance to explain.

    Worked example:
        explained_variance: 0.1 0 -0.2 -0.5 -0.6 -0.5 -0.7 -0.6 -0.5 -0.6 -0.5 -0.6
        train_reward: 20 21 20 19 20 21 20 19 20 21 20 20
        gives: start 0.1, peak 0.1, end -0.55
        warn: -0.6 is clearly below -0.1, and the reward stayed at 20.

    What to do:
        Look at the value function's inputs, targets and learning rate; normalise rewards; share fewer layers with it.

    References:
        Schulman et al. (2016), generalized advantage estimation; Andrychowicz et al. (2021), what matters.
    """

    code = "RWD010"
    name = "value-function"
    symptom = Symptom.NOT_LEARNING
    role = "explained_variance"

    least: Annotated[float, Threshold("explained variance that is too low", "fraction", "design")] = -0.1

    def judge_policy(self, _evidence: Evidence, curve: Curve, reward: Reward) -> Finding:
        late = curve.between(0.5, 1.0)
        if not reward.stood or not late.surely_below(self.least):
            return harmless(curve, reward)
        said = f"{printable(curve.series.name)} was {number(late.value)} in the second half"
        return wrong(curve, reward, said, _REMEDY)
