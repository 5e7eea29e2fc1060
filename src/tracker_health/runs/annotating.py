"""One run from its store to the verdict on it: read, judged, drawn, and written."""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tracker_health.config import Config, preset
from tracker_health.errors import RunError, described
from tracker_health.evidence import Evidence, Part, Request, RunRef
from tracker_health.judge.annotations import (
    ACK,
    NOTIFIED,
    OPEN,
    REPORT_FILE,
    RULES,
    SETTINGS,
    STEP,
    Annotations,
    JudgedBy,
    digest_of,
    is_wanted,
    plan,
    shadow_of,
)
from tracker_health.judge.checkpoint_choice import onset_of, rewind_of
from tracker_health.judge.engine import configured_probes, diagnose, needs_of, tool_of
from tracker_health.judge.messages import Before, Notice, SentMessages, due_of, notice_of
from tracker_health.report.result import ErrorEntry, Report, ToolInfo
from tracker_health.rules.registry import RULES_VERSION, plugins
from tracker_health.runs.lookup import open_run, shown_name, store_of
from tracker_health.settings.policy import VARIABLE as POLICY
from tracker_health.stores.base import Listed, OnServer, Overtaken, Recorded, TrackedRun, WrittenInPart, alerting
from tracker_health.stores.common.exits import ending_seen, exit_value
from tracker_health.stores.folder.reports import reporting_to
from tracker_health.stores.remote import hosts
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement, marks
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.verdict import Verdict

