"""What a run left behind, as plain typed parts: the only thing that rules see.

Readers and stores make these; nothing here does I/O. Arrays are float64 or int64 and are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class StepUnit(StrEnum):
    """What one unit of a series' step axis is."""

    OPTIMIZER_STEP = "optimizer_step"
    EPOCH = "epoch"
    LOG_CALL = "log_call"
    UNKNOWN = "unknown"


class Part(StrEnum):
    """The evidence that is not a metric series. Stands where a series' role stands in a ``Need``."""

    OPTIMIZER_STATE = "optimizer_state"
    SECOND_MOMENTS = "second_moments"
    WEIGHTS = "weights"
    OPTIMIZER_STEPS = "optimizer_steps"
    PLAN = "plan"
    DLM_STEP_LOG = "dlm_step_log"
    DLM_CHECKPOINT = "dlm_checkpoint"


@dataclass(frozen=True, kw_only=True)
class RunRef:
    """Which run: its store (``directory``, ``mlflow``), its id there, its name and its page."""

    store: str
    id: str
    name: str
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a rule cannot do without, declared so that the engine can skip it with a reason.

    ``role`` is a series role (``train_loss``) or a ``Part``. ``min_points`` counts in the ``unit`` of the evidence:
    points of a series, steps of a log, optimizer steps. ``any_of`` names alternatives to ``role``: one of them is
    enough. An ``optional`` need is read when it is there and never skips the rule.
    """

    role: str
    min_points: int = 1
    unit: str = "points"
    any_of: tuple[str, ...] = ()
    optional: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.role, *self.any_of)


@dataclass(frozen=True, kw_only=True, eq=False)
class Series:
    """One metric's history in stored order.

    ``steps``: int64[n]; ``values``: float64[n], non-finite kept; ``times``: float64[n] in seconds since 1970 (UTC),
    or None where the source has none. ``source`` says where it was read (a file name, or the tracker).
    """

    name: str
    steps: IntArray
    values: FloatArray
    times: FloatArray | None = None
    role: str | None = None
    source: str = ""
    step_unit: StepUnit = StepUnit.UNKNOWN

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nonfinite(self) -> int:
        """How many values are NaN or infinite."""
        return int(np.count_nonzero(~np.isfinite(self.values)))

    @cached_property
    def _arrival(self) -> IntArray:
        """Indices in the order in which the points came: by time where there are times, else as stored."""
        return np.arange(len(self)) if self.times is None else np.argsort(self.times, kind="stable")

    @cached_property
    def summaries(self) -> int:
        """How many of the last points to arrive went back to the very first step and led nowhere.

        A summary logged after training without a step lands at the tracker's default step 0, on top of the first point.
        """
        if not len(self):
            return 0
        elsewhere = np.flatnonzero(self.steps[self._arrival] != self.steps.min())
        return len(self) - 1 - int(elsewhere[-1]) if len(elsewhere) else 0

    @cached_property
    def _cleaned(self) -> Series:
        arrival = self._arrival[: len(self) - self.summaries]
        by_step = arrival[np.argsort(self.steps[arrival], kind="stable")]
        sorted_steps = self.steps[by_step]
        newest = by_step[np.append(sorted_steps[1:] != sorted_steps[:-1], True)] if len(by_step) else by_step
        return self.at(newest)

    def clean(self) -> Series:
        """Sorted by step; of a repeated step the newest value stays (by time where there are times, else by order).

        Non-finite values are kept: a rule that wants finite ones says so. Summaries are left out: see ``summaries``.
        """
        return self._cleaned

    def finite(self) -> Series:
        """The cleaned series without its NaN and infinite values."""
        clean = self.clean()
        return clean.at(np.flatnonzero(np.isfinite(clean.values)))

    def at(self, indices: IntArray) -> Series:
        """The points at these indices, in their order."""
        return replace(
            self,
            steps=self.steps[indices],
            values=self.values[indices],
            times=None if self.times is None else self.times[indices],
        )


@dataclass(frozen=True, kw_only=True)
class MomentStats:
    """Statistics of one moment tensor, accumulated in float64 over every stored value.

    ``mean`` and ``rms`` are over all values, so one NaN makes them NaN; ``minimum`` and ``maximum`` likewise.
    ``zeros`` counts exact zeros, ``nonfinite`` NaN and infinities.
    """

    count: int
    mean: float
    rms: float
    minimum: float
    maximum: float
    zeros: int
    nonfinite: int


def label_of(key: int | str, name: str | None) -> str:
    """What a parameter is called: its name, or its id where there is none."""
    return name if name is not None else f"#{key}"


@dataclass(frozen=True, kw_only=True)
class TensorState:
    """What an optimizer keeps for one parameter. ``step`` is None where it keeps none; likewise the moments.

    ``moment_ratio``: the mean of the squared first moment over the second, over the values whose second moment is above
    0; None where there are none. ``group``: the index of the parameter group that lists it.
    """

    id: int | str
    shape: tuple[int, ...]
    name: str | None = None
    step: float | None = None
    first_moment: MomentStats | None = None
    second_moment: MomentStats | None = None
    moment_ratio: float | None = None
    group: int | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def label(self) -> str:
        """The parameter's name, or its id where the checkpoint has no names."""
        return label_of(self.id, self.name)


