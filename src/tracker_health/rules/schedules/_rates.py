"""What the learning rates of a run look like, logged or as a saved scheduler gave them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracker_health.evidence import SURELY, Curve, Evidence, FloatArray, SavedSchedule, Series, is_of_the_end
from tracker_health.evidence.curve import resolution
from tracker_health.evidence.numerics import stands
from tracker_health.facts.rates import learning_rates


@dataclass(frozen=True, eq=False)
class Rates:
    """The rates of the group with the highest one, and the training loss next to them. ``tiny``: a rate over the peak
    that is almost zero.
    """

    series: Series
    loss: Curve | None
    tiny: float

    @property
    def values(self) -> FloatArray:
        return self.series.values

    @cached_property
    def peak(self) -> float:
        return float(np.abs(self.values).max())

    @property
    def first(self) -> float:
        return float(self.values[0])

    @property
    def end(self) -> float:
        return float(self.values[-1])

    @property
    def measured(self) -> dict[str, float]:
        """The numbers for the report."""
        return {"first": self.first, "peak": self.peak, "end": self.end, "zero_share": self.share_below(0.0)}

    @cached_property
    def floor(self) -> float:
        """The lowest rate after the peak."""
        return float(self.values[np.argmax(self.values) :].min())

    def share_below(self, rate: float) -> float:
        """The share of the points at which the rate was no higher than this."""
        return float(np.mean(self.values <= rate + self.tiny * self.peak))

    @cached_property
    def floor_step(self) -> int:
        """Where the rate came down to its floor."""
        top = int(np.argmax(self.values))
        return int(self.series.steps[top + np.argmax(self.values[top:] <= self.floor + self.tiny * self.peak)])

    @property
    def where(self) -> tuple[int, ...]:
        """The step from which the rate was at its floor, or all steps of a rate that never came down."""
        steps = self.series.steps
        return (self.floor_step,) if self.floor < self.peak else (int(steps[0]), int(steps[-1]))

    @property
    def came_down_gradually(self) -> bool:
        """Whether no step down was half of the peak or more."""
        return bool(np.diff(self.values).min(initial=0.0) > -0.5 * self.peak)

    def rises_to_the_end(self, rises: int) -> bool:
        """Whether it only rose, at least ``rises`` times and to over twice its first value.

        At the end it must have stood no longer than between two earlier rises.
        """
        lasting = stands(self.values)
        rose = bool((np.diff(self.values) >= 0).all()) and self.values[-1] > 2.0 * self.values[0]
        return bool(rose and len(lasting) > max(rises, 2) and lasting[-1] <= lasting[1:-1].max())

    @property
    def loss_fell_until_the_floor(self) -> bool:
        """Whether the loss was clearly falling as the rate came down to its floor."""
        if self.loss is None:
            return False
        half = self.loss.steps[0] + 0.5 * (self.floor_step - self.loss.steps[0])
        return (self.loss.at_step(half) - self.loss.at_step(self.floor_step)).surely_above(0.0)

    def is_rounded(self, share: float) -> bool:
        """Whether the log shows rates of 0 because it rounds them.

        Its last digit is at least this share of the peak. The loss clearly falls behind the last rate that is not 0, or
        ends lower where all are 0.
        """
        above = np.flatnonzero(self.values)
        if self.loss is None or resolution(self.values) < share * self.peak:
            return False
        if not len(above):
            return (self.loss.start - self.loss.end).surely_above(0.0)
        return self.loss.trend_since(self.series.steps[above[-1]]) < -SURELY


def levelled_off(loss: Curve | None, late_share: float) -> bool:
    """Whether the loss came down, and its last quarter brought no more than this share of that."""
    return loss is not None and loss.descent.surely_above(0.0) and loss.late.value <= late_share * loss.descent.value


def rates_of(evidence: Evidence, fewest: int, tiny: float) -> Rates | None:
    """The logged learning rates, or without any those that a scheduler gave which was saved at the run's end; None of
    fewer points than are needed.
    """
    loss = evidence.curve("train_loss")
    logged = learning_rates(evidence)
    known = [series for series in logged if len(series) >= fewest]
    if not logged and evidence.optimizer is not None and is_of_the_end(evidence):
        known = [_given_by(one, loss) for one in evidence.optimizer.schedules if len(one.rates) >= fewest]
    if not known:
        return None
    # A frozen group may well have 0.
    return Rates(max(known, key=lambda series: float(np.abs(series.values).max())), loss, tiny)


def _given_by(schedule: SavedSchedule, loss: Curve | None) -> Series:
    """Its rates, on the steps of the loss: it may have been stepped once per epoch."""
    last = schedule.steps[-1] if loss is None else loss.last_step
    steps = np.linspace(0.0, float(last), len(schedule.rates)).astype(np.int64)
    return Series(name="the saved schedule's rate", role="learning_rate", steps=steps, values=schedule.rates)
