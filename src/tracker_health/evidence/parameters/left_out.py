"""What is asked about: parameters that were left out of training in one way, next to those that are trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from math import log

from tracker_health.evidence.parameters.initial import Initial, never_trained
from tracker_health.evidence.parameters.joining import factors_beside
from tracker_health.evidence.parameters.rows import Parameter
from tracker_health.evidence.parameters.words import module_of, position_of

ONE_LAYER = 2
"""Tensors of one layer: a weight and its bias."""
FRESH = 0.7
"""Of the loss of guessing: where a classifier begins that was not trained before."""
MOST_OF_A_MODEL = 0.7
"""The share of a model's tensors above which what is not trained is its backbone."""


class Left(Enum):
    """How a parameter was left out of training.

    ``WITHOUT_STATE``: the optimizer lists it and keeps nothing, as no gradient reached it. ``NOT_GIVEN``: no group
    lists it. ``WITHOUT_RATE``: its group's learning rate always was 0. ``UNMOVED``: no optimizer's state tells, and it
    did not change between two checkpoints.
    """

    WITHOUT_STATE = auto()
    NOT_GIVEN = auto()
    WITHOUT_RATE = auto()
    UNMOVED = auto()


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """What is asked about: parameters that were left out in one way, next to those that are trained."""

    how: Left
    missing: tuple[Parameter, ...]
    trained: tuple[Parameter, ...]
    all_amount: int
    says_so: str = ""
    is_adapter_file: bool = False
    first_loss: float | None = None

    @cached_property
    def named(self) -> bool:
        return all(one.name is not None for one in (*self.missing, *self.trained))

    @cached_property
    def matrices(self) -> tuple[Parameter, ...]:
        """The trained ones."""
        return tuple(one for one in self.trained if one.is_matrix)

    @cached_property
    def adapters(self) -> bool:
        """Whether what is trained is an adapter, by its names or its shapes, and with it a head and little else."""
        if any(one.is_adapter for one in self.trained):
            return True
        others = [one for one in self.matrices if not one.is_back and one.key not in self._factors]
        return len(self._factors) > len(others)

    @cached_property
    def _factors(self) -> set[str]:
        """The trained matrices next to an untrained one that their product fits."""
        beside = {one for module in self.adapted for one in (module, module_of(module))}
        return {one.key for one in self.matrices if not {one.module, module_of(one.module)}.isdisjoint(beside)}

    @cached_property
    def adapted(self) -> set[str]:
        """The modules with two thin trained factors next to their untrained matrix."""
        missing, trained = _sized(self.missing), _sized(self.trained)
        return factors_beside(missing, trained)

    @cached_property
    def is_front(self) -> bool:
        """Whether nothing that is trained is before any of these, or they are embeddings and stems by their names."""
        return self.is_first or (self.named and all(one.is_front for one in self.missing))

    @cached_property
    def has_order(self) -> bool:
        """Whether it is known where these and the trained matrices stand."""
        return bool(self.matrices) and all(one.order is not None for one in (*self.missing, *self.matrices))

    @cached_property
    def is_first(self) -> bool:
        """Whether nothing that is trained is before any of these: by the order, or else by their names."""
        if not self.has_order:
            return self.named and _lie_before(self.missing, self.trained)
        first: dict[str, int] = {}
        for sequence, place in (one.order for one in self.matrices if one.order is not None):
            first[sequence] = min(place, first.get(sequence, place))
        orders = [one.order for one in self.missing if one.order is not None]
        return all(
            place < first[sequence] if sequence in first else sequence < min(first) for sequence, place in orders
        )

    @cached_property
    def is_random(self) -> bool:
        """Whether these look never trained: nobody keeps random weights on purpose."""
        if not any(one.initial.may_be and (one.certain or one.initial is Initial.DRAWN) for one in self.missing):
            return False  # which one of its shape it is may be open
        matrices = [one for one in self.missing if one.is_matrix]
        if not self.named and 2 * sum(one.weight is not None for one in matrices) <= len(matrices):
            return False  # by their shapes alone some may be another's
        return never_trained([one.weight for one in self.missing if one.weight is not None])

    @property
    def began_fresh(self) -> bool:
        """Whether the loss began about where a classifier guesses. How many answers there are is the width of the
        trained head by its name, or of the last matrix.
        """
        ordered = [one for one in self.matrices if one.order is not None]
        last = max(ordered, key=lambda one: (one.is_back, one.order or ("", 0)), default=None)
        answers = last.shape[0] if last is not None and last.shape else 1
        return self.first_loss is not None and self.first_loss >= FRESH * log(max(answers, 2))

    @cached_property
    def is_one_layer(self) -> bool:
        return len(self.missing) <= ONE_LAYER and len({one.module for one in self.missing}) == 1

    @cached_property
    def are_most(self) -> bool:
        return len(self.missing) > MOST_OF_A_MODEL * self.all_amount


def _sized(rows: Iterable[Parameter]) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.key, one.shape) for one in rows if one.name is not None and one.shape is not None]


def _lie_before(missing: Sequence[Parameter], trained: Sequence[Parameter]) -> bool:
    """By their names: nothing that is trained is before any of these."""
    first: dict[tuple[int, str], tuple[int, int]] = {}
    for one in trained:
        place = position_of(one.key)
        key, at = (place.part, place.list_name), (place.stage, place.number)
        first[key] = min(at, first.get(key, at))
    part = min((part for part, _ in first), default=0)
    places = map(position_of, (one.key for one in missing))
    return all(
        place.part <= part
        and (place.stage, place.number) <= first.get((place.part, place.list_name), (place.stage, place.number))
        for place in places
    )
