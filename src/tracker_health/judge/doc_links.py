"""Where the documentation has the page of a rule or a cause: the one place that knows its addresses."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracker_health.report.result import Report


def docs_link(code: str, base: str) -> str | None:
    """The address of the page on a rule, by its code, or on a cause, by its name. ``base``: the setting ``docs_url``.

    None where no base is set, and for rules of plugins, which have no page there: then nothing is to be linked, and
    ``tracker-health explain CODE`` says what the page would.
    """
    page = _pages().get(code) if base else None
    return f"{base.rstrip('/')}/{page}" if page else None


def page_about(report: Report, base: str) -> str | None:
    """The address to read on at about a report: the page of its cause, else of its worst finding; None for none."""
    about = report.diagnosis.cause if report.diagnosis is not None else next((one.code for one in report.findings), "")
    return docs_link(about, base)


@cache
def _pages() -> dict[str, str]:
    # Here, since --help must load no rule, and with it numpy.
    from tracker_health.diagnosis import CAUSES
    from tracker_health.rules.registry import BUILT_IN
    from tracker_health.words.retired import RETIRED

    codes = [*(one.code for one in BUILT_IN), *(one.code for one in RETIRED)]
    return {code: f"rules/{code}.html" for code in codes} | {
        cause.name: f"causes/{cause.name}.html" for cause in CAUSES
    }
