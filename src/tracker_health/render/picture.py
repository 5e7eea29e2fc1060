"""The main chart of a run as a PNG, for where a tracker shows a picture on its own: the curve, with what was found.

matplotlib is imported by the functions that draw. Names from a run are shown as plain text: no markup in them is read.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import optional_packages
from tracker_health.evidence import Evidence
from tracker_health.render.curves import main_plot
from tracker_health.render.plot import LARGEST, Line, Mark, Plot, apart, pieces, tick
from tracker_health.render.thinning import thin
from tracker_health.report.result import Report
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patches import Rectangle

# Okabe and Ito (2008): distinguished by people with any kind of colour vision.
_BLUE, _PURPLE, _VERMILION, _BROWN, _GREEN, _GREY = "#0072b2", "#8a3ffc", "#b42318", "#7d5200", "#116b3f", "#57606a"
_BY_LOOK = {
    "main": _BLUE,
    "val": _PURPLE,
    "fail": _VERMILION,
    "warn": _BROWN,
    "chance": _VERMILION,
    "usual": _GREEN,
    "other": _GREY,
}
_BY_VERDICT = {Verdict.FAIL: _VERMILION, Verdict.WARN: _BROWN, Verdict.PASS: _GREEN}
_WIDTH, _HEIGHT, _DPI = 8.0, 4.5, 150  # inches: the shape of the frame in which MLflow shows it
_TITLE_CHARACTERS, _TITLE_LINES = 84, 3
_CARD_HEIGHT, _CARD_CHARACTERS, _CARD_NAME = 4.2, 70, 48
_BUCKETS, _FEW_POINTS = 400, 30
_LABEL_PIXELS = 24.0  # from one label to the next
_LEAST_BAND = 0.005  # of the width
_STYLE = {
    "text.parse_math": False,
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#d0d7de",
    "grid.linewidth": 0.7,
    "text.color": "#1f2328",
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "axes.edgecolor": _GREY,
    "axes.labelcolor": _GREY,
    "path.simplify": False,  # it may leave out what thinning kept
}
_NOT_OURS = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone", "webagg.port"})


def run_picture(evidence: Evidence, report: Report) -> bytes:
    """The picture of what the leading finding is about, else of the loss, on white; empty where no series was read.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    plot = main_plot(evidence, report)
    if plot is None:
        return b""
    with _matplotlib():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        _draw(axes, plot)
        title = f"{report.verdict.upper()}: {report.diagnosis.sentence if report.diagnosis else report.summary}"
        title = _folded(title, _TITLE_CHARACTERS, _TITLE_LINES)
        axes.set_title(title, loc="left", fontsize=10.5, color=_BY_VERDICT.get(report.verdict, _GREY))
        return _png(FigureCanvasAgg(figure))


