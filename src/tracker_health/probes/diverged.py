"""LOS004."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import block_medians, in_range, local_noise, median, start_level
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import after_warming, rose_by_design, settled
from tracker_health.probes._few_points import (
    climb_together,
    clipped,
    ends_on_top,
    lifted,
    lost_together,
    noise_of_levels,
)
from tracker_health.probes._few_points import climbed as climbed_of_few
from tracker_health.probes._run import learning_rates
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_FEWEST = 4
_SURE_POINTS = 20
_FEW_POINTS = 40
_LEVELS_TO_JUDGE_WANDER = 10
_FAR = 3.0
_FASTER, _AS_FAST = 1.1, 0.95
_NOTHING_LEFT = 0.01
_MOST_OF_A_PARAM = 300
_RESTARTS = re.compile(r"restart|cyclic|t_0\b|t_mult|sgdr")
_STILL = 0.1  # of the size at the beginning of the last quarter


@dataclass(frozen=True, kw_only=True)
class Diverged(Probe):
    """The loss went up and stayed there, or climbed past its start.

    What it finds:
        A training loss whose end lies clearly above its best level, or whose level climbed far above where it
        started, even if a decaying learning rate brought it down again.

    Why it matters:
        The final weights are worse than earlier ones of the same run; often they are worthless.

    How it decides:
        Levels are medians of blocks of 5 % of the points (at least 5, fewer in short logs), so single spikes do not
        count. Fail when the last level exceeds the lowest by more than `rise_share` of the descent *and* more than
        `sigmas` times the noise, from point to point or from level to level; the descent counts as at least a fifth
        of the lowest level, so that a flat curve's wander is none; nor does it count where all behind the first value
        is less than a hundredth of that, and within half of the lowest level. Also when some level exceeds the start
        by more than `climb_share` of the start *and* by `sigmas` times the noise; the start is the first level, or
        the very first value where that is clearly lower, in which case the climb must be twice the start.

        Below 20 points the descent would pass for noise. There the noise is 1.6 standard errors of a level, by the root
        mean square of the second differences, or, where that is less, 2.5 of them without those of the largest step up;
        for a rise what lies above both ends is cut off before. It does not count for a climb by three times the start,
        nor for a rise where the last three points are all a quarter higher than all before them, or the last four or
        more a tenth; nor, in a log of any length from twelve points on, where the last three are the highest of all and
        their median is twice that of the others.

        Only what can be compared is. While a logged weight of a part of the loss rises (`kl_weight`, `beta`,
        `sparsity`: the role `objective_weight`) the loss measures something else with every step: what comes after the
        rise is judged, and nothing where fewer than `min_points` are left.

        A loss below 0 that is `runaway` times as large as its first values, and as 1, and still falling, fails as well:
        nothing bounds it, as where a sign was turned round. Warn where it no longer falls, but is `sure_runaway` times
        as large: a rate that decays ends such a fall. Warn of one that is `steady_runaway` times as large where its
        fall never slows down: the second half of the way, by the learning rates where they were logged and by steps
        where not, brought a tenth more than the first, and its second half as much as its first. What is bounded comes
        nearer to its bound ever more slowly.

        Of four points and more, but fewer than `min_points`, only a climb counts, to the last two of them: past the
        start by `climb_share` of it and by `sigmas` times the noise; to twice of all before; to three times of all
        before, for good; past all of three before or more by a quarter, with the last three; or back to the start,
        without what lies above both ends: by nine tenths from half of it, with no more than a tenth of the way in the
        wrong direction. Or, from 30 % of it, two steps or more down and two or more up, without one in the wrong
        direction, the last one back by nine tenths and the one before by three, and all of it beyond five deviations,
        by the second differences. Or when training and validation loss both end a fifth above their first values, after
        climbing twice in a row, at the highest of all; or when both, of as many points, were lowest at the same time,
        to within one, after a fall by a fifth (a twentieth of the validation loss), and their last two lie above that
        by 15 % of it and by half of that fall, unless the learning rate rose again.

        It is unsure (a warning) below 20 points, where the step counter went back to the middle and the second pass
        ended before the first, and where the loss climbed gradually in the first quarter and has come down ever since:
        contrastive losses do while their queue of negatives fills.

    Known limits:
        Needs 4 points, and 8 to find a rise that does not lead back to the start; of 5 points one that turns at a
        corner passes. A learning-rate restart in the last blocks looks like a divergence, and so does an objective that
        is made harder without a logged weight that says so: pruning or quantisation that sets in, a curriculum, a KL
        term that is annealed, a target network whose predictions get harder to meet (BYOL and its like). Only the
        training loss is judged: a rising validation loss is overfitting.

    What to do:
        Take the checkpoint at the best level. Restart from there with a lower learning rate, longer warm-up, or
        gradient clipping.

    References:
        Median blocks and the noise estimate from first differences: Rousseeuw and Croux (1993) on robust scale.
    """

    code = "LOS004"
    name = "diverged"
    symptom = Symptom.DIVERGED
    headline = ("rise_share",)

    rise_share: Annotated[
        float, Threshold("rise above the best level that counts, as a share of the descent", "fraction", "design", gt=0)
    ] = 0.15
    sigmas: Annotated[
        float,
        Threshold("rise that counts, in standard deviations of the point-to-point noise", "sigma", "design", ge=0),
    ] = 4.0
    climb_share: Annotated[
        float,
        Threshold(
            "climb past the start that counts, as a share of the first level", "fraction", "first calibration", gt=0
        ),
    ] = 0.5
    runaway: Annotated[
        float, Threshold("size below 0, in sizes of the start, of a loss without a bound", "ratio", "design", gt=1)
    ] = 3000.0
    sure_runaway: Annotated[
        float, Threshold("the same of one whose fall a decaying rate has ended", "ratio", "design", gt=1)
    ] = 10_000.0
    steady_runaway: Annotated[
        float, Threshold("the same of a loss whose fall never slows down", "ratio", "design", gt=1)
    ] = 100.0
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=min(_FEWEST, self.min_points)),
            Need(role="learning_rate", optional=True),
            Need(role="val_loss", optional=True),
            Need(role="objective_weight", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        history = _history(evidence)
        loss = history.loss
        n = len(loss)
        if n < self.min_points:
            only = f"only {n} finite points of the loss{history.note}, {self.min_points} are needed"
            skipped = Finding(verdict=Verdict.SKIP, message=only)
            return skipped if history.note or n < _FEWEST or not self._climbed(loss, evidence) else _climb_of_few(loss)
        values, unit = in_range(loss.values)
        curve = _Curve.of(values)
        start, low, end, high = curve.start, curve.low, curve.end, curve.high
        descent = max(start - low, 0.2 * abs(low))
        rise, climb = end - low, high - start
        beyond_noise = rise > self.sigmas * curve.noise or (n < _SURE_POINTS and lifted(values)) or ends_on_top(values)
        rose = rise > max(0.0, self.rise_share * descent) and beyond_noise and not _at_the_bottom(values, end, low)
        # One lucky first batch is no level: against it alone, the climb has to be a large one.
        share = self.climb_share if start == curve.head else max(2.0, self.climb_share)
        far = n < _SURE_POINTS and 0 < _FAR * start < climb
        climbed = climb > max(0.0, share * abs(start)) and (far or climb > self.sigmas * curve.noise_of_climb)
        measured = {
            "start": start * unit, "best": low * unit, "end": end * unit, "peak": high * unit,
            "noise": curve.noise * unit, "points": n, "rise_share": rise / descent if descent else 0.0,
        }  # fmt: skip
        spoken = _Levels(start * unit, low * unit, end * unit, high * unit)
        if not (rose or climbed):
            first = median(loss.values[:3])
            if (found := self._ran_away(first, curve.levels * unit, loss, evidence)) is not None:
                return _without_a_bound(found, first, spoken.end, measured | {"last_step": int(loss.steps[-1])})
            message = f"the last level of the loss is {number(spoken.end)}, its best {number(spoken.low)}{history.note}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        best_step = int(loss.steps[max(0, n - (len(curve.levels) - curve.best) * curve.size)])
        restart = f"restart from a checkpoint near step {best_step}" if rose and curve.best else "start again"
        doubtful = n < _SURE_POINTS or history.went_back or curve.rose_by_design
        return Finding(
            verdict=Verdict.FAIL,
            message=_message(spoken, best_step, rose=rose) + history.note,
            remedy=f"{restart} with a lower learning rate, a longer warm-up or gradient clipping",
            measured=measured | {"best_step": best_step},
            steps=(best_step, int(loss.steps[-1])) if rose else (int(loss.steps[np.argmax(loss.values)]),),
            confidence="low" if doubtful else "high",
        )

    def _climbed(self, loss: Series, evidence: Evidence) -> bool:
        """Whether a few points climbed, or climbed a little beside the validation loss."""
        held_out = evidence.find("val_loss")
        both = (in_range(one.finite().values)[0] for one in (loss, held_out) if one is not None)
        values, *evaluations = both
        together = any(climb_together(values, one) for one in evaluations)
        together = together or (
            not _rate_rises(loss, evidence) and any(lost_together(values, one) for one in evaluations)
        )
        return together or climbed_of_few(values, self.climb_share, self.sigmas)

    def _ran_away(self, first: float, levels: FloatArray, loss: Series, evidence: Evidence) -> Verdict | None:
        """Whether the loss is far below 0 at its end, and still falls: for sure, or as it seems."""
        size, late = -levels[-1] / max(abs(first), 1.0), levels[len(levels) * 3 // 4]
        if size > self.runaway and levels[-1] < late * (1.0 + _STILL):
            return Verdict.FAIL
        if size > self.sure_runaway:
            return Verdict.WARN
        size = -levels[-1] / max(min(abs(first), abs(float(loss.values[0]))), 1.0)
        steady = size > self.steady_runaway and _never_slows(loss, learning_rates(evidence))
        return Verdict.WARN if steady else None


def _rate_rises(loss: Series, evidence: Evidence) -> bool:
    """Whether the learning rate begins anew after the lowest point: as logged, or as a param's name has it."""
    at = loss.steps[int(np.argmin(loss.values))]
    rates = (one.values[one.steps >= at] for one in learning_rates(evidence))
    said = (f"{name} {value}"[:_MOST_OF_A_PARAM].lower() for name, value in evidence.info.params.items())
    return any((np.diff(one) > 0).any() for one in rates) or any(map(_RESTARTS.search, said))


