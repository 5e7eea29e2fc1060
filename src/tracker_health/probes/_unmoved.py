"""What weights are that did not move between two checkpoints: copies of each other, or where no optimizer's state tells
of them frozen on purpose, unused, or cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracker_health.evidence import Attribution, Evidence, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.layers import are_names
from tracker_health.probes._frozen import often_unused
from tracker_health.probes._model import expert_of, is_first_factor, kind_of, parameters_of
from tracker_health.probes._run import descent_of
from tracker_health.probes._sisters import module_of
from tracker_health.probes._stateless import amiss
from tracker_health.probes._unlisted import Sign
from tracker_health.text import without_numbers

_HALF = re.compile(r"^(BF16|F16|F8)")
_OF_A_LAYER = re.compile(r"weight|kernel|lora", re.IGNORECASE)

_MANY_VALUES = 4096
_CLEAR_CHANGE = 1e-5
_COUNT = re.compile(r"\d{1,18}")
_NO_COUNT = re.compile(r"-v\d+(?=\.)|(?<!\d)\d++\.\d++")  # a second file of the same step; a measured value


def is_half(tensor: TensorHeader) -> bool:
    """Whether values have so few digits that a step may be rounded away."""
    return bool(_HALF.match(tensor.dtype))


def share_before(first: str, last: str) -> float | None:
    """The share of the steps to the later of two checkpoints that the earlier one had done, or more, by their names;
    None where these are not told apart by a count, as copies are.
    """
    if without_numbers(first) != without_numbers(last):
        return None
    counted = zip(_counted(first), _counted(last), strict=False)
    return max(((before + 1) / (after + 1) for before, after in counted if before < after), default=None)


def _counted(path: str) -> list[int]:
    return [int(digits) for digits in _COUNT.findall(_NO_COUNT.sub("", path))]


def fell_since(evidence: Evidence, share: float) -> bool | None:
    """Whether the training loss surely fell after this share of its steps; None where there is no loss."""
    loss = evidence.find("train_loss")
    if loss is None or not len(finite := loss.finite()):
        return None
    begin, end = float(finite.steps.min()), float(finite.steps.max())
    later = descent_of(finite.values[finite.steps >= begin + share * (end - begin)])
    return later is not None and later.sure


def cut_off(weights: Weights, max_share: float) -> Sign | None:
    """What is wrong with the layers that did not move while others did; None where nothing is.

    They are asked the same questions as parameters without state (OPT004), with those that moved as the trained ones.
    Vectors count beside their matrix alone: of others the steps may have been rounded away. So may those of matrices
    where all changes are tiny, at the end of a learning rate's decay.
    """
    if not are_names(one.name for one in weights.tensors):
        return None
    moved = {one.name for one in weights.changes if not one.unchanged}
    still = {one.name for one in weights.changes if one.unchanged}
    sure, doubtful = parameters_of(weights.tensors)
    trained = [one for one in (*sure, *doubtful) if one.name in moved]
    gone = _layers([one for one in sure if one.name in still])
    if not any(is_first_factor(one.name) for one in trained):
        gone = [one for one in gone if not is_first_factor(one.name)]
    if not gone or _change(weights, trained) < _CLEAR_CHANGE:
        return None
    return amiss(_as_state(weights.source, trained, gone), [one.name for one in gone], weights, max_share)


def _change(weights: Weights, trained: Sequence[TensorHeader]) -> float:
    """By how much of their size these tensors changed, in the middle of them; 0 where that is not known."""
    far = {one.name: one.rms for one in weights.changes}
    known = sorted(far[one.name] / one.rms for one in trained if one.rms)
    return known[len(known) // 2] if known else 0.0


def _layers(still: Sequence[TensorHeader]) -> list[TensorHeader]:
    """Those of layers of which a matrix is among them, unless many models carry it along unused."""
    kept = [one for one in still if not often_unused(one.name) and expert_of(one.name) is None]
    layers = {module_of(one.name) for one in kept if _is_matrix(one)}
    return [one for one in kept if module_of(one.name) in layers]


def _is_matrix(tensor: TensorHeader) -> bool:
    """Whether a tensor is a layer's matrix, and so large that steps in half precision would change some value of it."""
    matrix = len(tensor.shape) > 1 and bool(_OF_A_LAYER.search(kind_of(tensor.name)))
    return matrix and (not is_half(tensor) or tensor.numel >= _MANY_VALUES)


def _as_state(source: str, trained: Sequence[TensorHeader], gone: Sequence[TensorHeader]) -> OptimizerState:
    """An optimizer that lists all of them, and has a state for those that moved."""
    return OptimizerState(
        source=source,
        tensors=tuple(TensorState(id=one.name, name=one.name, shape=one.shape) for one in trained),
        stateless=tuple(one.name for one in gone),
        attribution=Attribution.NAMED,
    )
