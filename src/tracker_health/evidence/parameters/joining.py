"""Which weights an optimizer's parameters are, and which it does not have: by names, or by shapes and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from tracker_health.evidence.parameters.initial import is_uniform_draw
from tracker_health.evidence.parameters.rows import Naming
from tracker_health.evidence.parameters.words import expert_of, kind_of, module_of, parameters_of, position_of, tail_of
from tracker_health.evidence.tensors import OptimizerState, TensorHeader, Weights, label_of

TELLING = 1000
"""Values of a matrix whose size alone shows that it is a draw, where it might be one of several."""

OF_ONE_LAYER = 2
"""Tensors: a weight and its bias."""

Shape = tuple[int, ...]


class UnmatchedWeight(NamedTuple):
    """A weight that an optimizer keeps nothing for, and how sure it is that it is this one."""

    weight: TensorHeader
    naming: Naming


def is_named(state: OptimizerState) -> bool:
    """Whether the optimizer's own file names all of its parameters."""
    return all(tensor.certain_name is not None and not str(tensor.certain_name).isdigit() for tensor in state.tensors)


def may_be_named(state: OptimizerState) -> bool:
    """Whether all of its parameters have names, be it by an assumed order."""
    assumed = all(one.name is not None for one in state.tensors) and all(
        label in state.presumed for label in state.stateless
    )
    return is_named(state) or assumed


def untaken(state: OptimizerState, weights: Weights | None) -> list[UnmatchedWeight]:
    """The trainable weights that the optimizer keeps nothing for, in order; nothing where it is not known."""
    if weights is None:
        return []
    sure, doubtful = parameters_of(weights.tensors)
    if may_be_named(state):
        naming = Naming.FILE if is_named(state) else Naming.ASSUMED
        return [UnmatchedWeight(one, naming) for one in _by_name(state, sure, doubtful)]
    return _by_shape([tensor.shape for tensor in state.tensors], sure, doubtful)


def _by_name(state: OptimizerState, sure: list[TensorHeader], doubtful: list[TensorHeader]) -> list[TensorHeader]:
    """Names may have a prefix in one of the two files (``module.``, ``base_model.model.``): tails are compared. What
    may be a buffer counts where others of its kind are in the optimizer.
    """
    trained = {tail_of(str(one.name)): one.shape for one in state.tensors}
    tails = {*trained, *(tail_of(state.presumed.get(label, label)) for label in state.stateless)}
    kinds = {kind_of(name) for name in trained}
    trainable = [*sure, *(one for one in doubtful if kind_of(one.name) in kinds)]
    there = {tail_of(one.name) for one in trainable}
    tied = {values for one in trainable if tail_of(one.name) in tails and (values := values_of(one)) is not None}
    # In memory the experts of a mixture may be one tensor, and a file have each for itself.
    stacked = any("experts" in tail and len(shape) > 2 for tail, shape in trained.items())
    # A tied tensor may be saved under the one name, and have been given to the optimizer under the other.
    elsewhere = Counter(shape for tail, shape in trained.items() if tail not in there)
    missing = []
    for one in trainable:
        if tail_of(one.name) in tails or values_of(one) in tied or (stacked and expert_of(one.name) is not None):
            continue
        if elsewhere[one.shape] > 0:
            elsewhere[one.shape] -= 1
            continue
        missing.append(one)
    # Names of another world: nothing can be said.
    return missing if there & tails else []


def _by_shape(shapes: Sequence[Shape], sure: list[TensorHeader], doubtful: list[TensorHeader]) -> list[UnmatchedWeight]:
    """What is left of the weights when each of the optimizer's shapes has taken one. Of several tensors of a shape
    those count as left that alone are as they began, with the rest of their modules; else those that would most likely
    be frozen on purpose: a file of weights need not keep the model's order. What may be a buffer is never left, but may
    have been taken.
    """
    have, wanted = Counter(shapes), Counter(one.shape for one in sure)
    if _any_above(have, wanted + Counter(one.shape for one in doubtful)):
        return []  # not the weights of this optimizer
    left = wanted - have
    fresh = [one for one in sure if left[one.shape] and one.numel >= TELLING and is_uniform_draw(one)]
    amounts = Counter(one.shape for one in fresh)
    whole = {
        module_of(one.name)
        for some, whose in ((sure, wanted), (fresh, amounts))
        for one in some
        if left[one.shape] == whose[one.shape]
    }
    roots = {_root(one) for one in sure if left[one.shape] == wanted[one.shape] > 0}
    alone = {one.name for one in fresh if left[one.shape] == amounts[one.shape]}

    def first(one: TensorHeader) -> tuple[bool, bool, bool, int, int, int, str]:
        at, apart = position_of(one.name), module_of(one.name) not in whole
        return one.name not in alone, apart, _root(one) not in roots, at.part, at.stage, at.number, one.name

    found = []
    for one in sorted(sure, key=first):
        if left[one.shape]:
            left[one.shape] -= 1
            certain = not have[one.shape] or one.name in alone or module_of(one.name) in whole
            found.append(UnmatchedWeight(one, Naming.VALUES if certain else Naming.SHAPE))
    values = Counter(map(values_of, sure))
    return [one for one in found if values_of(one.weight) is None or values[values_of(one.weight)] == 1]


