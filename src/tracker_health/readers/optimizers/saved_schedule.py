"""The learning-rate schedulers that were saved with a checkpoint, found by their shape.

A scheduler of torch saves its settings, not its class: the settings tell which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from tracker_health.evidence import FloatArray, SavedSchedule
from tracker_health.readers.optimizers.saved_mappings import mappings_in

_MOST_SCHEDULES = 20
_MOST_PARTS = 20
_DEEPEST = 3
_MOST_RATES = 1000
_LARGEST_COUNT = 2**53
_SAME = 0.01  # of the last rate, on which its settings and its record must agree
_NOTHING = 1e-9
_OF_ALL = frozenset(
    ("base_lrs", "last_epoch", "verbose", "_step_count", "_is_initial", "_get_lr_called_within_step", "_last_lr",
     "_initial_step")
)  # fmt: skip

State = Mapping[Any, Any]


class _Optimizer(NamedTuple):
    """What a schedule's rates depend on besides its settings: the optimizer's groups, and the rate it began with."""

    groups: Sequence[Mapping[str, Any]]
    base: float


class _Shape(NamedTuple):
    """A schedule: the rate at each call as a multiple of its base, for how many calls it is laid out, its period."""

    factors: FloatArray
    laid_out: float | None = None
    period: float | None = None


def saved_schedules(root: Any, groups: Sequence[Mapping[str, Any]] = ()) -> tuple[SavedSchedule, ...]:
    """The schedulers in a saved structure. ``groups``: the optimizer's, which hold the rates of a one-cycle one."""
    found = [one for one in mappings_in(root) if _is_schedule(one)][:_MOST_SCHEDULES]
    inner = {id(part) for one in found for part in _parts(one)}
    return tuple(_schedule(one, groups) for one in found if id(one) not in inner)


def _is_schedule(state: State) -> bool:
    counted = _count(state.get("last_epoch")) is not None or _parts(state)
    return bool(counted) and (isinstance(state.get("base_lrs"), list) or isinstance(state.get("_last_lr"), list))


def _schedule(state: State, groups: Sequence[Mapping[str, Any]]) -> SavedSchedule:
    stepped = _stepped(state)
    calls = np.unique(np.linspace(0, stepped, min(stepped + 1, _MOST_RATES)).astype(np.int64))
    base, last = _base_and_last(state)
    with np.errstate(all="ignore"):
        shape = _shape(state, calls.astype(np.float64), _Optimizer(groups, base or 1.0), _DEEPEST)
        rates = None if shape is None or base is None else base * shape.factors
    sane = shape is not None and all((one or 0.0) < _LARGEST_COUNT for one in (shape.laid_out, shape.period))
    known = sane and rates is not None and last is not None and bool(np.isfinite(rates).all())
    if shape is None or rates is None or last is None or not known or not _agree(float(rates[-1]), last):
        shape, calls, rates = None, np.empty(0, dtype=np.int64), np.empty(0)
    return SavedSchedule(
        stepped=stepped,
        laid_out=None if shape is None else shape.laid_out,
        period=None if shape is None else shape.period,
        steps=calls,
        rates=rates,
        best=_number(state.get("best")),
        waits_for_rise={"min": False, "max": True}.get(_text(state.get("mode"))) if "num_bad_epochs" in state else None,
    )


def _stepped(state: State, depth: int = _DEEPEST) -> int:
    """How often it was stepped. One that steps several in turn or together may leave the count to them."""
    own = _count(state.get("last_epoch"))
    if own is not None or depth == 0:
        return own or 0
    return max((_stepped(one, depth - 1) for one in _parts(state)), default=0)


def _agree(told: float, saved: float) -> bool:
    return isfinite(told) and abs(told - saved) <= _SAME * abs(saved) + _NOTHING


def _base_and_last(state: State) -> tuple[float | None, float | None]:
    """The highest of the groups' first rates, and that group's last; of several schedulers the first one's base."""
    bases, last = _numbers(state.get("base_lrs")), _numbers(state.get("_last_lr"))
    if not bases and _parts(state):
        bases = _numbers(_parts(state)[0].get("base_lrs"))
    if not bases or not max(bases) > 0:
        return None, None
    place = bases.index(max(bases))
    return bases[place], last[place] if place < len(last) else None


# Shapes


def _shape(state: State, calls: FloatArray, optimizer: _Optimizer, depth: int) -> _Shape | None:
    """What the settings say; None where they are of no kind that is known, or make no sense."""
    if depth == 0:
        return None
    parts = _parts(state)
    if parts and isinstance(state.get("_milestones"), list):
        return _in_turn(parts, [0.0, *_numbers(state["_milestones"])], calls, optimizer, depth)
    if parts:
        return _together([_shape(one, calls, optimizer, depth - 1) for one in parts])
    if "total_steps" in state:
        return _one_cycle(state, calls, optimizer.groups)
    settings = {key: number for key in state if (number := _number(state[key])) is not None}
    own = frozenset(state) - _OF_ALL
    kind = next((one for names, one in _KINDS.items() if own == names), None)
    if kind is not None and own <= frozenset(settings):
        shape = kind(settings, calls, optimizer.base)
    else:
        shape = _milestones(state, calls) if own == {"milestones", "gamma"} else None
    return shape if shape is not None and bool(np.isfinite(shape.factors).all()) else None


def _steps_down(settings: Mapping[str, float], calls: FloatArray, _: float) -> _Shape | None:
    size = settings["step_size"]
    return _Shape(settings["gamma"] ** np.floor(calls / size)) if size >= 1 else None


