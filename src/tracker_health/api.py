"""The library's front door: judge a run, or judge it and write the verdict onto it."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from tracker_health._version import __version__
from tracker_health.annotations import ENDED_BY, ENDED_STATE, REPORT_FILE, Annotations, digest_of, plan
from tracker_health.config import Config, preset
from tracker_health.engine import compared, configured_probes, diagnose, needs_of
from tracker_health.errors import RunError, RunNotFound, StoreRefused, TrackerHealthError, described
from tracker_health.evidence import Evidence, Part, Request, RunRef
from tracker_health.pipeline import in_executor, in_threads
from tracker_health.registry import plugins
from tracker_health.result import ErrorEntry, Report, ToolInfo
from tracker_health.roles import OWN_PREFIXES
from tracker_health.siblings import end_of, siblings_among
from tracker_health.stores.base import Cleared, Listed, OnServer, Overtaken, Recorded, TrackedRun, WrittenInPart
from tracker_health.stores.wandb.address import address_of, is_of_wandb
from tracker_health.text import printable, without_userinfo
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tracker_health.overview import Overview
    from tracker_health.render.attachments import Attachments
    from tracker_health.render.series import SeriesTable
    from tracker_health.render.tensors import TensorTable

_MLFLOW_RUN = re.compile(r"(?:mlflow:|runs:/)?([A-Za-z0-9_-]{1,250})/?|runs:/([A-Za-z0-9_-]{1,250})/.*", re.DOTALL)
# The run's page, or one of its tabs. What stands before the fragment is the server, a query aside.
_MLFLOW_PAGE = re.compile(
    r"((?i:https?)://[^#?\s]+?)/(?:\?[^#\s]*)?#/experiments/([^/?#\s]+)/runs/([A-Za-z0-9_-]{1,250})(?:[/?].*)?"
)
_EXPERIMENT_PAGE = re.compile(r"(?i:https?)://[^#\s]+#/experiments/[^/?#\s]+(?:/(?:runs/?)?)?(?:\?.*)?")
_NO_RUNS = {
    "models": ("a registered model, not a run", "give the id of the run that logged the model"),
    "mlflow-artifacts": (
        "a place where artifacts lie, not a run",
        "give the run's id: in the path it comes before /artifacts",
    ),
}
# A look that hangs on no configuration.
_METRICS_ALONE = Request(select_names=lambda names: dict.fromkeys(names, "train_loss"), parts=frozenset())
# Always the same words: they are part of the digest.
_SILENCE = "nothing came from it for long"
_NOT_YET = "it was not looked at yet: the rest of the judgement follows"
_IN_HAND = 64
# matplotlib keeps its settings, which a drawing sets for a while, for all threads together.
_drawing = threading.Lock()
_RETRIES = 2
# Seconds at most, by chance, before an annotator that another has stopped begins anew: both would meet again at once.
_PAUSES = (1.0, 2.0, 4.0)
Status = Literal["checked", "written", "unchanged", "dry-run", "failed"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one run.

    ``status``: ``written``; ``unchanged`` (the annotation there still holds: the run was not judged again);
    ``dry-run`` and ``checked`` (judged, nothing written); ``failed`` (could not be judged or written: ``error`` says
    why; ``annotations`` are there if it was judged). ``annotations``: what was, or would be, written; ``omitted``: what
    of it was left out for something of the owner's, with the reason. ``run``: as given, a URL without its secrets.
    ``sketch``: the loss curve in one line of text, "" where there is none.
    """

    run: str
    status: Status
    report: Report
    annotations: Annotations | None = None
    omitted: tuple[str, ...] = ()
    error: Exception | None = None
    sketch: str = ""

    @property
    def complete(self) -> bool:
        """Whether the run was found, read, judged and written, with nothing missing on the way."""
        return self.error is None and not self.report.errors and self.report.verdict is not Verdict.ERROR

    def failed_with(self, error: Exception) -> Outcome:
        """The outcome for a run whose result turned out to be good for nothing."""
        report = _failure(self.report.run, error, self.report.tool)
        return replace(self, status="failed", report=report, annotations=None, omitted=(), error=error)


