"""How large an optimizer's steps are compared with the weights that they change, from a checkpoint that holds both."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, NamedTuple

import numpy as np

from tracker_health.evidence.as_read import AsRead
from tracker_health.evidence.needs import Need, Part
from tracker_health.evidence.series import Series
from tracker_health.evidence.tensors import MomentStats, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.text import number, small_percent

# Adam's mean of m squared over v: of gradients that are noise, and after some ninety steps without any.
_USUAL_RATIO = 0.05
_FORGOTTEN_RATIO = 1e-8
_LEAST_RATIO = 1e-80
_DEFAULT_BETAS = (0.9, 0.999)
_DEFAULT_EPS = 1e-8
_ADAM = frozenset({"adam", "amsgrad", "adam-8bit"})
_SAME_DECAY = 0.01
_PRECISE = frozenset(("F32", "F64"))
_VALUE_FOR_VALUE = 1e-3  # gradients of a hundredth of the decay leave larger differences
_MOST_EPS = 1e300  # far beyond any, and still a number
_FEWEST_STEPS = 10
_LEAST_BETA = 0.7
_ZERO_INITIALISED = re.compile(r"lora_(embedding_)?B(\.|$)")
_MOST_STEPS = 1e15
# Where schedules remember their peak: LambdaLR and comparable ones, OneCycleLR (whose initial rate is a 25th of it).
_REMEMBERED = ("initial_lr", "max_lr")
_FEWEST_RATES = 8
_NEARLY = 0.9


def signal_to_noise(state: OptimizerState, tensor: TensorState, *, fewest_steps: int = _FEWEST_STEPS) -> float | None:
    """Adam's mean of m_hat squared over v_hat, bias-corrected.

    None where it is not known, where too few steps were done, and for SparseAdam. None also where b1 is below 0.7: the
    first moment is then little else than the last gradient.

    Its square root is the root mean square of a step at a learning rate of 1. Kingma and Ba (2015), section 2.1.
    """
    ratio, step = tensor.moment_ratio, tensor.step
    if ratio is None or not np.isfinite(ratio) or step is None or not fewest_steps <= step < _MOST_STEPS:
        return None
    group = _group(state, tensor)
    betas = _betas(group)
    # torch's SparseAdam counts a step for every row, though it touches a few of them.
    is_sparse = "maximize" in group and "weight_decay" not in group
    if betas[0] < _LEAST_BETA or is_sparse:
        return None
    first, second = 1.0 - betas[0] ** step, 1.0 - betas[1] ** step
    return float(ratio * second / first**2)


def silent_for(state: OptimizerState, tensor: TensorState) -> float | None:
    """For how many steps a parameter that had gradients once has had none: Adam's first moment forgets in a hundred
    steps, and is then almost zero compared with the second. None where they still come, or that is not known.
    """
    ratio = signal_to_noise(state, tensor)
    if ratio is None or not 0.0 <= ratio < _FORGOTTEN_RATIO:
        return None
    beta = _betas(_group(state, tensor))[0]
    silent = log(max(ratio, _LEAST_RATIO) / _USUAL_RATIO) / (2.0 * log(beta))
    return min(tensor.step or 0.0, silent)


def corrected_second_moment(state: OptimizerState, tensor: TensorState) -> float | None:
    """Adam's mean second moment, bias-corrected: the mean squared gradient; None where it is not known, or 0."""
    moment, step = tensor.second_moment, tensor.step
    if moment is None or not 0 < moment.mean < float("inf"):
        return None
    if step is None or not 1 <= step < _MOST_STEPS:
        return moment.mean
    return float(moment.mean / max(1.0 - _betas(_group(state, tensor))[1] ** step, 1e-300))


def root_second_moment(state: OptimizerState, tensor: TensorState) -> float | None:
    """The root mean square of a parameter's gradients, from its second moment; None where it is not known, or 0."""
    square = corrected_second_moment(state, tensor)
    return float(np.sqrt(square)) if square is not None and square > 0 else None


