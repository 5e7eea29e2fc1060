"""Which parameter of the weights each state of an optimizer without names belongs to. Pure: names and shapes only.

An optimizer knows its parameters by number, in the order in which they were given to it, group by group. A file of
weights knows their names. What brings the two together is an assumption about the order, and every shape must agree;
where several assumptions fit, a name is given only where all of them give the same. So a name that is given is as good
as the assumption, and no shape can prove that: the tier says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from tracker_health.evidence import Attribution, OptimizerState, TensorHeader, Weights, label_of
from tracker_health.readers.optimizers.module_order import Leaf, Shape, certain_places
from tracker_health.words.layers import are_names

_FLOATING = re.compile(r"(F|BF)\d+")
_BUFFER = re.compile(
    r"(^|\.)(running_mean|running_var|num_batches_tracked|position_ids|inv_freq|token_type_ids|attn_mask|masked_bias"
    r"|causal_mask|relative_position_index|anchor_grid|anchors|freqs_cis|rotary_emb\.\w+)$"
)
# What transformers' Trainer leaves out of weight decay by its name; what is a LayerNorm it leaves out by its type.
_NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")
# Each word is gone through once, from its beginning to the first place that fits: a name may be long.
_WORD = r"(?<!\w)(?>(?:(?<![^.])|\w*?_)"  # up to a part of it, or none: further as what that has to begin with
_NORM = re.compile(
    rf"(?:(?:^|[._])(?:layer_?norm\d*|norm\d*)|{_WORD}ln)\w*+|{_WORD}\w)\w*+(?<=norm))\.(?:weight|bias)$", re.IGNORECASE
)
_EMBEDDING = re.compile(
    rf"(?:(?:^|[._])(?:word_embeddings|wte|wpe|shared|tok_embeddings)|{_WORD}embed)\w*+)\.(?:weight|lora_embedding_\w)"
)
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output|head|classifier|score)\.")
_EXPERT = re.compile(r"(.*\.experts)\.\d+\.(\w+)\.weight")
_EXPERT_PARTS = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
_NAMELESS = "?"
_MOST_PARAMETERS = 20_000
_MOST_GROUPS = 4
_MOST_MODULES = 200_000  # in all names together: each takes a kilobyte of memory


class _Slot(NamedTuple):
    """A parameter of the optimizer: its id, and its shape where a state tells it."""

    key: int | str
    shape: Shape | None


def attributed(state: OptimizerState, weights: Weights | None) -> OptimizerState:
    """The state with the names that the weights give it, and the tier of its attribution.

    Names that the file itself has stay. Nothing is claimed for several optimizers in one file.
    """
    if not state.tensors or state.attribution is Attribution.NAMED or weights is None:
        return state
    if any(tensor.name is not None or tensor.optimizer for tensor in state.tensors):
        return state
    if not are_names(one.name for one in weights.tensors):
        return state
    candidates = [tensor for tensor in weights.tensors if _may_be_trained(tensor)]
    if max(len(candidates), len(state.tensors)) > _MOST_PARAMETERS:
        return state
    if sum(one.name.count(".") for one in candidates) > _MOST_MODULES:
        return state
    names = _certain_names(_groups(state), candidates, ordered=weights.in_order)
    if not names:
        return state
    without_state = {label_of(key, None): name for key, name in names.items()}
    return replace(
        state,
        tensors=tuple(replace(one, name=names.get(one.id), assumed=one.id in names) for one in state.tensors),
        presumed={label: without_state[label] for label in state.stateless if label in without_state},
        attribution=Attribution.ASSUMED_ORDER,
    )


def unattributed(state: OptimizerState) -> OptimizerState:
    """The state without names that were only assumed."""
    return replace(
        state,
        tensors=tuple(replace(one, name=None, assumed=False) if one.assumed else one for one in state.tensors),
        presumed={},
        attribution=Attribution.UNATTRIBUTED,
    )


def _may_be_trained(tensor: TensorHeader) -> bool:
    return bool(_FLOATING.fullmatch(tensor.dtype)) and not _BUFFER.search(tensor.name)


def _groups(state: OptimizerState) -> list[list[_Slot]]:
    """The parameters of each group that has any, in the optimizer's order."""
    shapes: dict[int | str, Shape] = {tensor.id: tensor.shape for tensor in state.tensors}
    if state.listed:
        listed = state.listed
    else:
        by_group: dict[int, list[int | str]] = {}
        for tensor in sorted(state.tensors, key=lambda one: (isinstance(one.id, str), one.id)):
            by_group.setdefault(tensor.group or 0, []).append(tensor.id)
        listed = tuple(tuple(keys) for _, keys in sorted(by_group.items()))
    return [[_Slot(key, shapes.get(key)) for key in keys] for keys in listed if keys]


