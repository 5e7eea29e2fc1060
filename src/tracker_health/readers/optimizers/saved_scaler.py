"""The loss scale that a scaler for half precision saved with a checkpoint, found by its shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.optimizers.saved_mappings import mappings_in
from tracker_health.readers.tensors.tensor_values import TensorStatistics, Values

# What is next to the scale: torch's GradScaler, Megatron's, Apex's, and that in the state of fairseq's optimizer.
_BESIDE: Mapping[str, frozenset[str]] = {
    "scale": frozenset(("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker", "growth_tracker")),
    "loss_scale": frozenset(("unskipped", "param_groups")),
}


def scales_in(root: Any) -> list[Any]:
    """The loss scales in a saved structure, as numbers or as tensors in place; none of a scaler that was off."""
    return [scale for one in mappings_in(root) for scale in _own(one)]


def _own(mapping: Mapping[Any, Any]) -> Iterator[Any]:
    for key, beside in _BESIDE.items():
        value = mapping.get(key)
        if not beside.isdisjoint(mapping) and _may_be_scale(value):
            yield value


def _may_be_scale(value: Any) -> bool:
    if isinstance(value, Values):
        return value.numel == 1
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def saved_loss_scale(root: Any, statistics: TensorStatistics) -> float | None:
    """The smallest of the loss scales in a saved structure; None where there is none that can be read."""
    return min((scale for one in scales_in(root) if (scale := _read(one, statistics)) is not None), default=None)


def _read(scale: Any, statistics: TensorStatistics) -> float | None:
    try:
        number = statistics.scalar(scale) if isinstance(scale, Values) else float(scale)
    except (ReadError, OverflowError):  # the state next to it may be whole
        return None
    return number if isfinite(number) and number >= 0.0 else None
