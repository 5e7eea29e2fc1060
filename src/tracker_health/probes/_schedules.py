"""What a learning-rate scheduler that was saved with a checkpoint says of itself, beside the metrics."""

from __future__ import annotations

import re

import numpy as np

from tracker_health.ending import Ended
from tracker_health.evidence import Evidence, FloatArray, IntArray, SavedSchedule, Series, StepUnit, is_of_the_end
from tracker_health.evidence.numerics import median
from tracker_health.probes._run import early_stopping
from tracker_health.text import number, printable

LOSSES = ("train_loss", "val_loss")
ACCURACIES = ("train_accuracy", "val_accuracy", "val_auc")
FEWEST_TO_LEVEL_OFF = 8

_AS_LOGGED = 1e-3
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
_LONGEST = 100
_FEWEST_VALUES = 5
_LAST_ONES = 2
_WHOLE = 0.9


def waits_in_vain(schedule: SavedSchedule, evidence: Evidence) -> str:
    """That a scheduler takes the highest value of a loss, or the lowest of an accuracy, for the best; empty where it
    does not, or where its best is one of another metric, too.
    """
    best, rise = schedule.best, schedule.waits_for_rise
    if best is None or rise is None:
        return ""
    known = [one for role in (*LOSSES, *ACCURACIES) if (one := evidence.find(role)) is not None and len(one.finite())]
    with_it = [one for one in known if _is_in(best, one.finite().values)]
    if not with_it or any(one.role not in (LOSSES if rise else ACCURACIES) for one in with_it):
        return ""
    worst = next((one for one in with_it if _is_its_worst(best, one.finite().values, highest=rise)), None)
    if worst is None:
        return ""
    name = printable(worst.name, 60)
    direction, end = ("rise", "highest") if rise else ("fall", "lowest")
    return f"the schedule waits for {name} to {direction}: the best that it has seen, {number(best)}, is the {end}"


def _is_its_worst(value: float, values: FloatArray, *, highest: bool) -> bool:
    """Whether it is the highest of these, or the lowest, which is another than the best."""
    worst, best = (values.max(), values.min()) if highest else (values.min(), values.max())
    return len(values) >= _FEWEST_VALUES and _is_in(value, np.array([worst])) and not _is_in(value, np.array([best]))


def _is_in(value: float, values: FloatArray) -> bool:
    """Whether it is one of these, as a log rounds them."""
    return bool((np.abs(values - value) <= _AS_LOGGED * abs(value)).any())


def has_ended(evidence: Evidence) -> bool:
    """Whether the run is known to have come to its own end: by its plan, or by its tracker's word."""
    if evidence.progress is not None:
        return not evidence.progress.snapshot and evidence.progress.fraction >= _WHOLE
    return evidence.ending is not None and evidence.ending.how is Ended.FINISHED


def should_have_ended(evidence: Evidence) -> bool:
    """Whether the run came to its end, so that its schedule should have as well, and nobody stopped it since it did not
    get any better.
    """
    if not is_of_the_end(evidence) or early_stopping(evidence) or not has_ended(evidence):
        return False
    if evidence.progress is not None:
        return True
    held_out = evidence.find("val_loss")
    values = held_out.finite().values if held_out is not None else np.empty(0)
    if len(values) >= _FEWEST_VALUES:
        return len(values) - 1 - int(np.argmin(values)) < _LAST_ONES
    loss = evidence.find("train_loss")
    return loss is not None and len(loss.finite()) >= FEWEST_TO_LEVEL_OFF and not levelled_off(loss)


def warm_up_beyond(evidence: Evidence) -> tuple[float, int] | None:
    """By the params, the steps of a warm-up that was not half over when the run ended, and the steps that the run had
    by the farthest of all counts; None where it is not so, or what a log counts may be epochs.
    """
    params = [
        (name[-_LONGEST:].lower(), value.strip()[:_LONGEST].lower()) for name, value in evidence.info.params.items()
    ]
    known = [float(value) for name, value in params if _WARM_UP.fullmatch(name) and _NUMBER.fullmatch(value)]
    progress, info, state = evidence.progress, evidence.info, evidence.optimizer
    if len(known) != 1 or any(_speaks_against(*one) for one in params) or evidence.goes_on or info.snapshot:
        return None
    if progress is not None and progress.fraction < _WHOLE:
        return None
    counts = [info.global_step, None if state is None else state.steps, *map(_last, evidence.steps_logged)]
    epochs = evidence.planned_epochs
    in_steps = (one for one in evidence.series if one.step_unit is not StepUnit.EPOCH and len(one))
    # What is beyond the number of epochs counts none.
    counts += [last for one in in_steps if epochs is not None and (last := _last(one.steps)) > 2 * epochs]
    reached = max((one for one in counts if one is not None), default=0)
    return (known[0], reached) if 0 < 2 * reached < known[0] else None


def _speaks_against(name: str, value: str) -> bool:
    """Whether a param says that there is no schedule, or another length of its warm-up."""
    name = re.split(r"[./]", name)[-1]
    if _RATIO.fullmatch(name):
        return bool(_NUMBER.fullmatch(value)) and float(value) > 0
    return bool(_OF_A_SCHEDULE.fullmatch(name)) and value in _NO_SCHEDULE


def _last(steps: IntArray) -> int:
    return int(steps.max())


def levelled_off(loss: Series | None) -> bool:
    """Whether the loss came down and its last quarter brought less than a twentieth of that: the rates were enough."""
    if loss is None or len(loss.finite()) < FEWEST_TO_LEVEL_OFF:
        return False
    parts = [median(part) for part in np.array_split(loss.finite().values, 8)]
    descent = max(parts[0], float(loss.finite().values[0])) - parts[-1]
    return descent > 0.1 * abs(parts[0]) and parts[5] - parts[-1] < 0.05 * descent
