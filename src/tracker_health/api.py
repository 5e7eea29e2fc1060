"""The library's front door: judge runs, or judge them and write the verdicts onto them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.config import Config
from tracker_health.errors import ConfigError, ReadError, RunError, TrackerHealthError, described
from tracker_health.evidence import Baseline, Evidence, Part, Request, RunRef
from tracker_health.report.baseline import baseline_of, from_json, siblings_among
from tracker_health.report.result import Report
from tracker_health.roles import NOTHING_READ
from tracker_health.runs.annotating import AnnotateOptions, annotate_run
from tracker_health.runs.candidates import candidates_among
from tracker_health.runs.clearing import clear_ours, count_ours
from tracker_health.runs.comparing import Comparison, Repair, compare_runs, judge_repair_of, write_repair
from tracker_health.runs.judging import check_run, judge_run
from tracker_health.runs.lookup import open_run, shown_name
from tracker_health.runs.outcome import Outcome, add_note, failed_outcome
from tracker_health.runs.parallel import in_executor, in_threads
from tracker_health.runs.run_config import open_with_config, resolve_config
from tracker_health.stores.base import Cleared, Ours
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Listed
from tracker_health.stores.named import listed_runs as runs_of_named
from tracker_health.stores.named import named_in
from tracker_health.stores.named import tagged_runs as tagged_of_named
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tracker_health.render.series import SeriesTable
    from tracker_health.render.tensors import TensorTable
    from tracker_health.runs.acknowledging import Answered
    from tracker_health.runs.overview import Overview

_MOST_BYTES = 2_000_000
_IN_HAND = 64
_RETRIES = 2


def runs_of_experiment(name: str, *, tracking_uri: str | None = None, where: str = "") -> Iterator[Listed]:
    """The runs of an MLflow experiment, the newest first; ``where`` is a filter in MLflow's language.

    As text each is its id. One that is given on is opened without asking for it again, and its histories are read
    together with those of the runs after it.

    Raises:
        RunNotFound: there is no such experiment.
        RunError: the store cannot be reached, or does not understand the filter.
    """
    from tracker_health.stores.mlflow.experiment import listed_runs

    return listed_runs([name], tracking_uri, where)


def runs_of_server(*, tracking_uri: str | None = None) -> Iterator[Listed]:
    """The runs of all experiments of an MLflow server, as ``runs_of_experiment`` gives them.

    Raises:
        RunError: the store cannot be reached.
    """
    from tracker_health.stores.mlflow.experiment import listed_runs

    return listed_runs([], tracking_uri)


def runs_of_project(name: str, *, where: str = "") -> Iterator[Listed]:
    """The runs of a W&B project (``ENTITY/PROJECT``, or ``PROJECT`` of one's own) or of a sweep in it (with
    ``/sweeps/ID`` behind that), the newest first; ``where`` is a filter in W&B's language, as JSON. As text each is its
    ``wandb:ENTITY/PROJECT/RUN``. ``trackio:PROJECT`` is a project of trackio's, which has no filters.

    Raises:
        ConfigError: the filter is no JSON object, or the store has none.
        RunNotFound: there is no such project.
        RunError: the server cannot be reached, or does not understand the filter.
    """
    if project := named_in(name):
        return runs_of_named(project, where)
    from tracker_health.stores.wandb.project import listed_runs

    return listed_runs(name, where)


def check(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> Report:
    """Judge a run and write nothing.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The report, as ``tracker-health check`` prints it.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all. What cannot be read of a run that is there is listed in the
            report's ``errors``.
    """
    return check_run(run, resolve_config(config), tracking_uri).report


def check_many(
    runs: Iterable[str | Path | Listed],
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    workers: int = 1,
) -> Iterator[Outcome]:
    """``check`` for each run. A run that fails gives an outcome with its ``error``; the others are still judged.

    Args:
        runs: The runs, each as for ``check``.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        workers: Threads: see ``annotate_many``.

    Returns:
        An outcome for each run, with its report or its error.

    Raises:
        ConfigError: the configuration names something that does not exist.
    """
    options = AnnotateOptions(config=resolve_config(config), tracking_uri=tracking_uri)
    yield from in_threads(_Task(options, writes=False), runs, workers)


def annotate(
    run: str | Path | Listed,
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    sidecar: bool = False,
    alert: bool = False,
    rejudge: bool = False,
    notify: bool = False,
) -> Outcome:
    """Judge a run and write the verdict onto it; while the annotation there still holds, neither is done again.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        dry_run: Judge, and give the annotations without writing them.
        force: Judge and write even if nothing has changed.
        sidecar: Of a W&B run on this machine write only the files, and leave its log alone.
        alert: Alert on trackio's pages also of a run that ended more than a day ago.
        rejudge: Judge again where only the rules have changed; else a run that has ended keeps its verdict.
        notify: The caller sends the message that the outcome may have as ``notice``; without it none is due.

    Returns:
        What was done: the report, what was written, and the status (``written``, ``unchanged``, ...).

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found, read at all, or written.
    """
    options = AnnotateOptions(
        config=resolve_config(config, writes=True),
        tracking_uri=tracking_uri,
        dry_run=dry_run,
        force=force,
        sidecar=sidecar,
        alert=alert,
        rejudge=rejudge,
        notify=notify,
    )
    return annotate_as(run, options)


def annotate_as(run: str | Path | Listed, options: AnnotateOptions) -> Outcome:
    """``annotate`` with all that a hook may ask for.

    Raises:
        RunError: the run cannot be found, read at all, or written.
    """
    outcome = annotate_run(run, options)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def annotate_many(
    runs: Iterable[str | Path | Listed],
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    sidecar: bool = False,
    alert: bool = False,
    rejudge: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
    report_to: str | Path | None = None,
    notify: bool = False,
) -> Iterator[Outcome]:
    """``annotate`` for each run. A run that fails gives an outcome with its ``error``; the others are still done.

    Args:
        runs: The runs, each as for ``annotate``. One is taken when there is a thread free for it.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        dry_run: Judge, and give the annotations without writing them.
        force: Judge and write even if nothing has changed.
        sidecar: Of a W&B run on this machine write only the files, and leave its log alone.
        alert: Alert on trackio's pages also of a run that ended more than a day ago.
        rejudge: Judge again where only the rules have changed; else a run that has ended keeps its verdict.
        workers: Threads. With more than one, outcomes come in the order in which they are ready.
        executor: Does the runs instead, one a task, perhaps in other processes or on other machines. They open the runs
            by name in the store of ``tracking_uri``, with the credentials of their own environment. What a worker that
            died had in hand is given to another, where the executor continues without it (Dask's does; of the standard
            library's pool of processes all runs that are left fail).
        report_to: Write nothing onto the runs. The reports go into folders of their own below this one, and count as
            what was written before.
        notify: As for ``annotate``.

    Returns:
        An outcome for each run; those of parent runs without metrics come last. From an ``executor`` they hold no
        contents of files.

    Raises:
        ConfigError: the configuration names something that does not exist.
    """
    options = AnnotateOptions(
        config=resolve_config(config, writes=True),
        tracking_uri=tracking_uri,
        dry_run=dry_run,
        force=force,
        sidecar=sidecar,
        alert=alert,
        rejudge=rejudge,
        report_to=None if report_to is None else Path(report_to),
        notify=notify,
    )
    if executor is None:
        yield from annotate_each(runs, options, workers)
        return
    task = _Task(options)
    names: Iterator[str] = (str(run) for run in runs)
    for name, result in in_executor(task.elsewhere, names, executor, in_hand=_IN_HAND, retries=_RETRIES):
        yield failed_outcome(name, result, options.config) if isinstance(result, Exception) else result


def annotate_each(runs: Iterable[str | Path | Listed], options: AnnotateOptions, workers: int = 1) -> Iterator[Outcome]:
    """``annotate_many`` with all that may be asked for, in this process."""
    return _parents_last(_Task(options), runs, workers)


def _parents_last(task: _Task, runs: Iterable[str | Path | Listed], workers: int) -> Iterator[Outcome]:
    """The outcomes, those of parent runs at the end and once more, when the runs below them are judged."""
    in_hand: dict[str, str | Path | Listed] = {}
    parents: list[tuple[str | Path | Listed, Outcome]] = []

    def remembering() -> Iterator[str | Path | Listed]:
        for run in runs:
            in_hand[shown_name(run)] = run
            yield run

    for outcome in in_threads(task, remembering(), workers):
        run = in_hand.pop(outcome.run, outcome.run)
        if outcome.report.is_parent and outcome.status in ("written", "shadow"):
            parents.append((run, outcome))
        else:
            yield outcome
    for run, outcome in parents:
        again = task(run if isinstance(run, Path) else str(run))  # a search's record is from before it was written
        yield outcome if again.status == "unchanged" else again


@dataclass(frozen=True)
class _Task:
    """What is to be done to each run of many: to annotate it, or only to check it."""

    options: AnnotateOptions
    writes: bool = True

    def __call__(self, run: str | Path | Listed) -> Outcome:
        try:
            if self.writes:
                return annotate_run(run, self.options)
            return check_run(run, self.options.config, self.options.tracking_uri)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            return failed_outcome(run, error, self.options.config)

    def elsewhere(self, run: str) -> Outcome:
        """The same for another process: with nothing in it that is large, or that cannot travel."""
        outcome = self(run)
        annotations, error = outcome.annotations, outcome.error
        if annotations is not None:
            annotations = replace(annotations, files=dict.fromkeys(annotations.files, b""))
        if error is not None and not isinstance(error, TrackerHealthError):
            error = RunError(described(error))
        return replace(outcome, annotations=annotations, error=error)


def acknowledge(
    run: str | Path | Listed,
    names: Iterable[str] = (),
    *,
    because: str,
    who: str,
    wrong: bool = False,
    until: float | None = None,
    undo: bool = False,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> Answered:
    """Answer the verdict on a run; the verdict stays.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``.
        names: Codes or names of rules, or the cause, that are meant; without any all that was found.
        because: Why, as stated, bounded; may be empty with ``undo``.
        who: Who says so, as stated, bounded.
        wrong: It is a false alarm.
        until: When it no longer counts, in seconds since 1970.
        undo: Take back what was answered before.
        config: A ``Config``, or the name of a preset; only its trusted hosts count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The entry that was added, and which findings are still open.

    Raises:
        ConfigError: nobody is named or no reason given, or the run has no such finding or cause.
        RunError: the run cannot be found or written to, or has no whole verdict of its present data.
    """
    from tracker_health.runs.acknowledging import acknowledge_verdict

    resolve_config(config)
    return acknowledge_verdict(
        run, tuple(names), because=because, who=who, wrong=wrong, until=until, undo=undo, tracking_uri=tracking_uri
    )


def ours_on(run: str | Path | Listed, *, config: Config | str = "default", tracking_uri: str | None = None) -> Ours:
    """What of ours is on a run, as its record says: what ``clear_annotations`` would take off it. Nothing is written.

    Args:
        run: As for ``clear_annotations``.
        config: A ``Config``, or the name of a preset; only its trusted hosts count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        How many tags, files and metrics, and what ``clear_annotations`` leaves.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found.
    """
    resolve_config(config)
    return count_ours(run, tracking_uri).ours


def clear_annotations(
    run: str | Path | Listed,
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    acks: bool = False,
) -> Cleared:
    """Take everything that tracker-health wrote off a run again, and nothing else.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``. Or a model that ``gate`` has judged: ``models:/NAME/VERSION``, ``models:/NAME@ALIAS``,
            ``models:/m-...``, ``wandb:ENTITY/PROJECT/ARTIFACT:v3``.
        config: A ``Config``, or the name of a preset; only its trusted hosts count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        acks: Also what people answered to its verdicts.

    Returns:
        What was taken off, and whether there was anything.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found, or not be written to.
    """
    resolve_config(config)
    return clear_ours(run, tracking_uri, acks=acks)


def compare(
    bad: str | Path | Listed,
    goods: Sequence[str | Path | Listed],
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> Comparison:
    """Compare a run with others: settings, curves, findings, weights; nothing is written.

    Args:
        bad: The run that is asked about, as for ``check``.
        goods: One or more others; several make a band. They may be in other stores.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        What is unlike, and which series parted first.

    Raises:
        ConfigError: there is no other run, one is named twice, or the configuration names something unknown.
        RunError: one cannot be found or read at all.
    """
    return compare_runs(bad, goods, resolve_config(config), tracking_uri)


def repaired(
    old: str | Path | Listed,
    new: str | Path | Listed,
    *,
    seeds: Sequence[str | Path | Listed] = (),
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> Repair:
    """Judge whether a run repairs another one: the old cause is gone, nothing as bad is new, and the end is better
    beyond noise; nothing is written.

    Args:
        old: The run with a finding, as for ``check``.
        new: The run after it.
        seeds: Runs set as the new one with other seeds, whose scatter is then the noise.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The answer, its reason, and what could not be compared.

    Raises:
        ConfigError: one run is named twice, or the configuration names something unknown.
        RunError: one cannot be found or read at all.
    """
    return judge_repair_of(old, new, resolve_config(config), tracking_uri, seeds)


def write_repaired(
    repair: Repair,
    old: str | Path | Listed,
    new: str | Path | Listed,
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> list[str]:
    """Put the answer of ``repaired`` onto the new run, and onto the old one.

    Args:
        repair: The answer.
        old: The old run, as ``repaired`` was given it.
        new: The new run.
        config: A ``Config``, or the name of a preset; only its trusted hosts count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        The names of the runs that were written to; one that says the same already is left alone.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: one of them cannot be found or written to.
    """
    return write_repair(repair, old, new, resolve_config(config, writes=True), tracking_uri)


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A run's report, and the same as a self-contained HTML page."""

    report: Report
    html: bytes


def _judged_and_answered(opened: TrackedRun, settings: Config) -> tuple[Report, Evidence]:
    """The report with what people answered to the verdict that is on the run."""
    report, evidence = judge_run(opened, settings)
    return report.answered(opened.acknowledgements(), time.time()), evidence


def card_of_run(
    run: str | Path | Listed, *, config: Config | str = "default", tracking_uri: str | None = None
) -> bytes:
    """Judge a run and draw its card: a PNG of 1,200 by 630 pixels; nothing is written.

    Raises:
        ConfigError: the configuration names something that does not exist.
        MissingExtra: matplotlib is not installed.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.picture import run_card

    with open_with_config(run, resolve_config(config), tracking_uri) as (opened, settings):
        report, evidence = judge_run(opened, settings)
    return run_card(evidence, report)


def page_of_run(
    run: str | Path | Listed, *, config: Config | str = "default", tracking_uri: str | None = None
) -> ReportPage:
    """Judge a run and make its page, with pictures; nothing is written.

    Raises:
        ConfigError: the configuration names something that does not exist.
        MissingExtra: jinja2 is not installed.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.attachments import page_of

    base = resolve_config(config)
    with open_with_config(run, base, tracking_uri) as (opened, settings):
        report, evidence = _judged_and_answered(opened, settings)
    page, missing = page_of(evidence, report, base.docs_url)
    return ReportPage(report=add_note(report, missing), html=page)


def table_of_runs(
    runs: Iterable[str | Path | Listed],
    *,
    title: str,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    only: Collection[Verdict] = (),
    sort: str = "verdict",
    page_at: Callable[[Report, Callable[[str], bytes]], str] | None = None,
) -> tuple[tuple[Outcome, ...], bytes]:
    """Judge runs, and make one page with all of them and their curves; nothing is written. A run that fails is a row
    with its error.

    Args:
        runs: What is judged.
        title: What the runs are of.
        config: Of every run.
        tracking_uri: MLflow's store of run ids.
        only: The page has runs with these verdicts; without any it has all.
        sort: By what its rows are sorted: ``verdict``, ``name`` or ``cause``.
        page_at: Gives the address of a run's own page, relative to the table, or "". It may call what it is given
            with the report to get that page, as ``page_of_run`` makes it; with the address of the table from there.

    Returns:
        What came of each run, also of those that are not on the page, and the page.

    Raises:
        ConfigError: the configuration names something that does not exist.
        MissingExtra: jinja2 or matplotlib is not installed.
    """
    from tracker_health.render.comparison import comparison_page, row_of

    base = resolve_config(config)
    outcomes, rows = [], []
    for run in runs:
        evidence = None
        try:
            with open_with_config(run, base, tracking_uri) as (opened, settings):
                report, evidence = _judged_and_answered(opened, settings)
            outcome = Outcome(run=shown_name(run), status="checked", report=report)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            outcome = failed_outcome(run, error, base)
        outcomes.append(outcome)
        if not only or outcome.report.verdict in only:
            page = "" if page_at is None else page_at(outcome.report, partial(_page, evidence, outcome.report, base))
            rows.append(row_of(outcome.report, evidence, page))
    judged = [one.report.verdict for one in outcomes]
    return tuple(outcomes), comparison_page(rows, title=title, judged=judged, sort=sort)


def _page(evidence: Evidence | None, report: Report, config: Config, all_runs: str) -> bytes:
    from tracker_health.render.attachments import page_of

    return page_of(evidence, report, config.docs_url, all_runs)[0]


def read_baseline(path: str | Path) -> Baseline:
    """The baseline in a file that ``baseline save`` wrote; in a ``Config`` it may change a verdict.

    Raises:
        ConfigError: the file cannot be read, or is no baseline.
    """
    from tracker_health.readers.files.regular_file import read_regular

    shown = printable(path)
    try:
        return from_json(json.loads(read_regular(Path(path), _MOST_BYTES)))
    except (ReadError, OSError) as error:
        raise ConfigError(f"{shown} cannot be read: {described(error)}", "name a file of baseline save") from error
    except (ValueError, RecursionError) as error:
        is_json = not isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError))
        said = printable(error) if is_json else "it is no JSON"
        raise ConfigError(f"{shown} is no baseline: {said}", "write it with baseline save") from error


