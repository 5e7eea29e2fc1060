"""Which tensors of the weights an optimizer was never given, and whether on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tracker_health.evidence import OptimizerState, TensorHeader, Weights
from tracker_health.probes._chain import Position, position_of
from tracker_health.probes._frozen import (
    ADAPTER,
    Sized,
    are_branches,
    branches,
    front_first,
    is_back,
    is_front,
    looks_frozen,
    often_unused,
)
from tracker_health.probes._model import (
    expert_of,
    is_first_factor,
    is_uniform_draw,
    kind_of,
    never_trained,
    parameters_of,
    tail_of,
    tells_whether_trained,
)
from tracker_health.probes._sisters import (
    alike_embeddings,
    amid_sisters,
    are_last_sisters,
    module_of,
    trained_by_halves,
)
from tracker_health.verdict import Verdict

_TELLING = 1000  # values, of which the size tells a draw from what was trained

OF_ONE_LAYER = 2
"""A weight and its bias: a pooler or a head that a task leaves out, a layer of random features."""


class Sign(NamedTuple):
    """What shows that some parameters are not left out on purpose: in words, and how sure that is. ``labels``: which
    ones, as people know them.
    """

    verdict: Verdict
    labels: list[str]
    what: str
    is_sure: bool = False


def has_names(state: OptimizerState) -> bool:
    """Whether the optimizer's own file names all of its parameters."""
    return all(tensor.certain_name is not None and not str(tensor.certain_name).isdigit() for tensor in state.tensors)


def _may_be_named(state: OptimizerState) -> bool:
    """Whether all of its parameters have names, be it by an assumed order."""
    assumed = all(one.name is not None for one in state.tensors) and all(
        one in state.presumed for one in state.stateless
    )
    return has_names(state) or assumed


def not_listed(state: OptimizerState, weights: Weights | None) -> list[TensorHeader]:
    """The trainable tensors of the weights that the optimizer has not, in order; nothing where it cannot be told."""
    sure, doubtful = parameters_of(weights.tensors if weights is not None else ())
    if _may_be_named(state):
        return _by_name(state, sure, doubtful)
    # Of what is listed without state the shape is not known.
    return [] if state.stateless else left_by_shape([tensor.shape for tensor in state.tensors], sure, doubtful)


def forgotten(
    state: OptimizerState, weights: Weights, missing: Sequence[TensorHeader], max_share: float
) -> Sign | None:
    """What is wrong with the weights that no group lists; None where nothing is.

    ``max_share``: of all parameters, from which on they are frozen on purpose.
    """
    gone = {one.name for one in missing}
    trained = [one for some in parameters_of(weights.tensors) for one in some if one.name not in gone]
    missing = [one for one in missing if not often_unused(one.name) and not _may_be_a_buffer(one)]
    what = f"of the weights {'is' if len(missing) == 1 else 'are'} not in the optimizer"
    sign = Sign(Verdict.WARN, _called(state, missing, trained), what, is_sure=True)
    if weights.is_adapter:
        # All first factors at once are frozen on purpose (LoRA-FA).
        factors = {one.name for one in (*missing, *trained) if is_first_factor(one.name)}
        return None if not missing or {one.name for one in missing} == factors else sign._replace(verdict=Verdict.FAIL)
    if any(ADAPTER.search(one.name) for one in trained):
        missing = [one for one in missing if ADAPTER.search(one.name)]
        sign = sign._replace(labels=_called(state, missing, trained))
    if not missing:
        return None
    are_most = len(missing) > max_share * (len(state.tensors) + len(missing))
    at = _position(state, weights, missing, trained)
    last = are_last_sisters(_sizes(missing), _sizes(trained))
    on_the_way = at in (Position.NEEDED, Position.AT_END) or (at is Position.AMID and not last)
    telling = len(missing) > OF_ONE_LAYER or on_the_way or _are_the_head(missing, trained)
    random = telling and never_trained(missing)
    small = at is Position.NEEDED and not any(map(tells_whether_trained, missing))
    frozen = (are_most or looks_frozen(_sizes(missing), _sizes(trained))) and not random
    frozen = frozen or _are_whole_branches(state, missing, trained)
    return None if frozen and not (small or _left_out_by_accident(state, missing, trained)) else sign


