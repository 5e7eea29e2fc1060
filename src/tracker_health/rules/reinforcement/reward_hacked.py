"""RWD008."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import FEWEST_LEVELS, Curve, Evidence, Need
from tracker_health.facts.policy import Reward, is_a_share, reward_of, rightness_of, rightness_rose
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.roles import REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.reinforcement._policy import course, found, levels
from tracker_health.text import short_name

_REMEDY = "read answers of high reward; give what fell more weight, and stop at the best evaluation"


@dataclass(frozen=True, kw_only=True)
class RewardHacked(Probe):
    """The training reward rose while an evaluation's, or one of several rewards, fell.

    What it finds:
        Training that improves the measured reward and loses the intended behaviour.

    Why it matters:
        A policy finds what is rewarded most. If a reward can be earned without doing the task, the total rises as in a
        healthy run. Only another measure of the task shows what was lost.

    How it decides:
        The reward of training or of evaluations must have clearly risen. Warn when that of evaluations, or one
        of the rewards that make it up, clearly fell from its start to its end. The fall must be more than
        `least_fall` of its start's size and of what its levels span, and `least_share` of the reward's rise. A
        part does not count where more answers are right at the end. Warn, too, when the reward rose by more
        than `least_rise` of its start, and what was meant did not. It rose by less than `least_held_out`, and
        by less than `least_share` of the reward's rise. That is a held-out reward, or the share of right
        answers. It must be between 0 and 1, and end clearly below `solved`.

    Known limits:
        A penalty may have to rise for a task to be done. If rewards conflict, one of them falls by design.

    Worked example:
        train_reward: 1 1.2 1.4 1.6 1.8 1.9 2 2.1 2.1 2.2 2.2 2.2
        reward_part: 0.5 0.48 0.45 0.4 0.36 0.3 0.27 0.24 0.22 0.2 0.2 0.2
        gives: start 0.5, peak 0.5, end 0.2
        warn: the total rose from 1 to 2.2, and the part fell from 0.5 to 0.2, by more than 0.25 of 0.5.

    What to do:
        Read answers of high reward. Give the reward that fell more weight, or make the other one depend on it; stop at
        the best evaluation.

    References:
        Gao et al. (2023), scaling laws for reward model overoptimization; Skalse et al. (2022), reward hacking.
    """

    code = "RWD008"
    name = "reward-hacked"
    symptom = Symptom.OVERFIT

    least_fall: Annotated[
        float, Threshold("fall that is one, as a share of its start", "fraction", "design", gt=0, le=1)
    ] = 0.25

    least_rise: Annotated[
        float, Threshold("rise of the reward that is one, of its start", "fraction", "design", gt=0)
    ] = 0.2
    least_held_out: Annotated[float, Threshold("rise of a held-out score that is one", "score", "design", gt=0)] = 0.03
    least_share: Annotated[
        float, Threshold("rise of a held-out score, as a share of the reward's", "fraction", "design", gt=0)
    ] = 0.1
    solved: Annotated[float, Threshold("held-out score that has no room to rise", "score", "design", gt=0)] = 0.9

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=REWARDS[0], min_points=FEWEST_LEVELS),
            Need(role="reward_part", any_of=("val_reward",)),
            Need(role="val_reward", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        held_out = evidence.curve("val_reward")
        parts = [Curve.of(part) for part in evidence.all_of("reward_part")]
        others = [one for one in (held_out, *parts) if one is not None]
        known = [one for role in REWARDS if (one := reward_of(evidence, (role,))) is not None]
        if not known or not others:
            return Finding.skipped("too few points can be compared")
        reward = next((one for one in known if one.rose), known[0])
        if rightness_rose(evidence):  # then a part may fall for it; held-out answers may not
            others = [one for one in others if one is held_out]
        others = [one for one in others if one.series.name != reward.curve.series.name]
        lost = [one for one in others if reward.rose and self._fell(one, reward)]
        meant = [one for one in (held_out, rightness_of(evidence)) if one is not None]
        lost = lost or [one for one in meant if reward.rose and self._stands(one, reward)]
        if not lost:
            return Finding.passed(reward.said, levels(reward.curve))
        said = f"{reward.said}, while {course(lost[0])}"
        series = lost[0].series
        onset = Onset.on(series, lost[0].peak_step, f"the best {short_name(series.name)}", is_best=True)
        return replace(found(lost[0], said, _REMEDY, sure=reward.curve.sure), onset=onset)

    def _stands(self, meant: Curve, reward: Reward) -> bool:
        """Whether a score that has room to rise stands, while the reward gains much of what it was."""
        if meant.points < FEWEST_LEVELS or not is_a_share(meant):
            return False
        gained = reward.rise.value > self.least_rise * abs(reward.curve.start.value)
        room, rise = meant.end.surely_below(self.solved), meant.end.value - meant.start.value
        return gained and room and rise < min(self.least_held_out, self.least_share * reward.rise.value)

    def _fell(self, other: Curve, reward: Reward) -> bool:
        wide = other.with_waves
        if wide.start.value - wide.end.value < self.least_share * reward.rise.value:
            return False
        span = float(other.levels.max() - other.levels.min())
        return (wide.start - wide.end).surely_above(self.least_fall * max(abs(wide.start.value), span))
