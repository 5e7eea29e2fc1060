"""How long the steps of a run took, and where they began to take longer for good.

What its owner logged comes first: a throughput, then a time per step, a clock. Where there is none, the times at which
points came tell it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Series
from tracker_health.evidence.numerics import median
from tracker_health.roles import words_of

LEVELS = 40
"""Parts that a run's pace is compared in, at most."""

_LEAST_TO_SEE = 2e-3
"""Seconds a step: of less, the times of points tell how long logging takes, not training."""
_MOST_AT_ONCE = 0.5
"""Of all points, those that have the time of another: with more, they were written later, many at once."""
_SPIKE = 2.0
"""Times the usual: what a step takes that also evaluates or saves, at least."""
_SPIKES, _REGULAR = 3, 0.25
"""How often it comes back, at least, and by how much of their usual distance such steps may be misplaced."""
_MAD, _SURELY, _LEAST = 1.4826, 2.0, 1e-9
_OF_THE_RISE = 0.2
"""What the last third brings of a rise that lasts, at least; a third of one that is even."""
_MOSTLY, _MOST_SPIKES = 0.8, 1 / 3
_MILLISECONDS = frozenset(("ms", "msec", "millis", "milliseconds"))
_STEP_WORDS = frozenset(
    "it its iter iters iteration iterations step steps batch batches update updates ups ips".split()  # noqa: SIM905
)
_EPISODES = re.compile(r"episode|trial", re.IGNORECASE)

PER_STEP = "seconds per step"
"""What the series is called that is worked out from a clock, or from the times of points."""

