"""Many runs beside each other: a table with verdicts, reasons and small curves, and the curves laid over each other."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from tracker_health.evidence import Evidence, FloatArray
from tracker_health.render.charts import Curve, overlay
from tracker_health.render.page import render
from tracker_health.render.thinning import thin
from tracker_health.result import Report
from tracker_health.verdict import Verdict

_BUCKETS = 60
_WIDTH, _HEIGHT = 160.0, 32.0
_MOST_DRAWN = 300


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of the table: its report, and as much of its loss as a small picture needs."""

    report: Report
    curve: Curve | None

    @property
    def codes(self) -> str:
        return ", ".join(finding.code for finding in self.report.findings)

    @property
    def link(self) -> str:
        """The run's page, where it has one that a browser may open."""
        url = self.report.run.url or ""
        return url if url.startswith(("http://", "https://")) else ""

    @property
    def last(self) -> float | None:
        return float(self.curve.values[-1]) if self.curve is not None else None

    @property
    def sparkline(self) -> str:
        """The points of a polyline in a box of 160 by 32; empty where there is no curve."""
        return "" if self.curve is None else _points(self.curve)


def row_of(report: Report, evidence: Evidence | None) -> Row:
    """A run's row; what is kept of its evidence does not grow with it."""
    series = None if evidence is None else evidence.find("train_loss") or evidence.find("val_loss")
    finite = None if series is None else series.finite()
    if finite is None or not len(finite):
        return Row(report=report, curve=None)
    steps, values = thin(finite.steps, finite.values, _BUCKETS)
    curve = Curve(name=report.run.name, steps=steps, values=values, verdict=report.verdict)
    return Row(report=report, curve=curve)


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


def _points(curve: Curve) -> str:
    """Of a loss that spans orders of magnitude, the logarithm."""
    heights = _scaled(np.log(curve.values) if _spans_orders(curve.values) else curve.values)
    places = _scaled(curve.steps.astype(np.float64))
    pairs = zip(places, heights, strict=True)
    return " ".join(f"{place * _WIDTH:.1f},{(1.0 - height) * (_HEIGHT - 4) + 2:.1f}" for place, height in pairs)


def _spans_orders(values: FloatArray) -> bool:
    return bool(values.min() > 0 and values.max() / values.min() > 100.0)


def _scaled(values: FloatArray) -> FloatArray:
    """Between 0 and 1."""
    low, high = float(values.min()), float(values.max())
    half = 0.5 * high - 0.5 * low  # the difference of two floats may be none
    return (0.5 * values - 0.5 * low) / half if half > 0 else np.full(len(values), 0.5)
