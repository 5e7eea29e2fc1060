"""What the tensors of a model are, as far as names, shapes and sizes tell: parameters or not, trained or not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod, sqrt
from typing import Protocol

from tracker_health.evidence import TensorHeader

_FLOATING = re.compile(r"^(F|BF)\d+")
_BUFFER = re.compile(
    r"(^|\.)(running_mean|running_var|num_batches_tracked|position_ids|inv_freq|token_type_ids|attn_mask|masked_bias"
    r"|(weight|bias|causal)_mask|final_logits_bias|relative_position_index|anchor_grid|anchors|freqs_cis|rotary_emb\.\w+)$"
)
_PARAMETER = re.compile(
    r"weight|bias|kernel|gamma|beta(?!s)|lora|emb|token|query|prompt|proj|scale|_[gv]$|^[wb](\d*|_.*)$", re.IGNORECASE
)
_MASK = re.compile(r"bias|mask|tril", re.IGNORECASE)
_COPY = re.compile(r"(^|_)(teacher|ema|swa|momentum|shadow|averaged|reference|ref)(_|$)", re.IGNORECASE)
_TWIN = re.compile(r"(^|_)(target|old|offline|slow|key|k|m|bar)(_|$)", re.IGNORECASE)
_TWIN_DEPTH = 2
_EXPERT = re.compile(r"(^|\.)(experts?|local_experts)[._](\d{1,6})(\.|$)", re.IGNORECASE)
_FIRST_FACTOR = re.compile(r"\.lora_(embedding_)?A(\.|$)")
RECURRENT = re.compile(r"(^|[._])weight_(ih|hh)(_|$)")
"""A matrix of a recurrent layer, which begins uniform within 1 / sqrt(hidden size): of so many ``GATES`` above each
other.
"""
GATES = (1, 3, 4)
_SURE = 4.0  # standard deviations
_MOST_ERROR = 0.3  # of a mean square that tells anything: a matrix of 150 values
_MOST_ERROR_AT_EDGE = 0.45  # where the largest value tells as well: of 64
EDGE = 12.0
"""Of n values that are uniform up to a bound, the largest lies within so many n-ths of it, but for one in 160,000."""
_ROUNDED = 1e-6
_MOST_READ = 1 << 20


def parameters_of(tensors: Sequence[TensorHeader]) -> tuple[list[TensorHeader], list[TensorHeader]]:
    """The tensors of a file that are parameters for sure, and those that may as well be buffers (``pe``, ``queue``).

    Neither holds integers, known buffers, masks, or the copies that are made of a model and not trained (a teacher, a
    moving average, a momentum encoder).
    """
    floating = [one for one in tensors if _FLOATING.match(one.dtype)]
    copies = copies_among(floating)
    kept = [one for one in floating if one.name not in copies and not _is_buffer(one)]
    sure = [one for one in kept if _PARAMETER.search(kind_of(one.name))]
    return sure, [one for one in kept if not _PARAMETER.search(kind_of(one.name))]


def kind_of(name: str) -> str:
    """The last part of a name: ``weight``, ``pe``."""
    return name.rpartition(".")[2]


def bare_name(label: str) -> str:
    """A parameter's label without the optimizer that it is of."""
    return label.rpartition("/")[2]


def tail_of(name: str) -> str:
    """A name without what wrappers put before it (``module.``, ``base_model.model.``) and adapters into it."""
    plain = re.sub(r"\.(default|weight_orig)(?=\.|$)", "", bare_name(name))
    return re.sub(r"^(module\.|_orig_mod\.|model\.|base_model\.model\.)+", "", plain)


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


class _Sized(Protocol):
    """What has a name and a shape."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...] | None: ...


def copies_among(tensors: Sequence[_Sized]) -> set[str]:
    """The names of copies that are made of a model and not trained. Words that a trained module may bear too
    (``target``) count only beside the original.
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


def is_first_factor(name: str) -> bool:
    """Whether a tensor is the first factor of an adapter, all of which may be frozen on purpose (LoRA-FA)."""
    return bool(_FIRST_FACTOR.search(name))


def never_trained(tensors: Iterable[TensorHeader]) -> bool:
    """Whether these tensors still are as large as layers begin, to within the error of a random draw.

    Only matrices tell: a linear layer or a convolution begins uniform within 1 / sqrt(fan-in), an embedding normal.
    Trained weights lie elsewhere; where all of several matrices fit, none was trained. Small ones tell against it, and
    for it only where their largest value lies at that bound; those that a normal draw allows tell neither. One is
    enough where all normalisations scale by exactly 1.
    """
    tensors = list(tensors)
    matrices = [one for one in tensors if sum(size > 1 for size in one.shape) >= 2 and one.rms is not None]
    fit = [one for one in matrices if _as_initialised(one)]
    return any(map(_tells, fit)) and (all(map(_may_be_initialised, matrices)) or _scale_by_one(tensors))


