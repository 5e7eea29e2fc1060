"""A report in the terminal: verdict, reasons with numbers, what to do; details on request.

Plain lines of text. Colour is a decoration that the caller strips where it does not belong; every foreign text goes
through ``printable``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

import click

from tracker_health.judge.doc_links import page_about
from tracker_health.render.calibration import why_rate_unknown
from tracker_health.report.result import BY_PARAMS, ErrorEntry, ProbeResult, Report, once_a_source
from tracker_health.text import count, printable, short_name
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.verdict import Verdict

_COLOURS = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "red",
    Verdict.SKIP: "cyan",
    Verdict.ERROR: "magenta",
}
_INDENT = "        "
_MESSAGE_CHARACTERS = 1000


def badge(verdict: Verdict) -> str:
    """The verdict in capitals and colour, five columns wide."""
    return click.style(f"{verdict.upper():<5}", fg=_COLOURS[verdict], bold=True)


def one_line(report: Report) -> str:
    """Verdict, name and reason on one line, for many runs."""
    notes = f" ({printable('; '.join(report.notes), 300)})" if report.notes else ""
    said = f" [{printable(report.said.partition(', ')[2], 300)}]" if report.acknowledged else ""
    return f"{badge(report.verdict)}  {short_name(report.run.name)}  {printable(report.headline, 300)}{said}{notes}"


def report_lines(
    report: Report, *, width: int, verbose: bool = False, sketch: str = "", docs_url: str = ""
) -> Iterator[str]:
    """The report of one run. ``width``: columns to wrap to. ``verbose``: also what passed, what was skipped and why,
    and measures. ``sketch``: its loss in one line. ``docs_url``: the base of the address to read on at, empty for none.
    """
    yield f"{badge(report.verdict)}  {click.style(printable(report.run.name, 80), bold=True)}{_where(report)}"
    yield from _answers(report, width)
    if sketch:
        yield f"       loss {click.style(sketch, fg='blue')}"
    if report.diagnosis is not None:
        yield from _diagnosis_lines(report.diagnosis, report, width, verbose=verbose)
    findings = report.findings
    for finding in report.unexplained:
        yield from _finding_lines(finding, width)
    if report.diagnosis is None:
        yield from _rewind_lines(report, width)
    page = page_about(report, docs_url)
    if page:
        yield f"  {'read':<10}{page}"
    yield from _error_lines(report.errors, width)
    # The summary of a pass counts the rules, as the last line does.
    counted = report.verdict is Verdict.PASS and report.results
    if not findings and not report.errors and not counted:
        yield from _wrapped(report.summary, width, _INDENT)
    for note in report.notes:
        yield from _wrapped(f"note: {note}", width, "  ", hanging="  ")
    for finding in report.findings:
        if finding.votes and (why := why_rate_unknown(finding.code)):
            yield from _wrapped(f"note: {finding.code}: {why}", width, "  ", hanging="  ")
    yield from _judged_lines(report, width, verbose=verbose)
    yield from _rest_lines(report, width, verbose=verbose)


def _answers(report: Report, width: int) -> Iterator[str]:
    """What people said of it, the newest last."""
    if not report.acknowledged:
        return
    yield from _wrapped(report.said, width, "  ", hanging="  ")
    for one in report.acknowledged:
        day = one.to_json()["when"][:10]
        until = f", until {one.to_json()['until'][:10]}" if one.until is not None else ""
        yield from _wrapped(f"{one.said} on {day}{until} ({', '.join(one.codes)}): {one.because}", width, _INDENT)
    if report.open:
        yield from _wrapped(f"still open: {', '.join(report.open)}", width, _INDENT)


def _diagnosis_lines(diagnosis: Diagnosis, report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    """The cause, what shows it in the order of time, and one thing to do."""
    yield f"  {click.style(diagnosis.cause, bold=True)} ({diagnosis.certainty})"
    yield from _wrapped(diagnosis.sentence, width, _INDENT)
    for place, finding in enumerate(report.explained):
        head = f"  {'evidence' if not place else '':<8}  {badge(finding.verdict)} {finding.code}  "
        said = finding.message in diagnosis.sentence
        yield from _beside(head, f"{finding.name}, as above" if said else finding.message, width, 25)
    action = diagnosis.action
    yield from _beside(f"  {click.style('try', bold=True)}       ", action.in_short, width, 12)
    if action.explained:
        yield from _beside(" " * 12, action.explained, width, 12)
    yield from _rewind_lines(report, width)
    for place, other in enumerate(diagnosis.others):
        head = f"  {'or' if not place else '':<10}"
        yield from _beside(head, f"{other.cause}: {other.test}", width, 12)
    if verbose:
        for place, sign in enumerate(diagnosis.signs):
            head = f"  {'signs' if not place else '':<10}"
            yield from _beside(head, f"{sign.weight:+.1f} {sign.name} ({sign.looks_at})", width, 12)


def _rewind_lines(report: Report, width: int) -> Iterator[str]:
    """The checkpoint to go back to."""
    if report.rewind is not None:
        yield from _wrapped(f"{report.rewind.label}{report.rewind.said}", width, "  ", hanging="  ")


def _beside(head: str, text: str, width: int, columns: int) -> Iterator[str]:
    """Text behind a head that is so many columns wide, and under itself where it is longer than the line."""
    first, *rest = _wrapped(text, width - columns, "") or [""]
    yield f"{head}{first}"
    yield from (" " * columns + line for line in rest)


def _judged_lines(report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    """What was judged, and what was not and why."""
    judged, absent = report.judged_parts("judged"), report.judged_parts("not there")
    if not judged:
        return
    lines = [f"judged: {', '.join(judged)}", *([f"not there: {', '.join(absent)}"] if verbose and absent else [])]
    lines += [
        f"{one.part} not usable: {one.why}"
        for one in report.judged
        if one.state == "not usable"
        and (verbose or (one.part in ("loss", "optimizer", "weights") and not one.why.startswith(BY_PARAMS)))
    ]
    for line in lines:
        yield from (click.style(part, dim=True) for part in _wrapped(line, width, "  ", hanging="  "))


def _where(report: Report) -> str:
    identity = printable(report.run.id, 120)
    return "" if identity == report.run.name else click.style(f"  ({report.run.store} {identity})", dim=True)


def _finding_lines(finding: ProbeResult, width: int) -> Iterator[str]:
    unsure = " (low confidence)" if finding.confidence == "low" else ""
    yield f"  {badge(finding.verdict)} {finding.code} {finding.name}{unsure}"
    yield from _wrapped(finding.message, width, _INDENT)
    if finding.remedy:
        yield from _wrapped(f"→ {finding.remedy}", width, _INDENT, hanging="  ")


def _error_lines(errors: Iterable[ErrorEntry], width: int) -> Iterator[str]:
    """What could not be read, once a source; the rules that it took away in one line."""
    told, unjudged = once_a_source(errors)
    for error in told:
        yield f"  {badge(Verdict.ERROR)} {printable(error.source, 120)}"
        yield from _wrapped(error.message, width, _INDENT)
    for source, codes in unjudged.items():
        yield from _wrapped(f"without {printable(source, 120)} not judged: {', '.join(codes)}", width, _INDENT)


def _rest_lines(report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    passed = [result for result in report.results if result.votes and result.verdict is Verdict.PASS]
    apart = [result for result in report.results if not result.votes]
    if verbose:
        for result in passed:
            yield f"  {badge(result.verdict)} {result.code} {result.name}"
            yield from _wrapped(result.message, width, _INDENT)
        for result in apart:
            yield click.style(f"  informational {result.code} {result.name} ({result.verdict})", dim=True)
            yield from _wrapped(result.message, width, _INDENT)
        for skipped in report.skipped:
            yield click.style(f"  skipped {skipped.code} {skipped.name}", dim=True)
            yield from _wrapped(skipped.reason, width, _INDENT)
        return
    parts = [f"{count(len(passed), 'rule')} passed"] if passed else []
    parts += [f"{len(apart)} measured without a vote"] if apart else []
    parts += [f"{len(report.skipped)} skipped"] if report.skipped else []
    if parts:
        yield click.style(f"  {', '.join(parts)} (-v shows them)", dim=True)


def _wrapped(text: str, width: int, indent: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text, _MESSAGE_CHARACTERS),
        max(40, width),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_on_hyphens=False,
    )
