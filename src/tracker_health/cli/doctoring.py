"""The command that tries out a server."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli import completing
from tracker_health.cli.choices import refuse_both, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, all_of, note_verbose
from tracker_health.hooks.startup_path import why_not_at_start
from tracker_health.terminal import EXIT_DONE, EXIT_RUN, Output
from tracker_health.text import printable, without_userinfo

if TYPE_CHECKING:
    from tracker_health.fleet.doctor import Step


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
@click.option("--versions", is_flag=True, help="Ask no server: only which versions are installed.")
@all_of(TRACKING_URI, CONFIG_FILE)
@click.option("--json", "as_json", is_flag=True, help="As one JSON document, with the versions that are installed.")
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Tracebacks.")
def doctor(
    experiment: str | None, project: str | None, dry_run: bool, versions: bool, as_json: bool, **choices: Any
) -> None:
    """Try out a server with this account: one run that is made, judged, and deleted again, and a registered model.

    Each line says what works, or why it does not, or how many runs there have a verdict; the last ones, which commands
    that is enough for, and which one comes next. The exit code is 3 if something does not work. In MLflow a deleted run
    stays in the trash until mlflow gc. With --dry-run nothing is made.
    """
    from tracker_health.fleet import doctor as tried

    refuse_both(experiment, project)
    output, steps = Output(), []
    if not versions:
        for step in _tried(experiment or "Default", project, dry_run, choices):
            steps.append(step)
            if not as_json:
                output.print(_line(step))
    follows = (
        tried.next_command(steps, _where(experiment or "Default", project, choices["tracking_uri"])) if steps else ""
    )
    if as_json:
        output.print(json.dumps(tried.document(steps, follows), indent=2))
    elif versions:
        for name, number in tried.versions().items():
            output.print(f"{name:<15} {printable(number)}")
    else:
        for line in tried.commands_that_work(steps) if not dry_run else ():
            output.print(line)
        if follows:
            output.print(f"next       {follows}")
    failed = any(step.state in (tried.State.FAILS, tried.State.NOT_THERE) for step in steps)
    sys.exit(EXIT_RUN if failed else output.exit_code or EXIT_DONE)


def _tried(experiment: str, project: str | None, dry_run: bool, choices: dict[str, Any]) -> Iterator[Step]:
    from tracker_health.fleet import doctor as tried

    settings = settings_of(choices, writes=True)
    if dry_run:
        yield from tried.look_at_wandb(project) if project else tried.look_at_mlflow(experiment, settings.tracking_uri)
    elif project:
        yield from tried.examine_wandb(project)
    else:
        yield from tried.examine_mlflow(experiment, settings.tracking_uri, settings.config)
    if why := why_not_at_start():
        yield tried.Step(what="hooks", state=tried.State.SEEN, detail=why)


def _line(step: Step) -> str:
    detail = f": {printable(step.detail, 600)}" if step.detail else ""
    return f"{step.state:<9}  {step.what}{detail}"


def _where(experiment: str, project: str | None, tracking_uri: str | None) -> str:
    """The options that name the same runs, as a shell takes them."""
    place = (
        f"--project {shlex.quote(printable(project))}"
        if project
        else f"--experiment {shlex.quote(printable(experiment))}"
    )
    server = f" --tracking-uri {shlex.quote(printable(without_userinfo(tracking_uri)))}" if tracking_uri else ""
    return place + server