def baseline_from(
    runs: Iterable[str | Path | Listed],
    *,
    of: str,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    without: Collection[RunRef] = (),
) -> Baseline:
    """Judge runs, and make a baseline of those that passed and are comparable; nothing is written.

    Args:
        runs: The runs, each as for ``check``; those that come first are preferred.
        of: Where they are from, in words.
        config: A ``Config``, or the name of a preset.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.
        without: Runs that are not to be a part of it.

    Returns:
        The baseline. It advises; one that was saved and read again may change a verdict.

    Raises:
        ConfigError: too few runs passed and are comparable.
    """
    return baseline_of(candidates_among(runs, resolve_config(config), tracking_uri, without), of)


def compared_with(
    runs: Iterable[str | Path | Listed],
    *,
    of: str,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    without: Collection[RunRef] = (),
) -> Config:
    """Judge runs, and make a configuration under which others are compared with them; nothing is written.

    Args:
        runs: The runs, each as for ``check``.
        of: Where they are from, in words.
        config: A ``Config``, or the name of a preset.
        tracking_uri: As for ``check``.
        without: Runs that are not to be among them.

    Returns:
        The configuration with their baseline; with the runs themselves where they are too few for one.

    Raises:
        ConfigError: none of them can be compared with.
    """
    settings = resolve_config(config)
    found = candidates_among(runs, settings, tracking_uri, without)
    if not any(one.sibling for one in found):
        why = "; ".join(dict.fromkeys(one.why_not for one in found))
        hint = why or "name another one than the one that is judged"
        raise ConfigError(f"{printable(of)}: there is no run to compare with", hint)
    siblings = siblings_among(found)
    if siblings:
        return replace(settings, baseline=None, siblings=siblings)
    return replace(settings, baseline=baseline_of(found, of), siblings=())


