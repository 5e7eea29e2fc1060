"""How the size of the gradients changes along the depth, by Adam's second moment: GRD003's question to a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tracker_health.evidence import Attribution, FloatArray, OptimizerState
from tracker_health.evidence.numerics import mann_kendall, median
from tracker_health.layers import place_of
from tracker_health.probes._updates import corrected_second_moment

_NAMED = (Attribution.NAMED, Attribution.CONTENT_CHECKED)
_MONOTONE = 2.0  # of the trend's standard normal score: five layers in order have 2.2
_MOST_LAYERS = 200


def along_the_depth(state: OptimizerState | None, min_layers: int, *, known: bool) -> Mapping[str, float]:
    """Per kind of matrix: how many times larger gradients are in its last layer than in its first, if in order.
    ``known``: whether there is a loss to tell what they were enough for.
    """
    if state is None:
        return {}
    if state.attribution not in _NAMED:
        return _along_the_order(state, min_layers) if known else {}
    families: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for tensor in state.with_second_moment:
        place, square = place_of(tensor.name or ""), corrected_second_moment(state, tensor)
        if place is not None and len(tensor.shape) >= 2 and square:
            families[tensor.optimizer, place.stack, place.role][place.layer] = float(np.log(square)) / 2.0
    return {
        f"{stack}.*.{role}": _rise(by_layer)
        for (_, stack, role), by_layer in families.items()
        if min_layers <= len(by_layer) <= _MOST_LAYERS
    }


def _along_the_order(state: OptimizerState, min_layers: int) -> Mapping[str, float]:
    """The same per shape, of matrices as they come one after the other in the optimizer."""
    families: dict[tuple[str, tuple[int, ...]], dict[int, float]] = defaultdict(dict)
    for place, tensor in enumerate(state.with_second_moment):
        square = corrected_second_moment(state, tensor)
        if len(tensor.shape) >= 2 and square:
            families[tensor.optimizer, tensor.shape][place] = float(np.log(square)) / 2.0
    return {
        f"the matrices of {'x'.join(map(str, shape))}": _rise(by_place)
        for (_, shape), by_place in families.items()
        if min_layers <= len(by_place) <= _MOST_LAYERS
    }


def _rise(logs: Mapping[int, float]) -> float:
    """How many times larger the last of these is than the first, if they are in order; else 1."""
    layers = np.array(sorted(logs))
    sizes = np.array([logs[layer] for layer in layers])
    rise = _slope(layers, sizes) * float(layers[-1] - layers[0])
    return float(np.exp(min(rise, 600.0))) if mann_kendall(sizes) >= _MONOTONE else 1.0


def _slope(at: np.ndarray, values: FloatArray) -> float:
    """Theil and Sen's: the median of the slopes of all pairs."""
    later, earlier = np.triu_indices(len(at), 1)[::-1]
    return median((values[later] - values[earlier]) / (at[later] - at[earlier]))