def _at_the_bottom(values: FloatArray, end: float, low: float) -> bool:
    """Whether all was learnt with the second point: from there on all is less than a hundredth of the first value, and
    within half of the best level.
    """
    rest = float(values[1:].max())
    return 0.0 < low < end < _NOTHING_LEFT * float(values[0]) and rest < 1.5 * low


def _never_slows(loss: Series, rates: list[Series]) -> bool:
    """Whether the second half of the way that the learning rates add up to brought more of the fall than the first; of
    the steps, where no rate was logged.
    """
    rate = max(rates, key=len, default=None)
    pace = np.ones(len(loss)) if rate is None or len(rate) < _FEWEST else np.interp(loss.steps, rate.steps, rate.values)
    with np.errstate(all="ignore"):
        way = np.cumsum(np.maximum(pace, 0.0) * np.diff(loss.steps.astype(np.float64), prepend=float(loss.steps[0])))
    cuts = [0, *(int(np.searchsorted(way, share * way[-1])) for share in (0.25, 0.5, 0.75)), len(loss) - 1]
    levels = [median(loss.values[max(0, at - 1) : at + 2]) for at in cuts]
    falls = [before - after for before, after in pairwise(levels)]
    return falls[0] > 0 and falls[2] + falls[3] >= _FASTER * (falls[0] + falls[1]) and falls[3] >= _AS_FAST * falls[2]


