"""Signs that tensors were left out of training by accident: others of their own module, or their sisters, are trained.

A module is frozen as a whole or not at all, and a list of modules that are alike from its front. Names tell.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tracker_health.probes._frozen import ADAPTER, Sized, is_back, is_front, number_in_chain
from tracker_health.probes._model import kind_of

# The matrices of one layer and direction of a recurrent module; an attention's projections where they are apart.
_HALF = re.compile(r"weight_(?:ih|hh|hr)((?:_l\d+)?(?:_reverse)?)|([qkv])_proj_weight")
_NUMBER = re.compile(r"(?<![^.])\d{1,6}(?=\.)")
# Lists, by their own name, of what stands beside each other, of which a run may use some.
_ALTERNATIVES = re.compile(
    r"heads?$|(^|_)(experts?|tasks?|branch(es)?|adapters?|exits?|aux\w*|outputs?|classifiers?|domains?|lang(uage)?s?"
    r"|ops|choices|candidates|paths?|prompts?|seg_layers|towers?|modalit(y|ies)|decoders|policies|critics|actors|agents"
    r"|predictors?|targets?)$",
    re.IGNORECASE,
)
# Where keys are names, modules of one head may look so, too (``classifier.dense``): only of many things at once.
_NAMED_ALTERNATIVES = re.compile(
    r"heads$|(^|_)(experts|tasks|branches|adapters|exits|outputs|classifiers|domains|lang(uage)?s|modalities|decoders"
    r"|policies|critics|actors|agents|predictors|targets)$",
    re.IGNORECASE,
)
# Heads of an objective that is not this run's.
_OTHER_OBJECTIVE = re.compile(
    r"(^|[._])(lm_head|mlm\w*|nsp\w*|cls|predictions?|pooler|aux\w*|auxiliary\w*|multiple_choice\w*"
    r"|value_head|v_head|seq_relationship)([._]|$)",
    re.IGNORECASE,
)
# Queries and keys may be frozen, or shared, and the rest be trained; values may not.
_ATTENDS = re.compile(r"qkv|c_attn|in_proj|query_key_value|to_qkv|Wqkv|v_proj|to_v")
_ATTENDED = re.compile(r"proj|out_proj|o_proj|c_proj|to_out|dense")
_EMBEDDINGS = frozenset(("emb", "embs", "embed", "embeds", "embedding", "embeddings"))
_POSITION = re.compile(r"pos|time|type|segment", re.IGNORECASE)


def module_of(name: str) -> str:
    """The module that a tensor is of."""
    return name.rpartition(".")[0]


def trained_by_halves(missing: Collection[Sized], trained: Collection[Sized]) -> list[str]:
    """The missing ones of a recurrent layer's or an attention's matrices, of which others are trained.

    A dropout on weights (AWD-LSTM) trains a copy of the same name, which ends in ``_raw``. Where the first so many of
    all parameters are frozen, that may end within a layer, behind its first matrix.
    """
    before = [one for one in missing if _whole_of(one.name) is None]
    if before and all(is_front(one.name) for one in before) and not any(is_front(one.name) for one in trained):
        missing = [one for one in missing if "weight_ih" not in one.name]

    there = {key for one in trained if (key := _whole_of(one.name)) is not None}
    copied = {kind.removesuffix("_raw") for one in trained if (kind := kind_of(one.name)).endswith("_raw")}
    return [one.name for one in missing if _whole_of(one.name) in there and kind_of(one.name) not in copied]


def _whole_of(name: str) -> tuple[str, str] | None:
    """What a matrix is one part of."""
    found = _HALF.fullmatch(kind_of(name))
    return None if found is None else (module_of(name), "attention" if found.group(2) else found.group(1))


def without_their_matrix(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether there are missing matrices whose bias is trained, where most layers train both. A matrix of the shape of
    an embedding may be tied to it.
    """
    matrices = {module_of(one.name) for one in trained if one.shape is not None and len(one.shape) > 1}
    biases = {module_of(one.name) for one in trained if kind_of(one.name) == "bias"}
    tied = {one.shape for one in trained if is_front(one.name)}
    found = [
        one.name
        for one in missing
        if kind_of(one.name) == "weight"
        and module_of(one.name) in biases
        and one.shape is not None
        and len(one.shape) > 1
        and one.shape not in tied
    ]
    return 0 < len(found) < len(matrices & biases)


