"""The command that makes a view with the verdicts, of an MLflow experiment or a W&B project."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from tracker_health.cli import completing
from tracker_health.cli.group import cli
from tracker_health.cli.options import TRACKING_URI, note_verbose
from tracker_health.terminal import Output


@cli.command()
@click.option(
    "--experiment",
    metavar="NAME",
    help="Of MLflow: its name, its id or the address of its page.",
    shell_complete=completing.experiments,
)
@click.option("--project", metavar="[ENTITY/]PROJECT", help="Of W&B, or the address of its page.")
@TRACKING_URI
@click.option("--name", default="Training health", show_default=True, help="What W&B's pages call the view.")
@click.option("--remove", is_flag=True, help="Take the view of an experiment off again.")
@click.option("--dry-run", is_flag=True, help="Only print what would be made; nothing is asked of the server.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: the description that would be sent.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def view(project: str | None, name: str, **choices: Any) -> None:
    """Make a view with the column of the verdict, of the runs that failed or were warned of, and print its address.

    In MLflow it is one tag of the experiment, which its pages read; made again, it takes the place of the earlier one.
    In W&B each call makes a saved view of its own, also with causes and reports, which all members of the project see;
    that needs the extra wandb-view. Runs are not changed.
    """
    experiment: str | None = choices["experiment"]
    if (experiment is None) == (project is None):
        raise click.UsageError("give --experiment for MLflow, or --project for W&B")
    if choices["as_json"] and not choices["dry_run"]:
        raise click.UsageError("--json shows what would be sent: use it with --dry-run")
    if choices["remove"] and (experiment is None or choices["dry_run"]):
        raise click.UsageError("--remove takes the view of an --experiment off, and goes with no --dry-run")
    output = Output()
    if experiment is not None:
        made = _view_of_experiment(experiment, choices["tracking_uri"])
    else:
        made = _view_of_project(project or "", name)
    if choices["remove"]:
        lines = ["the view was taken off" if made.remove() else "there is no view of ours"]
    elif choices["dry_run"]:
        lines = [json.dumps(made.spec, allow_nan=False)] if choices["as_json"] else made.lines()
    else:
        lines = [made.save()]
    for line in lines:
        output.print(line)
    sys.exit(output.exit_code)


def _view_of_experiment(experiment: str, tracking_uri: str | None) -> Any:
    from tracker_health.stores.mlflow.view import ExperimentView

    return ExperimentView(experiment, tracking_uri)


def _view_of_project(project: str, name: str) -> Any:
    from tracker_health.stores.wandb.view import view_of

    return view_of(project, name)
