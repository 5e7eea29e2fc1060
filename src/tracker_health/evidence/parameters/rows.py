"""One row of the table: a parameter, and what the checkpoint says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property
from math import prod, sqrt

from tracker_health.evidence.parameters.initial import Initial, initial_of, is_constant
from tracker_health.evidence.parameters.steps import DistanceMoved
from tracker_health.evidence.parameters.words import (
    embedding_kind,
    expert_of,
    is_adapter,
    is_back,
    is_embedding,
    is_front,
    is_of_norm,
    is_offset,
    is_second_factor,
    kind_of,
    may_be_unseen,
    module_of,
    tail_of,
)
from tracker_health.evidence.tensors import MomentStats, TensorHeader, TensorState


class Naming(Enum):
    """How sure it is that a parameter has its name, the surest first.

    ``FILE``: the optimizer's file has it, or there is nothing to match it with. ``ASSUMED``: an assumed order of the
    parameters gives it. ``VALUES``: of those of its shape, it alone still is what an initialiser draws. ``SHAPE``: it
    may be another one of its shape. ``NONE``: it has none.
    """

    FILE = auto()
    ASSUMED = auto()
    VALUES = auto()
    SHAPE = auto()
    NONE = auto()


class Place(StrEnum):
    """Where in its model a parameter is."""

    FRONT = "front"
    MIDDLE = "middle"
    END = "end"
    BRANCH = "branch"
    HEAD = "head"
    ADAPTER = "adapter"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What a parameter is, by its name and shape."""

    EMBEDDING = "embedding"
    MATRIX = "matrix"
    NORM = "norm"
    BIAS = "bias"
    VECTOR = "vector"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameter:
    """A parameter of the model: what the optimizer keeps for it, the weight itself, or both.

    ``label``: what people know it by. ``shape``: None where neither the state nor the weights have it. ``listed``:
    whether an optimizer's group lists it, None where that cannot be known. ``trained``: whether steps were done on it,
    by its state, or where there is none by its weights; None where that cannot be known. ``moved``: whether the
    weight changed since the checkpoint before, None where there is none. ``asks``: whether it asks for a gradient,
    where that is known. ``order``: the sequence in which it stands, the model's ("") or that of its group, and its
    place there; None where no order is known.

    ``gradient``: the root mean square of its gradients; ``snr``: the mean of the squared first moment over the second;
    ``step``: the size of a step at its group's learning rate, ``update_ratio`` that over the weight's. ``decays``: its
    momentum is that of its weight decay and nothing else. ``silent_for``: steps since gradients stopped coming; None
    where they did not. ``is_stepped``: gradients came, and its group has a learning rate. ``walk``: how far its steps
    went. ``is_parameter``: it is none of the buffers that are next to a model's parameters.
    """

    label: str
    name: str | None
    naming: Naming
    shape: tuple[int, ...] | None
    state: TensorState | None = None
    weight: TensorHeader | None = None
    listed: bool | None = None
    trained: bool | None = None
    moved: bool | None = None
    asks: bool | None = None
    order: tuple[str, int] | None = None
    place: Place = Place.UNKNOWN
    gradient: float | None = None
    snr: float | None = None
    step: float | None = None
    update_ratio: float | None = None
    decays: bool = False
    silent_for: float | None = None
    is_stepped: bool = False
    walk: DistanceMoved | None = None
    is_parameter: bool = True

    @property
    def called(self) -> str:
        """Its name where it has one, else its label."""
        return self.name if self.name is not None else self.label

    @property
    def certain(self) -> bool:
        """Whether it is this parameter and no other one of its shape, as far as anything tells."""
        return self.naming is not Naming.SHAPE

    @property
    def shown(self) -> str:
        """How to call it in a message, with how sure that is."""
        if self.naming is Naming.SHAPE:
            return f"{self.called} or another like it"
        return self.label if self.name is None or self.name in self.label else f"{self.label} ({self.name})"

    @property
    def numel(self) -> int:
        return prod(self.shape) if self.shape is not None else 0

    @property
    def is_matrix(self) -> bool:
        return self.shape is not None and len(self.shape) > 1

    @property
    def is_vector(self) -> bool:
        return self.shape is not None and len(self.shape) < 2

    @cached_property
    def kind(self) -> Kind:
        if self.shape is None:
            return Kind.NORM if self.name is not None and is_of_norm(self.name) else Kind.UNKNOWN
        if self.is_matrix:
            is_table = self.name is not None and (embedding_kind(self.name) or is_front(self.name))
            return Kind.EMBEDDING if len(self.shape) == 2 and is_table else Kind.MATRIX
        if self.name is None:
            return Kind.VECTOR
        return Kind.NORM if is_of_norm(self.name) else Kind.BIAS if "bias" in kind_of(self.name) else Kind.VECTOR

    @cached_property
    def initial(self) -> Initial:
        """Whether its weights still are what an initialiser draws."""
        return Initial.UNKNOWN if self.weight is None else initial_of(self.weight)

    @property
    def is_begun(self) -> bool:
        """Whether its weights are to the last value such as layers begin with: a uniform draw, or all ones or zeros."""
        return self.initial is Initial.DRAWN or (self.weight is not None and is_constant(self.weight, 0.0, 1.0))

    @cached_property
    def key(self) -> str:
        """Its name without what wrappers put before it: the same in the optimizer and in the weights."""
        return tail_of(self.called)

    @property
    def module(self) -> str:
        return module_of(self.key)

    @property
    def expert(self) -> str | None:
        """The expert of a mixture that it belongs to."""
        return expert_of(self.name)

    @property
    def is_adapter(self) -> bool:
        return self.name is not None and is_adapter(self.name)

    @property
    def is_second_factor(self) -> bool:
        """Whether it is the second matrix of an adapter, which begins at 0."""
        return self.name is not None and is_second_factor(self.name)

    @property
    def is_zero(self) -> bool:
        """Whether its weights are all 0."""
        return self.weight is not None and is_constant(self.weight, 0.0)

    @property
    def is_front(self) -> bool:
        return self.name is not None and is_front(self.name)

    @property
    def is_embedding(self) -> bool:
        return self.name is not None and is_embedding(self.name)

    @property
    def scale(self) -> float:
        """The size of its weights over what keeps the size of its inputs, which is near 1 in trained models."""
        size = self.weight.rms if self.weight is not None and self.weight.rms else 0.0
        return size * sqrt(prod((self.shape or ())[1:]))

    @property
    def cautious_scale(self) -> float:
        """The same by the smaller of fan-in and fan-out."""
        shape = self.shape or (1,)
        size = self.weight.rms if self.weight is not None and self.weight.rms else 0.0
        return size * sqrt(min(shape[0], prod(shape[1:])))

    @property
    def is_back(self) -> bool:
        return self.name is not None and is_back(self.name)

    @property
    def moment(self) -> MomentStats | None:
        """The second moment, or of an optimizer without one the first."""
        if self.state is None:
            return None
        return self.state.second_moment if self.state.second_moment is not None else self.state.first_moment

    @property
    def silent_share(self) -> float:
        """The share of its values that no gradient ever reached, or by a momentum none for a thousand steps."""
        moment = self.moment
        if moment is None or not moment.count or moment.nonfinite:
            return 0.0
        return 1.0 if self.decays else moment.zeros / moment.count

    @property
    def steps(self) -> float | None:
        """How many it counted."""
        return None if self.state is None else self.state.step

    @property
    def certain_name(self) -> str | None:
        """The name where the optimizer's file has it: what a verdict may depend on."""
        return self.name if self.naming is Naming.FILE else None

    @property
    def may_be_silent(self) -> bool:
        """Whether a gradient of exact zeros is right: of a bias before a normalisation, of an offset that cancels, of
        rows that were never looked up. Without a name that is so of one that is not silent to the last value.
        """
        if not self.is_matrix:
            return True
        if self.shape is not None and self.shape[-1] == 1 and is_offset(self.name or ""):
            return True
        if self.certain_name is not None:
            return may_be_unseen(self.certain_name)
        second = self.state.second_moment if self.state is not None else None
        return second is not None and second.zeros < second.count

    @property
    def all_stats(self) -> tuple[MomentStats, ...]:
        """The statistics of everything that was read of it."""
        state, weight = self.state, self.weight
        known = (
            state.first_moment if state is not None else None,
            state.second_moment if state is not None else None,
            weight.stats if weight is not None else None,
        )
        return tuple(one for one in known if one is not None)

    @property
    def nonfinite(self) -> int:
        return sum(one.nonfinite for one in self.all_stats)

    @property
    def dead_rows(self) -> int:
        """Output units without a gradient, or whose weights are all 0."""
        second = self.state.second_moment if self.state is not None else None
        weight = self.weight.stats if self.weight is not None else None
        return max((one.zero_rows or 0 for one in (second, weight) if one is not None), default=0)