def refs_of(runs: Iterable[str | Path | Listed], *, tracking_uri: str | None = None) -> list[RunRef]:
    """Which runs these are, whatever they are called by; one that cannot be opened is left out."""
    found = []
    for run in runs:
        with suppress(TrackerHealthError), closing(open_run(run, tracking_uri=tracking_uri)) as opened:
            found.append(opened.ref)
    return found


def overview_of(
    *,
    experiment: str = "",
    project: str = "",
    tracking_uri: str | None = None,
    where: str = "",
    since: float | None = None,
    by: Sequence[str] = (),
    labelled: Callable[[dict[str, Any]], None] | None = None,
    most_worst: int = 10,
    only: Collection[Verdict] = (),
    sort: str = "",
) -> Overview:
    """The health of the runs of an MLflow experiment (without a name: of all) or of a W&B project, from their tags.

    ``where``: as for ``runs_of_experiment`` and ``runs_of_project``; ``since``: only runs that ended at that time
    (seconds since 1970) or later, or are still running; ``by``: of ``overview.GROUPS``. ``labelled``: is given each run
    that someone has answered, with what was said, as a JSON document. ``most_worst``: how many of the worst runs are
    named. ``only``: these have one of these verdicts. ``sort``: they are named in this order, as for ``table_of_runs``.

    Raises:
        RunError: the store cannot be reached, or there is no such experiment or project.
    """
    from tracker_health.runs.overview import overview
    from tracker_health.runs.relations import BY_KIN

    kin = not BY_KIN.keys().isdisjoint(by)
    if found := named_in(project):
        runs = tagged_of_named(found, where, since, kin=kin)
    elif project:
        from tracker_health.stores.wandb.project import tagged_runs as of_project

        runs = of_project(project, where, since, kin=kin)
    else:
        from tracker_health.stores.mlflow.experiment import tagged_runs

        runs = tagged_runs([experiment] if experiment else [], tracking_uri, where, since, kin=kin)
    return overview(runs, by, now=time.time(), labelled=labelled, most_worst=most_worst, only=only, sort=sort)


