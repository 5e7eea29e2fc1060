"""What became of the runs of a call: printed as it comes, then the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from tracker_health.cli.choices import ChosenRuns
from tracker_health.cli.tally import Tally
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN,
    EXIT_VERDICT,
    Output,
    StopFlag,
    add_to_job_summary,
    draws_blocks,
    leave_threads,
    say_error,
    say_failure,
    stopping,
    width,
)
from tracker_health.text import count, printable
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.render.ci import JUnit
    from tracker_health.report.result import Report
    from tracker_health.runs.outcome import Outcome
    from tracker_health.stores.found import Listed

_MOST_LINKS = 5


def finish(
    work: Callable[[Iterable[str | Listed]], Iterable[Outcome]],
    runs: ChosenRuns,
    choices: dict[str, Any],
    *,
    writes: bool,
) -> NoReturn:
    """Print each outcome as it comes, or all of them in the order that was asked for. Exit with the code that the whole
    call deserves.

    ``writes``: the runs still to come are done even when nobody reads on.
    """
    output, code, tally = Output(), EXIT_DONE, Tally(runs.total)
    links: dict[str, _Link] = {}
    cases = _test_report() if choices["form"] == "junit" and not choices["as_json"] else None
    one_by_one = partial(show, choices=choices, output=output, brief=runs.many, named=runs.named, cases=cases)
    shown = _InOrder(one_by_one, choices["order"])
    try:
        with stopping() if runs.many else nullcontext(StopFlag()) as stop:
            for outcome in work(stop.until(runs.runs)):
                tally.clear()
                code = max(code, shown.add(outcome))
                tally.add(outcome, draw=runs.many)
                _add_link(links, outcome, many=runs.many)
                if output.lost and not writes:
                    break
        interrupted = stop.wanted
        at_once = False
    except KeyboardInterrupt:
        interrupted = at_once = True
    tally.clear()
    code = max(code, shown.rest())
    if cases is not None:
        output.print(cases.document())
    if interrupted:
        _leave(tally, again=writes and runs.many, at_once=at_once)
    if not tally.done:
        say_error("there is no such run: nothing was judged")
    if not choices["quiet"]:
        is_text = choices["form"] == "text" and not choices["as_json"]
        _say_what_came(tally, links if is_text else {}, many=runs.many and is_text)
        say_left_out(tally.left_out(choices["only"]), choices["only"])
    sys.exit(max(code, output.exit_code))


class _InOrder:
    """Outcomes that are shown in an order, once all are there; without one each is shown as it comes."""

    def __init__(self, show_one: Callable[[Outcome], int], order: str | None) -> None:
        self._show, self._key = show_one, ORDERS[order] if order else None
        self._held: list[Outcome] = []

    def add(self, outcome: Outcome) -> int:
        """Show an outcome, or keep it; the exit code of what was shown."""
        if self._key is None:
            return self._show(outcome)
        self._held.append(outcome)
        return EXIT_DONE

    def rest(self) -> int:
        """Show what was kept; the worst exit code of it."""
        key = self._key
        if key is not None:
            self._held.sort(key=lambda outcome: key(outcome.report.place))
        return max(map(self._show, self._held), default=EXIT_DONE)


def _test_report() -> JUnit:
    from tracker_health.render.ci import JUnit

    return JUnit()


class _Link(NamedTuple):
    """Where to see, in the tracker, what was written: the worse the verdict, the higher its ``rank``."""

    rank: int
    what: str
    url: str


def _say_what_came(tally: Tally, links: Mapping[str, _Link], *, many: bool) -> None:
    """Of many runs what failed and why, and where to see them in their tracker."""
    for line in tally.lines() if many else ():
        click.echo(line, err=True)
    for link in list(links.values())[:_MOST_LINKS]:
        click.echo(f"{link.what}: {link.url}", err=True)


def _leave(tally: Tally, *, again: bool, at_once: bool) -> NoReturn:
    """Say how far an interrupted call came, and end the process."""
    hint = "run the same command again: what is done is not done again" if again else ""
    say_error(f"interrupted after {count(tally.done, 'run')}", hint)
    if at_once:
        leave_threads(EXIT_INTERRUPTED)
    sys.exit(EXIT_INTERRUPTED)


def _add_link(links: dict[str, _Link], outcome: Outcome, *, many: bool) -> None:
    """By the tracker's page, one link for each: to the runs with the worst verdict of those that were written."""
    from tracker_health.runs.lookup import filter_link

    ref, verdict = outcome.report.run, outcome.report.verdict
    if outcome.status != "written":
        return
    page = (ref.url or "").rpartition("/runs/")[0]
    if ref.store == "wandb" and ref.url:  # in whose addresses there is no place for a filter
        found = _Link(0, "the project's runs", f"{page}/table") if many else _Link(0, "the run", ref.url)
    elif url := filter_link(ref, verdict):
        found = _Link(verdict.rank, f"all runs with {verdict}", url)
    else:
        return
    links[page] = max(links.get(page, found), found)


def say_left_out(left_out: int, only: Sequence[Verdict]) -> None:
    """Say how many runs were judged and are not shown."""
    if left_out:
        click.echo(f"{count(left_out, 'run')} left out by --only {','.join(only)}", err=True)


