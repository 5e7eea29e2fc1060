"""The command line: thin. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tracker_health._version import __version__
from tracker_health.errors import ConfigError
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN,
    EXIT_VERDICT,
    Output,
    draws_blocks,
    lines_of_input,
    ready_streams,
    say_error,
    say_failure,
    settle,
    show_downloads,
    told,
    width,
    write_page,
)
from tracker_health.text import count, listing, printable, without_userinfo
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.api import Outcome
    from tracker_health.result import Report
    from tracker_health.settings import Effective, Setting
    from tracker_health.stores.base import Cleared

_BRIEF_ABOVE = 5
_MOST_LINKS = 5
_FORMATS = ("text", "json", "markdown")
_FAIL_ON = ("fail", "warn", "skip", "never")
_VERBOSE = "tracker_health.verbose"

Command = TypeVar("Command", bound=Callable[..., Any])


class _Group(click.Group):
    """Turns whatever goes wrong into one line and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  told, whatever it is; -v shows the traceback
            sys.exit(told(error, verbose=context.meta.get(_VERBOSE)))


def _note_verbose(context: click.Context, _: click.Parameter, value: bool) -> bool:
    """Keep -v where the group finds it, who handles what escapes a command."""
    context.meta[_VERBOSE] = value
    return value


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tracker-health")
def cli() -> None:
    """A doctor for tracked training runs.

    Reads what a run left behind (metric history, optimizer state, logs), judges whether the training was healthy, and
    writes the verdict onto the run, where people filter by it.

    RUN is a folder with checkpoints and logs, or an MLflow run: RUN_ID, mlflow:RUN_ID, runs:/RUN_ID, or the address of
    its page. To check only: the address of one checkpoint, as in https://host/last.ckpt or s3://bucket/last.ckpt. A
    single - reads a list of runs from standard input, one a line; # begins a comment.

    Exit codes: 0 done; 1 a verdict at or above --fail-on; 2 wrong usage or configuration; 3 a run could not be found,
    read, judged or written; 130 after Ctrl-C.
    """
    show_downloads()


_TRACKING_URI = click.option(
    "--tracking-uri", metavar="URI", help="The MLflow store of run ids; by default MLflow's own choice."
)
_CONFIG_FILE = click.option(
    "--config", "config_file", metavar="FILE", help="Read this configuration file, and look for no other."
)


def _choice_options(fail_on: str) -> tuple[Callable[[Command], Command], ...]:
    """The options that a configuration file has as well. None has a default of its own here: what was not given is left
    to the environment, the files and the preset.
    """
    presets = "default, strict, or dlm (the two original rules, exactly)."
    single = "One setting, as in probes.diverged.sigmas=6 or roles.train_loss=my/loss (instead of its usual names)."
    download = "Fetch no more than this of a run's artifacts (default 2GB); beyond it a rule is skipped."
    gate = "The verdict from which on the exit code is 1 (skip: anything but pass)."
    return (
        _TRACKING_URI,
        _CONFIG_FILE,
        click.option("--preset", "preset_name", show_default="default", help=presets),
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
        click.option("--fail-on", type=click.Choice(_FAIL_ON), show_default=fail_on, help=gate),
    )


def _run_options(fail_on: str) -> Callable[[Command], Command]:
    """The arguments and options that every command on runs has."""
    details = "Also what passed and what was skipped, and tracebacks."
    formats = "Of the report on standard output; markdown is for the summary of a CI job, json as --json."
    return _all_of(
        click.argument("runs", metavar="RUN...", nargs=-1, required=True),
        *_choice_options(fail_on),
        click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output."),
        click.option("--format", "form", type=click.Choice(_FORMATS), default="text", help=formats),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help=details),
    )


def _all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@cli.command()
@_run_options(fail_on="fail")
def check(runs: tuple[str, ...], **choices: Any) -> None:
    """Judge runs and print the verdicts. Writes nothing."""
    from tracker_health.api import check_many

    settings, listed = _settings(choices, fail_on="fail"), _listed(runs)
    outcomes = check_many(listed, config=settings.config, tracking_uri=settings.tracking_uri)
    _finish(outcomes, choices, total=len(listed), writes=False)