@dataclass(frozen=True, kw_only=True)
class OptimizerState:
    """An optimizer's saved state: per-parameter statistics, groups, and the plain values stored beside them.

    ``global_step`` comes from the file or from the trainer state beside it, else None. ``extras`` are the plain
    top-level values of the file (epoch, best_val_loss, ...). ``stubs`` are the names of objects in the file that were
    not rebuilt. ``stateless`` are the labels of the parameters that a group lists and for which nothing is kept.
    """

    source: str
    tensors: tuple[TensorState, ...]
    groups: tuple[Mapping[str, Any], ...] = ()
    global_step: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    stubs: tuple[str, ...] = ()
    stateless: tuple[str, ...] = ()

    @property
    def steps(self) -> int | None:
        """Optimizer steps done: the most that any parameter has seen, else the file's global step."""
        counted = [tensor.step for tensor in self.tensors if tensor.step is not None and np.isfinite(tensor.step)]
        positive = [int(step) for step in counted if step >= 0]
        return max(positive) if positive else self.global_step

    @property
    def with_second_moment(self) -> tuple[TensorState, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.second_moment is not None)


@dataclass(frozen=True, kw_only=True)
class TensorHeader:
    """One tensor of a weights file: name, shape and dtype as the file's header has them.

    ``rms``: the root mean square of its values, or of a million of them spread over a large tensor; None where it holds
    no floating-point values that are read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rms: float | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The tensors of a weights file, from its header alone."""

    source: str
    tensors: tuple[TensorHeader, ...]

    @property
    def is_adapter(self) -> bool:
        """Whether the file holds adapter weights (LoRA and relatives) rather than a whole model."""
        return any(".lora_" in tensor.name for tensor in self.tensors)


