"""The order in which a model defines its parameters, as far as their names tell it: what a file of weights has lost.

``torch.nn.Module.parameters`` walks the tree of modules: a module's own parameters, then its children as they were
assigned. Names are that tree. Of brothers, numbers ascend, and a weight comes before its bias; the order of others is
known only where every family of models that has them together agrees on it. What is not known is tried out: each order
that brings the shapes into line counts, and a name is only given where all of them give it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

Shape = tuple[int, ...]

_MOST_RUNS = 1_000
_MOST_WAITING = 20_000
_MOST_LEAVES_SEEN = 300_000

# What is in one module, in the order of its definition. A pair's order is known where every row that has all of the
# brothers at hand has it the same way: rows that contradict each other stand here on purpose.
_ROWS = tuple(
    tuple(row.split())
    for row in (
        # a parameter's own names
        "weight bias",
        "in_proj_weight in_proj_bias bias_k bias_v out_proj",
        "base_layer lora_A lora_B lora_embedding_A lora_embedding_B lora_magnitude_vector",
        # attention
        "q_proj k_proj v_proj o_proj q_norm k_norm",
        "q_proj q_norm k_proj v_proj k_norm o_proj",
        "q_proj q_norm k_norm k_proj v_proj o_proj",
        "k_proj v_proj q_proj o_proj",
        "q_proj k_proj v_proj out_proj",
        "k_proj v_proj q_proj out_proj",
        "q_proj k_proj v_proj dense q_layernorm k_layernorm",
        "q k v o relative_attention_bias",
        "q_lin k_lin v_lin out_lin",
        "query key value",
        "c_attn c_proj",
        "c_attn q_attn c_proj",
        "query_key_value dense",
        "qkv_proj o_proj",
        "o_proj qkv_proj",
        "in_proj out_proj",
        # feed-forward blocks
        "gate_proj up_proj down_proj",
        "gate_proj down_proj up_proj",
        "gate_up_proj down_proj",
        "c_fc c_proj",
        "fc1 fc2",
        "fc_in fc_out",
        "lin1 lin2",
        "linear1 linear2",
        "wi wo",
        "wi_0 wi_1 wo",
        "dense_h_to_4h dense_4h_to_h",
        # a layer
        "self_attn mlp input_layernorm post_attention_layernorm",
        "self_attn input_layernorm post_attention_layernorm mlp",
        "self_attn mlp input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm",
        "self_attn mlp post_attention_layernorm post_feedforward_layernorm",
        "mlp self_attn",
        "ln_1 attn ln_2 mlp",
        "attn ln_1 mlp ln_2",
        "ln_1 attn ln_2 crossattention ln_cross_attn mlp",
        "input_layernorm post_attention_layernorm attention mlp",
        "input_layernorm self_attn post_attention_layernorm mlp",
        "input_layernorm self_attention post_attention_layernorm mlp",
        "self_attention mlp post_attention_layernorm input_layernorm",
        "self_attention mlp input_layernorm post_attention_layernorm",
        "SelfAttention layer_norm",
        "EncDecAttention layer_norm",
        "DenseReluDense layer_norm",
        "attention intermediate output",
        "attention crossattention intermediate output",
        "attention sa_layer_norm ffn output_layer_norm",
        "self_attn linear1 linear2 norm1 norm2",
        "self_attn multihead_attn linear1 linear2 norm1 norm2 norm3",
        "self_attn norm1 norm2 linear1 linear2 norm3",
        "self_attn self_attn_layer_norm fc1 fc2 final_layer_norm",
        "self_attn_layer_norm self_attn fc1 fc2 final_layer_norm",
        "self_attn self_attn_layer_norm encoder_attn encoder_attn_layer_norm fc1 fc2 final_layer_norm",
        "self_attn encoder_attn encoder_attn_layer_norm self_attn_layer_norm fc1 fc2 final_layer_norm",
        "self_attn_layer_norm encoder_attn encoder_attn_layer_norm fc1 fc2 final_layer_norm self_attn",
        "norm1 attn norm2 mlp",
        "norm1 norm2 attn mlp",
        "self output",
        "dense LayerNorm",
        "LayerNorm dense",
        # the whole
        "embed_tokens layers norm",
        "embed_tokens norm layers",
        "embed_tokens embed_positions layers norm",
        "embed_tokens block final_layer_norm",
        "embed_tokens embed_positions layers layer_norm",
        "embed_tokens embed_positions layer_norm layers",
        "embed_tokens embed_positions layers layernorm_embedding",
        "embed_tokens embed_positions layernorm_embedding layers",
        "wte wpe h ln_f",
        "word_embeddings word_embeddings_layernorm h ln_f",
        "embed_in layers final_layer_norm",
        "word_embeddings position_embeddings token_type_embeddings LayerNorm",
        "word_embeddings token_type_embeddings LayerNorm position_embeddings",
        "word_embeddings token_type_embeddings position_embeddings LayerNorm",
        "embeddings encoder pooler",
        "embeddings transformer",
        "shared encoder decoder lm_head",
        "model lm_head",
        "model score",
        "model classifier",
        "model qa_outputs",
        "transformer lm_head",
        "transformer score",
        "gpt_neox embed_out",
        "bert cls",
        "bert classifier",
        "bert qa_outputs",
        "distilbert pre_classifier classifier",
        "distilbert vocab_transform vocab_layer_norm vocab_projector",
        "predictions seq_relationship",
        "transform decoder",
    )
)

# The same where the path to the module tells families apart that have the same names in different orders. The name in
# the middle, if any, must be one of those at hand.
_QUERY_FIRST = r"(^|\.)(model|language_model)\.layers\.#\.self_attn$"
_LANGUAGE_LAYER = r"(^|\.)(model|language_model)\.layers\.#$"
_AT = tuple(
    (re.compile(path), needed, tuple(row.split()))
    for path, needed, row in (
        (_QUERY_FIRST, "", "q_proj k_proj v_proj o_proj q_norm k_norm"),
        (_QUERY_FIRST, "", "q_proj q_norm k_proj v_proj k_norm o_proj"),
        (_QUERY_FIRST, "", "q_proj q_norm k_norm k_proj v_proj o_proj"),
        (_QUERY_FIRST, "", "q_proj k_proj v_proj dense q_layernorm k_layernorm"),
        (
            r"^(base_model\.model\.)?(model\.)?(encoder|decoder)\.layers\.#\.(self|encoder)_attn$",
            "out_proj",
            "k_proj v_proj q_proj out_proj",
        ),
        (r"(^|\.)(model|language_model)\.layers\.#\.mlp$", "", "gate_proj up_proj down_proj"),
        (_LANGUAGE_LAYER, "", "self_attn mlp input_layernorm post_attention_layernorm"),
        (_LANGUAGE_LAYER, "", "self_attn input_layernorm post_attention_layernorm mlp"),
        (r"(^|\.)(model|language_model)$", "", "embed_tokens layers norm"),
        (r"(^|\.)output$", "", "dense LayerNorm"),
    )
)
# Its normalisation defines the bias first, against all habit.
_BIAS_FIRST = re.compile(r"(^|\.)mobilebert\.")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A parameter: its place in the list of candidates, its shape, and the slots (a group's) that it must be in."""

    index: int
    shape: Shape
    group: int