def run_card(evidence: Evidence, report: Report) -> bytes:
    """A run on a card of 1,200 by 630 pixels, as previews of links show it: verdict, headline, action, and the curve
    with its place; without a curve the words alone.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    plot, colour = main_plot(evidence, report), _BY_VERDICT.get(report.verdict, _GREY)
    with _matplotlib():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(_WIDTH, _CARD_HEIGHT), dpi=_DPI, facecolor="white")
        figure.add_artist(_edge(colour))
        figure.text(0.05, 0.9, report.verdict.upper(), fontsize=15, fontweight="bold", color=colour, va="center")
        name = printable(report.run.name, _CARD_NAME)
        figure.text(0.95, 0.9, name, fontsize=11, color=_GREY, va="center", ha="right")
        said = report.diagnosis.sentence if report.diagnosis else report.summary
        figure.text(0.05, 0.84, _folded(said, _CARD_CHARACTERS, 3), fontsize=13, fontweight="bold", va="top")
        if report.diagnosis is not None:
            action = f"Try: {report.diagnosis.action.in_short}"
            figure.text(0.05, 0.05, _folded(action, _TITLE_CHARACTERS + 10, 1), fontsize=10.5, va="center")
        if plot is not None:
            leading = [mark for mark in plot.marks if mark.label][:1]
            _draw(figure.add_axes((0.09, 0.2, 0.68, 0.38)), replace(plot, marks=tuple(leading)))
        return _png(FigureCanvasAgg(figure))


def _edge(colour: str) -> Rectangle:
    """The stripe on the left that has the colour of the verdict."""
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 0.018, 1, color=colour, lw=0)


def _folded(text: str, characters: int, most: int) -> str:
    """So many lines of a text."""
    lines = textwrap.wrap(printable(text, 2 * characters * most), characters)
    return "\n".join(lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1][: characters - 2] + " …"])


def _png(canvas: FigureCanvasAgg) -> bytes:
    file = io.BytesIO()
    # Not savefig, which draws everything twice.
    canvas.print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return file.getvalue()


@contextmanager
def _matplotlib() -> Iterator[None]:
    with optional_packages("charts"):
        import matplotlib as mpl
    # Not the owner's style, and without touching it: this may run within a training script.
    style: Any = {key: value for key, value in mpl.rcParamsDefault.items() if key not in _NOT_OURS} | _STYLE
    with mpl.rc_context(style), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name's characters that the font lacks: no news to who trains
        yield


def _draw(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if plot.is_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    for area in plot.areas:
        for steps, low, high in area.pieces():
            axes.fill_between(steps, low, high, color=_BY_LOOK[area.look], alpha=0.13, lw=0)
    for line in plot.lines:
        _draw_line(axes, line)
    for one in plot.references:
        axes.axhline(one.value, color=_BY_LOOK[one.look], lw=1.1, ls=(0, (2, 3)))
    for band in plot.bands:
        least = 1.0 if plot.is_whole else _LEAST_BAND * (plot.span[1] - plot.span[0])
        axes.axvspan(band.first, max(band.last, band.first + least), color=_VERMILION, alpha=0.13, lw=0)
        if band.label:
            leftwards = band.first > 0.4 * plot.span[0] + 0.6 * plot.span[1]
            at, aside = (band.last, -5) if leftwards else (band.first, 5)
            axes.annotate(
                band.label, (at, 0.02), xycoords=("data", "axes fraction"), xytext=(aside, 0), fontweight="bold",
                textcoords="offset points", color=_VERMILION, fontsize=9, ha="right" if leftwards else "left",
            )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=plot.is_whole, min_n_ticks=1))
    axes.set_xlabel(plot.unit)
    axes.set_ylabel(plot.title.lower())
    if not len(plot.values):
        axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
    axes.set_xlim(*plot.span)
    _draw_marks(axes, plot.marks)
    _label_ends(axes, plot)


def _draw_line(axes: Axes, line: Line) -> None:
    looks = line.look.split()
    weight = {"noisy": 0.8, "level": 2.2, "edge": 0.7}.get(looks[-1], 1.6)
    for piece in pieces(line):  # a line that breaks off is drawn with the break in it
        steps, values = thin(*piece, _BUCKETS)
        marker = "o" if len(values) < _FEW_POINTS and looks[0] != "usual" and "level" not in looks else ""
        axes.plot(
            steps, values, marker=marker, ms=3.5, color=_BY_LOOK[looks[0]], lw=weight,
            alpha=0.55 if "noisy" in looks else 1.0, ls="--" if "val" in looks or looks == ["usual"] else "-",
        )  # fmt: skip


def _draw_marks(axes: Axes, marks: tuple[Mark, ...]) -> None:
    row = 0
    first, last = axes.get_xlim()
    for mark in marks:
        colour = _BY_LOOK[mark.look]
        if mark.has_line:
            axes.axvline(mark.step, color=colour, lw=1, ls=(0, (4, 3)), alpha=0.7, zorder=1)
        if mark.value is not None:
            value = float(np.clip(mark.value, -LARGEST, LARGEST))
            axes.plot([mark.step], [value], "o", ms=8, mfc="none", mec=colour, mew=1.8, zorder=4, clip_on=False)
        if mark.label:
            leftwards = mark.step > 0.6 * last + 0.4 * first
            axes.annotate(
                mark.label, (mark.step, 1.0), xycoords=("data", "axes fraction"), color=colour, fontsize=9,
                xytext=(-8 if leftwards else 8, -6 - 12 * row), textcoords="offset points", fontweight="bold",
                ha="right" if leftwards else "left", va="top", annotation_clip=False,
            )  # fmt: skip
            row += 1


def _label_ends(axes: Axes, plot: Plot) -> None:
    """What each line is called, next to its end."""
    wanted = [(one.value, one.label, one.look) for one in plot.references]
    for line in plot.lines:
        finite = line.values[np.isfinite(line.values)]
        if line.label and len(finite):
            wanted.append((float(np.clip(finite[-1], -LARGEST, LARGEST)), line.label, line.look.split()[0]))
    to_axes = axes.transAxes.inverted()
    heights = [1 - float(to_axes.transform(axes.transData.transform((0, value)))[1]) for value, _, _ in wanted]
    room = _LABEL_PIXELS / axes.bbox.height
    for height, (_, label, look) in zip(apart(heights, 1.0, room), wanted, strict=True):
        axes.annotate(
            label, (1.0, 1 - height), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
            color=_BY_LOOK[look], fontsize=9, va="center", annotation_clip=False,
        )  # fmt: skip