def epsilon(state: OptimizerState, tensor: TensorState) -> float | None:
    """What the optimizer adds to that root before it divides by it; None where the parameter's group does not tell, or
    tells what is no finite number above zero.
    """
    eps = _group(state, tensor).get("eps")
    if not isinstance(eps, (int, float)) or isinstance(eps, bool):
        return None
    return float(eps) if 0 < eps <= _MOST_EPS else None


def decays_alone(state: OptimizerState, tensor: TensorState, weights: Sequence[TensorHeader]) -> bool:
    """Whether a momentum is that of nothing but the weight decay, which SGD adds to the gradient: in each value a share
    of the weight's that the decay and the momentum give. The weights of its shape are tried, for it may have no name.
    """
    moment = tensor.first_moment
    if moment is None or tensor.second_moment is not None or moment.count < 2 or moment.nonfinite:
        return False
    least, most = _shares_of_decay(_group(state, tensor), tensor.step)
    alike = (
        (one.stats, _VALUE_FOR_VALUE if one.dtype in _PRECISE else _SAME_DECAY)
        for one in weights
        if one.shape == tensor.shape and one.stats is not None and one.stats.rms > 0
    )
    return any(
        least * (1.0 - _SAME_DECAY) <= (share := moment.rms / stats.rms) <= most * (1.0 + _SAME_DECAY)
        and all(
            abs(of_moment - share * of_weight) <= near * moment.rms
            for of_moment, of_weight in zip(_summary(moment), _summary(stats), strict=True)
        )
        for stats, near in alike
    )


def groups_without_rate(state: OptimizerState) -> frozenset[int]:
    """The groups whose learning rate is 0, and always was, while another group has one."""
    rates = [[group.get(key) for key in ("lr", "initial_lr", "max_lr")] for group in state.groups]
    has_rate = [any(isinstance(rate, (int, float)) and rate > 0 for rate in found) for found in rates]
    idle = (at for at, found in enumerate(rates) if found[0] == 0 and not has_rate[at])
    return frozenset(idle) if any(has_rate) else frozenset()


def _shares_of_decay(group: Mapping[str, Any], steps: float | None) -> tuple[float, float]:
    """The least and the largest share of the weights that a momentum of weight decay alone comes to; 1 and 0 for none.

    With a decay c (less the dampening) and a momentum m it goes up to c / (1 - m) where the weights stay as they are.
    Where they shrink meanwhile, at a rate r, it is the smaller k with r m k^2 - (1 - m - c r) k + c = 0.
    """
    decay, momentum = _rate(group, "weight_decay"), _rate(group, "momentum")
    if decay is None or momentum is None or not momentum < 1:
        return 1.0, 0.0
    pulled = decay * (1.0 - min(1.0, _rate(group, "dampening") or 0.0))
    if not pulled:
        return 1.0, 0.0
    steady = pulled / (1.0 - momentum)
    done = 1.0 if steps is None or steps < 1 else 1.0 - momentum ** min(steps, _MOST_STEPS)
    rate = _highest([group.get(key) for key in ("lr", *_REMEMBERED)]) or 0.0
    left = 1.0 - momentum - pulled * rate
    square = left**2 - 4.0 * rate * momentum * pulled
    shrinking = 2.0 * pulled / (left + np.sqrt(square)) if left > 0 and square > 0 else steady
    return steady * done, max(steady, float(shrinking))


def _summary(stats: MomentStats) -> tuple[float, ...]:
    return stats.mean, stats.rms, stats.minimum, stats.maximum