def filter_link(ref: RunRef, verdict: Verdict) -> str:
    """The address of the list of all runs with this verdict beside a run in MLflow; empty where it has no address.

    A link, since the box for filters in MLflow's page takes the first Enter for the choice of a suggestion.
    """
    page = _MLFLOW_PAGE.fullmatch(ref.url or "")
    if page is None:
        return ""
    server, experiment, _ = page.groups()
    condition = quote(f"tags.`health.verdict` = '{verdict}'", safe="")
    return f"{server}/#/experiments/{experiment}/runs?searchFilter={condition}"


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


def runs_of_project(name: str, *, where: str = "") -> Iterator[str]:
    """The runs of a W&B project (``ENTITY/PROJECT``, or ``PROJECT`` of one's own), the newest first; ``where`` is a
    filter in W&B's language, as JSON.

    Raises:
        ConfigError: the filter is no JSON object.
        RunNotFound: there is no such project.
        RunError: the server cannot be reached, or does not understand the filter.
    """
    from tracker_health.stores.wandb.project import run_addresses

    return run_addresses(name, where)


def overview_of(
    *,
    experiment: str = "",
    project: str = "",
    tracking_uri: str | None = None,
    where: str = "",
    since: float | None = None,
    by: Sequence[str] = (),
) -> Overview:
    """The health of the runs of an MLflow experiment (without a name: of all) or of a W&B project, from their tags.

    ``where``: as for ``runs_of_experiment`` and ``runs_of_project``; ``since``: only runs that began at that time
    (seconds since 1970) or later; ``by``: of ``overview.GROUPS``.

    Raises:
        RunError: the store cannot be reached, or there is no such experiment or project.
    """
    from tracker_health.overview import overview

    if project:
        from tracker_health.stores.wandb.project import tagged_runs as of_project

        return overview(of_project(project, where, since), by)
    from tracker_health.stores.mlflow.experiment import tagged_runs

    return overview(tagged_runs([experiment] if experiment else [], tracking_uri, where, since), by)


def compare(
    runs: Iterable[str | Path | Listed],
    *,
    title: str,
    config: Config | str = "default",
    tracking_uri: str | None = None,
) -> tuple[tuple[Outcome, ...], bytes]:
    """Judge runs, alone and beside each other, and make one page with all of them; nothing is written. A run that fails
    is a row with its error.

    Raises:
        ConfigError: the configuration names something that does not exist.
        MissingExtra: jinja2 or matplotlib is not installed.
    """
    from tracker_health.render.comparison import comparison_page, row_of

    settings = _resolved(config)
    outcomes, rows, ends = [], [], []
    for run in runs:
        evidence = None
        try:
            with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
                report, evidence = _judged(opened, _for_run(settings, opened))
            outcome = Outcome(run=_shown(run), status="checked", report=report)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            outcome = _failed(run, error, settings)
        outcomes.append(outcome)
        rows.append(row_of(outcome.report, evidence))
        ends.append(None if evidence is None else end_of(evidence))
    for place, siblings in enumerate(siblings_among(ends)):
        if siblings is not None:
            report = compared(outcomes[place].report, siblings, settings)
            outcomes[place], rows[place] = replace(outcomes[place], report=report), rows[place].with_report(report)
    return tuple(outcomes), comparison_page(rows, title=title)


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A run's report, and the same as a self-contained HTML page."""

    report: Report
    html: bytes


