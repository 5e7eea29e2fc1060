"""What a training said of itself at its end: its plan, its loss scale, and its optimizer and weights as statistics.

One small JSON file, written by the callbacks of ``monitor``, so that a run can be judged without its checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import (
    Attribution,
    FloatArray,
    IntArray,
    MomentStats,
    OptimizerState,
    TensorHeader,
    TensorState,
    Weights,
)
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS, as_number, as_step, param_text, parse_json
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.words.gap_names import SUMMARY_SCHEMA

_MOST_BYTES = 64 * 2**20
_MOST_ITEMS = 100_000
_MOST_PARAMS = 100
_COUNTS = frozenset({"count", "zeros", "nonfinite", "zero_rows"})


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSummary:
    """``steps``: optimizer steps done. ``params``: the plan, and what else the rules ask for, under its usual names.
    ``scale_steps``, ``scales``: int64[n] and float64[n], the loss scale at some steps.
    """

    steps: int
    params: Mapping[str, str] = field(default_factory=dict)
    scale_steps: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scales: FloatArray = field(default_factory=lambda: np.empty(0))
    optimizer: OptimizerState | None = None
    weights: Weights | None = None


def as_text(summary: TrainingSummary) -> str:
    """The file's content. Numbers that are not finite stand as text: JSON has no word for them."""
    optimizer, weights = summary.optimizer, summary.weights
    document: dict[str, Any] = {
        "schema": SUMMARY_SCHEMA,
        "steps": summary.steps,
        "params": dict(summary.params),
        "loss_scale": {"steps": summary.scale_steps.tolist(), "values": summary.scales.tolist()},
    }
    if optimizer is not None:
        document["optimizer"] = {
            "tensors": [asdict(one) for one in optimizer.tensors],
            "groups": list(optimizer.groups),
            "stateless": list(optimizer.stateless),
            "listed": list(optimizer.listed),
        }
        if optimizer.frozen is not None:
            document["optimizer"]["frozen"] = list(optimizer.frozen)
    if weights is not None:
        document["weights"] = [asdict(one) for one in weights.tensors]
    return json.dumps(_written(document), allow_nan=False, separators=(",", ":")) + "\n"


def _written(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _written(one) for key, one in value.items()}
    return [_written(one) for one in value] if isinstance(value, (list, tuple)) else value


def read_training_summary(path: Path, source: str) -> TrainingSummary:
    """The summary in a file, reported under the name ``source``.

    Raises:
        ReadError: it is too large, or not what it should be.
        OSError: it cannot be read.
    """
    content = read_regular(path, _MOST_BYTES)
    try:
        document = parse_json(content)
        if document["schema"] != SUMMARY_SCHEMA:
            raise ReadError("it is of another schema")
        return _summary(document, source)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ReadError(f"it is no summary of a training ({type(error).__name__})") from error


def _summary(document: Mapping[str, Any], source: str) -> TrainingSummary:
    scale = document.get("loss_scale") or {"steps": [], "values": []}
    pairs = list(zip(_items(scale["steps"]), _items(scale["values"]), strict=True))
    optimizer, weights = document.get("optimizer"), document.get("weights")
    return TrainingSummary(
        steps=_whole(document["steps"]),
        params={
            _name(name): param_text(value)
            for name, value in list(document.get("params", {}).items())[:_MOST_PARAMS]
            if isinstance(value, (str, int, float))
        },
        scale_steps=np.array([_whole(step) for step, _ in pairs], dtype=np.int64),
        scales=np.array([_number(value) for _, value in pairs], dtype=np.float64),
        optimizer=None if optimizer is None else _optimizer(optimizer, source, _whole(document["steps"])),
        weights=None
        if weights is None
        else Weights(source=source, tensors=tuple(map(_header, _items(weights))), in_order=True),
    )


def _optimizer(document: Mapping[str, Any], source: str, steps: int) -> OptimizerState:
    groups = [
        {_name(key): value for key, value in one.items() if _is_plain(value)} for one in _items(document["groups"])
    ]
    return OptimizerState(
        source=source,
        tensors=tuple(map(_tensor, _items(document["tensors"]))),
        groups=tuple(groups),
        global_step=steps,
        stateless=tuple(map(_name, _items(document["stateless"]))),
        frozen=tuple(map(_name, _items(document["frozen"]))) if "frozen" in document else None,
        attribution=Attribution.NAMED,
        listed=tuple(tuple(map(_whole, _items(ids))) for ids in _items(document["listed"])),
    )


def _tensor(one: Mapping[str, Any]) -> TensorState:
    return TensorState(
        id=_whole(one["id"]),
        shape=_shape(one["shape"]),
        name=_name(one["name"]),
        step=_optional(one["step"]),
        first_moment=_stats(one["first_moment"]),
        second_moment=_stats(one["second_moment"]),
        moment_ratio=_optional(one["moment_ratio"]),
        group=None if one["group"] is None else _whole(one["group"]),
        kind=_name(one["kind"]),
    )


def _header(one: Mapping[str, Any]) -> TensorHeader:
    return TensorHeader(
        name=_name(one["name"]),
        shape=_shape(one["shape"]),
        dtype=_name(one["dtype"]),
        rms=_optional(one["rms"]),
        stats=_stats(one["stats"]),
    )


def _stats(one: Mapping[str, Any] | None) -> MomentStats | None:
    if one is None:
        return None
    values: dict[str, Any] = {
        known.name: _whole(one[known.name]) if known.name in _COUNTS else _number(one[known.name])
        for known in fields(MomentStats)
        if known.name != "zero_rows"
    }
    rows = one["zero_rows"]
    return MomentStats(**values, zero_rows=None if rows is None else _whole(rows))


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_ITEMS:
        raise ValueError
    return value


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(map(_whole, _items(value)[:8]))


def _whole(value: Any) -> int:
    step = as_step(value)
    if step is None or step < 0:
        raise ValueError
    return step


def _number(value: Any) -> float:
    number = as_number(value)
    if number is None:
        raise ValueError
    return number


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_CHARACTERS:
        raise ValueError
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 8 and all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 1000)
