"""Pictures of a run, with what the rules found marked where it happened.

matplotlib is imported by the functions that draw. Names from a run are shown as plain text: no markup in them is read.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import optional_packages
from tracker_health.evidence import Evidence, FloatArray, IntArray, Parameter, Series, TensorState
from tracker_health.evidence.parameters.steps import relative_updates
from tracker_health.layers import place_of
from tracker_health.render.thinning import level, stretches, thin
from tracker_health.result import ProbeResult, Report
from tracker_health.text import count, printable, short_name
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart by people with any kind of colour vision.
_BLUE, _ORANGE, _GREEN, _VERMILION, _PURPLE, _SKY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"
_LINES = (_BLUE, _ORANGE, _GREEN, _PURPLE, _SKY, _VERMILION)
_GREY = "#888888"
_INK = "#010203"  # stands for the colour of the text around the picture
_MARKS = {Verdict.FAIL: _VERMILION, Verdict.WARN: _ORANGE}
_MOST_MARKS = 12
_MOST_ROLES = 6
_MOST_LAYERS = 400  # of each role
_FEW_POINTS = 60
_WIDTH = 5.6  # inches: small enough that text of 10 points can be read on a telephone
_WIDEST_LEGEND = 70  # characters
_LARGEST = 1e100
_LOGARITHMIC = 50.0  # highest over lowest, from which on a linear axis hides the low end
_STYLE = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tracker-health",
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": _GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.formatter.limits": (-4, 5),
    "path.simplify": False,  # it may leave out what thinning kept
}
_NOT_OURS = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone", "webagg.port"})


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One picture. ``kind``: loss, gradient, rate, scale, layers or updates. ``description``: what it shows, in words,
    for those who cannot see it. ``codes``: the findings that are marked in it, or that it is about.
    """

    kind: str
    title: str
    description: str
    svg: str
    png: bytes = b""
    codes: tuple[str, ...] = ()


def draw(evidence: Evidence, report: Report) -> tuple[Chart, ...]:
    """The pictures that a run's evidence gives, the loss first. The loss is drawn as PNG, too.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = []
    with _matplotlib():
        for kind, plot in _PLOTS.items():
            findings = [finding for finding in report.findings if _kind_of(finding.code) == kind]
            chart = plot(evidence, findings)
            if chart is not None:
                drawn.append(chart)
    return tuple(drawn)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run's loss, thinned and finite, and what was made of the run."""

    name: str
    steps: IntArray
    values: FloatArray
    verdict: Verdict


def overlay(curves: Sequence[Curve]) -> Chart:
    """Many runs' losses over each other, the sick ones in colour and on top.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _matplotlib():
        figure, axes = _figure(3.2)
        for curve in sorted(curves, key=lambda one: one.verdict.rank):
            sick = curve.verdict in _MARKS
            colour = _MARKS.get(curve.verdict, _GREY)
            axes.plot(
                curve.steps, _drawable(curve.values), color=colour, lw=1.1 if sick else 0.8, alpha=0.9 if sick else 0.45
            )
        told = []
        for verdict in Verdict:
            amount = sum(curve.verdict is verdict for curve in curves)
            if amount:
                axes.plot([], [], color=_MARKS.get(verdict, _GREY), label=f"{verdict} ({amount})")
                told.append(f"{amount} {verdict}")
        _choose_scale(axes, _drawable(np.concatenate([curve.values for curve in curves])))
        _count_along(axes, "step")
        axes.set_ylabel("loss")
        _legend_above(axes)
        description = f"The losses of {len(curves)} runs over each other: {', '.join(told)}."
        return Chart(kind="loss", title="Losses", description=description, svg=_svg(figure))


@contextmanager
def _matplotlib() -> Iterator[None]:
    with optional_packages("charts"):
        import matplotlib as mpl
    # Not the owner's style, and without touching it: this may run within a training script.
    style: Any = {key: value for key, value in mpl.rcParamsDefault.items() if key not in _NOT_OURS} | _STYLE
    with mpl.rc_context(style), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name's characters that the font lacks: no news to who trains
        yield


_KINDS = {
    "OPT006": "updates",
    "OPT007": "updates",
    "GRD": "gradient",
    "LRS": "rate",
    "AMP": "scale",
    "OPT": "layers",
    "WGT": "layers",
}


_TITLES = {
    "loss": "Loss",
    "gradient": "Gradient norm",
    "rate": "Learning rate",
    "scale": "Loss scale",
    "layers": "Size of the gradients by layer",
    "updates": "Size of the updates beside the weights by layer",
}


def _kind_of(code: str) -> str:
    """Which picture a rule's finding belongs in."""
    return _KINDS.get(code) or _KINDS.get(code[:3], "loss")