def torn_from_their_block(missing: Collection[Sized], trained: Collection[Sized]) -> list[str]:
    """The missing matrices of numbered blocks of which other matrices are trained, where the same one of a later block
    is trained, too: a convolution of a residual block.
    """
    blocks: set[tuple[str, int]] = set()
    last: dict[tuple[str, str], int] = {}
    for one in trained:
        if one.shape is not None and len(one.shape) > 1:
            for before, number, behind in _numbered(one.name):
                blocks.add((before, number))
                last[before, behind] = max(number, last.get((before, behind), number))
    return [
        one.name
        for one in missing
        if any(
            (before, number) in blocks and last.get((before, behind), -1) > number
            for before, number, behind in _numbered(one.name)
        )
    ]


class _Sisters(NamedTuple):
    """The trained tensors of the same place in numbered modules. ``matrices``: all of them are."""

    amount: int
    first: int
    last: int
    matrices: bool


def amid_sisters(missing: Collection[Sized], trained: Collection[Sized]) -> list[str]:
    """The missing matrices of numbered modules of which the same tensor is trained both in an earlier and in a later
    one; of embeddings beside each other an earlier one is enough.
    """
    if any(ADAPTER.search(one.name) for one in trained):
        return []
    sisters: dict[tuple[str, str], _Sisters] = {}
    for one in trained:
        is_matrix = one.shape is not None and len(one.shape) > 1
        for before, number, behind in _numbered(one.name):
            known = sisters.get((before, behind), _Sisters(0, number, number, matrices=True))
            first, last = min(known.first, number), max(known.last, number)
            sisters[before, behind] = _Sisters(known.amount + 1, first, last, known.matrices and is_matrix)
    lost = Counter((before, behind) for one in missing for before, _, behind in _numbered(one.name))
    return [
        one.name
        for one in missing
        if any(
            (before, behind) in sisters
            and lost[before, behind] <= sisters[before, behind].amount > 1
            and not _holds_alternatives(before[:-1])
            and _is_amid(one, number, sisters[before, behind], side_by_side=bool(_embedding_in(before)))
            for before, number, behind in _numbered(one.name)
        )
    ]


def _is_amid(one: Sized, number: int, sisters: _Sisters, *, side_by_side: bool) -> bool:
    # Among a chain's layers may be a normalisation's vectors.
    is_matrix = sisters.matrices if one.shape is None else len(one.shape) > 1
    return is_matrix and sisters.first < number and (side_by_side or number < sisters.last)


