"""How far a run came, compared with how far it was meant to go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.as_read import AsRead
from tracker_health.evidence.plan import planned_epochs, planned_steps, positive, spacing
from tracker_health.evidence.series import Series, StepUnit
from tracker_health.evidence.steps import accumulation

_SAVED_EPOCHS = ("epoch", "current_epoch")
_FIRST_EPOCHS = ("initial_epoch", "start_epoch")
_BATCHES_OF_AN_EPOCH = ("steps_per_epoch", "batches_per_epoch", "iters_per_epoch", "steps_in_epoch")

_REACHED = 0.99  # of a plan: the last step may not be logged
_WHOLE = 0.9  # of a plan: what comes so far needs no second look
_FEWEST_ROWS, _FEWEST_OF_A_ROW = 8, 5
_BEYOND = 1.1  # of a plan: what goes further counts something else
_ABOUT = 0.1
_FEWEST_EPOCHS = 3


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the run came, in optimizer steps or in epochs (``unit``), and how far it was meant to go.

    ``snapshot``: the run is still running, or was seen in mid-training, so that this is not where it ended.
    ``unlogged``: how much more may have been done since the last point of a log that has every k-th epoch or step only;
    0 where the number done is exact. ``updates``: the optimizer's own count, where it is below what was done.
    """

    done: float
    planned: float
    unit: str
    snapshot: bool = False
    unlogged: float = 0.0
    updates: int | None = None

    @property
    def fraction(self) -> float:
        """The share of the plan that was done, or may have been: what was not logged counts up to the plan's end."""
        return max(self.done, min(self.done + self.unlogged, self.planned)) / self.planned

    @property
    def is_whole(self) -> bool:
        """Whether the run came to the end of its plan."""
        return self.fraction >= _REACHED


class _Count(NamedTuple):
    done: int
    unlogged: float = 0.0


def progress_of(evidence: AsRead) -> Progress | None:
    """Done against planned, or None where either is unknown."""
    params = evidence.info.params
    planned, epochs = planned_steps(params), planned_epochs(params)
    found = [_in_steps(evidence, planned) if planned is not None else None, _in_epochs(evidence)]
    known = [one for one in found if one is not None]
    # Of two plans the one that is reached first ends a training; what goes beyond its plan counts something else.
    within = [one for one in known if one.done <= _BEYOND * one.planned] or known
    if within:
        return max(within, key=lambda one: one.fraction)
    batches = positive(params, _BATCHES_OF_AN_EPOCH)
    if planned is None and epochs is not None and batches is not None and not _begins_later(params):
        planned = epochs * batches
    by_rhythm = _by_rhythm(evidence, planned) if planned is not None else None
    return by_rhythm or _by_own_steps(evidence, planned_steps(params), epochs)


def _begins_later(params: Mapping[str, str]) -> bool:
    """Whether the run continues from an epoch that another one came to."""
    return positive(params, _FIRST_EPOCHS) is not None


# In steps


def _in_steps(evidence: AsRead, planned: float) -> Progress | None:
    """By the farthest of the counts: an optimizer counts again after a resume without its state, and not what a loss
    scaler skips; a checkpoint may be older than the log's end.
    """
    state = evidence.optimizer
    own = None if state is None else state.counted
    info = evidence.info
    told = [info.global_step, info.printed_step, None if state is None else state.global_step]
    recorded = [_Count(steps) for steps in told if steps is not None]
    logged = [_counted(steps) for steps in evidence.steps_logged]
    if recorded or own is not None:
        unknown = (one for one in _of_unknown_unit(evidence) if one.steps.max() <= _BEYOND * planned)
        logged += [_counted(one.steps) for one in unknown]
    counts = [*recorded, *logged]
    if own is not None:
        others = [one for one in counts if not _counts_batches(one.done, own, planned, evidence.info.params)]
        counts = [_Count(own), *others]
    if not counts:
        return None
    farthest = max(counts, key=lambda one: (one.done, -one.unlogged))
    return Progress(
        done=farthest.done,
        planned=planned,
        unit="steps" if info.printed_step is not None and state is None else "optimizer steps",
        snapshot=_is_snapshot(evidence),
        unlogged=farthest.unlogged,
        updates=own if own is not None and own < farthest.done else None,
    )


