"""The commands on what a server has: sweep, which judges what ended without a verdict, and diff."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli import completing
from tracker_health.cli.choices import WORKERS_OF_BATCH, refuse_both, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import (
    ALL_RULES,
    BRIEF,
    METRICS,
    REJUDGE,
    SHADOW,
    WORKERS,
    all_of,
    choice_options,
    note_verbose,
    settle_json,
    since_option,
)
from tracker_health.cli.outcomes import code_of_word, show
from tracker_health.cli.stats import PassStats, write_stats
from tracker_health.cli.tally import Tally
from tracker_health.errors import ConfigError, RunError
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN,
    Output,
    StopFlag,
    say,
    say_error,
    say_failure,
    stopping,
    told,
)
from tracker_health.text import count, printable, short_name, size_of

if TYPE_CHECKING:
    from tracker_health.fleet.sweep import Sweep, Swept, VerdictChange


_EXPERIMENTS = click.option(
    "--experiment",
    "experiments",
    multiple=True,
    metavar="NAME",
    help="Of MLflow: name, id or page; repeatable.",
    shell_complete=completing.experiments,
)
_PROJECT = click.option(
    "--project",
    metavar="[ENTITY/]PROJECT[/sweeps/ID]",
    help="All runs of this W&B project or sweep, or of trackio:PROJECT, instead of MLflow's.",
)
_BY = "--by group is for a W&B --project, --by parent for MLflow"
_RATE = click.option("--rate", type=click.FloatRange(0.01, 10_000), metavar="N", help="At most N requests a second.")


@cli.command()
@all_of(_EXPERIMENTS, _PROJECT)
@since_option("7d")
@_RATE
@click.option(
    "--by",
    type=click.Choice(["group", "parent"]),
    help="One verdict more on the ranks of one training: by W&B's groups, or MLflow's parent runs.",
)
@click.option("--dry-run", is_flag=True, help="Only say how much would be read and written.")
@click.option("--report-to", metavar="DIR", help="Write nothing onto the runs, and the reports below this folder.")
@click.option(
    "--watch", type=click.IntRange(1, 86_400), metavar="SECONDS", help="Repeat after this time until stopped."
)
@click.option(
    "--stats",
    multiple=True,
    metavar="FILE",
    help="What each pass did: a line of JSON, added to the file; a FILE.prom is replaced, in Prometheus's text form. "
    "Repeatable.",
)
@all_of(REJUDGE, METRICS, SHADOW, WORKERS, *choice_options(fail_on="never"))
@click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output.")
@BRIEF
@ALL_RULES
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def sweep(rate: float | None, dry_run: bool, watch: int | None, **choices: Any) -> None:
    """Judge runs that ended without a verdict, or crashed silently, and write the verdicts onto them.

    Meant for a service account, from cron or as a service. Without --experiment and --project all experiments of the
    tracking server are swept. Several sweeps at once leave each other's runs alone. With --report-to the account needs
    no more than to read: each run's report is in a folder of its own there, and is renewed when the run has changed.
    """
    settle_json(choices)
    swept = _sweep_over(choices, rate)
    if dry_run:
        sys.exit(_print_estimate(swept))
    with stopping(also=[signal.SIGTERM]) as stop:
        code = _sweep_once(swept, stop, choices)
        while watch and not stop.wait(watch):
            _sweep_once(swept, stop, choices)
    interrupted = stop.wanted and not watch
    sys.exit(EXIT_INTERRUPTED if interrupted else EXIT_DONE if watch else code)


@cli.command()
@all_of(_EXPERIMENTS, _PROJECT)
@since_option()
@_RATE
@all_of(WORKERS, *choice_options(fail_on=None))
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line, on standard output.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def diff(rate: float | None, as_json: bool, **choices: Any) -> None:
    """Show which verdicts this version would change: what sweep --rejudge would do, and why. Writes nothing.

    Every run that is over and has a verdict is judged by these rules and settings. A line names the verdict that it has
    and the version of the rules that gave it, the verdict by these, and the worst finding.
    """
    compared = _sweep_over(choices, rate)
    with stopping() as stop:
        code = _print_differences(compared, stop, as_json=as_json, verbose=choices["verbose"])
    sys.exit(EXIT_INTERRUPTED if stop.wanted else code)


def _sweep_over(choices: dict[str, Any], rate: float | None) -> Sweep:
    """The sweep that a call asks for; without a limit in time it goes back to the first run."""
    from tracker_health.config import parse_duration
    from tracker_health.fleet.sweep import Sweep
    from tracker_health.stores.remote.deadline import at_most

    refuse_both(choices["experiments"], choices["project"])
    by = choices.get("by")
    if by is not None and (by == "group") != bool(choices["project"]):
        raise ConfigError(f"runs of {'W&B' if choices['project'] else 'MLflow'} have no {by}", _BY)
    since, rejudge = choices["since"], choices.pop("rejudge", False)
    settings = settings_of(choices, writes=True)
    at_most(rate)
    return Sweep(
        config=settings.config,
        experiments=choices["experiments"],
        project=choices["project"] or "",
        tracking_uri=settings.tracking_uri,
        since=parse_duration(since) if since else time.time(),
        rejudge=rejudge,
        workers=choices["workers"] or WORKERS_OF_BATCH,
        report_to=Path(choices["report_to"]) if choices.get("report_to") else None,
        by=by,
    )


def _print_differences(swept: Sweep, stop: StopFlag, *, as_json: bool, verbose: bool) -> int:
    """Print what would change, as it is found; the exit code that this deserves."""
    output, code, done, changes = Output(), EXIT_DONE, 0, Counter[str]()
    for one in swept.compare(stop.until(swept.candidates())):
        done += one.judged
        if one.error is not None:
            say_failure(one.error, about=f"{one.run.name}: ", verbose=verbose)
            code = EXIT_RUN
        elif one.difference is not None:
            found = one.difference
            changes[f"{found.before} to {found.report.verdict}"] += 1
            output.print(json.dumps(found.to_json(), allow_nan=False) if as_json else _difference_line(found))
    parts = ", ".join(f"{number} from {change}" for change, number in changes.most_common())
    click.echo(f"compared {count(done, 'run')}: {changes.total()} would change{f' ({parts})' * bool(parts)}", err=True)
    return max(code, output.exit_code)


def _difference_line(found: VerdictChange) -> str:
    rules = "" if found.rules is None else f" (rules {found.rules})"
    run = found.report.run
    identity = "" if run.id == run.name else f" ({printable(run.id, 120)})"
    besides = ["judged with other settings"] * found.other_settings + ["older than its data"] * found.older
    note = f" [{', '.join(besides)}]" if besides else ""
    return (
        f"{found.before}{rules} -> {found.report.verdict}  {short_name(run.name)}{identity}  "
        f"{printable(found.finding, 300)}{note}"
    )


def _print_estimate(swept: Sweep) -> int:
    """Say what a sweep would do; the exit code that this deserves."""
    found = swept.estimate(swept.candidates())
    for name, error in found.failed:
        say_failure(error, about=f"{name}: ", verbose=False)
    silent = f", {count(found.silent, 'silent run')} among them" if found.silent else ""
    say(f"would read at most {size_of(found.size)} of files, write {count(found.runs, 'run')}{silent}")
    return EXIT_RUN if found.failed else EXIT_DONE


def _show_group(one: Swept, choices: dict[str, Any], output: Output) -> int:
    """Print the verdict on the ranks that a run stands for; the exit code that it deserves."""
    from tracker_health.judge.group_verdict import group_sentence

    found = one.group
    if found is None:
        return EXIT_DONE
    if choices["as_json"]:
        output.print(json.dumps([*one.documents()][-1], allow_nan=False))
    elif not choices["quiet"]:
        output.print(f"       {short_name(one.outcome.report.run.name)} stands for {group_sentence(found)}")
    return code_of_word(found.verdict, choices["fail_on"])


def _sweep_once(swept: Sweep, stop: StopFlag, choices: dict[str, Any]) -> int:
    """Sweep once, and print what became of each run; the exit code that this deserves."""
    output, code, older, stats, tally = Output(), EXIT_DONE, 0, PassStats(), Tally()
    shown = {**choices, "form": "text", "quiet": choices["quiet"]}
    try:
        for one in swept.annotate(stop.until(swept.candidates())):
            stats.kinds[one.kind] += 1
            stats.incomplete += one.kind == "annotated" and not one.outcome.complete
            older += one.outcome.replaces_older
            if one.kind == "taken":
                say_error(f"{one.run.name}: skipped, another annotator has it")
            elif one.kind != "unchanged":
                code = max(code, show(one.outcome, shown, output, brief=True))
                tally.add(one.outcome, draw=False)
                if one.group is not None:
                    code = max(code, _show_group(one, choices, output))
    except (RunError, KeyboardInterrupt) as error:  # a service continues when the server is back
        code = told(error, verbose=choices["verbose"])
        stats.complete = False
        if not isinstance(error, RunError):
            stop.wanted = True
    hung = 0 if stop.wanted else _show_hung(swept, choices, output)
    stats.complete &= not stop.wanted
    _send_messages(swept, whole=stats.complete, quiet=choices["quiet"])
    stats.end(swept.oldest_unjudged)
    for path in choices["stats"]:
        write_stats(path, stats)
    if not choices["quiet"]:
        kinds = stats.kinds
        parts = ", ".join(
            f"{kinds[kind]} {kind}" for kind in ("annotated", "unchanged", "taken", "left alone", "failed")
        )
        behind = f"; {count(older, 'verdict')} had been older than the data" if older else ""
        behind += f"; {count(hung, 'running run')} {'stands' if hung == 1 else 'stand'} still" if hung else ""
        for line in () if choices["as_json"] else tally.failed_lines():
            click.echo(line, err=True)
        click.echo(f"swept {count(kinds.total(), 'run')}: {parts}{behind}", err=True)
    return max(code, output.exit_code)


def _show_hung(swept: Sweep, choices: dict[str, Any], output: Output) -> int:
    """Print the running runs that stand still, each once; how many there are."""
    hung = 0
    for one in swept.hung():
        hung += 1
        found = one.hang.result
        if choices["as_json"]:
            output.print(json.dumps(one.to_json(), allow_nan=False))
        elif one.is_new and not choices["quiet"]:
            name = short_name(one.hang.report.run.name)
            output.print(f"HANGS  {name}  {found.code} {found.name}: {printable(found.message, 300)}  left as it is")
    return hung


def _send_messages(swept: Sweep, *, whole: bool, quiet: bool) -> None:
    """Send the messages that are due, and say so. One that cannot be sent costs nobody a verdict, nor an exit code."""
    done = swept.send_messages(whole=whole)
    if done.problem:
        say_error(f"messages could not be sent: {done.problem}; still waiting: {done.waiting}")
    if done.messages and not quiet:
        click.echo(f"sent {count(done.messages, 'message')} about {count(done.runs, 'run')}", err=True)