ByWhat = Literal["throughput", "step time", "clock", "times of points"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pace:
    """How long the steps of a run took.

    ``series``: what it is known by, as it was logged, with a point for each value. ``values``: float64[n], the time
    that a step took, in seconds where ``in_seconds``, else in a unit of its own. ``weights``: float64[n], the steps
    that each stands for. ``by``: how it is known.
    """

    series: Series
    values: FloatArray
    weights: FloatArray
    by: ByWhat
    in_seconds: bool

    @cached_property
    def _size(self) -> int:
        n = len(self.values)
        return max(1, min(3, n // 16), n // LEVELS)

    @cached_property
    def levels(self) -> FloatArray:
        """float64[levels]: medians of the logarithm over parts of equal size; what is left over is the beginning's."""
        logs = np.log(self.values)
        count = len(logs) // self._size
        return np.asarray(np.median(logs[len(logs) - count * self._size :].reshape(count, self._size), axis=1))

    def at(self, level: int) -> int:
        """The index of the first value of a level.

        Args:
            level: Its index, from 0.

        Returns:
            An index into ``values``.
        """
        return len(self.values) - (len(self.levels) - level) * self._size

    def step(self, at: int) -> int:
        """The step of a value.

        Args:
            at: Its index.

        Returns:
            As the series counts steps.
        """
        return int(self.series.steps[at])

    @cached_property
    def drawn(self) -> Series:
        """What it is seen in: the series that its owner logged, else the time per step that was worked out."""
        if self.by in ("throughput", "step time"):
            return self.series
        return replace(self.series, name=PER_STEP, role="step_time", values=self.values)

    @cached_property
    def spent(self) -> float:
        """The time of all steps, in the unit of the values."""
        return float(np.sum(self.values * self.weights))


@dataclass(frozen=True)
class SlowDown:
    """From where on steps took longer. ``at``: index of the first value that did; ``before`` and ``after``: the time of
    a step; ``is_step``: at once, else more and more; ``lost``: share of the whole time that would not have been spent.
    """

    at: int
    before: float
    after: float
    is_step: bool
    lost: float

    @property
    def times(self) -> float:
        """How many times as long a step takes."""
        return self.after / self.before


@dataclass(frozen=True)
class Spikes:
    """Steps that took much longer, at a regular distance: of an evaluation, or a checkpoint. ``every``: steps from one
    to the next; ``times``: how many; ``share``: of the whole time.
    """

    every: float
    times: int
    share: float


# Reading


def pace_of(evidence: Evidence, fewest: int) -> Pace | None:
    """How long the steps of a run took.

    Args:
        evidence: What was read of the run.
        fewest: Values that are enough to tell.

    Returns:
        By the first of these that tells: a throughput that was logged, a time per step, a clock, the times of points.
        None where none does. What a policy's training logs of its throughput is a mean since its beginning: there it
        comes last.
    """
    ways = [_of_throughput, _of_step_time, _of_elapsed, _of_times]
    rewarded = evidence.find("train_reward") is not None
    order = [*ways[1:], ways[0]] if rewarded else ways
    for way in order:
        for pace in way(evidence):
            if len(pace.values) >= fewest:
                return pace
    return None


def worked_out(evidence: Evidence, names: Iterable[str]) -> tuple[Series, ...]:
    """The series of these names that were not logged and can be drawn: the time per step.

    Args:
        evidence: What was read of the run.
        names: Of what findings are about.

    Returns:
        That series, none where it is not among the names.
    """
    pace = pace_of(evidence, 1) if PER_STEP in names else None
    return (pace.drawn,) if pace is not None and pace.drawn.name == PER_STEP else ()


def _positive(series: Series) -> Series:
    clean = series.finite()
    return clean.at(np.flatnonzero(clean.values > 0.0))


def _of_throughput(evidence: Evidence) -> Iterator[Pace]:
    """What is done in a second: samples and tokens before steps, which may be of different size."""
    logged = sorted(evidence.all_of("throughput"), key=lambda one: (counts_steps(one), -len(one)))
    for series in map(_positive, logged):
        if len(series):
            values = 1.0 / series.values
            yield Pace(series=series, values=values, weights=_weights(series), by="throughput", in_seconds=False)


def counts_steps(series: Series) -> bool:
    """Whether a throughput counts steps, which may be of different size, and neither samples nor tokens."""
    return not _STEP_WORDS.isdisjoint(words_of(series.name))


def _of_step_time(evidence: Evidence) -> Iterator[Pace]:
    for series in map(_positive, sorted(evidence.all_of("step_time"), key=lambda one: -len(one))):
        if len(series):
            unit = 1e-3 if not _MILLISECONDS.isdisjoint(words_of(series.name)) else 1.0
            values, sure = series.values * unit, unit != 1.0
            yield Pace(series=series, values=values, weights=_weights(series), by="step time", in_seconds=sure)


def _weights(series: Series) -> FloatArray:
    """The steps that each point stands for: those since the one before."""
    apart = np.diff(series.steps).astype(np.float64)
    return np.concatenate([apart[:1], apart]) if len(apart) else np.ones(len(series))


def _of_elapsed(evidence: Evidence) -> Iterator[Pace]:
    """By a clock that its owner logged: it never stands still."""
    for series in evidence.all_of("elapsed"):
        clock = series.finite()
        if len(clock) > 1 and not series.went_back and (np.diff(clock.values) > 0.0).all():
            unit = 1e-3 if not _MILLISECONDS.isdisjoint(words_of(series.name)) else 1.0
            yield _paced(clock, unit * np.diff(clock.values), "clock")


def _paced(series: Series, passed: FloatArray, by: ByWhat) -> Pace:
    """By the time that passed between neighbouring points."""
    done = np.diff(series.steps).astype(np.float64)
    later = series.at(np.arange(1, len(series)))
    return Pace(series=later, values=passed / done, weights=done, by=by, in_seconds=True)


def _of_times(evidence: Evidence) -> Iterator[Pace]:
    """By when points came: of the training loss, or of what was logged most often."""
    losses = [one for one in (evidence.find("train_loss"),) if one is not None]
    most = sorted(evidence.of_training, key=lambda one: -len(one))[:1]
    for series in [*losses, *most]:
        found = _between_points(series)
        if found is not None:
            yield found


def _between_points(series: Series) -> Pace | None:
    if series.times is None or series.went_back or _counts_episodes(series):
        return None
    clean = series.clean()
    times = clean.times
    if times is None or len(times) < 3 or not np.isfinite(times).all():
        return None
    # Points that came at once share the time since the ones before them.
    kept = np.flatnonzero(np.append(np.diff(times) > 0.0, True))
    if len(kept) < _MOST_AT_ONCE * len(times):
        return None
    passed = np.diff(times[kept])
    if (passed <= 0.0).any() or median(passed) < _LEAST_TO_SEE:
        return None
    return _paced(clean.at(kept), passed, "times of points")


def _counts_episodes(series: Series) -> bool:
    """Whether its steps are episodes, each of which is as long as the agent lets it be."""
    word = series.axis.name if series.axis is not None else series.step_word
    return _EPISODES.search(word) is not None


# Judging


def slow_down_of(pace: Pace, *, slower: float, earliest: float, rest: float, apart: float) -> SlowDown | None:
    """Where the steps of a run began to take longer, and stayed so to the end.

    Args:
        pace: How long they took.
        slower: Times as long as before that count.
        earliest: Share of the values that may be a warm-up: what changes there is no slow-down.
        rest: Share of the values in which it must be slower, at the end.
        apart: Share of the parts before that must be faster than half way, and of those after that must be slower.

    Returns:
        The slow-down; None where there is none, or where the pace had been as slow before.
    """
    levels = pace.levels
    warm = max(1, int(earliest * len(levels)))  # the first steps compile and fill caches
    changes = range(warm + 2, len(levels) - max(3, int(rest * len(levels))) + 1)
    if not changes or levels[-2:].min() <= levels[warm:].min() + np.log(slower) / 2:
        return None  # the end is not half as far above the fastest part as a slow-down must be
    steps = {at: _cost_of_step(levels, warm, at) for at in changes}
    creeps = dict(zip(places := [warm, *changes], _costs_of_creeps(levels, warm, places).tolist(), strict=True))
    best, creep = min(steps, key=steps.__getitem__), min(creeps, key=creeps.__getitem__)
    kinds = [(best, True), (creep, False)] if steps[best] <= creeps[creep] else [(creep, False), (best, True)]
    for at, is_step in kinds:  # what is too uneven for the one that fits best may be the other for sure
        before, after = _around(levels, warm, at, is_step=is_step)
        if after - before >= np.log(slower) and _stays(levels, warm, at, (before, after), apart, is_step=is_step):
            begin = _refined(pace, at, (before + after) / 2) if is_step else pace.at(at)
            return _slow_down(pace, begin, (before, after), is_step=is_step)
    return None


def _slow_down(pace: Pace, begin: int, around: tuple[float, float], *, is_step: bool) -> SlowDown:
    usual, slow = (float(np.exp(level)) for level in around)
    late = np.maximum(pace.values[begin:] - usual, 0.0)
    lost = float(np.sum(late * pace.weights[begin:])) / pace.spent
    return SlowDown(at=begin, before=usual, after=slow, is_step=is_step, lost=lost)


def _cost_of_step(levels: FloatArray, warm: int, at: int) -> float:
    before, after = levels[warm:at], levels[at:]
    return float(np.abs(before - median(before)).sum() + np.abs(after - median(after)).sum())


def _costs_of_creeps(levels: FloatArray, warm: int, places: Sequence[int]) -> FloatArray:
    """The same of a level that from each of these places on rises evenly, as the time itself and not its logarithm;
    infinite where it falls.
    """
    there = np.exp(levels[warm:])
    rises = np.maximum(np.arange(len(there)) - (np.array(places)[:, None] - warm), 0.0)
    middle = rises - rises.mean(axis=1, keepdims=True)
    slopes = middle @ (there - there.mean()) / np.maximum((middle**2).sum(axis=1), 1.0)
    lines = there.mean() + slopes[:, None] * middle
    costs = np.abs(levels[warm:] - np.log(np.maximum(lines, _LEAST * there.max()))).sum(axis=1)
    return np.where(slopes > 0, costs, np.inf)


def _around(levels: FloatArray, warm: int, at: int, *, is_step: bool) -> tuple[float, float]:
    """The level before and after: of what creeps, at its beginning and at its end."""
    few = max(2, len(levels) // 8)
    start = levels[warm:at] if is_step else levels[warm : max(at, warm + few)]
    return median(start), median(levels[at:] if is_step else levels[-few:])


def _stays(levels: FloatArray, warm: int, at: int, around: tuple[float, float], apart: float, *, is_step: bool) -> bool:
    """Whether it was fast before and slow after, and is so at the end: what goes up and down does neither."""
    before, after = around
    half = (before + after) / 2
    early, late = levels[warm:at], levels[at:]
    ends_slow = bool((levels[-2:] > half).all())
    if is_step:
        fast = float(np.mean(early < half)) if len(early) else 1.0
        return ends_slow and fast >= apart and float(np.mean(late > half)) >= apart
    was_fast = not len(early) or float(np.mean(early < half)) >= apart
    return ends_slow and was_fast and _lasts(late)


def _lasts(late: FloatArray) -> bool:
    """Whether it rises from third to third, to the end, clearly: what levels off creeps no more."""
    thirds = [median(one) for one in np.array_split(late, 3)]
    rises = np.diff(late)
    noise = _MAD * median(np.abs(rises - median(rises))) / np.sqrt(len(late) / 3)
    last, whole = thirds[2] - thirds[1], thirds[2] - thirds[0]
    return thirds[1] > thirds[0] and last > _SURELY * noise and last > _OF_THE_RISE * whole


def _refined(pace: Pace, level: int, half: float) -> int:
    """The first value near the beginning of a level from where most are slow."""
    begin, end = pace.at(max(0, level - 1)), pace.at(min(level + 1, len(pace.levels) - 1))
    is_slow = np.log(pace.values[begin:end]) > half
    costs = [int(np.sum(is_slow[:cut])) + int(np.sum(~is_slow[cut:])) for cut in range(len(is_slow) + 1)]
    return min(begin + int(np.argmin(costs)), len(pace.values) - 1)


def spikes_of(pace: Pace) -> Spikes | None:
    """Steps that took much longer than those around them, at a regular distance; None where there are none."""
    usual = np.exp(np.interp(np.arange(len(pace.values)), _middles(pace), pace.levels))
    high = np.flatnonzero(pace.values > _SPIKE * usual)
    if len(high) < _SPIKES or len(high) > _MOST_SPIKES * len(pace.values):
        return None
    distances = np.diff(pace.series.steps[high]).astype(np.float64)
    every = median(distances)
    # One that was not seen leaves a multiple.
    off = np.abs(distances / every - np.maximum(np.round(distances / every), 1.0))
    if float(np.mean(off <= _REGULAR)) < _MOSTLY:
        return None
    over = float(np.sum((pace.values[high] - usual[high]) * pace.weights[high]))
    return Spikes(every=every, times=len(high), share=over / pace.spent)


def _middles(pace: Pace) -> IntArray:
    starts = np.array([pace.at(level) for level in range(len(pace.levels))])
    return starts + (pace.at(1) - pace.at(0)) // 2 if len(starts) > 1 else starts
