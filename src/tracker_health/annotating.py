"""One run from its store to the verdict on it: read, judged, drawn, and written."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracker_health._version import __version__
from tracker_health.annotations import ENDED_BY, ENDED_STATE, REPORT_FILE, Annotations, digest_of, plan
from tracker_health.config import Config, preset
from tracker_health.engine import configured_probes, diagnose, needs_of
from tracker_health.errors import described
from tracker_health.evidence import Evidence, Part, Request, RunRef
from tracker_health.opening import open_run, shown_name, store_of
from tracker_health.registry import plugins
from tracker_health.result import ErrorEntry, Report, ToolInfo
from tracker_health.stores import hosts
from tracker_health.stores.base import Listed, OnServer, Overtaken, Recorded, TrackedRun, WrittenInPart
from tracker_health.text import printable
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.render.attachments import Attachments

# A look that hangs on no configuration.
_METRICS_ALONE = Request(select_names=lambda names: dict.fromkeys(names, "train_loss"), parts=frozenset())
# Always the same words: they are part of the digest.
_SILENCE = "nothing came from it for long"
_NOT_YET = "it was not looked at yet: the rest of the judgement follows"
# matplotlib keeps its settings, which a drawing sets for a while, for all threads together.
_drawing = threading.Lock()
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


def until_not_overtaken(work: Callable[[], Outcome]) -> Outcome:
    """Do the work again, a little later and a few times, where another annotator has stopped it: of two at once each
    may stop the other, and leave the run unfinished.
    """
    for pause in _PAUSES:
        outcome = work()
        if not isinstance(outcome.error, Overtaken):
            return outcome
        time.sleep(pause * random.uniform(0.2, 1.0))  # noqa: S311  no secret
    return work()


def annotated(
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
        settings = for_run(base, opened)
        recorded = opened.recorded()
        death = _death(ended_by, recorded, opened, silent=getattr(run, "silent", False))
        fingerprint = opened.fingerprint(needs_of(settings))
        state = fingerprint + death.get(ENDED_BY, "")
        if recorded is not None and recorded.verdict and _holds(recorded, state, settings) and not force:
            report = _unchanged(opened.ref, recorded.verdict, fingerprint, settings)
            return Outcome(run=shown_name(run), status="unchanged", report=report)
        report, evidence = judged(opened, settings, fingerprint, ended_by=death.get(ENDED_BY, ""), quick=quick)
        if quick and report.verdict is Verdict.SKIP:
            return Outcome(run=shown_name(run), status="checked", report=report)
        # A plugin that does not load is in the digest already, and judging again would not mend it.
        complete = not quick and not set(report.errors) - set(plugins().errors)
        attached = _attached(evidence, report, quick=quick)
        digest = digest_of(state, settings, complete=complete, verdict=report.verdict)
        annotations = plan(report, digest, attached.files)
        annotations = replace(annotations, tags={**annotations.tags, **death})
        if quick:
            annotations = replace(annotations, files={})
        outcome = Outcome(
            run=shown_name(run),
            status="dry-run",
            report=with_note(report, attached.missing),
            annotations=annotations,
            sketch=sketch_of(evidence),
        )
        return outcome if dry_run else _written(opened, annotations, outcome)


def would_annotate(run: OnServer, config: Config, *, silent: bool = False) -> int | None:
    """How many bytes of its files annotating a run could read at most; None where its annotation still holds.

    ``silent``: it claims to go on, and nothing came from it for long.
    """
    settings = for_run(config, run)
    request = needs_of(settings)
    recorded = run.recorded()
    state = run.fingerprint(request) + _death("", recorded, run, silent=silent).get(ENDED_BY, "")
    if recorded is not None and recorded.verdict and _holds(recorded, state, settings):
        return None
    return min(run.bytes_of_files(request), settings.max_download)


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


def judged(
    run: TrackedRun, config: Config, fingerprint: str | None = None, *, ended_by: str = "", quick: bool = False
) -> tuple[Report, Evidence]:
    """The report on a run, and what it was judged by. ``fingerprint``: the run's, where it is known already;
    ``ended_by``, ``quick``: see ``annotate``.
    """
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


def resolved(config: Config | str) -> Config:
    """The configuration, of a preset by its name.

    Raises:
        ConfigError: it names something that does not exist.
    """
    settings = preset(config) if isinstance(config, str) else config
    hosts.allow(*settings.trusted_hosts)
    configured_probes(settings)  # a configuration that makes no sense is told once, and not for every run
    return settings


def for_run(config: Config, run: TrackedRun) -> Config:
    """The configuration with the overrides that are meant for this run; nothing is asked of the store without any."""
    return config.for_run(run.traits()) if config.overrides else config


def _attached(evidence: Evidence, report: Report, *, quick: bool) -> Attachments:
    """The files that go with a report; none with one that says nothing, nor with a first look."""
    from tracker_health.render.attachments import Attachments, attachments

    if quick or report.verdict is Verdict.SKIP:
        return Attachments()
    with _drawing:
        return attachments(evidence, report)


def sketch_of(evidence: Evidence) -> str:
    """The loss curve in one line of text, "" where there is none."""
    from tracker_health.render.sketch import sketch

    return sketch(evidence)


def with_note(report: Report, note: str) -> Report:
    """The report with one more note, where there is any to add."""
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


def failed(run: str | Path | Listed, error: Exception, config: Config) -> Outcome:
    """The outcome for a run that could not be judged."""
    shown = shown_name(run)
    store = store_of(str(run).strip())
    report = _failure(RunRef(store=store, id=shown, name=shown), error, _tool(config))
    return Outcome(run=shown, status="failed", report=report, error=error)


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
