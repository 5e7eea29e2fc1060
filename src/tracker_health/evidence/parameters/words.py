"""What the name of a parameter says: what it is, which module it is of, and where in its model that is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple, Protocol

from tracker_health.evidence.tensors import TensorHeader

_FLOATING = re.compile(r"^(F|BF)\d+")
_BUFFER = re.compile(
    r"(^|\.)(running_mean|running_var|num_batches_tracked|position_ids|inv_freq|token_type_ids|attn_mask|masked_bias"
    r"|(weight|bias|causal)_mask|final_logits_bias|relative_position_index|anchor_grid|anchors|freqs_cis|rotary_emb\.\w+)$"
)
_PARAMETER = re.compile(
    r"weight|bias|kernel|gamma|beta(?!s)|lora|emb|token|query|prompt|proj|scale|_[gv]$|^[wb](\d*|_.*)$|^[ab]$",
    re.IGNORECASE,
)
_MASK = re.compile(r"bias|mask|tril", re.IGNORECASE)
_COPY = re.compile(r"(^|_)(teacher|ema|swa|momentum|shadow|averaged|reference|ref)(_|$)", re.IGNORECASE)
_TWIN = re.compile(r"(^|_)(target|old|offline|slow|key|k|m|bar)(_|$)", re.IGNORECASE)
_TWIN_DEPTH = 2
_EXPERT = re.compile(r"(^|\.)(experts?|local_experts)[._](\d{1,6})(\.|$)", re.IGNORECASE)
_FIRST_FACTOR = re.compile(r"\.lora_(embedding_)?A(\.|$)")
_SECOND_FACTOR = re.compile(r"\.lora_(embedding_)?B(\.|$)")
_ADAPTER = re.compile(r"(^|[._])(lora|adapter|prompt|prefix)([._]|$)", re.IGNORECASE)
_FRONT = re.compile(
    r"(^|[._])(tok|token|tokens|emb|embed|embedding|embeddings|embed_tokens|wte|wpe|pos|position|positions|patch|patches"
    r"|stem|conv1)([._]|$)"
)
_BACK = re.compile(
    r"(^|[._])(head|heads|lm_head|classifier|classify|score|logits|outputs?|out|final_layer|proj_out|regressor|predictor)([._]|$)|(^|\.)fc(\.|$)"
)
_NUMBERED = re.compile(r"^(.*?)(?:^|\.)(\d{1,6})\.")
_NUMBER = re.compile(r"(?<![^.])\d{1,6}(?=\.)")
_STAGE = re.compile(r"(.*?(?:layer|stage|block|conv|fc|linear|dense|hidden))_?(\d{1,3})")
_NORM = re.compile(r"norm|(^|_)(bn\d*(_|$)|ln)", re.IGNORECASE)
_OFTEN_UNUSED = re.compile(
    r"(^|\.)(pooler|mask_token|mask_emb|masked_spec_embed|aux\d*|aux(iliary)?_\w+)(\.|$)"
    # Fixed on purpose: the length of a normalised weight, sinusoidal positions.
    r"|(^|\.)(weight_g|weight\.original0|(?>\w*?pos(ition)?s?_emb)\w*+)$"
)
_STAYS_RANDOM = re.compile(
    r"(^|[._])(random|rand|rff|fourier|reservoir|echo|hash(ing)?|lsh|simhash|fixed|frozen|sketch|elm|rnd|prior)([._0-9]|$)",
    re.IGNORECASE,
)
_OTHER_OBJECTIVE = re.compile(
    r"(^|[._])(lm_head|mlm\w*|nsp\w*|cls|predictions?|pooler|aux\w*|auxiliary\w*|multiple_choice\w*"
    r"|value_head|v_head|seq_relationship)([._]|$)",
    re.IGNORECASE,
)
# What is next to each other, of which a run may use some: lists by their own name, and one word of a module's.
_LIST_OF_ALTERNATIVES = re.compile(
    r"(?:\w*_)?(heads|experts|tasks|branches|adapters|exits|outputs|classifiers|domains|lang(uage)?s|ops|choices"
    r"|candidates|paths|prompts|seg_layers|towers|modalities|decoders|policies|critics|actors|agents|predictors|targets)",
    re.IGNORECASE,
)
_PARALLEL = re.compile(r"head|task|branch|exit|aux|output|classifier|domain|lang|decoder|predictor", re.IGNORECASE)
_EMBEDDINGS = frozenset(("emb", "embs", "embed", "embeds", "embedding", "embeddings"))
_POSITION = re.compile(r"pos|time|type|segment", re.IGNORECASE)
_PART_OF_MODULE = re.compile(r"weight_(?:ih|hh|hr)((?:_l\d+)?(?:_reverse)?)|([qkv])_proj_weight")
RECURRENT = re.compile(r"(^|[._])weight_(ih|hh)(_|$)")
"""A matrix of a recurrent layer, which begins uniform within 1 / sqrt(hidden size): of so many ``GATES`` above each
other.
"""
GATES = (1, 3, 4)
MEMORY = re.compile(r"weight_hh(?=(?:_l\d{1,3})?(?:_reverse)?$)")
"""The matrix by which a recurrent layer takes its last hidden state."""


_UNSEEN = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|wte|wpe|embed_tokens|lm_head|word_embeddings|position_embeddings)([._0-9]|$)"
)
_SPARSE = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|tok|token|tokens|wte|wpe|pos|position|positions|codebook|lm_head|head"
    r"|classifier|score|logits|output_layer|relative_attention_bias|relative_position_bias_table)([._0-9]|$)"
)
_TABLE = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|tok|token|tokens|wte|wpe|pos|position|positions|relative_attention_bias)([._]|$)"
)
# A value for each user or item: where two scores are subtracted, that of what both have in common cancels.
_OFFSETS = re.compile(r"(^|[._])(bu|bi|b_?user|b_?item|(user|item)s?_?(b|bias)|bias(es)?)([._0-9]|$)")
_JOINED = re.compile(r"weight_[ih]h|gate|glu|in_proj|qkv")


class Sized(Protocol):
    """What has a name and a shape."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...] | None: ...


