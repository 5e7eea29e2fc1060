"""Whether weights that an optimizer steps still are what they began with, to the last value, where steps would show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tracker_health.evidence.parameters.initial import EDGE, is_constant
from tracker_health.evidence.parameters.rows import Parameter

FEWEST_OF_A_VECTOR, FEWEST_OF_A_MATRIX = 4, 500
"""Values of which none left what a layer begins with by accident."""
VISIBLE = 1e-5
"""A step that changes a one or a zero, far above float32's precision."""
MARGIN, WIDE_MARGIN = 4.0, 8.0
"""Times the distance from a uniform draw's largest value to its bound: a dozen values would be beyond it. A matrix
alone has to be surer.
"""
LEAST_MOMENT = 1e-30
"""Of a moment that is a gradient's, and not rounding."""
_PRECISE = ("F32", "F64")


def can_tell(of: Sequence[Parameter]) -> bool:
    """Whether the values of all of these would show that they were stepped."""
    return all(
        one.weight is not None
        and one.weight.stats is not None
        and one.weight.dtype in _PRECISE
        and one.numel >= (FEWEST_OF_A_MATRIX if one.is_matrix else FEWEST_OF_A_VECTOR)
        for one in of
    )


def had_gradients(row: Parameter) -> bool:
    """Whether gradients came to at least half of the values."""
    moment = row.moment
    return (
        moment is not None and not moment.nonfinite and 2 * moment.zeros <= moment.count and moment.rms >= LEAST_MOMENT
    )


def would_show(row: Parameter, of: Sequence[Parameter], margin: float = MARGIN) -> bool:
    """Whether a parameter's steps went so far that values would be beyond where they began. ``of``: the weights that
    it may be.
    """
    if row.walk is None:
        return False
    if all(one.weight is not None and is_constant(one.weight, 0.0, 1.0) for one in of):
        return row.walk.step > VISIBLE
    stats = [one.weight.stats for one in of if one.weight is not None and one.weight.stats is not None]
    largest = max((max(one.maximum, -one.minimum) for one in stats), default=0.0)
    return row.walk.whole > margin * EDGE * largest / max(row.numel, 1)


def were_rounded(rows: Iterable[Parameter]) -> bool:
    """Whether the matrices hold numbers of half precision, in which small steps were rounded away."""
    stats = [one.weight.stats for one in rows if one.is_matrix and one.weight is not None]
    extremes = [
        np.array([one.minimum, one.maximum], dtype=np.float32)
        for one in stats
        if one is not None and one.minimum < one.maximum
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(extremes) and all(
            bool((ends.view(np.uint32) & 0xFFFF == 0).all() or (ends.astype(np.float16) == ends).all())
            for ends in extremes
        )
