"""LRS001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import in_range, local_noise, median, median_error
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_NOTHING = 1e-6
_LEAST_RISES = 3
_DECIMALS = np.arange(3, 13)
_SAME = 1e-6  # of a decimal, by what floating-point numbers miss it


@dataclass(frozen=True, kw_only=True)
class Schedule(Probe):
    """The learning rate was 0 for most of the run, or never finished warming up.

    What it finds:
        A learning rate that is 0 all along, that is (almost) 0 for most of the run, or that was still rising when the
        run ended.

    Why it matters:
        Such a schedule was laid out for another number of steps: counted in epochs instead of steps, or before
        accumulation. Most of the run trained at a rate that nobody chose.

    How it decides:
        Fail when every rate is 0; but where the last eighth of the loss lies below its first by a tenth and by four
        standard errors, the log rounds the rate to 0. Warn when more than `zero_share` of the points lie below a
        millionth of the highest rate, and when the rate rose at every point (repeats aside) up to the very end, to more
        than twice its first value, while the loss had not levelled off (its last quarter brought a twentieth of the
        descent or more). A rate that the log rounds repeats itself while it rises slowly: where it rose at least three
        times, always by one of the last decimal that is printed (the third to the twelfth), it still rises unless the
        last value was printed more often than any one between the first and the last.

    Known limits:
        Needs 5 points of the learning rate. A learning-rate range test rises on purpose. Of a warm-up that a log prints
        as three numbers or fewer nothing is seen.

    What to do:
        Give the scheduler the number of optimizer steps, and step it once per optimizer step.

    References:
        Goyal et al. (2017) on warm-up.
    """

    code = "LRS001"
    name = "schedule"
    symptom = Symptom.SCHEDULE

    zero_share: Annotated[
        float, Threshold("share of the points at a rate of almost 0", "fraction", "design", gt=0, le=1)
    ] = 0.5
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="learning_rate", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        rates = [one.finite() for one in evidence.series if one.role == "learning_rate"]
        rate = max(rates, key=_peak)  # a frozen group may well have 0
        values = rate.values
        if len(values) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(values)} finite learning rates")
        peak, idle = _peak(rate), float(np.mean(np.abs(values) <= _NOTHING * _peak(rate)))
        measured = {"first": float(values[0]), "peak": peak, "end": float(values[-1]), "zero_share": idle}
        remedy = "give the scheduler the number of optimizer steps, and step it once per optimizer step"
        if peak == 0.0 and _came_down(evidence.find("train_loss")):
            message = f"the learning rate is logged as 0 at all {len(values)} points, but the loss came down"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        if peak == 0.0:
            message = f"the learning rate is 0 at all {len(values)} points"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=remedy, measured=measured)
        if idle > self.zero_share:
            message = f"the learning rate is 0 for {idle:.0%} of the run, after a peak of {number(peak)}"
            return Finding(verdict=Verdict.WARN, message=message, remedy=remedy, measured=measured)
        if _rises_to_the_end(values) and not _levelled_off(evidence.find("train_loss")):
            rise = f"from {number(float(values[0]))} to {number(peak)}"
            message = f"the learning rate was still rising when the run ended, {rise}"
            return Finding(verdict=Verdict.WARN, message=message, remedy=remedy, measured=measured)
        return Finding(
            verdict=Verdict.PASS,
            message=f"the learning rate peaks at {number(peak)} and ends at {number(float(values[-1]))}",
            measured=measured,
        )


def _peak(series: Series) -> float:
    return float(np.abs(series.values).max()) if len(series) else -1.0


def _came_down(loss: Series | None) -> bool:
    """Whether the last eighth of the loss lies below its first by a tenth and by four standard errors: it would not
    at a rate of 0.
    """
    if loss is None or len(loss.finite()) < 8:
        return False
    values, _ = in_range(loss.finite().values)
    size = max(2, len(values) // 8)
    head, tail = median(values[:size]), median(values[-size:])
    error = float(np.sqrt(2.0)) * median_error(local_noise(values), size)
    return head - tail > max(0.1 * abs(head), 4.0 * error)


def _rises_to_the_end(values: FloatArray) -> bool:
    steps = np.diff(values)
    if not ((steps >= 0).all() and values[-1] > 2.0 * values[0]):
        return False
    return bool(steps[-1] > 0 and np.mean(steps > 0) > 0.5) or _rises_by_decimals(values)


def _rises_by_decimals(values: FloatArray) -> bool:
    """Whether a rate repeats itself because the log rounds it, and goes on rising as slowly as that to the end."""
    changes = np.flatnonzero(np.diff(values)) + 1
    if len(changes) < _LEAST_RISES:
        return False
    by = np.multiply.outer(np.append(np.diff(values)[changes - 1], values[0]), 10.0**_DECIMALS)
    decimal = (np.abs(by[:-1] - 1.0) < _SAME).all(axis=0) & (np.abs(by[-1] - np.round(by[-1])) < _SAME)
    repeats = np.diff(np.concatenate([changes, [len(values)]]))
    return bool(decimal.any() and repeats[-1] <= repeats[:-1].max())


def _levelled_off(loss: Series | None) -> bool:
    """Whether the loss came down and its last quarter brought less than a twentieth of that: the rates were enough."""
    if loss is None or len(loss.finite()) < 8:
        return False
    parts = [median(part) for part in np.array_split(loss.finite().values, 8)]
    descent = max(parts[0], float(loss.finite().values[0])) - parts[-1]
    return descent > 0.1 * abs(parts[0]) and parts[5] - parts[-1] < 0.05 * descent