def read_series(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> SeriesTable:
    """Every metric series that is found of a run, with its role; nothing is judged or written.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``.
        config: A ``Config``, or the name of a preset; only its roles and its limit on downloads count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        A row for each series: its name, role, source and number of points. What cannot be read is in its ``problems``.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.series import series_table

    with open_with_config(run, resolve_config(config), tracking_uri) as (opened, settings):
        request = Request(
            roles=settings.role_plan(every=True),
            parts=frozenset(),
            max_download=settings.max_download,
        )
        return series_table(opened.read(request))


def read_tensors(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> TensorTable:
    """The tensors of a run's checkpoint, one by one; nothing is judged or written.

    Args:
        run: A folder with checkpoints and logs, an MLflow run id, or the address of a run in MLflow or W&B: see
            ``open_run``.
        config: A ``Config``, or the name of a preset; only its choice of a checkpoint and its limit on downloads count.
        tracking_uri: The MLflow store; by default the one that MLflow itself would use.

    Returns:
        A row for each tensor, with the statistics of its weights and moments. What of the checkpoint cannot be read is
        in its ``problems``.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.tensors import tensor_table

    with open_with_config(run, resolve_config(config), tracking_uri) as (opened, settings):
        request = Request(
            roles=NOTHING_READ,
            parts=frozenset({Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.WEIGHTS}),
            checkpoint=settings.checkpoint,
            max_download=settings.max_download,
        )
        return tensor_table(opened.read(request))
