"""The command group that all commands belong to."""

from __future__ import annotations

import sys
from typing import Any

import click

from tracker_health._version import __version__
from tracker_health.cli.options import VERBOSE_KEY
from tracker_health.terminal import show_downloads, told


class _Group(click.Group):
    """Turns whatever goes wrong into one line and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  told, whatever it is; -v shows the traceback
            sys.exit(told(error, verbose=context.meta.get(VERBOSE_KEY)))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tracker-health")
def cli() -> None:
    """A doctor for tracked training runs.

    Reads what a run left behind (metric history, optimizer state, logs), judges whether the training was healthy, and
    writes the verdict onto the run, where people filter by it.

    RUN is a folder with checkpoints and logs or of a run of Weights & Biases (wandb/offline-run-...), an MLflow run
    (RUN_ID, mlflow:RUN_ID, runs:/RUN_ID), a run on a server of Weights & Biases (wandb:ENTITY/PROJECT/RUN), or the
    address of its page. To check only: the address of one checkpoint, as in https://host/last.ckpt or
    s3://bucket/last.ckpt. A single - reads a list of runs from standard input, one a line; # begins a comment.

    Exit codes: 0 done; 1 a verdict at or above --fail-on; 2 wrong usage or configuration; 3 a run could not be found,
    read, judged or written; 130 after Ctrl-C.
    """
    show_downloads()
