"""Which tensors of the weights an optimizer was never given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tracker_health.evidence import OptimizerState, TensorHeader
from tracker_health.probes._frozen import front_first
from tracker_health.probes._model import kind_of, tail_of


def has_names(state: OptimizerState) -> bool:
    """Whether the optimizer's own file names all of its parameters."""
    return all(tensor.certain_name is not None and not str(tensor.certain_name).isdigit() for tensor in state.tensors)


def not_listed(
    state: OptimizerState, sure: list[TensorHeader], doubtful: list[TensorHeader]
) -> tuple[TensorHeader, ...]:
    """The trainable tensors of the weights that the optimizer has not, in order; nothing where it cannot be told."""
    if has_names(state):
        named = [str(tensor.certain_name) for tensor in state.tensors]
        return _by_name([*named, *state.stateless], {kind_of(name) for name in named}, sure, doubtful)
    # Of what is listed without state the shape is not known.
    return () if state.stateless else left_by_shape([tensor.shape for tensor in state.tensors], sure, doubtful)


def _by_name(
    names: Iterable[str], kinds: set[str], sure: list[TensorHeader], doubtful: list[TensorHeader]
) -> tuple[TensorHeader, ...]:
    """Names may have a prefix in one of the two files (``module.``, ``base_model.model.``): tails are compared. What
    may be a buffer counts where others of its kind are in the optimizer.
    """
    tails = {tail_of(name) for name in names}
    trainable = [*sure, *(one for one in doubtful if kind_of(one.name) in kinds)]
    missing = tuple(one for one in trainable if tail_of(one.name) not in tails)
    # Names of another world: nothing can be said.
    return missing if len(missing) < len(trainable) else ()


def left_by_shape(
    shapes: list[tuple[int, ...]], sure: list[TensorHeader], doubtful: list[TensorHeader]
) -> tuple[TensorHeader, ...]:
    """What is left of the weights when each of the optimizer's shapes has taken one. Of several tensors of a shape
    those count as left that would most likely be frozen on purpose: a file of weights does not keep the model's order.
    What may be a buffer is never left, but may have been taken.
    """
    have, wanted = Counter(shapes), Counter(one.shape for one in sure)
    if _any_above(have, wanted + Counter(one.shape for one in doubtful)):
        return ()  # not the weights of this optimizer
    left = wanted - have
    missing = []
    for one in sorted(sure, key=front_first):
        if left[one.shape]:
            left[one.shape] -= 1
            missing.append(one)
    return tuple(missing)


def _any_above(have: Mapping[tuple[int, ...], int], wanted: Mapping[tuple[int, ...], int]) -> bool:
    return any(amount > wanted.get(shape, 0) for shape, amount in have.items())