def show(
    outcome: Outcome,
    choices: dict[str, Any],
    output: Output,
    *,
    brief: bool,
    named: bool = False,
    cases: JUnit | None = None,
) -> int:
    """Print one outcome, or put it into a test report; the exit code that it deserves. ``named``: it is the one run
    that was asked for, which is a failure where it was left alone.
    """
    outcome = outcome.insisted_on() if named else outcome
    only: Sequence[Verdict] = choices.get("only", ())
    hidden = bool(only) and outcome.report.verdict not in only
    try:
        text = "" if hidden else _text(outcome, choices, brief=brief)
    except Exception as error:  # noqa: BLE001  one result that cannot be shown never stops the others
        outcome = outcome.failed_with(error)
        text = _text(outcome, choices, brief=brief)
    if cases is not None and not hidden:
        from tracker_health.render.ci import check_of_run

        cases.add(check_of_run(outcome.report, choices["fail_on"], choices.get("docs_url", "")))
    if text:
        output.print(text)
    say_errors(outcome, choices, brief=brief)
    return _exit_code(outcome, choices["fail_on"])


def _text(outcome: Outcome, choices: dict[str, Any], *, brief: bool) -> str:
    """What belongs on standard output; nothing in plain text of a run that could not be judged."""
    from tracker_health.render.ci import check_of_run, github_line
    from tracker_health.render.console import one_line, report_lines
    from tracker_health.render.markdown import report_markdown

    docs_url = choices.get("docs_url", "")
    if choices["as_json"]:
        return report_json(outcome.report, choices)
    if choices["form"] == "github":
        add_to_job_summary(report_markdown(outcome.report, docs_url))
        return github_line(check_of_run(outcome.report, choices["fail_on"], docs_url))
    if choices["quiet"] or choices["form"] == "junit":
        return ""
    if choices["form"] == "markdown":  # of every run: a summary is read without standard error
        return "\n".join(report_markdown(outcome.report, docs_url))
    if outcome.error is not None and outcome.annotations is None:
        return ""
    verbose, status, report = choices["verbose"], _status(outcome, choices), _judgement(outcome)
    if brief and not verbose:
        return f"{one_line(report)}{status and f'  {status}'}"
    drawn = outcome.sketch if draws_blocks() else None
    lines = report_lines(report, width=width(), verbose=verbose, sketch=drawn, run=outcome.run, docs_url=docs_url)
    return "\n".join([*lines, *([f"  {status}"] if status else [])])


def report_json(report: Report, choices: dict[str, Any]) -> str:
    """A report on one line: in brief, or whole; its skipped rules only where all was asked for."""
    document = report.brief() if choices["in_brief"] else report.to_json(skipped=choices["all_rules"])
    return json.dumps(document, allow_nan=False)


def _status(outcome: Outcome, choices: dict[str, Any]) -> str:
    exceptions = f", except {printable('; '.join(outcome.omitted), 1000)}" if outcome.omitted else ""
    where = f"below {printable(choices['report_to'], 200)}" if choices.get("report_to") else "onto the run"
    return {
        "written": f"written {where}{exceptions}",
        "dry-run": "dry run: nothing was written",
        "failed": "not written onto the run",
        "left alone": outcome.why_left,
        "shadow": "in shadow: only health.shadow was written onto the run",
    }.get(outcome.status, "")


def _judgement(outcome: Outcome) -> Report:
    """The report without what is printed after it: what was left out, and why it could not be written."""
    report = outcome.report
    if outcome.omitted or outcome.why_left:
        report = replace(report, notes=report.notes[:-1])
    return replace(report, errors=report.errors[:-1]) if outcome.status == "failed" else report


def say_errors(outcome: Outcome, choices: dict[str, Any], *, brief: bool) -> None:
    """Name on standard error what failed, unless the result on standard output does."""
    if outcome.why_left and not choices["quiet"] and (choices["as_json"] or choices.get("form") != "text"):
        say_error(f"{outcome.run}: {outcome.why_left}")
    if outcome.status == "failed" and outcome.error is not None:
        say_failure(outcome.error, about=f"{outcome.run}: ", verbose=choices["verbose"])
    elif (
        choices["as_json"]
        or choices["quiet"]
        or choices.get("form") == "junit"
        or (brief and outcome.report.verdict is not Verdict.ERROR)
    ):
        say_unread(outcome.report)


def say_unread(report: Report) -> None:
    """Name on standard error what of a run could not be read."""
    for error in report.errors:
        if error.code is None:
            say_error(": ".join(dict.fromkeys((report.run.id, error.source, error.message))))


def say_problems(run: str, problems: Iterable[tuple[str, str]]) -> None:
    """Name on standard error what could not be read: pairs of source and message."""
    for source, message in problems:
        say_error(": ".join(dict.fromkeys((run, source, message))))  # a run may be its own only source


def _exit_code(outcome: Outcome, fail_on: str) -> int:
    if outcome.shadow:
        return EXIT_DONE
    if not outcome.complete:
        return EXIT_RUN
    return verdict_code(outcome.report, fail_on)


def verdict_code(report: Report, fail_on: str) -> int:
    """The exit code of a verdict; ``fail_on``: from which one on it is not 0. A parent run is none to wait for, and of
    findings those that someone has acknowledged do not count.
    """
    if report.is_parent:
        return EXIT_DONE
    return code_of_word(report.open_verdict, fail_on)


def code_of_word(verdict: Verdict | None, fail_on: str) -> int:
    """The same of a verdict by itself, None where there is none."""
    counted = {"fail": {"fail"}, "warn": {"fail", "warn"}, "skip": {"fail", "warn", "skip"}, "never": set()}[fail_on]
    return EXIT_VERDICT if verdict is not None and str(verdict) in counted else EXIT_DONE
