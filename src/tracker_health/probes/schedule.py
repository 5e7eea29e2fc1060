"""LRS001."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tracker_health.evidence import (
    Evidence,
    FloatArray,
    Need,
    OptimizerState,
    Part,
    SavedSchedule,
    Series,
    is_of_the_end,
)
from tracker_health.evidence.numerics import in_range, local_noise, mann_kendall, median, median_error
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import optimizers_named
from tracker_health.probes._schedules import (
    ACCURACIES,
    FEWEST_TO_LEVEL_OFF,
    LOSSES,
    has_ended,
    levelled_off,
    should_have_ended,
    waits_in_vain,
    warm_up_beyond,
)
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict, worst

_NOTHING = 1e-6
_LEAST_RISES = 3
_UNITS, _FEWEST_DECIMALS = 5.0, 4
_FEWEST_AT_ZERO, _SURE = 4, -2.0
_DECIMALS = np.arange(3, 13)
_SAME = 1e-6  # of a decimal, by what floating-point numbers miss it
_REMEDY = "give the scheduler the number of optimizer steps, and step it once per optimizer step"
_TINY = "look for a unit or an exponent that slipped; rates of 1e-5 to 1e-2 are usual"
_BEGINNING = 0.2  # of the run
_CAME_DOWN = 1e-6
_AS_LOGGED = 1e-3
_ADAPTIVE = re.compile(
    r"(^|[^a-z])([a-z]?adam|adam(w|ax)|adamw?_torch|paged_adamw|lion|adafactor|rmsprop|adagrad|lamb)([^a-z]|$)"
)
_MOST_OF_A_PARAM = 100
_MODE = "give ReduceLROnPlateau mode='min' for a loss, mode='max' for an accuracy"


@dataclass(frozen=True, kw_only=True)
class Schedule(Probe):
    """The learning rate's schedule does not fit the run.

    What it finds:
        A learning rate that is 0 (or next to nothing) all along, that is (almost) 0 for most of the run, or that was
        still rising when the run ended: in the log, or by the scheduler that was saved with the checkpoint. One that
        was stepped far less often than it was laid out for, or so often that it began anew again and again; one that
        waits for a loss to rise, or for an accuracy to fall. And a group of parameters whose rate is next to nothing
        beside the others'.

    Why it matters:
        Such a schedule was laid out for another number of steps: counted in epochs instead of steps, or before
        accumulation; or it follows the wrong metric. Most of the run, or a part of the model, trained at a rate that
        nobody chose.

    How it decides:
        Fail when every rate is 0; but where the last eighth of the loss lies below its first by a tenth and by four
        standard errors, the log rounds the rate to 0. Warn when the highest rate of an Adam-like optimizer (by the
        params, the rate's name or the checkpoint), which moves a weight by that much per step at most, is below
        `least_rate`, in a log that begins with the training and not in mid-rise; when more than `zero_share` of the
        points lie below a millionth of the highest rate (but not where the log shows that as five of its last decimal
        at most, and the loss goes on falling: it rounds); and when the rate rose at every point (repeats aside) up to
        the very end, to more than twice its first value, while the loss had not levelled off (its last quarter brought
        a twentieth of the descent or more), or that of validation had not. A rate that the log rounds repeats itself
        while it rises slowly: where it rose at least three times, always by one of the last decimal that is printed
        (the third to the twelfth), it still rises unless the last value was printed more often than any one between the
        first and the last.

        Where no rate was logged, the same is asked of those that the saved scheduler gave at each of its steps, if
        the checkpoint is of the run's end, as its settings tell, if they also tell the last rate that it saved:
        torch's steps, milestones, exponentials, cosines, lines, polynomials, one-cycle schedules, and several in
        turn.

        Without a rate warn, too, when a param has a warm-up (`warmup_steps`) of more than twice the steps that the run
        had by the farthest of its counts, unless the training loss levelled off: not where a plan was not come to, a
        param says that there is no schedule (`decay_lr`, a type of `constant`), or a log may count epochs.

        Logged or not, warn when a cosine that was saved took at least `most_waves` of its waves; when a scheduler
        took less than `least_stepped` of the steps that it was laid out for, though the checkpoint is of the run's
        end and that came to the end of its plan, or, where no plan is known, was ended by its tracker's word and not
        by early stopping, with the best validation loss among the last two (or without any, the training loss still
        falling); when a scheduler that waits for a metric to rise has the highest value of a loss for its best, or
        the lowest of an accuracy when it waits for a fall; and when a group of an optimizer began with less than a
        `groups_apart`-th of another's rate, but not with 0, by the rates that the scheduler noted down
        (`initial_lr`), or has now, where none did and the log has the lowest of them as one that never came above 1e-6.

    Known limits:
        Needs 5 points of the learning rate, logged or saved. A learning-rate range test rises on purpose, and a
        cosine may come again ten times on purpose. Of a warm-up that a log prints as three numbers or fewer nothing
        is seen. A schedule that is a function of one's own (LambdaLR, which most trainers use) saves none of its
        settings.

    What to do:
        Give the scheduler the number of optimizer steps, and step it once per optimizer step; or the number of
        epochs, and step it once per epoch. Give ReduceLROnPlateau mode='min' for a loss, and each group a rate of the
        others' order.

    References:
        Goyal et al. (2017) on warm-up; Loshchilov and Hutter (2017) on the cosine.
    """

    code = "LRS001"
    name = "schedule"
    symptom = Symptom.SCHEDULE

    zero_share: Annotated[
        float, Threshold("share of the points at a rate of almost 0", "fraction", "design", gt=0, le=1)
    ] = 0.5
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5
    most_waves: Annotated[float, Threshold("waves of a saved cosine that are too many", "waves", "design", ge=2)] = 10.0
    least_stepped: Annotated[
        float, Threshold("share of its steps that a saved schedule should take", "fraction", "design", ge=0, le=1)
    ] = 0.5

    least_rate: Annotated[
        float, Threshold("highest rate at which an Adam-like optimizer moves nothing", "rate", "design", ge=0)
    ] = 5e-8
    groups_apart: Annotated[
        float, Threshold("highest over lowest rate of an optimizer's groups that is too much", "ratio", "design", gt=1)
    ] = 1e5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="learning_rate", any_of=(Part.SAVED_SCHEDULE, Part.OPTIMIZER_STATE, "train_loss")),
            *(Need(role=role, optional=True) for role in (*LOSSES, *ACCURACIES, Part.PLAN)),
        )

    def judge(self, evidence: Evidence) -> Finding:
        logged = self._logged(evidence)
        schedules = evidence.optimizer.schedules if evidence.optimizer is not None else ()
        saved = [self._saved(one, evidence, logged) for one in schedules]
        saved += [self._of_groups(evidence, evidence.optimizer)] if evidence.optimizer is not None else []
        saved += [self._of_params(evidence)] if logged.verdict is Verdict.SKIP else []
        verdict = worst(one.verdict for one in (logged, *saved))
        return next(one for one in (logged, *saved) if one.verdict is verdict)

    def _logged(self, evidence: Evidence) -> Finding:
        """What the log says."""
        rates = [one.finite() for one in evidence.series if one.role == "learning_rate"]
        rate = max(rates, key=lambda one: _peak(one.values), default=None)  # a frozen group may well have 0
        if rate is None or len(rate) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(rate or ())} finite learning rates")
        peak = _peak(rate.values)
        whole = rate.steps[0] <= _BEGINNING * rate.steps[-1] and not _rises_to_the_end(rate.values)
        if 0.0 < peak < self.least_rate and whole and _is_adaptive(evidence, rate):
            name = printable(rate.name, 60)
            message = f"{name} is {number(peak)} at most: no weight of its group moves by more than that in a step"
            return Finding(verdict=Verdict.WARN, message=message, remedy=_TINY, measured={"peak": peak})
        found = self._of_rates(rate.values, evidence)
        if found.verdict is Verdict.WARN and _may_be_rounded(rate.values) and _falls_at_zero(evidence, rate):
            message = f"the log rounds {printable(rate.name, 60)} to 0, where the loss goes on falling"
            return Finding(verdict=Verdict.PASS, message=message, measured=found.measured, confidence="low")
        return found

    def _saved(self, schedule: SavedSchedule, evidence: Evidence, logged: Finding) -> Finding:
        """What a scheduler says that was saved with the checkpoint."""
        if message := waits_in_vain(schedule, evidence):
            return Finding(verdict=Verdict.WARN, message=message, remedy=_MODE)
        stepped, laid_out = schedule.stepped, schedule.laid_out
        measured = {"stepped": stepped} | ({} if laid_out is None else {"laid_out": laid_out})
        if laid_out is not None and schedule.period and stepped >= self.most_waves * schedule.period:
            message = (
                f"the schedule was laid out for {count(int(laid_out), 'step')} and took {number(stepped)}: "
                f"the rate came down and rose again {int(stepped / schedule.period)} times"
            )
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured)
        if laid_out is not None and stepped < self.least_stepped * laid_out and should_have_ended(evidence):
            message = (
                f"the schedule was laid out for {count(int(laid_out), 'step')} and took {number(stepped)} "
                f"({stepped / laid_out:.1%})"
            )
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured)
        judged = logged.verdict is not Verdict.SKIP or len(schedule.rates) < self.min_points
        under_way = laid_out is not None and stepped < laid_out and not has_ended(evidence)
        if judged or under_way or not is_of_the_end(evidence):
            return Finding(verdict=Verdict.SKIP, message=f"the saved schedule took {count(stepped, 'step')}")
        return self._of_rates(schedule.rates, evidence)

    def _of_params(self, evidence: Evidence) -> Finding:
        """What the params say of a warm-up, where no rate was logged."""
        beyond = warm_up_beyond(evidence)
        if beyond is None or levelled_off(evidence.find("train_loss")):
            return Finding(verdict=Verdict.SKIP, message="no param tells of a warm-up that the run did not come out of")
        warm_up, reached = beyond
        return Finding(
            verdict=Verdict.WARN,
            message=f"the warm-up was to take {count(int(warm_up), 'step')}, the run had {number(reached)} at most",
            remedy=_REMEDY,
            measured={"warm_up": warm_up, "reached": reached},
        )

    def _of_groups(self, evidence: Evidence, state: OptimizerState) -> Finding:
        """What the groups of an optimizer say that was saved."""
        alone = len({one.optimizer for one in state.tensors}) == 1
        rates = _rates_of(evidence, state) if alone else []
        known = [float(rate) for rate in rates if isinstance(rate, (int, float)) and 0.0 < rate < np.inf]
        if (
            len(known) < 2
            or len(known) < len([rate for rate in rates if rate != 0])
            or max(known) / self.groups_apart <= min(known)
        ):
            return Finding(verdict=Verdict.SKIP, message="there are no groups whose learning rates differ that much")
        return Finding(
            verdict=Verdict.WARN,
            message=f"a group of parameters has a learning rate of {number(min(known))}, another one of "
            f"{number(max(known))}: the first hardly moves",
            remedy="give it a rate of the others' order, or freeze it (requires_grad_(False)) and leave it out",
            measured={"lowest_rate": min(known), "highest_rate": max(known)},
        )

    def _of_rates(self, values: FloatArray, evidence: Evidence) -> Finding:
        peak = _peak(values)
        idle = float(np.mean(np.abs(values) <= _NOTHING * peak))
        measured = {"first": float(values[0]), "peak": peak, "end": float(values[-1]), "zero_share": idle}
        if peak == 0.0 and _came_down(evidence.find("train_loss")):
            message = f"the learning rate is logged as 0 at all {len(values)} points, but the loss came down"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
        if peak == 0.0:
            message = f"the learning rate is 0 at all {len(values)} points"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=_REMEDY, measured=measured)
        if idle > self.zero_share:
            message = f"the learning rate is 0 for {idle:.0%} of the run, after a peak of {number(peak)}"
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured)
        if _rises_to_the_end(values) and not _enough(evidence):
            rise = f"from {number(float(values[0]))} to {number(peak)}"
            message = f"the learning rate was still rising when the run ended, {rise}"
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured)
        return Finding(
            verdict=Verdict.PASS,
            message=f"the learning rate peaks at {number(peak)} and ends at {number(float(values[-1]))}",
            measured=measured,
        )


def _rates_of(evidence: Evidence, state: OptimizerState) -> list[Any]:
    """The rates that the groups began with; those of now, where no scheduler noted these down, if the log has the
    lowest one, at its end, as one that never was much higher: then all came down together.
    """
    began, now = ([group.get(key) for group in state.groups] for key in ("initial_lr", "lr"))
    known = [one for one in now if isinstance(one, (int, float)) and one > 0]
    if not known or any(one is not None for one in began):
        return began
    logged = [one.finite().values for one in evidence.series if one.role == "learning_rate"]
    low = (one for one in logged if len(one) and abs(one[-1] - min(known)) <= _AS_LOGGED * min(known))
    return now if any(_peak(one) < _CAME_DOWN for one in low) else began


def _is_adaptive(evidence: Evidence, rate: Series) -> bool:
    """Whether the optimizer divides its steps by the size of the gradients: else a small rate may meet large ones."""
    if evidence.optimizer is not None:
        return bool(evidence.optimizer.with_second_moment)
    said = (*optimizers_named(evidence), rate.name[:_MOST_OF_A_PARAM].lower())
    return any(map(_ADAPTIVE.search, said))


def _peak(values: FloatArray) -> float:
    return float(np.abs(values).max()) if len(values) else -1.0


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


def _may_be_rounded(values: FloatArray) -> bool:
    """Whether rates of 0 may be such as a log of a few decimals cannot show: the highest is no more than a few of the
    last one.
    """
    units = 10.0 ** -_DECIMALS[_DECIMALS >= _FEWEST_DECIMALS]
    in_units = np.divide.outer(values, units)
    whole = np.abs(in_units - np.round(in_units)) < _SAME
    return bool((whole.all(axis=0) & (_peak(values) <= _UNITS * units)).any())


def _falls_at_zero(evidence: Evidence, rate: Series) -> bool:
    """Whether the training loss falls for sure, or at each of its points, from the first rate of 0 at the end on."""
    loss, above = evidence.find("train_loss"), np.flatnonzero(rate.values != 0.0)
    if loss is None or not len(above):
        return False
    clean = loss.finite()
    values = clean.values[clean.steps > rate.steps[above[-1]]]
    return len(values) >= _FEWEST_AT_ZERO and (mann_kendall(values) < _SURE or bool((np.diff(values) < 0).all()))


def _enough(evidence: Evidence) -> bool:
    """Whether the loss had levelled off, and that of validation as well, where it was logged often enough."""
    held_out = evidence.find("val_loss")
    few = held_out is None or len(held_out.finite()) < FEWEST_TO_LEVEL_OFF
    return levelled_off(evidence.find("train_loss")) and (few or levelled_off(held_out))


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