def _counted(steps: npt.NDArray[Any]) -> _Count:
    return _Count(int(steps.max()), spacing(steps) - 1.0)


def _of_unknown_unit(evidence: AsRead) -> Iterator[Series]:
    return (one for one in evidence.series if one.step_unit is StepUnit.UNKNOWN and len(one))


def _counts_batches(steps: int, own: int, planned: float, params: Mapping[str, str]) -> bool:
    """Whether a count that an optimizer's own is below is one of batches, of which each update takes several: as many
    as the params say, or a whole number of them, which leads beyond the plan.
    """
    if own <= 0 or steps <= own:
        return False
    said = accumulation(params)
    as_said = said > 1 and abs(steps / own / said - 1.0) <= _ABOUT
    return as_said or (steps > _BEYOND * planned and is_whole_multiple(steps, own))


def is_whole_multiple(steps: int, own: int) -> bool:
    """Whether there were so many batches to each of the optimizer's updates, the last one's perhaps left over.

    Args:
        steps: What was counted, perhaps batches.
        own: The optimizer's own count of its updates.

    Returns:
        True where a whole number of batches explains the one by the other.
    """
    return 0 < own < steps and steps % own < steps // own


def _by_rhythm(evidence: AsRead, planned: float) -> Progress | None:
    """By a log that does not say what its steps are, where its points are one epoch of the plan apart: they are steps
    then, neither epochs nor rows.
    """
    epochs = planned_epochs(evidence.info.params)
    if epochs is None:
        return None
    known = list(_of_unknown_unit(evidence))
    sources = {one.source for one in known if _has_rhythm(one, planned / epochs)}
    counts = [_counted(one.steps) for one in known if one.source in sources]
    farthest = max(counts, default=None)
    if farthest is None or farthest.done <= _BEYOND * epochs or farthest.done > _BEYOND * planned:
        return None
    unit, snapshot = "optimizer steps", _is_snapshot(evidence)
    unlogged = min(one.unlogged for one in counts if one.done == farthest.done)
    return Progress(done=farthest.done, planned=planned, unit=unit, snapshot=snapshot, unlogged=unlogged)


def _has_rhythm(series: Series, epoch: float) -> bool:
    """Whether a history has a point for each epoch of so many steps."""
    apart = np.diff(np.unique(series.steps))
    return len(apart) >= _FEWEST_EPOCHS - 1 and epoch >= 2 and bool((apart == epoch).all())


# In the steps that a training gave its tracker


def _by_own_steps(evidence: AsRead, planned: float | None, epochs: float | None) -> Progress | None:
    """By the history of a tracker that counts nothing itself (MLflow): a step there is what the training said, an
    optimizer step or an epoch. Rows may have been counted as well; that is believed before that a training broke off.
    """
    steps = _own_steps(evidence)
    if steps is None:
        return None
    apart, last = spacing(steps), float(steps[-1])
    from_0 = steps[0] == 0
    done = last + 1.0 if from_0 and apart == 1 else last
    unlogged = apart - 1.0 + (from_0 and apart > 1)
    plans = [("epochs", epochs)] if epochs is not None and done <= _BEYOND * epochs else [("steps", planned)]
    for unit, plan in plans:
        if plan is None or done > _BEYOND * plan or (unit == "epochs" and _begins_later(evidence.info.params)):
            continue
        short = done + unlogged < _WHOLE * plan
        if not short or not (len(steps) < _FEWEST_ROWS or _may_be_rows(plan, last, apart)):
            snapshot = _is_snapshot(evidence)
            return Progress(done=done, planned=plan, unit=unit, snapshot=snapshot, unlogged=unlogged)
    return None


