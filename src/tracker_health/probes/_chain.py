"""Whether a layer lies on the way from the layers before it to those behind it, as far as order and shapes tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tracker_health.probes._frozen import Sized, is_front
from tracker_health.probes._model import kind_of, tail_of

_MATRIX = re.compile(r"weight|weight_[iv]h_l\d+|in_proj_weight|kernel|weight_ih")
_HIDDEN = re.compile(r"weight_hh(_l\d+)?")
_NEAR = 2  # trained layers on each side that may be the next ones: beside a shortcut lies another one
_FUSED = 3  # query, key and value in one matrix


class Position(NamedTuple):
    """Where a layer that is not trained lies. ``needed``: the layers on its two sides fit it, and not each other;
    ``amid``: they fit it, and each other as well. ``at_end``: the one before fits it, and none follows.
    """

    needed: bool = False
    amid: bool = False
    at_end: bool = False


class _Layer(NamedTuple):
    """What a layer takes and gives, in features. ``spread``: each of them may be many numbers, at the places of an
    image or of a sequence, or be put together with others.
    """

    takes: frozenset[int]
    gives: frozenset[int]
    spread: bool
    flat: bool
    trained: bool


def position_of(missing: Collection[Sized], trained: Collection[Sized], order: Sequence[str]) -> Position:
    """The position of the one layer that ``missing`` is of; nothing where it is of several, or its shape is unknown.

    ``order``: the names of the model's tensors as it defines them.
    """
    gone = {_module(one.name) for one in missing if one.shape is not None and len(one.shape) > 1}
    shapes = {tail_of(one.name): one.shape for one in (*trained, *missing)}
    layers = _layers(order, shapes, gone)
    if len(gone) != 1 or sum(not one.trained for _, one in layers) != 1:
        return Position()
    at = next(place for place, (_, one) in enumerate(layers) if not one.trained)
    layer = layers[at][1]
    before = [one for _, one in layers[max(0, at - _NEAR) : at] if _fits(one, layer)]
    behind = [one for _, one in layers[at + 1 : at + 1 + _NEAR] if _fits(layer, one)]
    if before and at == len(layers) - 1:
        return Position(at_end=True)
    if not before or not behind:
        return Position()
    fit = any(_fits(one, other) for one in before for other in behind)
    return Position(needed=not fit, amid=fit)


def _module(name: str) -> str:
    return tail_of(name).rpartition(".")[0]


def _layers(
    order: Sequence[str], shapes: Mapping[str, tuple[int, ...] | None], gone: Collection[str]
) -> list[tuple[str, _Layer]]:
    """The layers that have a matrix, in order, and what is known of each."""
    found: dict[str, _Layer] = {}
    for name in map(tail_of, order):
        shape, module = shapes.get(name), _module(name)
        if shape is None or len(shape) < 2:
            continue
        if _HIDDEN.fullmatch(kind_of(name)) and module in found:
            found[module] = found[module]._replace(gives=frozenset((shape[1], 2 * shape[1])))
        elif _MATRIX.fullmatch(kind_of(name)) and module not in found:
            found[module] = _layer(name, shape, trained=module not in gone)
    return list(found.items())


def _layer(name: str, shape: tuple[int, ...], *, trained: bool) -> _Layer:
    gives, takes = shape[:2]
    if len(shape) == 2 and is_front(name):  # a table with a row for each token, or a layer
        return _Layer(frozenset((takes,)), frozenset((takes, gives)), spread=True, flat=True, trained=trained)
    if len(shape) > 2 and takes == 1:  # each channel by itself
        takes = gives
    given = {gives, gives // _FUSED} if gives == _FUSED * takes else {gives}
    flat = len(shape) == 2
    return _Layer(frozenset((takes,)), frozenset(given), spread=not flat, flat=flat, trained=trained)


def _fits(one: _Layer, other: _Layer) -> bool:
    """Whether what one layer gives is what the other takes: as much, or where it is spread a multiple of it."""
    return any(
        give == take or (one.spread and other.flat and give > 0 and take % give == 0)
        for give in one.gives
        for take in other.takes
    )
