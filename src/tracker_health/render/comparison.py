"""Many runs beside each other: a table with verdicts, reasons and small curves, and the curves laid over each other."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np

from tracker_health.evidence import Evidence, FloatArray
from tracker_health.probe import Symptom
from tracker_health.render.charts import Curve, overlay
from tracker_health.render.page import render
from tracker_health.render.thinning import thin
from tracker_health.result import Report
from tracker_health.verdict import Verdict

_BUCKETS = 30
_WIDTH, _HEIGHT = 320.0, 64.0  # twice the size at which it is shown: whole numbers are fine enough
_MOST_DRAWN = 300


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of the table: its report, and as much of its loss as a small picture needs. ``last``: its last value,
    finite or not; ``span``: the first and last step at which it was logged.
    """

    report: Report
    curve: Curve | None
    last: float | None = None
    span: tuple[int, int] = (0, 0)

    def with_report(self, report: Report) -> Row:
        """The same run, judged anew."""
        curve = self.curve and replace(self.curve, verdict=report.verdict)
        return replace(self, report=report, curve=curve)

    @property
    def codes(self) -> str:
        return ", ".join(finding.code for finding in self.report.findings)

    @property
    def oddity(self) -> str:
        """What sets the run apart from the others, where no rule that votes says so; else ""."""
        odd = [one for one in self.report.results if one.symptom == Symptom.ODD_ONE_OUT and one.verdict is Verdict.WARN]
        return "; ".join(f"{one.code}: {one.message}" for one in odd if not one.votes)

    @property
    def link(self) -> str:
        """The run's page, where it has one that a browser may open."""
        url = self.report.run.url or ""
        return url if url.startswith(("http://", "https://")) else ""

    @property
    def sort_key(self) -> str:
        """By what the column of the last value sorts; empty for what comes last."""
        return str(self.last) if self.last is not None and np.isfinite(self.last) else ""

    @property
    def sparkline(self) -> str:
        """The points of a polyline in a box of 320 by 64; empty where there is no curve."""
        return "" if self.curve is None else _points(self.curve, self.span)


def row_of(report: Report, evidence: Evidence | None) -> Row:
    """A run's row; what is kept of its evidence does not grow with it."""
    series = None if evidence is None else evidence.find("train_loss") or evidence.find("val_loss")
    points = None if series is None else series.clean()
    if points is None or not len(points):
        return Row(report=report, curve=None)
    finite, curve = points.finite(), None
    if len(finite):
        steps, values = thin(finite.steps, finite.values, _BUCKETS)
        curve = Curve(name=report.run.name, steps=steps, values=values, verdict=report.verdict)
    span = int(points.steps[0]), int(points.steps[-1])
    return Row(report=report, curve=curve, last=float(points.values[-1]), span=span)


def comparison_page(rows: Sequence[Row], *, title: str) -> bytes:
    """The page of many runs, the worst first.

    Raises:
        MissingExtra: jinja2 or matplotlib is not installed.
    """
    ordered = sorted(rows, key=lambda row: (-row.report.verdict.rank, row.report.run.name))
    drawn = [row.curve for row in ordered if row.curve is not None][:_MOST_DRAWN]
    script = files("tracker_health.render").joinpath("templates/sort.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        "comparison.html",
        title=title,
        rows=ordered,
        counts=[(verdict, sum(row.report.verdict is verdict for row in rows)) for verdict in Verdict],
        chart=overlay(drawn) if drawn else None,
        undrawn=max(0, sum(row.curve is not None for row in rows) - _MOST_DRAWN),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _points(curve: Curve, span: tuple[int, int]) -> str:
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
