"""What a run was set to, compared with what it logged: settings that were not applied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, Series
from tracker_health.evidence.plan import positive
from tracker_health.facts.settings import Settings
from tracker_health.text import number, setting, short_name

_MAIN = re.compile(r"^(?:.*[./])?(?:learning_rate|lr)$", re.IGNORECASE)
_OF_DEEPSPEED = "deepspeed."
_IN_DEEPSPEED = re.compile(r"deepspeed\.(?:optimizer\.lr|scheduler\.warmup_max_lr)")
# A param that scales the rate, gives its top, or leaves it to the library: the plain one is then no promise.
_SCALES = re.compile(
    r"(^|[./_])(max|peak|base|final|initial|init|min|warmup_max|auto)_?(lr|learning_rate)|(^|[./_])blr$|lr_?(mult|scal|decay|"
    r"find|factor|ratio)|scale_?lr|layer_?decay|llrd|auto_?lr|one_?cycle|div_factor|lr0$|lrf$",
    re.IGNORECASE,
)
_BY_ITSELF = re.compile(r"auto|d_?adapt|prodigy|schedule_?free|adafactor|lars|lamb|muon|sophia", re.IGNORECASE)
_COPIES = re.compile(
    r"(world_size|num_(gpus|devices|nodes|processes)|n_?gpus?|devices|data_parallel_size)$", re.IGNORECASE
)
_NOT_SHOWN = frozenset(("params", "param_names", "eps"))  # of a group: what it holds, and what has another name
_OF_A_MOMENT = frozenset(("lr",))  # at the end of its schedule, where the log has all of it
_FEWEST = 5
_NEAR = 0.1
_SHORTEST = 10  # steps of a warm-up, of which a log may show anything
_WARM_UP = ("warmup_steps", "num_warmup_steps")
_AT_THE_TOP, _EARLY = 0.9, 0.25


class NotApplied(NamedTuple):
    """A setting and what was logged in its place. ``kind``: which setting it is; ``ratio``: logged over set."""

    kind: str
    said: str
    set_to: float
    logged: float

    @property
    def ratio(self) -> float:
        return self.logged / self.set_to


def rate_not_applied(evidence: Evidence, times: float) -> NotApplied | None:
    """The learning rate that the params name, where every logged one is so many times away from it at its highest.

    Args:
        evidence: What was read of the run.
        times: How far away counts, as a ratio, in either direction.

    Returns:
        Both, or None where one agrees, where a param scales the rate, or where it is not known whether it had risen.
    """
    params = evidence.info.params
    plain = {name: value for name, value in params.items() if not name.startswith(_OF_DEEPSPEED)}
    if any(map(_SCALES.search, plain)) or _sets_its_own(evidence):
        return None
    own = {name: value for name, value in _numbers(plain) if _MAIN.match(name) and value > 0.0}
    said = {name: value for name, value in _numbers(params) if _IN_DEEPSPEED.fullmatch(name) and value > 0.0}
    logged = Settings(evidence).logged_rates
    rates = [one for one in logged if len(one) >= _FEWEST and _has_peaked(one)]
    if not rates or len(set((own or said).values())) != 1:
        return None
    name, value = next(iter((own or said).items()))
    # Also of an attempt that a later one wrote over: the params may be that one's.
    ever = np.concatenate([one.values for one in evidence.all_of("learning_rate")])
    if np.any((ever > value / times) & (ever < value * times) & (ever >= np.nanmax(ever) / times)):
        return None
    peaks = {one.name: float(one.values.max()) for one in rates}
    series, peak = min(peaks.items(), key=lambda one: abs(np.log(one[1] / value)))
    ratio = peak / value
    if 1.0 / times < ratio < times or any(abs(ratio / copies - 1.0) < _NEAR for copies in _copies(params)):
        return None
    message = (
        f"the params set {short_name(name)} to {setting(value)}; {short_name(series)} was logged as {number(peak)}"
    )
    return NotApplied("rate", f"{message} at its highest", value, peak)


def warm_up_not_applied(evidence: Evidence) -> NotApplied | None:
    """The warm-up steps that the params name, where a logged rate was at its top within the first quarter of them."""
    warm_up = positive(evidence.info.params, _WARM_UP)
    rate = next(iter(Settings(evidence).logged_rates), None)
    if rate is None or warm_up is None or len(rate) < _FEWEST or not rate.values.max() > 0.0:
        return None
    top = int(rate.steps[np.argmax(rate.values >= _AT_THE_TOP * rate.values.max())])
    if not _SHORTEST <= warm_up <= int(rate.steps[-1]) / 2 or top > _EARLY * warm_up:
        return None
    came = f"{short_name(rate.name)} was at its top at {rate.place(top)}"
    said = f"the params set {number(warm_up)} steps of warm-up; {came}"
    return NotApplied("warm-up", said, warm_up, max(1.0, float(top)))


def epochs_not_applied(evidence: Evidence, times: float) -> NotApplied | None:
    """The epochs that the params name, where the console counts up to another number of them."""
    told, counted = (
        positive(evidence.info.params, ("num_train_epochs", "max_epochs", "epochs")),
        evidence.info.printed_epochs,
    )
    if told is None or counted is None or 1.0 / times < counted / told < times:
        return None
    said = f"the params set {number(told)} epochs; the console counts up to {number(counted)}"
    return NotApplied("epochs", said, told, counted)


def as_logged(evidence: Evidence) -> dict[str, str]:
    """The params, and next to them what log and checkpoint say of the same settings, for comparisons of runs."""
    settings = Settings(evidence)
    known = {
        "learning rate, as logged": max((float(one.values.max()) for one in settings.logged_rates), default=None),
        "weight decay, as saved": _saved(evidence, "weight_decay"),
        "epsilon, as saved": _saved(evidence, "eps"),
        "momentum, as saved": _saved(evidence, "momentum"),
    }
    return {**evidence.info.params, **{name: f"{value:.6g}" for name, value in known.items() if value is not None}}


def all_settings(evidence: Evidence) -> dict[str, str]:
    """Every setting that params, log, checkpoint and plan say, for a table of runs."""
    group = evidence.optimizer.groups[0] if evidence.optimizer is not None and evidence.optimizer.groups else {}
    hidden = _NOT_SHOWN if evidence.find("learning_rate") is None else _NOT_SHOWN | _OF_A_MOMENT
    saved = {f"{key.replace('_', ' ')}, as saved": group[key] for key in sorted(group) if key not in hidden}
    progress = evidence.progress
    plan = {f"{progress.unit} planned": number(progress.planned)} if progress is not None else {}
    optimizer = {"optimizer, as known": Settings(evidence).optimizer}
    more = {name: str(value) for name, value in {**optimizer, **plan, **saved}.items() if value not in (None, "")}
    return {**more, **as_logged(evidence)}


def _saved(evidence: Evidence, key: str) -> float | None:
    groups = evidence.optimizer.groups if evidence.optimizer is not None else ()
    values = [group.get(key) for group in groups]
    return max((float(one) for one in values if isinstance(one, (int, float))), default=None)


def _sets_its_own(evidence: Evidence) -> bool:
    """Whether the optimizer or its scheduler chooses the rate by itself."""
    params = evidence.info.params.items()
    return any(
        re.search(r"optim|sched", name, re.IGNORECASE) and _BY_ITSELF.search(str(value)) for name, value in params
    )


def _has_peaked(rate: Series) -> bool:
    """Whether the rate does not still rise at its end."""
    values = rate.values
    return float(values.max()) > 0.0 and (values[-1] < values.max() or values[-1] == values[len(values) // 2])


def _numbers(params: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for name, text in params.items():
        try:
            value = float(text)
        except ValueError:
            continue
        if np.isfinite(value):
            yield name, value


def _copies(params: Mapping[str, str]) -> list[float]:
    """By how much a rate may have been multiplied for several devices."""
    return [value for name, value in _numbers(params) if _COPIES.search(name) and value > 1.0]
