"""How the size of the gradients changes along the depth of a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tracker_health.evidence.numerics import mann_kendall, median
from tracker_health.evidence.parameters.rows import Parameter
from tracker_health.evidence.series import FloatArray
from tracker_health.words.layers import place_of

MONOTONE = 2.0
"""Of the trend's standard normal score: five layers in order have 2.2."""
MOST_LAYERS = 200
"""Of a kind of matrices; all pairs of them are compared."""
MOST_RISE = 600.0
"""Of a logarithm that is taken back."""


def along_the_depth(rows: Sequence[Parameter], min_layers: int, *, named: bool) -> Mapping[str, float]:
    """Per kind of matrix: how many times larger gradients are in its last layer than in its first, if in order. Without
    names matrices of a shape are one kind, as they come one after the other in the optimizer.
    """
    families: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for at, row in enumerate(rows):
        place = place_of(row.name or "") if named else None
        if not row.is_matrix or not row.gradient or row.state is None or (named and place is None):
            continue
        shape = "x".join(map(str, row.shape or ()))
        kind = f"{place.stack}.*.{place.role}" if place is not None else f"the matrices of {shape}"
        families[row.state.optimizer, kind][place.layer if place is not None else at] = float(np.log(row.gradient))
    return {
        kind: _rise(by_layer) for (_, kind), by_layer in families.items() if min_layers <= len(by_layer) <= MOST_LAYERS
    }


def _rise(logs: Mapping[int, float]) -> float:
    """How many times larger the last of these is than the first, if they are in order; else 1."""
    layers = np.array(sorted(logs))
    sizes = np.array([logs[layer] for layer in layers])
    rise = _slope(layers, sizes) * float(layers[-1] - layers[0])
    return float(np.exp(min(rise, MOST_RISE))) if mann_kendall(sizes) >= MONOTONE else 1.0


def _slope(at: np.ndarray, values: FloatArray) -> float:
    """Theil and Sen's: the median of the slopes of all pairs."""
    later, earlier = np.triu_indices(len(at), 1)[::-1]
    return median((values[later] - values[earlier]) / (at[later] - at[earlier]))