def tells_whether_trained(tensor: TensorHeader) -> bool:
    """Whether it is a matrix that is large enough to show by its size that it is as it began."""
    return sum(size > 1 for size in tensor.shape) >= 2 and _uniform_error(tensor) <= _MOST_ERROR


def _scale_by_one(tensors: Iterable[TensorHeader]) -> bool:
    """Whether there are normalisations, and all are as they begin."""
    scales = [one.stats for one in tensors if len(one.shape) == 1 and kind_of(one.name) == "weight"]
    return bool(scales) and all(one is not None and one.minimum == one.maximum == 1.0 for one in scales)


def _tells(tensor: TensorHeader) -> bool:
    error = _uniform_error(tensor)
    return tensor.rms == 0.0 or error <= _MOST_ERROR or (error <= _MOST_ERROR_AT_EDGE and _ends_at_bound(tensor))


def is_uniform_draw(tensor: TensorHeader) -> bool:
    """Whether a matrix is, by its largest value and its mean square, a uniform draw that layers begin with: torch's
    own, Kaiming's, or Xavier's.
    """
    stats = tensor.stats
    if stats is None or stats.nonfinite or len(tensor.shape) < 2 or not tensor.numel:
        return False
    fan_in, fan_out = prod(tensor.shape[1:]), tensor.shape[0] * prod(tensor.shape[2:])
    squares = (1 / fan_in, 3 / fan_in, 6 / fan_in, 6 / (fan_in + fan_out))
    error = _SURE * sqrt(0.8 / tensor.numel)
    return any(
        _ends_at(bound, tensor) and abs(3.0 * (stats.rms / bound) ** 2 - 1.0) <= error
        for bound in (*map(sqrt, squares), *_recurrent_bounds(tensor))
    )


def _ends_at_bound(tensor: TensorHeader) -> bool:
    """Whether the largest value is that of a uniform draw up to the bound of torch's own layers."""
    return any(_ends_at(bound, tensor) for bound in (1 / sqrt(prod(tensor.shape[1:])), *_recurrent_bounds(tensor)))


def _ends_at(bound: float, tensor: TensorHeader) -> bool:
    """Whether the largest of the values is that of a uniform draw up to this bound."""
    stats = tensor.stats
    largest = max(stats.maximum, -stats.minimum) if stats is not None else 0.0
    return bound * (1.0 - EDGE / tensor.numel) <= largest <= bound * (1.0 + _ROUNDED)


def _recurrent_bounds(tensor: TensorHeader) -> list[float]:
    return [sqrt(gates / tensor.shape[0]) for gates in GATES] if RECURRENT.search(tensor.name) else []


def _uniform_error(tensor: TensorHeader) -> float:
    """The relative error of the mean square of a uniform draw; that of a normal one is larger by sqrt(2.5)."""
    return _SURE * sqrt(0.8 / min(tensor.numel, _MOST_READ))


def _as_initialised(tensor: TensorHeader) -> bool:
    fan_in, fan_out = prod(tensor.shape[1:]), tensor.shape[0] * prod(tensor.shape[2:])
    square, uniform = (tensor.rms or 0.0) ** 2, _uniform_error(tensor)
    normal = uniform * sqrt(2.5)
    if square == 0.0:
        return True  # what begins at 0: an adapter's second factor, a gate
    bounded = [1 / (3 * fan_in), 2 / (fan_in + fan_out)]
    bounded += [bound**2 / 3 for bound in _recurrent_bounds(tensor)]
    if any(abs(square / expected - 1.0) <= uniform for expected in bounded):
        stats = tensor.stats
        return stats is None or max(stats.maximum, -stats.minimum) ** 2 <= 3.01 * square * (1.0 + uniform)
    return not uniform <= _MOST_ERROR < normal and _as_normal(tensor, normal)


def _may_be_initialised(tensor: TensorHeader) -> bool:
    uniform = _uniform_error(tensor)
    normal = uniform * sqrt(2.5)
    return _as_initialised(tensor) or (uniform <= _MOST_ERROR < normal and _as_normal(tensor, normal))


def _as_normal(tensor: TensorHeader, error: float) -> bool:
    fan_in, fan_out = prod(tensor.shape[1:]), tensor.shape[0] * prod(tensor.shape[2:])
    square = (tensor.rms or 0.0) ** 2
    return any(abs(square / expected - 1.0) <= error for expected in (1.0, 0.02**2, 2 / fan_in, 2 / fan_out))
