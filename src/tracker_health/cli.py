"""The command line: thin. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import click

from tracker_health._version import __version__
from tracker_health.errors import ConfigError, RunError
from tracker_health.terminal import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RUN,
    EXIT_VERDICT,
    Output,
    Stop,
    Tally,
    draws_blocks,
    leave_threads,
    lines_of_input,
    ready_streams,
    say_error,
    say_failure,
    settle,
    show_downloads,
    stopping,
    told,
    width,
    write_page,
)
from tracker_health.text import count, listing, printable, size_of, without_userinfo
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tracker_health.annotating import Outcome
    from tracker_health.result import Report
    from tracker_health.settings import Effective, Setting
    from tracker_health.stores.base import Cleared, Listed
    from tracker_health.sweep import Sweep

_BRIEF_ABOVE = 5
_MOST_LINKS = 5
_WORKERS_OF_BATCH = 4
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

    RUN is a folder with checkpoints and logs or of a run of Weights & Biases (wandb/offline-run-...), an MLflow run
    (RUN_ID, mlflow:RUN_ID, runs:/RUN_ID), a run on a server of Weights & Biases (wandb:ENTITY/PROJECT/RUN), or the
    address of its page. To check only: the address of one checkpoint, as in https://host/last.ckpt or
    s3://bucket/last.ckpt. A single - reads a list of runs from standard input, one a line; # begins a comment.

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


_WORKERS = click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    help="Do so many runs at once (default 4 with --experiment or --project, else 1).",
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


def _run_options(fail_on: str, *, batch: bool = False) -> Callable[[Command], Command]:
    """The arguments and options that every command on runs has; ``batch``: also those that name many at once."""
    details = "Also what passed and what was skipped, and tracebacks."
    formats = "Of the report on standard output; markdown is for the summary of a CI job, json as --json."
    return _all_of(
        click.argument("runs", metavar="RUN...", nargs=-1, required=not batch),
        *((*_batch_options(), _WORKERS) if batch else ()),
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


def _batch_options() -> tuple[Callable[[Command], Command], ...]:
    """The options that name all runs of something."""
    where = "Of these only some: for an experiment in MLflow's own filter language, for a project in W&B's, as JSON."
    return (
        click.option("--experiment", metavar="NAME", help="All runs of this MLflow experiment."),
        click.option("--project", metavar="[ENTITY/]PROJECT", help="All runs of this W&B project."),
        click.option("--where", metavar="FILTER", help=where),
    )


@cli.command()
@_run_options(fail_on="fail", batch=True)
def check(runs: tuple[str, ...], **choices: Any) -> None:
    """Judge runs and print the verdicts. Writes nothing."""
    from tracker_health.api import check_many

    batch = _batch(choices)
    workers = _workers(choices, batch)
    settings = _settings(choices, fail_on="fail")
    work = partial(check_many, config=settings.config, tracking_uri=settings.tracking_uri, workers=workers)
    _finish(work, _chosen(runs, batch, settings), choices, writes=False)


@cli.command()
@_run_options(fail_on="never", batch=True)
@click.option("--dry-run", is_flag=True, help="Judge and show, but write nothing.")
@click.option("--force", is_flag=True, help="Judge and write even if nothing has changed since the last annotation.")
@click.option("--sidecar", is_flag=True, help="Of W&B runs on this machine write only files, and leave the log alone.")
@click.option("--dask", metavar="ADDRESS", help="Do the runs on the Dask cluster of this scheduler (tcp://host:8786).")
def annotate(
    runs: tuple[str, ...], dry_run: bool, force: bool, sidecar: bool, dask: str | None, **choices: Any
) -> None:
    """Judge runs and write the verdicts onto them."""
    from tracker_health.api import annotate_many

    batch = _batch(choices)
    workers = _workers(choices, batch)
    settings = _settings(choices, fail_on="never")
    with _cluster(dask) as executor:
        work = partial(
            annotate_many,
            config=settings.config,
            tracking_uri=settings.tracking_uri,
            dry_run=dry_run,
            force=force,
            sidecar=sidecar,
            workers=workers,
            executor=executor,
        )
        _finish(work, _chosen(runs, batch, settings), choices, writes=not dry_run)


def _cluster(address: str | None) -> AbstractContextManager[Executor | None]:
    if not address:
        return nullcontext()
    from tracker_health.cluster import dask_executor

    return dask_executor(address)


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="The page to write; - is standard output.")
@_all_of(*_batch_options(), *_choice_options(fail_on="never"))
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help="Tracebacks.")
def report(runs: tuple[str, ...], path: str, quiet: bool, **choices: Any) -> None:
    """Judge runs and write an HTML page about them: of one run its report, of several a table with their curves.

    The page needs no network and holds no script of anybody else's. Nothing is written onto the runs.
    """
    from tracker_health.api import compare, page_of_run

    batch = _batch(choices)
    settings = _settings(choices)
    listed = list(_chosen(runs, batch, settings).runs)
    if len(listed) == 1 and not batch.name:
        page = page_of_run(listed[0], config=settings.config, tracking_uri=settings.tracking_uri)
        reports, html = [page.report], page.html
        complete = not page.report.errors
        _say_unread(page.report)
    else:
        title = batch.name or count(len(listed), "run")
        outcomes, html = compare(listed, title=title, config=settings.config, tracking_uri=settings.tracking_uri)
        reports, complete = [one.report for one in outcomes], all(one.complete for one in outcomes)
        for one in outcomes:
            _say_errors(one, {**choices, "as_json": True}, brief=False)
    write_page(path, html)
    if not quiet and path != "-":
        verdicts = ", ".join(f"{sum(one.verdict is verdict for one in reports)} {verdict}" for verdict in Verdict)
        click.echo(f"{printable(path)}: {verdicts}")
    gate = choices["fail_on"]
    codes = [_verdict_code(one.verdict, gate) for one in reports]
    sys.exit(EXIT_RUN if not complete else max(codes, default=EXIT_DONE))


@cli.command()
@click.argument("runs", metavar="RUN...", nargs=-1)
@_all_of(*_batch_options())
@_TRACKING_URI
@_CONFIG_FILE
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help="Tracebacks.")
def clear(runs: tuple[str, ...], quiet: bool, verbose: bool, **choices: Any) -> None:
    """Take everything of ours off runs again, and nothing else.

    What a tracker cannot delete is hidden: an MLflow metric gets a last value of NaN, which takes it off the run's page
    and out of all filters but those with != in them.
    """
    from tracker_health.api import clear as clear_run

    batch = _batch(choices)
    settings = _settings(choices)
    code = EXIT_DONE
    for run in _chosen(runs, batch, settings).runs:
        shown = without_userinfo(str(run))
        try:
            cleared = clear_run(run, tracking_uri=settings.tracking_uri)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            say_failure(error, about=f"{shown}: ", verbose=verbose)
            code = EXIT_RUN
            continue
        if not quiet:
            click.echo(f"{printable(shown)}: {_came_to(cleared)}")
    sys.exit(code)


@cli.command()
@click.option("--experiment", "experiments", multiple=True, metavar="NAME", help="Of MLflow; may be repeated.")
@click.option("--project", metavar="[ENTITY/]PROJECT", help="All runs of this W&B project, instead of MLflow's.")
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="Runs that ended no longer ago.")
@click.option(
    "--stale-after", default="6h", show_default=True, metavar="TIME", help="Judge runs that are silent for longer."
)
@click.option("--rate", type=click.FloatRange(0.01, 10_000), metavar="N", help="At most N requests a second.")
@click.option("--dry-run", is_flag=True, help="Only say how much would be read and written.")
@click.option("--watch", type=click.IntRange(1, 86_400), metavar="SECONDS", help="Do it again after so long, for ever.")
@_all_of(_WORKERS, *_choice_options(fail_on="never"))
@click.option("--json", "as_json", is_flag=True, help="One JSON report a line, on standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, callback=_note_verbose, help="Tracebacks.")
def sweep(rate: float | None, dry_run: bool, watch: int | None, **choices: Any) -> None:
    """Judge runs that ended without a verdict, or died without a word, and write the verdicts onto them.

    Meant for a service account, from cron or as a service. Without --experiment and --project all experiments of the
    tracking server are swept. Several sweeps at once leave each other's runs alone.
    """
    from tracker_health.settings import parse_duration
    from tracker_health.stores.deadline import at_most
    from tracker_health.sweep import Sweep

    if choices["project"] and choices["experiments"]:
        raise ConfigError("an experiment is of MLflow and a project of W&B", "name one of the two")
    settings = _settings(choices)
    at_most(rate)
    swept = Sweep(
        config=settings.config,
        experiments=choices["experiments"],
        project=choices["project"] or "",
        tracking_uri=settings.tracking_uri,
        since=parse_duration(choices["since"]),
        stale_after=parse_duration(choices["stale_after"]),
        workers=choices["workers"] or _WORKERS_OF_BATCH,
    )
    if dry_run:
        sys.exit(_estimated(swept))
    with stopping(also=[signal.SIGTERM]) as stop:
        code = _swept(swept, stop, choices)
        while watch and not stop.wait(watch):
            _swept(swept, stop, choices)
    interrupted = stop.wanted and not watch
    sys.exit(EXIT_INTERRUPTED if interrupted else EXIT_DONE if watch else code)


def _estimated(swept: Sweep) -> int:
    """Say what a sweep would do; the exit code that this deserves."""
    found = swept.estimate(swept.candidates())
    for name, error in found.failed:
        say_failure(error, about=f"{name}: ", verbose=False)
    silent = f", {count(found.silent, 'silent run')} among them" if found.silent else ""
    click.echo(f"would read at most {size_of(found.size)} of files, write {count(found.runs, 'run')}{silent}")
    return EXIT_RUN if found.failed else EXIT_DONE


def _swept(swept: Sweep, stop: Stop, choices: dict[str, Any]) -> int:
    """Sweep once, and print what became of each run; the exit code that this deserves."""
    output, code, kinds = Output(), EXIT_DONE, Counter[str]()
    shown = {**choices, "form": "text", "quiet": choices["quiet"]}
    try:
        for one in swept.once(stop.until(swept.candidates())):
            kinds[one.kind] += 1
            if one.kind == "taken":
                say_error(f"{one.run.name}: skipped, another annotator has it")
            elif one.kind != "unchanged":
                code = max(code, _show(one.outcome, shown, output, brief=True))
    except (RunError, KeyboardInterrupt) as error:  # a service goes on when the server is back
        code = told(error, verbose=choices["verbose"])
        if not isinstance(error, RunError):
            stop.wanted = True
    if not choices["quiet"]:
        parts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("annotated", "unchanged", "taken", "failed"))
        click.echo(f"swept {count(kinds.total(), 'run')}: {parts}", err=True)
    return max(code, output.exit_code)


@cli.command()
@_all_of(*_batch_options())
@click.option("--since", metavar="TIME", help="Only runs that began no longer ago, as in 30d.")
@click.option("--by", metavar="WHAT", default="", help="Also in groups: user, week, code, or several with commas.")
@_TRACKING_URI
@_CONFIG_FILE
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_note_verbose, help="Tracebacks.")
def summary(since: str | None, by: str, as_json: bool, **choices: Any) -> None:
    """Show the verdicts over many runs, the most frequent reasons, and the worst runs.

    From the runs' tags alone: nothing is judged, and no history is read. Without --experiment and --project it is about
    all runs of the tracking server.
    """
    from tracker_health.api import overview_of
    from tracker_health.config import did_you_mean
    from tracker_health.overview import GROUPS, overview_lines
    from tracker_health.settings import parse_duration

    batch = _batch(choices, needs_name=False)
    groups = [part.strip() for part in by.split(",") if part.strip()]
    for unknown in (group for group in groups if group not in GROUPS):
        raise ConfigError(f"runs cannot be grouped by {printable(unknown, 40)!r}", did_you_mean(unknown, GROUPS))
    began = time.time() - parse_duration(since) if since else None
    uri = _settings(choices).tracking_uri
    found = overview_of(**batch._asdict(), tracking_uri=uri, since=began, by=groups)
    output = Output()
    for line in [json.dumps(found.to_json(), allow_nan=False)] if as_json else overview_lines(found):
        output.print(line)
    sys.exit(output.exit_code)


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
    output = Output()
    table = table_of(_only(run, "tensors"), config=settings.config, tracking_uri=settings.tracking_uri)
    lines = [json.dumps(table.to_json(), allow_nan=False)] if as_json else tensor_lines(table, everything=everything)
    for line in lines:
        output.print(line)
    _say_problems(table.run.id, table.problems)
    if table.missing and not table.problems:
        say_error(f"{table.run.id}: {table.missing}")
    sys.exit(EXIT_RUN if table.problems else output.exit_code)


@cli.command()
@click.argument("run")
@_TRACKING_URI
@_CONFIG_FILE
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting, as in roles.train_loss=my/loss."
)
@click.option("--max-download", metavar="SIZE", help="Fetch no more than this of a run's artifacts (default 2GB).")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_note_verbose, help="Tracebacks.")
def series(run: str, as_json: bool, **choices: Any) -> None:
    """Show the metric series that were found of a run: where, under which role, how many points.

    Below the table stand the settings that would give a role to what may have one and has none. Nothing is judged.
    """
    from tracker_health.api import series as table_of
    from tracker_health.render.series import series_lines

    settings = _settings(choices)
    output = Output()
    table = table_of(_only(run, "series"), config=settings.config, tracking_uri=settings.tracking_uri)
    for line in [json.dumps(table.to_json(), allow_nan=False)] if as_json else series_lines(table):
        output.print(line)
    _say_problems(table.run.id, [(problem.source, problem.message) for problem in table.problems])
    sys.exit(EXIT_RUN if table.problems else output.exit_code)


def _only(run: str, command: str) -> str:
    listed = _listed([run])
    if len(listed) > 1:
        raise ConfigError(f"{command} shows one run at a time", "name one run")
    return listed[0]


def _say_problems(run: str, problems: Iterable[tuple[str, str]]) -> None:
    for source, message in problems:
        say_error(": ".join(dict.fromkeys((run, source, message))))  # a run may be its own only source


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


@cli.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", metavar="-- CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(command: tuple[str, ...]) -> None:
    """Run a training command, and judge each of its runs when it ends.

    The command runs as it would without us: same streams, signals and environment, but for hooks on MLflow and W&B in
    it and in what it starts. The verdict is on a run when the command is done, and one line of it on standard error. A
    run whose process was killed, crashed or left by os._exit is judged as well, with that in its verdict (RUN003).

    The exit code is the command's own, or 128 and the signal that killed it; 127 where there is no such command, 126
    where it cannot be run. With TRACKER_HEALTH_DISABLED=1 the command runs without hooks.
    """
    from tracker_health.hooks.launcher import run

    sys.exit(run(command))


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


class _Batch(NamedTuple):
    """Runs that are named together."""

    experiment: str
    project: str
    where: str

    @property
    def name(self) -> str:
        """What they are the runs of, empty for nothing."""
        if self.experiment:
            return f"Experiment {self.experiment}"
        return f"Project {self.project}" if self.project else ""


def _batch(choices: dict[str, Any], *, needs_name: bool = True) -> _Batch:
    """What of the choices names many runs at once, which is taken out of them. ``needs_name``: a filter without one
    makes no sense.
    """
    batch = _Batch(*(choices.pop(name) or "" for name in ("experiment", "project", "where")))
    if batch.experiment and batch.project:
        raise ConfigError("an experiment is of MLflow and a project of W&B", "name one of the two")
    if needs_name and batch.where and not batch.name:
        hint = "name one with --experiment or --project"
        raise ConfigError("--where filters the runs of an experiment or a project", hint)
    return batch


class _Runs(NamedTuple):
    """The runs that a command is about. ``total``: how many, None where that is seen at the end."""

    runs: Iterable[str | Listed]
    total: int | None

    @property
    def many(self) -> bool:
        return self.total is None or self.total > _BRIEF_ABOVE


def _chosen(runs: Iterable[str], batch: _Batch, settings: Effective) -> _Runs:
    """The runs as given, and those of the batch, which are found while the first of them are done."""
    from tracker_health.api import runs_of_experiment, runs_of_project

    given = tuple(runs)
    listed: list[str | Listed] = [*_listed(given)] if given or not batch.name else []
    found: Iterator[str | Listed] = iter(())
    if batch.experiment:
        found = runs_of_experiment(batch.experiment, tracking_uri=settings.tracking_uri, where=batch.where)
    elif batch.project:
        found = runs_of_project(batch.project, where=batch.where)
    listed += islice(found, _BRIEF_ABOVE + 1)
    more = list(islice(found, 1))
    return _Runs(chain(listed, more, found), None if more else len(listed))


def _workers(choices: dict[str, Any], batch: _Batch) -> int:
    """How many threads: several where there are many runs, most likely of a server, one for folders named singly."""
    wanted: int | None = choices.pop("workers")
    return wanted or (_WORKERS_OF_BATCH if batch.name else 1)


def _finish(
    work: Callable[[Iterable[str | Listed]], Iterable[Outcome]], runs: _Runs, choices: dict[str, Any], *, writes: bool
) -> NoReturn:
    """Print each outcome as it comes, then exit with the code that the whole call deserves.

    ``writes``: the runs still to come are done even when nobody reads on.
    """
    choices["as_json"] = choices["as_json"] or choices["form"] == "json"
    output, code, links, tally = Output(), EXIT_DONE, {}, Tally(runs.total)
    try:
        with stopping() if runs.many else nullcontext(Stop()) as stop:
            for outcome in work(stop.until(runs.runs)):
                tally.clear()
                code = max(code, _show(outcome, choices, output, brief=runs.many))
                tally.add(outcome, draw=runs.many)
                links.update(_links(outcome, many=runs.many))
                if output.lost and not writes:
                    break
        interrupted = stop.wanted
        at_once = False
    except KeyboardInterrupt:
        interrupted = at_once = True
    tally.clear()
    if interrupted:
        hint = "run the same command again: what is done is not done again" if writes and runs.many else ""
        say_error(f"interrupted after {count(tally.done, 'run')}", hint)
        if at_once:
            leave_threads(EXIT_INTERRUPTED)
        sys.exit(EXIT_INTERRUPTED)
    if not tally.done:
        say_error("there is no such run: nothing was judged")
    if choices["form"] == "text" and not (choices["quiet"] or choices["as_json"]):
        for line in tally.table() if runs.many else ():
            click.echo(line, err=True)
        for link, what in list(links.items())[:_MOST_LINKS]:
            click.echo(f"{what}: {link}", err=True)
    sys.exit(max(code, output.exit_code))


def _links(outcome: Outcome, *, many: bool) -> dict[str, str]:
    """Where to see, in the tracker, what was written."""
    from tracker_health.opening import filter_link

    ref, verdict = outcome.report.run, outcome.report.verdict
    if outcome.status != "written":
        return {}
    if ref.store == "wandb" and ref.url:  # in whose addresses there is no place for a filter
        project = ref.url.rpartition("/runs/")[0]
        return {f"{project}/table": "the project's runs"} if many else {ref.url: "the run"}
    link = filter_link(ref, verdict)
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
    """What belongs on standard output; nothing in plain text of a run that could not be judged."""
    from tracker_health.render.console import one_line, report_lines
    from tracker_health.render.markdown import report_markdown

    if choices["as_json"]:
        return json.dumps(outcome.report.to_json(), allow_nan=False)
    if choices["quiet"]:
        return ""
    if choices["form"] == "markdown":  # of every run: a summary is read without standard error
        return "\n".join(report_markdown(outcome.report))
    if outcome.error is not None and outcome.annotations is None:
        return ""
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
        _say_unread(outcome.report)


def _say_unread(report: Report) -> None:
    for error in report.errors:
        if error.code is None:
            say_error(f"{report.run.id}: {error.source}: {error.message}")


def main() -> None:
    """The command line of a process of its own."""
    ready_streams()
    if sys.argv[1:2] != ["exec"]:  # whose command gets the environment as it is
        # In this process, which is ours alone: MLflow's own patience with a server that hangs is minutes long.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("WANDB_SILENT", "true")
    try:
        cli()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  what escapes even click, as from --help onto a full disk
        sys.exit(told(error))
    finally:
        settle(sys.stdout)
        settle(sys.stderr)
