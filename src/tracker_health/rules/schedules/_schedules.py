"""What a checkpoint and the params say of the learning rate's schedule, next to the metrics."""

from __future__ import annotations

import re

from tracker_health.evidence import Evidence, SavedSchedule, Series, StepUnit, is_of_the_end
from tracker_health.evidence.numerics import is_as_logged
from tracker_health.facts.intent import early_stopping, optimizers_named
from tracker_health.text import count, number, printable, setting
from tracker_health.words.ending import Ended

LOSSES = ("train_loss", "val_loss")
ACCURACIES = ("train_accuracy", "val_accuracy", "val_auc")
STEPS_OF_SCHEDULE = "give the scheduler the number of optimizer steps, and step it once per optimizer step"

_WARM_UP = re.compile(
    r"(?:(?:train|trainer|training|optim|optimizer|lr|schedule|scheduler|lr_scheduler|args|config)[./])*"
    r"(?:lr_)?(?:num_)?warm_?up_(?:steps|iters|iterations|updates)"
)
_OF_A_SCHEDULE = re.compile(
    r"decay_lr|use_warm_?up|warm_?up|(?:lr_)?(?:scheduler|schedule)(?:_type|_name)?|lr_decay(?:_style)?"
)
_NO_SCHEDULE = frozenset(("false", "none", "null", "no", "off", "constant", "const"))
_RATIO = re.compile(r"warm_?up_(?:ratio|fraction|proportion)")
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,6})?")
_ZERO = re.compile(r"0*(\.0*)?")
_ADAPTIVE = re.compile(
    r"(^|[^a-z])([a-z]?adam|adam(w|ax)|adamw?_torch|paged_adamw|lion|adafactor|rmsprop|adagrad|lamb)([^a-z]|$)"
)


def is_adaptive(evidence: Evidence, rate: Series) -> bool:
    """Whether the optimizer divides its steps by the size of the gradients: else a small rate may meet large ones."""
    if evidence.optimizer is not None:
        return bool(evidence.optimizer.with_second_moment)
    return any(map(_ADAPTIVE.search, (*optimizers_named(evidence), printable(rate.name).lower())))


def groups_far_apart(evidence: Evidence, most: float) -> str:
    """That a group of the lone optimizer began with a rate so many times below another's, but not with 0; else empty,
    and where a scheduler did not note down all of them.
    """
    state = evidence.optimizer
    if state is None or len({tensor.optimizer for tensor in state.tensors}) != 1:
        return ""
    began = [group.get("initial_lr") for group in state.groups]
    rates = [float(rate) for rate in began if isinstance(rate, (int, float)) and rate >= 0]
    low, high = min(filter(None, rates), default=0.0), max(rates, default=0.0)
    if len(rates) < len(began) or high / most <= low:
        return ""
    beside = f"{setting(low)}, another one of {setting(high)}: the first barely moves"
    return f"a group of parameters has a learning rate of {beside}"


def waits_in_vain(schedule: SavedSchedule, evidence: Evidence, fewest: int) -> str:
    """That a scheduler takes the highest value of a loss, or the lowest of an accuracy, for the best; else empty."""
    best, rise = schedule.best, schedule.waits_for_rise
    if best is None or rise is None:
        return ""
    for role in LOSSES if rise else ACCURACIES:
        series = evidence.find(role)
        if series is None or len(values := series.finite().values) < fewest:
            continue
        lowest, highest = values.argmin(), values.argmax()
        worst, right = (highest, lowest) if rise else (lowest, highest)
        if is_as_logged(best, values[worst : worst + 1]) and not is_as_logged(best, values[right : right + 1]):
            direction, extreme = ("rise", "highest") if rise else ("fall", "lowest")
            seen = f"the best that it has seen, {number(best)}, is the {extreme}"
            return f"the schedule waits for {printable(series.name)} to {direction}: {seen}"
    return ""


def share_done(evidence: Evidence) -> float:
    """The share of its plan that the run is known to have done; without a plan all of it where it finished by its
    tracker's word and early stopping was not on; else 0.
    """
    if not is_of_the_end(evidence):
        return 0.0
    if evidence.progress is not None:
        return evidence.progress.fraction
    finished = evidence.ending is not None and evidence.ending.how is Ended.FINISHED
    return float(finished and not early_stopping(evidence))


def endless_warm_up(evidence: Evidence) -> str:
    """Says that a warm-up of the params would not have been half over at the plan's end, by the farthest of all counts
    of steps. Empty where it is not so, or where a log may count epochs.
    """
    params = [(name.lower(), printable(value).strip().lower()) for name, value in evidence.info.params.items()]
    known = [float(value) for name, value in params if _WARM_UP.fullmatch(name) and _NUMBER.fullmatch(value)]
    if (
        len(known) != 1
        or any(_speaks_against(*param) for param in params)
        or evidence.goes_on
        or evidence.info.snapshot
    ):
        return ""
    reached = max(_counts(evidence), default=0.0)
    planned = reached / evidence.progress.fraction if evidence.progress is not None and reached else reached
    if not 0 < 2 * planned < known[0]:
        return ""
    return f"the warm-up was to take {count(int(known[0]), 'step')}, the run had {number(reached)} at most"


def _counts(evidence: Evidence) -> list[float]:
    """All that may count steps: of a log what goes beyond the number of epochs."""
    state, epochs = evidence.optimizer, evidence.planned_epochs
    counts = [evidence.info.global_step, None if state is None else state.steps]
    counts += [int(steps.max()) for steps in evidence.steps_logged]
    if epochs is not None:
        logged = [series for series in evidence.of_training if series.step_unit is not StepUnit.EPOCH and len(series)]
        counts += [last for series in logged if (last := int(series.steps.max())) > 2 * epochs]
    return [float(steps) for steps in counts if steps is not None]


def _speaks_against(name: str, value: str) -> bool:
    """Whether a param says that there is no schedule, or another length of its warm-up."""
    name = re.split(r"[./]", name)[-1]
    if _RATIO.fullmatch(name):
        return bool(_NUMBER.fullmatch(value)) and not _ZERO.fullmatch(value)
    return bool(_OF_A_SCHEDULE.fullmatch(name)) and value in _NO_SCHEDULE
