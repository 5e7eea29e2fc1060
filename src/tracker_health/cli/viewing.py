"""The command that makes a view of a W&B project."""

from __future__ import annotations

import json
import sys

import click

from tracker_health.cli.group import cli
from tracker_health.cli.options import note_verbose
from tracker_health.terminal import Output


@cli.command()
@click.option("--project", required=True, metavar="[ENTITY/]PROJECT", help="Of W&B, or the address of its page.")
@click.option("--name", default="Training health", show_default=True, help="What W&B's pages call the view.")
@click.option("--dry-run", is_flag=True, help="Only print what would be made; nothing is asked of the server.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: the description that would be sent.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def view(project: str, name: str, dry_run: bool, as_json: bool) -> None:
    """Make a saved view in W&B: the columns of the verdict, the runs that failed or were warned of, and their reports.

    Each call makes a view of its own, which all members of the project see, and prints its address. Runs are not
    changed. Needs the extra wandb-view.
    """
    from tracker_health.stores.wandb.view import view_of

    if as_json and not dry_run:
        raise click.UsageError("--json shows what would be sent: use it with --dry-run")
    made, output = view_of(project, name), Output()
    lines = [json.dumps(made.spec, allow_nan=False)] if as_json else made.lines()
    for line in lines if dry_run else [made.save()]:
        output.print(line)
    sys.exit(output.exit_code)