_NOT_YET = "it was not looked at yet: the rest of the judgement follows"
# matplotlib keeps its settings, which a drawing sets for a while, for all threads together.
_drawing = threading.Lock()
# Seconds at most, by chance, before an annotator that another has stopped begins again: both would meet again at once.
_PAUSES = (1.0, 2.0, 4.0)
Status = Literal["checked", "written", "unchanged", "dry-run", "failed", "shadow"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one run.

    ``status``: ``written``; ``unchanged`` (the annotation there still holds: the run was not judged again);
    ``dry-run`` and ``checked`` (judged, nothing written); ``failed`` (could not be judged or written: ``error`` says
    why; ``annotations`` are there if it was judged). ``annotations``: what was, or would be, written; ``omitted``: what
    of it was left out for something of the owner's, with the reason. ``run``: as given, a URL without its secrets.
    ``sketch``: the loss curve in one line of text, "" where there is none. ``replaces_older``: the verdict that the run
    had before was on a part of its data. ``shadow``: verdicts are only tried out: nobody is notified, and no exit code
    says so. With the status ``shadow`` the one tag for that was written. ``notice``: a message that this call has to
    send; ``owes``: another call has one to send, and may still do so.
    """

    run: str
    status: Status
    report: Report
    annotations: Annotations | None = None
    omitted: tuple[str, ...] = ()
    error: Exception | None = None
    sketch: str = ""
    replaces_older: bool = False
    shadow: bool = False
    notice: Notice | None = None
    owes: bool = False

    @property
    def complete(self) -> bool:
        """Whether the run was found, read, judged and written, with nothing missing on the way."""
        return self.error is None and not self.report.errors and self.report.verdict is not Verdict.ERROR

    def failed_with(self, error: Exception) -> Outcome:
        """The outcome for a run whose result turned out to be good for nothing.

        Args:
            error: Why.

        Returns:
            The same run's outcome, with the error in place of a verdict.
        """
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
    rejudge: bool = False,
    quick: bool = False,
    ending: Ending | None = None,
    last_step: int | None = None,
    report_to: Path | None = None,
    notify: bool = False,
) -> Outcome:
    """As ``annotate``, but a verdict that could not be written is an outcome with the error. ``report_to``: the folder
    below which everything is written, and nothing onto the run.
    """
    over = ending is not None and ending.how.is_over
    found = open_run(run, tracking_uri=tracking_uri, sidecar=sidecar, over=over, last_step=last_step)
    with closing(found if report_to is None else reporting_to(found, report_to)) as opened:
        settings = for_run(base, opened)
        shadow = settings.mode == "shadow"
        end = _end_of(opened, settings.stale_after, ending)
        fingerprint = opened.fingerprint(needs_of(settings))
        recorded = opened.recorded()
        alerts = alerting(opened) is not None
        asked = notify and not shadow and settings.notify.reaches(alerts=alerts)
        is_news = ending is not None and ending != ending_seen(opened)
        if recorded is not None and recorded.verdict and not force and not is_news:
            note = _why_it_stays(opened, recorded, settings, end, fingerprint, rejudge=rejudge)
            told = SentMessages.of(recorded.notified)
            if note is not None and not (asked and told.is_overdue(time.time())):
                report = _unchanged(opened.ref, recorded.verdict, fingerprint, settings, note)
                report = report.answered(opened.acknowledgements(), time.time(), recorded.codes, recorded.cause)
                report = report if dry_run or shadow else _settled(opened, report)
                owes = asked and bool(told.due)
                return Outcome(run=shown_name(run), status="unchanged", report=report, shadow=shadow, owes=owes)
        if shadow and not force and (known := _tried_out(opened, settings, end, fingerprint)) is not None:
            return Outcome(run=shown_name(run), status="unchanged", report=known, shadow=True)
        report, evidence = judged(opened, settings, fingerprint, end=end, quick=quick)
        if quick and report.verdict is Verdict.SKIP:
            return Outcome(run=shown_name(run), status="checked", report=report)
        # A plugin that does not load is in the digest already, and judging again would not help.
        complete = not quick and not set(report.errors) - set(plugins().errors)
        files, unmade = ({}, "") if quick or shadow else _attached(evidence, report, settings)
        digest = digest_of(end.state(fingerprint), settings.digest, complete=complete, verdict=report.verdict)
        annotations = plan(report, digest, files, settings)
        by = _judged_by(opened, settings, end, annotations, complete=complete)
        entries, now = opened.acknowledgements(), time.time()
        tags = {**annotations.tags, SETTINGS: by.value, RULES: str(RULES_VERSION), **_step_tag(opened)}
        tags |= _marks_of(report, entries, now)
        answered = report.answered(entries, now)
        told = _told_of(opened, answered, settings, recorded, now, notify=notify)
        tags |= {NOTIFIED: told.value} if told.value else {}
        annotations = replace(annotations, tags=tags, exit=_exit_to_keep(opened, ending, end, evidence))
        if quick:
            annotations = replace(annotations, files={})
        outcome = Outcome(
            run=shown_name(run),
            status="dry-run",
            report=with_note(answered, unmade),
            annotations=annotations,
            sketch=sketch_of(evidence),
            replaces_older=recorded is not None and recorded.is_older_than(opened.last_step()),
            shadow=shadow,
        )
        if dry_run:
            return outcome
        if stays := _what_stays(opened, recorded, report, shadow=shadow):
            return _not_replaced(outcome, stays)
        if shadow:
            return _shadowed(opened, outcome)
        token_before = SentMessages.of(opened.notified()).token
        outcome = _written(opened, annotations, outcome)
        if quick or not notify or not told.due or outcome.error is not None or told.token == token_before:
            return outcome
        notice = notice_of(
            answered,
            run=name_for_others(outcome.run),
            store=store_key(tracking_uri),
            traits=opened.traits(),
            notify=settings.notify,
            docs_url=settings.docs_url,
            due=told,
            alerts=alerts,
        )
        return replace(outcome, notice=notice)


def _what_stays(run: TrackedRun, recorded: Recorded | None, report: Report, *, shadow: bool) -> Verdict | None:
    """The verdict that a run keeps, as this time it could not be judged; None where what was found is written."""
    if report.verdict is not Verdict.ERROR:
        return None
    if shadow:
        found = run.shadow()
        before = None if found is None else found.verdict
    else:
        before = recorded.verdict if recorded is not None and recorded.is_whole else None
    return None if before is Verdict.ERROR else before


def _not_replaced(outcome: Outcome, stays: Verdict) -> Outcome:
    """The outcome for a run that has a verdict, and could not be judged this time."""
    why = next((f"{one.source}: {one.message}" for one in outcome.report.errors), outcome.report.summary)
    message = f"it could not be judged, and the verdict that it has ({stays}) stays: {printable(why, 400)}"
    error = RunError(message, "put that right and annotate it again; clear takes the verdict off")
    return replace(_with_error(outcome, error), status="failed", error=error)


def _told_of(
    run: TrackedRun, report: Report, config: Config, recorded: Recorded | None, now: float, *, notify: bool
) -> SentMessages:
    """About what people were sent a message, and whether one is due now; a token that is new says that it is ours."""
    told = SentMessages.of(run.notified())
    reaches = config.notify.reaches(alerts=alerting(run) is not None)
    if not (notify and reaches) or config.mode == "shadow":
        return told
    before = None
    if recorded is not None and recorded.verdict is not None and recorded.is_whole:
        by = JudgedBy.of(recorded.settings)
        alike = recorded.rules in (None, RULES_VERSION) and by.config == config.digest and by.policy == config.policy
        before = Before(verdict=recorded.verdict, cause=recorded.cause or ",".join(recorded.codes[:1]), alike=alike)
    due = due_of(report, config.notify, run.traits(), told, before)
    return told.owing(due, now, secrets.token_hex(4))


def name_for_others(run: str) -> str:
    """What ``open_run`` takes from another folder, too."""
    with suppress(OSError):
        return str(Path(run).absolute()) if Path(run).exists() else run
    return run


def store_key(tracking_uri: str | None) -> str:
    """Of the store of run ids. Its address may have a password in it, and is kept nowhere."""
    place = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _marks_of(report: Report, entries: tuple[Acknowledgement, ...], now: float) -> dict[str, str]:
    """The tags beside the verdict that say who answered it, and whether somebody still has to look."""
    cause = report.diagnosis.cause if report.diagnosis is not None else ""
    found = marks(tuple(result.code for result in report.findings), cause, entries, now)
    return {ACK: found.ack, OPEN: found.open} if found.open else {}


def _settled(run: TrackedRun, report: Report) -> Report:
    """The report, with the marks on its run brought up to date: an acknowledgement may have ended since."""
    try:
        run.settle(time.time())
    except RunError as error:
        return with_note(report, f"who acknowledged it could not be brought up to date: {described(error)}")
    return report


def _tried_out(run: TrackedRun, config: Config, end: _End, fingerprint: str) -> Report | None:
    """The report on a run that was judged in shadow, and of which judging it again could say nothing new."""
    found = run.shadow()
    if found is None or found.digest != digest_of(end.state(fingerprint), config.digest, verdict=found.verdict):
        return None
    return _without_results(run.ref, found.verdict, fingerprint, config, "unchanged since it was judged in shadow")


def _shadowed(run: TrackedRun, outcome: Outcome) -> Outcome:
    """The outcome of writing the one tag of a verdict that is only tried out."""
    annotations = outcome.annotations
    try:
        run.write_shadow(shadow_of(outcome.report, annotations.digest if annotations is not None else ""))
    except Exception as error:  # noqa: BLE001  the verdict is reported all the same
        return replace(_with_error(outcome, error), status="failed", error=error)
    return replace(outcome, status="shadow")


def checked(run: str | Path | Listed, config: Config, tracking_uri: str | None) -> Outcome:
    """A run as it is judged; nothing is written. The report shows an older verdict on the run.

    Raises:
        RunError: the run cannot be found or read at all.
    """
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        settings = for_run(config, opened)
        report, evidence = judged(opened, settings)
        report = report.answered(opened.acknowledgements(), time.time())
        recorded, last = opened.recorded(), opened.last_step()
    if recorded is not None and recorded.is_older_than(last):
        older = f"the verdict on the run ({recorded.verdict}) is older than its data: it was given at step"
        report = with_note(report, f"{older} {recorded.step}, and the run is at {last}; annotate judges it again")
    return Outcome(
        run=shown_name(run),
        status="checked",
        report=report,
        sketch=sketch_of(evidence),
        shadow=settings.mode == "shadow",
    )


def _step_tag(run: TrackedRun) -> dict[str, str]:
    last = run.last_step()
    return {} if last is None else {STEP: str(last)}


def would_annotate(run: OnServer, config: Config, *, rejudge: bool = False) -> int | None:
    """How many bytes of its files annotating a run could read at most; None where its annotation still holds."""
    settings = for_run(config, run)
    request = needs_of(settings)
    recorded, end = run.recorded(), _end_of(run, settings.stale_after)
    if recorded is not None and recorded.verdict:
        fingerprint = run.fingerprint(request)
        if _why_it_stays(run, recorded, settings, end, fingerprint, rejudge=rejudge) is not None:
            return None
    return min(run.bytes_of_files(request), settings.max_download)


def goes_on(run: OnServer, config: Config) -> bool:
    """Whether a run that claims to go on seems to do so, and has no verdict by which it does not."""
    end, recorded = _end_of(run, for_run(config, run).stale_after), run.recorded()
    is_called_silent = recorded is not None and recorded.ended == Ended.SILENT
    return end.seen is None and end.silent_for is None and not is_called_silent


@dataclass(frozen=True, kw_only=True)
class _End:
    """What is known of a run's end beside its evidence. ``seen``: by the launcher or a hook; ``silent_for``: seconds
    since a run that claims to go on was heard of, where these are too many.
    """

    seen: Ending | None = None
    silent_for: float | None = None

    def state(self, fingerprint: str) -> str:
        """A run's fingerprint with that: what the digest is made of. That a run finished says nothing new of most."""
        new = self.seen is not None and self.seen.how is not Ended.FINISHED
        seen = [str(self.seen.how), self.seen.by] if self.seen is not None and new else []
        return json.dumps([fingerprint, *seen, self.silent_for is not None])


def _end_of(run: TrackedRun, stale_after: float, ending: Ending | None = None) -> _End:
    """The same for every command: what is on the run, what this call knows, and for how long it has been silent."""
    seen = ending or ending_seen(run)
    heard = run.heard() if seen is None else None
    silent = None if heard is None else time.time() - heard
    too_long = silent is not None and silent > stale_after
    return _End(seen=seen, silent_for=silent if too_long else None)


def _exit_to_keep(run: TrackedRun, ending: Ending | None, end: _End, evidence: Evidence) -> str:
    """What the run has to have of it for those who look later; nothing where the rest of it says that it finished."""
    if ending is None:
        return run.exit() if end.seen is not None else ""
    otherwise = replace(evidence, info=replace(evidence.info, seen=None)).ending
    is_known = otherwise is not None and otherwise.how is ending.how is Ended.FINISHED
    return "" if is_known else exit_value(ending, run.state())


def _why_it_stays(
    run: TrackedRun, recorded: Recorded, config: Config, end: _End, fingerprint: str, *, rejudge: bool
) -> str | None:
    """Why the annotation of a run is left as it is: a note, empty where nothing has changed; None where the run is to
    be judged again.

    On a server the settings of whoever comes next do not change a verdict that still holds, unless a policy asks for
    it: else two people's settings would change it back and forth. So it is with two versions of the rules, for runs
    that have ended and unless ``rejudge`` asks for it: an upgrade does not rewrite the history of a team.
    """
    rules = RULES_VERSION if rejudge else _rules_that_hold(recorded)
    if recorded.digest == digest_of(end.state(fingerprint), config.digest, verdict=recorded.verdict, rules=rules):
        older = f"it was judged by version {rules} of the rules, these are version {RULES_VERSION}"
        return "" if rules == RULES_VERSION else f"{older}; --rejudge judges it by these"
    by = JudgedBy.of(recorded.settings)
    if not run.shared or by.config == config.digest or config.policy not in ("", by.policy) or not by.state:
        return None
    state = _end_of(run, by.stale_after, end.seen).state(run.fingerprint(needs_of(Config())))
    if by.state != digest_of(state, recorded.digest, verdict=recorded.verdict, rules=rules):
        return None
    return "it was judged with other settings, which stay in force on a server; --force judges it with these"


def _rules_that_hold(recorded: Recorded) -> int:
    """The version of the rules whose verdict on a run stays: of a run that has ended the one that judged it."""
    has_ended = recorded.ended in set(Ended) - {Ended.RUNNING, Ended.SILENT}
    return RULES_VERSION if recorded.rules is None or not has_ended else recorded.rules


def _judged_by(run: TrackedRun, config: Config, end: _End, annotations: Annotations, *, complete: bool) -> JudgedBy:
    """By which settings a run was judged, with what ``_why_it_stays`` goes by where somebody has others."""
    by = JudgedBy(config=config.digest, policy=config.policy, stale_after=config.stale_after)
    if not (complete and run.shared):
        return by
    state = end.state(run.fingerprint(needs_of(Config())))
    return replace(by, state=digest_of(state, annotations.digest, verdict=annotations.verdict))


def judged(
    run: TrackedRun,
    config: Config,
    fingerprint: str | None = None,
    *,
    end: _End | None = None,
    quick: bool = False,
    go_back: bool = True,
) -> tuple[Report, Evidence]:
    """The report on a run, and what it was judged by. ``fingerprint`` and ``end``: the run's, where they are known
    already; ``quick``: see ``annotate``; ``go_back``: look for the checkpoint to go back to where the run went wrong.
    """
    request = needs_of(config)
    taken = run.fingerprint(request) if fingerprint is None else fingerprint
    known = _end_of(run, config.stale_after) if end is None else end
    # What was printed lies beside W&B's own history: without it a run that crashed could be called healthy.
    later = request.parts - ({Part.TEXT_LOG} if run.ref.store == "wandb" else set()) if quick else frozenset()
    evidence = run.read(replace(request, parts=request.parts - later))
    missing = {**dict.fromkeys(later, _NOT_YET), **evidence.missing}
    info = replace(evidence.info, seen=known.seen, silent_for=known.silent_for)
    evidence = replace(evidence, fingerprint=taken, missing=missing, info=info, baseline=config.baseline)
    report = diagnose(evidence, config)
    report = replace(report, notes=(*report.notes, *run.remarks()))
    return _with_way_back(run, report, evidence, request) if go_back and not quick else report, evidence


def _with_way_back(run: TrackedRun, report: Report, evidence: Evidence, request: Request) -> Report:
    """The report, with the checkpoint to go back to. What goes wrong with that must not take the verdict with it."""
    try:
        shelf = run.saved(request) if onset_of(report, evidence) is not None else None
        return report if shelf is None else replace(report, rewind=rewind_of(report, evidence, shelf))
    except Exception as error:  # noqa: BLE001
        return with_note(report, f"no checkpoint to go back to was looked for: {printable(described(error), 300)}")


def resolved(config: Config | str, *, writes: bool = False) -> Config:
    """The configuration, of a preset by its name, with the policy that the environment names beneath it.

    ``writes``: verdicts are written by it: what the policy locks holds.

    Raises:
        ConfigError: it names something that does not exist, or the policy cannot be read.
    """
    settings = preset(config) if isinstance(config, str) else config
    if os.environ.get(POLICY):
        from tracker_health.settings.sources import under_policy

        settings = under_policy(settings, writes=writes)
    hosts.allow(*settings.trusted_hosts)
    configured_probes(settings)  # a configuration that makes no sense is reported once, and not for every run
    return settings


def for_run(config: Config, run: TrackedRun) -> Config:
    """The configuration with the overrides that are meant for this run; nothing is asked of the store without any."""
    return config.for_run(run.traits()) if config.overrides else config


def _attached(evidence: Evidence, report: Report, config: Config) -> tuple[Mapping[str, bytes], str]:
    """The page and the picture that go with a report, where they are wanted, and why any of them could not be made."""
    if report.verdict is Verdict.SKIP or not is_wanted(config.pages, report.verdict):
        return {}, ""
    from tracker_health.render.attachments import attachments

    with _drawing:
        made = attachments(evidence, report, config.docs_url)
    return made.files, made.missing


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
    except Exception as error:  # noqa: BLE001  the verdict is reported all the same
        return replace(_with_error(outcome, error), status="failed", error=error)
    report = outcome.report
    if omitted:
        report = replace(report, notes=(*report.notes, f"not written: {'; '.join(omitted)}"))
    return replace(outcome, status="written", report=report, omitted=omitted)


def _with_error(outcome: Outcome, error: Exception) -> Outcome:
    entry = ErrorEntry(source="annotation", message=described(error))
    return replace(outcome, report=replace(outcome.report, errors=(*outcome.report.errors, entry)))


def failed(run: str | Path | Listed, error: Exception, config: Config) -> Outcome:
    """The outcome for a run that could not be judged."""
    shown = shown_name(run)
    store = store_of(str(run).strip())
    report = _failure(RunRef(store=store, id=shown, name=shown), error, tool_of(config))
    return Outcome(run=shown, status="failed", report=report, error=error, shadow=config.mode == "shadow")


def _failure(ref: RunRef, error: Exception, tool: ToolInfo) -> Report:
    """The report on a run of which there is nothing but an error."""
    message = described(error)
    errors = (ErrorEntry(source=ref.id, message=message),)
    return Report(run=ref, verdict=Verdict.ERROR, score=None, summary=printable(message, 500), errors=errors, tool=tool)


def _unchanged(ref: RunRef, verdict: Verdict, fingerprint: str, config: Config, note: str) -> Report:
    summary = note or "unchanged since the last annotation: not judged again"
    if verdict is not Verdict.SKIP:  # a run with nothing to judge gets no report
        summary += f"; its report is in health/{REPORT_FILE}"
    return _without_results(ref, verdict, fingerprint, config, summary)


def _without_results(ref: RunRef, verdict: Verdict, fingerprint: str, config: Config, summary: str) -> Report:
    return Report(run=ref, verdict=verdict, score=None, summary=summary, tool=tool_of(config), fingerprint=fingerprint)
