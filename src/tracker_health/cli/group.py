"""The command group that all commands belong to, and how its help is laid out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from tracker_health._version import __version__
from tracker_health.cli.options import VERBOSE_KEY
from tracker_health.terminal import show_downloads, told

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Judge runs": ("check", "annotate", "report", "gate", "exec"),
    "Many runs": ("sweep", "summary", "diff", "baseline", "view"),
    "Answer a verdict": ("ack", "clear"),
    "While a run goes on": ("follow",),
    "Look closer": ("explain", "series", "tensors", "probes", "config"),
    "Try it": ("demo", "doctor"),
}
"""The headings below which ``--help`` lists the commands; any other command comes last."""

PANELS: Mapping[str, tuple[str, ...]] = {
    "Which runs": ("experiment", "experiments", "project", "where", "since", "workers", "rate", "everywhere"),
    "How to judge": (
        "tracking_uri",
        "config_file",
        "preset_name",
        "select",
        "ignore",
        "settings",
        "checkpoint",
        "max_download",
        "stale_after",
        "against",
        "rejudge",
    ),
    "Result": ("fail_on", "only", "order", "as_json", "form", "path", "opens", "quiet", "verbose", "everything"),
}
"""The headings below which a command's help lists its options, by parameter; any other option comes first."""

EXAMPLES: Mapping[str, str] = {
    "ack": "tracker-health ack 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b LOS004 --because known --for 14d",
    "annotate": "tracker-health annotate --experiment my-experiment --workers 4",
    "baseline": "tracker-health baseline save experiment:my-experiment -o baseline.json",
    "check": "tracker-health check outputs/checkpoint-500 --fail-on warn",
    "clear": "tracker-health clear 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b",
    "config": "tracker-health config --all",
    "demo": "tracker-health demo",
    "diff": "tracker-health diff --experiment my-experiment",
    "doctor": "tracker-health doctor --experiment my-experiment",
    "exec": "tracker-health exec -- python train.py",
    "explain": "tracker-health explain LOS004",
    "follow": "tracker-health follow 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b --stop-on fail",
    "gate": "tracker-health gate models:/net/3 --allow-unfinished",
    "probes": "tracker-health probes --json",
    "report": "tracker-health report outputs/checkpoint-500 --open",
    "series": "tracker-health series outputs --set roles.train_loss=my/loss",
    "summary": "tracker-health summary --experiment my-experiment --by week",
    "sweep": "tracker-health sweep --since 7d --dry-run",
    "tensors": "tracker-health tensors outputs/checkpoint-500",
    "view": "tracker-health view --experiment my-experiment",
}
"""One command line to copy for each command."""


class _Command(click.Command):
    """A command whose help has its options below headings, and an example."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            parameter.name or "": record
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None
        }
        listed = {name for names in PANELS.values() for name in names}
        own = [record for name, record in records.items() if name not in listed]
        _section(formatter, "Options", own)
        for title, names in PANELS.items():
            _section(formatter, title, (records[name] for name in names if name in records))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.name is not None and self.name in EXAMPLES:
            with formatter.section("Example"):
                formatter.write_text(EXAMPLES[self.name])


class _Group(click.Group):
    """Lists the commands by what they are for, and turns whatever goes wrong into one line and an exit code."""

    command_class = _Command

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  told, whatever it is; -v shows the traceback
            sys.exit(told(error, verbose=context.meta.get(VERBOSE_KEY)))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        helps = {name: self.commands[name].get_short_help_str(limit=200) for name in self.list_commands(ctx)}
        listed = {name for names in SECTIONS.values() for name in names}
        for title, names in {**SECTIONS, "Other": tuple(sorted(helps.keys() - listed))}.items():
            _section(formatter, title, ((f"{name:<8}", helps[name]) for name in names if name in helps))


def _section(formatter: click.HelpFormatter, title: str, records: Iterable[tuple[str, str]]) -> None:
    rows = list(records)
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tracker-health")
def cli() -> None:
    """Did that training run work? tracker-health judges it and says why.

    It reads what a run left: metrics, optimizer state, weights and logs. It gives a verdict with one cause, and writes
    it onto the run in MLflow or Weights & Biases.

    \b
    RUN is one of
      a folder with checkpoints and logs, wandb/offline-run-..., mlflow.db
      an MLflow run: RUN_ID, mlflow:RUN_ID, runs:/RUN_ID
      a W&B run: wandb:ENTITY/PROJECT/RUN
      the address of a run's page
      to check only: https://host/last.ckpt, s3://bucket/last.ckpt
      -  for a list from standard input, one per line, # for comments

    \b
    Exit codes
      0    done
      1    a verdict at --fail-on or worse
      2    wrong usage or configuration
      3    a run could not be found, read, judged or written; of several runs
           those that go on or have a verdict of their owner's do not count
      130  after Ctrl-C
    """  # noqa: D301  \b keeps click from joining these lines
    show_downloads()