def open_run(
    run: str | Path | Listed, *, tracking_uri: str | None = None, sidecar: bool = False, over: bool = False
) -> TrackedRun:
    """The run of a path that exists, of an MLflow run id (``ID``, ``mlflow:ID``, ``runs:/ID``, of which a path of
    artifacts behind it is ignored), of the address of a run's page in MLflow, which names the server as well, or of
    Weights & Biases (``wandb:ENTITY/PROJECT/RUN``, ``wandb:PROJECT/RUN`` of one's own, or the address of the run's
    page). Spaces around it do not count. The address of one checkpoint (``https://host/last.ckpt``,
    ``s3://bucket/last.ckpt``) is a run that can be judged, and not be written onto. A path may be that of a W&B run on
    this machine: its folder, its ``.wandb`` file, or a folder with nothing else in it than one run below ``wandb/``.
    ``sidecar``: see ``annotate``. ``over``: the run has ended, whatever its server says.

    Raises:
        RunNotFound: there is no such folder, run or file, or there are several.
        RunError: the store cannot be reached or refuses; a folder on the way may not be looked into.
    """
    if not isinstance(run, (str, Path)):
        return run.open()
    run = _trimmed(run)
    text = str(run)
    if _is_there(text):
        from tracker_health.stores.directory import DirectoryRun
        from tracker_health.stores.mlflow.folder import open_run_folder, refuse_store
        from tracker_health.stores.wandb.folders import open_local_run

        refuse_store(run)
        found = open_run_folder(run)
        if found is None or not sidecar:
            return found or open_local_run(run, sidecar=sidecar) or DirectoryRun(run)
    if sidecar:
        what = printable(_shown(run))
        raise RunNotFound(f"{what} is no run of which only files can be written", "leave out --sidecar")
    _refuse_what_is_no_run(text)
    if isinstance(run, str) and (page := _MLFLOW_PAGE.fullmatch(text)):
        from tracker_health.stores.mlflow.run import open_mlflow_run

        return open_mlflow_run(page.group(3), page.group(1), page.group(2))
    if isinstance(run, str) and "://" in text:
        from tracker_health.stores.url import is_checkpoint_url, open_url

        if is_checkpoint_url(text):
            return open_url(text)
    if isinstance(run, str) and (address := address_of(text)):
        from tracker_health.stores.wandb.online import open_online_run

        return open_online_run(address, over=over)
    if (shown := without_userinfo(text)) != text or "://" in text:
        hint = "give the run id, and the server as --tracking-uri"
        raise RunNotFound(f"{printable(shown)} is not the address of an MLflow run page", hint)
    return _named_run(run, tracking_uri)


def _refuse_what_is_no_run(text: str) -> None:
    """Say of what is known to be something else what it is."""
    if not text:
        raise RunNotFound("an empty name is no folder and no run id", "give a folder, or an MLflow run id")
    shown, kind = printable(without_userinfo(text)), text.partition(":/")[0]
    if kind in _NO_RUNS and kind != text:
        what, hint = _NO_RUNS[kind]
        raise RunNotFound(f"{shown} is {what}", hint)
    if _EXPERIMENT_PAGE.fullmatch(text):
        hint = "open one of its runs and give that page's address, or the run's id"
        raise RunNotFound(f"{shown} is not the address of an MLflow run page but of an experiment's", hint)


def _named_run(run: str | Path, tracking_uri: str | None) -> TrackedRun:
    text = str(run)
    match = _MLFLOW_RUN.fullmatch(text)
    if isinstance(run, Path) or match is None:
        raise RunNotFound(f"there is no folder {printable(text)}", "give a folder, or an MLflow run id")
    if match.group(1) == text and not re.fullmatch(r"[0-9a-f]{32}", text):
        from tracker_health.stores.mlflow.run import hint_on_id

        hint = hint_on_id(text) or f"a run with such an id is written mlflow:{printable(text)}"
        raise RunNotFound(f"{printable(text)} is neither a folder here nor an MLflow run id", hint)
    from tracker_health.stores.mlflow.run import open_mlflow_run

    return open_mlflow_run(match.group(1) or match.group(2), tracking_uri)


