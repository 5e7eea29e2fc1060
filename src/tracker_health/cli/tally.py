"""What came of many runs: a line while they are judged, and at the end what failed, why, and how to see it."""

from __future__ import annotations

import heapq
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import click
from click.core import ParameterSource

from tracker_health.terminal import quiet_line, width
from tracker_health.text import count, printable, short_name, without_userinfo
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.report.result import Report
    from tracker_health.runs.outcome import Outcome

_REDRAWN_SECONDS = 0.2
_MOST_CAUSES, _MOST_WORST = 6, 5
_MOST_NAMED = 100  # of the runs, in a command
_NOT_REPEATED = frozenset(
    {"path", "opens", "as_json", "in_brief", "all_rules", "quiet", "verbose", "fail_on", "only", "order"}
)
_OF_A_BATCH = ("experiment", "experiments", "project", "where")
_MOST_CHARACTERS = 20_000
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
        """The verdicts with their most frequent causes, what was done, the worst runs, and the command for their
        page.
        """
        yield ""
        yield from self._by_verdict()
        statuses = ", ".join(f"{number} {status}" for status, number in sorted(self._statuses.items()))
        yield f"{count(self.done, 'run')}: {statuses}; {self._rate:.1f} a second"
        yield from self._worst_and_page(named=False)

    def failed_lines(self) -> Iterator[str]:
        """The same of a sweep, which says by itself what was done: nothing where no run failed or has a warning. The
        command names the runs: another sweep would look at others.
        """
        if self._worst:
            yield from self._by_verdict()
            yield from self._worst_and_page(named=True)

    def _by_verdict(self) -> Iterator[str]:
        for verdict, number in self._ordered():
            causes = sorted(self._causes[verdict].items(), key=lambda one: (-one[1], one[0]))
            parts = [f"{cause} {runs}" for cause, runs in causes[:_MOST_CAUSES]]
            parts += [f"{len(causes) - _MOST_CAUSES} other causes"] if len(causes) > _MOST_CAUSES else []
            yield f"{verdict:<6} {number:>6}   {', '.join(parts)}".rstrip()

    def _worst_and_page(self, *, named: bool) -> Iterator[str]:
        for place, report in enumerate(self._worst):
            head = "worst" if not place else ""
            said = f"{head:<6} {report.verdict.upper():<5} {short_name(report.run.listed_name)}  "
            yield said + printable(report.headline, max(40, width() - len(said)))
        if command := self._page(named=named):
            yield f"{'page':<6} {command}"

    def left_out(self, only: Sequence[Verdict]) -> int:
        """How many runs are not shown where ``only`` these verdicts are; an empty list shows all."""
        return self.done - sum(self._verdicts[verdict] for verdict in only) if only else 0

    def _page(self, *, named: bool) -> str:
        """The command that writes a page of the runs that failed, or else of those with warnings."""
        verdict = next((verdict for verdict, names in self._names.items() if names), None)
        return "" if verdict is None else report_command(verdict, self._names[verdict], named=named)

    @property
    def _rate(self) -> float:
        return self.done / max(time.monotonic() - self._began, 1e-3)

    def _ordered(self) -> list[tuple[Verdict, int]]:
        return sorted(self._verdicts.items(), key=lambda one: -one[0].rank)

    def _write(self, text: str) -> None:
        quiet_line()
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
    """The command that writes a page of the runs with this verdict, quoted for a shell.

    Args:
        verdict: Of the runs.
        names: Of each of them, as ``report`` takes it.
        named: The command names the runs. Else it has what was asked for, unless that was a list on standard input, or
            more runs than these.

    Returns:
        The command; "" where so many would have to be named that no shell should be given it.
    """
    page = f"{verdict}{'ed' if verdict is Verdict.FAIL else ''}.html"
    context = click.get_current_context()
    runs: tuple[str, ...] = context.params.get("runs", ())
    batch = context.params.get("experiment") or context.params.get("project")
    if not named and "-" not in runs and (batch or len(runs) <= len(names)):
        words = ["--only", str(verdict), *_typed(context), *_arguments(map(without_userinfo, runs))]
    elif len(names) <= _MOST_NAMED:
        words = [*_typed(context, but=_OF_A_BATCH), *_arguments(names)]
    else:
        return ""
    return printable(shlex.join(["tracker-health", "report", "-o", page, *words]), _MOST_CHARACTERS)


def _arguments(values: Iterable[str]) -> list[str]:
    words = list(values)
    return ["--", *words] if any(word.startswith("-") for word in words) else words


def _typed(context: click.Context, *, but: Sequence[str] = ()) -> Iterator[str]:
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