def are_last_sisters(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether a matrix among these is of the last of numbered modules, of which the same is trained in others: what a
    last block gives beside its output often leads nowhere. Not where numbers are left out, as by the activations
    between the layers of a chain.
    """
    last: dict[tuple[str, str], int] = {}
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in (*missing, *trained):
        for before, number, _ in _numbered(one.name):
            numbers[before].add(number)
    for one in trained:
        for before, number, behind in _numbered(one.name):
            last[before, behind] = max(number, last.get((before, behind), number))
    matrices = [one for one in missing if one.shape is None or len(one.shape) > 1]
    return any(
        last.get((before, behind), number) < number and max(numbers[before]) < len(numbers[before])
        for one in matrices
        for before, number, behind in _numbered(one.name)
    )


def are_of_a_trained_attention(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether these are an attention's matrix for its values or for its output, and the other one is trained: what is
    learnt in the one goes through the other.
    """
    there = {(module_of(module), _part_of_attention(module)) for module in {module_of(one.name) for one in trained}}
    # torch's own module has the inputs' matrix itself, and a module for the output in it.
    there |= {(module_of(one.name), "in") for one in trained if kind_of(one.name) == "in_proj_weight"}
    for one in missing:
        module, itself = module_of(one.name), kind_of(one.name) == "in_proj_weight"
        parent, part = (module, "in") if itself else (module_of(module), _part_of_attention(module))
        other = {"in": "out", "out": "in"}.get(part)
        if parent and other is not None and (parent, other) in there:
            return True
    return False


def _part_of_attention(module: str) -> str:
    name = module.rpartition(".")[2]
    return "in" if _ATTENDS.fullmatch(name) else "out" if _ATTENDED.fullmatch(name) else ""


def alternatives(missing: Collection[Sized], trained: Collection[Sized]) -> set[str]:
    """Those of the missing ones that stand beside trained ones of which a run may use some: heads of several tasks, by
    number or by name. Not the layers of one head, of which each takes what the one before gives (``classifier.2``).
    """
    used = {place for one in trained for place in _among_alternatives(one.name)}
    in_turn = _in_turn(missing, trained)
    return {
        one.name
        for one in missing
        if module_of(one.name) not in in_turn and any(place in used for place in _among_alternatives(one.name))
    }


def _in_turn(missing: Collection[Sized], trained: Collection[Sized]) -> set[str]:
    """The modules of those missing ones that are a numbered layer which takes what a trained one of the same list
    gives, or gives what that takes, by a list's name in the singular.
    """
    known = {(_list_of(one.name), "gives", one.shape[0]) for one in trained if one.shape and len(one.shape) == 2}
    known |= {(_list_of(one.name), "takes", one.shape[1]) for one in trained if one.shape and len(one.shape) == 2}
    found = set()
    for one in missing:
        above = _list_of(one.name)
        if above and one.shape is not None and len(one.shape) == 2:
            gives, takes = one.shape
            if (above, "gives", takes) in known or (above, "takes", gives) in known:
                found.add(module_of(one.name))
    return found


def _list_of(name: str) -> str:
    """The list that a tensor's module is in by its number, if that is called in the singular; else ""."""
    above, _, number = module_of(name).rpartition(".")
    return above if number.isdecimal() and not above.endswith("s") else ""


def _among_alternatives(name: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind each key of a list of alternatives."""
    parts = name.split(".")
    for at in range(1, len(parts) - 1):
        of = _ALTERNATIVES if parts[at].isdecimal() else _NAMED_ALTERNATIVES
        if of.search(parts[at - 1]):
            yield ".".join(parts[:at]), ".".join(parts[at + 1 :])


def _holds_alternatives(module: str) -> bool:
    return bool(_ALTERNATIVES.search(module.rpartition(".")[2]))


def _numbered(name: str) -> Iterator[tuple[str, int, str]]:
    """Each number in a name, with what stands before and behind it."""
    for found in _NUMBER.finditer(name):
        yield name[: found.start()], int(found.group()), name[found.end() :]


def lone_head(missing: Collection[Sized], trained: Collection[Sized], last: str) -> bool:
    """Whether these are the one output layer of a model: of one module, the last one or called so, and no other head is
    trained. ``last``: the name of the model's last parameter, "" where the order is not known.
    """
    modules = {module_of(one.name) for one in missing}
    if len(modules) != 1:
        return False
    (module,) = modules
    above = module_of(module)
    in_turn = bool(_in_turn(missing, trained))
    if _OTHER_OBJECTIVE.search(module) or (_holds_alternatives(above) and not in_turn):
        return False
    others = [one for one in trained if is_back(one.name) and not (above and one.name.startswith(f"{above}."))]
    return not others and _is_last(module, missing, trained, last)


def _is_last(module: str, missing: Collection[Sized], trained: Collection[Sized], last: str) -> bool:
    if last:
        return module_of(last) == module
    numbers = [number_in_chain(one.name) for one in (*missing, *trained)]
    if None not in numbers and len({chain for chain, _ in filter(None, numbers)}) == 1:
        return numbers[0] == max(filter(None, numbers))
    return is_back(f"{module}.weight")


def alike_embeddings(missing: Collection[Sized], trained: Collection[Sized]) -> bool:
    """Whether these are embeddings beside trained ones of the same kind (``item_emb``, ``user_emb``)."""
    kinds = {_kind_of_embedding(one.name) for one in trained} - {""}
    return bool(missing) and all(_kind_of_embedding(one.name) in kinds for one in missing)


def _kind_of_embedding(name: str) -> str:
    """The word by which a module is an embedding; "" of others, and of those of positions, which are often fixed."""
    module = module_of(name).rpartition(".")[2]
    return "" if _POSITION.search(module) else _embedding_in(module)


def _embedding_in(name: str) -> str:
    return next((word for word in re.split(r"[._]", name.lower()) if word in _EMBEDDINGS), "")