@dataclass(frozen=True, kw_only=True, eq=False)
class DlmStepLog:
    """The step log that the rule ``training-drift`` reads, by that rule's own conventions.

    ``steps``: int64[n], ascending; ``losses``: float64[n], as logged (non-finite kept); ``files``: the log files, in
    name order.
    """

    files: tuple[str, ...]
    steps: IntArray
    losses: FloatArray

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, kw_only=True)
class DlmCheckpoint:
    """The adapter checkpoint that the rule ``gradient-ghost`` reads: a ``training_state.pt`` with a global step.

    ``weight_names`` are the tensor names of ``adapter_model.safetensors`` beside it, None where that is missing or
    unusable; ``weights_reason`` then says why.
    """

    state: OptimizerState
    global_step: int
    weight_names: tuple[str, ...] | None
    weights_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The run's own record: status, params, and every metric name seen (ours left out), read or not.

    ``global_step`` and ``epoch`` are what a trainer state says was done; ``snapshot`` is true when that was written
    at a checkpoint in mid-training, so that it cannot tell where the run ended.
    """

    status: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    metric_names: tuple[str, ...] = ()
    global_step: int | None = None
    epoch: float | None = None
    snapshot: bool = False


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is there but could not be read, or not completely.

    ``roles`` are the parts it took away (a rule that needs one of them becomes an error); empty when the rest could
    be used.
    """

    source: str
    message: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the run came, in optimizer steps or in epochs (``unit``), and how far it was meant to go.

    ``snapshot``: the run goes on, or was seen in mid-training, so that this is not where it ended.
    """

    done: float
    planned: float
    unit: str
    snapshot: bool = False

    @property
    def fraction(self) -> float:
        return self.done / self.planned


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything that was read of one run.

    ``missing`` gives, for parts that are not there, a reason better than "not found" (several unrelated checkpoints,
    a file above the download limit).
    """

    run: RunRef
    info: RunInfo = field(default_factory=RunInfo)
    series: tuple[Series, ...] = ()
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    problems: tuple[Problem, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""

    @cached_property
    def by_role(self) -> Mapping[str, Series]:
        """Per role the series with the longest history; of equally long ones the first by name."""
        best: dict[str, Series] = {}
        for series in sorted(self.series, key=lambda one: (-len(one), one.name)):
            if series.role is not None:
                best.setdefault(series.role, series)
        return best

    def find(self, role: str) -> Series | None:
        """The series of a role, or None."""
        return self.by_role.get(role)

    def first(self, *roles: str) -> Series:
        """The series of the first of these roles that is there.

        Raises:
            LookupError: none is; a rule's ``needs`` should have said so.
        """
        for role in roles:
            if role in self.by_role:
                return self.by_role[role]
        raise LookupError(f"no series has one of the roles {roles}: the rule's needs must name them")

    @cached_property
    def optimizer_steps(self) -> int | None:
        """Optimizer steps done, from the checkpoint, the trainer state, or a series counted in optimizer steps."""
        known = [self.optimizer.steps] if self.optimizer is not None else []
        known.append(self.info.global_step)
        known += [
            int(series.steps.max())
            for series in self.series
            if series.step_unit is StepUnit.OPTIMIZER_STEP and len(series)
        ]
        counter = self.find("global_step")
        if counter is not None and len(counter.finite()):
            known.append(int(counter.finite().values.max()))
        present = [steps for steps in known if steps is not None]
        return max(present) if present else None

    @cached_property
    def progress(self) -> Progress | None:
        """Done against planned, or None where either is unknown."""
        snapshot = self.info.snapshot or self.info.status in _UNFINISHED
        planned_steps = _positive(self.info.params, _PLANNED_STEPS)
        if planned_steps is not None and self.optimizer_steps is not None:
            return Progress(done=self.optimizer_steps, planned=planned_steps, unit="optimizer steps", snapshot=snapshot)
        planned_epochs = _positive(self.info.params, _PLANNED_EPOCHS)
        known = [done for done in (self.info.epoch, self._epochs_counted) if done is not None]
        if planned_epochs is not None and known:
            return Progress(done=max(known), planned=planned_epochs, unit="epochs", snapshot=snapshot)
        return None

    @property
    def plan(self) -> Mapping[str, str]:
        """The params that say how far the run was meant to go, as they stand there: in steps, then in epochs."""
        names = (*_PLANNED_STEPS, *_PLANNED_EPOCHS)
        return {name: self.info.params[name] for name in names if _positive(self.info.params, (name,)) is not None}

    @property
    def _epochs_counted(self) -> float | None:
        """Epochs done by the epoch series. One that counts whole epochs from 0 names the epoch it is in."""
        series = self.find("epoch")
        if series is None or not len(series.finite()):
            return None
        values = series.finite().values
        from_zero = values.min() == 0.0 and bool((values == np.floor(values)).all())
        return float(values.max()) + from_zero

    @cached_property
    def classes(self) -> int | None:
        """The number of classes or the size of the vocabulary that the loss chooses from, where a param tells it."""
        known = _positive(self.info.params, _CLASSES)
        return int(known) if known is not None and 2 <= known < 10**8 and known == int(known) else None

    def amount(self, role: str) -> int:
        """How much evidence there is for a role, in the unit a ``Need`` counts in; 0 when there is none."""
        measure = _AMOUNTS.get(role)
        if measure is not None:
            return measure(self)
        series = self.find(role)
        return len(series.clean()) if series is not None else 0


_PLANNED_STEPS = ("max_steps", "total_steps", "num_training_steps", "max_iters", "planned_steps")
_CLASSES = ("num_classes", "n_classes", "num_labels", "vocab_size", "classes")
_PLANNED_EPOCHS = ("num_train_epochs", "max_epochs", "num_epochs", "epochs")


_UNFINISHED = frozenset({"RUNNING", "SCHEDULED"})


def _positive(params: Mapping[str, str], names: Iterable[str]) -> float | None:
    for name in names:
        try:
            value = float(params[name])
        except (KeyError, ValueError):
            continue
        if 0 < value < float("inf"):
            return value
    return None


def _amount_of_optimizer_state(evidence: Evidence) -> int:
    if evidence.optimizer is None:
        return 0
    return evidence.optimizer.steps or 1


_AMOUNTS: Mapping[str, Callable[[Evidence], int]] = {
    Part.OPTIMIZER_STATE: _amount_of_optimizer_state,
    Part.SECOND_MOMENTS: lambda evidence: len(evidence.optimizer.with_second_moment) if evidence.optimizer else 0,
    Part.WEIGHTS: lambda evidence: int(evidence.weights is not None),
    Part.OPTIMIZER_STEPS: lambda evidence: int(evidence.optimizer_steps is not None),
    Part.PLAN: lambda evidence: int(evidence.progress is not None),
    Part.DLM_STEP_LOG: lambda evidence: len(evidence.dlm_step_log) if evidence.dlm_step_log is not None else 0,
    Part.DLM_CHECKPOINT: lambda evidence: int(evidence.dlm_checkpoint is not None),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the configured rules need, so that a source reads nothing else.

    ``select_names`` takes every metric name of a run and gives the needed ones with their roles. ``parts`` are the
    parts that some rule needs. ``checkpoint`` is a path chosen by the user, relative to the run; ``max_download`` a
    limit in bytes.
    """

    select_names: Callable[[Iterable[str]], Mapping[str, str]]
    parts: frozenset[str]
    checkpoint: str | None = None
    max_download: int = 2 * 10**9

    def needs(self, *parts: Part) -> bool:
        """Whether some rule needs one of these parts."""
        return not self.parts.isdisjoint(parts)
