"""A run's parts from plain values, for tests: reduced by the code that reads them from files."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray, OptimizerState, TextLog, Weights
from tracker_health.readers.log_formats.text_lines import log_of
from tracker_health.readers.optimizers.optimizer_state import optimizer_state
from tracker_health.readers.tensors.tensor_values import BLOCK_VALUES, Room, TensorStatistics, Values
from tracker_health.readers.tensors.weights import Budget, StoredTensor, changes, described
from tracker_health.roles import NOTHING_READ

StateDict = Mapping[str, Any]
"""An optimizer's state dict as torch saves it (``state``, ``param_groups``), or by name what it keeps of parameters."""
Arrays = Mapping[str, npt.ArrayLike]
"""Tensors by name."""

_SOURCE = "check_probe"


def make_optimizer_state(state: StateDict) -> OptimizerState:
    """An optimizer's saved state, with the statistics that reading it from a checkpoint would give.

    Args:
        state: What ``optimizer.state_dict()`` gives, arrays in place of tensors. Or, of one group, what is kept of each
            parameter by its name: ``{"fc.weight": {"step": 100, "exp_avg": array, "exp_avg_sq": array}}``, with
            ``{}`` for a parameter that the optimizer was given and keeps nothing of. Keys are the optimizer's own.

    Returns:
        The state, as a rule finds it in ``evidence.optimizer``.

    Raises:
        ReadError: a moment is of a kind that no reader knows.
    """
    if not {"state", "param_groups"} <= state.keys():
        numbered = dict(enumerate(state.items()))
        group = {"params": list(numbered), "param_names": [name for name, _ in numbered.values()]}
        state = {"state": {key: kept for key, (_, kept) in numbered.items() if kept}, "param_groups": [group]}
    entries = {key: {name: _stored(one) for name, one in kept.items()} for key, kept in state["state"].items()}
    found = optimizer_state({"state": entries, "param_groups": state["param_groups"]}, "", TensorStatistics())
    return replace(found, source=_SOURCE)


def make_weights(tensors: Arrays, *, previous: Arrays | None = None) -> Weights:
    """Saved weights, with the statistics that reading them from a file would give.

    Args:
        tensors: The weights by name, each of its tensor's shape. Those of integers get no statistics of a size.
        previous: Those of the checkpoint before, for rules that ask how far they moved.

    Returns:
        The weights, as a rule finds them in ``evidence.weights``.
    """
    now, before = list(_tensors(tensors)), {one.name: one for one in _tensors(previous or {})}
    return Weights(
        source=_SOURCE,
        tensors=described(now, Budget()),
        previous="" if previous is None else f"{_SOURCE} before",
        changes=tuple(changes(now, before, Budget())),
    )


def make_text_log(text: str) -> TextLog:
    """A console log, reduced to what it says of the end of its process.

    Args:
        text: What the training printed, line by line. The metrics in it are no evidence: give them as series.

    Returns:
        The log, as a rule finds it in ``evidence.text_log``.

    Raises:
        ValueError: the text is empty.
    """
    log = log_of(text.encode(), NOTHING_READ).text
    if log is None or not log.lines:
        raise ValueError("the text of a console log has no line")
    return replace(log, source=_SOURCE)


class _Array(Values):
    """The values of an array in memory."""

    __slots__ = ("_values", "shape")

    def __init__(self, values: FloatArray) -> None:
        self._values, self.shape = values, values.shape

    @property
    def layout(self) -> Hashable:
        return self.shape

    @property
    def row(self) -> int | None:
        return prod(self.shape[1:]) if len(self.shape) > 1 and self.numel else None

    def blocks(self, _: Room) -> Iterator[FloatArray]:
        flat = self._values.reshape(-1)
        for start in range(0, len(flat), BLOCK_VALUES):
            yield flat[start : start + BLOCK_VALUES].copy()


def _stored(value: Any) -> Any:
    """An array as the values of a tensor; what is plain stays so."""
    if isinstance(value, (list, np.ndarray)) and np.ndim(value):
        return _Array(np.asarray(value, dtype=np.float64))
    return value.item() if isinstance(value, (np.ndarray, np.generic)) else value


def _tensors(arrays: Arrays) -> Iterator[StoredTensor]:
    for name, given in arrays.items():
        array = np.asarray(given)
        dtype = "F32" if array.dtype.kind == "f" else "I64"
        yield StoredTensor(name, array.shape, dtype, _Array(array.astype(np.float64)))