def betas_of_adam(state: OptimizerState, tensor: TensorState) -> tuple[float, float] | None:
    """The two betas of a parameter whose moments are Adam's; None where its group has no such two, and of another
    optimizer: Adan and AdEMAMix have three, and NovoGrad has one second moment for all values of a parameter.
    """
    first, second, given = tensor.first_moment, tensor.second_moment, _group(state, tensor).get("betas")
    if tensor.kind not in _ADAM or first is None or second is None or first.count != second.count:
        return None
    return _sane_betas(given) if isinstance(given, tuple) and len(given) == 2 else None


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
    ``reached``: it was clearly in force, by the log or as the last one; a schedule also remembers a rate that it never
    came to. ``scale``: the size of the weights times the root of the smaller of fan-in and fan-out; near 1 in sound
    layers.
    """

    ratio: float
    rate: float
    scheduled: bool
    reached: bool
    scale: float

    @property
    def step(self) -> str:
        """The step in words, which claim no more of the rate than is known."""
        if not self.reached:
            at = f"the schedule's learning rate, {number(self.rate)} (how high it came is not logged)"
        else:
            at = f"the {'highest' if self.scheduled else 'last'} learning rate, {number(self.rate)}"
        return f"one step at {at}, changes the weights by {small_percent(self.ratio)}"


def update_size(evidence: AsRead) -> UpdateSize | None:
    """The median over the matrices, by their number of values, or None where weights, moments or rate are not known.

    A step is taken as large as Adam's is under gradients of pure noise, lr * sqrt((1 - b1) / (1 + b1)): the moments of
    a finished run tell how small its last steps were, and not how large those that mattered. The rate is that of the
    matrix's own group. Vectors, many of which begin at 0, and the second factor of an adapter, which does, are left
    out. Tensors of state and weights are brought together by shape, so that their order need not be known.
    """
    state = evidence.optimizer
    if state is None or evidence.weights is None:
        return None
    rates, sizes, found = _peak_rates(evidence, state), _sizes_by_shape(evidence.weights), []
    for tensor in state.tensors:
        if tensor.second_moment is None or tensor.first_moment is None or len(tensor.shape) < 2:
            continue
        size, rate = sizes.get(tensor.shape, 0.0), rates.get(_group_index(state, tensor))
        if size > 0 and rate is not None:
            ratio = _step_size(state, tensor, rate.value) / size
            scale = size * float(np.sqrt(min(tensor.shape[0], tensor.numel // tensor.shape[0])))
            one = UpdateSize(ratio=ratio, rate=rate.value, scheduled=rate.scheduled, reached=rate.reached, scale=scale)
            found.append((one, tensor.numel))
    median = weighted_median([(size.ratio, values) for size, values in found])
    usual = weighted_median([(size.scale, values) for size, values in found])
    if median is None or usual is None:
        return None
    middle = next(size for size, _ in found if size.ratio == median)
    return replace(middle, scheduled=all(size.scheduled for size, _ in found), scale=usual)


def _sizes_by_shape(weights: Weights) -> dict[tuple[int, ...], float]:
    """The root mean square of the weights of each shape, without second factors of adapters, which begin at 0."""
    squares = defaultdict(list)
    for weight in weights.tensors:
        square = float("nan") if weight.rms is None else weight.rms * weight.rms  # ** raises where it is too large
        if np.isfinite(square) and not _ZERO_INITIALISED.search(weight.name):
            squares[weight.shape].append(square)
    return {shape: float(np.sqrt(np.mean(known))) for shape, known in squares.items()}


def reach_of_momentum(evidence: AsRead) -> float | None:
    """How far SGD with momentum can have moved the weights at most, over their size.

    That assumes steps in one direction, each as large as one at the highest learning rate with the momentum that is
    left.

    The median over the matrices, weighted by their number of values. None where momentum, weights or steps are not
    known, or where the rate is only the last one that was set.
    """
    state, steps = evidence.optimizer, evidence.optimizer_steps
    if state is None or evidence.weights is None or steps is None:
        return None
    rates, sizes, found = _peak_rates(evidence, state), _sizes_by_shape(evidence.weights), []
    for tensor in state.tensors:
        moment, size = tensor.first_moment, sizes.get(tensor.shape, 0.0)
        rate = rates.get(_group_index(state, tensor))
        if rate is None or not rate.scheduled:
            continue
        if tensor.kind == "momentum" and moment is not None and len(tensor.shape) > 1 and size > 0:
            found.append((rate.value * moment.rms * steps / size, tensor.numel))
    return weighted_median([pair for pair in found if np.isfinite(pair[0])])


def relative_updates(evidence: AsRead) -> list[tuple[TensorState, float]]:
    """As ``update_size`` has it, each matrix that state and weights name alike, with its own ratio."""
    state, weights = evidence.optimizer, evidence.weights
    if state is None or weights is None:
        return []
    rates = _peak_rates(evidence, state)
    sizes = {weight.name: (weight.shape, weight.rms) for weight in weights.tensors}
    found = []
    for tensor in state.tensors:
        shape, size = sizes.get(tensor.name or "", ((), None))
        rate = rates.get(_group_index(state, tensor))
        if tensor.first_moment is None or shape != tensor.shape or not size or not np.isfinite(size) or rate is None:
            continue
        found.append((tensor, _step_size(state, tensor, rate.value) / size))
    return [(tensor, ratio) for tensor, ratio in found if np.isfinite(ratio)]


class DistanceMoved(NamedTuple):
    """How far a parameter's values went, at least: in one step, and in all of them if their gradients are noise."""

    step: float
    whole: float


