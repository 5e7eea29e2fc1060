"""Many runs next to each other: a table with verdicts, reasons and small curves, and all curves in one picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, names_apart
from tracker_health.render.curves import kind_of, main_series
from tracker_health.render.page import Chart, link_of, only_remedy, render
from tracker_health.render.plot import Line, Plot, draw
from tracker_health.render.thinning import Places, thin
from tracker_health.report.result import Report
from tracker_health.report.settings_table import differing_settings, kept_settings
from tracker_health.text import count, short_name, shortened, split_sentence
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

_BUCKETS = 30
_WIDTH, _HEIGHT = 320.0, 64.0  # twice the size at which it is shown: whole numbers are fine enough
_MOST_DRAWN = 300
_MOST_POINTS = 4_500  # of all lines together, so that the page stays small
_MOST_LABELS = 14
_NAME_CHARACTERS = 32
_LOSS = "Loss"
_HIGHEST = 1e6  # times the middle of all values: what is higher would flatten the other curves


@dataclass(frozen=True, kw_only=True)
class MainCurve:
    """A run's main metric, thinned and finite, and what was made of the run. ``of``: what kind of metric it is."""

    name: str
    of: str
    steps: Places
    values: FloatArray
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run of the table: its report, and as much of its main metric as a small picture needs. ``metric``: its name,
    of a loss ""; ``last``: its last value, finite or not; ``span``: the first and last step at which it was logged.
    ``settings``: its params; ``page``: where its report is, relative to the table, or "". ``name``: what it is called
    among the others.
    """

    report: Report
    curve: MainCurve | None
    name: str = ""
    metric: str = ""
    last: float | None = None
    span: tuple[int, int] = (0, 0)
    settings: Mapping[str, str] = field(default_factory=dict)
    page: str = ""

    @property
    def codes(self) -> str:
        return ", ".join(finding.code for finding in self.report.findings)

    @property
    def link(self) -> str:
        """The run's page, where it has one that a browser may open."""
        return link_of(self.report)

    @property
    def cause(self) -> str:
        """The cause that the run was diagnosed with, or ""."""
        return self.report.diagnosis.cause if self.report.diagnosis is not None else ""

    @property
    def action(self) -> str:
        """The one thing to try, or ""."""
        return self.report.diagnosis.action.in_short if self.report.diagnosis is not None else only_remedy(self.report)

    @property
    def why(self) -> tuple[str, str]:
        """What is said of the run: the first clause, and the rest."""
        diagnosis = self.report.diagnosis
        return split_sentence(diagnosis.sentence if diagnosis is not None else self.report.summary)

    @property
    def sort_key(self) -> str:
        """By what the column of the last value sorts; empty for what comes last."""
        return str(self.last) if self.last is not None and np.isfinite(self.last) else ""

    @property
    def sparkline(self) -> str:
        """The points of a polyline in a box of 320 by 64; empty where there is no curve."""
        return "" if self.curve is None else _points(self.curve, self.span)


def row_of(report: Report, evidence: Evidence | None, page: str = "") -> RunRow:
    """A run's row; what is kept of its evidence does not grow with it. ``page``: as ``RunRow`` has it."""
    settings = {} if evidence is None else kept_settings(evidence.info.params)
    series = None if evidence is None else main_series(evidence)
    points = None if series is None else series.clean()
    if points is None or not len(points):
        return RunRow(report=report, curve=None, settings=settings, page=page)
    finite, curve, kind = points.finite(), None, kind_of(points)
    if len(finite):
        steps, values = thin(finite.steps, finite.values, _BUCKETS)
        curve = MainCurve(name=report.run.listed_name, of=kind, steps=steps, values=values, verdict=report.verdict)
    span = int(points.steps[0]), int(points.steps[-1])
    last = float(points.values[-1])
    metric = "" if kind == _LOSS else short_name(points.name)
    return RunRow(report=report, curve=curve, metric=metric, last=last, span=span, settings=settings, page=page)