@dataclass(slots=True)
class _Node:
    path: str
    children: dict[str, _Node] = field(default_factory=dict)
    leaf: Leaf | None = None
    groups: set[int] = field(default_factory=set)
    orders: _Orders | None = None


class _TooMany(Exception):
    """There are more orders than are tried."""


def certain_places(names: Sequence[str], leaves: Sequence[Leaf], slots: Sequence[Sequence[Shape | None]]) -> (
    dict[tuple[int, int], int] | None
):  # fmt: skip
    """Which parameter is in each slot, by (group, place in it), where every order that fits agrees.

    ``names`` and ``leaves`` go together. ``slots``: per group the shapes in the optimizer's order, None for one that is
    not known. None: no order fits, or there are too many to try.
    """
    tree = _tree(names, leaves)
    certain: dict[tuple[int, int], int] | None = None
    try:
        for found in _Search(tree, slots).solutions():
            if certain is None:
                certain = dict(found)
            else:
                certain = {place: index for place, index in certain.items() if found[place] == index}
            if not certain:
                break
    except _TooMany:
        return None
    return certain


def _tree(names: Sequence[str], leaves: Sequence[Leaf]) -> _Node:
    root = _Node("")
    for name, leaf in zip(names, leaves, strict=True):
        node = root
        node.groups.add(leaf.group)
        for part in name.split("."):
            if part not in node.children:
                masked = "#" if part.isdecimal() else part
                node.children[part] = _Node(f"{node.path}.{masked}" if node.path else masked)
            node = node.children[part]
            node.groups.add(leaf.group)
        node.leaf = leaf
    return root


