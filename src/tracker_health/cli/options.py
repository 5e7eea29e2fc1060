"""The options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tracker_health.cli import completing
from tracker_health.text import printable
from tracker_health.words.order import ORDERS
from tracker_health.words.verdict import Verdict

_FORMATS = ("text", "json", "markdown", "github", "junit")
_FORMATS_HELP = (
    "The format of the report on standard output. markdown is for the summary of a CI job, and junit is a test report. "
    "github prints annotations of GitHub Actions and adds to GITHUB_STEP_SUMMARY. json is the same as --json."
)
_FAIL_ON = ("fail", "warn", "skip", "never")
VERBOSE_KEY = "tracker_health.verbose"

Command = TypeVar("Command", bound=Callable[..., Any])


def note_verbose(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Keep -v where the group finds it, who handles what escapes a command."""
    context.meta[VERBOSE_KEY] = value
    return value


TRACKING_URI = click.option(
    "--tracking-uri", metavar="URI", help="The MLflow store of run ids; by default MLflow's own choice."
)
CONFIG_FILE = click.option(
    "--config", "config_file", metavar="FILE", help="Read this configuration file, and look for no other."
)
WORKERS = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Judge N runs in parallel (default 4 with --experiment or --project, else 1).",
)


METRICS = click.option(
    "--metrics", is_flag=True, help="Write measures as metrics, too; report.json always has them all."
)


SHADOW = click.option(
    "--shadow",
    "mode",
    flag_value="shadow",
    default=None,
    help="Only try it out: judge, write the one tag health.shadow, and exit with 0 whatever is found.",
)


def since_option(default: str | None = None) -> Callable[[Command], Command]:
    """How far a command on many runs looks back. ``default``: as ``7d``; None for to the first run."""
    return click.option(
        "--since",
        metavar="TIME",
        default=default,
        show_default=default is not None,
        help="Runs that ended no longer ago.",
    )


def _verdicts_of(_: click.Context, option: click.Parameter, text: str | None) -> tuple[Verdict, ...]:
    """The verdicts of a list with commas."""
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    if (unknown := next((word for word in words if word not in [*Verdict]), None)) is not None:
        raise click.BadParameter(f"{printable(unknown, 40)!r} is none of {', '.join(Verdict)}", param=option)
    return tuple(map(Verdict, words))


CHOOSING = (
    click.option(
        "--only",
        metavar="VERDICTS",
        callback=_verdicts_of,
        help="Show only runs with one of these verdicts, as in fail,warn. The exit code and the counts are of all.",
    ),
    click.option(
        "--sort",
        "order",
        type=click.Choice([*ORDERS]),
        help="Show runs in this order: the worst verdict first, by name, or by cause.",
    ),
)
"""Which of the runs that were judged are shown, and in which order."""


BRIEF = click.option(
    "--brief", "in_brief", is_flag=True, help="As JSON of at most 2 kB, for the context of a model; implies --json."
)
ALL_RULES = click.option("--all", "all_rules", is_flag=True, help="With --json: also the rules that were skipped.")

FORMAT = click.option("--format", "form", type=click.Choice(_FORMATS), default="text", help=_FORMATS_HELP)
REJUDGE = click.option(
    "--rejudge", is_flag=True, help="Also judge ended runs again whose verdict is of another version of the rules."
)


def choice_options(fail_on: str | None) -> tuple[Callable[[Command], Command], ...]:
    """The options that a configuration file has as well. None has a default of its own here: what was not given is left
    to the environment, the files and the preset. ``fail_on``: what that is by default; None for a command without it.
    """
    presets = "default, strict, or dlm (the two original rules, exactly)."
    single = "One setting, as in rules.diverged.sigmas=6 or roles.train_loss=my/loss (instead of its usual names)."
    download = "Fetch no more than this of a run's artifacts (default 2GB); beyond it a rule is skipped."
    silent = "A run that claims to be running and is silent for longer counts as dead (default 6h)."
    gate = "The exit code is 1 at this verdict or worse (skip: anything but pass)."
    return (
        TRACKING_URI,
        CONFIG_FILE,
        click.option("--preset", "preset_name", show_default="default", help=presets),
        click.option(
            "--select",
            multiple=True,
            metavar="CODE",
            help="Run only this rule (code or name); may be repeated.",
            shell_complete=completing.rules,
        ),
        click.option(
            "--ignore",
            multiple=True,
            metavar="CODE",
            help="Do not run this rule; may be repeated.",
            shell_complete=completing.rules,
        ),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=single),
        click.option(
            "--checkpoint",
            metavar="PATH",
            help="The checkpoint to judge, relative to the run, where there are several.",
        ),
        click.option("--segment", metavar="N", help="Of several trainings in one log the N-th, and not the last."),
        click.option("--max-download", metavar="SIZE", help=download),
        click.option("--stale-after", metavar="TIME", help=silent),
        *(
            (click.option("--fail-on", type=click.Choice(_FAIL_ON), show_default=fail_on, help=gate),)
            if fail_on
            else ()
        ),
    )


def batch_options() -> tuple[Callable[[Command], Command], ...]:
    """The options that name all runs of something."""
    where = "Of these only some: for an experiment in MLflow's own filter language, for a project in W&B's, as JSON."
    return (
        click.option(
            "--experiment",
            metavar="NAME",
            help="All runs of this MLflow experiment: its name, id, or page.",
            shell_complete=completing.experiments,
        ),
        click.option(
            "--project",
            metavar="[ENTITY/]PROJECT",
            help="All runs of this W&B project, or PROJECT/sweeps/ID; of trackio trackio:PROJECT.",
        ),
        click.option("--where", metavar="FILTER", help=where),
    )


def run_options(fail_on: str, *, batch: bool = False) -> Callable[[Command], Command]:
    """The arguments and options that every command on runs has; ``batch``: also those that name many at once."""
    as_json = "One JSON report a line, on standard output; of at most 2 kB with --brief."
    details = "Also what passed and what was skipped, and tracebacks."
    return all_of(
        click.argument("runs", metavar="RUN...", nargs=-1, required=not batch),
        *((*batch_options(), WORKERS) if batch else ()),
        *choice_options(fail_on),
        click.option("--json", "as_json", is_flag=True, help=as_json),
        BRIEF,
        ALL_RULES,
        FORMAT,
        *(CHOOSING if batch else ()),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help=details),
    )


def settle_json(choices: dict[str, Any]) -> None:
    """Make one choice of --json, --brief, --all and --format: ``as_json``, ``in_brief`` and ``all_rules``.

    Raises:
        click.UsageError: they contradict each other.
    """
    form = choices.get("form", "text")
    if choices["in_brief"] and form not in ("text", "json"):
        raise click.UsageError(f"--brief is JSON, and --format {form} is not: leave out one of them")
    choices["as_json"] = choices["as_json"] or choices["in_brief"] or form == "json"
    choices["form"] = "json" if choices["as_json"] else form
    if choices["all_rules"] and (choices["in_brief"] or not choices["as_json"]):
        raise click.UsageError("--all is of --json: add that, and leave out --brief")


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator of several: the first one's option is shown first in --help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