def comparison_page(
    rows: Sequence[RunRow], *, title: str, judged: Sequence[Verdict] | None = None, sort: str = "verdict"
) -> bytes:
    """The page of many runs.

    Args:
        rows: The runs of the table.
        title: What they are the runs of.
        judged: The verdicts of all that were judged, where the table has only some; None for those of the rows.
        sort: An order of ``ORDERS``.

    Returns:
        HTML that asks nothing of a network.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    ordered = _named_apart(sorted(rows, key=lambda row: ORDERS[sort](row.report.place)))
    shown = Counter(row.report.verdict for row in ordered)
    settings, more_settings = differing_settings([row.settings for row in ordered])
    curves = [(str(place), row.curve) for place, row in enumerate(ordered) if row.curve is not None]
    kinds = Counter(curve.of for _, curve in curves).most_common(1)
    drawn = [one for one in curves if one[1].of == kinds[0][0]]
    plot = overlay(drawn[:_MOST_DRAWN]) if drawn else None
    codes = Counter(finding.code for row in ordered for finding in row.report.findings)
    return render(
        "comparison.html",
        scripts=("plot.js", "comparison.js"),
        data={"plots": [plot.data] if plot is not None else []},
        title=title,
        rows=ordered,
        counts=_ordered(shown if judged is None else Counter(judged)),
        shown=_ordered(shown),
        left_out=0 if judged is None else len(judged) - len(ordered),
        sort=sort,
        settings=settings,
        more_settings=more_settings,
        causes=sorted(Counter(row.cause for row in ordered if row.cause).items()),
        codes=[(code, amount, _name_of(code, ordered)) for code, amount in sorted(codes.items())],
        chart=None if plot is None else Chart(plot=plot, svg=draw(plot)),
        undrawn=max(0, len(drawn) - _MOST_DRAWN),
        others=len(curves) - len(drawn),
        are_losses=not any(row.metric for row in ordered),
    )


def _named_apart(rows: Sequence[RunRow]) -> list[RunRow]:
    names = names_apart([row.report.run for row in rows])
    curves = [
        None if row.curve is None else replace(row.curve, name=name) for row, name in zip(rows, names, strict=True)
    ]
    return [replace(row, name=name, curve=curve) for row, name, curve in zip(rows, names, curves, strict=True)]


def _ordered(counts: Counter[Verdict]) -> list[tuple[Verdict, int]]:
    return sorted(counts.items(), key=lambda one: -one[0].rank)


def _name_of(code: str, rows: Sequence[RunRow]) -> str:
    return next(finding.name for row in rows for finding in row.report.findings if finding.code == code)


def overlay(curves: Sequence[tuple[str, MainCurve]]) -> Plot:
    """One metric of many runs, each curve each with the key of its row: those with findings in colour and on top. As
    many are labelled where they end as there is room for, the worst and the best first.
    """
    by_rank = sorted(curves, key=lambda one: one[1].verdict.rank)
    budget = max(4, _MOST_POINTS // max(1, 4 * len(curves)))
    labelled = _labelled(curves)
    top = _HIGHEST * float(np.median(np.abs(np.concatenate([curve.values for _, curve in curves]))))
    lines = []
    names = shortened([curve.name for _, curve in by_rank], _NAME_CHARACTERS)
    for name, (key, curve) in zip(names, by_rank, strict=True):
        steps, values = thin(curve.steps, np.minimum(curve.values, top) if top else curve.values, min(budget, _BUCKETS))
        label = name if key in labelled else ""
        lines.append(Line(name=name, label=label, steps=steps, values=values, look=str(curve.verdict), key=key))
    counts = [(verdict, sum(curve.verdict is verdict for _, curve in curves)) for verdict in Verdict]
    told = ", ".join(f"{amount} {verdict}" for verdict, amount in counts if amount)
    return Plot(
        name="losses",
        title=f"{curves[0][1].of} of all runs",
        description=f"{curves[0][1].of} of {count(len(curves), 'run')} over each other: {told}.",
        lines=tuple(lines),
        buckets=budget,
        height=340.0,
        digits=4,
        note="Red: fail. Yellow: warn. Grey: the others.",
    )


def _labelled(curves: Sequence[tuple[str, MainCurve]]) -> set[str]:
    """The keys of the lines that get a label: half for the worst verdicts, half for the lowest ends."""
    worst = sorted(curves, key=lambda one: -one[1].verdict.rank)
    best = sorted(curves, key=lambda one: float(one[1].values[-1]))
    half = _MOST_LABELS // 2
    chosen = {key for key, _ in [*worst[:half], *best[:half]]}
    for key, _ in worst:
        if len(chosen) < _MOST_LABELS:
            chosen.add(key)
    return chosen


def _points(curve: MainCurve, span: tuple[int, int]) -> str:
    """Of a loss that spans orders of magnitude, the logarithm. What is not finite leaves its place empty."""
    heights = _scaled(np.log(curve.values) if _spans_orders(curve.values) else curve.values)
    places = (curve.steps - span[0]) / max(1.0, float(span[1]) - float(span[0]))
    pairs = zip(places, heights, strict=True)
    return " ".join(f"{place * _WIDTH:.0f},{(1.0 - height) * (_HEIGHT - 4) + 2:.0f}" for place, height in pairs)


def _spans_orders(values: FloatArray) -> bool:
    return bool(values.min() > 0 and values.max() / values.min() > 100.0)


def _scaled(values: FloatArray) -> FloatArray:
    """Between 0 and 1."""
    low, high = float(values.min()), float(values.max())
    half = 0.5 * high - 0.5 * low  # the difference of two floats may be none
    return (0.5 * values - 0.5 * low) / half if half > 0 else np.full(len(values), 0.5)
