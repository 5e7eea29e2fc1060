"""The commands that have a training run: exec and demo."""

from __future__ import annotations

import sys

import click

from tracker_health.cli.group import cli
from tracker_health.terminal import EXIT_RUN


@cli.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(0, 86_400),
    default=10.0,
    show_default=True,
    help="How long to wait for the final verdicts when the command is done; 0: not at all.",
)
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(command: tuple[str, ...], wait: float) -> None:
    """Run a training command, and judge each of its runs when it ends.

    The command runs as it would without us: same streams, signals and environment, but for hooks on MLflow, W&B and
    trackio in it and in what it starts. When it is done, the final verdict on each run is waited for, and printed
    in one line on standard error. A run whose process was killed, crashed or left by os._exit is judged as well,
    with that in its verdict (RUN003, RUN004).

    The exit code is the command's own, and a signal that killed it ends this process, too: a shell shows 128 and the
    signal for both. 127 where there is no such command, 126 where it cannot be run. With TRACKER_HEALTH_DISABLED=1 the
    command runs without hooks.
    """
    from tracker_health.hooks.launcher import end_as, run

    end_as(run(command, wait))


@cli.command()
@click.argument("folder", default="tracker-health-demo", required=False)
def demo(folder: str) -> None:
    """Train three small models, log them to MLflow, judge them, and show it all.

    FOLDER takes the store (default: tracker-health-demo).
    """
    from tracker_health.cli.demo import run_demo

    if not all(outcome.complete for outcome in run_demo(folder)):
        sys.exit(EXIT_RUN)
