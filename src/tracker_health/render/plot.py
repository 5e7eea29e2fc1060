"""A line chart as SVG, with its data for the script that reads values, zooms and changes the axis.

Nothing is imported that draws: the page's own style sheet gives the colours, in light and dark. Every text is escaped
here, so that the element may go into a page as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray
from tracker_health.render.thinning import Places, thin
from tracker_health.text import printable

WIDTH = 900.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 240.0, 16.0, 42.0
_SMALL_WIDTH, _SMALL_RIGHT = 440.0, 30.0  # without room for the names of lines
_LINE_HEIGHT, _CHARACTER = 16.0, 7.2  # of a label, in pixels
_FEWEST_BUCKETS, _STATIC_SHARE = 30, 0.3  # of the points for the script, in what is drawn without it
_LOGARITHMIC = 50.0  # highest over lowest, from which a linear axis hides the low end
LARGEST = 1e100
_DEEPEST = 1e-6  # of the highest value: a logarithmic axis goes no further down
_MARGIN = 0.04
_LONG = 1e7  # written with an exponent
_ROUNDING = 1e-7  # of the height: a curve that spans less is constant
_END_CHARACTERS = 26  # of a bold label, in the room for names of lines


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """A curve. ``steps``: [n] ascending, whole unless an owner's; ``values``: float64[n], NaN where the line breaks
    off. ``label``: what is at its end. ``look``: the classes by which the style sheet knows it: main, val, noisy,
    level, or a verdict. ``key``: what a filter knows it by.
    """

    name: str
    steps: Places
    values: FloatArray
    label: str = ""
    look: str = "main"
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A place that a finding names: a ring where the series has a value there, else a line across the chart."""

    step: float
    value: float | None
    label: str
    look: str = "fail"

    @property
    def has_line(self) -> bool:
        """Whether a line goes through it: one that nothing explains would puzzle."""
        return bool(self.label) or self.value is None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A level across the chart: guessing (``chance``), or an end of what is usual (``usual``)."""

    value: float
    label: str
    look: str = "chance"


@dataclass(frozen=True, kw_only=True)
class Band:
    """A stretch of steps, as one in which the values are not finite."""

    first: float
    last: float
    label: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Area:
    """What is between two curves over the same ``steps``: [n] ascending. ``low`` and ``high``: float64[n], NaN
    where there is nothing between them. ``look``: its class in the style sheet.
    """

    steps: Places
    low: FloatArray
    high: FloatArray
    look: str = "usual"

    def pieces(self) -> Iterator[tuple[Places, FloatArray, FloatArray]]:
        """Its stretches without a gap, each of two steps at least."""
        finite = np.isfinite(self.low) & np.isfinite(self.high)
        for first, end in _stretches(finite):
            if end - first > 1:
                yield self.steps[first:end], self.low[first:end], self.high[first:end]


@dataclass(frozen=True, kw_only=True)
class Plot:
    """What a chart shows. ``name``: letters and digits, unlike any other on the page. ``unit``: of the horizontal axis.
    ``areas`` are below the lines, which also give their edges. ``description``: the same in words. ``logarithmic``: the
    axis that it begins with; None leaves that to the values. ``codes``: of the rules whose findings are marked.
    ``is_small``: one of several that are shown next to each other.
    """

    name: str
    title: str
    description: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    references: tuple[Reference, ...] = ()
    bands: tuple[Band, ...] = ()
    areas: tuple[Area, ...] = ()
    unit: str = "step"
    logarithmic: bool | None = None
    note: str = ""
    height: float = 300.0
    codes: tuple[str, ...] = ()
    is_small: bool = False
    digits: int = 7
    buckets: int = field(default=300, repr=False)

    @property
    def is_logarithmic(self) -> bool:
        """Whether the chart begins with a logarithmic axis."""
        if not self.may_be_logarithmic:
            return False
        return _wants_logarithm(self.values) if self.logarithmic is None else self.logarithmic

    @property
    def may_be_logarithmic(self) -> bool:
        """Whether enough of the values are above 0 for a logarithmic axis."""
        values = self.values
        return bool(len(values)) and float(np.mean(values > 0)) >= 0.5 and float(np.ptp(values)) > 0

    @property
    def values(self) -> FloatArray:
        """All finite values, within what can be computed with."""
        found = np.concatenate([line.values for line in self.lines]) if self.lines else np.empty(0)
        finite: FloatArray = np.clip(found[np.isfinite(found)], -LARGEST, LARGEST)
        return finite

    @property
    def span(self) -> tuple[float, float]:
        """The first and last step, of values that are not finite as well."""
        ends = [_whole(one) for line in self.lines if len(line.steps) for one in line.steps[[0, -1]]]
        first, last = min(ends, default=0), max(ends, default=1)
        return first, last if last > first else first + 1

    @property
    def is_whole(self) -> bool:
        """Whether it is by whole steps, and not by parts of what an owner counts, as of epochs."""
        return all(one == round(one) for one in self.span)

    @property
    def data(self) -> dict[str, Any]:
        """For the script: lists of numbers with so many significant ``digits``, null where a line breaks off."""
        lines = []
        for line in self.lines:
            steps, values = _thinned(line, self.buckets, self.digits)
            lines.append({"n": line.name, "t": line.label, "c": line.look, "k": line.key, "s": steps, "v": values})
        return {
            "name": self.name,
            "unit": self.unit,
            "span": list(self.span),
            "log": self.is_logarithmic,
            "may": self.may_be_logarithmic,
            "lines": lines,
            "marks": [
                {"s": _whole(one.step), "v": _short(one.value), "t": one.label, "c": one.look} for one in self.marks
            ],
            "refs": [{"v": _short(one.value), "t": one.label, "c": one.look} for one in self.references],
            "areas": [
                {
                    "c": area.look,
                    "s": [_whole(one) for one in steps],
                    "a": [_short(float(one), self.digits) for one in low],
                    "b": [_short(float(one), self.digits) for one in high],
                }
                for area in self.areas
                for steps, low, high in area.pieces()
            ],
            "bands": [{"a": _whole(one.first), "b": _whole(one.last), "t": one.label} for one in self.bands],
        }


def _whole(place: float) -> float:
    """A place on the horizontal axis, as short as JSON can have it."""
    return int(place) if place == round(place) else float(f"{place:.8g}")


def _wants_logarithm(values: FloatArray) -> bool:
    """Where a linear axis would show one extreme and a flat line."""
    positive = values[values > 0]
    if len(positive) < len(values) or float(values.max()) / float(np.median(positive)) < _LOGARITHMIC**0.5:
        return False
    return float(values.max()) > _LOGARITHMIC * float(values.min())


def _thinned(line: Line, buckets: int, digits: int) -> tuple[list[float], list[float | None]]:
    steps: list[float] = []
    values: list[float | None] = []
    for piece_steps, piece in pieces(line):
        if steps:
            steps.append(_whole(piece_steps[0]))
            values.append(None)
        share = max(1, round(buckets * len(piece) / max(1, len(line.values))))
        some_steps, some = thin(piece_steps, piece, share)
        steps += [_whole(one) for one in some_steps]
        values += [_short(float(one), digits) for one in some]
    return steps, values


def pieces(line: Line) -> Iterator[tuple[Places, FloatArray]]:
    """The stretches of finite values, the longest hundred of many."""
    found = sorted(_stretches(np.isfinite(line.values)), key=lambda piece: piece[0] - piece[1])[:100]
    for first, end in sorted(found):
        yield line.steps[first:end], np.clip(line.values[first:end], -LARGEST, LARGEST)


def _stretches(there: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The beginning and the end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _short(value: float | None, digits: int = 7) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class _Axes:
    """From steps and values to places in the picture."""

    first: float
    last: float
    low: float
    high: float
    logarithmic: bool
    height: float
    width: float
    right: float

    @classmethod
    def of(cls, plot: Plot) -> _Axes:
        first, last = (float(one) for one in plot.span)
        logarithmic = plot.is_logarithmic
        values = plot.values
        known = np.concatenate([values, np.array([one.value for one in plot.references])])
        if logarithmic:
            known = np.log10(known[known > max(0.0, _DEEPEST * float(known.max()))])
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        low, high = _widened(low, high)
        width, right = (_SMALL_WIDTH, _SMALL_RIGHT) if plot.is_small else (WIDTH, _RIGHT)
        return cls(first, last, low, high, logarithmic, plot.height, width, width - right)

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first)
        return _LEFT + min(1.0, max(0.0, share)) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        if self.logarithmic:
            value = math.log10(value) if value > 0 else self.low
        # Halves, since the difference of two floats may be none.
        share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return self.height - _BOTTOM - min(1.0, max(0.0, share)) * (self.height - _TOP - _BOTTOM)


def _widened(low: float, high: float) -> tuple[float, float]:
    """What an axis shows for values from ``low`` to ``high``: some more, and for 0 alone 0 to 1."""
    if low == high == 0:
        return -_MARGIN, 1.0
    spans = high / 2 - low / 2 > _ROUNDING / 2 * max(abs(low), abs(high))
    margin = _MARGIN * (high - low) if spans else 0.05 * max(abs(low), abs(high))
    return low - margin, high + margin


def draw(plot: Plot) -> str:
    """The chart as it is shown before any script runs, on paper, and where there is none."""
    axes = _Axes.of(plot)
    view = f"0 0 {axes.width:g} {plot.height:g}"
    parts = [
        f'<svg class="plot" viewBox="{view}" role="img" aria-labelledby="title-{plot.name}">',
        f'<title id="title-{plot.name}">{_text(plot.description, 900)}</title>',
    ]
    parts += (_band(band, axes) for band in plot.bands)
    parts += _grid(plot, axes)
    parts += (part for area in plot.areas for part in _polygons(area, axes))
    parts += (_rule(one, axes) for one in plot.references)
    buckets = max(_FEWEST_BUCKETS, round(_STATIC_SHARE * plot.buckets))
    parts += (part for line in plot.lines for part in _polylines(line, axes, buckets))
    parts += _marks(plot.marks, axes)
    parts += () if plot.is_small else _end_labels(plot, axes)
    return "".join([*parts, "</svg>"])


def _band(band: Band, axes: _Axes) -> str:
    left, right = axes.x(band.first), max(axes.x(band.last), axes.x(band.first) + 3)
    height = axes.height - _TOP - _BOTTOM
    area = f'<rect class="band" x="{left:.1f}" y="{_TOP:.0f}" width="{right - left:.1f}" height="{height:.0f}"/>'
    if not band.label:
        return area
    anchor, x = ("start", left + 6) if left < axes.width / 2 else ("end", right - 6)
    return area + _label(x, axes.height - _BOTTOM - 8, band.label, "bandt", anchor)


def _grid(plot: Plot, axes: _Axes) -> Iterator[str]:
    right = axes.right
    for value in value_ticks(axes.low, axes.high, axes.logarithmic):
        y = axes.y(value)
        yield f'<line class="grid" x1="{_LEFT:.0f}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _label(_LEFT - 8, y + 4, tick(value), "tick", "end")
    for step in step_ticks(axes.first, axes.last)[:: 2 if plot.is_small else 1]:
        yield _label(axes.x(step), axes.height - _BOTTOM + 18, tick(step), "tick", "middle")
    yield _label((_LEFT + right) / 2, axes.height - 6, plot.unit, "tick", "middle")


def _rule(reference: Reference, axes: _Axes) -> str:
    y = axes.y(reference.value)
    return f'<line class="ref {reference.look}" x1="{_LEFT:.0f}" x2="{axes.right:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _polygons(area: Area, axes: _Axes) -> Iterator[str]:
    for steps, low, high in area.pieces():
        there = [f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in zip(steps, high, strict=True)]
        back = [f"{axes.x(step):.1f},{axes.y(value):.1f}" for step, value in zip(steps, low, strict=True)]
        yield f'<polygon class="area {area.look}" points="{" ".join([*there, *reversed(back)])}"/>'


def _polylines(line: Line, axes: _Axes, buckets: int) -> Iterator[str]:
    key = f' data-key="{escape(line.key)}"' if line.key else ""
    for piece in pieces(line):
        steps, values = thin(*piece, buckets)
        shown = values > 0 if axes.logarithmic else np.ones(len(values), dtype=bool)
        places = [(axes.x(s), axes.y(v)) for s, v in zip(steps[shown], values[shown], strict=True)]
        if len(places) == 1:
            x, y = places[0]
            yield f'<circle class="dot {line.look}"{key} cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        elif places:
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline class="line {line.look}"{key} points="{points}"/>'


def _marks(marks: Sequence[Mark], axes: _Axes) -> Iterator[str]:
    taken: list[tuple[float, float, float]] = []
    for mark in marks:
        x, y = axes.x(mark.step), _TOP + 10 if mark.value is None else axes.y(mark.value)
        if mark.has_line:
            ends = f'y1="{_TOP:.0f}" y2="{axes.height - _BOTTOM:.0f}"'
            yield f'<line class="at {mark.look}" x1="{x:.1f}" x2="{x:.1f}" {ends}/>'
        if mark.value is not None:
            yield f'<circle class="mark {mark.look}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
        if not mark.label:
            continue
        width = _CHARACTER * len(mark.label)
        leftwards = x + 12 + width > axes.right + 20
        left = x - 12 - width if leftwards else x + 12
        down = _LINE_HEIGHT if y < axes.height / 2 else -_LINE_HEIGHT  # never onto the axis
        y = _free(taken, left, left + width, max(y - 8, _TOP + 12), down)  # above the line: it would strike it out
        taken.append((left, left + width, y))
        yield _label(x - 12 if leftwards else x + 12, y, mark.label, f"markt {mark.look}", "end" if leftwards else "")


def _free(taken: Sequence[tuple[float, float, float]], left: float, right: float, y: float, down: float) -> float:
    """The nearest height, going ``down`` or up, at which a label covers no other one."""
    for _ in taken:
        for other_left, other_right, other in taken:
            if left < other_right and other_left < right and abs(other - y) < _LINE_HEIGHT:
                y = other + down
    return y


def _end_labels(plot: Plot, axes: _Axes) -> Iterator[str]:
    """What each line is called, where it ends; pushed apart where they would cover each other."""
    wanted = [(axes.y(one.value), one.label, f"ref {one.look}") for one in plot.references]
    for line in plot.lines:
        finite = np.flatnonzero(np.isfinite(line.values))
        if line.label and len(finite):
            wanted.append((axes.y(float(np.clip(line.values[finite[-1]], -LARGEST, LARGEST))), line.label, line.look))
    for y, (_, label, look) in zip(apart([one[0] for one in wanted], axes.height - _BOTTOM + 4), wanted, strict=True):
        yield _label(axes.right + 8, y + 4, printable(label, _END_CHARACTERS), f"end {look}", "")


def apart(heights: Sequence[float], lowest: float, size: float = _LINE_HEIGHT) -> list[float]:
    """The heights moved so that labels of a ``size`` do not cover each other, in the same order from top to bottom,
    none of them below ``lowest``.
    """
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    placed = [0.0] * len(heights)
    bottom = -math.inf
    for at in order:
        placed[at] = bottom = max(heights[at], bottom + size)
    limit = lowest
    for at in reversed(order):
        placed[at] = min(placed[at], limit)
        limit = placed[at] - size
    return placed


def value_ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    """Round values from ``low`` to ``high``, which are logarithms on a logarithmic axis."""
    if not logarithmic:
        return _round_values(low, high, 5)
    powers = range(math.ceil(low), math.floor(high) + 1)
    if len(powers) >= 3:
        return [10.0**power for power in powers][:: 1 + len(powers) // 8]
    some = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in (1, 2, 5)]
    inside = [one for one in some if low <= math.log10(one) <= high]
    return inside if len(inside) > 1 else _round_values(10.0**low, 10.0**high, 4)


def step_ticks(first: float, last: float) -> list[float]:
    """Round steps, none of them a part of one unless an owner counts parts, as of epochs."""
    whole = first == round(first) and last == round(last)
    return [one for one in _round_values(first, last, 6) if one == round(one) or not whole] or [first]


def _round_values(low: float, high: float, amount: int) -> list[float]:
    raw = (high / amount - low / amount) or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    unit = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first, count = math.ceil(low / unit), math.floor(high / unit) - math.ceil(low / unit) + 1
    return [float(f"{(first + place) * unit:.10g}") for place in range(min(count, 20))]


def tick(value: float) -> str:
    """``0.001``, ``2,000``, ``1e-7``: all digits of a round value, so that no two ticks look alike."""
    if value == round(value) and abs(value) < _LONG:
        return f"{int(value):,}"
    return re.sub(r"e([+-])0", r"e\1", f"{value:.{10 if abs(value) < _LONG else 7}g}")


def _label(x: float, y: float, text: str, look: str, anchor: str) -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}"{where}>{_text(text, 80)}</text>'


def _text(text: str, limit: int) -> str:
    return escape(printable(text, limit))