_Key = tuple[str, frozenset[str]]
_Choices = Mapping[_Key, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Fork:
    """A module whose order is not known: the possible beginnings of it."""

    key: _Key
    beginnings: tuple[tuple[str, ...], ...]


class _Search:
    """Tries the orders that are possible. A choice made in one layer holds for all that are built like it."""

    def __init__(self, root: _Node, slots: Sequence[Sequence[Shape | None]]) -> None:
        self._root, self._slots = root, slots
        self._seen = 0

    def solutions(self) -> Iterator[dict[tuple[int, int], int]]:
        """Every assignment of slots to parameters in which all shapes agree.

        Raises:
            _TooMany: there are more orders than are tried.
        """
        waiting: list[dict[_Key, tuple[str, ...]]] = [{}]
        for _ in range(_MOST_RUNS):
            if not waiting:
                return
            choices = waiting.pop()
            found = self._run(choices)
            if isinstance(found, _Fork):
                if len(waiting) + len(found.beginnings) > _MOST_WAITING:
                    break
                waiting += [{**choices, found.key: one} for one in found.beginnings]
            elif found is not None:
                yield found
        raise _TooMany

    def _run(self, choices: _Choices) -> dict[tuple[int, int], int] | _Fork | None:
        """Walk the tree by the choices made: an assignment, the next choice to make, or None where shapes disagree."""
        places = [0] * len(self._slots)
        assigned: dict[tuple[int, int], int] = {}
        stack: list[tuple[_Node, list[str]]] = [(self._root, [])]
        while stack:
            node, done = stack[-1]
            if node.leaf is not None and not done and not self._place(node.leaf, places, assigned):
                return None
            if len(done) == len(node.children):
                stack.pop()
                continue
            following = self._next(node, done, choices)
            if isinstance(following, _Fork):
                return following
            done.append(following)
            stack.append((node.children[following], []))
        return assigned

    def _place(self, leaf: Leaf, places: list[int], assigned: dict[tuple[int, int], int]) -> bool:
        self._seen += 1
        if self._seen > _MOST_LEAVES_SEEN:
            raise _TooMany
        slots, place = self._slots[leaf.group], places[leaf.group]
        if place >= len(slots) or slots[place] not in (None, leaf.shape):
            return False
        assigned[leaf.group, place] = leaf.index
        places[leaf.group] += 1
        return True

    def _next(self, node: _Node, done: list[str], choices: _Choices) -> str | _Fork:
        orders = node.orders
        if orders is None:
            orders = node.orders = _Orders(node)
        if orders.only is not None:
            return orders.only[len(done)]
        key = orders.key
        made = choices.get(key, ())
        if len(made) > len(done):
            return made[len(done)]
        following = orders.after(tuple(done))
        return following[0] if len(following) == 1 else _Fork(key, tuple((*done, one) for one in following))


class _Orders:
    """The orders that a module's children may have: its own parameters first, then its modules.

    ``key``: modules with the same one are built alike. ``only``: the order, where there is just one.
    """

    def __init__(self, node: _Node) -> None:
        own = [name for name in node.children if _is_own(node, name)]
        inner = [name for name in node.children if name not in own]
        self._parts = tuple((frozenset(part), _known_orders(node, part)) for part in (own, inner) if part)
        self.key: _Key = (node.path, frozenset(node.children))
        known = [orders[0] for _, orders in self._parts if orders is not None and len(orders) == 1]
        self.only = tuple(name for order in known for name in order) if len(known) == len(self._parts) else None

    def after(self, done: tuple[str, ...]) -> tuple[str, ...]:
        """Who may come next, after these."""
        start = 0
        for names, known in self._parts:
            if len(done) < start + len(names):
                before = done[start:]
                if known is None:  # of anybody's making: every order is possible
                    return tuple(sorted(names.difference(before)))
                return tuple(sorted({one[len(before)] for one in known if one[: len(before)] == before}))
            start += len(names)
        return ()


def _known_orders(node: _Node, names: list[str]) -> list[tuple[str, ...]] | None:
    """The orders in which families of models have these names, or None where no family is known that has them all."""
    if all(name.isdecimal() for name in names):
        return [tuple(sorted(names, key=int))]
    if len(names) == 1:
        return [tuple(names)]
    rows = _rows(node.path, frozenset(names))
    if not rows:
        return None
    orders = {tuple(name for name in row if name in names) for row in rows}
    # Orders that differ only between brothers of different groups are one.
    distinct = {tuple(_within(node, order, group) for group in sorted(node.groups)): order for order in sorted(orders)}
    return list(distinct.values())


@lru_cache(maxsize=4096)
def _rows(path: str, there: frozenset[str]) -> list[tuple[str, ...]]:
    if _BIAS_FIRST.search(path):
        return []
    at = [
        row for where, needed, row in _AT if there <= {*row} and (not needed or needed in there) and where.search(path)
    ]
    return at or [row for row in _ROWS if there <= {*row}]


def _within(node: _Node, order: tuple[str, ...], group: int) -> tuple[str, ...]:
    return tuple(name for name in order if group in node.children[name].groups)


def _is_own(node: _Node, name: str) -> bool:
    """Whether it is a parameter of the module itself. PEFT's files have some of those in a module of their own."""
    return not node.children[name].children and not name.startswith("lora_")