def _without_a_bound(verdict: Verdict, first: float, end: float, measured: dict[str, float]) -> Finding:
    goes_on = ": nothing bounds it" if verdict is Verdict.FAIL else ": nothing seems to bound it"
    return Finding(
        verdict=verdict,
        message=f"the loss fell from {number(first)} to {number(end)}{goes_on}",
        remedy="look for a sign that is turned round, or a term that is rewarded without a limit",
        measured=measured,
        steps=(int(measured["last_step"]),),
    )


def _climb_of_few(loss: Series) -> Finding:
    start, low, end = float(loss.values[0]), float(loss.values.min()), float(loss.values[-1])
    return Finding(
        verdict=Verdict.FAIL,
        message=f"the loss climbed from {number(low)} to {number(end)} in {len(loss)} points",
        remedy="start again with a lower learning rate, a longer warm-up or gradient clipping",
        measured={"start": start, "best": low, "end": end, "points": len(loss)},
        steps=(int(loss.steps[-1]),),
        confidence="low",
    )


# What of the history can be compared


@dataclass(frozen=True)
class _History:
    """The points of a loss that can be compared with each other. ``note``: what was left out, for the message."""

    loss: Series
    note: str = ""
    went_back: bool = False


def _history(evidence: Evidence) -> _History:
    whole = evidence.first("train_loss")
    loss = whole.finite()
    note = " (the steps went back: of two passes)" if whole.went_back else ""
    warmed = after_warming(loss.values)
    if warmed:
        loss = loss.at(np.arange(warmed, len(loss)))
        note += f" (a running mean, from step {loss.steps[0]} on)"
    rise = settled(evidence)
    if rise is not None:
        name, step = rise
        loss = loss.at(np.flatnonzero(loss.steps >= step))
        note += f" (from step {step} on, when {printable(name, 60)} had risen)"
    return _History(loss, note, whole.went_back)


