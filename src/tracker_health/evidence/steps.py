"""How many optimizer steps a run did, at least, where its optimizer does not count them itself (SGD, Lion, Muon)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tracker_health.evidence.as_read import AsRead
from tracker_health.evidence.series import Series, StepUnit
from tracker_health.evidence.tensors import OptimizerState

# A checkpoint's counters that are no ``global_step`` by name; the number of the epoch is one at least.
_COUNTERS = (
    "iter_num", "num_updates", "optimizer_step", "optimizer_steps", "current_step", "current_iter", "completed_steps",
    "train_step", "n_iter",
)  # fmt: skip
_EPOCHS = ("epoch", "current_epoch", "epoch_num", "epoch_idx", "last_epoch")
_ACCUMULATIONS = frozenset(
    ("gradient_accumulation_steps", "accumulate_grad_batches", "gradient_accumulation", "grad_accumulation_steps",
     "grad_accum_steps", "grad_accum", "accumulation_steps", "accum_iter", "accum_steps", "accumulate_steps",
     "update_freq")
)  # fmt: skip
# A row stands for no more steps than this where nobody says what its step counts: that may be samples or tokens.
_MOST_PER_ROW = 10
_LARGEST_COUNT = 2**53
_AT_THE_END = 0.9  # of a run


class StepCount(NamedTuple):
    """A number of optimizer steps, and by what it is known."""

    steps: int
    by: str


def steps_at_least(evidence: AsRead) -> StepCount:
    """A lower bound of the steps that the optimizer's state has seen: its own count, else the checkpoint's, else what
    the run's record and its log confirm. 0 where nothing tells.
    """
    state = evidence.optimizer
    told = StepCount(0, "") if state is None else told_by_checkpoint(state)
    if state is not None and state.steps is not None:
        return told
    if evidence.info.global_step is not None:
        return StepCount(evidence.info.global_step, "the trainer state")
    return max([told, *_logged(evidence, _epoch_of(state))], key=lambda one: one.steps)


def is_of_the_end(evidence: AsRead) -> bool:
    """Whether the checkpoint was written about where the run ended, as far as its log tells; False where it continues.

    Args:
        evidence: A run with a checkpoint.

    Returns:
        True where it was.
    """
    state = evidence.optimizer
    if state is None or evidence.info.snapshot or evidence.goes_on:
        return False
    epoch, steps = _epoch_of(state), state.steps
    logged = [one for one in evidence.series if one.step_unit is not StepUnit.EPOCH and len(one)]
    last = max((int(one.steps.max()) for one in logged), default=0)
    in_time = steps is None or last <= (2.0 - _AT_THE_END) * steps
    return in_time and (epoch is None or _share(evidence, epoch) >= _AT_THE_END)


def told_by_checkpoint(state: OptimizerState) -> StepCount:
    """What a checkpoint says of itself: its optimizer's own count, its step, or its other counters and its epoch.

    Args:
        state: A saved optimizer's state.

    Returns:
        Optimizer steps, and which of these counts says so.
    """
    if state.counted is not None:
        return StepCount(state.counted, "the optimizer itself")
    if state.global_step is not None:
        return StepCount(state.global_step, "the checkpoint's step")
    counted = ((key, _whole(state.extras.get(key))) for key in (*_COUNTERS, *_EPOCHS))
    known = [StepCount(number, f"the checkpoint's {key}") for key, number in counted if number is not None]
    return max(known, key=lambda one: one.steps, default=StepCount(0, ""))


def _epoch_of(state: OptimizerState | None) -> int | None:
    extras: Mapping[str, Any] = state.extras if state is not None else {}
    return next((epoch for key in _EPOCHS if (epoch := _whole(extras.get(key))) is not None), None)


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _LARGEST_COUNT:
        return None
    return int(value)


# What the log tells


def _logged(evidence: AsRead, epoch: int | None) -> Iterator[StepCount]:
    """``epoch``: of the checkpoint. What was logged after it is not in the optimizer's state."""
    share = 1.0 if epoch is None else _share(evidence, epoch)
    for counted in evidence.steps_logged:
        yield StepCount(int(share * counted.max()), "the log's count of optimizer steps")
    for role in ("train_loss", "objective_loss", "grad_norm"):
        series = evidence.find(role)
        if series is not None and len(series):
            yield StepCount(int(share * _borne_out(series, evidence.info.params)), f"the log of {series.name}")
    epochs = evidence.find("epoch")
    for last in (evidence.info.epoch, epochs.finite().values.max() if epochs and len(epochs.finite()) else None):
        number = _whole(None if last is None else float(last))
        if number is not None:
            yield StepCount(int(share * number), "the number of epochs")


def _borne_out(series: Series, params: Mapping[str, str]) -> int:
    """The steps that a history stands for, at least: one for each row, or ten where its steps go on by ten and more.

    Rows of batches may be fewer optimizer steps, where gradients accumulate; an epoch has one in any case.
    """
    clean = series.clean()
    rows = len(clean)
    if series.step_unit is StepUnit.EPOCH:
        return rows
    if series.step_unit is StepUnit.UNKNOWN and not _counts_samples(clean):
        rows = max(rows, min(int(clean.steps.max()), _MOST_PER_ROW * rows))
    return rows // accumulation(params)


def _counts_samples(series: Series) -> bool:
    """Whether the steps go on by a power of two from 16 on, as the number of samples does in batches of that size."""
    apart = np.diff(series.steps)
    if not len(apart):
        return False
    usual = int(np.median(apart))
    return usual >= 16 and usual & (usual - 1) == 0


def accumulation(params: Mapping[str, str]) -> int:
    """Over how many batches gradients accumulate, according to the run's params.

    Args:
        params: The run's params, by name.

    Returns:
        Batches to an optimizer step, 1 where no param says anything.
    """
    most = 1.0
    for name, value in params.items():
        if name.replace("/", ".").rpartition(".")[2].lower() in _ACCUMULATIONS:
            try:
                most = max(most, float(value))
            except ValueError:
                continue
    return int(min(most, _LARGEST_COUNT))


def _share(evidence: AsRead, epoch: int) -> float:
    """The part of the log that is before the end of a checkpoint's epoch, about; all of it where that is not known.

    Epochs are counted from 0 or from 1: one that was saved as 0 may be the whole first epoch or a part of it.
    """
    counted, loss = evidence.find("epoch"), evidence.find("train_loss")
    if counted is not None and len(counted.finite()):
        last: float | None = float(counted.finite().values.max())
    elif loss is not None and loss.step_unit is StepUnit.EPOCH:
        last = float(loss.steps.max())
    else:
        last = evidence.planned_epochs
    return 1.0 if last is None or last - epoch < 1.0 else max(epoch, 0.5) / last