Claims = dict[int | str, str]


def _certain_names(groups: list[list[_Slot]], candidates: list[TensorHeader], *, ordered: bool) -> Claims:
    """The names, by id, that every assumption that fits agrees on."""
    stateful = [[slot for slot in group if slot.shape is not None] for group in groups]
    # Frozen parameters may have been given to the optimizer, without being in a file of trained ones.
    ways = [(groups, candidates), (stateful, candidates)] if stateful != groups else [(groups, candidates)]
    fused = _fused(candidates)
    if fused and any(slot.shape is not None and len(slot.shape) == 3 for group in stateful for slot in group):
        ways.append((groups, fused))
    for slots, tensors in ways:
        kept = [group for group in slots if group]
        found = _in_stored_order(kept, tensors) if ordered else _in_module_order(kept, tensors)
        agreed = _agreed(found)
        if agreed is not None:
            return {key: name for key, name in agreed.items() if not name.startswith(_NAMELESS)}
    return {}


def _agreed(found: Iterator[Claims]) -> Claims | None:
    agreed: Claims | None = None
    for claims in found:
        agreed = claims if agreed is None else {key: name for key, name in agreed.items() if claims.get(key) == name}
    return agreed


def _fused(candidates: list[TensorHeader]) -> list[TensorHeader]:
    """The weights with the experts of each mixture as transformers has them in memory: stacked, gate and up in one.

    Empty where there are none. Where the file has names from before they were stacked, those in memory are not known.
    """
    experts: dict[str, dict[str, list[TensorHeader]]] = {}
    others = []
    for tensor in candidates:
        found = _EXPERT.fullmatch(tensor.name)
        if found is None:
            others.append(tensor)
        else:
            experts.setdefault(found.group(1), {}).setdefault(found.group(2), []).append(tensor)
    stacked = [one for stem, parts in experts.items() for one in _stack(stem, parts)]
    return [*others, *stacked] if stacked else []


def _stack(stem: str, parts: Mapping[str, list[TensorHeader]]) -> Iterator[TensorHeader]:
    for gate, up, down in _EXPERT_PARTS:
        if {gate, up, down} == set(parts) and len({len(own) for own in parts.values()}) == 1:
            first, last = parts[gate][0], parts[down][0]
            count = len(parts[gate])
            if len(first.shape) == 2 and len(last.shape) == 2:
                rows, columns = first.shape
                prefix = "" if gate == "gate_proj" else _NAMELESS
                both = (count, 2 * rows, columns)
                yield replace(first, name=f"{prefix}{stem}.gate_up_proj", shape=both, rms=None, stats=None)
                yield replace(last, name=f"{prefix}{stem}.down_proj", shape=(count, *last.shape), rms=None, stats=None)


def _in_module_order(groups: list[list[_Slot]], candidates: list[TensorHeader]) -> Iterator[Claims]:
    """The claims of each way to split the parameters into these groups, the order being that of the modules' names."""
    chosen = _same_shapes(groups, candidates)
    if chosen is None:
        return
    names = [tensor.name for tensor in chosen]
    for slots, classes in _splits(groups, chosen):
        leaves = [Leaf(index, one.shape, classes[index]) for index, one in enumerate(chosen)]
        places = certain_places(names, leaves, [[slot.shape for slot in group] for group in slots])
        if places is not None:
            yield {slots[group][place].key: names[index] for (group, place), index in places.items()}


def _same_shapes(groups: list[list[_Slot]], candidates: list[TensorHeader]) -> list[TensorHeader] | None:
    """Those of the weights that the optimizer must have, or None where shapes do not tell.

    A tensor of a shape that the optimizer does not have is frozen. The others must be as many, of each shape.
    """
    wanted = [slot.shape for group in groups for slot in group]
    known = Counter(shape for shape in wanted if shape is not None)
    unknown = len(wanted) - sum(known.values())
    adapted = [one for one in candidates if ".base_layer." not in one.name]
    for some in (candidates, adapted):
        chosen = some if unknown else [one for one in some if one.shape in known]
        if len(chosen) == len(wanted) and not known - Counter(one.shape for one in chosen):
            return chosen
    return None