def check(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> Report:
    """Judge a run and write nothing.

    ``run``: a folder with checkpoints and logs, or an MLflow run id. ``config``: a ``Config``, or the name of a
    preset. ``tracking_uri``: the MLflow store; by default the one that MLflow itself would use.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all. What cannot be read of a run that is there is listed in the
            report's ``errors``.
    """
    settings = _resolved(config)
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        return _judged(opened, _for_run(settings, opened))[0]


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

    settings = _resolved(config)
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        report, evidence = _judged(opened, _for_run(settings, opened))
    page, missing = page_of(evidence, report)
    return ReportPage(report=_with_note(report, missing), html=page)


def annotate(
    run: str | Path | Listed,
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    sidecar: bool = False,
    quick: bool = False,
    ended_by: str = "",
) -> Outcome:
    """Judge a run and write the verdict onto it; while the annotation there still holds, neither is done again.

    ``dry_run``: judge, and give the annotations without writing them. ``force``: judge and write even if nothing has
    changed. ``sidecar``: of a W&B run on this machine write only the files, and leave its log alone. ``quick``: look at
    metrics alone (of W&B also at what was printed) and write no files; the next annotation does the rest, and a run of
    which that tells nothing is left to it. ``ended_by``: what the run's process was seen to die of ("SIGKILL"), for a
    run that nobody ended.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found, read at all, or written.
    """
    work = partial(
        _annotated,
        run,
        _resolved(config),
        tracking_uri,
        dry_run=dry_run,
        force=force,
        sidecar=sidecar,
        quick=quick,
        ended_by=ended_by,
    )
    outcome = _until_not_overtaken(work)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def _until_not_overtaken(work: Callable[[], Outcome]) -> Outcome:
    """Do the work again, a little later and a few times, where another annotator has stopped it: of two at once each
    may stop the other, and leave the run unfinished.
    """
    for pause in _PAUSES:
        outcome = work()
        if not isinstance(outcome.error, Overtaken):
            return outcome
        time.sleep(pause * random.uniform(0.2, 1.0))  # noqa: S311  no secret
    return work()


def _annotated(
    run: str | Path | Listed,
    base: Config,
    tracking_uri: str | None,
    *,
    dry_run: bool,
    force: bool,
    sidecar: bool,
    quick: bool = False,
    ended_by: str = "",
) -> Outcome:
    """As ``annotate``, but a verdict that could not be written is an outcome with the error."""
    with closing(open_run(run, tracking_uri=tracking_uri, sidecar=sidecar, over=bool(ended_by))) as opened:
        settings = _for_run(base, opened)
        recorded = opened.recorded()
        death = _death(ended_by, recorded, opened, silent=getattr(run, "silent", False))
        fingerprint = opened.fingerprint(needs_of(settings))
        state = fingerprint + death.get(ENDED_BY, "")
        if recorded is not None and recorded.verdict and _holds(recorded, state, settings) and not force:
            report = _unchanged(opened.ref, recorded.verdict, fingerprint, settings)
            return Outcome(run=_shown(run), status="unchanged", report=report)
        report, evidence = _judged(opened, settings, fingerprint, ended_by=death.get(ENDED_BY, ""), quick=quick)
        if quick and report.verdict is Verdict.SKIP:
            return Outcome(run=_shown(run), status="checked", report=report)
        # A plugin that does not load is in the digest already, and judging again would not mend it.
        complete = not quick and not set(report.errors) - set(plugins().errors)
        attached = _attached(evidence, report, quick=quick)
        digest = digest_of(state, settings, complete=complete, verdict=report.verdict)
        annotations = plan(report, digest, attached.files)
        annotations = replace(annotations, tags={**annotations.tags, **death})
        if quick:
            annotations = replace(annotations, files={})
        outcome = Outcome(
            run=_shown(run),
            status="dry-run",
            report=_with_note(report, attached.missing),
            annotations=annotations,
            sketch=_sketch(evidence),
        )
        return outcome if dry_run else _written(opened, annotations, outcome)


def _death(ended_by: str, recorded: Recorded | None, run: TrackedRun, *, silent: bool = False) -> dict[str, str]:
    """The tags that keep what the run's process died of; what an earlier annotation knew of that counts as long as the
    run is in the state that it was left in. ``silent``: a sweep found that it claims to go on, and does not.
    """
    if not (ended_by or silent or (recorded is not None and recorded.ended_by)):
        return {}
    state = run.fingerprint(_METRICS_ALONE)
    earlier = recorded.ended_by if recorded is not None and recorded.ended_state == state else ""
    known = ended_by or earlier or (_SILENCE if silent else "")
    return {ENDED_BY: printable(known), ENDED_STATE: state} if known else {}


def would_annotate(run: OnServer, config: Config, *, silent: bool = False) -> int | None:
    """How many bytes of its files annotating a run could read at most; None where its annotation still holds.

    ``silent``: it claims to go on, and nothing came from it for long.
    """
    settings = _for_run(config, run)
    request = needs_of(settings)
    recorded = run.recorded()
    state = run.fingerprint(request) + _death("", recorded, run, silent=silent).get(ENDED_BY, "")
    if recorded is not None and recorded.verdict and _holds(recorded, state, settings):
        return None
    return min(run.bytes_of_files(request), settings.max_download)


def _attached(evidence: Evidence, report: Report, *, quick: bool) -> Attachments:
    """The files that go with a report; none with one that says nothing, nor with a first look."""
    from tracker_health.render.attachments import Attachments, attachments

    if quick or report.verdict is Verdict.SKIP:
        return Attachments()
    with _drawing:
        return attachments(evidence, report)


def _with_note(report: Report, note: str) -> Report:
    return replace(report, notes=(*report.notes, note)) if note else report


def _written(run: TrackedRun, annotations: Annotations, outcome: Outcome) -> Outcome:
    """The outcome of writing; the report then also says what of it was left out, or could not be written."""
    try:
        omitted = run.write(annotations)
    except WrittenInPart as error:
        outcome, omitted = _with_error(outcome, error), error.omitted
    except Exception as error:  # noqa: BLE001  the verdict is told all the same
        return replace(_with_error(outcome, error), status="failed", error=error)
    report = outcome.report
    if omitted:
        report = replace(report, notes=(*report.notes, f"not written: {'; '.join(omitted)}"))
    return replace(outcome, status="written", report=report, omitted=omitted)


def _with_error(outcome: Outcome, error: Exception) -> Outcome:
    entry = ErrorEntry(source="annotation", message=described(error))
    return replace(outcome, report=replace(outcome.report, errors=(*outcome.report.errors, entry)))


def _holds(recorded: Recorded, state: str, config: Config) -> bool:
    """Whether nothing has changed since the annotation: neither the run, nor what judges it, nor the verdict on it,
    which anybody who may tag the run can edit.
    """
    return recorded.digest == digest_of(state, config, verdict=recorded.verdict)


def check_many(
    runs: Iterable[str | Path | Listed],
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    workers: int = 1,
) -> Iterator[Outcome]:
    """``check`` for each run. A run that fails gives an outcome with its ``error``; the others are still judged.

    ``workers``: see ``annotate_many``.

    Raises:
        ConfigError: the configuration names something that does not exist.
    """
    yield from in_threads(_Task(_resolved(config), tracking_uri, writes=False), runs, workers)


def _sketch(evidence: Evidence) -> str:
    from tracker_health.render.sketch import sketch

    return sketch(evidence)


def annotate_many(
    runs: Iterable[str | Path | Listed],
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    dry_run: bool = False,
    force: bool = False,
    sidecar: bool = False,
    workers: int = 1,
    executor: Executor | None = None,
) -> Iterator[Outcome]:
    """``annotate`` for each run. A run that fails gives an outcome with its ``error``; the others are still done.

    ``workers``: so many threads; outcomes then come as they are ready. Runs are taken from ``runs`` when there is a
    hand free for them. ``executor``: does the runs instead, one a task, perhaps in other processes or on other
    machines, which open them by name in the store of ``tracking_uri`` with the credentials of their own environment;
    what a worker that died had in hand is given to another, where the executor goes on without it (Dask's does, the
    standard library's pool of processes does not: all runs that are left then fail). The outcomes then have no
    contents of files in them.

    Raises:
        ConfigError: the configuration names something that does not exist.
    """
    task = _Task(_resolved(config), tracking_uri, dry_run=dry_run, force=force, sidecar=sidecar)
    if executor is None:
        yield from in_threads(task, runs, workers)
        return
    names: Iterator[str] = (str(run) for run in runs)
    for name, result in in_executor(task.far_away, names, executor, in_hand=_IN_HAND, retries=_RETRIES):
        yield _failed(name, result, task.config) if isinstance(result, Exception) else result


@dataclass(frozen=True)
class _Task:
    """What is to be done to each run of many."""

    config: Config
    tracking_uri: str | None
    dry_run: bool = False
    force: bool = False
    sidecar: bool = False
    writes: bool = True

    def __call__(self, run: str | Path | Listed) -> Outcome:
        try:
            if not self.writes:
                with closing(open_run(run, tracking_uri=self.tracking_uri)) as opened:
                    report, evidence = _judged(opened, _for_run(self.config, opened))
                return Outcome(run=_shown(run), status="checked", report=report, sketch=_sketch(evidence))
            work = partial(_annotated, run, self.config, self.tracking_uri)
            return _until_not_overtaken(partial(work, dry_run=self.dry_run, force=self.force, sidecar=self.sidecar))
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            return _failed(run, error, self.config)

    def far_away(self, run: str) -> Outcome:
        """The same for another process: with nothing in it that is large, or that cannot travel."""
        outcome = self(run)
        annotations, error = outcome.annotations, outcome.error
        if annotations is not None:
            annotations = replace(annotations, files=dict.fromkeys(annotations.files, b""))
        if error is not None and not isinstance(error, TrackerHealthError):
            error = RunError(described(error))
        return replace(outcome, annotations=annotations, error=error)


def tensors(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> TensorTable:
    """The tensors of a run's checkpoint, one by one; nothing is judged or written.

    Of ``config`` only the choice of a checkpoint and the limit on downloads count. What of the checkpoint cannot be
    read is listed in the table's ``problems``.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.tensors import tensor_table

    base = _resolved(config)
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        settings = _for_run(base, opened)
        request = Request(
            select_names=lambda _: {},
            parts=frozenset({Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.WEIGHTS}),
            checkpoint=settings.checkpoint,
            max_download=settings.max_download,
        )
        return tensor_table(opened.read(request))


def series(run: str | Path, *, config: Config | str = "default", tracking_uri: str | None = None) -> SeriesTable:
    """Every metric series that is found of a run, with its role; nothing is judged or written.

    Of ``config`` only the roles and the limit on downloads count. What cannot be read is listed in the table's
    ``problems``.

    Raises:
        ConfigError: the configuration names something that does not exist.
        RunError: the run cannot be found or read at all.
    """
    from tracker_health.render.series import series_table

    base = _resolved(config)
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        settings = _for_run(base, opened)

        def every_name(names: Iterable[str]) -> dict[str, str]:
            theirs = [name for name in names if not name.startswith(OWN_PREFIXES)]
            roles = settings.role_names(theirs)
            return {name: roles.get(name, "") for name in theirs}

        request = Request(select_names=every_name, parts=frozenset(), max_download=settings.max_download)
        return series_table(opened.read(request))


def clear(run: str | Path | Listed, *, tracking_uri: str | None = None) -> Cleared:
    """Take everything that ``annotate`` wrote off a run again, and nothing else.

    Raises:
        RunError: the run cannot be found, or not be written to.
    """
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        return opened.clear()


def _trimmed(run: str | Path) -> str | Path:
    """The run without the spaces that copying left around it, unless there is something of exactly that name."""
    return run.strip() if isinstance(run, str) and not _is_there(run) else run


def _shown(run: str | Path | Listed) -> str:
    return without_userinfo(str(run))


def _is_there(text: str) -> bool:
    """Whether there is something at that path.

    Raises:
        StoreRefused: a folder on the way to it may not be looked into.
    """
    try:
        return bool(text) and bool(Path(text).stat())
    except PermissionError as error:
        if _MLFLOW_RUN.fullmatch(text):  # what the current folder forbids says nothing about a run in MLflow
            return False
        raise StoreRefused(f"{printable(_shown(text))}: no permission to look there") from error
    except (OSError, ValueError):  # also a name too long, or with a null byte: no path of anything
        return False


def _resolved(config: Config | str) -> Config:
    settings = preset(config) if isinstance(config, str) else config
    configured_probes(settings)  # a configuration that makes no sense is told once, and not for every run
    return settings


def _for_run(config: Config, run: TrackedRun) -> Config:
    """The configuration with the overrides that are meant for this run; nothing is asked of the store without any."""
    return config.for_run(run.traits()) if config.overrides else config


def _judged(
    run: TrackedRun, config: Config, fingerprint: str | None = None, *, ended_by: str = "", quick: bool = False
) -> tuple[Report, Evidence]:
    request = needs_of(config)
    taken = run.fingerprint(request) if fingerprint is None else fingerprint
    # What was printed lies beside W&B's own history: without it a run that crashed could be told to be well.
    later = request.parts - ({Part.TEXT_LOG} if run.ref.store == "wandb" else set()) if quick else frozenset()
    evidence = run.read(replace(request, parts=request.parts - later))
    missing = {**dict.fromkeys(later, _NOT_YET), **evidence.missing}
    info = replace(evidence.info, ended_by=ended_by)
    evidence = replace(evidence, fingerprint=taken, missing=missing, info=info)
    report = diagnose(evidence, config)
    return replace(report, notes=(*report.notes, *run.remarks())), evidence


def _failed(run: str | Path | Listed, error: Exception, config: Config) -> Outcome:
    shown = _shown(run)
    store = _store_of(str(run).strip())
    report = _failure(RunRef(store=store, id=shown, name=shown), error, _tool(config))
    return Outcome(run=shown, status="failed", report=report, error=error)


def _store_of(text: str) -> str:
    """The kind of store that a run is looked for in."""
    named = _MLFLOW_RUN.fullmatch(text) or _MLFLOW_PAGE.fullmatch(text)
    store = "mlflow" if named else "wandb" if is_of_wandb(text) else "url" if "://" in text else "directory"
    return "directory" if store != "directory" and _is_there(text) else store


def _failure(ref: RunRef, error: Exception, tool: ToolInfo) -> Report:
    """The report on a run of which there is nothing but an error."""
    message = described(error)
    errors = (ErrorEntry(source=ref.id, message=message),)
    return Report(run=ref, verdict=Verdict.ERROR, score=None, summary=printable(message, 500), errors=errors, tool=tool)


def _unchanged(ref: RunRef, verdict: Verdict, fingerprint: str, config: Config) -> Report:
    summary = "unchanged since the last annotation: not judged again"
    if verdict is not Verdict.SKIP:  # a run with nothing to judge gets no report
        summary += f"; its report is in health/{REPORT_FILE}"
    return Report(run=ref, verdict=verdict, score=None, summary=summary, tool=_tool(config), fingerprint=fingerprint)


def _tool(config: Config) -> ToolInfo:
    return ToolInfo(version=__version__, preset=config.preset, config_digest=config.digest)
