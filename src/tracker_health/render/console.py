"""A report in the terminal: verdict, reasons with numbers, what to do; details on request.

Plain lines of text. Colour is a decoration that the caller strips where it does not belong; every foreign text goes
through ``printable``.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from tracker_health.judge.doc_links import page_about
from tracker_health.render.calibration import why_rate_unknown
from tracker_health.report.result import BY_PARAMS, Report, once_a_source
from tracker_health.text import count, listing, printable, short_name
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.render.sketch import Sketch

_COLOURS = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "red",
    Verdict.SKIP: "cyan",
    Verdict.ERROR: "magenta",
}
_INDENT = "       "
_LABEL, _FINDING = 11, 14  # columns of a label, and of a verdict with its code
_MESSAGE_CHARACTERS = 1000


def badge(verdict: Verdict) -> str:
    """The verdict in capitals and colour, five columns wide."""
    return click.style(f"{verdict.upper():<5}", fg=_COLOURS[verdict], bold=True)


def one_line(report: Report) -> str:
    """Verdict, name and reason on one line, for many runs."""
    notes = f" ({printable('; '.join(report.notes), 300)})" if report.notes else ""
    said = f" [{printable(report.said.partition(', ')[2], 300)}]" if report.acknowledged else ""
    name = short_name(report.run.listed_name)
    return f"{badge(report.verdict)}  {name}  {printable(report.headline, 300)}{said}{notes}"


def report_lines(
    report: Report,
    *,
    width: int,
    verbose: bool = False,
    sketch: Sketch | None = None,
    run: str = "",
    docs_url: str = "",
) -> Iterator[str]:
    """The report of one run: the answer, the cause and what to do, the curve, what else was found, what to run next.

    ``width``: columns to wrap to. ``verbose``: also what passed, what was skipped and why, and measures. ``sketch``:
    the curve that it is about. ``run``: as a command takes it, empty for no command to run next. ``docs_url``: the base
    of the address to read on at, empty for none.
    """
    yield from _answer(report, width)
    yield from _answers(report, width)
    yield from _to_do(report, width, verbose=verbose)
    for place, line in enumerate(sketch.lines if sketch is not None else ()):
        yield f"{_label('curve' if not place else '')}{click.style(line, fg='blue')}"
    yield from _evidence(report, width)
    yield from _error_lines(report, width, verbose=verbose)
    yield from _note_lines(report, width)
    yield from _judged_lines(report, width, verbose=verbose)
    yield from _next_lines(report, run, docs_url)
    if verbose:
        yield from _rest_lines(report, width)


def _answer(report: Report, width: int) -> Iterator[str]:
    """Verdict, name, and in one sentence why: the fact, and the cause in words that are as sure as it is."""
    name, found = printable(report.run.name, 80), report.findings
    said = report.diagnosis.sentence if report.diagnosis is not None else found[0].message if found else report.summary
    first, *rest = _wrapped(f"{name}{_identity(report)}: {said}", width - len(_INDENT), "")
    yield f"{badge(report.verdict)}  {click.style(name, bold=True)}{first.removeprefix(name)}"
    yield from (f"{' ' * len(_INDENT)}{line}" for line in rest)


def _identity(report: Report) -> str:
    """Of a run of a tracker its id; a folder is known by its name."""
    identity = printable(report.run.id, 120)
    of_a_folder = report.run.store == "directory" or identity == report.run.name
    return "" if of_a_folder else f" ({report.run.store} {identity})"


def _label(word: str) -> str:
    return f"  {word:<{_LABEL - 2}}"


def _labelled(word: str, text: str, width: int) -> Iterator[str]:
    """Text behind a label, and under itself where it is longer than the line."""
    yield from _beside(_label(word), text, width, _LABEL)


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


def _to_do(report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    """The cause by its name, one thing to do, and what else it may be."""
    diagnosis = report.diagnosis
    if diagnosis is None:
        remedy = next((one.remedy for one in report.findings if one.remedy), "")
        yield from _labelled("try", remedy, width) if remedy else ()
    else:
        cause, sure = click.style(diagnosis.cause, bold=True), diagnosis.certainty
        yield f"{_label('cause')}{f'not known ({cause})' if sure == 'unknown' else f'{cause} ({sure})'}"
        yield from _labelled("try", diagnosis.action.in_short, width)
        if diagnosis.action.explained:
            yield from _labelled("", diagnosis.action.explained, width)
        for place, other in enumerate(diagnosis.others):
            yield from _labelled("or" if not place else "", f"{other.cause}: {other.test}", width)
        for place, sign in enumerate(diagnosis.signs if verbose else ()):
            yield from _labelled(
                "signs" if not place else "", f"{sign.weight:+.1f} {sign.name} ({sign.looks_at})", width
            )
    if report.rewind is not None:
        yield from _labelled("restart", f"{'from ' if report.rewind.path else ''}{report.rewind.said}", width)


def _evidence(report: Report, width: int) -> Iterator[str]:
    """The findings: of what the first line has said the code alone, of what the cause does not explain what to do."""
    said = "\n".join(
        [report.diagnosis.sentence] if report.diagnosis is not None else [one.message for one in report.findings[:1]]
    )
    told = report.diagnosis is None  # what the first finding asks for
    for place, finding in enumerate((*report.explained, *report.unexplained)):
        head = f"{_label('found' if not place else '')}{badge(finding.verdict)} {finding.code}  "
        unsure = " (low confidence)" if finding.confidence == "low" else ""
        message = "" if finding.message[1:] in said else f": {finding.message}"
        yield from _beside(head, f"{finding.name}{unsure}{message}", width, _LABEL + _FINDING)
        if finding.remedy and finding in report.unexplained and not told:
            yield from _beside(" " * (_LABEL + _FINDING), f"-> {finding.remedy}", width, _LABEL + _FINDING)
        told = told and not finding.remedy


def _beside(head: str, text: str, width: int, columns: int) -> Iterator[str]:
    """Text behind a head that is so many columns wide, and under itself where it is longer than the line."""
    first, *rest = _wrapped(text, width - columns, "") or [""]
    yield f"{head}{first}"
    yield from (" " * columns + line for line in rest)


def _note_lines(report: Report, width: int) -> Iterator[str]:
    for note in report.notes:
        yield from _labelled("note", note, width)
    if report.tool.ignored:
        changed = listing(list(report.tool.ignored))
        yield from _labelled("note", f"your settings leave out or change: {changed}", width)
    unknown = [one.code for one in report.findings if why_rate_unknown(one.code)]
    if unknown:
        codes = ", ".join(unknown)
        yield from _labelled("note", f"{codes}: how often it is wrong on healthy runs is not known yet", width)


def _judged_lines(report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    """What was judged, and what was not and why."""
    judged, absent = report.judged_parts("judged"), report.judged_parts("not there")
    if not judged:
        return
    lines = [("judged", ", ".join(judged)), *([("absent", ", ".join(absent))] if verbose and absent else [])]
    lines += [
        ("note", f"{one.part} not usable: {one.why}")
        for one in report.judged
        if one.state == "not usable"
        and not any(one.why in said for said in (report.summary, *report.notes))
        and (verbose or (one.part in ("loss", "optimizer", "weights") and not one.why.startswith(BY_PARAMS)))
    ]
    for word, text in lines:
        yield from (click.style(part, dim=True) for part in _labelled(word, text, width))


def _next_lines(report: Report, run: str, docs_url: str) -> Iterator[str]:
    """What to run, or read, next."""
    if run and report.verdict in (Verdict.WARN, Verdict.FAIL):
        yield f"{_label('next')}tracker-health report {printable(shlex.quote(run), 400)} --open"
    if page := page_about(report, docs_url):
        yield f"{_label('read')}{page}"


def _error_lines(report: Report, width: int, *, verbose: bool) -> Iterator[str]:
    """What could not be read, once a source, but for what the first line has said; and the rules that it took away."""
    told, unjudged = once_a_source(report.errors)
    for error in told:
        if report.findings or error.message not in report.summary:
            yield f"  {badge(Verdict.ERROR)} {printable(error.source, 120)}"
            yield from _wrapped(error.message, width, _INDENT)
    for source, codes in unjudged.items():
        which = ", ".join(codes) if verbose else count(len(codes), "rule")
        yield from _wrapped(f"without {printable(source, 120)} not judged: {which}", width, _INDENT)


def _rest_lines(report: Report, width: int) -> Iterator[str]:
    """What passed, what is only informational, and what was skipped."""
    for result in report.results:
        if result.votes and result.verdict is Verdict.PASS:
            yield f"  {badge(result.verdict)} {result.code} {result.name}"
            yield from _wrapped(result.message, width, _INDENT)
    for result in report.results:
        if not result.votes:
            yield click.style(f"  informational {result.code} {result.name} ({result.verdict})", dim=True)
            yield from _wrapped(result.message, width, _INDENT)
    for skipped in report.skipped:
        yield click.style(f"  skipped {skipped.code} {skipped.name}", dim=True)
        yield from _wrapped(skipped.reason, width, _INDENT)


def _wrapped(text: str, width: int, indent: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text, _MESSAGE_CHARACTERS),
        max(40, width),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_on_hyphens=False,
    )
