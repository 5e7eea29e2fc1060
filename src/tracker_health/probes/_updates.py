"""How large an optimizer's steps are beside the weights that they change, from a checkpoint that holds both."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracker_health.evidence import Evidence, Need, OptimizerState, Part, TensorState

_DEFAULT_BETAS = (0.9, 0.999)
_FEWEST_STEPS = 10
_LEAST_BETA = 0.5
_ZERO_INITIALISED = re.compile(r"lora_(embedding_)?B(\.|$)")
_MOST_STEPS = 1e15


def signal_to_noise(state: OptimizerState, tensor: TensorState, *, fewest_steps: int = _FEWEST_STEPS) -> float | None:
    """Adam's mean of m_hat squared over v_hat, bias-corrected; None where it is not known or too few steps were done,
    and where the first moment remembers so little (b1 below 0.5) that it is little else than the last gradient.

    Its square root is the root mean square of a step at a learning rate of 1. Kingma and Ba (2015), section 2.1.
    """
    ratio, step = tensor.moment_ratio, tensor.step
    if ratio is None or not np.isfinite(ratio) or step is None or not fewest_steps <= step < _MOST_STEPS:
        return None
    betas = _betas(_group(state, tensor))
    if betas[0] < _LEAST_BETA:
        return None
    first, second = 1.0 - betas[0] ** step, 1.0 - betas[1] ** step
    return float(ratio * second / first**2)


def weighted_median(pairs: list[tuple[float, int]]) -> float | None:
    """The median of (value, weight) pairs by their weights; None where there are none."""
    known = sorted(pair for pair in pairs if pair[1] > 0)
    if not known:
        return None
    weights = np.cumsum([weight for _, weight in known])
    return float(known[int(np.searchsorted(weights, weights[-1] / 2.0))][0])


@dataclass(frozen=True, kw_only=True)
class UpdateSize:
    """A step at the highest learning rate: its size over that of the weights, and that rate.

    ``scheduled``: the rate is the one of a schedule's log or memory; else it is only the last one that was set.
    """

    ratio: float
    rate: float
    scheduled: bool


def update_size(evidence: Evidence) -> UpdateSize | None:
    """The median over the matrices, by their number of values, or None where weights, moments or rate are not known.

    A step is taken as large as Adam's is under gradients of pure noise, lr * sqrt((1 - b1) / (1 + b1)): the moments of
    a finished run tell how small its last steps were, and not how large those that mattered. Vectors, many of which
    begin at 0, and the second factor of an adapter, which does, are left out. Tensors of state and weights are brought
    together by shape, so that their order need not be known.
    """
    state, (rate, scheduled) = evidence.optimizer, _peak_rate(evidence)
    if state is None or evidence.weights is None or rate is None:
        return None
    squares: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for weight in evidence.weights.tensors:
        if weight.rms is not None and np.isfinite(weight.rms) and not _ZERO_INITIALISED.search(weight.name):
            squares[weight.shape].append(weight.rms**2)
    ratios = []
    for tensor in state.tensors:
        if tensor.second_moment is None or tensor.first_moment is None or len(tensor.shape) < 2:
            continue
        size = float(np.sqrt(np.mean(squares.get(tensor.shape, 0.0))))
        if size > 0:
            beta = _betas(_group(state, tensor))[0]
            ratios.append((rate * float(np.sqrt((1.0 - beta) / (1.0 + beta))) / size, tensor.numel))
    ratio = weighted_median(ratios)
    return None if ratio is None else UpdateSize(ratio=ratio, rate=rate, scheduled=scheduled)


def needs_of_update_size(min_steps: int) -> tuple[Need, ...]:
    """What ``update_size`` reads, after so many optimizer steps."""
    return (
        Need(role=Part.SECOND_MOMENTS),
        Need(role=Part.WEIGHTS),
        Need(role=Part.OPTIMIZER_STATE, min_points=min_steps, unit="optimizer_steps"),
        Need(role="learning_rate", optional=True),
    )


def _peak_rate(evidence: Evidence) -> tuple[float | None, bool]:
    """The highest learning rate of the run, and whether it was logged or remembered by a schedule."""
    logged = [one.finite().values.max() for one in evidence.series if one.role == "learning_rate" and len(one.finite())]
    groups = evidence.optimizer.groups if evidence.optimizer is not None else ()
    scheduled = _highest([*logged, *(group.get("initial_lr") for group in groups)])
    return (scheduled, True) if scheduled is not None else (_highest([group.get("lr") for group in groups]), False)


def _highest(rates: Sequence[Any]) -> float | None:
    known = [float(rate) for rate in rates if isinstance(rate, (int, float)) and np.isfinite(rate) and rate > 0]
    return max(known, default=None)


def _group(state: OptimizerState, tensor: TensorState) -> Mapping[str, Any]:
    """The group that lists a parameter, or the only one there is."""
    index = 0 if tensor.group is None and len(state.groups) == 1 else tensor.group
    return state.groups[index] if index is not None and index < len(state.groups) else {}


def _betas(group: Mapping[str, Any]) -> tuple[float, float]:
    given = group.get("betas")
    if not isinstance(given, tuple) or len(given) < 2:
        return _DEFAULT_BETAS
    sane = all(isinstance(one, (int, float)) and 0 <= one < 1 for one in given[:2])
    return (float(given[0]), float(given[1])) if sane else _DEFAULT_BETAS