def walks(evidence: AsRead, steps: int) -> dict[str, DistanceMoved]:
    """How far each parameter went at the highest rate that its group is known to have reached.

    The gradients are assumed to have been what the moments say now.

    ``steps``: those of an optimizer that does not count them. Parameters whose rate is not known, or 0, are left out.
    """
    state = evidence.optimizer
    if state is None:
        return {}
    rates, found = _peak_rates(evidence, state), {}
    logged = max((float(one.values.max()) for one in evidence.rates_logged), default=None)
    for tensor in state.tensors:
        group, rate = _group(state, tensor), rates.get(_group_index(state, tensor))
        size = None if rate is None else _step_of_noise(tensor, group)
        # A schedule remembers a peak that it may not have come to.
        reached = logged if logged is not None else _rate(group, "lr")
        if rate is None or size is None:
            continue
        step = size * (rate.value if reached is None else min(rate.value, reached))
        if np.isfinite(step):
            done = min(max(steps if tensor.step is None else tensor.step, 1.0), _MOST_STEPS)
            found[tensor.label] = DistanceMoved(step, step * float(np.sqrt(done)))
    return found


def _step_of_noise(tensor: TensorState, group: Mapping[str, Any]) -> float | None:
    """At a rate of 1. A momentum repeats each gradient 1 / (1 - momentum) times; Adam's mean of them does not."""
    if tensor.second_moment is not None:
        eps, root = group.get("eps"), float(np.sqrt(max(tensor.second_moment.mean, 0.0)))
        return root / (root + (eps if isinstance(eps, float) and eps > 0 else _DEFAULT_EPS))
    if tensor.first_moment is None:
        return None
    momentum = group.get("momentum")
    known = momentum if isinstance(momentum, (int, float)) and 0 <= momentum < 1 else 0.0
    return float(tensor.first_moment.rms * np.sqrt((1.0 + known) / (1.0 - known)))


def _step_size(state: OptimizerState, tensor: TensorState, rate: float) -> float:
    """The root mean square of Adam's step under gradients of pure noise."""
    beta = _betas(_group(state, tensor))[0]
    return rate * float(np.sqrt((1.0 - beta) / (1.0 + beta)))


def needs_of_update_size(min_steps: int) -> tuple[Need, ...]:
    """What the sizes of steps are read from, after so many of them, and the loss that confirms them."""
    return (
        Need(role=Part.WEIGHTS),
        Need(role=Part.OPTIMIZER_STATE, min_points=min_steps, unit="optimizer_steps"),
        Need(role="learning_rate", optional=True),
        Need(role="train_loss", optional=True),
    )


class _Peak(NamedTuple):
    """A group's highest learning rate: whether a log or a schedule's memory has it, and whether it was in force."""

    value: float
    scheduled: bool
    reached: bool