def _in_stored_order(groups: list[list[_Slot]], candidates: list[TensorHeader]) -> Iterator[Claims]:
    """The claims of each way to split the parameters, which were stored in the order of their definition. Some of them
    may be frozen: what the optimizer has is a subsequence, and certain is what is at one place in all that fit.
    """
    for slots, classes in _splits(groups, candidates, whole=False):
        claims: Claims | None = {}
        for index, group in enumerate(slots):
            own = [one for one, where in zip(candidates, classes, strict=True) if where == index]
            found = _subsequence(group, own)
            claims = None if found is None or claims is None else claims | found
        if claims is not None:
            yield claims


def _subsequence(slots: Sequence[_Slot], tensors: Sequence[TensorHeader]) -> Claims | None:
    first = _leftmost([slot.shape for slot in slots], [one.shape for one in tensors])
    last = _leftmost([slot.shape for slot in reversed(slots)], [one.shape for one in reversed(tensors)])
    if first is None or last is None:
        return None
    end = len(tensors) - 1
    pairs = zip(slots, first, reversed(last), strict=True)
    return {slot.key: tensors[left].name for slot, left, right in pairs if left == end - right}


def _leftmost(wanted: Sequence[Shape | None], shapes: Sequence[Shape]) -> list[int] | None:
    """The earliest places at which the wanted shapes follow each other, or None."""
    places, at = [], 0
    for shape in wanted:
        while at < len(shapes) and shape is not None and shapes[at] != shape:
            at += 1
        if at >= len(shapes):
            return None
        places.append(at)
        at += 1
    return places


def _splits(
    groups: list[list[_Slot]], tensors: list[TensorHeader], *, whole: bool = True
) -> Iterator[tuple[list[list[_Slot]], list[int]]]:
    """The ways to split parameters into these groups that trainers have: each with the slots of its groups, and the
    group of each tensor. ``whole``: the tensors are as many as the slots.
    """
    yield [[slot for group in groups for slot in group]], [0] * len(tensors)
    if not 1 < len(groups) <= _MOST_GROUPS:
        return
    seen = set()
    for classify in _CLASSES:
        labels = [classify(one) for one in tensors]
        kinds = sorted(set(labels))
        if len(kinds) != len(groups):
            continue
        for order in permutations(range(len(groups))):
            split = tuple(order[kinds.index(label)] for label in labels)
            if split not in seen and (not whole or _fits(groups, tensors, split)):
                seen.add(split)
                yield groups, list(split)


def _fits(groups: list[list[_Slot]], tensors: list[TensorHeader], split: Sequence[int]) -> bool:
    for index, group in enumerate(groups):
        own = Counter(one.shape for one, where in zip(tensors, split, strict=True) if where == index)
        if sum(own.values()) != len(group) or Counter(slot.shape for slot in group if slot.shape is not None) - own:
            return False
    return True


def _is_undecayed(tensor: TensorHeader) -> bool:
    return bool(_NO_DECAY.search(tensor.name.lower()))


def _is_norm(tensor: TensorHeader) -> bool:
    return _is_undecayed(tensor) or (len(tensor.shape) == 1 and bool(_NORM.search(tensor.name)))


def _is_vector(tensor: TensorHeader) -> bool:
    return len(tensor.shape) < 2


def _is_embedding(tensor: TensorHeader) -> bool:
    return bool(_EMBEDDING.search(tensor.name))


def _lora_plus(tensor: TensorHeader) -> str:
    """As ``peft.optimizers.create_loraplus_optimizer`` has it."""
    if "lora_embedding_" in tensor.name:
        return "embedding"
    if "lora_B" in tensor.name or len(tensor.shape) == 1:
        return "no decay" if _is_norm(tensor) else "B"
    return "A"


_CLASSES: tuple[Callable[[TensorHeader], str], ...] = (
    lambda one: str(_is_undecayed(one)),
    lambda one: str(_is_norm(one)),
    lambda one: str(_is_vector(one)),
    _lora_plus,
    lambda one: str("lora_B" in one.name),
    lambda one: str(_is_embedding(one)),
    lambda one: f"{_is_embedding(one)} {not _is_embedding(one) and _is_norm(one)}",
    lambda one: f"{_is_embedding(one)} {not _is_embedding(one) and _is_vector(one)}",
    lambda one: str(_is_vector(one) or _is_embedding(one)),
    lambda one: str(_is_vector(one) or _is_embedding(one) or bool(_HEAD.search(one.name))),
    lambda one: str(bool(_HEAD.search(one.name))),
)


def names_of(state: OptimizerState) -> Mapping[int | str, str]:
    """The assumed names of a state, by id."""
    return {one.id: one.name for one in state.tensors if one.assumed and one.name is not None}
