"""RWD001."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Curve, Estimate, Evidence, Need
from tracker_health.evidence.comparable import settled
from tracker_health.evidence.curve import resolution
from tracker_health.facts.policy import is_solved, learnt, rewarded
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, number, printable
from tracker_health.words.verdict import Verdict

_BELOW = "look at the sign of the objective and of the advantages; then lower the learning rate"
_LOST = "take the checkpoint of the peak; lower the learning rate, clip the updates, keep the policy's entropy up"
_NEVER = "look whether rewards reach the objective, whether targets are updated, and whether the agent explores"


@dataclass(frozen=True, kw_only=True)
class RewardLost(Probe):
    """The reward fell below where it began, was lost again, or never changed.

    What it finds:
        A reward of evaluation or training episodes that ended clearly below where it began, or lost most of its gain.
        Also one that never changed.

    Why it matters:
        The losses of an actor and a critic need not fall, so a broken run has curves like any other. The reward is what
        should rise. It shows a wrong sign, a policy that collapsed onto one action, or a target that never moves.

    How it decides:
        Falls are compared with what the levels span. Fail when the reward ends clearly below its start, by
        `least_fall`. Warn when it clearly rose and ends clearly below its best level by `least_fall`, and by
        `lost_share` of its gain. Warn when all levels are one number: of `constant_points` or more, or an evaluation's,
        clearly below training rewards that did not rise. It passes when the policy learnt: the reward clearly rose, by
        half of what its levels span, or the environment counts as solved. Training episodes count where no evaluation
        clearly rose. Needs `min_evaluations` or `min_points`.

    Known limits:
        A fall of one unit of the log's last digit does not count. Opponents that learn as well (self-play), costs to be
        kept low and harder tasks lower the reward of a healthy policy. A curriculum whose level is logged is left out.
        A noisy reward that never rises is no reason to warn: the policy may have been good from the start, or may
        explore.

    Worked example:
        train_reward: 20 22 21 19 20 18 17 16 14 13 11 10 9 10 9 10 9 10 9 9
        gives: start 21, peak 19, end 9.25
        fail: it ends at 9 and began at 20; the levels span about 12, and 11 is clearly more than 0.3 of that.

    What to do:
        Look at the sign of the objective and of the advantages, the learning rate, the policy's entropy, and how often
        a target network is updated.

    References:
        Henderson et al. (2018), deep reinforcement learning that matters.
    """

    code = "RWD001"
    name = "reward-lost"
    symptom = Symptom.NOT_LEARNING
    kinds = ("lost", "below-its-start", "constant")
    vouches = True

    lost_share: Annotated[
        float, Threshold("share of its gain that a reward may not lose again", "fraction", "design", gt=0, le=1)
    ] = 0.6
    least_fall: Annotated[
        float, Threshold("fall that is one, as a share of what the levels span", "fraction", "design", gt=0, le=1)
    ] = 0.3
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=5)] = 5
    min_points: Annotated[int, Threshold("training rewards needed", "points", "design", ge=8)] = 8
    constant_points: Annotated[int, Threshold("rewards of one number that are too many", "points", "design", ge=5)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="val_reward", any_of=("train_reward",)), *Need.beside("train_reward", "objective_weight"))

    def judge(self, evidence: Evidence) -> Finding:
        harder = settled(evidence.all_of("objective_weight"))
        if harder is not None:
            return Finding.skipped(f"the task changes: {printable(harder[0])} rises")
        enough = (("val_reward", self.min_evaluations), ("train_reward", self.min_points))
        # Upside down, as a reward goes up where a loss goes down.
        known = [
            (one, fewest) for role, fewest in enough if (one := rewarded(evidence, evidence.curve(role))) is not None
        ]
        rewards = [one for one, fewest in known if one.curve.points >= fewest]
        if not rewards:
            return Finding.skipped("too few rewards")
        for reward in rewards:
            wrong = self._lost(reward.as_loss)
            if wrong is None and not is_solved(evidence, reward.curve):
                wrong = self._stands(reward.as_loss, [other.as_loss for other, _ in known if other is not reward])
            if wrong is not None:
                return wrong
            if reward.rise.surely_above(0.0):
                break  # a policy that explores may be worse in training
        good = next((one for one in rewards if learnt(evidence, one)), None)
        if good is None:
            said = "no reward rose far; it may be that of a policy that explores, or of a task that was solved before"
            return Finding.skipped(said, _levels(rewards[0].as_loss))
        return Finding.passed(good.said, _levels(good.as_loss))

    def _lost(self, reward: Curve) -> Finding | None:
        least = max(self.least_fall * _span(reward), resolution(reward.levels))
        began = max(reward.start, reward.head, key=lambda one: one.value)  # one high reward at first is luck
        below, fall = (reward.end - began).surely_above(least), reward.end - reward.best
        most = fall.surely_above(least) and fall.value >= self.lost_share * reward.descent.value
        if not (below or (most and reward.descent.surely_above(0.0))):
            return None
        start, peak, end = contrast(*_levels(reward).values())
        came = (
            f"began at about {start}"
            if below
            else f"rose from about {start} to {peak} at {reward.series.where(reward.best_step)}"
        )
        verdict = Verdict.FAIL if below and reward.sure else Verdict.WARN
        kind, remedy = ("below-its-start", _BELOW) if below else ("lost", _LOST)
        since = reward.left((reward.best.value + reward.end.value) / 2.0)
        found = _finding(verdict, reward, f"{came} and ended at {end}", remedy, since, kind=kind)
        if not reward.descent.surely_above(0.0):
            return found
        best = Onset.on(reward.series, reward.best_step, "the best reward", is_best=True)
        return replace(found, onset=best)

    def _stands(self, reward: Curve, others: list[Curve]) -> Finding | None:
        alone = reward.points >= self.constant_points and all(map(_is_constant, others))
        training = [other for other in others if other.series.role == "train_reward"]
        worse = any((reward.end - other.end).surely_above(0.0) for other in training)
        rose = any(_rise(other).surely_above(0.0) for other in others)
        if not _is_constant(reward) or not (alone or (worse and not rose)):
            return None
        stood = f"stayed at {number(_levels(reward)['end'])} throughout, for {reward.points} points"
        said = f"{stood}: nothing that the agent did changed it"
        return _finding(Verdict.WARN, reward, said, _NEVER, int(reward.steps[0]), kind="constant")


def _finding(verdict: Verdict, reward: Curve, said: str, remedy: str, since: int, *, kind: str) -> Finding:
    return Finding(
        verdict=verdict,
        message=f"{printable(reward.series.name)} {said}",
        remedy=remedy,
        measured=_levels(reward),
        steps=(since, reward.last_step),
        confidence="high" if reward.sure else "low",
        kind=kind,
    )


def _is_constant(reward: Curve) -> bool:
    return bool(reward.levels.min() == reward.levels.max())


def _rise(reward: Curve) -> Estimate:
    return reward.start - reward.end


def _span(reward: Curve) -> float:
    """From the lowest level to the highest, and no less than what a change of a flat curve is measured by."""
    return max(reward.peak.value - reward.best.value, reward.size)


def _levels(reward: Curve) -> dict[str, float]:
    """Of the reward as it was logged."""
    return {"start": -reward.start.value, "peak": -reward.best.value, "end": -reward.end.value}