def _position(
    state: OptimizerState, weights: Weights, missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]
) -> Position:
    """Where the layer lies that these are, if they are one and it is certain which."""
    beside = {one.shape for one in trained if len(one.shape) > 1}
    certain = has_names(state) or not any(one.shape in beside for one in missing)
    if not (certain and weights.in_order) or len(missing) > OF_ONE_LAYER:
        return Position.UNKNOWN
    return position_of(_sizes(missing), _sizes(trained), [one.name for one in weights.tensors])


def _may_be_a_buffer(tensor: TensorHeader) -> bool:
    """Whether a tensor holds nothing but zeros, as a buffer may, and no layer has a parameter of its name."""
    return len(tensor.shape) <= 1 and tensor.rms == 0.0 and kind_of(tensor.name) not in ("weight", "bias")


def _are_the_head(missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]) -> bool:
    """Whether these are an output layer, and no other one is trained."""
    return all(is_back(one.name) for one in missing) and not any(is_back(one.name) for one in trained)


def _sizes(tensors: Iterable[TensorHeader]) -> list[Sized]:
    return [Sized(one.name, one.shape) for one in tensors]


def _called(state: OptimizerState, missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]) -> list[str]:
    """How to call what is missing. Without names in the optimizer shapes tell: of several tensors of one shape it may
    be another one, unless all else of its module is missing.
    """
    if has_names(state):
        return [one.name for one in missing]
    beside, modules = {one.shape for one in trained}, {module_of(one.name) for one in trained}
    return [
        one.name if one.shape not in beside or module_of(one.name) not in modules else f"{one.name} or another like it"
        for one in missing
    ]


def _are_whole_branches(
    state: OptimizerState, missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]
) -> bool:
    """Whether these are whole branches of the model that were trained before, as a frozen tower is. Without names those
    of any branch that has their shapes.
    """
    if _may_be_named(state):
        return are_branches(_sizes(missing), _sizes(trained)) and not never_trained(missing)
    wanted = Counter(one.shape for one in missing)
    by_name = {one.name: one for one in (*missing, *trained)}
    return any(
        _nearly_alike(Counter(one.shape for one in some), wanted)
        and not never_trained(by_name[one.name] for one in some)
        for some in branches(_sizes(by_name.values())).values()
    )


def _nearly_alike(one: Counter[Any], other: Counter[Any]) -> bool:
    """Whether two collections differ in no more than a tenth."""
    return 10 * ((one - other) + (other - one)).total() <= other.total()


def _left_out_by_accident(
    state: OptimizerState, missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]
) -> bool:
    """Whether others show that some of these were not left out on purpose: of the same module, of sisters, an embedding
    of the same kind where these are as they began, or one that an output layer would be tied to and is not.
    """
    sizes, beside = _sizes(missing), _sizes(trained)
    named = has_names(state)
    # Without names it is certain which one is missing where all of its shape are.
    certain = sizes if named else [one for one in sizes if one.shape not in {other.shape for other in trained}]
    return bool(
        trained_by_halves(sizes, beside)
        or amid_sisters(certain, beside)
        or (named and _are_untied_heads(missing, trained))
        or (alike_embeddings(certain, beside) and never_trained(missing))
    )


def _are_untied_heads(missing: Sequence[TensorHeader], trained: Sequence[TensorHeader]) -> bool:
    """Whether these are output layers of an embedding's shape, and of other values."""
    front = {one.shape for one in trained if is_front(one.name) and _values_of(one) is not None}
    matrices = [one for one in missing if len(one.shape) > 1]
    return bool(matrices) and all(
        is_back(one.name) and one.shape in front and _values_of(one) is not None for one in matrices
    )