def _milestones(state: State, calls: FloatArray) -> _Shape | None:
    """As ``MultiStepLR`` has it: how often each milestone counts, by the call."""
    counts, gamma = state.get("milestones"), _number(state.get("gamma"))
    if gamma is None:
        return None
    if isinstance(counts, Mapping) and len(counts) <= _MOST_RATES:
        known = [(_number(at), _number(times)) for at, times in counts.items()]
        passed = [(calls >= at) * times for at, times in known if at is not None and times is not None]
        factors = gamma ** np.sum(passed, axis=0) if passed else np.ones_like(calls)
        return _Shape(factors) if len(passed) == len(known) else None
    return None


def _exponential(settings: Mapping[str, float], calls: FloatArray, _: float) -> _Shape:
    return _Shape(settings["gamma"] ** calls)


def _cosine(settings: Mapping[str, float], calls: FloatArray, base: float) -> _Shape | None:
    half, floor = settings["T_max"], settings["eta_min"] / base
    if half < 1:
        return None
    return _Shape(floor + (1.0 - floor) * (1.0 + np.cos(np.pi * calls / half)) / 2.0, half, 2.0 * half)


def _linear(settings: Mapping[str, float], calls: FloatArray, _: float) -> _Shape | None:
    start, end, total = (settings[key] for key in ("start_factor", "end_factor", "total_iters"))
    if total < 1:
        return None
    return _Shape(start + (end - start) * np.minimum(calls, total) / total, total if end < start else None)


def _constant(settings: Mapping[str, float], calls: FloatArray, _: float) -> _Shape:
    return _Shape(np.where(calls < settings["total_iters"], settings["factor"], 1.0))


def _polynomial(settings: Mapping[str, float], calls: FloatArray, _: float) -> _Shape | None:
    total = settings["total_iters"]
    return _Shape((1.0 - np.minimum(calls, total) / total) ** settings["power"], total) if total >= 1 else None


# By the settings that a kind has next to those of all.
_KINDS: Mapping[frozenset[str], Callable[[Mapping[str, float], FloatArray, float], _Shape | None]] = {
    frozenset(("start_factor", "end_factor", "total_iters")): _linear,
    frozenset(("factor", "total_iters")): _constant,
    frozenset(("power", "total_iters")): _polynomial,
    frozenset(("step_size", "gamma")): _steps_down,
    frozenset(("gamma",)): _exponential,
    frozenset(("T_max", "eta_min")): _cosine,
}


def _in_turn(
    parts: Sequence[State], starts: Sequence[float], calls: FloatArray, optimizer: _Optimizer, depth: int
) -> _Shape | None:
    """One after the other, each from its start on."""
    if len(starts) != len(parts) or sorted(starts) != list(starts):
        return None
    factors, shape = np.empty_like(calls), None
    for start, part in zip(starts, parts, strict=True):
        since = calls >= start
        shape = _shape(part, np.maximum(calls - start, 0.0), optimizer, depth - 1)
        if shape is None:
            return None
        factors[since] = shape.factors[since]
    laid_out = None if shape is None or shape.laid_out is None else starts[-1] + shape.laid_out
    return _Shape(factors, laid_out)


def _together(shapes: Sequence[_Shape | None]) -> _Shape | None:
    """Their product."""
    known = [one for one in shapes if one is not None]
    if len(known) != len(shapes):
        return None
    ends = [one.laid_out for one in known if one.laid_out is not None]
    return _Shape(np.prod([one.factors for one in known], axis=0), max(ends, default=None))


def _one_cycle(state: State, calls: FloatArray, groups: Sequence[Mapping[str, Any]]) -> _Shape | None:
    """By its phases, between rates that the optimizer's groups hold."""
    total, phases = _number(state.get("total_steps")), state.get("_schedule_phases")
    group = max(groups, key=lambda one: _number(one.get("max_lr")) or 0.0, default={})
    first = _number(group.get("initial_lr"))
    if total is None or total < 1 or not isinstance(phases, list) or not 1 <= len(phases) <= _MOST_PARTS or not first:
        return None
    factors, start = np.zeros_like(calls), 0.0
    for phase in phases:
        if not isinstance(phase, Mapping):
            return None
        end = _number(phase.get("end_step"))
        low, high = (_number(group.get(_text(phase.get(key)))) for key in ("start_lr", "end_lr"))
        if end is None or low is None or high is None or not end > start:
            return None
        share = np.clip((calls - start) / (end - start), 0.0, 1.0)
        bent = share if state.get("_anneal_func_type") == "linear" else (1.0 - np.cos(np.pi * share)) / 2.0
        within = calls >= start
        factors[within] = (low + (high - low) * bent[within]) / first
        start = end
    return _Shape(factors, total)


# Values


def _parts(state: State) -> list[State]:
    """The schedulers of one that steps several."""
    parts = state.get("_schedulers")
    if not isinstance(parts, list) or not 1 <= len(parts) <= _MOST_PARTS:
        return []
    return parts if all(isinstance(one, Mapping) for one in parts) else []


def _text(value: Any) -> str:
    """A text as it is; of anything else nothing: what is nested has no bound."""
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < _LARGEST_COUNT else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e300 else None


def _numbers(values: Any) -> list[float]:
    """Those of a list that holds nothing else; none of any other."""
    known = [_number(one) for one in values[:_MOST_RATES]] if isinstance(values, list) else []
    return [one for one in known if one is not None] if None not in known else []
