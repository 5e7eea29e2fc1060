"""The command line: thin. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tracker_health._version import __version__
from tracker_health.errors import ConfigError, TrackerHealthError
from tracker_health.text import count, printable

if TYPE_CHECKING:
    from tracker_health.api import Outcome
    from tracker_health.config import Config

EXIT_DONE, EXIT_VERDICT, EXIT_USAGE, EXIT_RUN, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
_BRIEF_ABOVE = 5
_FAIL_ON = ("fail", "warn", "skip", "never")

Command = TypeVar("Command", bound=Callable[..., Any])


class _Group(click.Group):
    """Turns what goes wrong on purpose into one line and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ConfigError as error:
            _say_error(error.message, error.hint)
            context.exit(EXIT_USAGE)
        except TrackerHealthError as error:
            _say_error(error.message, error.hint)
            context.exit(EXIT_RUN)
        except BrokenPipeError:
            # The reader of our output has left. What is still buffered must not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(EXIT_DONE)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tracker-health")
def cli() -> None:
    """A doctor for tracked training runs.

    Reads what a run left behind (metric history, optimizer state, logs), judges whether the training was healthy, and
    writes the verdict onto the run, where people filter by it.

    RUN is a folder with checkpoints and logs, or an MLflow run: RUN_ID, mlflow:RUN_ID or runs:/RUN_ID. A single -
    reads a list of runs from standard input.

    Exit codes: 0 done; 1 a verdict at or above --fail-on; 2 wrong usage or configuration; 3 a run could not be found,
    read, judged or written; 130 after Ctrl-C.
    """


