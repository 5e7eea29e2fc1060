"""LRS001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part, SavedSchedule
from tracker_health.facts.settings import ADAM, usual_rate_of
from tracker_health.report.result import Finding
from tracker_health.rules.curves._rates import Rates, levelled_off, rates_of
from tracker_health.rules.curves._schedules import (
    ACCURACIES,
    LOSSES,
    endless_warm_up,
    groups_far_apart,
    is_adaptive,
    share_done,
    waits_in_vain,
)
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, printable
from tracker_health.words.verdict import Verdict

_STEPS = "give the scheduler the number of optimizer steps, and step it once per optimizer step"
_TINY = f"look for a unit or an exponent that slipped; {usual_rate_of(ADAM).said} of Adam"
_MODE = "give ReduceLROnPlateau mode='min' for a loss, mode='max' for an accuracy"
_GROUP = "give it a rate of the others' order, or freeze it (requires_grad_(False)) and leave it out"


@dataclass(frozen=True, kw_only=True)
class Schedule(Probe):
    """The learning rate's schedule does not fit the run.

    What it finds:
        A learning rate that is 0, or at its floor, for most of the run, or that was still rising when the run ended.
        Also a saved scheduler that was stepped far too seldom or too often, or that waits for a loss to rise. Also a
        group of parameters with almost no learning rate.

    Why it matters:
        The schedule was laid out for another number of steps: in epochs instead of steps, or before accumulation. Most
        of the run trained at a rate that nobody chose.

    How it decides:
        Fail when every rate is 0. Warn when more than `zero_share` of them are `almost_zero` of the peak. Rates that a
        log rounds pass where the loss surely falls. Warn when as many lie at a floor of `floor_rate` or less, reached
        gradually while the loss surely fell. Warn when the rate only rose, `least_rises` times or more, and stood last
        no longer than before. A last quarter with less than `late_share` of the descent excuses that.
        Saved rates stand in for logged ones. Further: `least_rate`, `groups_apart`, `most_waves`,
        `least_stepped`.

    Known limits:
        A learning-rate range test rises on purpose. A floor that was reached in one step counts as intended. A resume
        at the end of a schedule shows only its last rates. A run that stopped early without recording it looks like one
        whose schedule is too long. LambdaLR, which most trainers use, saves none of its settings.

    Worked example:
        learning_rate: 0.001 0.0005 0 0 0 0 0 0
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
    kinds = ("rate", "size", "waits-in-vain", "length", "groups")

    zero_share: Annotated[
        float, Threshold("share of the points at a rate of almost 0, or at the floor", "fraction", "design", gt=0, le=1)
    ] = 0.5
    almost_zero: Annotated[
        float, Threshold("rate over the peak that is next to nothing", "ratio", "design", ge=0, le=1)
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
    least_rate: Annotated[
        float, Threshold("highest rate at which an Adam-like optimizer moves nothing", "rate", "design", ge=0)
    ] = 5e-8
    groups_apart: Annotated[
        float, Threshold("highest over lowest rate of an optimizer's groups that is too much", "ratio", "design", gt=1)
    ] = 1e5
    most_waves: Annotated[float, Threshold("waves of a saved cosine that are too many", "waves", "design", ge=2)] = 10.0
    least_stepped: Annotated[
        float, Threshold("share of its steps that a saved schedule should take", "fraction", "design", ge=0, le=1)
    ] = 0.5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="learning_rate", any_of=(Part.SAVED_SCHEDULE, Part.OPTIMIZER_STATE, "train_loss")),
            *Need.beside(*LOSSES, *ACCURACIES, Part.PLAN),
        )

    def judge(self, evidence: Evidence) -> Finding:
        rates = rates_of(evidence, self.min_points, self.almost_zero)
        saved = evidence.optimizer.schedules if evidence.optimizer is not None else ()
        settled = levelled_off(evidence.curve("train_loss"), self.late_share)
        unlogged, done = ("", 0.0) if settled else (endless_warm_up(evidence), share_done(evidence))
        wrong = (
            ("rate", self._of_rates(rates, settled) if rates else unlogged, _STEPS),
            ("size", self._of_size(rates, evidence) if rates else "", _TINY),
            *(("waits-in-vain", waits_in_vain(schedule, evidence, self.min_points), _MODE) for schedule in saved),
            *(("length", self._of_steps(schedule, done), _STEPS) for schedule in saved),
            ("groups", groups_far_apart(evidence, self.groups_apart), _GROUP),
        )
        kind, said, remedy = next((one for one in wrong if one[1]), ("", "", ""))
        measured = rates.measured if rates else {}
        if said:
            verdict = Verdict.FAIL if rates and rates.peak == 0.0 else Verdict.WARN
            steps = rates.where if rates else ()
            return Finding(verdict=verdict, message=said, remedy=remedy, measured=measured, steps=steps, kind=kind)
        if rates is None:
            return Finding.skipped(f"fewer than {self.min_points} learning rates are known")
        said = f"the learning rate peaks at {number(rates.peak)} and ends at {number(rates.end)}"
        return Finding.passed(said, measured, sure=rates.peak > 0.0 and not self._is_idle(rates))

    def _is_idle(self, rates: Rates) -> bool:
        return rates.share_below(0.0) > self.zero_share

    def _of_rates(self, rates: Rates, settled: bool) -> str:
        peak, resting = number(rates.peak), rates.share_below(rates.floor)
        low = resting > self.zero_share and rates.floor <= self.floor_rate * rates.peak
        if self._is_idle(rates):
            share = f"for {rates.share_below(0.0):.0%} of the run, after a peak of {peak}"
            said = f"the learning rate is 0 {share if rates.peak else f'at all {len(rates.values)} points'}"
            return "" if rates.is_rounded(self.floor_rate) else said
        if low and rates.came_down_gradually and rates.loss_fell_until_the_floor:
            where = f"at its floor of {number(rates.floor)} for {resting:.0%} of the run, after a peak of {peak}"
            return f"the learning rate lay {where}: the loss was still falling when it came there"
        if rates.rises_to_the_end(self.least_rises) and not settled:
            return f"the learning rate was still rising when the run ended, from {number(rates.first)} to {peak}"
        return ""

    def _of_size(self, rates: Rates, evidence: Evidence) -> str:
        if not (0.0 < rates.peak < self.least_rate and is_adaptive(evidence, rates.series)):
            return ""
        name = printable(rates.series.name)
        return f"{name} is {number(rates.peak)} at most: no weight of its group moves by more than that in a step"

    def _of_steps(self, schedule: SavedSchedule, done: float) -> str:
        stepped, laid_out = schedule.stepped, schedule.laid_out
        if laid_out is None:
            return ""
        said = f"the schedule was laid out for {count(int(laid_out), 'step')} and took {number(stepped)}"
        if schedule.period and stepped >= self.most_waves * schedule.period:
            return f"{said}: the rate came down and rose again {int(stepped / schedule.period)} times"
        return f"{said} ({stepped / laid_out:.1%})" if stepped < self.least_stepped * done * laid_out else ""
