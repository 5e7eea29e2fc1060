"""RWD001."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import scatter
from tracker_health.probes._comparable import settled
from tracker_health.probes._run import is_fine_tuning
from tracker_health.result import Finding
from tracker_health.roles import REWARDS
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_BLOCKS = 10
_SURE = 4.0  # standard errors
_RISEN, _FAR = 0.1, 0.5  # of the span
_HARDLY = 0.1  # of the larger level
_THE_SAME = 0.02
_ROUNDING = 1e-9  # of the largest value
_MAD_TO_SIGMA = 1.4826
_MOSTLY, _FEWEST_AT_FLOOR = 0.9, 5
_LATEST_BEGINNING = 0.2  # of the run
_ONE_NUMBER = 2.5  # times min_points
_BELOW = "look at the sign of the objective and of the advantages; then lower the learning rate"
_LOST = "take the checkpoint of the peak; lower the learning rate, clip the updates, keep the policy's entropy up"
_NEVER = "look whether rewards reach the objective, whether targets are updated, and whether the agent explores"


@dataclass(frozen=True, kw_only=True)
class RewardLost(Probe):
    """The reward fell below where it began, was lost again, or never rose.

    What it finds:
        A reward of reinforcement learning, of evaluation or training episodes, that ended clearly below where it began,
        lost most of what it had gained, or ended at the lowest there is; and an evaluation's that never changed, while
        training episodes got no better.

    Why it matters:
        The losses of an actor and a critic need not fall, so that a broken run has curves like any other's. The reward
        is what was to rise: a wrong sign, a policy that collapsed onto one action, or a target that never moves show
        there.

    How it decides:
        Of at least `min_evaluations` evaluations or `min_points` training rewards. Beginning: the mean of the first
        tenth, of two values at least; end: that of the last quarter, or the last evaluation, where that is higher;
        peak: the highest of ten equal parts. Warn where the evaluation's reward ended below its beginning, or lost
        `lost_share` of the way from there to its peak: by `least_fall` of what the values span (5 % to 95 %), by four
        standard errors, also of what is usual from one tenth of the run to the next, and by a tenth of the level.
        Likewise of training episodes, where no evaluation is there, or none that rose by a tenth of the span and two
        standard errors. Warn there, too, where nine tenths of the last quarter (of five values at least) are exactly
        the lowest reward that there was, and others were higher. And warn where all evaluations are one number below
        the training's, by 2 %, and training episodes did not rise by as much, unless a trained model was trained on.
        Unless so, warn as well where fifty training rewards and more, of which no others were logged, are one number,
        not above 0. Where a reward rose by half of the span and none was lost, it passes; else it is skipped.

    Known limits:
        Opponents that learn as well (self-play), costs to be kept low and tasks that grow harder lower the reward of a
        sound policy; a curriculum whose level is logged is left out. Needs a log that begins with the training. A noisy
        reward that never rises is no reason to warn: the policy may have been good from the start, or explore.

    What to do:
        Look at the sign of the objective and of the advantages, the learning rate and the entropy of the policy, and
        how often a target network is updated.

    References:
        Henderson et al. (2018), deep reinforcement learning that matters.
    """

    code = "RWD001"
    name = "reward-lost"
    symptom = Symptom.NOT_LEARNING
    vouches = True

    lost_share: Annotated[
        float, Threshold("share of its gain that a reward may not lose again", "fraction", "design", gt=0, le=1)
    ] = 0.6
    least_fall: Annotated[
        float, Threshold("fall that is one, as a share of what the values span", "fraction", "design", gt=0, le=1)
    ] = 0.3
    min_evaluations: Annotated[int, Threshold("evaluations needed", "evaluations", "design", ge=5)] = 5
    min_points: Annotated[int, Threshold("training rewards needed", "points", "design", ge=20)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="val_reward", any_of=("train_reward",)),)

    def judge(self, evidence: Evidence) -> Finding:
        rise = settled(evidence)
        if rise is not None:
            return Finding(verdict=Verdict.SKIP, message=f"the task changes: {printable(rise[0], 60)} rises")
        held_out = _levels(evidence.find("val_reward"), self.min_evaluations)
        train = _levels(evidence.find("train_reward"), self.min_points)
        first = held_out or train
        if first is None:
            return Finding(verdict=Verdict.SKIP, message="too few rewards, or none of the beginning")
        if self._is_lost(first):
            return _lost(first)
        if held_out is not None and train is not None and not held_out.rose:
            if self._is_lost(train):
                return _lost(train)
            if self._never_rose(held_out, train, evidence):
                return _never_rose(held_out, train)
        if train is not None and self._is_one_number(train, evidence):
            return _one_number(train, len(evidence.first("train_reward").finite()))
        at_floor = [one for one in (held_out, train) if one is not None and one.at_floor]
        if at_floor and not first.rose:
            return _at_the_floor(at_floor[-1])
        rose = next((one for one in (held_out, train) if one is not None and one.rose_far), None)
        if rose is None:
            said = "no reward rose far; it may be that of a policy that explores, or of a task that was solved before"
            return Finding(verdict=Verdict.SKIP, message=said, measured=first.measured)
        start, end = _start_and_end(rose)
        said = f"{rose.name} rose from {start} to {end}"
        return Finding(verdict=Verdict.PASS, message=said, measured=rose.measured)

    def _is_lost(self, reward: _Levels) -> bool:
        """Whether it ended below its beginning, or lost most of what it had gained, beyond chance."""
        fall, gain = reward.peak - reward.kept, reward.peak - reward.start
        if fall <= max(self.least_fall * reward.span, _SURE * reward.error, _HARDLY * reward.size):
            return False
        below = reward.start - reward.kept
        return below > max(self.least_fall * reward.span, _SURE * reward.error) or (
            gain > _SURE * reward.error and fall >= self.lost_share * gain
        )

    def _is_one_number(self, train: _Levels, evidence: Evidence) -> bool:
        """Whether the only reward that was logged never changed, in a training from scratch."""
        rewards = [one for one in evidence.series if one.role in REWARDS]
        many = len(rewards) == 1 and len(rewards[0].finite()) >= _ONE_NUMBER * self.min_points
        return many and train.constant and train.end <= 0.0 and not is_fine_tuning(evidence)

    @staticmethod
    def _never_rose(held_out: _Levels, train: _Levels, evidence: Evidence) -> bool:
        ends, sizes = zip(*((one.unit * one.end, one.unit * one.size) for one in (held_out, train)), strict=True)
        as_good = ends[0] >= ends[1] - _THE_SAME * max(sizes)
        return held_out.constant and not (train.rose or as_good or is_fine_tuning(evidence))


@dataclass(frozen=True)
class _Levels:
    """Where a reward began, stood highest and ended; what its values span; the error of a difference. All in a unit:
    the size of the largest value.

    ``kept``: its very end, of an evaluation, where that is higher. ``at_floor``: it ended at the lowest value that it
    ever had, again and again.
    """

    name: str
    start: float
    peak: float
    end: float
    kept: float
    span: float
    error: float
    constant: bool
    at_floor: bool
    unit: float

    @property
    def size(self) -> float:
        """The size of the larger level."""
        return max(abs(self.start), abs(self.peak), abs(self.end))

    @property
    def rose(self) -> bool:
        """Whether it ended above its beginning, beyond chance."""
        return self.end - self.start > max(_RISEN * self.span, _SURE / 2.0 * self.error, _ROUNDING)

    @property
    def rose_far(self) -> bool:
        """Whether that is most of what its values span."""
        return self.rose and self.end - self.start > max(_FAR * self.span, _SURE * self.error)

    @property
    def measured(self) -> dict[str, float]:
        """The numbers for the report."""
        return {name: self.unit * getattr(self, name) for name in ("start", "peak", "end")}


def _one_number(reward: _Levels, points: int) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"{reward.name} is {number(reward.unit * reward.end)} at all {points} points: nothing that the agent "
        "did changed it",
        remedy=_NEVER,
        measured=reward.measured,
    )


def _levels(series: Series | None, fewest: int) -> _Levels | None:
    """The levels of a reward; None where there are too few values, or none of the beginning."""
    finite = series.finite() if series is not None else None
    if finite is None or len(finite) < fewest or finite.steps[0] > max(1.0, _LATEST_BEGINNING * finite.steps[-1]):
        return None
    unit = float(np.abs(finite.values).max()) or 1.0
    values = finite.values / unit
    first, last = max(2, len(values) // 10), max(2, len(values) // 4)
    parts = [float(np.mean(part)) for part in np.array_split(values, min(_BLOCKS, len(values) // 2))]
    noise = scatter(values)
    start, end = float(np.mean(values[:first])), float(np.mean(values[-last:]))
    # The last evaluation is a mean of several episodes of the very policy that is kept.
    evaluated = finite.role == "val_reward"
    kept, waves = (max(end, float(values[-1])), 0.0) if evaluated else (end, _error_of_waves(values))
    low, high = np.quantile(values, (0.05, 0.95))
    return _Levels(
        name=printable(finite.name, 60),
        start=start,
        peak=max(*parts, start, end),
        end=end,
        kept=kept,
        span=float(high - low),
        error=max(noise * hypot(1.0 / sqrt(first), 1.0 / sqrt(last)), waves),
        constant=bool(values.min() == values.max()),
        at_floor=_is_at_floor(values, last),
        unit=unit,
    )


def _error_of_waves(values: FloatArray) -> float:
    """The error of a difference of two levels where neighbours have episodes in common, as means of the last hundred:
    by how much the middle one of all levels differs from that of a tenth of the run before.
    """
    levels = np.array([np.mean(part) for part in np.array_split(values, min(2 * _BLOCKS, len(values) // 2))])
    apart = max(1, len(levels) // _BLOCKS)
    steps = np.abs(levels[apart:] - levels[:-apart])
    return _MAD_TO_SIGMA * median(steps) / sqrt(2.0) * hypot(1.0, sqrt(0.4)) if len(steps) else 0.0


def _is_at_floor(values: FloatArray, last: int) -> bool:
    """Whether nearly all of the last values are the lowest that there was, and others were higher."""
    lowest = values.min()
    there = float(np.mean(values[-last:] == lowest))
    return bool(last >= _FEWEST_AT_FLOOR and there >= _MOSTLY and lowest < values.max())


def _at_the_floor(reward: _Levels) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"{reward.name} ended at {_start_and_end(reward)[1]}, the lowest that it ever was, again and again",
        remedy=_NEVER,
        measured=reward.measured,
    )


def _start_and_end(reward: _Levels) -> tuple[str, str]:
    measured = reward.measured
    return number(measured["start"]), number(measured["end"])


def _lost(reward: _Levels) -> Finding:
    start, end = _start_and_end(reward)
    below = reward.start - reward.end > reward.peak - reward.start
    what = f"began at {start}" if below else f"rose from {start} to {number(reward.measured['peak'])}"
    return Finding(
        verdict=Verdict.WARN,
        message=f"{reward.name} {what} and ended at {end}",
        remedy=_BELOW if below else _LOST,
        measured=reward.measured,
    )


def _never_rose(held_out: _Levels, train: _Levels) -> Finding:
    def way(reward: _Levels) -> str:
        start, end = _start_and_end(reward)
        return f"{reward.name} ({start} at the beginning, {end} at the end)"

    return Finding(
        verdict=Verdict.WARN,
        message=f"no reward rose: neither {way(held_out)} nor {way(train)}",
        remedy=_NEVER,
        measured=held_out.measured,
    )
