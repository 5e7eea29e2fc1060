"""The command that follows a run while it is running: follow."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from tracker_health.cli.baselines import AGAINST, compared_to
from tracker_health.cli.choices import only_run, settings_of
from tracker_health.cli.group import cli
from tracker_health.cli.options import CONFIG_FILE, TRACKING_URI, note_verbose
from tracker_health.terminal import EXIT_INTERRUPTED, Output, say_error, stopping

if TYPE_CHECKING:
    from tracker_health.fleet.follow import Event


@cli.command()
@click.argument("run")
@click.option(
    "--stop-on", type=click.Choice(["fail", "warn"]), help="Ask the run to stop at such a finding, or a worse one."
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    help="So long after a judgement comes the next, if something was logged; sooner where the history grew by 5 %.",
)
@AGAINST
@click.option("--dry-run", is_flag=True, help="Only say what would be asked: nothing is written or sent.")
@TRACKING_URI
@CONFIG_FILE
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One setting, as in notify.on=warn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document per event, of at most 2 kB.")
@click.option("--brief", "in_brief", is_flag=True, help="The same as --json: events are brief.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=note_verbose, help="Tracebacks.")
def follow(
    run: str, stop_on: str | None, every: float, dry_run: bool, against: tuple[str, ...], **choices: Any
) -> None:
    """Judge a run while it is running, and say what is wrong with it as soon as that is sure.

    RUN is a run in MLflow, W&B or trackio, or a folder. The rules are those that can speak before the end. Each
    finding is printed once, with its step. The command ends when the run does.

    It never ends a process itself. With --stop-on it puts a request onto the run: the tag health.stop in MLflow, the
    tag health:stop in W&B. A training stops only if it asked for that, with LiveHealth(obey=True).

    A confirmed FAIL goes out as a message if [notify] has a receiver, once per run and cause. So does a loss above the
    band of --against.
    """
    from tracker_health.fleet.follow import Follower

    configured, followed = settings_of(choices), only_run(run, "follow")
    if against:
        configured = compared_to(against, configured, [followed])
    follower = Follower(
        followed,
        configured.config,
        configured.tracking_uri,
        stop_on=stop_on,
        every=every,
        dry_run=dry_run,
    )
    output = Output()
    with stopping(also=[signal.SIGTERM]) as stop:
        for event in follower.events(stop.wait):
            output.print(_text(event, as_json=choices["as_json"] or choices["in_brief"]))
            if output.lost:
                break
    if stop.wanted:
        say_error("no longer followed; the run is still running")
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(output.exit_code)


def _text(event: Event, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(event.to_json(time.time()), allow_nan=False)
    return f"{time.strftime('%H:%M:%S')}  {event}"