_DPI = 200


def _figure(height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _loss(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    train, validation = (_shown(evidence.find(role)) for role in ("train_loss", "val_loss"))
    if train is None and validation is None:
        return None
    figure, axes = _figure(2.7)
    told = []
    if train is not None:
        _curve(axes, train, _BLUE)
        told.append(_told(train))
    if validation is not None:
        _curve(axes, validation, _VERMILION if train is not None else _BLUE, smoothed=train is None)
        told.append(_told(validation))
    main = train if train is not None else validation
    for place, finding in enumerate(findings):
        of_validation = finding.code.startswith("GEN") and validation is not None
        _mark(axes, finding, validation if of_validation else main, row=place % 4)
    for series in (train, validation):
        _hatch_nonfinite(axes, series)
    _finish(axes, [train, validation], "loss")
    description = f"Loss by step: {'; '.join(told)}.{_marked(findings)}"
    return _chart("loss", figure, description, findings, png=True)


def _gradient(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    return _single(evidence, findings, "grad_norm", "gradient", "gradient norm")


def _rate(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    return _single(evidence, findings, "learning_rate", "rate", "learning rate")


def _scale(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    return _single(evidence, findings, "loss_scale", "scale", "loss scale")


def _single(evidence: Evidence, findings: Sequence[ProbeResult], role: str, kind: str, what: str) -> Chart | None:
    series = _shown(evidence.find(role))
    if series is None:
        return None
    figure, axes = _figure(2.1)
    _curve(axes, series, _BLUE, smoothed=role == "grad_norm")
    for place, finding in enumerate(findings):
        _mark(axes, finding, series, row=place % 4)
    _hatch_nonfinite(axes, series)
    _finish(axes, [series], what)
    return _chart(kind, figure, f"{what.capitalize()} by step: {_told(series)}.{_marked(findings)}", findings)


def _layers(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    """The size of the gradients by depth."""
    sizes = [(row, size) for row in evidence.parameters.with_state if (size := _gradient_size(row)) is not None]
    return _by_depth(sizes, findings, "layers", "root of Adam's second moment")


def _updates(evidence: Evidence, findings: Sequence[ProbeResult]) -> Chart | None:
    """The size of the updates by depth, beside the weights that they change."""
    return _by_depth(relative_updates(evidence), findings, "updates", "step over weights")


def _by_depth(
    sizes: Iterable[tuple[Parameter | TensorState, float]], findings: Sequence[ProbeResult], kind: str, what: str
) -> Chart | None:
    """A line for each role that tensors have in their layers; a cross for a size of 0."""
    by_role = _by_role(sizes)
    if not by_role:
        return None
    figure, axes = _figure(2.8)
    lowest = min((size for line in by_role.values() for _, size in line if size > 0), default=1.0)
    for (role, line), colour in zip(by_role.items(), _LINES, strict=False):
        alive, silent = ([one for one in line if (one[1] > 0) is wanted] for wanted in (True, False))
        axes.plot(*_thinned(alive), "o-", color=colour, ms=3.5, lw=1, label=_name(role))
        layers, zeros = _thinned(silent)
        axes.plot(layers, zeros + lowest / 3, "x", color=_VERMILION, ms=7, mew=2)
    _set_scale(axes, "log")
    layers = np.unique([layer for line in by_role.values() for layer, _ in line])
    axes.set_xlim(layers[0] - 0.5, layers[-1] + 0.5)
    _count_along(axes, "layer")
    axes.set_ylabel(what)
    _legend_above(axes)
    dead = sum(size == 0 for line in by_role.values() for _, size in line)
    crosses = f" {count(dead, 'tensor')} got none at all: crosses." if dead else ""
    description = f"{_TITLES[kind].removesuffix(' by layer')} in {count(len(layers), 'layer')}, by role.{crosses}"
    return _chart(kind, figure, description, findings)


def _thinned(line: Sequence[tuple[int, float]]) -> tuple[IntArray, FloatArray]:
    """The layers and sizes of a line; of more layers than any model has, those with the extremes."""
    layers, sizes = (np.array([one[place] for one in line]) for place in (0, 1))
    return thin(layers.astype(np.int64), sizes.astype(np.float64), _MOST_LAYERS // 4)


def _by_role(sizes: Iterable[tuple[Parameter | TensorState, float]]) -> dict[str, list[tuple[int, float]]]:
    """Layer and size of the matrices with a known place, for the roles with most values."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    values: dict[str, int] = defaultdict(int)
    for tensor, size in sizes:
        place = place_of(tensor.name or "")
        if place is not None and len(tensor.shape or ()) >= 2:
            lines[place.role].append((place.layer, size))
            values[place.role] += tensor.numel
    most = sorted(lines, key=lambda role: (-values[role], role))[:_MOST_ROLES]
    return {role: sorted(lines[role]) for role in most}


def _gradient_size(row: Parameter) -> float | None:
    moment = row.state.second_moment if row.state is not None else None
    return float(np.sqrt(moment.mean)) if moment is not None and np.isfinite(moment.mean) and moment.mean >= 0 else None


_PLOTS: dict[str, Callable[[Evidence, Sequence[ProbeResult]], Chart | None]] = {
    "loss": _loss,
    "gradient": _gradient,
    "rate": _rate,
    "scale": _scale,
    "layers": _layers,
    "updates": _updates,
}


def _shown(series: Series | None) -> Series | None:
    return series.clean() if series is not None and len(series.clean()) else None


def _curve(axes: Axes, series: Series, colour: str, *, smoothed: bool = True) -> None:
    """The points, thinned, and on top of many of them the level at which they run."""
    finite = series.finite()
    few = len(finite) <= _FEW_POINTS
    steps, values = thin(finite.steps, _drawable(finite.values))
    middle = level(finite.steps, _drawable(finite.values)) if smoothed and not few else (np.empty(0), np.empty(0))
    noisy = len(middle[0]) > 0
    look = {"lw": 0.7, "alpha": 0.45} if noisy else {"lw": 1.3, "label": _name(series.name)}
    axes.plot(steps, values, "o-" if few else "-", color=colour, ms=3.5, **look)
    if noisy:
        axes.plot(*middle, color=colour, lw=1.8, label=_name(series.name))


def _mark(axes: Axes, finding: ProbeResult, series: Series | None, *, row: int) -> None:
    """A line at each step that a finding names, with a ring around the series' point, and its code on top."""
    if series is None:
        return
    colour = _MARKS.get(finding.verdict, _PURPLE)
    first, last = int(series.steps[0]), int(series.steps[-1])
    steps = _apart(finding.steps, first, last)
    for step in steps:
        axes.axvline(step, color=colour, lw=1.1, ls=(0, (4, 2)), alpha=0.8, zorder=1)
    at = np.flatnonzero(np.isin(series.steps, steps) & np.isfinite(series.values))
    axes.plot(series.steps[at], _drawable(series.values[at]), "o", ms=7, mfc="none", mec=colour, mew=1.6, zorder=4)
    if steps:
        _label_on_top(axes, finding.code, steps[0], row, leftwards=steps[0] > 0.85 * last + 0.15 * first)


def _apart(steps: Sequence[int], first: int, last: int) -> list[int]:
    """The steps within the picture, of those that crowd together the first."""
    inside = sorted(one for one in steps if first <= one <= last)
    return [
        step
        for before, step in zip([None, *inside], inside, strict=False)
        if before is None or step - before > (last - first) / 100
    ][:_MOST_MARKS]


def _label_on_top(axes: Axes, text: str, step: int, row: int, *, leftwards: bool) -> None:
    axes.annotate(
        text, (step, 1.0), xycoords=("data", "axes fraction"), xytext=(-5 if leftwards else 5, -3 - 11 * row),
        textcoords="offset points", ha="right" if leftwards else "left", va="top", fontsize=8,
        fontweight="bold", annotation_clip=False,
    )  # fmt: skip


def _hatch_nonfinite(axes: Axes, series: Series | None) -> None:
    if series is None:
        return
    gaps = stretches(series.steps, series.values)
    width = max(1, int(series.steps[-1]) - int(series.steps[0]))
    for first, last, _ in sorted(gaps, key=lambda gap: -gap[2])[:50]:
        end = max(last, first + width / 200)
        axes.axvspan(first, end, facecolor="none", edgecolor=_VERMILION, hatch="////", lw=0, alpha=0.6)
    if gaps:
        points = sum(gap[2] for gap in gaps)
        axes.plot([], [], color=_VERMILION, lw=5, alpha=0.6, label=f"{points} of {_name(series.name)} NaN or infinite")


def _finish(axes: Axes, drawn: Sequence[Series | None], what: str) -> None:
    known = [one for one in drawn if one is not None]
    finite = _drawable(np.concatenate([one.finite().values for one in known]))
    _choose_scale(axes, finite)
    _count_along(axes, "epoch" if known[0].step_unit == "epoch" else "step")
    axes.set_ylabel(what)
    if not len(finite):
        axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        axes.set_xlim(int(known[0].steps[0]), max(int(known[0].steps[-1]), int(known[0].steps[0]) + 1))
    _legend_above(axes)


def _count_along(axes: Axes, what: str) -> None:
    """No half steps at the ticks, not even of a single point."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    axes.set_xlabel(what)


def _legend_above(axes: Axes) -> None:
    """Where it hides no point; names too long to stand side by side go below each other."""
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        widths = [len(label) + 6 for label in labels]  # with its line
        side_by_side = len(labels) if sum(widths) <= _WIDEST_LEGEND else max(1, _WIDEST_LEGEND // max(widths))
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=side_by_side, borderaxespad=0.2)


def _choose_scale(axes: Axes, values: FloatArray) -> None:
    """Logarithmic where a linear axis would show one extreme and a flat line."""
    positive = values[values > 0]
    if not len(values) or not len(positive) or float(values.max()) / float(np.median(positive)) < _LOGARITHMIC**0.5:
        return
    if len(positive) == len(values) and float(values.max()) > _LOGARITHMIC * float(values.min()):
        _set_scale(axes, "log")
    elif len(positive) < len(values) and float(values.max()) > _LOGARITHMIC * float(np.median(np.abs(values))):
        _set_scale(axes, "symlog", linthresh=max(float(np.median(np.abs(values))), 1e-12))


def _set_scale(axes: Axes, name: str, **options: float) -> None:
    """With plain numbers at the ticks: matplotlib's own are formulas, which are not read here."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale(name, **options)
    axes.yaxis.set_major_formatter(_plain)
    # Between powers of ten only where there are few of these.
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.5)))


def _drawable(values: FloatArray) -> FloatArray:
    """Within what the axes of a drawing library can compute with."""
    return np.clip(values, -_LARGEST, _LARGEST)


def _plain(value: float, _place: float) -> str:
    """A tick's number."""
    return f"{value:g}"


def _name(name: str) -> str:
    shown = printable(name, 40)
    return shown if not shown.startswith("_") else f" {shown}"  # matplotlib keeps labels with _ to itself


def _told(series: Series) -> str:
    finite = series.finite().values
    name = short_name(series.name)
    if not len(finite):
        return f"{name}, {count(len(series), 'point')}, none of them finite"
    bad = f", {len(series) - len(finite)} not finite" if len(finite) < len(series) else ""
    ends = f"from {finite[0]:.4g} to {finite[-1]:.4g}, lowest {finite.min():.4g}, highest {finite.max():.4g}"
    return f"{name}, {count(len(series), 'point')}{bad}, {ends}"


def _marked(findings: Sequence[ProbeResult]) -> str:
    told = [f"{one.code} at step {', '.join(map(str, one.steps[:5]))}" for one in findings if one.steps]
    return f" Marked: {'; '.join(told)}." if told else ""


def _chart(kind: str, figure: Figure, description: str, findings: Sequence[ProbeResult], *, png: bool = False) -> Chart:
    # Once for both pictures: to lay it out takes longer than to draw it.
    figure.set_dpi(_DPI)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    codes = tuple(finding.code for finding in findings)
    picture = _png(figure) if png else b""
    return Chart(kind=kind, title=_TITLES[kind], description=description, svg=_svg(figure), png=picture, codes=codes)


def _png(figure: Figure) -> bytes:
    """On white, whatever the page around it: a tracker shows it on its own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    figure.set_facecolor("white")
    # Not savefig, which draws everything twice.
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return file.getvalue()


def _svg(figure: Figure) -> str:
    """An element to put into a page: transparent, in the colour of its text, without ids that could meet others."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_facecolor("none")
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(file, metadata=nothing)  # type: ignore[no-untyped-call]
    text = file.getvalue()
    element = text[text.index("<svg") :]
    before, _, rest = element.partition("<metadata>")
    element = before + rest.rpartition("</metadata>")[2]
    element = re.sub(r'<g id="[^"]*"', "<g", element)
    element = re.sub(r"(?<!\d)(\d++\.\d)\d++(?=[ \"\n])", r"\1", element)
    return element.replace(_INK, "currentColor")
