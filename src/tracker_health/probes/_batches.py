"""How many optimizer steps a run can have done at most, by a log whose steps count batches."""

from __future__ import annotations

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, StepUnit

_FEWEST_ROWS = 5
_ROWS_OF_AN_EPOCH = 3
_LATEST_BEGINNING = 0.05
_ROUNDED_TO = 0.05


def steps_at_most(evidence: Evidence) -> int | None:
    """The batches of a run, of which each is one optimizer step or a part of one; None where no log tells.

    A log's steps count batches where they go on by the same number of them in each epoch, as told by the epochs beside
    them: fractions in one ratio to the steps, or whole numbers with as many rows each, three at least. They have to
    begin at the beginning, and no other history may go further. Steps that count calls of a logger are none of
    batches, nor are those that are the epoch's number.
    """
    epochs, loss = evidence.find("epoch"), evidence.find("train_loss")
    if epochs is None or loss is None or evidence.info.goes_on or evidence.info.snapshot:
        return None
    if {epochs.step_unit, loss.step_unit} != {StepUnit.UNKNOWN} or epochs.went_back or loss.went_back:
        return None
    counted = epochs.finite()
    steps, values = counted.steps, counted.values
    if len(np.intersect1d(steps, loss.clean().steps)) < _FEWEST_ROWS or steps[0] < 0:
        return None
    apart = int(np.median(np.diff(steps)))
    first, last = int(steps[0]), int(steps[-1])
    if first > max(apart, _LATEST_BEGINNING * last):
        return None
    whole = bool((values == np.floor(values)).all())
    if not (_in_whole_epochs(steps, values, apart) if whole else _in_one_ratio(steps, values, apart)):
        return None
    furthest = max(int(series.steps.max()) for series in evidence.series if len(series))
    # Of every tenth step, nine may have come after the last of them.
    most = last + apart - 1 + (first == 0)
    return most if furthest <= most else None


def _in_one_ratio(steps: IntArray, epochs: FloatArray, apart: int) -> bool:
    """Whether each row has as many steps behind it as its fraction of epochs says, and an epoch more than one."""
    each = float(epochs[-1] - epochs[0]) / float(steps[-1] - steps[0])
    if not 0.0 < each < 1.0:
        return False
    expected = epochs[0] + each * (steps - steps[0])
    begins = abs(float(epochs[0]) - each * float(steps[0])) <= each * apart + _ROUNDED_TO
    return begins and float(np.abs(epochs - expected).max()) <= _ROUNDED_TO


def _in_whole_epochs(steps: IntArray, epochs: FloatArray, apart: int) -> bool:
    """Whether the epochs go up one by one from 0 or 1, each after as many steps; the last one may be cut short."""
    numbers, rows = np.unique(epochs, return_counts=True)
    if numbers[0] not in (0.0, 1.0) or (np.diff(epochs) < 0).any() or (np.diff(numbers) != 1).any():
        return False
    if rows[:-1].min(initial=rows[0]) < _ROWS_OF_AN_EPOCH:
        return False
    ends = steps[np.searchsorted(epochs, numbers[:-1], side="right") - 1]
    lengths = np.diff(ends, prepend=min(int(steps[0]) - apart, 0))
    return not len(lengths) or int(lengths.max() - lengths.min()) <= apart
