"""A finding's number compared with what is usual and the rule's limit, as a bar.

Which number a rule decides by, and the name of its limit, are listed here; the values come from the finding. A rule
that is not listed gets no bar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tracker_health.report.result import ProbeResult
from tracker_health.text import contrast, number, percent, small_percent

_ROUND = 3.0  # a bar extends beyond its outermost number by this factor, or on a linear one by a tenth


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """How a rule's number is shown. ``measured``: its names in ``ProbeResult.measured``, the first that is there;
    ``what``: what it is, with its unit. ``limit``: the name of the threshold; ``below``: the limit is a least value.
    ``usual``: from and to. ``of``: the measured number that limit and usual values are multiples of. ``show``: how
    numbers are written.
    """

    measured: tuple[str, ...]
    what: str
    limit: str = ""
    below: bool = False
    usual: tuple[float, float] | None = None
    of: str = ""
    show: Callable[..., str] = number


def _times(value: float, digits: int = 3) -> str:
    return f"{number(value, digits)} times"


YARDSTICKS: Mapping[str, Yardstick] = {
    "LOS001": Yardstick(
        measured=("share",), what="of the points are not finite", limit="max_share", usual=(0, 0), show=percent
    ),
    "LOS005": Yardstick(
        measured=("descent_share",),
        what="of the start, by which the loss fell",
        limit="min_descent",
        below=True,
        show=percent,
    ),
    "LOS007": Yardstick(
        measured=("late_share",), what="of the descent came in the last quarter", limit="late_share", show=percent
    ),
    "GRD001": Yardstick(
        measured=("share",), what="of the gradient norms are not finite", limit="max_share", usual=(0, 0), show=percent
    ),
    "GRD004": Yardstick(measured=("growth",), what="growth of the gradient norm", limit="factor", show=_times),
    "OPT001": Yardstick(measured=("optimizer_steps",), what="optimizer steps", limit="min_steps", below=True),
    "OPT002": Yardstick(measured=("nonfinite_tensors",), what="parameters with NaN or infinite moments", usual=(0, 0)),
    "WGT001": Yardstick(measured=("nonfinite_tensors",), what="tensors with NaN or infinite values", usual=(0, 0)),
    "OPT005": Yardstick(measured=("signal_to_noise",), what="signal over noise in Adam's moments", limit="max_ratio"),
    "OPT006": Yardstick(
        measured=("update_ratio",),
        what="of the weights' size, by one step",
        limit="min_ratio",
        below=True,
        usual=(0.0002, 0.02),
        show=small_percent,
    ),
    "OPT007": Yardstick(
        measured=("update_ratio",),
        what="of the weights' size, by one step",
        limit="max_ratio",
        usual=(0.0002, 0.02),
        show=small_percent,
    ),
    "OPT009": Yardstick(
        measured=("input_rms",), what="root mean square of a layer's inputs", limit="max_rms", usual=(1, 1)
    ),
    "OPT010": Yardstick(measured=("eps_ratio",), what="eps over the root of the second moment", limit="least_ratio"),
    "WGT003": Yardstick(
        measured=("largest_share",), what="of a layer's units never had a gradient", limit="dead_share", show=percent
    ),
    "WGT004": Yardstick(
        measured=("scale_by_smaller_side",),
        what="the size of a fresh layer's weights",
        limit="max_scale",
        usual=(0.4, 4),
        show=_times,
    ),
    "RUN001": Yardstick(
        measured=("fraction",),
        what="of the plan was done",
        limit="min_fraction",
        below=True,
        usual=(1, 1),
        show=percent,
    ),
    "LRS001": Yardstick(
        measured=("zero_share",), what="of the steps have a learning rate of 0", limit="zero_share", show=percent
    ),
}
"""By the code of the rule. What is usual is what the rule's page says of healthy runs."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A number on a scale, drawn 1000 units wide. ``this``, ``usual`` and ``limit``: places on it; ``says``: what each
    of them is, in words; ``bad``: the side of the limit on which the number is.
    """

    this: float
    usual: tuple[float, float] | None
    limit: float | None
    says_this: str
    says_usual: str
    says_limit: str
    beyond: bool = True

    @property
    def description(self) -> str:
        """All of it in a sentence, for those who cannot see it."""
        return ", ".join(one for one in (self.says_this, self.says_usual, self.says_limit) if one)


def bar_of(result: ProbeResult) -> Bar | None:
    """The bar of a result; None where the rule has none, or the number is not there or not finite."""
    if result.code == "LOS006":
        return _by_chance(result)
    if result.code == "LOS004":
        return _by_start(result)
    yardstick = YARDSTICKS.get(result.code)
    value = _first(result, yardstick.measured) if yardstick is not None else None
    if yardstick is None or value is None:
        return None
    limit = _finite(result.thresholds.get(yardstick.limit))
    below = yardstick.below
    if result.code == "WGT004" and limit is not None and value < limit:
        limit, below = _finite(result.thresholds.get("min_scale")), True
    other = _finite(result.thresholds.get("max_before_norm"))
    if result.code == "OPT009" and other is not None and f"limit {number(other)}" in result.message:
        limit = other  # of what comes before a normalisation, which takes larger inputs
    show, shown = yardstick.show, contrast(*((value,) if limit is None else (value, limit)), show=yardstick.show)
    return bar(
        value,
        f"{shown[0]} {yardstick.what}",
        usual=yardstick.usual,
        says_usual=_span(yardstick.usual, show),
        limit=limit,
        says_limit="" if limit is None else f"limit {'at least ' * below}{shown[1]}",
        beyond=limit is None or (value < limit if below else value > limit),
    )


def _by_chance(result: ProbeResult) -> Bar | None:
    end, chance, classes = (_finite(result.measured.get(name)) for name in ("end", "chance", "classes"))
    if end is None or chance is None or end <= 0 or chance <= 0:
        return None
    among, (last, guessed) = f" among {number(classes)}" if classes else "", contrast(end, chance)
    return bar(
        end,
        f"{last} at the end",
        limit=chance,
        says_limit=f"guessing{among} has {guessed}",
        usual=None,
        says_usual="",
    )


def _by_start(result: ProbeResult) -> Bar | None:
    start, best, end, peak = (_finite(result.measured.get(name)) for name in ("start", "best", "end", "peak"))
    share = _finite(result.thresholds.get("rise_share"))
    if start is None or best is None or end is None or peak is None:
        return None
    climbed = "climb_share" in result.measured
    value = max(peak, end) if climbed else end
    shown, started, lowest = contrast(value, start, best)
    said = f"{'highest level' if climbed else 'level at the end'} {shown}"
    low, high = sorted((best, start))
    if share is None or low <= 0 or value <= 0:
        return None
    return bar(
        value,
        said,
        usual=(low, high),
        says_usual=f"started at {started}, best level {lowest}",
        limit=None,
        says_limit="",
    )


def _span(usual: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    if usual is None:
        return ""
    return f"usual {show(usual[0])}" if usual[0] == usual[1] else f"usual {_bare(show(usual[0]))} to {show(usual[1])}"


def _bare(text: str) -> str:
    return text.removesuffix(" %").removesuffix(" times")


def bar(
    value: float,
    says_this: str,
    *,
    usual: tuple[float, float] | None,
    says_usual: str,
    limit: float | None,
    says_limit: str,
    beyond: bool = True,
) -> Bar | None:
    """A bar on which all numbers have room: logarithmic where they are far apart and above 0."""
    numbers = [value, *(usual or ()), *(() if limit is None else (limit,))]
    if not all(math.isfinite(one) for one in numbers) or len(numbers) < 2:
        return None
    place = _scale(numbers)
    return Bar(
        this=place(value),
        usual=None if usual is None else (place(usual[0]), place(usual[1])),
        limit=None if limit is None else place(limit),
        says_this=says_this,
        says_usual=says_usual,
        says_limit=says_limit,
        beyond=beyond,
    )


def _scale(numbers: list[float]) -> Callable[[float], float]:
    low, high = min(numbers), max(numbers)
    if low > 0 and high > 5 * low:
        bottom, top = math.log(low / _ROUND), math.log(high * _ROUND)
        return lambda value: round(1000 * (math.log(value) - bottom) / (top - bottom))
    low = 0.0 if low >= 0 else low - 0.1 * (high - low)
    span = 1.15 * (high - low) or 1.0
    return lambda value: round(1000 * (value - low) / span)


def _first(result: ProbeResult, names: tuple[str, ...]) -> float | None:
    return next((value for name in names if (value := _finite(result.measured.get(name))) is not None), None)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
