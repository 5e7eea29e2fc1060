"""What came of many runs: a line while they are judged, and at the end what failed, why, and how to see it."""

from __future__ import annotations

import heapq
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click
from click.core import ParameterSource

from tracker_health.terminal import width
from tracker_health.text import count, printable, short_name, without_userinfo
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.report.result import Report
    from tracker_health.runs.outcome import Outcome

_REDRAWN_SECONDS = 0.2
_MOST_CAUSES, _MOST_WORST = 6, 5
_MOST_NAMED = 1000  # of the runs that a command may name
_NOT_REPEATED = frozenset({"path", "opens", "as_json", "quiet", "verbose", "fail_on", "only", "order"})
"""Options of ``report`` that say nothing of which runs are judged, nor how."""


class Tally:
    """How far a command on many runs is: a line on standard error, where that is a terminal, and a summary at the
    end.
    """

    def __init__(self, total: int | None = None) -> None:
        self.done = 0
        self._total = total
        self._verdicts: Counter[Verdict] = Counter()
        self._causes: dict[Verdict, Counter[str]] = {}
        self._statuses: Counter[str] = Counter()
        self._worst: list[Report] = []
        self._names: dict[Verdict, list[str]] = {Verdict.FAIL: [], Verdict.WARN: []}
        self._began = time.monotonic()
        self._drawn = 0.0
        stream: TextIO | None = sys.stderr
        self._shown = stream is not None and stream.isatty()

    def add(self, outcome: Outcome, *, draw: bool) -> None:
        """Count a run, and draw the line again if that was a moment ago."""
        report = outcome.report
        self.done += 1
        self._verdicts[report.verdict] += 1
        self._statuses[outcome.status] += 1
        self._causes.setdefault(report.verdict, Counter()).update(_causes_of(report))
        if (names := self._names.get(report.verdict)) is not None:
            self._worst = heapq.nsmallest(_MOST_WORST, [*self._worst, report], key=_worst_first)
            if len(names) <= _MOST_NAMED:
                names.append(outcome.run)
        if draw and self._shown and time.monotonic() - self._drawn > _REDRAWN_SECONDS:
            self._drawn = time.monotonic()
            self._write(printable(self.line, max(20, shutil.get_terminal_size((100, 24)).columns - 1)))

    def clear(self) -> None:
        """Take the line away, for another one to be printed in its place."""
        if self._shown and self._drawn:
            self._write("")
            self._drawn = 0.0

    @property
    def line(self) -> str:
        """Runs done, their rate, and the verdicts."""
        of = "" if self._total is None else f" of {self._total}"
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in self._ordered())
        return f"{self.done}{of} runs  {self._rate:.1f}/s  {verdicts}"

    def lines(self) -> Iterator[str]:
        """The verdicts with their most frequent causes, what was done, and the worst runs."""
        yield ""
        for verdict, number in self._ordered():
            causes = self._causes[verdict].most_common()
            parts = [f"{cause} {runs}" for cause, runs in causes[:_MOST_CAUSES]]
            parts += [f"{len(causes) - _MOST_CAUSES} other causes"] if len(causes) > _MOST_CAUSES else []
            yield f"{verdict:<6} {number:>6}   {', '.join(parts)}".rstrip()
        statuses = ", ".join(f"{number} {status}" for status, number in sorted(self._statuses.items()))
        yield f"{count(self.done, 'run')}: {statuses}; {self._rate:.1f} a second"
        yield from self.worst()

    def worst(self) -> Iterator[str]:
        """The worst runs, one a line."""
        for place, report in enumerate(self._worst):
            head = "worst" if not place else ""
            said = f"{head:<6} {report.verdict.upper():<5} {short_name(report.run.name)}  "
            yield said + printable(report.headline, max(40, width() - len(said)))

    def left_out(self, only: Sequence[Verdict]) -> int:
        """How many runs are not shown where ``only`` these verdicts are; an empty list shows all."""
        return self.done - sum(self._verdicts[verdict] for verdict in only) if only else 0

    def page_command(self, *, named: bool = False) -> str:
        """The command that writes a page of the runs that failed, or else of those with warnings; "" without any.
        ``named``: it names the runs, and does not repeat which were asked for.
        """
        verdict = next((verdict for verdict, names in self._names.items() if names), None)
        if verdict is None:
            return ""
        names = self._names[verdict]
        return report_command(verdict, names if len(names) <= _MOST_NAMED else [], named=named)

    @property
    def _rate(self) -> float:
        return self.done / max(time.monotonic() - self._began, 1e-3)

    def _ordered(self) -> list[tuple[Verdict, int]]:
        return sorted(self._verdicts.items(), key=lambda one: -one[0].rank)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that went away
            click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)


def _causes_of(report: Report) -> list[str]:
    """The cause of a run that has one, else the rule of its worst finding."""
    if report.diagnosis is not None:
        return [report.diagnosis.cause]
    return [finding.name for finding in report.findings[:1]]


def _worst_first(report: Report) -> tuple[object, ...]:
    return ORDERS["verdict"](report.place)


def report_command(verdict: Verdict, names: Sequence[str], *, named: bool = False) -> str:
    """The command that writes a page of the runs with this verdict, quoted for a shell: with the runs as they were
    asked for, or with their ``names`` where that is shorter or standard input listed them. "" where neither can be.
    """
    page = f"{verdict}{'ed' if verdict is Verdict.FAIL else ''}.html"
    context = click.get_current_context()
    runs: tuple[str, ...] = context.params.get("runs", ())
    typed = [*_typed(context), *_arguments(map(without_userinfo, runs))]
    by_name = [*_typed(context, but=("experiment", "project", "where", "since")), *_arguments(names)] if names else []
    batch = context.params.get("experiment") or context.params.get("project")
    if named or "-" in runs or (by_name and not batch and len(names) < len(runs)):
        words = [*by_name] and ["-o", page, *by_name]
    else:
        words = ["--only", str(verdict), "-o", page, *typed]
    return shlex.join(["tracker-health", "report", *words]) if words else ""


def _arguments(values: Iterator[str] | Sequence[str]) -> list[str]:
    words = list(values)
    return ["--", *words] if any(word.startswith("-") for word in words) else words


def _typed(context: click.Context, but: Sequence[str] = ()) -> Iterator[str]:
    """The options of the command line that ``report`` has, too, and that change which runs it judges, or how."""
    from tracker_health.cli.group import cli

    known = {parameter.name for parameter in cli.commands["report"].params} - _NOT_REPEATED - {*but}
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and name in known and given:
            value = context.params[name]
            for one in value if isinstance(value, tuple) else (value,):
                yield from (parameter.opts[0], without_userinfo(str(one)))