def _run_options(fail_on: str) -> Callable[[Command], Command]:
    """The arguments and options that every command on runs has."""
    presets = "default, strict, or dlm (the two original rules, exactly)."
    single = "One setting, as in probes.diverged.sigmas=6 or roles.train_loss=my/loss."
    download = "Fetch no more than this of a run's artifacts (default 2GB); beyond it a rule is skipped."
    gate = "The verdict from which on the exit code is 1 (skip: anything but pass)."
    options = (
        click.argument("runs", metavar="RUN...", nargs=-1, required=True),
        click.option(
            "--tracking-uri", metavar="URI", help="The MLflow store of run ids; by default MLflow's own choice."
        ),
        click.option("--preset", "preset_name", default="default", show_default=True, help=presets),
        click.option(
            "--select", multiple=True, metavar="CODE", help="Run only this rule (code or name); may be repeated."
        ),
        click.option("--ignore", multiple=True, metavar="CODE", help="Do not run this rule; may be repeated."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=single),
        click.option(
            "--checkpoint",
            metavar="PATH",
            help="The checkpoint to judge, relative to the run, where there are several.",
        ),
        click.option("--max-download", metavar="SIZE", help=download),
        click.option("--fail-on", type=click.Choice(_FAIL_ON), default=fail_on, show_default=True, help=gate),
        click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("-v", "--verbose", is_flag=True, help="Also what passed and what was skipped, and tracebacks."),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@cli.command()
@_run_options(fail_on="fail")
def check(runs: tuple[str, ...], tracking_uri: str | None, **choices: Any) -> None:
    """Judge runs and print the verdicts. Writes nothing."""
    from tracker_health.api import check_many

    config = _config(choices)
    _finish(check_many(_listed(runs), config=config, tracking_uri=tracking_uri), choices, total=len(runs))


@cli.command()
@_run_options(fail_on="never")
@click.option("--dry-run", is_flag=True, help="Judge and show, but write nothing.")
@click.option("--force", is_flag=True, help="Judge and write even if nothing has changed since the last annotation.")
def annotate(runs: tuple[str, ...], tracking_uri: str | None, dry_run: bool, force: bool, **choices: Any) -> None:
    """Judge runs and write the verdicts onto them."""
    from tracker_health.api import annotate_many

    config = _config(choices)
    outcomes = annotate_many(_listed(runs), config=config, tracking_uri=tracking_uri, dry_run=dry_run, force=force)
    _finish(outcomes, choices, total=len(runs))


@cli.command()
@click.argument("code")
def explain(code: str) -> None:
    """What a rule means, how it decides, and what to do. CODE is a rule's code or name."""
    from tracker_health.config import did_you_mean
    from tracker_health.registry import probe_classes
    from tracker_health.render.docs import explain as explanation

    for probe in probe_classes():
        if code.upper() == probe.code or code.lower() == probe.name:
            click.echo(explanation(probe), nl=False)
            return
    names = [name for probe in probe_classes() for name in (probe.code, probe.name)]
    raise ConfigError(f"there is no rule {printable(code)!r}", did_you_mean(code, names))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, one rule a line.")
def probes(as_json: bool) -> None:
    """List the rules."""
    from tracker_health.config import preset
    from tracker_health.probe import explanation_of
    from tracker_health.registry import probe_classes

    config = preset("default")
    for probe in probe_classes():
        votes = config.counts(probe.code, probe.status)
        summary = explanation_of(probe).summary
        if as_json:
            record = {
                "code": probe.code,
                "name": probe.name,
                "symptom": str(probe.symptom),
                "status": probe.status,
                "votes": votes,
                "summary": summary,
            }
            click.echo(json.dumps(record))
        else:
            click.echo(f"{probe.code}  {probe.name:<18} {probe.status:<8} {'' if votes else 'no vote':<8} {summary}")


@cli.command()
@click.argument("folder", default="tracker-health-demo", required=False)
def demo(folder: str) -> None:
    """Train three small models, log them to MLflow, judge them, and show it all.

    FOLDER takes the store (default: tracker-health-demo).
    """
    from tracker_health.demo import run_demo

    if not all(outcome.complete for outcome in run_demo(folder)):
        sys.exit(EXIT_RUN)


def _config(choices: dict[str, Any]) -> Config:
    from tracker_health.settings import configured

    return configured(
        preset_name=choices["preset_name"],
        select=choices["select"],
        ignore=choices["ignore"],
        settings=choices["settings"],
        checkpoint=choices["checkpoint"],
        max_download=choices["max_download"],
    )


def _listed(runs: Iterable[str]) -> Iterator[str]:
    """The runs as given, with - replaced by the lines of standard input."""
    for run in runs:
        if run != "-":
            yield run
            continue
        for line in sys.stdin:
            if line.strip():
                yield line.strip()


def _finish(outcomes: Iterable[Outcome], choices: dict[str, Any], *, total: int) -> None:
    """Print each outcome as it comes, then exit with the code that the whole call deserves."""
    worst_code = EXIT_DONE
    done = 0
    try:
        for outcome in outcomes:
            done += 1
            _show(outcome, choices, brief=total > _BRIEF_ABOVE)
            worst_code = max(worst_code, _exit_code(outcome, choices["fail_on"]))
    except KeyboardInterrupt:
        _say_error(f"interrupted after {count(done, 'run')}")
        worst_code = EXIT_INTERRUPTED
    if not done and worst_code == EXIT_DONE:
        raise ConfigError("no run was given", "name a folder or a run id")
    sys.exit(worst_code)


def _exit_code(outcome: Outcome, fail_on: str) -> int:
    if not outcome.complete:
        return EXIT_RUN
    verdict = str(outcome.report.verdict)
    counted = {"fail": {"fail"}, "warn": {"fail", "warn"}, "skip": {"fail", "warn", "skip"}, "never": set()}[fail_on]
    return EXIT_VERDICT if verdict in counted else EXIT_DONE


def _show(outcome: Outcome, choices: dict[str, Any], *, brief: bool) -> None:
    report = outcome.report
    if outcome.error is not None:
        _say_failure(outcome, verbose=choices["verbose"])
    elif report.errors and (choices["as_json"] or choices["quiet"]):
        for error in report.errors:
            if error.code is None:
                _say_error(f"{report.run.id}: {error.source}: {error.message}")
    if choices["as_json"]:
        click.echo(json.dumps(report.to_json(), allow_nan=False))
    elif not choices["quiet"] and outcome.error is None:
        _print_report(outcome, verbose=choices["verbose"], brief=brief)


def _print_report(outcome: Outcome, *, verbose: bool, brief: bool) -> None:
    from tracker_health.render.console import one_line, report_lines

    if brief and not verbose:
        _print(f"{one_line(outcome.report)}{_status(outcome)}")
        return
    for line in report_lines(outcome.report, width=_width(), verbose=verbose):
        _print(line)
    if status := _status(outcome):
        _print(f" {status}")


def _status(outcome: Outcome) -> str:
    return {
        "written": "  written onto the run",
        "unchanged": "  unchanged: nothing was read, nothing was written",
        "dry-run": "  dry run: nothing was written",
    }.get(outcome.status, "")


def _say_failure(outcome: Outcome, *, verbose: bool) -> None:
    error = outcome.error
    if isinstance(error, TrackerHealthError):
        _say_error(error.message, error.hint)
    else:
        _say_error(f"{outcome.run}: {outcome.report.errors[0].message}", "-v shows the traceback; please report it")
    if verbose and error is not None:
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True)


def _say_error(message: str, hint: str = "") -> None:
    click.echo(f"tracker-health: {printable(message, 1000)}", err=True)
    if hint:
        click.echo(f"  try: {printable(hint, 1000)}", err=True)


def _print(line: str) -> None:
    click.echo(line, color=False if os.environ.get("NO_COLOR") else None)


def _width() -> int:
    """Columns to wrap to: the terminal's, or a hundred where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 140) if sys.stdout.isatty() else 100


def main() -> None:
    """The console script."""
    # In this process, which is ours alone: MLflow's own patience with a server that hangs is minutes long.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    cli()


if __name__ == "__main__":
    main()
