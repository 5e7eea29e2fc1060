"""The command that judges what ended without a verdict: sweep."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.choices import WORKERS_OF_BATCH, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import METRICS, REJUDGE, WORKERS, all_of, choice_options, note_verbose
from tracker_health.cli.outcomes import show
from tracker_health.errors import ConfigError, RunError
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN,
    Output,
    Stop,
    say_error,
    say_failure,
    stopping,
    told,
)
from tracker_health.text import count, size_of

if TYPE_CHECKING:
    from tracker_health.sweep import Sweep


@cli.command()
@click.option(
    "--experiment",
    "experiments",
    multiple=True,
    metavar="NAME",
    help="Of MLflow: name, id or page; repeatable.",
)
@click.option(
    "--project",
    metavar="[ENTITY/]PROJECT[/sweeps/ID]",
    help="All runs of this W&B project or sweep, instead of MLflow's.",
)
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="Runs that ended no longer ago.")
@click.option("--rate", type=click.FloatRange(0.01, 10_000), metavar="N", help="At most N requests a second.")
@click.option("--dry-run", is_flag=True, help="Only say how much would be read and written.")
@click.option("--watch", type=click.IntRange(1, 86_400), metavar="SECONDS", help="Do it again after so long, for ever.")
@all_of(REJUDGE, METRICS, WORKERS, *choice_options(fail_on="never"))
@click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def sweep(rate: float | None, dry_run: bool, watch: int | None, **choices: Any) -> None:
    """Judge runs that ended without a verdict, or died without a word, and write the verdicts onto them.

    Meant for a service account, from cron or as a service. Without --experiment and --project all experiments of the
    tracking server are swept. Several sweeps at once leave each other's runs alone.
    """
    from tracker_health.settings_values import parse_duration
    from tracker_health.stores.deadline import at_most
    from tracker_health.sweep import Sweep

    if choices["project"] and choices["experiments"]:
        raise ConfigError("an experiment is of MLflow and a project of W&B", "name one of the two")
    settings = settings_of(choices, writes=True)
    at_most(rate)
    swept = Sweep(
        config=settings.config,
        experiments=choices["experiments"],
        project=choices["project"] or "",
        tracking_uri=settings.tracking_uri,
        since=parse_duration(choices["since"]),
        rejudge=choices.pop("rejudge"),
        workers=choices["workers"] or WORKERS_OF_BATCH,
    )
    if dry_run:
        sys.exit(_estimated(swept))
    with stopping(also=[signal.SIGTERM]) as stop:
        code = _swept(swept, stop, choices)
        while watch and not stop.wait(watch):
            _swept(swept, stop, choices)
    interrupted = stop.wanted and not watch
    sys.exit(EXIT_INTERRUPTED if interrupted else EXIT_DONE if watch else code)


def _estimated(swept: Sweep) -> int:
    """Say what a sweep would do; the exit code that this deserves."""
    found = swept.estimate(swept.candidates())
    for name, error in found.failed:
        say_failure(error, about=f"{name}: ", verbose=False)
    silent = f", {count(found.silent, 'silent run')} among them" if found.silent else ""
    click.echo(f"would read at most {size_of(found.size)} of files, write {count(found.runs, 'run')}{silent}")
    return EXIT_RUN if found.failed else EXIT_DONE


def _swept(swept: Sweep, stop: Stop, choices: dict[str, Any]) -> int:
    """Sweep once, and print what became of each run; the exit code that this deserves."""
    output, code, kinds, older = Output(), EXIT_DONE, Counter[str](), 0
    shown = {**choices, "form": "text", "quiet": choices["quiet"]}
    try:
        for one in swept.once(stop.until(swept.candidates())):
            kinds[one.kind] += 1
            older += one.outcome.replaces_older
            if one.kind == "taken":
                say_error(f"{one.run.name}: skipped, another annotator has it")
            elif one.kind != "unchanged":
                code = max(code, show(one.outcome, shown, output, brief=True))
    except (RunError, KeyboardInterrupt) as error:  # a service goes on when the server is back
        code = told(error, verbose=choices["verbose"])
        if not isinstance(error, RunError):
            stop.wanted = True
    if not choices["quiet"]:
        parts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("annotated", "unchanged", "taken", "failed"))
        behind = f"; {count(older, 'verdict')} had been older than the data" if older else ""
        click.echo(f"swept {count(kinds.total(), 'run')}: {parts}{behind}", err=True)
    return max(code, output.exit_code)
