"""LRS001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.schedules._rates import Rates, levelled_off, rates_of
from tracker_health.rules.schedules._schedules import STEPS_OF_SCHEDULE, endless_warm_up
from tracker_health.text import contrast, number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Schedule(Probe):
    """The learning rate is at its floor, or still rises, for most of the run.

    What it finds:
        A learning rate that is 0, or at its floor, for most of the run, or that was still rising when the run ended.

    Why it matters:
        The schedule was laid out for another number of steps: in epochs instead of steps, or before accumulation. Most
        of the run trained at a rate that nobody chose.

    How it decides:
        Of `min_points` logged rates or more, those of the group with the highest; without any, what a saved
        scheduler gives. Fail when every rate is 0. Warn when more than `zero_share` of them are `almost_zero`
        of the peak. A log that rounds them is excused where the loss clearly falls: its last digit is
        `floor_rate` of the peak. Warn when as many are at a floor of `floor_rate` of the peak or less, which
        was reached gradually while the loss clearly fell. Warn when the rate only rose, `least_rises` times or
        more, to over twice its first value, and stood last no longer than before. A loss that came down and
        whose last quarter has less than `late_share` of the descent excuses that. Without any rates, warn when
        a warm-up of the params is more than twice the plan.

    Known limits:
        A learning-rate range test rises on purpose. A floor that was reached in one step counts as intended. A resume
        at the end of a schedule shows only its last rates. A run that stopped early without recording it looks like one
        whose schedule is too long.

    Worked example:
        learning_rate: 0.001 0.0005 0 0 0 0 0 0
        gives: peak 0.001, zero_share 0.75
        warn: 6 of 8 rates are 0, which is 75 % and more than `zero_share`.

    What to do:
        Give the scheduler the number of optimizer steps, and step it once per optimizer step; or the number of
        epochs, and step it once per epoch.

    References:
        Goyal et al. (2017) on warm-up; Loshchilov and Hutter (2017) on the cosine.
    """

    code = "LRS001"
    name = "schedule"
    symptom = Symptom.SCHEDULE

    zero_share: Annotated[
        float, Threshold("share of the points at a rate of almost 0, or at the floor", "fraction", "design", gt=0, le=1)
    ] = 0.5
    almost_zero: Annotated[
        float, Threshold("rate over the peak that is almost zero", "ratio", "design", ge=0, le=1)
    ] = 1e-6
    floor_rate: Annotated[
        float, Threshold("floor over the peak at which little is learnt", "ratio", "design", ge=0, le=1)
    ] = 0.2
    least_rises: Annotated[int, Threshold("rises of a rate that make a warm-up", "rises", "design", ge=1)] = 3
    late_share: Annotated[
        float, Threshold("share of the descent in the last quarter of a loss that levelled off", "fraction", "design",
                         ge=0, le=1)
    ] = 0.05  # fmt: skip
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="learning_rate", any_of=(Part.SAVED_SCHEDULE, Part.OPTIMIZER_STATE, "train_loss")),
            *Need.beside("train_loss", Part.PLAN),
        )

    def judge(self, evidence: Evidence) -> Finding:
        rates = rates_of(evidence, self.min_points, self.almost_zero)
        settled = levelled_off(evidence.curve("train_loss"), self.late_share)
        if rates is None:
            said = "" if settled else endless_warm_up(evidence)
            if said:
                return Finding(verdict=Verdict.WARN, message=said, remedy=STEPS_OF_SCHEDULE)
            return Finding.skipped(f"fewer than {self.min_points} learning rates are known")
        said = self._of_rates(rates, settled)
        if not said:
            peak, end = contrast(rates.peak, rates.end)
            said = f"the learning rate peaks at {peak} and ends at {end}"
            return Finding.passed(said, rates.measured, sure=rates.peak > 0.0 and not self._is_idle(rates))
        return Finding(
            verdict=Verdict.WARN if rates.peak else Verdict.FAIL,
            message=said,
            remedy=STEPS_OF_SCHEDULE,
            measured=rates.measured,
            steps=rates.where,
        )

    def _is_idle(self, rates: Rates) -> bool:
        return rates.share_below(0.0) > self.zero_share

    def _of_rates(self, rates: Rates, settled: bool) -> str:
        peak, resting = number(rates.peak), rates.share_below(rates.floor)
        low = resting > self.zero_share and rates.floor <= self.floor_rate * rates.peak
        if self._is_idle(rates):
            share = f"for {percent(rates.share_below(0.0))} of the run, after a peak of {peak}"
            said = f"the learning rate is 0 {share if rates.peak else f'at all {len(rates.values)} points'}"
            return "" if rates.is_rounded(self.floor_rate) else said
        if low and rates.came_down_gradually and rates.loss_fell_until_the_floor:
            where = f"at its floor of {number(rates.floor)} for {percent(resting)} of the run, after a peak of {peak}"
            return f"the learning rate was {where}: the loss was still falling when it came there"
        if rates.rises_to_the_end(self.least_rises) and not settled:
            first, last = contrast(rates.first, rates.peak)
            return f"the learning rate was still rising when the run ended, from {first} to {last}"
        return ""
