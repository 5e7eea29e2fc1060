"""RWD013."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.environments import environment_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import short_name
from tracker_health.words.verdict import Verdict

_REMEDY = "step the environment by hand: look why it ends at once (termination, an observation out of bounds, an error)"


@dataclass(frozen=True, kw_only=True)
class EpisodesOfOneStep(Probe):
    """Every episode ends at its first step.

    What it finds:
        Episodes whose length is 1 throughout, in a training that looks ahead.

    Why it matters:
        Nothing that follows an action is ever seen. The agent learns of first steps alone.

    How it decides:
        Warn when the length of episodes is 1 at all of `min_points` points or more, and longer ones were
        possible. That is where a param names an environment of Gymnasium's that has them.

    Known limits:
        Bandits have episodes of one step by design. Of an unknown environment nothing is said.

    Worked example:
        episode_length: 1 1 1 1 1 1 1 1 1 1
        param env_id: CartPole-v1
        gives: length 1
        warn: all 10 lengths are 1.

    What to do:
        Step the environment by hand, and print what ends an episode.

    References:
        Towers et al. (2024), Gymnasium.
    """

    code = "RWD013"
    name = "episodes-of-one-step"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=5)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="episode_length", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        lengths = evidence.find("episode_length")
        values = lengths.finite().values if lengths is not None else ()
        if lengths is None or len(values) < self.min_points:
            return Finding.skipped("too few points can be compared")
        longest = float(max(values))
        if longest <= 1.0 and not environment_of(evidence):
            return Finding.skipped("every episode has one step, as those of a bandit have", {"length": longest})
        if longest > 1.0:
            return Finding.passed(f"{short_name(lengths.name)} is up to {longest:g} steps", {"length": longest})
        return Finding(
            verdict=Verdict.WARN,
            message=f"every episode ends at its first step: {short_name(lengths.name)} is 1 at {len(values)} points",
            remedy=_REMEDY,
            measured={"length": longest},
            steps=(int(lengths.steps[0]), int(lengths.steps[-1])),
        )