def kind_of(name: str) -> str:
    """The last part of a name: ``weight``, ``pe``."""
    return name.rpartition(".")[2]


def module_of(name: str) -> str:
    """The module that a tensor is of."""
    return name.rpartition(".")[0]


def bare_name(label: str) -> str:
    """A parameter's label without the optimizer that it is of."""
    return label.rpartition("/")[2]


def tail_of(name: str) -> str:
    """A name without what wrappers put before it (``module.``, ``base_model.model.``) and adapters into it."""
    plain = re.sub(r"\.(default|weight_orig)(?=\.|$)", "", bare_name(name))
    return re.sub(r"^(module\.|_orig_mod\.|model\.|base_model\.model\.)+", "", plain)


def parameters_of(tensors: Collection[TensorHeader]) -> tuple[list[TensorHeader], list[TensorHeader]]:
    """The tensors of a file that are parameters for sure, and those that may as well be buffers (``pe``, ``queue``).

    Both leave out integers, known buffers and masks. They also leave out copies of a model that are not trained: a
    teacher, a moving average, a momentum encoder.
    """
    floating = [one for one in tensors if _FLOATING.match(one.dtype)]
    copies = copies_among(floating)
    kept = [one for one in floating if one.name not in copies and not _is_buffer(one)]
    sure = [one for one in kept if _PARAMETER.search(kind_of(one.name))]
    return sure, [one for one in kept if not _PARAMETER.search(kind_of(one.name))]


def _is_buffer(tensor: TensorHeader) -> bool:
    if _BUFFER.search(tensor.name):
        return True
    # A causal mask that is called a bias: no parameter of that name is one square matrix behind dimensions of 1.
    shape = tensor.shape
    return (
        len(shape) >= 3
        and shape[-1] == shape[-2] > 1
        and prod(shape[:-2]) == 1
        and bool(_MASK.search(kind_of(tensor.name)))
    )


def copies_among(tensors: Collection[Sized]) -> set[str]:
    """The names of copies that are made of a model and not trained. Words that a trained module may have too
    (``target``) count only next to the original.
    """
    split = {one.name: one.name.split(".") for one in tensors}
    owners: dict[tuple[str, tuple[int, ...] | None], set[str]] = defaultdict(set)
    for one in tensors:
        parts = split[one.name]
        for depth in range(min(_TWIN_DEPTH, len(parts) - 1) + 1):
            owners[".".join(parts[depth:]), one.shape].add(".".join(parts[:depth]))
    found = set()
    for one in tensors:
        parts = split[one.name]
        if any(_COPY.search(part) for part in parts[:-1]):
            found.add(one.name)
        for depth in range(1, min(_TWIN_DEPTH, len(parts) - 2) + 1):
            if _TWIN.search(parts[depth - 1]) and len(owners[".".join(parts[depth:]), one.shape]) > 1:
                found.add(one.name)
    return found


def expert_of(name: str | None) -> str | None:
    """The expert of a mixture that a parameter belongs to (``layers.3.experts.7``), None for any other."""
    found = _EXPERT.search(name) if name is not None else None
    return None if found is None or name is None else name[: found.end(3)]


def stays_random(name: str) -> bool:
    """Whether a name says that the values are to stay as they were drawn."""
    return bool(_STAYS_RANDOM.search(name))


