"""What one object of a step log is: of which step and of which data. Trainers agree on neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from tracker_health.evidence import IntArray, StepUnit
from tracker_health.readers.json_lines import as_step
from tracker_health.roles import words_of

STEP_FIELDS = (
    "step", "global_step", "iteration", "current_steps", "iter", "train/global_step", "trainer/global_step", "_step",
    "num_updates", "train_num_updates", "valid_num_updates", "training_iteration",
)  # fmt: skip
_UNITS = dict.fromkeys(
    ("global_step", "current_steps", "train/global_step", "num_updates", "train_num_updates", "valid_num_updates"),
    StepUnit.OPTIMIZER_STEP,
) | {"_step": StepUnit.LOG_CALL}
_EPOCH_FIELD = "epoch"
# Of a hostile log: nobody trains for so long.
_EPOCHS_KEPT = 100_000
_MAX_OFFSET = 2**53

# Of objects with another type only those of held-out data are points: a banner may well have a step.
_POINT_TYPES = frozenset(
    ("step", "train", "training", "train_step", "training_step", "iteration", "batch", "epoch", "metric", "metrics",
     "log")
)  # fmt: skip
_SPLIT_FIELDS = frozenset({"split", "phase", "mode", "stage", "subset", "type"})
HELD_OUT = {
    "val": "val", "valid": "valid", "validation": "validation", "eval": "eval", "evaluation": "eval", "dev": "dev",
    "test": "test", "testing": "test", "validate": "validation", "validating": "validation", "evaluate": "eval",
    "evaluating": "eval",
}  # fmt: skip


class Row(NamedTuple):
    """Where the numbers of an object belong.

    ``field``: the one that the step was found in. ``data``: the word for the held-out data that they were measured on,
    empty for the training's. ``epoch_only``: the object names no step, so that it says nothing new about one that has
    been logged.
    """

    step: int
    field: str
    unit: StepUnit
    data: str = ""
    epoch_only: bool = False


@dataclass(slots=True)
class Clock:
    """The step of each object of a log, in order.

    An object with an epoch and no step belongs to the last step before it, or in a log without steps to its epoch.
    Steps that begin anew with each epoch are counted on: ``offsets`` holds, by epoch, what was done before it. That is
    exact where rows say how many steps an epoch has (``epoch_steps``, 0 where none does, to be set before such a row)
    and go on to its end; elsewhere it is what their spacing tells. ``gap``: how far the last two rows are apart.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    epoch: int | None = None
    first: int = 0
    last: int = 0
    stride: int = 1
    now: int | None = None
    unit: StepUnit = StepUnit.UNKNOWN
    epoch_steps: int = 0
    gap: int = 0
    _counted: int = 0
    _begins_anew: bool = False

    @property
    def offset(self) -> int:
        """What was done before the epoch at hand."""
        return self.offsets.get(self.epoch, 0) if self.epoch is not None else 0

    @property
    def end_of_epoch(self) -> int | None:
        """The step at which the epoch at hand ends, where its last row is there; else None."""
        following = (
            self.last + self.gap + (self.first == 0)
        )  # counted from 0, none has the epoch's length as its number
        if self.epoch is None or not self.epoch_steps or not self.last <= self.epoch_steps < following:
            return None
        return self.offset + self.epoch_steps

    def row(self, record: Mapping[str, Any]) -> Row | None:
        """Where an object's numbers belong; None where it is no point of a history."""
        data = _held_out(record)
        if not data and not _may_be_point(record.get("type", "step")):
            return None
        name = "step" if record.get("step") is not None else _other_step_field(record)
        if data and name == "iter" and record.get(_EPOCH_FIELD) is not None:
            name = None  # of OpenMMLab's logs: how many batches of held-out data there were
        if name is None:
            return self._by_epoch(as_step(record.get(_EPOCH_FIELD)), data)
        step = as_step(record[name])
        if step is None:
            return None
        unit = _UNITS.get(name, StepUnit.UNKNOWN)
        return Row(self.at(step, unit, record.get(_EPOCH_FIELD), data), name, unit, data)

    def at(self, step: int, unit: StepUnit, epoch: Any, data: str) -> int:
        """The step, counted from the beginning of the run, of a row that names a step."""
        self.unit = unit
        if epoch is not None or self.epoch is not None:
            step = self._counted_on(step, as_step(epoch), data)
        self.now = step
        return step

    def all_at(self, steps: IntArray, unit: StepUnit, epochs: Iterable[Any] | None, data: str) -> IntArray:
        """``at`` for rows one after the other; ``epochs``: theirs, None where they have none."""
        if self.epoch is not None or epochs is not None:
            every = repeat(None) if epochs is None else epochs
            counted = [self.at(step, unit, epoch, data) for step, epoch in zip(steps.tolist(), every, strict=False)]
            return np.array(counted, dtype=np.int64)
        self.unit, self.now = unit, int(steps[-1])
        return steps

    def _by_epoch(self, epoch: int | None, data: str) -> Row | None:
        if epoch is None:
            return None
        if self.now is None:
            return Row(epoch, "", StepUnit.EPOCH, data)
        return Row(self.now, "", self.unit, data, epoch_only=True)

    def _counted_on(self, step: int, epoch: int | None, data: str) -> int:
        if epoch is None or data:
            known = self.epoch if epoch is None else epoch
            return step + self.offsets.get(known, 0) if known is not None else step
        if self.epoch is None or epoch != self.epoch:
            self._enter(epoch, step)
        elif step > self.last:
            self.stride, self.last = step - self.last, step
        counted = step + self.offsets[epoch]
        if counted > self._counted:
            self.gap, self._counted = counted - self._counted, counted
        return counted

    def _enter(self, epoch: int, step: int) -> None:
        before = self.offset
        if self.epoch is None or epoch < self.epoch:  # the beginning, or a resume
            self.offsets.setdefault(epoch, 0)
        else:
            offset = before + self._done_in_epochs(epoch, step)
            if len(self.offsets) >= _EPOCHS_KEPT:
                self.offsets.clear()
            self.offsets[epoch] = offset if abs(offset) < _MAX_OFFSET else 0
        # Of an epoch with one row that row is likely its last.
        self.epoch, self.first, self.last, self.stride = epoch, step, step, max(step, 1)

    def _done_in_epochs(self, epoch: int, step: int) -> int:
        """How many steps there were since the beginning of the epoch at hand, where a later one begins with this step;
        0 where the steps go on from one epoch to the next.
        """
        total = self.epoch_steps if max(step, self.last) <= self.epoch_steps else 0
        anew = step <= self.first or (total > 0 and (self._begins_anew or step < self.last))
        if not anew:
            return 0
        self._begins_anew |= total > 0
        # The rows of one process among several, of samples, may end far from where the data does.
        if total and (self.first == self.last or total <= self.last + 2 * self.gap):
            return (epoch - (self.epoch or 0)) * total
        return self.last - self.first + self.stride


def _other_step_field(record: Mapping[str, Any]) -> str | None:
    return next((name for name in STEP_FIELDS if record.get(name) is not None), None)


def _may_be_point(kind: Any) -> bool:
    return isinstance(kind, str) and kind.lower() in _POINT_TYPES


def _held_out(record: Mapping[str, Any]) -> str:
    for name in sorted(_SPLIT_FIELDS.intersection(record)):
        value = record.get(name)
        if value.__class__ is str and value.lower() in HELD_OUT:
            return HELD_OUT[value.lower()]
    return ""


@lru_cache(maxsize=4096)
def name_on(data: str, name: str) -> str:
    """What a metric is called that was measured on held-out data: ``loss`` on ``val`` is ``val/loss``; ``val_loss``
    says so itself.
    """
    return name if not data or any(word in HELD_OUT for word in words_of(name)) else f"{data}/{name}"
