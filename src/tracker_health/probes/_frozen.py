"""What of a model looks frozen on purpose, as far as names and shapes tell: where tensors lie, and what is trained."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tracker_health.evidence import TensorHeader
from tracker_health.layers import place_of

_FRONT = re.compile(
    r"(^|[._])(tok|token|tokens|emb|embed|embedding|embeddings|embed_tokens|wte|wpe|pos|position|positions|patch|patches"
    r"|stem|conv1)([._]|$)"
)
_BACK = re.compile(
    r"(^|[._])(head|lm_head|classifier|score|logits|output|out|final_layer|proj_out)([._]|$)|(^|\.)fc(\.|$)"
)
_NUMBERED = re.compile(r"^(.*?)(?:^|\.)(\d{1,6})\.")
_STAGE = re.compile(r"(.*?(?:layer|stage|block|conv|fc|linear|dense|hidden))_?(\d{1,3})")
ADAPTER = re.compile(r"(^|[._])(lora|adapter|prompt|prefix)([._]|$)", re.IGNORECASE)
_NORM = re.compile(r"norm|(^|_)(bn\d*(_|$)|ln)", re.IGNORECASE)
_OUTPUT = re.compile(r"head|proj|predict|classif|output|logits|final|neck|fc", re.IGNORECASE)
_OFTEN_UNUSED = re.compile(
    r"(^|\.)(pooler|mask_token|mask_emb|masked_spec_embed|aux\d*|aux(iliary)?_\w+)(\.|$)"
    # Fixed on purpose: the length of a normalised weight, sinusoidal positions.
    r"|(^|\.)(weight_g|weight\.original0|(?>\w*?pos(ition)?s?_emb)\w*+)$"
)
_MANY_VECTORS = 4
_LAYERS = 3
_BRANCH = 3  # tensors: more than a weight and its bias
_MOST = 0.9


class Sized(NamedTuple):
    """A tensor's name, and its shape where that is known."""

    name: str
    shape: tuple[int, ...] | None


class _Place(NamedTuple):
    """Where in a model a tensor lies, as far as its name tells: its part (0 first, 2 last), its list, the number of its
    stage (``layer3``) and its own there.
    """

    part: int
    list_name: str
    stage: int
    number: int


def _place(name: str) -> _Place:
    numbered = _NUMBERED.match(name)
    stem = numbered.group(1) if numbered else name
    if _FRONT.search(stem):
        return _Place(0, "", 0, 0)
    part, number = 2 if _BACK.search(stem) else 1, int(numbered.group(2)) if numbered else 0
    staged = _STAGE.fullmatch(stem if numbered else _module_of(stem))
    if staged is not None:
        return _Place(part, staged.group(1), int(staged.group(2)), number)
    return _Place(part, stem if numbered else "", 0, number)


def often_unused(name: str) -> bool:
    """Whether many models carry a tensor of this name along that is not trained."""
    return bool(_OFTEN_UNUSED.search(name))


def is_front(name: str) -> bool:
    """Whether a name says that something lies at a model's front: an embedding, a stem."""
    return _place(name).part == 0


def is_back(name: str) -> bool:
    """Whether a name says that something is a model's output layer."""
    return _place(name).part == 2


def number_in_chain(name: str) -> tuple[str, int] | None:
    """The list that a name leads into first, and the number there; None of a name without one."""
    found = _NUMBERED.match(name)
    return (found.group(1), int(found.group(2))) if found else None


def front_first(tensor: TensorHeader) -> tuple[int, int, int, str]:
    """A key that sorts tensors by how early in a model they lie."""
    place = _place(tensor.name)
    return place.part, place.stage, place.number, tensor.name