# Levels


@dataclass(frozen=True)
class _Levels:
    start: float
    low: float
    end: float
    high: float


@dataclass(frozen=True, kw_only=True)
class _Curve(_Levels):
    """A history in numbers. ``noise``: what a rise is measured by, and ``noise_of_climb`` what a climb past the start
    is; ``head``: its first level; ``best``: the index of the lowest; ``rose_by_design``: it climbed gradually, early
    on, and has come down ever since.
    """

    levels: FloatArray
    size: int
    noise: float
    noise_of_climb: float
    head: float
    best: int
    rose_by_design: bool

    @classmethod
    def of(cls, values: FloatArray) -> _Curve:
        n = len(values)
        size = max(min(5, n // 4), round(0.05 * n))
        levels = block_medians(values, size)
        noise = local_noise(values)
        # Early noise is judged by itself: late points are calmer, and would make a wild beginning look like a climb.
        early_noise = max(noise, local_noise(values[: max(_SURE_POINTS, 2 * size)]))
        if len(levels) >= _LEVELS_TO_JUDGE_WANDER:
            # Smoothed losses and epoch averages wander more from block to block than from point to point.
            noise = max(noise, local_noise(levels))
        low = float(levels.min())
        if n < _FEW_POINTS:
            # Blocks of a short log may lie across its minimum: the level is looked for at every place.
            low = min(low, float(np.median(sliding_window_view(values, size), axis=1).min()))
            noise = min(noise, local_noise(values[n // 2 :]))
        noise_of_climb = noise
        if n < _SURE_POINTS:
            noise = noise_of_levels(clipped(values, float(levels[-1])), size)
            noise_of_climb = noise_of_levels(values, size)
        start = start_level(values, size, early_noise)
        return cls(
            start=start,
            low=low,
            end=float(levels[-1]),
            high=float(levels.max()),
            levels=levels,
            size=size,
            noise=noise,
            noise_of_climb=noise_of_climb,
            head=median(values[:size]),
            best=int(np.argmin(levels)),
            rose_by_design=len(levels) >= _LEVELS_TO_JUDGE_WANDER and rose_by_design(values, levels, start, noise),
        )


def _message(levels: _Levels, best_step: int, *, rose: bool) -> str:
    start, low, end = number(levels.start), number(levels.low), number(levels.end)
    if rose and levels.low < levels.start:
        return f"the loss fell from {start} to {low} around step {best_step}, then rose: its last level is {end}"
    if rose:
        return f"the loss rose from {start}: its last level is {end}"
    return f"the loss climbed from {start} to {number(levels.high)} before it came down: its last level is {end}"
