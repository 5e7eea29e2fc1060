"""What parameters are that an optimizer lists and keeps no state for: frozen on purpose, unused, or cut off."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from tracker_health.evidence import OptimizerState, Weights, label_of
from tracker_health.layers import place_of
from tracker_health.probes._chain import Position, position_of
from tracker_health.probes._frozen import (
    ADAPTER,
    Sized,
    are_branches,
    is_back,
    look_like_adapters,
    looks_frozen,
    often_unused,
)
from tracker_health.probes._model import (
    bare_name,
    copies_among,
    never_trained,
    parameters_of,
    tail_of,
    tells_whether_trained,
)
from tracker_health.probes._sisters import (
    alike_embeddings,
    alternatives,
    amid_sisters,
    are_last_sisters,
    are_of_a_trained_attention,
    lone_head,
    torn_from_their_block,
    trained_by_halves,
    without_their_matrix,
)
from tracker_health.probes._unlisted import OF_ONE_LAYER, Sign, has_names, left_by_shape
from tracker_health.verdict import Verdict

_UNNAMED = re.compile(r"(?:^|/)#(-?\d+)$")
_AS_BEGUN = "no state and still the size that layers begin with"
_NONE_CAME = "no state, though they ask for a gradient: none ever reached them"
_NEEDED = "no state, though the layers before and behind it are trained and do not fit each other without it"
_MANY = 4
_MOST_OF_A_BRANCH = 0.9


class Named(NamedTuple):
    """The parameters of an optimizer by name: those without state, and those with. ``presumed``: by label, the names of
    an assumed order; empty where they are the file's own.
    """

    missing: list[Sized]
    trained: list[Sized]
    presumed: Mapping[str, str]

    @property
    def certain(self) -> bool:
        return not self.presumed


def amiss(state: OptimizerState, gone: Sequence[str], weights: Weights | None, max_share: float) -> Sign | None:
    """What is wrong with the parameters of these labels, which have no state; None where nothing is.

    ``max_share``: of all parameters, from which on they are frozen on purpose.
    """
    names = _by_name(state, gone, weights)
    if names is not None:
        gone, names = _without_excused(gone, names)
    if not gone:
        return None
    are_most = len(gone) > max_share * (len(gone) + len(state.tensors))
    on_purpose = are_most or _seem_frozen(state, gone, weights, names)
    sign = _surely_amiss(state, gone, weights, names, on_purpose=on_purpose)
    if sign is None:
        sign = (
            _on_the_way_by_shapes(state, gone, weights)
            if names is None
            else _beside_sisters(gone, names) or _on_the_way(state, gone, weights, names)
        )
    if sign is not None:
        return sign
    if not on_purpose:
        return _amid_what_is_trained(state, gone, weights, names)
    if not are_most and names is not None and _ask_for_gradients(state, names):
        return Sign(Verdict.WARN, _shown(names, gone), _NONE_CAME)
    as_begun = _were_never_trained(state, gone, weights, names)
    return Sign(Verdict.WARN, _shown(names, gone), f"{_AS_BEGUN}, as if never trained") if as_begun else None


def never_moved(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> bool:
    """Whether the values of the parameters of these labels, which have no state, show that they were never trained."""
    return _were_never_trained(state, gone, weights, _by_name(state, gone, weights))


def _ask_for_gradients(state: OptimizerState, names: Named) -> bool:
    """Whether it is known that these are not frozen, and they are no branch that may be unused."""
    return state.frozen is not None and not are_branches(names.missing, names.trained)


def _surely_amiss(
    state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named | None, *, on_purpose: bool
) -> Sign | None:
    halves = trained_by_halves(names.missing, names.trained) if names is not None else []
    if halves and names is not None:
        of = dict(zip((one.name for one in names.missing), gone, strict=True))
        return _sure(names, [of[name] for name in halves], "no state, though the rest of the same module is trained")
    if not on_purpose and _are_cut_off(state, gone, weights, names):
        them = "it" if len(gone) == 1 else "them"
        return _sure(names, gone, f"no state, though others like them are trained: no gradient ever reached {them}")
    return None


def _beside_sisters(gone: Sequence[str], names: Named) -> Sign | None:
    """What the names of trained ones beside most of these say."""
    of = dict(zip((one.name for one in names.missing), gone, strict=True))
    for which, what in (
        (amid_sisters(names.missing, names.trained), "no state, though the same of its sisters is trained"),
        (torn_from_their_block(names.missing, names.trained), "no state, though the rest of its block is trained"),
    ):
        if which and 2 * len(which) >= len(gone):
            return Sign(Verdict.WARN, _shown(names, [of[name] for name in which]), what)
    return None


def _on_the_way(state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named) -> Sign | None:
    """What is wrong with one layer that lies between trained ones."""
    if len(gone) > OF_ONE_LAYER or any(ADAPTER.search(one.name) for one in names.trained):
        return None
    at = _where(state, gone, weights, names)
    untold = _too_small(names, weights) or _as_begun(names, weights)
    if untold and at is Position.NEEDED:
        return Sign(Verdict.WARN, _shown(names, gone), _NEEDED)
    if untold and are_of_a_trained_attention(names.missing, names.trained):
        return Sign(Verdict.WARN, _shown(names, gone), "no state, though the rest of its attention is trained")
    last = are_last_sisters(names.missing, names.trained)
    if at is Position.AMID and not last and _as_begun(names, weights):
        return Sign(Verdict.WARN, _shown(names, gone), f"{_AS_BEGUN}, between layers that are trained")
    return None


def _on_the_way_by_shapes(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> Sign | None:
    """The same where nothing names the parameters: the optimizer has them in the model's order, and what is left of the
    weights is the layer's.
    """
    shapes: dict[int | str, tuple[int, ...]] = {one.id: one.shape for one in state.tensors}
    with_matrices = [keys for keys in state.listed if any(len(shapes.get(key, ())) > 1 for key in keys)]
    if weights is None or weights.is_adapter or len(gone) > OF_ONE_LAYER or len(with_matrices) != 1:
        return None
    left = left_by_shape(list(shapes.values()), *parameters_of(weights.tensors))
    matrices = [one for one in left if len(one.shape) > 1]
    lost = [key for key in with_matrices[0] if key not in shapes]
    if len(left) != len(gone) or len(matrices) != 1 or not lost:
        return None
    shapes[lost[0]] = matrices[0].shape  # a layer's matrix comes before its bias
    order = [(f"{key}.weight", shapes[key]) for key in with_matrices[0] if len(shapes.get(key, ())) > 1]
    missing, trained = (
        [Sized(*one) for one in order if (one[0] == f"{lost[0]}.weight") is own] for own in (True, False)
    )
    at = position_of(missing, trained, [name for name, _ in order])
    # Which one of its shape it is may be open: those that were trained are no longer as they began.
    begun = [
        Sized(one.name, one.shape) for one in weights.tensors if one.shape == matrices[0].shape and never_trained([one])
    ]
    others = [Sized(one.name, one.shape) for one in weights.tensors]
    if any(often_unused(one.name) for one in begun) or alternatives(begun, others) or are_last_sisters(begun, others):
        return None
    if at is Position.NEEDED and (begun or not tells_whether_trained(matrices[0])):
        return Sign(Verdict.WARN, list(gone), _NEEDED)
    if at is Position.AMID and begun:
        return Sign(Verdict.WARN, list(gone), f"{_AS_BEGUN}, between layers that are trained")
    return None


def _where(state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named) -> Position:
    return position_of(names.missing, names.trained, _order(state, gone, weights, names))


def _order(state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named) -> list[str]:
    """The names in the model's order: that of the weights, or else the optimizer's, if it has them in one group."""
    if weights is not None and weights.in_order:
        return [one.name for one in weights.tensors]
    if len(state.listed) != 1:
        return []
    trained = {one.id: one.name for one in state.tensors}
    missing = dict(zip(gone, (one.name for one in names.missing), strict=True))
    called = (trained.get(key) or missing.get(label_of(key, None)) for key in state.listed[0])
    return [name for name in called if name is not None]


def _amid_what_is_trained(
    state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named | None
) -> Sign | None:
    """What is wrong with parameters behind trained ones: a pooler, or a head that the task leaves out, is one layer."""
    if len(gone) > OF_ONE_LAYER:
        return Sign(Verdict.WARN, _shown(names, gone), "no state: unused, frozen, or cut off from the loss")
    if names is None:
        return None
    if without_their_matrix(names.missing, names.trained):
        return Sign(Verdict.WARN, _shown(names, gone), "no state, though a bias of the same module is trained")
    at_end = all(is_back(one.name) for one in names.missing) or _where(state, gone, weights, names) is Position.AT_END
    if at_end and lone_head(names.missing, names.trained, _last_parameter(weights)) and _as_begun(names, weights):
        return Sign(Verdict.WARN, _shown(names, gone), f"{_AS_BEGUN}: the model's head looks never trained")
    if alike_embeddings(names.missing, names.trained) and _as_begun(names, weights):
        return Sign(Verdict.WARN, _shown(names, gone), f"{_AS_BEGUN}, though embeddings like it are trained")
    return None


def _without_excused(gone: Sequence[str], names: Named) -> tuple[list[str], Named]:
    """Without copies of what is trained, heads beside used ones, and what is frozen beside adapters."""
    excused = copies_among([*names.missing, *names.trained]) | alternatives(names.missing, names.trained)
    adapters = any(ADAPTER.search(one.name) for one in names.trained)
    kept = [
        (label, one)
        for label, one in zip(gone, names.missing, strict=True)
        if one.name not in excused and (not adapters or ADAPTER.search(one.name))
    ]
    return [label for label, _ in kept], names._replace(missing=[one for _, one in kept])


def _sure(names: Named | None, labels: Sequence[str], what: str) -> Sign:
    """A sure one: fail, unless the names are only assumed."""
    certain = names is None or names.certain
    return Sign(Verdict.FAIL if certain else Verdict.WARN, _shown(names, labels), what, is_sure=True)


def _shown(names: Named | None, labels: Sequence[str]) -> list[str]:
    """What to call them: an assumed name stands behind the number."""
    presumed = {} if names is None else names.presumed
    return [f"{label} ({presumed[label]})" if label in presumed else label for label in labels]


def _by_name(state: OptimizerState, gone: Sequence[str], weights: Weights | None) -> Named | None:
    """The parameters by name; None where one of them has none, or may be of several optimizers."""
    if not gone:
        return None
    known = {tail_of(one.name): one.shape for one in weights.tensors} if weights is not None else {}
    if _are_named(state, gone):
        name = _naming([*gone, *(one.label for one in state.tensors)])
        missing = [Sized(name(label), known.get(tail_of(label))) for label in gone]
        return Named(missing, [Sized(name(one.label), one.shape) for one in state.tensors], {})
    if any(one.name is None for one in state.tensors) or not all(label in state.presumed for label in gone):
        return None
    missing = [Sized(state.presumed[label], known.get(tail_of(state.presumed[label]))) for label in gone]
    return Named(missing, [Sized(str(one.name), one.shape) for one in state.tensors], state.presumed)


def _naming(labels: Sequence[str]) -> Callable[[str], str]:
    """How to call parameters: several optimizers are those of one model, unless names are in more than one of them."""
    if len(set(map(bare_name, labels))) == len(labels):
        return bare_name
    return lambda label: label.replace("/", ".")


def _are_named(state: OptimizerState, gone: Sequence[str]) -> bool:
    return has_names(state) and not any(_UNNAMED.search(label) for label in gone)


def _seem_frozen(state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named | None) -> bool:
    """Whether what has no state looks frozen on purpose: by names, or else by the order of the parameters."""
    shapes = [tensor.shape for tensor in state.tensors]
    if all(len(shape) <= 1 for shape in shapes):
        return True
    if names is not None and (looks_frozen(names.missing, names.trained) or are_branches(names.missing, names.trained)):
        return True
    if names is not None and names.certain:
        return False
    if weights is not None and weights.is_adapter:
        return not _lists_an_adapter_alone(state, gone, weights)
    of_one_kind = look_like_adapters(shapes) or _are_of_one_kind(shapes, len(gone))
    of_one_kind = of_one_kind or (names is None and _are_vectors(shapes, gone, weights))
    return of_one_kind or _are_first(state, gone) or (names is None and _are_in_one_piece(state, gone))


def _are_of_one_kind(shapes: Sequence[tuple[int, ...]], gone: int) -> bool:
    """Whether of many parameters vectors alone are trained, or matrices alone: biases, or all but normalisations."""
    vectors = sum(len(shape) <= 1 for shape in shapes)
    return min(vectors, len(shapes) - vectors) <= 1 and min(max(vectors, len(shapes) - vectors), gone) > _MANY


def _are_vectors(shapes: list[tuple[int, ...]], gone: Sequence[str], weights: Weights | None) -> bool:
    """Whether these are many, and by the weights all of them vectors: normalisation layers."""
    if weights is None or len(gone) <= _MANY:
        return False
    left = left_by_shape(shapes, *parameters_of(weights.tensors))
    return len(left) == len(gone) and all(len(one.shape) == 1 for one in left)


def _are_in_one_piece(state: OptimizerState, gone: Sequence[str]) -> bool:
    """Whether these are a third or more of the parameters, and in each group nearly all follow each other: a branch."""
    if 3 * len(gone) < len(state.tensors) + len(gone):
        return False
    lost = {int(found.group(1)) for label in gone if (found := _UNNAMED.fullmatch(label)) is not None}
    runs = [sorted(_runs([key in lost for key in ids])) for ids in state.listed]
    whole = sum(map(sum, runs)) == len(gone) > _MANY - 1
    return whole and all(not some or some[-1] >= _MOST_OF_A_BRANCH * sum(some) for some in runs)


def _runs(lost: Sequence[bool]) -> list[int]:
    """The lengths of the stretches of what is lost."""
    return [len(list(some)) for is_lost, some in groupby(lost) if is_lost]


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


def _are_cut_off(state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named | None) -> bool:
    """Whether neither freezing nor an unused branch explains what has no state."""
    if weights is not None and weights.is_adapter and _lists_an_adapter_alone(state, gone, weights):
        return True
    return names is not None and _are_amid_layers(names)


def _are_amid_layers(names: Named) -> bool:
    """Whether most have trained matrices beside them in their own layer, and their like is trained in a later layer."""
    last: dict[tuple[str, str], int] = {}
    layers = set()
    for one in names.trained:
        place = place_of(one.name)
        if place is not None:
            if len(one.shape or ()) > 1:
                layers.add((place.stack, place.layer))
            last[place.stack, place.role] = max(place.layer, last.get((place.stack, place.role), place.layer))
    places = [place_of(one.name) for one in names.missing]
    amid = sum(
        place is not None
        and (place.stack, place.layer) in layers
        and last.get((place.stack, place.role), -1) > place.layer
        for place in places
    )
    return 2 * amid >= len(names.missing)


def _lists_an_adapter_alone(state: OptimizerState, gone: Sequence[str], weights: Weights) -> bool:
    return len(state.tensors) + len(gone) <= len(weights.tensors)


def _were_never_trained(
    state: OptimizerState, gone: Sequence[str], weights: Weights | None, names: Named | None
) -> bool:
    """Whether the values of what has no state show that it was never trained, neither here nor before."""
    if weights is None:
        return False
    if names is not None:
        return _as_begun(names, weights)
    left = left_by_shape([tensor.shape for tensor in state.tensors], *parameters_of(weights.tensors))
    return len(left) <= len(gone) and never_trained(left)


def _as_begun(names: Named, weights: Weights | None) -> bool:
    tails = {tail_of(one.name) for one in names.missing}
    known = weights.tensors if weights is not None else ()
    return never_trained(one for one in known if tail_of(one.name) in tails)


def _too_small(names: Named, weights: Weights | None) -> bool:
    """Whether none of these is large enough to show whether it was ever trained."""
    tails = {tail_of(one.name) for one in names.missing}
    known = weights.tensors if weights is not None else ()
    return not any(tells_whether_trained(one) for one in known if tail_of(one.name) in tails)


def _last_parameter(weights: Weights | None) -> str:
    """The name of the parameter that a model defines last; "" where the file does not keep the order."""
    if weights is None or not weights.in_order:
        return ""
    kept = {one.name for some in parameters_of(weights.tensors) for one in some}
    return next((one.name for one in reversed(weights.tensors) if one.name in kept), "")
