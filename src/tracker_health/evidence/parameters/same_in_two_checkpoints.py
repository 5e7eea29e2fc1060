"""Weights that are the same in two checkpoints: which count, and which the optimizer clearly stepped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from tracker_health.evidence.parameters.rows import Parameter
from tracker_health.evidence.parameters.words import expert_of, is_first_factor, kind_of, often_unused
from tracker_health.evidence.tensors import OptimizerState, TensorState, WeightChange
from tracker_health.words.layers import place_of

CLEAR_CHANGE = 1e-5
"""The change of the weights over their size, in the middle of those that moved, above which it is no rounding."""
MANY_VALUES = 4096
"""Values of a matrix in half precision of which steps would change some."""
LAST_DIGIT = 4.0 * 2.0**-24
"""Of a value in single precision; four, since the values of a tensor, and its steps, differ in size."""
FEWEST_SIBLINGS = 3
"""Other layers whose like changed, that show without names that a tensor is trained."""
_OF_A_LAYER = ("weight", "kernel", "lora")


def is_half(row: Parameter) -> bool:
    """Whether values have so few digits that a step may be rounded away."""
    return row.weight is not None and row.weight.dtype.startswith(("BF16", "F16", "F8"))


def is_hidden(row: Parameter) -> bool:
    """Whether a step is so small compared with the weights that floating point hides it: of a vector next to any of its
    values, of a matrix compared with the smallest of so many.
    """
    if row.walk is None or row.weight is None or not row.weight.rms or not row.walk.step > 0:
        return False
    values = row.numel if row.is_matrix else 1
    return row.walk.step * values <= LAST_DIGIT * row.weight.rms


def only_layers(rows: Sequence[Parameter], changes: Sequence[WeightChange]) -> list[Parameter]:
    """The rows, where nothing tells what was trained but what moved: unmoved ones count that are of a layer whose
    matrix stands still. Steps of vectors may have been rounded away, and of all of them where all changes are tiny.
    """
    far = {one.name: one.rms for one in changes}
    known = sorted(far[one.called] / one.weight.rms for one in rows if one.trained and one.weight and one.weight.rms)
    clear = bool(known) and known[len(known) // 2] >= CLEAR_CHANGE
    factors = any(is_first_factor(one.called) for one in rows if one.trained)
    still = [one for one in rows if one.trained is False and _counts(one, factors=factors)] if clear else []
    layers = {one.module for one in still if _is_matrix(one)}
    kept = {id(one) for one in still if one.module in layers}
    return [replace(one, trained=None) if one.trained is False and id(one) not in kept else one for one in rows]


def _counts(row: Parameter, *, factors: bool) -> bool:
    name = row.called
    return not often_unused(name) and expert_of(name) is None and (factors or not is_first_factor(name))


def _is_matrix(row: Parameter) -> bool:
    matrix = row.is_matrix and any(word in kind_of(row.called).lower() for word in _OF_A_LAYER)
    return matrix and (not is_half(row) or row.numel >= MANY_VALUES)


def is_stepped(state: OptimizerState, tensor: TensorState, counted: int) -> bool:
    """Whether a parameter has had gradients and a learning rate, and was not frozen on the way. ``counted``: the most
    steps that any had.
    """
    moment = tensor.second_moment if tensor.second_moment is not None else tensor.first_moment
    if moment is None or moment.zeros >= moment.count:
        return False
    if tensor.step is not None and 2 * tensor.step <= counted:
        return False
    group = state.groups[tensor.group] if tensor.group is not None and tensor.group < len(state.groups) else {}
    known = [rate for key in ("lr", "initial_lr", "max_lr") if isinstance(rate := group.get(key), (int, float))]
    return not known or max(known) > 0


def stuck_by_shape(state: Sequence[Parameter], weights: Sequence[Parameter]) -> list[Parameter]:
    """Where the optimizer has no names: the unmoved matrices of shapes of which it steps as many as there are; and,
    where it has as many parameters, those of which the same changed in an earlier layer and in enough others.
    """
    known = [one for one in weights if one.moved is not None]
    there, stepped = Counter(one.shape for one in known), Counter(one.shape for one in state if one.is_stepped)
    fits = Counter(one.shape for one in state) <= there  # else any of a shape may be none of these
    layers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in known:
        if one.moved and (at := place_of(one.called)) is not None:
            layers[at.stack, at.role].append(at.layer)
    found = []
    for one in known:
        at = place_of(one.called)
        others = layers[at.stack, at.role] if at is not None and len(state) >= len(known) else []
        beside = at is not None and len(others) >= FEWEST_SIBLINGS and min(others) < at.layer
        by_shape = fits and one.is_matrix and stepped[one.shape] == there[one.shape]
        if not one.moved and (by_shape or beside):
            found.append(one)
    return found
