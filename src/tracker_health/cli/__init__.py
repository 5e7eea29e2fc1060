"""The command line: thin. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys

from tracker_health.cli import (  # noqa: F401  each adds its commands
    answering,
    baselines,
    clearing,
    comparing,
    doctoring,
    explaining,
    following,
    gating,
    looking,
    serving,
    skilling,
    sweeping,
    training,
    verdicts,
    viewing,
)
from tracker_health.cli.group import cli
from tracker_health.terminal import ready_streams, settle, told
from tracker_health.words.tracker_environment import FOR_TRACKERS

__all__ = ["cli", "main"]


def main() -> None:
    """The command line of a process of its own."""
    ready_streams()
    if sys.argv[1:2] != ["exec"]:  # whose command gets the environment as it is
        os.environ |= FOR_TRACKERS | os.environ
    try:
        cli()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  what escapes even click, as from --help onto a full disk
        sys.exit(told(error))
    finally:
        settle(sys.stdout)
        settle(sys.stderr)
