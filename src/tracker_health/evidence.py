"""What a run left behind, as plain typed parts: the only thing that rules see.

Readers and stores make these; nothing here does I/O. Arrays are float64 or int64 and are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
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
    WEIGHT_CHANGES = "weight_changes"
    OPTIMIZER_STEPS = "optimizer_steps"
    PLAN = "plan"
    TEXT_LOG = "text_log"
    ENDING = "ending"
    DLM_STEP_LOG = "dlm_step_log"
    DLM_CHECKPOINT = "dlm_checkpoint"
    SIBLINGS = "siblings"


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
    def _passes(self) -> IntArray:
        """Where in the order of arrival the step counter went back for a pass that ends before an earlier one does: the
        beginnings of the passes after the first. Empty where the last pass has written over all that came after its
        beginning, and where the points are just in disorder.
        """
        steps = self.steps[self._arrival[: len(self) - self.summaries]]
        back = np.flatnonzero(steps[1:] < steps[:-1]) + 1
        if not len(back) or np.diff(back, prepend=0, append=len(steps)).min() < _SHORTEST_PASS:
            return back[:0]
        last = back[-1]
        return back if steps[last:].max() < steps[:last].max() else back[:0]

    @cached_property
    def superseded(self) -> int:
        """How many of the first points to arrive belong to a run that another one, into the same history, came after.

        It began at the first step again and ended before the earlier one did: what that has behind this end is not
        its continuation.
        """
        if not len(self._passes):
            return 0
        steps = self.steps[self._arrival].astype(np.float64)
        rhythm = float(np.median(np.diff(steps[: self._passes[0]])))
        last = int(self._passes[-1])
        return last if steps[last] <= steps[0] + rhythm else 0

    @property
    def went_back(self) -> bool:
        """Whether the history mixes two passes: the steps went back to the middle, and did not come as far again."""
        return bool(len(self._passes)) and not self.superseded

    @cached_property
    def _cleaned(self) -> Series:
        arrival = self._arrival[self.superseded : len(self) - self.summaries]
        by_step = arrival[np.argsort(self.steps[arrival], kind="stable")]
        sorted_steps = self.steps[by_step]
        newest = by_step[np.append(sorted_steps[1:] != sorted_steps[:-1], True)] if len(by_step) else by_step
        return self.at(newest)

    def clean(self) -> Series:
        """Sorted by step; of a repeated step the newest value stays (by time where there are times, else by order).

        Non-finite values are kept: a rule that wants finite ones says so. Summaries are left out, and so is a run that
        another one came after: see ``summaries`` and ``superseded``.
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
    ``zeros`` counts exact zeros, ``nonfinite`` NaN and infinities; ``zero_rows`` the rows (output units) of a matrix
    that hold nothing but zeros, None where the values do not come row by row.
    """

    count: int
    mean: float
    rms: float
    minimum: float
    maximum: float
    zeros: int
    nonfinite: int
    zero_rows: int | None = None


def label_of(key: int | str, name: str | None, optimizer: str = "") -> str:
    """What a parameter is called: its name, or its id where there is none; behind its optimizer's, of several."""
    label = name if name is not None else f"#{key}"
    return f"{optimizer}/{label}" if optimizer else label


@dataclass(frozen=True, kw_only=True)
class TensorState:
    """What an optimizer keeps for one parameter. ``step`` is None where it keeps none; likewise the moments.

    ``moment_ratio``: the mean of the squared first moment over the second, over the values whose second moment is above
    0; None where there are none, and for other optimizers than Adam and its like. ``group``: the index of the parameter
    group that lists it. ``kind``: the optimizer's, told by what it keeps ("adam", "adafactor", "momentum", ...; ""
    where nothing of it is known). ``optimizer``: which one it is, in a file with several (a generator's, a
    discriminator's). ``assumed``: the name was not in the file, but is what an assumed order of parameters gives it.
    """

    id: int | str
    shape: tuple[int, ...]
    name: str | None = None
    step: float | None = None
    first_moment: MomentStats | None = None
    second_moment: MomentStats | None = None
    moment_ratio: float | None = None
    group: int | None = None
    kind: str = ""
    optimizer: str = ""
    assumed: bool = False

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def certain_name(self) -> str | None:
        """The name where the file has it: what a verdict may hang on. An assumed one is for people to read."""
        return None if self.assumed else self.name

    @property
    def label(self) -> str:
        """The parameter's name, or its id where the checkpoint has no names."""
        return label_of(self.id, self.name, self.optimizer)


class Attribution(StrEnum):
    """How parameters without names in the file came by one, the best first.

    ``NAMED``: the file names them. ``CONTENT_CHECKED``: as the next, and contents that can tell agree.
    ``ASSUMED_ORDER``: the order of the parameters is assumed, and every shape agrees. ``UNATTRIBUTED``: they have none.
    """

    NAMED = "named"
    CONTENT_CHECKED = "content-checked"
    ASSUMED_ORDER = "assumed-order"
    UNATTRIBUTED = "unattributed"


