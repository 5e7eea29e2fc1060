"""What a checkpoint holds: the optimizer's state of each parameter, and the weights."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np

from tracker_health.evidence.schedule import SavedSchedule


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
    """What a parameter is called: its name, or its id where there is none; behind its optimizer's, of several.

    Args:
        key: The parameter's id.
        name: Its name, or None.
        optimizer: Which optimizer's it is, where there are several.

    Returns:
        The label, for people.
    """
    label = name if name is not None else f"#{key}"
    return f"{optimizer}/{label}" if optimizer else label


@dataclass(frozen=True, kw_only=True)
class TensorState:
    """What an optimizer keeps for one parameter. ``step`` is None where it keeps none; likewise the moments.

    ``moment_ratio``: the mean of the squared first moment over the second, over the values whose second moment is above
    0; None where there are none, and for other optimizers than Adam and comparable ones. ``group``: the index of the
    parameter group that lists it. ``kind``: the optimizer's, told by what it keeps ("adam", "adafactor", "momentum",
    ...; "" where nothing of it is known). ``optimizer``: which one it is, in a file with several (a generator's, a
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
        """The name where the file has it: what a verdict may depend on. An assumed one is for people to read."""
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
    """An optimizer's saved state: per-parameter statistics, groups, and the plain values stored next to them.

    ``global_step`` comes from the file or from the trainer state next to it, else None. ``extras`` are the plain
    top-level values of the file (epoch, best_val_loss, ...). ``stubs`` are the names of objects in the file that were
    not rebuilt. ``stateless`` are the labels of the parameters that a group lists and for which nothing is kept;
    ``frozen``: those of them that ask for no gradient, None where that is not known (a file does not say).
    ``presumed``: of those without a name the one that the assumed order gives them, by label.
    ``attribution`` says where the tensors' names come from. ``listed``: per group the ids of its parameters in order,
    those without state included; empty where that is not known. ``beside_weights``: whether its file holds the weights
    as well; None where nobody looked. ``loss_scale``: of half precision, as the scaler saved it with the checkpoint.
    ``schedules``: the learning-rate schedulers that were saved with it. ``early_stopping``: what in it shows that the
    training was set up to stop early. ``notes``: what of all that could not be read.
    """

    source: str
    tensors: tuple[TensorState, ...]
    groups: tuple[Mapping[str, Any], ...] = ()
    global_step: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    stubs: tuple[str, ...] = ()
    stateless: tuple[str, ...] = ()
    frozen: tuple[str, ...] | None = None
    presumed: Mapping[str, str] = field(default_factory=dict)
    attribution: Attribution = Attribution.UNATTRIBUTED
    listed: tuple[tuple[int | str, ...], ...] = ()
    beside_weights: bool | None = None
    loss_scale: float | None = None
    schedules: tuple[SavedSchedule, ...] = ()
    early_stopping: str = ""
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> int | None:
        """Optimizer steps by the optimizer's own count: the most that any parameter has seen."""
        counted = [tensor.step for tensor in self.tensors if tensor.step is not None and np.isfinite(tensor.step)]
        return max((int(step) for step in counted if step >= 0), default=None)

    @property
    def steps(self) -> int | None:
        """Optimizer steps done: by the optimizer's own count, else the file's global step."""
        counted = self.counted
        return self.global_step if counted is None else counted

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
    ``first``: where nothing changed since then, the first checkpoint of three or more, and ``same_as_first`` whether it
    holds the same, too; empty where a file next to them may hold another part of the model.
    ``idle_average``: the key of a moving average that is the same as in the first one and in the one before, though the
    model changed.
    ``task`` and ``saved_beside``: of an adapter, the task that its configuration names, and the modules that are saved
    with it whole.
    ``in_order``: the tensors are in the order in which the model defines them, as a state dict that was saved whole
    has them; files of safetensors are sorted otherwise.
    ``left_out``: how many tensors more the files have, of a kind that is not read: quantised, sparse.
    """

    source: str
    tensors: tuple[TensorHeader, ...]
    in_order: bool = False
    previous: str = ""
    changes: tuple[WeightChange, ...] = ()
    first: str = ""
    same_as_first: bool = False
    idle_average: str = ""
    task: str = ""
    saved_beside: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def unread(self) -> int:
        """How many tensors were not read to their end."""
        return self.left_out + sum(one.stats is None and one.numel > 0 for one in self.tensors)

    @property
    def is_adapter(self) -> bool:
        """Whether the file holds adapter weights (LoRA and relatives) rather than a whole model."""
        owners = {tensor.name.partition(".lora_")[0] for tensor in self.tensors if ".lora_" in tensor.name}
        return bool(owners) and not any(_is_base(tensor, owners) for tensor in self.tensors)

    @property
    def is_hollow_adapter(self) -> bool:
        """Whether the file is an adapter's and holds no value: no tensor, or nothing but tensors of size 0."""
        return not self.tensors or (self.has_adapter and not any(one.numel for one in self.tensors))

    @property
    def has_adapter(self) -> bool:
        """Whether there are adapter weights in the file, alone or next to those of the whole model."""
        return any(".lora_" in tensor.name for tensor in self.tensors)


def _is_base(tensor: TensorHeader, owners: AbstractSet[str]) -> bool:
    """Whether a tensor is the matrix that an adapter of one of these modules is added to."""
    above = tensor.name.rpartition(".")[0]
    return (
        len(tensor.shape) > 1
        and ".lora_" not in tensor.name
        and (above in owners or above.rpartition(".")[0] in owners)
    )
