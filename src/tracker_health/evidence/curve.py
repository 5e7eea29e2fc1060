"""What a curve looks like: worked out once per series, and what rules about curves compare.

Every number that a rule compares is an ``Estimate``: a value with its standard error. A rule asks whether something is
*clearly* above a limit, *clearly* below it, or neither. Few points make large errors, so that logs of eight points and
of eighty thousand go through the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np

from tracker_health.evidence.comparable import restarts_of, way_of
from tracker_health.evidence.numerics import block_medians, coarseness, mann_kendall, median
from tracker_health.evidence.series import FloatArray, IntArray, Series

SURELY, LIKELY = 3.0, 1.5
"""Standard errors beyond which a difference counts: one chance in 700, or in 15, if the noise is normal."""

FEWEST_POINTS, FEWEST_LEVELS = 4, 8
"""Of fewer points there is no curve; of fewer than eight no part of one."""

FEW_POINTS = 10
"""Below so many points Student's factor is more than one and a half, and what rules find is unsure."""

_LEVELS, _SHORT_BLOCK = 40, 3
_EIGHTHS = 8
_MAD = 1.4826  # from a median absolute deviation to a standard deviation, for normal noise
_MEDIAN = 1.2533  # the standard error of a median over that of a mean: sqrt(pi / 2)
_ROUNDING = 12.0**-0.5  # standard deviation of what rounding to units takes away
_STUDENT, _DECLINE = 8.3, -1.42  # fitted to Student's t over the normal's at three deviations, for 2 to 60 points
_HEAD = 3  # first points whose median is taken for the beginning, where it is another than the first eighth
_OF_FLAT = 0.2  # of the best level: what a change is measured by in a curve that barely came down
_LARGEST = 1e300  # differences of larger numbers may be infinite
_HELD_OUT = "val_loss"  # an evaluation is a mean over a whole set, of which one alone is a level
_FALLS = -2.0  # Mann and Kendall's score: one chance in 40, if nothing falls
_SAMPLED = 64  # values whose last digit is looked at


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error, both in the unit of the series."""

    value: float
    error: float

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, hypot(self.error, other.error))

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.error)

    def surely_above(self, limit: float, errors: float = SURELY) -> bool:
        """Whether it is above a limit by a number of standard errors.

        Args:
            limit: A value, in the unit of the estimate.
            errors: Standard errors that it must be away.

        Returns:
            True where it is; False where it is not, or where noise hides it.
        """
        return self.value - errors * self.error > limit

    def surely_below(self, limit: float, errors: float = SURELY) -> bool:
        """Whether it is below a limit by a number of standard errors.

        Args:
            limit: A value, in the unit of the estimate.
            errors: Standard errors that it must be away.

        Returns:
            True where it is; False where it is not, or where noise hides it.
        """
        return self.value + errors * self.error < limit


@dataclass(frozen=True)
class Excursion:
    """A stretch in which the level was clearly above the best level before it, and from which it came back.

    ``first_step``: of the first point above it; ``last_step``: of the last level. ``height``: above the best before.
    ``levels``: how many. ``errors``: the height, in standard errors.
    """

    first_step: int
    last_step: int
    height: float
    levels: int
    errors: float


class Fall(NamedTuple):
    """How a curve fell.

    ``start``, ``end``: its levels there (the end is the last eighth). ``share``: the descent over the start.
    ``late_share``: the share of the descent that the last quarter brought. ``pace``: the speed late in the run over
    that of a straight line. A standard error is taken off both. ``sure``: the late fall is beyond the noise, and so is
    that of its second half.
    """

    start: float
    end: float
    share: float
    late_share: float
    pace: float
    sure: bool

    @classmethod
    def of(cls, curve: Curve, part: Callable[[float, float], Estimate]) -> Fall:
        """How a curve fell, by its points or by the way of the learning rates.

        Args:
            curve: The curve.
            part: The level between two shares of the run, each from 0 to 1.

        Returns:
            The fall, in the unit of the series and in shares of its start.
        """
        second, sixth, seventh, last = (part(at / _EIGHTHS, (at + 1) / _EIGHTHS) for at in (1, 5, 6, 7))
        late, middle = sixth - last, second - sixth
        start = max(curve.start.value, curve.head.value)  # the first eighth of a line is a sixteenth below its start
        descent = start - last.value
        pace = min(2 * (late.value - late.error), middle.value - middle.error) * 2
        return cls(
            start=start,
            end=last.value,
            share=descent / abs(start) if start else 1.0,
            late_share=(late.value - late.error) / descent if descent > 0 else 0.0,
            pace=pace / descent if descent > 0 else 0.0,
            sure=late.surely_above(0.0) and (seventh - last).surely_above(0.0),
        )


@dataclass(frozen=True, eq=False)
class Curve:
    """A series as 8 to 40 levels (fewer of fewer points): medians of blocks of equal size, each with its error.

    The error of a level is that of a median under the noise around it. It is at least the levels' own wander: a
    smoothed loss wanders more from block to block than from point to point. It is also at least what rounding hides.
    The largest of the three is multiplied by Student's factor for few points.

    ``series``: the finite points that can be compared. ``steps``: int64[levels], of the last point of each level;
    ``levels`` and ``errors``: float64[levels]. ``block``: points in a level. ``noise``: standard deviation of one
    point. ``head``: of the first points, up to three; ``first``: of the first point alone. ``note``: what was left out
    of the series, and why, in words. ``restarts``: the steps at which the learning rate rose again. ``way``:
    float64[levels], how far the learning rates had moved the weights at each level, from 0 to 1.
    """

    series: Series
    steps: IntArray
    levels: FloatArray
    errors: FloatArray
    block: int
    noise: float
    head: Estimate
    first: Estimate
    way: FloatArray
    note: str = ""
    restarts: tuple[int, ...] = ()

    @classmethod
    def of(cls, series: Series, note: str = "", rates: Sequence[Series] = ()) -> Curve | None:
        """The curve of a series' finite points.

        Args:
            series: A history of any length; what is not finite is left out.
            note: What was left out of it before, in words.
            rates: The logged learning rates, in any number of groups.

        Returns:
            The curve, or None of fewer than four finite points.
        """
        series = series.finite()
        n = len(series)
        if n < FEWEST_POINTS:
            return None
        values = np.clip(series.values, -_LARGEST, _LARGEST)
        block = max(1, min(_SHORT_BLOCK, n // FEWEST_LEVELS), n // _LEVELS)
        count = n // block
        levels = np.median(values[n - count * block :].reshape(count, block), axis=1)
        rounding = _ROUNDING * resolution(values)
        noise = _around(values, count, max(4, n // 8))
        wander = _around(levels, count, max(4, count // 4)) if block > 1 else np.zeros(count)
        student = 1.0 + _STUDENT * max(n - 3, 1) ** _DECLINE
        few = min(_HEAD, block + 1)
        steps = series.steps[n - count * block :][block - 1 :: block]
        return cls(
            series=series,
            steps=steps,
            levels=levels,
            errors=student * np.maximum(np.maximum(_of_median(block) * noise, wander), rounding),
            block=block,
            noise=median(noise),
            head=Estimate(median(values[:few]), float(student * max(_of_median(few) * noise[0], rounding))),
            first=Estimate(float(values[0]), float(student * max(noise[0], rounding))),
            way=way_of(rates, steps),
            note=note,
            restarts=restarts_of(rates),
        )

    @property
    def points(self) -> int:
        return len(self.series)

    @property
    def sure(self) -> bool:
        """Whether there are enough points for a finding of high confidence."""
        return self.points >= FEW_POINTS

    def level(self, at: int) -> Estimate:
        """One level, by its index.

        Args:
            at: Its index: 0 is the first level, -1 the last.

        Returns:
            The level with its standard error, both in the unit of the series.
        """
        return Estimate(float(self.levels[at]), float(self.errors[at]))

    def between(self, start: float, stop: float) -> Estimate:
        """The level of a part of the curve, from one share of its points to another: the median of its levels.

        Args:
            start: Share of the points, from 0 to 1.
            stop: Another one, above ``start``.

        Returns:
            The level with its standard error, both in the unit of the series.
        """
        a = min(int(start * len(self.levels)), len(self.levels) - 1)
        b = max(int(stop * len(self.levels)), a + 1)
        return Estimate(median(self.levels[a:b]), _of_median(b - a) * float(np.mean(self.errors[a:b])))

    def after(self, start: float, stop: float) -> Estimate:
        """The level of a part of the curve, from one share of the way of the learning rates to another.

        Args:
            start: Share of the way that the learning rates have moved the weights, from 0 to 1.
            stop: Another one, above ``start``.

        Returns:
            The level with its standard error, both in the unit of the series.
        """
        inside = np.flatnonzero((self.way >= start) & (self.way <= stop))
        at = inside if len(inside) else np.array([int(np.argmin(np.abs(self.way - (start + stop) / 2.0)))])
        return Estimate(median(self.levels[at]), _of_median(len(at)) * float(np.mean(self.errors[at])))

    def at_step(self, step: float) -> Estimate:
        """The level in which a step is.

        Args:
            step: A step of the series' own axis.

        Returns:
            The level with its standard error, both in the unit of the series.
        """
        return self.level(min(int(np.searchsorted(self.steps, step)), len(self.levels) - 1))

    @cached_property
    def _parts(self) -> list[Estimate]:
        """The levels of all parts, large and small: eighths of the curve, which are precise, and the single levels."""
        eighths = [self.between(part / _EIGHTHS, (part + 1) / _EIGHTHS) for part in range(_EIGHTHS)]
        return eighths + [self.level(at) for at in range(len(self.levels))]

    @cached_property
    def start(self) -> Estimate:
        """Before training changed anything: the first eighth, unless the first level, the first three points or the
        first one clearly differ from it.
        """
        return _finest([self._next, self.first])

    @property
    def top(self) -> Estimate:
        """What a descent is measured from: the start, but of a curve that does not fall after its first point. One
        value alone is no level.
        """
        return self._next if self.first_is_alone else self.start

    @cached_property
    def _next(self) -> Estimate:
        """The beginning by more points than the first."""
        return _finest([self._parts[0], self.level(0), self.head])

    @cached_property
    def first_is_alone(self) -> bool:
        """Whether the first point is all that is above the level of the rest, which does not fall."""
        level = self._next
        if self.block == 1 or self.series.role == _HELD_OUT or self.first.value <= level.value:
            return False
        falls = self.trend_since(float(self.series.steps[0])) < _FALLS or (level - self.between(0.5, 1.0)).surely_above(
            0
        )
        return not falls and abs(float(self.series.values[1]) - level.value) <= SURELY * self.first.error

    @cached_property
    def outset(self) -> Estimate:
        """What a climb is measured from: the start, or what both the first point and the first three are below.

        The noise there is known from what comes after, which may have exploded: of a positive curve it is taken to be
        smaller in proportion.
        """
        low = max(self.first, self.head, key=_value)
        if not 0 < low.value < self.start.value:
            return min(self.start, low, key=_value)
        return Estimate(low.value, low.error * low.value / self.start.value)

    @cached_property
    def end(self) -> Estimate:
        """The last eighth, unless the last level clearly differs from it."""
        return _finest([self._parts[_EIGHTHS - 1], self.level(-1)])

    @cached_property
    def best(self) -> Estimate:
        """The part that is clearly lowest."""
        return min(self._parts, key=lambda one: one.value + SURELY * one.error)

    @cached_property
    def peak(self) -> Estimate:
        """The part that is clearly highest. A single level counts with twice its error, since noise has long tails."""
        doubled = [Estimate(one.value, one.error * min(self.block, 2)) for one in self._parts[_EIGHTHS:]]
        return max([*self._parts[:_EIGHTHS], *doubled], key=lambda one: one.value - SURELY * one.error)

    @cached_property
    def best_step(self) -> int:
        """The step of the lowest point in the lowest level, or next to it."""
        return self._step_of(int(np.argmin(self.levels)))

    @cached_property
    def peak_step(self) -> int:
        """The step of the highest point."""
        return int(self.series.steps[np.argmax(self.series.values)])

    @property
    def best_value(self) -> float:
        """What was logged at ``best_step``, where ``best`` is a level."""
        return self.logged_at(self.best_step)

    def logged_at(self, step: float) -> float:
        """The number that a reader finds in the log at a step, where ``at_step`` is a level.

        Args:
            step: A step of the series' own axis.

        Returns:
            The last value at or before it, in the unit of the series; the first one where there is none.
        """
        return float(self.series.values[max(0, int(np.searchsorted(self.series.steps, step, side="right")) - 1)])

    def _step_of(self, level: int) -> int:
        first = self.points - (len(self.levels) - level + 1) * self.block
        near = slice(max(0, first), first + 3 * self.block)
        return int(self.series.steps[near][np.argmin(self.series.values[near])])

    @property
    def last_step(self) -> int:
        return int(self.series.steps[-1])

    @property
    def descent(self) -> Estimate:
        """From the top to the best level."""
        return self.top - self.best

    @property
    def kept(self) -> Estimate:
        """From the top to the level of the second half: the descent where it was not lost again, and less biased."""
        return self.top - self.between(0.5, 1.0)

    @property
    def size(self) -> float:
        """What a change is measured by: the descent, and a fifth of the best level where a curve is flat."""
        return max(self.descent.value, _OF_FLAT * abs(self.best.value))

    @cached_property
    def trend(self) -> float:
        """Mann and Kendall's score of the levels: below -3 they fall for sure."""
        return mann_kendall(self.levels)

    def trend_since(self, step: float) -> float:
        """Mann and Kendall's score of the points after a step, or of medians of them.

        Args:
            step: A step of the series' own axis.

        Returns:
            Standard deviations: below -3 the points fall for sure. 0 of fewer than three points.
        """
        values = self.series.values[self.series.steps > step]
        return mann_kendall(block_medians(values, max(1, len(values) // _LEVELS))) if len(values) else 0.0

    def since(self, step: float) -> int:
        """How many points come after a step.

        Args:
            step: A step of the series' own axis.

        Returns:
            The number of points.
        """
        return int((self.series.steps > step).sum())

    def left(self, limit: float) -> int:
        """The first step from which all levels are above a limit: where a rise that lasts began.

        Args:
            limit: A level, in the unit of the series.

        Returns:
            The step; of the first point, where all levels are above the limit.
        """
        below = np.flatnonzero(self.levels <= limit)
        return self.rose_at(int(below[-1]) + 1, limit) if len(below) else int(self.series.steps[0])

    def rose_at(self, level: int, limit: float) -> int:
        """The step of the first point that is above a limit for good, of those in a level and in the one before.

        Args:
            level: Index of a level that is above the limit.
            limit: A value, in the unit of the series.

        Returns:
            The step.
        """
        level = min(level, len(self.levels) - 1)
        end = self.points - (len(self.levels) - 1 - level) * self.block
        start = max(0, end - 2 * self.block)
        below = np.flatnonzero(self.series.values[start:end] <= limit)
        return int(self.series.steps[min(start + int(below[-1]) + 1, end - 1) if len(below) else start])

    def excursions(self, least: float) -> list[Excursion]:
        """Where the level clearly rose above the best so far by ``least`` and came down again by half of that.

        Args:
            least: The smallest rise that counts, in the unit of the series.

        Returns:
            The excursions, in the order of time.
        """
        best = np.minimum.accumulate(self.levels)
        where = np.maximum.accumulate(np.where(self.levels <= best, np.arange(len(best)), 0))
        above, error = self.levels - best, np.hypot(self.errors, self.errors[where])
        high = above - SURELY * error > least
        edges = np.flatnonzero(np.diff(np.concatenate([[0], high.astype(np.int8), [0]])))
        return [
            Excursion(
                first_step=self.rose_at(int(a), float(best[a]) + least),
                last_step=int(self.steps[b - 1]),
                height=float(above[a:b].max()),
                levels=int(b - a),
                errors=float((above[a:b] / np.maximum(error[a:b], np.finfo(np.float64).tiny)).max()),
            )
            for a, b in zip(edges[::2], edges[1::2], strict=True)
            if b < len(self.levels)  # what is up at the end has not come back
        ]

    @property
    def late(self) -> Estimate:
        """What the last quarter brought: from the level before it to the end."""
        return self.between(5 / _EIGHTHS, 6 / _EIGHTHS) - self.end

    @cached_property
    def fall(self) -> Fall:
        """How it fell, by its points."""
        return Fall.of(self, self.between)

    @cached_property
    def fall_by_rate(self) -> Fall:
        """How it fell, by the sum of the learning rates, so that a schedule's end does not look like convergence."""
        return Fall.of(self, self.after)

    @cached_property
    def is_monotone(self) -> bool:
        """Whether no point is above the one before it, of which four have one chance in 24."""
        return bool((np.diff(self.series.values) < 0.0).all())

    @cached_property
    def likely_falls(self) -> bool:
        """Whether it likely fell: the second half is likely below the start, and the points fall by their ranks."""
        return self.kept.surely_above(0.0, LIKELY) and self.trend_since(float("-inf")) < _FALLS

    @cached_property
    def stood(self) -> int:
        """How many of the last points are one and the same number."""
        changes = np.flatnonzero(np.diff(self.series.values))
        return self.points - 1 - int(changes[-1]) if len(changes) else self.points

    def step_up(self, step: float) -> Estimate:
        """How far the points next after a step are above those before it, as many as a level has; 0 where they are not
        that many.

        Args:
            step: A step of the series' own axis.

        Returns:
            The rise with its standard error, in the unit of the series.
        """
        values, at = self.series.values, int(np.searchsorted(self.series.steps, step))
        before, after = values[max(0, at - self.block) : at], values[at + 1 : at + 1 + self.block]
        if min(len(before), len(after)) < self.block:
            return Estimate(0.0, 0.0)
        error = self.at_step(step).error
        return Estimate(median(after), error) - Estimate(median(before), error)

    @cached_property
    def upside_down(self) -> Curve:
        """The curve of the negated values: of a reward, which goes up where a loss goes down."""
        return replace(
            self,
            series=replace(self.series, values=0.0 - self.series.values),  # 0 stays 0, and does not become -0
            levels=0.0 - self.levels,
            head=-self.head,
            first=-self.first,
        )

    @cached_property
    def with_waves(self) -> Curve:
        """The same with errors no less than the wander from eighth to eighth. Of a mean over many episodes neighbouring
        levels are alike, and hide how far it wanders.
        """
        waves = _around(np.array([part.value for part in self._parts[:_EIGHTHS]]), 1, _EIGHTHS)[0]
        least = waves / _of_median(max(1, len(self.levels) // _EIGHTHS))
        return replace(self, errors=np.maximum(self.errors, least))


def resolution(values: FloatArray) -> float:
    """The unit of the last digit that a log has, as its values show; 0 of one number alone, which shows none."""
    some = np.unique(values[:: max(1, len(values) // _SAMPLED)])
    if len(some) < 2:
        return 0.0
    return min(float(np.diff(some).min()), *(coarseness(float(value)) for value in some if value))


def _value(one: Estimate) -> float:
    return one.value


def _of_median(count: int) -> float:
    """The standard error of a median of so many values, in deviations of one."""
    return (_MEDIAN if count > 2 else 1.0) / sqrt(count)


def _finest(windows: list[Estimate]) -> Estimate:
    """Of ever smaller windows at one place the largest, and so the most precise, that no smaller one contradicts."""
    found = windows[0]
    for smaller in windows[1:]:
        if abs(smaller.value - found.value) > SURELY * (smaller - found).error:
            found = smaller
    return found


def _around(values: FloatArray, count: int, reach: int) -> FloatArray:
    """The standard deviation of a value around each of ``count`` levels, an eighth of the curve at a time: by the
    differences there, which one jump does not enlarge, or by the second differences, which no slope does; whichever
    is less.
    """
    places = (len(values) * (np.arange(_EIGHTHS) + 0.5) / _EIGHTHS).astype(int)
    found = np.empty((2, _EIGHTHS))
    for row, order in enumerate((1, 2)):
        sizes, scale = np.abs(np.diff(values, order)), _MAD / sqrt(2.0 * (2 * order - 1))
        for part, at in enumerate(np.minimum(places, len(sizes))):
            found[row, part] = scale * median(sizes[max(0, at - reach - order + 1) : at + reach])
    return np.asarray(found.min(axis=0)[np.arange(count) * _EIGHTHS // count])
