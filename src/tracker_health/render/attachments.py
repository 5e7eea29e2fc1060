"""The files that go with a report onto a run: the page, and the picture that a tracker shows on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracker_health.annotations import PAGE_FILE, PICTURE_FILE
from tracker_health.errors import MissingExtra, described
from tracker_health.evidence import Evidence
from tracker_health.render.charts import Chart, draw
from tracker_health.render.page import report_page
from tracker_health.result import Report


@dataclass(frozen=True, kw_only=True)
class Attachments:
    """``files``: names below ``health/`` and their bytes. ``missing``: why some of them could not be made, or ""."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    missing: str = ""


def attachments(evidence: Evidence, report: Report) -> Attachments:
    """The page and the picture of a run. A verdict never waits for them: what cannot be made is told, not raised."""
    charts, missing = _charts(evidence, report)
    files = {PICTURE_FILE: picture} if (picture := next((chart.png for chart in charts if chart.png), b"")) else {}
    try:
        page = report_page(report, charts, without_pictures=missing)
    except MissingExtra as error:
        return Attachments(files=files, missing=missing or f"no report page: {described(error)}")
    return Attachments(files={**files, PAGE_FILE: page}, missing=missing)


def page_of(evidence: Evidence, report: Report) -> tuple[bytes, str]:
    """The page of a run, and why there are no pictures in it, or "".

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    charts, missing = _charts(evidence, report)
    return report_page(report, charts, without_pictures=missing), missing


def _charts(evidence: Evidence, report: Report) -> tuple[tuple[Chart, ...], str]:
    try:
        return draw(evidence, report), ""
    except Exception as error:  # noqa: BLE001  whatever a run's values do to a drawing library
        return (), f"no pictures: {described(error)}"
