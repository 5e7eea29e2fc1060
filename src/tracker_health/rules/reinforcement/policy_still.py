"""RWD011."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import FEWEST_LEVELS, Evidence, Need
from tracker_health.facts.policy import entropy_of, learnt, reward_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent, short_name
from tracker_health.words.verdict import Verdict

_REMEDY = "look whether the optimizer has the policy's parameters, and whether the policy's loss reaches them"


@dataclass(frozen=True, kw_only=True)
class PolicyStill(Probe):
    """The policy is not trained: no update moved it, and its entropy stood still.

    What it finds:
        A policy whose divergence from one update to the next is 0 up to rounding, and whose entropy is one number.

    Why it matters:
        What samples are drawn with never changes. The value function may learn, and rewards may drift by luck.

    How it decides:
        Two things must stand still, each of `min_points` points. The divergence is below `still` in size at a share
        `most_still` of its points. The entropy changes by less than `entropy_change` of its largest size. Then warn. It
        passes where the reward clearly rose, by half of what its levels span.

    Known limits:
        One update a batch logs a divergence of 0 and learns: its entropy moves. Without an entropy nothing is said.

    Worked example:
        kl approx_kl: 1e-9 2e-9 0 1e-9 0 2e-9 1e-9 0 1e-9 0 1e-9 2e-9
        entropy: 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931 0.6931
        gives: still_share 1, change 0
        warn: 12 of 12 divergences are below 1e-6, more than 0.95, and the entropy never changes.

    What to do:
        Print the norm of the policy's gradients, and a weight of it before and after one update. Look at the rate, at
        what was detached or frozen, and at which parameters the optimizer was given.

    References:
        Engstrom et al. (2020), implementation matters in deep policy gradients.
    """

    code = "RWD011"
    name = "policy-still"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    still: Annotated[float, Threshold("divergence that is none", "nats", "design", gt=0)] = 1e-6
    most_still: Annotated[float, Threshold("share of points without divergence", "fraction", "design", gt=0, le=1)] = (
        0.95
    )
    entropy_change: Annotated[
        float, Threshold("change of the entropy that is none, of its size", "fraction", "design", ge=0)
    ] = 0.002
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=5)] = FEWEST_LEVELS

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="kl", min_points=self.min_points),
            Need(role="entropy", any_of=("entropy_loss",), min_points=self.min_points),
        )

    def judge(self, evidence: Evidence) -> Finding:
        moved, entropy, reward = evidence.curve("kl"), entropy_of(evidence), reward_of(evidence)
        if moved is None or entropy is None or min(moved.points, entropy.points) < self.min_points:
            return Finding.skipped("too few points can be compared")
        values = entropy.series.values
        share = float(np.mean(np.abs(moved.series.values) < self.still))
        change = float(np.ptp(values) / max(float(np.abs(values).max()), self.still))
        measured = {"still_share": share, "change": change}
        said = f"{short_name(moved.series.name)} is 0 at {percent(share)} of its points"
        said = f"{said}, the entropy changes by {percent(change)}"
        risen = reward is not None and learnt(evidence, reward)
        if share < self.most_still or change >= self.entropy_change or risen:
            return Finding.passed(said, measured)
        stood = f"; {reward.said}" if reward is not None else ""
        return Finding(
            verdict=Verdict.WARN,
            message=f"the policy is not trained: {said}, from {number(float(values[0]))} on{stood}",
            remedy=_REMEDY,
            measured=measured,
            steps=(int(moved.steps[0]), moved.last_step),
            confidence="high" if moved.sure and entropy.sure else "low",
        )