def _own_steps(evidence: AsRead) -> npt.NDArray[Any] | None:
    """The steps of the loss as its tracker has them, in ascending order; None where they went back or are of another
    kind, and of a policy, whose steps are mostly episodes.
    """
    loss = evidence.find("train_loss") or evidence.find("val_loss")
    if loss is None or loss.times is None or loss.step_unit is not StepUnit.UNKNOWN or not evidence.info.tracker:
        return None
    if evidence.find("train_reward") is not None or loss.superseded or loss.went_back:
        return None
    steps = loss.clean().steps
    again = len(loss) - loss.summaries - len(steps)
    return steps if len(steps) and again <= _ABOUT * len(steps) else None


def _may_be_rows(plan: float, last: float, apart: float) -> bool:
    """Whether the last of a count is where that of rows (or epochs) would be, one for every k-th step of the plan."""
    most = plan / max(1.0, last - 1.0)
    return bool(max(_FEWEST_OF_A_ROW, np.ceil(plan / (last + apart + 1.0))) <= np.floor(most))


# In epochs


def _in_epochs(evidence: AsRead) -> Progress | None:
    planned = planned_epochs(evidence.info.params)
    known = [done for done in (evidence.info.epoch, _epochs_counted(evidence)) if done is not None]
    if not known and (saved := _epochs_saved(evidence)) is not None:
        known = [saved]
    if planned is None or not known:
        return None
    unlogged = _epochs_unlogged(evidence) if evidence.info.epoch is None else 0.0
    return Progress(done=max(known), planned=planned, unit="epochs", snapshot=_is_snapshot(evidence), unlogged=unlogged)


def _epochs_counted(evidence: AsRead) -> float | None:
    """Epochs done by the epoch series. One that counts whole epochs names the epoch it is in: from 0, one that is not
    counted yet. Of several rows to an epoch the last is done as far as it has rows. None where a lone epoch has
    several: nothing shows then how many it is to have.
    """
    series = evidence.find("epoch")
    if series is None or not len(series.finite()):
        return None
    values = series.finite().values
    last = float(values.max())
    if (values != np.floor(values)).any():
        return last
    epochs, rows = np.unique(values, return_counts=True)
    if len(epochs) == 1 and rows[0] > 1:
        return None
    usual = float(np.median(rows[:-1])) if len(rows) > 1 else 1.0
    share = 1.0 if rows[-1] + max(1.0, _ABOUT * usual) >= usual else float(rows[-1]) / usual
    return last + float(values.min() == 0.0) - 1.0 + share


def _epochs_saved(evidence: AsRead) -> float | None:
    """Epochs done by the checkpoint's number, where the log ends with the checkpoint. It may count from 0."""
    state = evidence.optimizer
    if state is None or state.counted is None or _begins_later(evidence.info.params):
        return None
    epoch = next((one for key in _SAVED_EPOCHS if isinstance(one := state.extras.get(key), int)), None)
    in_steps = (one for one in evidence.series if one.step_unit is not StepUnit.EPOCH and len(one))
    last = max((int(one.steps.max()) for one in in_steps), default=None)
    # A number of 0 may be one that nobody counted on.
    if not epoch or epoch < 0 or state.counted != last or last <= _BEYOND * (epoch + 1):
        return None
    return epoch + 1.0


def _epochs_unlogged(evidence: AsRead) -> float:
    """Whole epochs that may be between the last point and the next one: ``if epoch % 50 == 0``."""
    series = evidence.find("epoch")
    values = series.finite().values if series is not None else np.empty(0)
    if not len(values) or not bool((values == np.floor(values)).all()):
        return 0.0
    return spacing(values) - 1.0


def _is_snapshot(evidence: AsRead) -> bool:
    return evidence.info.snapshot or evidence.goes_on