def _by_name(state: OptimizerState, sure: list[TensorHeader], doubtful: list[TensorHeader]) -> list[TensorHeader]:
    """Names may have a prefix in one of the two files (``module.``, ``base_model.model.``): tails are compared. What
    may be a buffer counts where others of its kind are in the optimizer.
    """
    trained = {tail_of(str(one.name)): one.shape for one in state.tensors}
    tails = {*trained, *(tail_of(state.presumed.get(label, label)) for label in state.stateless)}
    kinds = {kind_of(name) for name in trained}
    trainable = [*sure, *(one for one in doubtful if kind_of(one.name) in kinds)]
    there = {tail_of(one.name) for one in trainable}
    tied = {values for one in trainable if tail_of(one.name) in tails and (values := _values_of(one)) is not None}
    # In memory the experts of a mixture may be one tensor, and a file have each for itself.
    stacked = any("experts" in tail and len(shape) > 2 for tail, shape in trained.items())
    # A tied tensor may be saved under the one name, and have been given to the optimizer under the other.
    elsewhere = Counter(shape for tail, shape in trained.items() if tail not in there)
    missing = []
    for one in trainable:
        if tail_of(one.name) in tails or _values_of(one) in tied or (stacked and expert_of(one.name) is not None):
            continue
        if elsewhere[one.shape] > 0:
            elsewhere[one.shape] -= 1
            continue
        missing.append(one)
    # Names of another world: nothing can be said.
    return missing if there & tails else []


def left_by_shape(
    shapes: list[tuple[int, ...]], sure: list[TensorHeader], doubtful: list[TensorHeader]
) -> list[TensorHeader]:
    """What is left of the weights when each of the optimizer's shapes has taken one. Of several tensors of a shape
    those count as left that alone are as they began, with the rest of their modules; else those that would most likely
    be frozen on purpose, but first an output layer that is as it began: a file of weights does not keep the model's
    order. What may be a buffer is never left, but may have been taken.
    """
    have, wanted = Counter(shapes), Counter(one.shape for one in sure)
    if _any_above(have, wanted + Counter(one.shape for one in doubtful)):
        return []  # not the weights of this optimizer
    left = wanted - have
    missing = []
    fresh = [one for one in sure if left[one.shape] and one.numel >= _TELLING and is_uniform_draw(one)]
    amounts = Counter(one.shape for one in fresh)
    whole = {
        module_of(one.name)
        for some, whose in ((sure, wanted), (fresh, amounts))
        for one in some
        if left[one.shape] == whose[one.shape]
    }
    alone = {one.name for one in fresh if left[one.shape] == amounts[one.shape]}

    def first(one: TensorHeader) -> tuple[Any, ...]:
        head = bool(left[one.shape]) and is_back(one.name) and one.numel >= _TELLING and never_trained([one])
        return one.name not in alone, module_of(one.name) not in whole, not head, *front_first(one)

    for one in sorted(sure, key=first):
        if left[one.shape]:
            left[one.shape] -= 1
            missing.append(one)
    values = Counter(map(_values_of, sure))
    return [one for one in missing if _values_of(one) is None or values[_values_of(one)] == 1]


def _any_above(have: Mapping[tuple[int, ...], int], wanted: Mapping[tuple[int, ...], int]) -> bool:
    return any(amount > wanted.get(shape, 0) for shape, amount in have.items())


def _values_of(tensor: TensorHeader) -> Hashable:
    """What two names of one tensor have in common, as far as statistics tell; None where they do not: of vectors, many
    of which are alike.
    """
    stats = tensor.stats
    if len(tensor.shape) < 2 or stats is None or stats.nonfinite or not stats.minimum < stats.maximum:
        return None
    return tensor.shape, tensor.dtype, stats.mean, stats.rms, stats.minimum, stats.maximum
