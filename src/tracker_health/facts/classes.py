"""Between how many answers a loss chooses, where the run's params or its weights tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tracker_health.evidence import Evidence, TensorHeader

_CLASSES = ("num_classes", "n_classes", "num_labels", "classes")
_VOCABULARY = "vocab_size"
_MOST = 10**8  # answers
_MOST_TENSORS = 20_000  # of a larger model nothing is said: the time that it takes is bounded
_LAST_LAYER = re.compile(r"(\w+_)?(heads?|classifier|fc\d*|out|output|logits?|cls|linear\d*|lin\d*|dense\d*|\d+)")
_NO_HEAD = re.compile(
    r"proj|emb|^enc(oder)?$|backbone|trunk|decod|recon|regress|box|critic|value|policy|gate|router|attn|attention|query"
    r"|contrast|lora_|teacher|ema|momentum|generator|discriminator"
)
_FEW = 4  # how often what a layer puts out is joined to what the next takes, or the other way round: qkv, GLU, u|v|u-v


def counts(evidence: Evidence) -> tuple[int, ...]:
    """The number of classes and the size of the vocabulary: a classifier's settings may hold those of the language
    model that it was made of, and the other way round.
    """
    return tuple(dict.fromkeys(count for count in (classes(evidence), vocabulary(evidence)) if count is not None))


def classes(evidence: Evidence) -> int | None:
    """The number of classes alone."""
    known = (evidence.info.params.get(name) for name in _CLASSES)
    return next((count for count in map(_count, known) if count is not None), None)


def vocabulary(evidence: Evidence) -> int | None:
    """The size of the vocabulary alone."""
    return _count(evidence.info.params.get(_VOCABULARY))


def _count(param: str | None) -> int | None:
    try:
        value = float(param) if param is not None else 0.0
    except ValueError:
        return None
    return int(value) if 2 <= value < _MOST and value.is_integer() else None


class _Layer(NamedTuple):
    """A layer with a bias: where it stands among the tensors, and how many values it takes and puts out."""

    module: str
    inputs: int
    outputs: int
    is_matrix: bool


def classes_of_head(evidence: Evidence) -> int | None:
    """Among how many a classifier's last layer chooses, by the shapes of the saved weights; None in any doubt.

    It is the only layer with a bias whose outputs no other layer takes. None where there are two such layers, or where
    it is no matrix. None where its name is not a classifier's, or where it is not last in a file that has the model's
    order. None also where a table has as many rows: it is an embedding, and the classes are a vocabulary.

    That the layer is there does not make the loss a cross-entropy among its outputs: the rules ask for more.
    """
    weights = evidence.weights
    if weights is None or weights.is_adapter or len(weights.tensors) > _MOST_TENSORS:
        return None
    layers, taken, rows = _layers(weights.tensors)
    ends = [one for one in layers if one.outputs not in taken and one.is_matrix and _may_be_last(one.module)]
    if len(ends) != 1:
        return None
    head, elsewhere = ends[0], [one for one in layers if one is not ends[0]]
    if head.outputs in rows or head.outputs < 2:
        return None
    if weights.in_order and layers[-1] is not head:
        return None
    return head.outputs if all(_is_taken(one, taken) for one in elsewhere) else None


def _layers(tensors: Iterable[TensorHeader]) -> tuple[list[_Layer], set[int], set[int]]:
    """The layers with a bias, in the order of the file; what sizes of input any layer takes; the rows of the tables and
    matrices without a bias.
    """
    shapes = {one.name: one.shape for one in tensors}
    layers, taken, rows = [], set(), set()
    for name, shape in shapes.items():
        if len(shape) < 2:
            continue
        bias = shapes.get(f"{name.removesuffix('weight')}bias") if name.endswith("weight") else None
        if bias == shape[:1]:
            layers.append(_Layer(name, shape[1], shape[0], len(shape) == 2))
            taken.add(shape[1])
        elif bias == shape[1:2]:  # the other way round: transformers' Conv1D, transposed convolutions
            layers.append(_Layer(name, shape[0], shape[1], len(shape) == 2))
            taken.add(shape[0])
        else:
            taken.add(shape[1])
            rows.add(shape[0])
    return layers, taken, rows


def _is_taken(layer: _Layer, taken: set[int]) -> bool:
    """Whether some layer takes what this one puts out: as it is, split or joined, or flattened after a convolution."""
    if any(size in taken for size in _joined(layer.outputs)):
        return True
    return not layer.is_matrix and any(size % layer.outputs == 0 for size in taken)


def _joined(size: int) -> Iterator[int]:
    for times in range(1, _FEW + 1):
        yield times * size
        if size % times == 0 and size // times > _FEW:
            yield size // times


def _may_be_last(name: str) -> bool:
    """Whether a classifier's last layer may be called so."""
    parts = name.lower().removesuffix("weight").strip("._").split(".")
    return bool(_LAST_LAYER.fullmatch(parts[-1])) and not any(map(_NO_HEAD.search, parts))