@dataclass(frozen=True, kw_only=True)
class OptimizerState:
    """An optimizer's saved state: per-parameter statistics, groups, and the plain values stored beside them.

    ``global_step`` comes from the file or from the trainer state beside it, else None. ``extras`` are the plain
    top-level values of the file (epoch, best_val_loss, ...). ``stubs`` are the names of objects in the file that were
    not rebuilt. ``stateless`` are the labels of the parameters that a group lists and for which nothing is kept.
    ``attribution`` says where the tensors' names come from. ``listed``: per group the ids of its parameters in order,
    those without state included; empty where that is not known. ``beside_weights``: whether its file holds the weights
    as well; None where nobody looked.
    """

    source: str
    tensors: tuple[TensorState, ...]
    groups: tuple[Mapping[str, Any], ...] = ()
    global_step: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    stubs: tuple[str, ...] = ()
    stateless: tuple[str, ...] = ()
    attribution: Attribution = Attribution.UNATTRIBUTED
    listed: tuple[tuple[int | str, ...], ...] = ()
    beside_weights: bool | None = None

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
    no floating-point values that are read. ``stats``: the statistics of all its values, where every one was read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rms: float | None = None
    stats: MomentStats | None = None

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class WeightChange:
    """How far a tensor moved between two checkpoints of a run.

    ``rms``: the root mean square of the difference; ``unchanged``: not one value differs, NaN being equal to NaN.
    """

    name: str
    rms: float
    unchanged: bool


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The tensors of saved weights, of one file or of several shards.

    ``changes``: how far they moved since the checkpoint before, ``previous`` its source; empty where there is none.
    ``in_order``: the tensors stand in the order in which the model defines them, as a state dict that was saved whole
    has them; files of safetensors are sorted otherwise.
    """

    source: str
    tensors: tuple[TensorHeader, ...]
    in_order: bool = False
    previous: str = ""
    changes: tuple[WeightChange, ...] = ()

    @property
    def is_adapter(self) -> bool:
        """Whether the file holds adapter weights (LoRA and relatives) rather than a whole model."""
        owners = {tensor.name.partition(".lora_")[0] for tensor in self.tensors if ".lora_" in tensor.name}
        return bool(owners) and not any(_is_base(tensor, owners) for tensor in self.tensors)

    @property
    def has_adapter(self) -> bool:
        """Whether there are adapter weights in the file, alone or beside those of the whole model."""
        return any(".lora_" in tensor.name for tensor in self.tensors)


def _is_base(tensor: TensorHeader, owners: AbstractSet[str]) -> bool:
    """Whether a tensor is the matrix that an adapter of one of these modules is added to."""
    above = tensor.name.rpartition(".")[0]
    return (
        len(tensor.shape) > 1
        and ".lora_" not in tensor.name
        and (above in owners or above.rpartition(".")[0] in owners)
    )


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
class RunEnd:
    """Where a loss began and ended, as levels of several points each: what a run is compared to others by.

    ``metric``: the loss's name. ``step``: its last step.
    """

    metric: str
    step: int
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Siblings:
    """A run's own end, and those of the other runs that it can be compared to: of the same metric, about as long."""

    own: RunEnd
    others: tuple[RunEnd, ...]


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What a console log says that ends a process, or would have: the cause in a few words, and the line itself.

    ``line``: its place among the lines that are not blank, from 1; ``rows_after``: how many rows of the history came
    after it, none where they are few and come no further than those before.
    """

    cause: str
    text: str
    line: int
    rows_after: int


@dataclass(frozen=True, kw_only=True)
class TextLog:
    """A run's console log: how many lines that are not blank it has, how many of them are rows of the history, what
    troubles it tells of, and after which line it said that training was done. ``span``: the first step of the history
    and the furthest one.
    """

    source: str
    lines: int
    rows: int
    done: int | None = None
    troubles: tuple[Trouble, ...] = ()
    span: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The run's own record: status, params, and every metric name seen (ours left out), read or not.

    ``global_step`` and ``epoch`` are what a trainer state says was done; ``snapshot`` is true when that was written
    at a checkpoint in mid-training, so that it cannot tell where the run ended. ``ended_by``: what its process died of
    ("SIGKILL") where somebody saw it die without ending the run.
    """

    status: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    metric_names: tuple[str, ...] = ()
    global_step: int | None = None
    epoch: float | None = None
    snapshot: bool = False
    ended_by: str = ""

    @property
    def killed(self) -> bool:
        """Whether the run's process is known to be gone, and the run was not ended."""
        return self.status == _CRASHED or (bool(self.ended_by) and self.status not in _ENDED)

    @property
    def goes_on(self) -> bool:
        """Whether the run may still be under way."""
        return self.status in _UNFINISHED and not self.killed


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

    ``snapshot``: the run goes on, or was seen in mid-training, so that this is not where it ended. ``unlogged``: how
    much more may have been done since the last point of a log that has every k-th epoch or step only; 0 where the
    number done is exact.
    """

    done: float
    planned: float
    unit: str
    snapshot: bool = False
    unlogged: float = 0.0

    @property
    def fraction(self) -> float:
        """The share of the plan that was done, or may have been: what was not logged counts up to the plan's end."""
        return max(self.done, min(self.done + self.unlogged, self.planned)) / self.planned


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Everything that was read of one run.

    ``missing`` gives, for parts that are not there, a reason better than "not found" (several unrelated checkpoints,
    a file above the download limit). ``notes``: what a reader of the verdict should know besides.
    """

    run: RunRef
    info: RunInfo = field(default_factory=RunInfo)
    series: tuple[Series, ...] = ()
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    siblings: Siblings | None = None
    text_log: TextLog | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
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
        known = [*self._steps_recorded, *(int(counted.max()) for counted in self._steps_logged)]
        return max(known) if known else None

    @property
    def _steps_recorded(self) -> list[int]:
        """What the checkpoint and the trainer state say was done: exact."""
        recorded = [self.optimizer.steps] if self.optimizer is not None else []
        return [steps for steps in (*recorded, self.info.global_step) if steps is not None]

    @property
    def _steps_logged(self) -> list[npt.NDArray[Any]]:
        """The optimizer steps that series have points at."""
        counted: list[npt.NDArray[Any]] = [
            series.steps for series in self.series if series.step_unit is StepUnit.OPTIMIZER_STEP and len(series)
        ]
        counter = self.find("global_step")
        if counter is not None and len(counter.finite()):
            counted.append(counter.finite().values)
        return counted

    @property
    def _steps_unlogged(self) -> float:
        """Steps that may lie between the last point and the next one, which was not reached."""
        if self._steps_recorded:
            return 0.0
        last = max((counted.max() for counted in self._steps_logged), default=0)
        return max((_spacing(one) - 1.0 for one in self._steps_logged if one.max() == last), default=0.0)

    @cached_property
    def progress(self) -> Progress | None:
        """Done against planned, or None where either is unknown."""
        snapshot = self.info.snapshot or self.info.goes_on
        planned_steps = _positive(self.info.params, _PLANNED_STEPS)
        if planned_steps is not None and self.optimizer_steps is not None:
            return Progress(
                done=self.optimizer_steps,
                planned=planned_steps,
                unit="optimizer steps",
                snapshot=snapshot,
                unlogged=self._steps_unlogged,
            )
        planned_epochs = _positive(self.info.params, _PLANNED_EPOCHS)
        known = [done for done in (self.info.epoch, self._epochs_counted) if done is not None]
        if planned_epochs is not None and known:
            unlogged = self._epochs_unlogged if self.info.epoch is None else 0.0
            return Progress(
                done=max(known), planned=planned_epochs, unit="epochs", snapshot=snapshot, unlogged=unlogged
            )
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

    @property
    def _epochs_unlogged(self) -> float:
        """Whole epochs that may lie between the last point and the next one: ``if epoch % 50 == 0``."""
        series = self.find("epoch")
        values = series.finite().values if series is not None else np.empty(0)
        if not len(values) or not bool((values == np.floor(values)).all()):
            return 0.0
        return _spacing(values) - 1.0

    def amount(self, role: str) -> int:
        """How much evidence there is for a role, in the unit a ``Need`` counts in; 0 when there is none."""
        measure = _AMOUNTS.get(role)
        if measure is not None:
            return measure(self)
        series = self.find(role)
        return len(series.clean()) if series is not None else 0


_SHORTEST_PASS = 8
_PLANNED_STEPS = ("max_steps", "total_steps", "num_training_steps", "max_iters", "planned_steps")
_PLANNED_EPOCHS = ("num_train_epochs", "max_epochs", "num_epochs", "epochs")


_UNFINISHED = frozenset({"RUNNING", "SCHEDULED"})
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_CRASHED = "CRASHED"


def _spacing(values: npt.NDArray[Any]) -> float:
    """How many whole numbers apart the logged ones are, as a rule; 1 where that cannot be told."""
    distinct = np.unique(values)
    if len(distinct) < 3:
        return 1.0
    return max(1.0, float(np.median(distinct[1:].astype(np.float64) - distinct[:-1])))


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
    Part.WEIGHT_CHANGES: lambda evidence: len(evidence.weights.changes) if evidence.weights is not None else 0,
    Part.OPTIMIZER_STEPS: lambda evidence: int(evidence.optimizer_steps is not None),
    Part.PLAN: lambda evidence: int(evidence.progress is not None),
    Part.TEXT_LOG: lambda evidence: evidence.text_log.lines if evidence.text_log is not None else 0,
    Part.ENDING: lambda evidence: int(evidence.info.killed or evidence.info.status in _ENDED),
    Part.DLM_STEP_LOG: lambda evidence: len(evidence.dlm_step_log) if evidence.dlm_step_log is not None else 0,
    Part.DLM_CHECKPOINT: lambda evidence: int(evidence.dlm_checkpoint is not None),
    Part.SIBLINGS: lambda evidence: len(evidence.siblings.others) if evidence.siblings is not None else 0,
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