def _peak_rates(evidence: AsRead, state: OptimizerState) -> dict[int | None, _Peak]:
    """Per group its highest learning rate. Of several groups with rates of their own, a logged rate is the one's that
    it ends at.
    """
    logged = evidence.rates_logged
    groups = state.groups or ({},)
    alike = len({tuple(_rate(group, key) for key in ("lr", *_REMEMBERED)) for group in groups}) == 1
    peaks: dict[int | None, _Peak] = {}
    for index, group in enumerate(groups):
        peak = _peak(group, [one for one in logged if alike or _ends_at(one, index, groups)])
        if peak is not None:
            peaks[index] = peak
    if alike and 0 in peaks:
        peaks[None] = peaks[0]  # of a parameter whose group is not known
    return peaks


def _peak(group: Mapping[str, Any], logged: Sequence[Series]) -> _Peak | None:
    """A schedule remembers a rate that it may never have come to, as a log of the whole run shows; it may have come to
    it between two points of that.
    """
    seen, last = _highest([float(one.values.max()) for one in logged]), _rate(group, "lr")
    peak = _highest([seen, *(_rate(group, key) for key in _REMEMBERED)])
    if peak is None:
        return None if last is None else _Peak(last, scheduled=False, reached=True)
    if max(seen or 0.0, last or 0.0) >= _NEARLY * peak:
        return _Peak(peak, scheduled=True, reached=True)
    if seen is not None and any(map(_covers_the_run, logged)):
        return _Peak(max(seen, last or 0.0), scheduled=True, reached=True)
    return _Peak(peak, scheduled=True, reached=False)


def _covers_the_run(series: Series) -> bool:
    """Whether a log has enough points to show how high a rate came, from the first steps on."""
    clean = series.clean()
    return len(clean) >= _FEWEST_RATES and 0 <= clean.steps[0] <= 2 * float(np.median(np.diff(clean.steps)))


def _ends_at(series: Series, index: int, groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a logged rate ends at the rate of this group and of no group with another peak."""
    last = float(series.values[-1])
    close = [group for group in groups if _close(_rate(group, "lr"), last)]
    peaks = {_highest([_rate(group, key) for key in _REMEMBERED]) for group in close}
    return last > 0 and len(peaks) == 1 and any(group is groups[index] for group in close)


def _close(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) <= 1e-6 * abs(other)


def _rate(group: Mapping[str, Any], key: str) -> float | None:
    return _highest([group.get(key)])


def _highest(rates: Sequence[Any]) -> float | None:
    known = [float(rate) for rate in rates if isinstance(rate, (int, float)) and np.isfinite(rate) and rate > 0]
    return max(known, default=None)


def _group_index(state: OptimizerState, tensor: TensorState) -> int | None:
    """The index of the group that lists a parameter, or of the only one there is."""
    return 0 if tensor.group is None and len(state.groups) <= 1 else tensor.group


def _group(state: OptimizerState, tensor: TensorState) -> Mapping[str, Any]:
    """The group that lists a parameter, or the only one there is."""
    index = _group_index(state, tensor)
    return state.groups[index] if index is not None and index < len(state.groups) else {}


def _betas(group: Mapping[str, Any]) -> tuple[float, float]:
    given = group.get("betas")
    known = _sane_betas(given) if isinstance(given, tuple) and len(given) >= 2 else None
    return _DEFAULT_BETAS if known is None else known


def _sane_betas(given: tuple[Any, ...]) -> tuple[float, float] | None:
    sane = all(isinstance(one, (int, float)) and 0 <= one < 1 for one in given[:2])
    return (float(given[0]), float(given[1])) if sane else None


def rate_of_group(state: OptimizerState, tensor: TensorState) -> float | None:
    """The learning rate of a parameter's group; where a schedule brought it to 0, the one that it began with."""
    group = _group(state, tensor)
    rates = (group.get("lr"), group.get("initial_lr"))
    return next((float(one) for one in rates if isinstance(one, (int, float)) and 0 < one < float("inf")), None)
