"""The command group that all commands belong to, and how its help is laid out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from tracker_health._version import __version__
from tracker_health.cli.options import VERBOSE_KEY
from tracker_health.terminal import Patience, show_downloads, told
from tracker_health.text import printable

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Judge runs": ("check", "annotate", "report", "gate", "exec"),
    "Many runs": ("sweep", "summary", "diff", "baseline", "view"),
    "Compare runs": ("compare", "repaired"),
    "Answer a verdict": ("ack", "clear"),
    "While a run is still running": ("follow",),
    "Look closer": ("explain", "show", "rules", "config"),
    "Try it": ("demo", "doctor"),
    "For agents": ("mcp", "skill"),
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
    "Result": (
        "fail_on",
        "only",
        "order",
        "as_json",
        "in_brief",
        "all_rules",
        "form",
        "path",
        "opens",
        "quiet",
        "verbose",
        "everything",
    ),
}
"""The headings below which a command's help lists its options, by parameter; any other option comes first."""

OLD_NAMES: Mapping[str, tuple[str, ...]] = {
    "series": ("show", "metrics"),
    "tensors": ("show", "weights"),
    "probes": ("rules",),
}
"""What commands were called before; it still works, and no help lists it."""

_SPEAKING = frozenset({"exec", "follow", "demo", "doctor", "mcp"})
"""Commands that say all along what they do, or run a program that writes by itself."""

HELP_ALL = "--help-all"
"""The option that shows every option of a command; so in ``meta`` of a context whose help is to."""

_MANY = 12  # options, from which a command's help shows those alone that most calls need
_RARE = frozenset({
    "segment", "mode", "where", "workers", "config_file", "preset_name", "select", "checkpoint", "metrics", "settings",
    "tracking_uri", "max_download", "stale_after", "order", "rejudge", "form", "quiet", "force", "sidecar", "dask",
    "alert", "rate", "everywhere", "in_brief", "all_rules",
})  # fmt: skip
"""Options, by parameter, that only --help-all shows of such a command."""

EXAMPLES: Mapping[str, str] = {
    "ack": "tracker-health ack 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b LOS004 --because known --for 14d",
    "annotate": "tracker-health annotate --experiment my-experiment --workers 4",
    "baseline": "tracker-health baseline save experiment:my-experiment -o baseline.json",
    "check": "tracker-health check outputs/checkpoint-500 --fail-on warn",
    "clear": "tracker-health clear 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b",
    "compare": "tracker-health compare runs/lr-0.3 runs/lr-0.01 --open",
    "config": "tracker-health config --all",
    "demo": "tracker-health demo",
    "diff": "tracker-health diff --experiment my-experiment",
    "doctor": "tracker-health doctor --experiment my-experiment",
    "exec": "tracker-health exec -- python train.py",
    "explain": "tracker-health explain LOS004",
    "follow": "tracker-health follow 3f2a9c0e7b1d4e5f8a6b7c8d9e0f1a2b --stop-on fail",
    "mcp": "tracker-health mcp --root outputs --tracking-uri http://mlflow:5000",
    "gate": "tracker-health gate models:/net/3 --allow-unfinished",
    "rules": "tracker-health rules --json",
    "repaired": "tracker-health repaired runs/lr-0.3 runs/lr-0.01",
    "report": "tracker-health report outputs/checkpoint-500 --open",
    "show": "tracker-health show metrics outputs --set roles.train_loss=my/loss",
    "summary": "tracker-health summary --experiment my-experiment --by week",
    "skill": "tracker-health skill --install .claude/skills/tracker-health",
    "sweep": "tracker-health sweep --since 7d --dry-run",
    "view": "tracker-health view --experiment my-experiment",
}
"""One command line to copy for each command."""


class _Command(click.Command):
    """A command whose help has its options below headings, and an example."""

    def invoke(self, ctx: click.Context) -> Any:
        with nullcontext() if self.name in _SPEAKING else Patience().shown():
            return super().invoke(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if len(params) <= _MANY:
            return params
        return [*params[:-1], _help_all(), *params[-1:]]  # -h is the last

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = self.get_params(ctx)
        rare = _RARE if len(params) > _MANY and not ctx.meta.get(HELP_ALL) else frozenset()
        records = {
            parameter.name or "": record
            for parameter in params
            if isinstance(parameter, click.Option)
            and parameter.name not in rare
            and (record := parameter.get_help_record(ctx)) is not None
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


def _help_all() -> click.Option:
    """The option that shows every option of a command."""

    def shown(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            context.meta[HELP_ALL] = True
            click.echo(context.get_help(), color=context.color)
            context.exit()

    return click.Option(
        [HELP_ALL], is_flag=True, is_eager=True, expose_value=False, callback=shown, help="Show all options."
    )


class _Inner(click.Group):
    """A command with commands of its own."""

    command_class = _Command


class _Group(click.Group):
    """Lists the commands by what they are for, and turns whatever goes wrong into one line and an exit code."""

    command_class = _Command
    group_class = _Inner

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant: a path stands for ``check``, and an old name for the new one."""
        first, *rest = args
        if self.get_command(ctx, first) is None:
            if first in OLD_NAMES:
                args = [*OLD_NAMES[first], *rest]
            elif _names_a_run(first):
                args = ["check", *args]
            elif not first.startswith("-"):
                from tracker_health.config import did_you_mean  # here, since --help must load no numpy

                hint = did_you_mean(first, [*self.commands])
                raise click.UsageError(f"{printable(first)} is no command, file or folder ({hint})", ctx)
        return super().resolve_command(ctx, args)

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


def _names_a_run(word: str) -> bool:
    """Whether a word is a path that is there, or the address of a run of a tracker."""
    with suppress(OSError, ValueError):
        if Path(word).exists():
            return True
    is_id = re.fullmatch(r"[0-9a-f]{8,32}", word) is not None  # of MLflow, or the beginning of one
    return is_id or word.startswith(("mlflow:", "runs:/", "wandb:", "http://", "https://"))


def _section(formatter: click.HelpFormatter, title: str, records: Iterable[tuple[str, str]]) -> None:
    rows = list(records)
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tracker-health")
def cli() -> None:
    """Did that training run work? tracker-health judges it and says why: tracker-health PATH.

    It reads what a run left: metrics, optimizer state, weights and logs. It gives a verdict with one cause, and writes
    it onto the run in MLflow, Weights & Biases or trackio.

    \b
    RUN is one of
      a folder with checkpoints and logs, wandb/offline-run-..., mlflow.db
      an MLflow run: RUN_ID, mlflow:RUN_ID, runs:/RUN_ID
      a W&B run: wandb:ENTITY/PROJECT/RUN
      a trackio run: trackio:PROJECT/RUN
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
