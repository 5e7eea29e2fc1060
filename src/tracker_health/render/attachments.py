"""The files that go with a report onto a run: the page, and the picture that a tracker shows on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracker_health.errors import MissingExtra, described
from tracker_health.evidence import Evidence
from tracker_health.judge.annotations import PAGE_FILE, PICTURE_FILE
from tracker_health.render.page import report_page
from tracker_health.render.picture import run_picture
from tracker_health.report.result import Report


@dataclass(frozen=True, kw_only=True)
class Attachments:
    """``files``: names below ``health/`` and their bytes. ``missing``: why some of them could not be made, or ""."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    missing: str = ""


def attachments(evidence: Evidence, report: Report, docs_url: str = "") -> Attachments:
    """The page and the picture of a run. What cannot be made is reported, not raised: no verdict waits for it.

    ``docs_url``: the base of the page's links to rules and causes, empty for none.
    """
    files: dict[str, bytes] = {}
    missing = []
    try:
        picture = run_picture(evidence, report)
        if picture:
            files[PICTURE_FILE] = picture
    except Exception as error:  # noqa: BLE001  whatever a run's values do to a drawing library
        missing.append(f"no picture: {described(error)}")
    try:
        page, without = page_of(evidence, report, docs_url)
        files[PAGE_FILE] = page
        missing += [without] if without else []
    except MissingExtra as error:
        missing.append(f"no report page: {described(error)}")
    return Attachments(files=files, missing=missing[0] if missing else "")


def page_of(evidence: Evidence | None, report: Report, docs_url: str = "", all_runs: str = "") -> tuple[bytes, str]:
    """The page of a run, and why there are no charts in it, or "". ``evidence``: None where nothing could be read.
    ``docs_url``: the base of its links, empty for none. ``all_runs``: the address of the page of all runs, "" for none.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    try:
        return report_page(report, evidence, docs_url=docs_url, all_runs=all_runs), ""
    except MissingExtra:
        raise
    except Exception as error:  # noqa: BLE001  whatever a run's values do to arithmetic
        missing = f"no charts: {described(error)}"
        return report_page(report, without_pictures=missing, docs_url=docs_url, all_runs=all_runs), missing
