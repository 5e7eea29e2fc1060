"""The commands that show what there is, and judge nothing: summary, show."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import batch_of, only_run, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import (
    BRIEF,
    CHOOSING,
    CONFIG_FILE,
    TRACKING_URI,
    all_of,
    batch_options,
    note_verbose,
    since_option,
)
from tracker_health.cli.outcomes import say_left_out, say_problems
from tracker_health.cli.tally import report_command
from tracker_health.errors import ConfigError
from tracker_health.terminal import EXIT_RUN, Output, say_error, write_page
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.runs.overview import Overview

_BY = "--by group and sweep are for a W&B --project, --by parent for MLflow"


@cli.command()
@all_of(*batch_options())
@since_option()
@click.option(
    "--by",
    metavar="WHAT",
    default="",
    help="Also in groups: user, experiment, week, code, cause, group, sweep, parent, or several with commas.",
)
@click.option(
    "--html", metavar="FILE", help="Write a page: by week, user and experiment, worst runs, people's answers."
)
@click.option("--export", metavar="FILE", help="Write the runs that people have answered (ack), one JSON a line.")
@TRACKING_URI
@CONFIG_FILE
@all_of(*CHOOSING)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@BRIEF
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def summary(since: str | None, by: str, as_json: bool, html: str | None, export: str | None, **choices: Any) -> None:
    """Show the verdicts over many runs, the most frequent reasons, and the worst runs.

    It reads the runs' tags alone: nothing is judged, and no history is read. Without --experiment and --project it
    covers all runs of the tracking server. Where people have answered verdicts (ack), it also shows in how many runs
    each rule and cause was flagged. It shows how often people agreed or called it wrong, and the share of the answered
    ones that was right.
    """
    from tracker_health.api import overview_of
    from tracker_health.config import did_you_mean, parse_duration
    from tracker_health.fleet.overview_page import GROUPED_BY, overview_page
    from tracker_health.fleet.overview_page import MOST_WORST as MOST_ON_PAGE
    from tracker_health.runs.overview import GROUPS, MOST_WORST, overview_lines

    if html == "-":
        raise ConfigError("standard output has the summary as text", "give the page a file: --html summary.html")
    batch = batch_of(choices, needs_name=False)
    groups = [part.strip() for part in by.split(",") if part.strip()]
    for unknown in (group for group in groups if group not in GROUPS):
        raise ConfigError(f"runs cannot be grouped by {printable(unknown, 40)!r}", did_you_mean(unknown, GROUPS))
    for nowhere in [group for group in groups if group in (("parent",) if batch.project else ("group", "sweep"))]:
        raise ConfigError(f"runs of {'W&B' if batch.project else 'MLflow'} have no {nowhere}", _BY)
    began = time.time() - parse_duration(since) if since else None
    uri = settings_of(choices).tracking_uri
    labels: list[str] = []
    keep = None if export is None else lambda document: labels.append(json.dumps(document, allow_nan=False))
    by_all, most = ((*groups, *GROUPED_BY), MOST_ON_PAGE) if html else (groups, MOST_WORST)
    options: dict[str, Any] = {"tracking_uri": uri, "since": began, "labelled": keep}
    options |= {"only": choices["only"], "sort": choices["order"] or ""}
    found = overview_of(**batch._asdict(), **options, by=by_all, most_worst=most)
    if html:
        write_page(html, overview_page(found, title=batch.name or "All experiments", now=time.time()))
        click.echo(f"wrote {printable(html)}", err=True)
    if export is not None:
        write_page(export, "".join(f"{line}\n" for line in labels).encode())
    output, shown = Output(), found.narrowed(groups)
    as_json |= choices["in_brief"]
    document = shown.brief if choices["in_brief"] else shown.to_json
    for line in [json.dumps(document(), allow_nan=False)] if as_json else overview_lines(shown):
        output.print(line)
    if not as_json and (command := _page_of_worst(shown, named=began is not None or not batch.name)):
        output.print(f"\ntheir page: {command}")
    if choices["only"]:
        say_left_out(found.runs - found.bad, choices["only"])
    sys.exit(output.exit_code)


def _page_of_worst(found: Overview, *, named: bool) -> str:
    """The command for a page of the runs with the worst verdict of those listed; "" where none failed."""
    verdict = next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if found.verdicts[verdict]), None)
    names = [f"{run.ref.store}:{run.ref.id}" for run in found.worst if run.verdict is verdict]
    return report_command(verdict, names, named=named) if verdict is not None and names else ""


@cli.group()
def show() -> None:
    """Show what was found of a run, and judge nothing: its metrics, its weights."""


@show.command()
@click.argument("run")
@TRACKING_URI
@CONFIG_FILE
@click.option("--checkpoint", metavar="PATH", help="The checkpoint to show, relative to the run, of several.")
@click.option("--max-download", metavar="SIZE", help="Fetch no more than this of a run's artifacts (default 2GB).")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document, with every tensor.")
@click.option("--all", "everything", is_flag=True, help="Every tensor, and not only the worst.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def weights(run: str, as_json: bool, everything: bool, **choices: Any) -> None:
    """Show the tensors of a run's checkpoint: what the optimizer keeps for each, and the weights, the worst first.

    m and v are Adam's first and second moment, and snr is m squared over v with bias correction. w is the weight, and
    upd/w the size of a step over that of the weight. Names that are not in the file are given where an order of the
    parameters is the only one that fits; the head of the table says so. Nothing is judged.
    """
    from tracker_health.api import read_tensors as table_of
    from tracker_health.render.tensors import tensor_lines

    settings = settings_of(choices)
    output = Output()
    table = table_of(only_run(run, "show weights"), config=settings.config, tracking_uri=settings.tracking_uri)
    lines = [json.dumps(table.to_json(), allow_nan=False)] if as_json else tensor_lines(table, everything=everything)
    for line in lines:
        output.print(line)
    say_problems(table.run.id, table.problems)
    if table.missing and not table.problems:
        say_error(f"{table.run.id}: {table.missing}")
    sys.exit(EXIT_RUN if table.problems else output.exit_code)


@show.command()
@click.argument("run")
@TRACKING_URI
@CONFIG_FILE
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, as in roles.train_loss=my/loss."
)
@click.option("--max-download", metavar="SIZE", help="Fetch no more than this of a run's artifacts (default 2GB).")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def metrics(run: str, as_json: bool, **choices: Any) -> None:
    """Show the metric series that were found of a run: where, under which role, how many points.

    Below the table stand the settings that would give a role to what may have one and has none. Nothing is judged.
    """
    from tracker_health.api import read_series as table_of
    from tracker_health.render.series import series_lines

    settings = settings_of(choices)
    output = Output()
    table = table_of(only_run(run, "show metrics"), config=settings.config, tracking_uri=settings.tracking_uri)
    for line in [json.dumps(table.to_json(), allow_nan=False)] if as_json else series_lines(table):
        output.print(line)
    say_problems(table.run.id, [(problem.source, problem.message) for problem in table.problems])
    sys.exit(EXIT_RUN if table.problems else output.exit_code)
