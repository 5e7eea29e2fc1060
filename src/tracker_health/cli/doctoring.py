"""The command that tries out a server."""

from __future__ import annotations

import sys
from typing import Any

import click

from tracker_health.cli import completing
from tracker_health.cli.choices import refuse_both, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, all_of, note_verbose
from tracker_health.hooks.startup_path import why_not_at_start
from tracker_health.terminal import EXIT_DONE, EXIT_RUN, Output
from tracker_health.text import printable


@cli.command()
@click.option(
    "--experiment",
    metavar="NAME",
    help="Of MLflow: where the run is made.  [default: Default]",
    shell_complete=completing.experiments,
)
@click.option("--project", metavar="[ENTITY/]PROJECT", help="Of W&B: where the run is made, instead of MLflow.")
@click.option(
    "--dry-run", is_flag=True, help="Make nothing: say what can be said without that, and how the runs stand."
)
@all_of(TRACKING_URI, CONFIG_FILE)
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def doctor(experiment: str | None, project: str | None, dry_run: bool, **choices: Any) -> None:
    """Try out a server with this account: one run that is made, judged, and deleted again, and a registered model.

    Each line says what works, or why it does not, or how many runs there have a verdict; the last ones, which commands
    that is enough for. The exit code is 3 if something does not work. In MLflow a deleted run stays in the trash until
    mlflow gc. With --dry-run nothing is made.
    """
    from tracker_health.fleet import doctor as tried

    refuse_both(experiment, project)
    settings = settings_of(choices, writes=True)
    output, steps, place = Output(), [], experiment or "Default"
    if dry_run:
        examined = tried.look_at_wandb(project) if project else tried.look_at_mlflow(place, settings.tracking_uri)
    elif project:
        examined = tried.examine_wandb(project)
    else:
        examined = tried.examine_mlflow(place, settings.tracking_uri, settings.config)
    for step in examined:
        steps.append(step)
        detail = f": {printable(step.detail, 600)}" if step.detail else ""
        output.print(f"{step.state:<9}  {step.what}{detail}")
    if why := why_not_at_start():
        output.print(f"{tried.State.SEEN:<9}  hooks: {printable(why, 600)}")
    if not dry_run:
        for line in tried.commands_that_work(steps):
            output.print(line)
    failed = any(step.state in (tried.State.FAILS, tried.State.NOT_THERE) for step in steps)
    sys.exit(EXIT_RUN if failed else output.exit_code or EXIT_DONE)