def looks_frozen(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether what is not trained looks frozen on purpose: nothing that lies before it is trained. So are many vectors
    at once (all normalisation layers), all but vectors and the head, an output layer that is tied to the embedding, the
    same parts of every layer, and all else beside an adapter.
    """
    adapted = _adapted(missing, trained)
    missing = [one for one in missing if _module_of(one.name) not in adapted]
    if any(ADAPTER.search(one.name) for one in trained):
        missing = [one for one in missing if ADAPTER.search(one.name)]
    if _are_normalisations(missing) or _are_parts_of_every_layer(missing, trained):
        return True
    places = [(one, _place(one.name)) for one in trained]
    return _are_vectors_and_head(places) or _lie_before(missing, places)


def _are_normalisations(missing: Collection[Sized]) -> bool:
    """Whether these are many vectors and nothing else; where shapes are not known, most are called a normalisation."""
    if any(one.shape is None for one in missing):
        return sum(_is_of_norm(one.name) for one in missing) >= max(_MANY_VECTORS + 1, 0.8 * len(missing))
    return len(missing) > _MANY_VECTORS and all(one.shape is not None and len(one.shape) == 1 for one in missing)


def _are_parts_of_every_layer(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether these are some parts of every layer, as all but the attention, and what lies in front of the layers."""
    places = [place_of(one.name) for one in missing]
    inside = [place for place in places if place is not None]
    beside = [place for one in trained if (place := place_of(one.name)) is not None]
    outside = (one for one, place in zip(missing, places, strict=True) if place is None)
    none_outside = len(beside) == len(trained)  # nothing but parts of layers is trained
    return (
        len({(place.stack, place.layer) for place in inside}) >= _LAYERS
        and {(place.stack, place.layer) for place in inside} <= {(place.stack, place.layer) for place in beside}
        and not {(place.stack, place.role) for place in inside} & {(place.stack, place.role) for place in beside}
        and (
            none_outside or all(is_front(one.name) or (one.shape is not None and len(one.shape) < 2) for one in outside)
        )
    )


def _is_of_norm(name: str) -> bool:
    return any(map(_NORM.search, name.split(".")[:-1]))


def _lie_before(missing: Collection[Sized], places: Collection[tuple[Sized, _Place]]) -> bool:
    """Whether nothing that is trained lies before any of these."""
    front = {one.shape for one, place in places if place.part == 0}
    first_part = min((place.part for _, place in places), default=3)
    first: dict[tuple[int, str], tuple[int, int]] = {}
    for _, place in places:
        key, at = (place.part, place.list_name), (place.stage, place.number)
        first[key] = min(at, first.get(key, at))
    for one in missing:
        place = _place(one.name)
        if place.part == 2 and one.shape in front:
            continue
        at = place.stage, place.number
        if place.part > first_part or at > first.get((place.part, place.list_name), at):
            return False
    return True


def are_branches(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether these are whole branches of the model, or nearly so: a tower, an encoder, a network of the loss."""
    inside = {prefix for one in trained for prefix in _prefixes(one.name)}
    roots: dict[str, list[Sized]] = defaultdict(list)
    for one in missing:
        root = next((prefix for prefix in _prefixes(one.name) if prefix not in inside), None)
        if root is not None:
            roots[root].append(one)
    stems = Counter(map(_stem, {*inside, *roots}))
    branching = (some for root, some in roots.items() if _is_branch(some) and _may_be_branch(root, stems))
    return sum(map(len, branching)) >= _MOST * len(missing) > 0


def _is_branch(some: Collection[Sized]) -> bool:
    """Whether these are more than one layer's."""
    return len(some) >= _BRANCH and len({_module_of(one.name) for one in some}) > 1


def branches(tensors: Collection[Sized]) -> dict[str, list[Sized]]:
    """The parts of a model that a name leads into, by that name: ``text_model``, ``text_model.encoder``."""
    found: dict[str, list[Sized]] = defaultdict(list)
    for one in tensors:
        for prefix in _prefixes(one.name):
            found[prefix].append(one)
    stems = Counter(map(_stem, found))
    return {prefix: some for prefix, some in found.items() if _is_branch(some) and _may_be_branch(prefix, stems)}


def _prefixes(name: str) -> Iterator[str]:
    """The modules around a tensor, the outermost first, as far as none is a number in a list."""
    parts = name.split(".")[:-1]
    for depth, part in enumerate(parts, 1):
        if part.isdigit():
            return
        yield ".".join(parts[:depth])


def _may_be_branch(root: str, stems: Mapping[str, int]) -> bool:
    """Whether a module is none of several that are numbered in their names (``layer3``), and no output."""
    numbered = _stem(root) != root and stems.get(_stem(root), 0) > 1
    return not numbered and not _OUTPUT.search(root.rpartition(".")[2])


def _stem(module: str) -> str:
    return module.rstrip("0123456789")


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def _adapted(missing: Collection[Sized], trained: Collection[Sized]) -> set[str]:
    """The modules whose matrix has two thin trained factors beside it, whatever these are called."""
    beside: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for one in trained:
        if one.shape is not None and len(one.shape) == 2:
            for above in (_module_of(one.name), _module_of(_module_of(one.name))):
                beside[above].add(one.shape)
    found = set()
    for one in missing:
        if one.shape is None or len(one.shape) != 2:
            continue
        rows, columns = one.shape
        owner = _module_of(one.name)
        near = {shape for above in (owner, _module_of(owner)) for shape in beside.get(above, ())}
        if any((rows, rank) in near for rank, width in near if width == columns and rank < min(rows, columns)):
            found.add(owner)
    return found


def _are_vectors_and_head(trained: Collection[tuple[Sized, _Place]]) -> bool:
    """Whether only vectors are trained, and the head: biases and normalisations of a model that was trained before."""
    vectors = [one for one, _ in trained if one.shape is not None and len(one.shape) == 1]
    return len(vectors) > _MANY_VECTORS and all(
        place.part == 2 or (one.shape is not None and len(one.shape) == 1) for one, place in trained
    )


def look_like_adapters(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether most of these matrices come in pairs of thin factors, as low-rank adapters do."""
    matrices = [shape for shape in shapes if len(shape) == 2]
    pairs = zip(matrices[::2], matrices[1::2], strict=False)
    factors = sum(down[0] == up[1] and 2 * down[0] <= min(down[1], up[0]) for down, up in pairs)
    return bool(matrices) and 4 * factors >= len(matrices)
