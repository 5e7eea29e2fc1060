"""A report in Markdown: for the description of a run, and for the summary of a CI job."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from tracker_health.judge.annotations import (
    diagnosis_in_markdown,
    finding_in_markdown,
    headline_in_markdown,
    in_markdown,
    rewind_in_markdown,
)
from tracker_health.report.result import Report, once_a_source
from tracker_health.text import printable

_MOST_ERRORS = 20
_OF_ADDRESSES = "/:?#@!$&'*+,;=%~"  # that end no link of Markdown


def issue_markdown(report: Report, address: str, page: str = "", docs_url: str = "") -> str:
    """A report as the text of an issue: it says as well which run it is and which version judged.

    Args:
        report: What to report.
        address: How commands name the run.
        page: Of the run, empty for none.
        docs_url: The base of links to rules and causes, empty for none.

    Returns:
        Markdown.
    """
    code = printable(address, 400).replace("`", "")
    judged = f"Judged by tracker-health {report.tool.version}, {in_markdown(report.tool.preset)} rules."
    where = f"Run: `{code}`" + (f" ([page]({quote(page, safe=_OF_ADDRESSES)}))" if page else "")
    return "\n".join([*report_markdown(report, docs_url), where, "", judged])


def report_markdown(report: Report, docs_url: str = "") -> Iterator[str]:
    """The lines of one run's section. ``docs_url``: the base of links to rules and causes, empty for none."""
    yield f"### {report.verdict.upper()} {in_markdown(report.run.name)}"
    yield ""
    if report.acknowledged:
        left = f"; still open: {', '.join(report.open)}" if report.open else ""
        yield f"*{in_markdown(report.said)}{in_markdown(left)}*"
        yield ""
    if report.diagnosis is not None:
        yield f"**{headline_in_markdown(report.diagnosis)}**"
        yield ""
    else:
        yield in_markdown(report.summary)
        yield ""
    if report.diagnosis is None:
        yield from rewind_in_markdown(report)
    findings = [
        *diagnosis_in_markdown(report, docs_url),
        *(finding_in_markdown(one, docs_url) for one in report.unexplained),
    ]
    yield from findings
    sources = once_a_source(report.errors)[0][:_MOST_ERRORS]
    yield from (f"- {in_markdown(error.source)}: {in_markdown(error.message)}" for error in sources)
    yield from (f"- note: {in_markdown(note)}" for note in report.notes)
    if findings or sources or report.notes:
        yield ""