@cli.command()
@_run_options(fail_on="never")
@click.option("--dry-run", is_flag=True, help="Judge and show, but write nothing.")
@click.option("--force", is_flag=True, help="Judge and write even if nothing has changed since the last annotation.")
def annotate(runs: tuple[str, ...], dry_run: bool, force: bool, **choices: Any) -> None:
    """Judge runs and write the verdicts onto them."""
    from tracker_health.api import annotate_many

    settings, listed = _settings(choices, fail_on="never"), _listed(runs)
    outcomes = annotate_many(
        listed, config=settings.config, tracking_uri=settings.tracking_uri, dry_run=dry_run, force=force
    )
    _finish(outcomes, choices, total=len(listed), writes=not dry_run)


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="The page to write; - is standard output.")
@click.option("--experiment", metavar="NAME", help="All runs of this MLflow experiment.")
@click.option("--where", metavar="FILTER", help="Of the experiment only these runs, in MLflow's own filter language.")
@_all_of(*_choice_options(fail_on="never"))
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help="Tracebacks.")
def report(
    runs: tuple[str, ...], path: str, experiment: str | None, where: str | None, quiet: bool, **choices: Any
) -> None:
    """Judge runs and write an HTML page about them: of one run its report, of several a table with their curves.

    The page needs no network and holds no script of anybody else's. Nothing is written onto the runs.
    """
    from tracker_health.api import compare, page_of_run, runs_of_experiment

    if where and not experiment:
        raise ConfigError("--where filters the runs of an experiment", "name one with --experiment")
    settings = _settings(choices)
    listed = _listed(runs) if runs or not experiment else []
    if experiment:
        listed += runs_of_experiment(experiment, tracking_uri=settings.tracking_uri, where=where or "")
    if len(listed) == 1 and not experiment:
        page = page_of_run(listed[0], config=settings.config, tracking_uri=settings.tracking_uri)
        reports, html = [page.report], page.html
        complete = not page.report.errors
    else:
        title = f"Experiment {experiment}" if experiment else count(len(listed), "run")
        outcomes, html = compare(listed, title=title, config=settings.config, tracking_uri=settings.tracking_uri)
        reports, complete = [one.report for one in outcomes], all(one.complete for one in outcomes)
    write_page(path, html)
    if not quiet and path != "-":
        verdicts = ", ".join(f"{sum(one.verdict is verdict for one in reports)} {verdict}" for verdict in Verdict)
        click.echo(f"{printable(path)}: {verdicts}")
    gate = choices["fail_on"]
    codes = [_verdict_code(one.verdict, gate) for one in reports]
    sys.exit(EXIT_RUN if not complete else max(codes, default=EXIT_DONE))


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@_TRACKING_URI
@_CONFIG_FILE
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help="Tracebacks.")
def clear(runs: tuple[str, ...], tracking_uri: str | None, config_file: str | None, quiet: bool, verbose: bool) -> None:
    """Take everything of ours off runs again, and nothing else.

    What a tracker cannot delete is hidden: an MLflow metric gets a last value of NaN, which takes it off the run's page
    and out of all filters but those with != in them.
    """
    from tracker_health.api import clear as clear_run

    settings = _settings({"tracking_uri": tracking_uri, "config_file": config_file})
    code = EXIT_DONE
    for run in _listed(runs):
        try:
            cleared = clear_run(run, tracking_uri=settings.tracking_uri)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            say_failure(error, about=f"{without_userinfo(run)}: ", verbose=verbose)
            code = EXIT_RUN
            continue
        if not quiet:
            click.echo(f"{printable(without_userinfo(run))}: {_came_to(cleared)}")
    sys.exit(code)


def _came_to(cleared: Cleared) -> str:
    if not cleared.found:
        return "nothing of ours on it"
    hidden = f"; hidden, as they cannot be deleted: {listing(list(cleared.hidden), 20)}" if cleared.hidden else ""
    kept = f"; could not be deleted: {listing(list(cleared.kept), 20)}" if cleared.kept else ""
    return f"cleared{hidden}{kept}"


