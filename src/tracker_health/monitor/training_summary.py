"""A training's optimizer and weights as statistics at its end: what a checkpoint would tell, in a few bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tracker_health.evidence import FloatArray, OptimizerState, TensorHeader, Weights
from tracker_health.readers.optimizers.optimizer_state import optimizer_state
from tracker_health.readers.tensors.tensor_values import BLOCK_VALUES, Room, TensorStatistics, Values
from tracker_health.readers.training_summary import TrainingSummary
from tracker_health.words.gap_names import unwrapped

_MOST_VALUES = 300_000_000
"""Above that it would take more than a few seconds; the run's checkpoint tells."""


def summary_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    params: Mapping[str, str],
    scales: Sequence[tuple[int, float]] = (),
) -> TrainingSummary:
    """The summary of a training that has ended. Without optimizer and weights where they are spread over processes, or
    too large.
    """
    known = {unwrapped(name): one for name, one in model.named_parameters() if not is_lazy(one)}
    kept = [one for entry in optimizer.state.values() for one in entry.values() if isinstance(one, Tensor)]
    every = [*kept, *known.values()]
    here = not any(hasattr(one, "placements") or one.is_meta for one in every)
    small = sum(one.numel() for one in every) <= _MOST_VALUES
    return TrainingSummary(
        steps=steps,
        params=params,
        scale_steps=np.array([step for step, _ in scales], dtype=np.int64),
        scales=np.array([scale for _, scale in scales], dtype=np.float64),
        optimizer=_optimizer(optimizer, known) if here and small else None,
        weights=Weights(source="", tensors=tuple(_headers(known))) if here and small else None,
    )


def _optimizer(optimizer: torch.optim.Optimizer, known: Mapping[str, Tensor]) -> OptimizerState | None:
    names = {id(one): name for name, one in known.items()}
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    if not all(id(one) in names for one in parameters):
        return None  # it holds something else than the model's parameters: parts of them, or another model's
    ids = {id(one): index for index, one in enumerate(parameters)}
    groups = [
        {key: value for key, value in group.items() if key not in ("params", "param_names")}
        | {
            "params": [ids[id(one)] for one in group["params"]],
            "param_names": [names[id(one)] for one in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    state = {
        ids[id(one)]: {key: _Stored(value) if isinstance(value, Tensor) else value for key, value in entry.items()}
        for one, entry in optimizer.state.items()
        if id(one) in ids
    }
    found = optimizer_state({"state": state, "param_groups": groups}, "", TensorStatistics())
    asking = {name for name, one in known.items() if one.requires_grad}
    return replace(found, frozen=tuple(name for name in found.stateless if name not in asking))


def _headers(known: Mapping[str, Tensor]) -> Iterator[TensorHeader]:
    statistics = TensorStatistics()
    for name, one in known.items():
        stats = statistics.of(_Stored(one)) if one.is_floating_point() and one.numel() else None
        dtype = str(one.dtype).removeprefix("torch.")
        rms = None if stats is None else stats.rms
        yield TensorHeader(name=name, shape=tuple(one.shape), dtype=_DTYPES.get(dtype, dtype), rms=rms, stats=stats)


_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class _Stored(Values):
    """A tensor in memory, wherever it is."""

    __slots__ = ("_tensor", "shape")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.shape = tensor.detach(), tuple(tensor.shape)

    @property
    def layout(self) -> Hashable:
        return self.shape

    @property
    def row(self) -> int | None:
        return prod(self.shape[1:]) if len(self.shape) > 1 and self.numel else None

    def blocks(self, _: Room) -> Iterator[FloatArray]:
        for part in self._tensor.reshape(-1).split(BLOCK_VALUES):  # type: ignore[no-untyped-call]
            values: FloatArray = part.to("cpu", torch.float64, copy=True).numpy()
            yield values