def is_first_factor(name: str) -> bool:
    """Whether a tensor is the first factor of an adapter, all of which may be frozen on purpose (LoRA-FA)."""
    return bool(_FIRST_FACTOR.search(name))


def is_second_factor(name: str) -> bool:
    """Whether a tensor is the second factor of an adapter, which begins at 0."""
    return bool(_SECOND_FACTOR.search(name))


def is_adapter(name: str) -> bool:
    """Whether a name says that something is part of an adapter."""
    return bool(_ADAPTER.search(name))


def is_of_norm(name: str) -> bool:
    """Whether a name says that something is a normalisation's."""
    return any(map(_NORM.search, name.split(".")[:-1]))


def often_unused(name: str) -> bool:
    """Whether many models carry a tensor of this name along that is not trained."""
    return bool(_OFTEN_UNUSED.search(name))


def is_of_another_objective(name: str) -> bool:
    """Whether a name says that something serves an objective that this run need not have."""
    return bool(_OTHER_OBJECTIVE.search(name))


def may_be_unseen(name: str) -> bool:
    """Whether a name says that something is a lookup table, or an output layer that is tied to one.

    A row of such a table gets a gradient only when it is looked up.
    """
    return bool(_UNSEEN.search(name.lower()))


def is_sparse(name: str) -> bool:
    """Whether a name says that not every row gets a gradient: of a table, of an output layer, of an expert."""
    return expert_of(name) is not None or bool(_SPARSE.search(name.lower()))


def is_embedding(name: str) -> bool:
    """Whether a name says that something is a table of vectors, which begin larger than a layer's weights."""
    return bool(_TABLE.search(name))


def is_offset(name: str) -> bool:
    """Whether a name says that something is a bias of each user or item."""
    return bool(_OFFSETS.search(name.lower()))


def joins_gates(name: str) -> bool:
    """Whether a name says that a matrix gives several things at once, which are joined before they are taken."""
    return bool(_JOINED.search(name.lower()))


class Position(NamedTuple):
    """Where in a model a name says that it is: its part (0 first, 2 last), its list, the number of its stage
    (``layer3``) and its own there.
    """

    part: int
    list_name: str
    stage: int
    number: int


def position_of(name: str) -> Position:
    """Where a name says that a tensor is."""
    numbered = _NUMBERED.match(name)
    stem = numbered.group(1) if numbered else name
    if _FRONT.search(stem):
        return Position(0, "", 0, 0)
    part, number = 2 if _BACK.search(stem) else 1, int(numbered.group(2)) if numbered else 0
    staged = _STAGE.fullmatch(stem if numbered else module_of(stem))
    if staged is not None:
        return Position(part, staged.group(1), int(staged.group(2)), number)
    return Position(part, stem if numbered else "", 0, number)


def is_front(name: str) -> bool:
    """Whether a name says that something is at a model's front: an embedding, a stem."""
    return position_of(name).part == 0


def is_back(name: str) -> bool:
    """Whether a name says that something is a model's output layer."""
    return position_of(name).part == 2


def embedding_kind(name: str) -> str:
    """The word by which a module is an embedding; "" of others, and of those of positions, which are often fixed."""
    module = kind_of(module_of(name))
    found = (word for word in re.split(r"[._]", module.lower()) if word in _EMBEDDINGS)
    return "" if _POSITION.search(module) else next(found, "")


def numbered(name: str) -> Iterator[tuple[str, int, str]]:
    """Each number in a name, with what is before and behind it."""
    for found in _NUMBER.finditer(name):
        yield name[: found.start()], int(found.group()), name[found.end() :]


def alternatives_around(name: str) -> Iterator[tuple[str, str]]:
    """What is before and behind each part of a name that chooses between things of which a run may use some: the
    number or key in a list of heads, one word of a module's own name (``head_a``, ``decoder_depth``).
    """
    parts = name.split(".")
    for at, part in enumerate(parts[:-1]):
        before, behind = ".".join(parts[:at]), ".".join(parts[at + 1 :])
        if at and holds_alternatives(parts[at - 1]):
            yield before, behind
        words = part.split("_")
        for place in range(len(words) if len(words) > 1 else 0):
            kept = words[:place] + words[place + 1 :]
            if any(map(_PARALLEL.fullmatch, kept)):
                yield f"{before}.{'_'.join(kept)}", behind


def holds_alternatives(module: str) -> bool:
    """Whether a list's name says that a run may use some of it."""
    return bool(_LIST_OF_ALTERNATIVES.fullmatch(kind_of(module)))


def part_of_module(name: str) -> tuple[str, str] | None:
    """What a matrix is one of several parts of: one layer and direction of a recurrent module, an attention."""
    found = _PART_OF_MODULE.fullmatch(kind_of(name))
    return None if found is None else (module_of(name), "attention" if found.group(2) else found.group(1))
