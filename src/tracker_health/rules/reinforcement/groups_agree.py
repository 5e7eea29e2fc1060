"""RWD018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, LIKELY, Evidence, Need
from tracker_health.facts.policy import reward_of, rightness_of, rightness_rose
from tracker_health.report.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found
from tracker_health.text import percent

_REMEDY = "choose prompts that are solved sometimes, grade more finely, and make more answers to each"


@dataclass(frozen=True, kw_only=True)
class GroupsAgree(Probe):
    """Most groups of answers have one reward, and not because the task is solved.

    What it finds:
        Group-relative training (GRPO, RLOO) in which most prompts teach nothing, though the reward of the others rises.

    Why it matters:
        A group whose answers all get the same reward has advantages of 0. What the run costs goes into such groups.

    How it decides:
        The share of groups without spread must clearly be above `most_flat` in the second half. Warn when it
        also did in the first `early` of the run, when nothing was solved yet. Warn, too, when the reward for
        right answers ends clearly below `right`. It passes where right answers end likely above `solved` or
        above their start, and where the share clearly fell.

    Known limits:
        A model that solves nearly all prompts from the start looks the same, where no part of the reward says so.

    Worked example:
        train_reward: 0.5 0.52 0.51 0.55 0.57 0.6 0.62 0.61 0.63 0.62 0.63 0.64
        flat_share: 0.7 0.72 0.7 0.71 0.7 0.72 0.7 0.7 0.71 0.7 0.72 0.7
        gives: late 0.7
        warn: groups without spread are 0.7 at first and 0.7 in the second half, clearly more than 0.5.

    What to do:
        Choose prompts that the model solves sometimes, grade answers more finely, and raise the number of generations.

    References:
        Yu et al. (2025), DAPO (dynamic sampling).
    """

    code = "RWD018"
    name = "groups-agree"
    symptom = Symptom.NOT_LEARNING
    since = "0.2.0"

    most_flat: Annotated[float, Threshold("groups that may lack spread", "fraction", "design", gt=0, le=1)] = 0.5
    early: Annotated[float, Threshold("share of the run that is its beginning", "fraction", "design", gt=0, le=1)] = (
        0.125
    )
    right: Annotated[float, Threshold("share of right answers that is low", "fraction", "design", gt=0, le=1)] = 0.3
    solved: Annotated[float, Threshold("share of right answers that is high", "fraction", "design", gt=0, le=1)] = 0.9

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="flat_share", min_points=FEWEST_LEVELS),
            Need(role=REWARDS[0], any_of=REWARDS[1:], min_points=FEWEST_LEVELS),
            *Need.beside("reward_part"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        flat, reward, right = evidence.curve("flat_share"), reward_of(evidence), rightness_of(evidence)
        if flat is None or flat.points < FEWEST_LEVELS or reward is None:
            return Finding.skipped("too few points can be compared")
        late = flat.between(0.5, 1.0)
        measured = {"late": late.value}
        solved = right is not None and right.end.surely_above(self.solved, LIKELY)
        few = right is not None and right.end.surely_below(self.right)
        always = flat.between(0.0, self.early).surely_above(self.most_flat)
        better = rightness_rose(evidence) or (flat.end - flat.start).surely_below(0.0)
        if solved or better or not late.surely_above(self.most_flat) or not (always or few):
            return Finding.passed(f"{course(flat)}; {reward.said}", measured)
        beside = f", while {course(right)}" if few and right is not None else ""
        said = f"{percent(late.value)} of all groups have no spread in the second half: {course(flat)}{beside}"
        return found(flat, f"{said}; {reward.said}", _REMEDY, measured=measured, sure=reward.curve.sure)