@cli.command()
@click.argument("run")
@_TRACKING_URI
@_CONFIG_FILE
@click.option("--checkpoint", metavar="PATH", help="The checkpoint to show, relative to the run, of several.")
@click.option("--max-download", metavar="SIZE", help="Fetch no more than this of a run's artifacts (default 2GB).")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document, with every tensor.")
@click.option("--all", "everything", is_flag=True, help="Every tensor, and not only the worst.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_note_verbose, help="Tracebacks.")
def tensors(run: str, as_json: bool, everything: bool, **choices: Any) -> None:
    """Show the tensors of a run's checkpoint: what the optimizer keeps for each, and the weights, the worst first.

    m and v are Adam's first and second moment, snr is m squared over v with bias correction, w the weight, and upd/w
    the size of a step over that of the weight. Names that are not in the file are given where an order of the
    parameters is the only one that fits; the head of the table says so. Nothing is judged.
    """
    from tracker_health.api import tensors as table_of
    from tracker_health.render.tensors import tensor_lines

    settings = _settings(choices)
    listed = _listed([run])
    if len(listed) > 1:
        raise ConfigError("tensors shows one run at a time", "name one run")
    output = Output()
    table = table_of(listed[0], config=settings.config, tracking_uri=settings.tracking_uri)
    lines = [json.dumps(table.to_json(), allow_nan=False)] if as_json else tensor_lines(table, everything=everything)
    for line in lines:
        output.print(line)
    for source, message in table.problems:
        say_error(f"{table.run.id}: {source}: {message}")
    if table.missing and not table.problems:
        say_error(f"{table.run.id}: {table.missing}")
    sys.exit(EXIT_RUN if table.problems else output.exit_code)


@cli.command()
@click.argument("code")
def explain(code: str) -> None:
    """What a rule means, how it decides, and what to do. CODE is a rule's code or name.

    Rules of installed plugins too, unless the environment has TRACKER_HEALTH_PLUGINS=0.
    """
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
    """List the rules.

    Those of installed plugins too, unless the environment has TRACKER_HEALTH_PLUGINS=0.
    """
    from tracker_health.config import preset
    from tracker_health.probe import explanation_of
    from tracker_health.registry import plugins, probe_classes

    for error in plugins().errors:
        say_error(f"{error.source}: {error.message}")
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
@_all_of(*_choice_options(fail_on="as the command has it"))
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("--all", "everything", is_flag=True, help="Also what is at its default.")
def config(as_json: bool, everything: bool, **choices: Any) -> None:
    """Show the configuration in force, and where each value came from.

    Command line, environment (TRACKER_HEALTH_...), tracker-health.toml, [tool.tracker-health] in pyproject.toml,
    preset, defaults: what comes first wins. Only what is not at its default is shown.
    """
    from tracker_health.engine import configured_probes

    settings = _settings(choices)
    configured_probes(settings.config)
    shown = settings.described(everything=everything)
    if as_json:
        document = {
            "schema": "tracker-health/config/1",
            "files": list(settings.files),
            "config_digest": settings.config.digest,
            "settings": {key: {"value": one.value, "origin": one.origin} for key, one in shown.items()},
        }
        click.echo(json.dumps(document, allow_nan=False))
        return
    for line in _config_lines(settings.files, shown):
        click.echo(line)


def _config_lines(files: tuple[str, ...], shown: dict[str, Setting]) -> list[str]:
    written = [(f"{key} = {_toml(one.value)}", one.origin) for key, one in shown.items()]
    width = min(max((len(text) for text, _ in written), default=0), 60)
    head = f"# read: {', '.join(printable(file) for file in files) or 'no configuration file'}"
    lines = [f"{printable(text, 1000):<{width}}   {printable(origin)}" for text, origin in written]
    return [head, *(lines or ["# everything is at its default; --all shows it"])]


def _toml(value: Any) -> str:
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)


@cli.command()
@click.argument("folder", default="tracker-health-demo", required=False)
def demo(folder: str) -> None:
    """Train three small models, log them to MLflow, judge them, and show it all.

    FOLDER takes the store (default: tracker-health-demo).
    """
    from tracker_health.demo import run_demo

    if not all(outcome.complete for outcome in run_demo(folder)):
        sys.exit(EXIT_RUN)


def _settings(choices: dict[str, Any], fail_on: str = "never") -> Effective:
    """The configuration in force; what it says of ``fail_on``, or else this, is put into the choices."""
    from tracker_health.settings import effective

    settings = effective(choices, config_file=choices["config_file"])
    for warning in settings.warnings:
        say_error(warning)
    choices["fail_on"] = settings.fail_on or fail_on
    return settings


def _listed(runs: Iterable[str]) -> list[str]:
    """The runs as given, with - replaced by the lines of standard input."""
    listed: list[str] = []
    for run in runs:
        listed += lines_of_input() if run == "-" else [run]
    if not listed:
        raise ConfigError("no run was given", "name a folder or a run id")
    return listed


