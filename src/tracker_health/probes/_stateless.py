"""What parameters are that an optimizer lists and keeps no state for: frozen on purpose, unused, or cut off."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from tracker_health.evidence import OptimizerState, Weights
from tracker_health.layers import place_of
from tracker_health.probes._frozen import Sized, look_like_adapters, looks_frozen
from tracker_health.probes._model import bare_name, never_trained, parameters_of, tail_of
from tracker_health.probes._unlisted import has_names, left_by_shape

_UNNAMED = re.compile(r"(?:^|/)#(-?\d+)$")


def _are_named(state: OptimizerState, gone: Sequence[str]) -> bool:
    return has_names(state) and not any(_UNNAMED.search(label) for label in gone)


def seems_frozen(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> bool:
    """Whether what has no state looks frozen on purpose: by names, or else by the order of the parameters."""
    shapes = [tensor.shape for tensor in state.tensors]
    if all(len(shape) <= 1 for shape in shapes):
        return True
    if _are_named(state, gone):
        known = {tail_of(one.name): one.shape for one in weights.tensors} if weights is not None else {}
        trained = [Sized(bare_name(tensor.label), tensor.shape) for tensor in state.tensors]
        return looks_frozen([Sized(bare_name(label), known.get(tail_of(label))) for label in gone], trained)
    if weights is not None and weights.is_adapter:
        return not _lists_an_adapter_alone(state, gone, weights)
    return look_like_adapters(shapes) or _are_first(state, gone)


def _are_first(state: OptimizerState, gone: Sequence[str]) -> bool:
    """Whether no parameter of the same group lies before these, by their numbers.

    A group's parameters are numbered on from those of the group before. What lies between two groups' trained ones may
    belong to either, and is taken for the first of the second.
    """
    groups: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for tensor in state.tensors:
        if isinstance(tensor.id, int):
            groups[tensor.optimizer][tensor.group or 0].append(tensor.id)
    spans = {name: [(min(ids), max(ids)) for ids in by_group.values()] for name, by_group in groups.items()}
    last = {name: max(end for _, end in found) for name, found in spans.items()}
    starts = {name: sorted(found) for name, found in spans.items()}
    for label in gone:
        found = _UNNAMED.search(label)
        owner = label[: found.start()] if found else ""
        if found is None or owner not in spans:
            continue
        place = int(found.group(1))
        if place > last[owner] or any(start < place < end for start, end in starts[owner]):
            return False
    return True


def is_cut_off(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> bool:
    """Whether neither freezing nor an unused branch explains what has no state."""
    if weights is not None and weights.is_adapter and _lists_an_adapter_alone(state, gone, weights):
        return True
    last: dict[tuple[str, str], int] = {}
    layers = set()
    for tensor in state.tensors:
        place = place_of(tensor.certain_name) if tensor.certain_name is not None else None
        if place is not None:
            layers.add((place.stack, place.layer))
            last[place.stack, place.role] = max(place.layer, last.get((place.stack, place.role), place.layer))
    places = [place_of(label) for label in gone]
    amid = sum(
        place is not None
        and (place.stack, place.layer) in layers
        and last.get((place.stack, place.role), -1) > place.layer
        for place in places
    )
    return 2 * amid >= len(gone)


def _lists_an_adapter_alone(state: OptimizerState, gone: Sequence[str], weights: Weights) -> bool:
    return len(state.tensors) + len(gone) <= len(weights.tensors)


def was_never_trained(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> bool:
    """Whether the values of what has no state show that it was never trained, neither here nor before."""
    if weights is None:
        return False
    if _are_named(state, gone):
        tails = {tail_of(label) for label in gone}
        return never_trained(one for one in weights.tensors if tail_of(one.name) in tails)
    left = left_by_shape([tensor.shape for tensor in state.tensors], *parameters_of(weights.tensors))
    return len(left) <= len(gone) and never_trained(left)
