"""The report as one self-contained HTML page: no network, no script, every text of the run escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tracker_health.errors import optional_packages
from tracker_health.render.charts import Chart
from tracker_health.result import Measure, ProbeResult, Report, once_a_source
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_SERIES = 200
_MOST_ERRORS = 50


def report_page(report: Report, charts: Sequence[Chart], *, without_pictures: str = "") -> bytes:
    """The page of one run's report. ``charts``: the pictures of the run. ``without_pictures``: why there are none.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    findings = _with_charts([*report.explained, *report.unexplained], charts)
    evidence, rest = findings[: len(report.explained)], findings[len(report.explained) :]
    groups = [
        ("Its evidence, in the order of time", evidence),
        ("What was found besides" if evidence else "What was found", rest),
    ]
    beside = {chart.kind for _, chart in findings if chart is not None}
    told, unjudged = once_a_source(report.errors)
    voting = [result for result in report.results if result.votes]
    return render(
        "report.html",
        report=report,
        diagnosis=report.diagnosis,
        groups=[(title, group) for title, group in groups if group],
        explained=report.diagnosis.explains if report.diagnosis is not None else (),
        charts=[chart for chart in charts if chart.kind not in beside],
        without_pictures=without_pictures,
        errors=told[:_MOST_ERRORS],
        more_errors=max(0, len(told) - _MOST_ERRORS),
        unjudged=list(unjudged.items())[:_MOST_ERRORS],
        passed=[result for result in voting if result.verdict is Verdict.PASS],
        apart=[result for result in report.results if not result.votes],
        series=report.series[:_MOST_SERIES],
        more_series=max(0, len(report.series) - _MOST_SERIES),
    )


def _with_charts(findings: Sequence[ProbeResult], charts: Sequence[Chart]) -> list[tuple[ProbeResult, Chart | None]]:
    """Each finding with the picture that it is marked in: beside the first finding only, of several in one picture."""
    left = {code: chart for chart in charts for code in chart.codes}
    paired: list[tuple[ProbeResult, Chart | None]] = []
    for finding in findings:
        chart = left.get(finding.code)
        paired.append((finding, chart))
        if chart is not None:
            left = {code: other for code, other in left.items() if other is not chart}
    return paired


def render(template: str, **values: Any) -> bytes:
    """A page of ``templates/``, in which every value is escaped.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    return _environment().get_template(template).render(**values).encode()


@cache
def _environment() -> Environment:
    with optional_packages("charts"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    loader = PackageLoader("tracker_health.render", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: Mapping[str, Any] = {"shown": printable, "number": _number}
    environment.filters.update(filters)
    return environment


def _number(value: Measure) -> str:
    return printable(value, 200) if isinstance(value, (str, bool)) else number(value)