def _root(tensor: TensorHeader) -> str:
    """The part of the model that a tensor is of."""
    return tail_of(tensor.name).partition(".")[0]


def _any_above(have: Counter[Shape], wanted: Counter[Shape]) -> bool:
    return any(amount > wanted.get(shape, 0) for shape, amount in have.items())


def values_of(tensor: TensorHeader) -> Hashable:
    """What two names of one tensor have in common, as far as statistics tell; None where they do not: of vectors, many
    of which are alike.
    """
    stats = tensor.stats
    if len(tensor.shape) < 2 or stats is None or stats.nonfinite or not stats.minimum < stats.maximum:
        return None
    return tensor.shape, tensor.dtype, stats.mean, stats.rms, stats.minimum, stats.maximum


class Replaced(NamedTuple):
    """A weight in whose place the optimizer has a parameter of another size: of the layer before it."""

    weight: TensorHeader
    before: Shape


def replaced(state: OptimizerState, weights: Weights | None) -> list[Replaced]:
    """The weights of a layer that was put in another's place after the optimizer was made: it takes the same inputs,
    and gives another number of outputs.
    """
    if weights is None or not state.tensors:
        return []
    sure, _ = parameters_of(weights.tensors)
    if is_named(state):
        shapes = {tail_of(one.name): one for one in sure}
        pairs = [(shapes[tail], one.shape) for one in state.tensors if (tail := tail_of(str(one.name))) in shapes]
        return [Replaced(one, shape) for one, shape in pairs if _other_outputs(one.shape, shape)]
    have, wanted = Counter(one.shape for one in state.tensors), Counter(one.shape for one in sure)
    surplus, left = list((have - wanted).elements()), list((wanted - have).elements())
    if state.stateless or not 0 < len(surplus) == len(left) <= OF_ONE_LAYER:
        return []
    fitting = list(zip(sorted(left, key=len), sorted(surplus, key=len), strict=True))
    if not all(_other_outputs(*pair) for pair in fitting):
        return []
    return [Replaced(next(one for one in sure if one.shape == new), old) for new, old in fitting]


def _other_outputs(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) > 0 and one[1:] == other[1:] and one[0] != other[0]


class Order(NamedTuple):
    """Where parameters stand, by the tail of their name or by their label: in which sequence, and at which place there.

    The sequence is the model's own, where the weights or the optimizer's only group have it; else that of a group.
    """

    at: dict[str, tuple[str, int]]

    def of(self, *names: str | None) -> tuple[str, int] | None:
        """The place of the first of these names that has one."""
        return next((self.at[tail_of(name)] for name in names if name is not None and tail_of(name) in self.at), None)

    @classmethod
    def known(cls, weights: Weights | None, state: OptimizerState | None) -> Order:
        """The order of the weights, where their file keeps the model's, and that of the optimizer for its labels."""
        at: dict[str, tuple[str, int]] = {}
        kept = weights is not None and weights.in_order
        if state is not None:
            names = {one.id: one.label for one in state.tensors}
            for index, keys in enumerate(state.listed):
                for place, key in enumerate(keys):
                    label = names.get(key, label_of(key, None))
                    name = state.presumed.get(label, label)
                    at[tail_of(name)] = ("" if len(state.listed) == 1 else f"group {index:06}", place)
        if kept and weights is not None:
            at |= {tail_of(one.name): ("", place) for place, one in enumerate(weights.tensors)}
        return cls(at if kept or state is None or state.listed else _by_id(state))


def _by_id(state: OptimizerState) -> dict[str, tuple[str, int]]:
    """The order of numbered parameters where nothing says how they are grouped."""
    known = [(one.label, one.optimizer, one.id) for one in state.tensors]
    for label in state.stateless:
        optimizer, _, key = label.rpartition("/")
        known.append((label, optimizer, int(key[1:]) if key[:1] == "#" and key[1:].isdecimal() else key))
    return {tail_of(label): (optimizer, key) for label, optimizer, key in known if isinstance(key, int)}


def factors_beside(matrices: Collection[tuple[str, Shape]], trained: Collection[tuple[str, Shape]]) -> set[str]:
    """The modules whose matrix has two thin trained factors next to it, the product of which fits it, by any name."""
    own: dict[str, set[Shape]] = {}
    above: dict[str, set[Shape]] = {}
    for name, shape in trained:
        if len(shape) == 2:
            module, around = _around(name)
            own.setdefault(module, set()).add(shape)
            above.setdefault(around, set()).add(shape)
    found = set()
    for name, shape in matrices:
        if len(shape) != 2:
            continue
        module, around = _around(name)
        near = own.get(module, set()) | own.get(around, set()) | above.get(module, set())
        near = near | (above.get(around, set()) if around else set())  # a model's parts are no parts of one layer
        turned = near | {(columns, rows) for rows, columns in near}  # a factor may be stored either way
        if any(width == shape[1] and (shape[0], rank) in turned and rank < min(shape) for rank, width in turned):
            found.add(module_of(name))
    return found


def _around(name: str) -> tuple[str, str]:
    """The module that a tensor is of, and the one around that; a list is none."""
    module = module_of(name)
    return module, module if kind_of(module).isdecimal() else module_of(module)
