"""The command by which people answer a verdict: ack."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from tracker_health.cli import completing
from tracker_health.cli.choices import only_run, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, note_verbose
from tracker_health.terminal import say
from tracker_health.text import printable


@cli.command()
@click.argument("run")
@click.argument("names", metavar="[CODE|CAUSE]...", nargs=-1, shell_complete=completing.rules_and_causes)
@click.option("--because", default="", metavar="TEXT", help="Why; needed but with --undo.")
@click.option("--wrong", is_flag=True, help="It is a false alarm: summary counts it against the rule and the cause.")
@click.option("--for", "lasts", metavar="TIME", help="Only so long, as in 14d; then it is open again.")
@click.option("--undo", is_flag=True, help="Take back what was acknowledged, by anyone.")
@click.option("--who", metavar="NAME", help="Who says so, as it will be shown; nobody checks it (default: your login).")
@TRACKING_URI
@CONFIG_FILE
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def ack(run: str, names: tuple[str, ...], lasts: str | None, as_json: bool, quiet: bool, **choices: Any) -> None:
    """Acknowledge the verdict that is on a run: someone has looked, and it need not be shown again.

    Without names it is about all that was found; else about these rules (code or name), or about the cause with all
    that it explains. The verdict and its tags stay as they are. Next to them health.ack says who acknowledged it, and
    health.open whether someone still has to look; --fail-on counts what is open alone. It is kept as a list on the run
    to which entries are only added. It survives another annotation and an upgrade, and no longer counts once the run
    has gone on, or another cause is found. Nothing is judged: the run must have a verdict.
    """
    from tracker_health.api import acknowledge
    from tracker_health.config import parse_duration
    from tracker_health.fleet.operations import login

    settings = settings_of(choices)
    found = acknowledge(
        only_run(run, "ack"),
        names,
        because=choices["because"],
        who=choices["who"] or login(),
        wrong=choices["wrong"],
        until=time.time() + parse_duration(lasts) if lasts else None,
        undo=choices["undo"],
        config=settings.config,
        tracking_uri=settings.tracking_uri,
    )
    if as_json:
        say(json.dumps(found.to_json(), allow_nan=False))
    elif not quiet:
        said = "taken back" if found.entry.undoes else found.entry.said
        codes = f" ({', '.join(found.entry.codes)})" if found.entry.codes else ""
        left = f"still open: {', '.join(found.open)}" if found.open else "nothing is open"
        say(f"{found.verdict.upper()} {printable(found.run.name, 80)}: {said}{codes}; {left}")
    sys.exit(0)
