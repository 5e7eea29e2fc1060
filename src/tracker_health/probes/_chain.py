"""Whether a layer lies on the way from the layers before it to those behind it, as far as order and shapes tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from tracker_health.probes._frozen import Sized, is_front
from tracker_health.probes._model import kind_of, tail_of

_MATRIX = re.compile(r"weight|weight_[iv]h(_l\d+)?|in_proj_weight|kernel")
_HIDDEN = re.compile(r"weight_hh(_l\d+)?")
_NEAR = 2  # trained layers on each side that may be the next ones: beside a shortcut lies another one
_FUSED = 3  # query, key and value in one matrix


class Position(Enum):
    """Where a layer lies that is not trained, among the trained ones.

    ``NEEDED``: those on its two sides fit it, and not each other. ``AMID``: they fit it, and each other as well.
    ``AT_END``: the one before fits it, and none follows. ``UNKNOWN``: anywhere else.
    """

    UNKNOWN = auto()
    NEEDED = auto()
    AMID = auto()
    AT_END = auto()


class _Layer(NamedTuple):
    """What a layer takes and gives, in features.

    ``is_table``: it has a row for each token. ``is_convolution``: its features are at many places, and which of two
    sizes it takes hangs on its kind.
    """

    takes: frozenset[int]
    gives: frozenset[int]
    is_trained: bool
    is_table: bool = False
    is_convolution: bool = False


def position_of(missing: Collection[Sized], trained: Collection[Sized], order: Sequence[str]) -> Position:
    """The position of the one layer that ``missing`` is of; unknown where it is of several, or has no known shape.

    ``order``: the names of the model's tensors as it defines them.
    """
    gone = {_module(one.name) for one in missing if one.shape is not None and len(one.shape) > 1}
    layers = _layers(order, {tail_of(one.name): one.shape for one in (*trained, *missing)}, gone)
    if len(gone) != 1 or sum(not one.is_trained for one in layers) != 1:
        return Position.UNKNOWN
    at = next(place for place, one in enumerate(layers) if not one.is_trained)
    layer = layers[at]
    if layer.is_table:
        return Position.UNKNOWN  # one of several that stand beside each other
    before = [one for one in layers[max(0, at - _NEAR) : at] if _fits(one, layer)]
    behind = [one for one in layers[at + 1 : at + 1 + _NEAR] if _fits(layer, one)]
    if before and at == len(layers) - 1:
        return Position.AT_END
    if not before or not behind:
        return Position.UNKNOWN
    if any(_fits(one, other) or _may_fit(one, other) for one in before for other in behind):
        return Position.AMID
    # One that takes and gives the same may be in its place: the mean beside a deviation, another kind of input.
    around = layers[max(0, at - _NEAR) : at + 1 + _NEAR]
    twins = sum((one.takes, one.gives) == (layer.takes, layer.gives) for one in around)
    return Position.NEEDED if twins == 1 else Position.UNKNOWN


def _module(name: str) -> str:
    return tail_of(name).rpartition(".")[0]


def _layers(order: Sequence[str], shapes: Mapping[str, tuple[int, ...] | None], gone: Collection[str]) -> list[_Layer]:
    """What is known of the layers that have a matrix, in order."""
    found: dict[str, _Layer] = {}
    for name in map(tail_of, order):
        shape, module = shapes.get(name), _module(name)
        if shape is None or len(shape) < 2:
            continue
        if _HIDDEN.fullmatch(kind_of(name)) and module in found:
            found[module] = found[module]._replace(gives=frozenset((shape[1], 2 * shape[1])))
        elif _MATRIX.fullmatch(kind_of(name)) and module not in found:
            found[module] = _layer(name, shape, is_trained=module not in gone)
    return list(found.values())


def _layer(name: str, shape: tuple[int, ...], *, is_trained: bool) -> _Layer:
    gives, takes = shape[:2]
    if len(shape) == 2 and is_front(name):
        return _Layer(frozenset((takes,)), frozenset((takes, gives)), is_trained, is_table=True)
    if len(shape) > 2 and takes == 1:  # each channel by itself
        takes = gives
    given = {gives, gives // _FUSED} if gives == _FUSED * takes else {gives}
    return _Layer(frozenset((takes,)), frozenset(given), is_trained, is_convolution=len(shape) > 2)


def _fits(one: _Layer, other: _Layer) -> bool:
    """Whether what one layer gives is what the other takes: as much, or, put together from many places, a multiple."""
    together = (one.is_convolution or one.is_table) and not other.is_convolution
    return any(
        give == take or (together and give > 0 and take % give == 0) for give in one.gives for take in other.takes
    )


def _may_fit(one: _Layer, other: _Layer) -> bool:
    """The same of convolutions that are transposed, of which the first size is what they take."""
    turned = [layer._replace(takes=layer.gives, gives=layer.takes) for layer in (one, other)]
    return (one.is_convolution and _fits(turned[0], other)) or (other.is_convolution and _fits(one, turned[1]))
