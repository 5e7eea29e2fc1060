"""What of a model looks frozen on purpose, as far as names and shapes tell: where tensors lie, and what is trained."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tracker_health.evidence import TensorHeader

_FRONT = re.compile(
    r"(^|[._])(tok|token|tokens|emb|embed|embedding|embeddings|embed_tokens|wte|wpe|pos|position|positions|patch|patches"
    r"|stem|conv1)([._]|$)"
)
_BACK = re.compile(r"(^|[._])(head|lm_head|classifier|score|logits|output|out|fc|final_layer|proj_out)([._]|$)")
_NUMBERED = re.compile(r"^(.*?)(?:^|\.)(\d+)\.")
_ADAPTER = re.compile(r"(^|[._])(lora|adapter|prompt|prefix)([._]|$)", re.IGNORECASE)
_MANY_VECTORS = 4


class Sized(NamedTuple):
    """A tensor's name, and its shape where that is known."""

    name: str
    shape: tuple[int, ...] | None


class _Place(NamedTuple):
    """Where in a model a tensor lies, as far as its name tells: its part (0 first, 2 last), its list, its number
    there.
    """

    part: int
    list_name: str
    number: int


def _place(name: str) -> _Place:
    numbered = _NUMBERED.match(name)
    stem = numbered.group(1) if numbered else name
    if _FRONT.search(stem):
        return _Place(0, "", 0)
    if _BACK.search(stem):
        return _Place(2, "", 0)
    return _Place(1, stem, int(numbered.group(2))) if numbered else _Place(1, "", 0)


def front_first(tensor: TensorHeader) -> tuple[int, int, str]:
    """A key that sorts tensors by how early in a model they lie."""
    place = _place(tensor.name)
    return place.part, place.number, tensor.name


def looks_frozen(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether what is not trained looks frozen on purpose: nothing that lies before it is trained. So are many vectors
    at once (all normalisation layers), all matrices but the head's, an output layer that is tied to the embedding, and
    all else beside an adapter.
    """
    adapted = _adapted(missing, trained)
    missing = [one for one in missing if _module_of(one.name) not in adapted]
    if any(_ADAPTER.search(one.name) for one in trained):
        missing = [one for one in missing if _ADAPTER.search(one.name)]
    if len(missing) > _MANY_VECTORS and all(one.shape is not None and len(one.shape) == 1 for one in missing):
        return True
    places = [(one, _place(one.name)) for one in trained]
    if _are_vectors_and_head(places) and all(one.shape is not None and len(one.shape) > 1 for one in missing):
        return True
    front = {one.shape for one, place in places if place.part == 0}
    first_part = min((place.part for _, place in places), default=3)
    first_number: dict[tuple[int, str], int] = {}
    for _, place in places:
        key = place.part, place.list_name
        first_number[key] = min(place.number, first_number.get(key, place.number))
    for one in missing:
        place = _place(one.name)
        if place.part == 2 and one.shape in front:
            continue
        if place.part > first_part or place.number > first_number.get((place.part, place.list_name), place.number):
            return False
    return True


def _module_of(name: str) -> str:
    return name.rpartition(".")[0]


def _adapted(missing: Collection[Sized], trained: Collection[Sized]) -> set[str]:
    """The modules whose matrix has two thin trained factors beside it, whatever these are called."""
    beside: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for one in trained:
        if one.shape is not None and len(one.shape) == 2:
            for above in (_module_of(one.name), _module_of(_module_of(one.name))):
                beside[above].append(one.shape)
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