def _finish(outcomes: Iterable[Outcome], choices: dict[str, Any], *, total: int, writes: bool) -> NoReturn:
    """Print each outcome as it comes, then exit with the code that the whole call deserves.

    ``writes``: the runs still to come are done even when nobody reads on.
    """
    choices["as_json"] = choices["as_json"] or choices["form"] == "json"
    output, code, done, links = Output(), EXIT_DONE, 0, {}
    try:
        for outcome in outcomes:
            code = max(code, _show(outcome, choices, output, brief=total > _BRIEF_ABOVE))
            done += 1
            links.update(_links(outcome))
            if output.lost and not writes:
                break
    except KeyboardInterrupt:
        say_error(f"interrupted after {count(done, 'run')}")
        sys.exit(EXIT_INTERRUPTED)
    if choices["form"] == "text" and not (choices["quiet"] or choices["as_json"]):
        for link, what in list(links.items())[:_MOST_LINKS]:
            click.echo(f"{what}: {link}", err=True)
    sys.exit(max(code, output.exit_code))


def _links(outcome: Outcome) -> dict[str, str]:
    """Where to see, in the tracker, what was written."""
    from tracker_health.api import filter_link

    ref, verdict = outcome.report.run, outcome.report.verdict
    link = filter_link(ref, verdict) if outcome.status == "written" else ""
    return {link: f"all runs with {verdict}"} if link else {}


def _exit_code(outcome: Outcome, fail_on: str) -> int:
    if not outcome.complete:
        return EXIT_RUN
    return _verdict_code(outcome.report.verdict, fail_on)


def _verdict_code(verdict: Verdict, fail_on: str) -> int:
    counted = {"fail": {"fail"}, "warn": {"fail", "warn"}, "skip": {"fail", "warn", "skip"}, "never": set()}[fail_on]
    return EXIT_VERDICT if str(verdict) in counted else EXIT_DONE


def _show(outcome: Outcome, choices: dict[str, Any], output: Output, *, brief: bool) -> int:
    """Print one outcome; the exit code that it deserves."""
    try:
        text = _text(outcome, choices, brief=brief)
    except Exception as error:  # noqa: BLE001  one result that cannot be shown never stops the others
        outcome = outcome.failed_with(error)
        text = _text(outcome, choices, brief=brief)
    if text:
        output.print(text)
    _say_errors(outcome, choices, brief=brief)
    return _exit_code(outcome, choices["fail_on"])


def _text(outcome: Outcome, choices: dict[str, Any], *, brief: bool) -> str:
    """What belongs on standard output; of a run that could not be judged only its JSON."""
    from tracker_health.render.console import one_line, report_lines
    from tracker_health.render.markdown import report_markdown

    if choices["as_json"]:
        return json.dumps(outcome.report.to_json(), allow_nan=False)
    if choices["quiet"] or (outcome.error is not None and outcome.annotations is None):
        return ""
    if choices["form"] == "markdown":
        return "\n".join(report_markdown(outcome.report))
    verbose, status, report = choices["verbose"], _status(outcome), _judgement(outcome)
    if brief and not verbose:
        return f"{one_line(report)}{status and f'  {status}'}"
    drawn = outcome.sketch if draws_blocks() else ""
    lines = report_lines(report, width=width(), verbose=verbose, sketch=drawn)
    return "\n".join([*lines, *([f"  {status}"] if status else [])])


def _status(outcome: Outcome) -> str:
    exceptions = f", except {printable('; '.join(outcome.omitted), 1000)}" if outcome.omitted else ""
    return {
        "written": f"written onto the run{exceptions}",
        "dry-run": "dry run: nothing was written",
        "failed": "not written onto the run",
    }.get(outcome.status, "")


def _judgement(outcome: Outcome) -> Report:
    """The report without what is told after it: what was left out, and why it could not be written."""
    report = outcome.report
    if outcome.omitted:
        report = replace(report, notes=report.notes[:-1])
    return report if outcome.error is None else replace(report, errors=report.errors[:-1])


def _say_errors(outcome: Outcome, choices: dict[str, Any], *, brief: bool) -> None:
    """Name on standard error what failed, unless the result on standard output does."""
    if outcome.error is not None:
        say_failure(outcome.error, about=f"{outcome.run}: ", verbose=choices["verbose"])
    elif choices["as_json"] or choices["quiet"] or (brief and outcome.report.verdict is not Verdict.ERROR):
        for error in outcome.report.errors:
            if error.code is None:
                say_error(f"{outcome.report.run.id}: {error.source}: {error.message}")


def main() -> None:
    """The command line of a process of its own."""
    ready_streams()
    # In this process, which is ours alone: MLflow's own patience with a server that hangs is minutes long.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    try:
        cli()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  what escapes even click, as from --help onto a full disk
        sys.exit(told(error))
    finally:
        settle(sys.stdout)
        settle(sys.stderr)
