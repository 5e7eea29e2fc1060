"""RWD016."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log10
from typing import Annotated

import numpy as np

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import learnt_nothing, reward_of
from tracker_health.report.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS, word_set, words_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found
from tracker_health.text import number

_REMEDY = "normalise or clip the rewards, lower the rate of the value function, and clip its gradients"
_OF_VALUES = word_set("value values critic vf qf td q baseline")


@dataclass(frozen=True, kw_only=True)
class ValuesBeyond(Probe):
    """The loss of the value function is huge, and the policy did not learn.

    What it finds:
        Targets of values that no network reaches by usual steps: rewards of thousands, or values that feed on their own
        estimates.

    Why it matters:
        Steps of Adam have the size of the rate, whatever the gradient's size. Values of ten thousand are out of reach,
        and advantages are nothing but their error.

    How it decides:
        Warn when the level of a loss of values in the second half is clearly above `most`, by its logarithm.
        The reward must have stalled, in an environment that does not count as solved. A reward stalled when it did
        not likely rise, and rose by less than half of what its levels span.

    Known limits:
        Tasks with large returns have large losses of values; where the reward rose, they pass.

    Worked example:
        objective_loss value_loss: 2e5 3e5 2e5 3e5 4e5 3e5 4e5 5e5 4e5 5e5 4e5 5e5
        train_reward: -900 -880 -910 -890 -905 -900 -880 -910 -890 -900 -905 -890
        gives: late 450000
        warn: 450,000 is clearly above 100,000, and the reward stayed.

    What to do:
        Normalise the rewards, lower the rate of the value function, clip its gradients and its loss.

    References:
        van Hasselt et al. (2016), learning values across many orders of magnitude.
    """

    code = "RWD016"
    name = "values-beyond"
    symptom = Symptom.DIVERGED
    since = "0.2.0"

    most: Annotated[float, Threshold("loss of values that is too large", "", "design", gt=0)] = 1e5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=OBJECTIVE_LOSS, min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
        )

    def judge(self, evidence: Evidence) -> Finding:
        of_values = [one for one in evidence.all_of(OBJECTIVE_LOSS) if not _OF_VALUES.isdisjoint(words_of(one.name))]
        curves = [one for series in of_values if (one := Curve.of(series)) and one.points >= FEWEST_LEVELS]
        reward = reward_of(evidence)
        if not curves or reward is None:
            return Finding.skipped("no loss of values has enough points")
        worst = max(curves, key=lambda one: one.between(0.5, 1.0).value)
        late = worst.between(0.5, 1.0)
        measured = {"late": late.value}
        if not _in_decades(worst).between(0.5, 1.0).surely_above(log10(self.most)) or not learnt_nothing(
            evidence, reward
        ):
            return Finding.passed(f"{course(worst)}; {reward.said}", measured)
        said = f"values are out of reach: {course(worst)}, {number(late.value)} in its second half, while {reward.said}"
        return found(worst, said, _REMEDY, worst.left(self.most), measured=measured)


def _in_decades(loss: Curve) -> Curve:
    """The curve of the loss's logarithm: what grows a hundredfold has levels that are as sure as any."""
    values = np.log10(np.maximum(loss.series.values, np.finfo(np.float64).tiny))
    return Curve.of(replace(loss.series, values=values)) or loss
