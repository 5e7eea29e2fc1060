"""One run, from its store to the verdict on it: looked at, judged, drawn, written, and told to people."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

from tracker_health.config import Config
from tracker_health.errors import LeftAlone, RunError, described
from tracker_health.evidence import Evidence
from tracker_health.judge.annotations import (
    ACK,
    NOTIFIED,
    OPEN,
    PICTURE_FILE,
    REPORT_FILE,
    STEP,
    Annotations,
    digest_of,
    is_wanted,
    note_with_group,
    plan,
    shadow_of,
)
from tracker_health.judge.engine import needs_of, tool_of
from tracker_health.judge.group_verdict import GroupVerdict, group_sentence
from tracker_health.judge.messages import SentMessages
from tracker_health.report.result import Report
from tracker_health.rules.registry import plugins
from tracker_health.run_files.several_logs import OF_SEVERAL_RUNS
from tracker_health.runs.due_messages import find_due_message, has_receiver, make_notice
from tracker_health.runs.grouping import RankGroup, RankGroups, has_own_in_the_way
from tracker_health.runs.judging import judge_run, sketch_curve
from tracker_health.runs.lookup import open_run, picture_link, shown_name
from tracker_health.runs.outcome import Outcome, add_note
from tracker_health.runs.retrying import retry_while_overtaken
from tracker_health.runs.run_config import config_for_run
from tracker_health.runs.run_end import RunEnd, exit_to_keep, find_end
from tracker_health.runs.still_holds import (
    is_as_others_judged_it,
    settings_tags,
    shadow_verdict_that_holds,
    why_verdict_holds,
)
from tracker_health.stores.base import Overtaken, Recorded, WrittenInPart
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder.reports import ReportedRun
from tracker_health.stores.found import Listed
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement, answer_marks
from tracker_health.words.ending import Ending
from tracker_health.words.verdict import Verdict

# matplotlib keeps its settings, which a drawing sets for a while, for all threads together.
_drawing = threading.Lock()
_PAUSES = (1.0, 2.0, 4.0)
"""Seconds at most before another try, where another annotator has stopped this one."""


@dataclass(frozen=True, kw_only=True)
class AnnotateOptions:
    """How runs are annotated: see ``api.annotate``. ``quick``: look at metrics alone (of W&B also at what was printed)
    and write no files; the next annotation does the rest, and a run of which metrics show nothing is left to it.
    ``ending``: how the run's process was seen to end, which is kept on the run. ``last_step``: of its
    history, which may still be on its way to W&B's server. ``report_to``: the folder below which everything is
    written, and nothing onto the run. ``alert``: see ``TrackedRun.alerts_late``. ``groups``: of which runs with several
    ranks the head gets the verdict on all of them.
    """

    config: Config
    tracking_uri: str | None = None
    dry_run: bool = False
    force: bool = False
    sidecar: bool = False
    alert: bool = False
    rejudge: bool = False
    quick: bool = False
    ending: Ending | None = None
    last_step: int | None = None
    report_to: Path | None = None
    notify: bool = False
    groups: RankGroups | None = None


def annotate_run(run: str | Path | Listed, options: AnnotateOptions) -> Outcome:
    """As ``api.annotate``, but a verdict that could not be written is an outcome with the error."""
    # What a search found has the record of that time: once somebody wrote in between, the run is looked up by its name.
    ways = chain([run], repeat(run if isinstance(run, Path) else str(run)))

    def once() -> Outcome:
        return _annotate_once(next(ways), options)

    def is_overtaken(outcome: Outcome) -> bool:
        return isinstance(outcome.error, Overtaken)

    return retry_while_overtaken(once, _PAUSES, is_overtaken)


def _annotate_once(run: str | Path | Listed, options: AnnotateOptions) -> Outcome:
    """The steps, each of which may be the last."""
    with closing(_open(run, options)) as opened:
        job = _look_at(opened, shown_name(run), options)
        if kept := _keep_verdict(job) or _keep_shadow_verdict(job):
            return kept
        report, evidence = judge_run(opened, job.config, job.fingerprint, end=job.end, quick=options.quick)
        if options.groups is not None:
            options.groups.keep(job.name, evidence, report)
        if options.quick and report.verdict is Verdict.SKIP:
            return Outcome(run=job.name, status="checked", report=report)
        if report.verdict is Verdict.SKIP and not job.owes_group and _is_skipped_already(job):
            return Outcome(run=job.name, status="unchanged", report=report)
        files, not_drawn = ({}, "") if options.quick or job.in_shadow else _draw(evidence, report, job.config)
        annotations, answered, message = _plan(job, report, evidence, files)
        outcome = _describe(job, annotations, add_note(answered, not_drawn), evidence)
        if _is_of_several_runs(report):
            refusal = f"nothing is written into {job.name}: it is not the folder of one run"
            return outcome.unwritten(LeftAlone(refusal, "of several runs give each: outputs/*"))
        if options.dry_run:
            return outcome
        if stays := _verdict_that_stays(job, report):
            return _refuse_to_replace(outcome, stays)
        if job.in_shadow:
            return _write_shadow(opened, annotations, outcome)
        token_before = SentMessages.of(opened.notified()).token
        outcome = _write(opened, annotations, outcome)
        is_ours = message.token != token_before
        return _add_message(job, answered, message, outcome) if is_ours and outcome.error is None else outcome


def _is_of_several_runs(report: Report) -> bool:
    """Whether a folder holds several runs: a verdict would be where no single run is."""
    unread = report.run.store == "directory" and report.verdict is Verdict.ERROR
    return unread and any(one.message.startswith(OF_SEVERAL_RUNS) for one in report.errors)


# Looking at what is there


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A run that is being annotated: what was asked for, and what is on the run.

    ``config``: in force for this run. ``notifies``: there is someone to send a message. ``has_news``: this call knows
    of an end that the run does not say. ``group``: the ranks that it stands for.
    """

    name: str
    run: TrackedRun
    options: AnnotateOptions
    config: Config
    end: RunEnd
    fingerprint: str
    recorded: Recorded | None
    notifies: bool
    has_news: bool
    group: RankGroup | None = None

    @property
    def owes_group(self) -> bool:
        """Whether the ranks have no verdict on what they are now."""
        return self.group is not None and self.group.is_news_to(self.recorded)

    @property
    def in_shadow(self) -> bool:
        return self.config.mode == "shadow"


def _open(run: str | Path | Listed, options: AnnotateOptions) -> TrackedRun:
    over = options.ending is not None and options.ending.how.is_over
    found = open_run(
        run, tracking_uri=options.tracking_uri, sidecar=options.sidecar, over=over, last_step=options.last_step
    )
    found.alerts_late = options.alert
    return found if options.report_to is None else ReportedRun(found, options.report_to)


def _look_at(run: TrackedRun, name: str, options: AnnotateOptions) -> _Job:
    config = config_for_run(options.config, run)
    return _Job(
        name=name,
        run=run,
        options=options,
        config=config,
        end=find_end(run, config.stale_after, options.ending),
        fingerprint=run.fingerprint(needs_of(config)),
        recorded=run.recorded(),
        notifies=options.notify and has_receiver(run, config),
        has_news=options.ending is not None and options.ending != ending_seen(run),
        group=_group_of(run, name, config, options),
    )


def _group_of(run: TrackedRun, name: str, config: Config, options: AnnotateOptions) -> RankGroup | None:
    """The group that a run stands for. Any new verdict on the run itself takes the marks on the group off, so that
    one is due with it.
    """
    group = None if options.groups is None else options.groups.headed_by(name)
    if group is None or config.mode == "shadow" or options.dry_run or has_own_in_the_way(run):
        return None
    return group


# Keeping the verdict that is there


def _keep_verdict(job: _Job) -> Outcome | None:
    """The outcome for a run whose verdict still holds; None where it is to be judged again."""
    recorded, options = job.recorded, job.options
    if recorded is None or not recorded.verdict or options.force or job.has_news:
        return None
    if job.owes_group or job.run.lacks_alert():
        return None
    note = why_verdict_holds(job.run, recorded, job.config, job.end, job.fingerprint, rejudge=options.rejudge)
    sent = SentMessages.of(recorded.notified)
    if note is None or (job.notifies and sent.is_overdue(time.time())):
        return None
    summary = note or "unchanged since the last annotation: not judged again"
    if recorded.verdict is not Verdict.SKIP:  # a run with nothing to judge gets no report
        summary += f"; its report is in {job.run.record.placing(REPORT_FILE)}"
    summary = printable(f"{recorded.headline} ({summary})" if recorded.headline else summary, 1000)
    kept = _keep(job, recorded.verdict, summary)
    report = kept.report.answered(job.run.acknowledgements(), time.time(), recorded.codes, recorded.cause)
    report = report if options.dry_run or job.in_shadow else _settle_answers(job.run, report)
    return replace(kept, report=report, owes=job.notifies and bool(sent.due))


def _is_skipped_already(job: _Job) -> bool:
    """Whether the run says already that nothing of it could be judged, by other settings: writing that again by each
    of them in turn would change the run at every sweep.
    """
    recorded, options = job.recorded, job.options
    if recorded is None or recorded.verdict is not Verdict.SKIP or options.force or job.has_news or job.in_shadow:
        return False
    return is_as_others_judged_it(job.run, recorded, job.config, job.end, rejudge=options.rejudge)


def _keep_shadow_verdict(job: _Job) -> Outcome | None:
    """The same for a run that was judged in shadow."""
    if not job.in_shadow or job.options.force:
        return None
    verdict = shadow_verdict_that_holds(job.run, job.config, job.end, job.fingerprint)
    return None if verdict is None else _keep(job, verdict, "unchanged since it was judged in shadow")


def _keep(job: _Job, verdict: Verdict, summary: str) -> Outcome:
    tool, taken = tool_of(job.config), job.fingerprint
    report = Report(run=job.run.ref, verdict=verdict, score=None, summary=summary, tool=tool, fingerprint=taken)
    return Outcome(run=job.name, status="unchanged", report=report, shadow=job.in_shadow)


def _settle_answers(run: TrackedRun, report: Report) -> Report:
    """The report, with the marks on its run brought up to date: an acknowledgement may have ended since."""
    try:
        run.settle(time.time())
    except RunError as error:
        return add_note(report, f"who acknowledged it could not be brought up to date: {described(error)}")
    return report


# Planning what is written


def _draw(evidence: Evidence, report: Report, config: Config) -> tuple[Mapping[str, bytes], str]:
    """The page and the picture that go with a report, where they are wanted, and why any of them could not be made."""
    if report.verdict is Verdict.SKIP or not is_wanted(config.pages, report.verdict):
        return {}, ""
    from tracker_health.render.attachments import attachments

    with _drawing:
        made = attachments(evidence, report, config.docs_url)
    return made.files, made.missing


def _plan(
    job: _Job, report: Report, evidence: Evidence, files: Mapping[str, bytes]
) -> tuple[Annotations, Report, SentMessages]:
    """What is to be written; the report, with what people answered; and about what they are sent a message."""
    run, config, options = job.run, job.config, job.options
    # A plugin that does not load is in the digest already, and judging again would not help.
    complete = not options.quick and not set(report.errors) - set(plugins().errors)
    digest = digest_of(job.end.state(job.fingerprint), config.digest, complete=complete, verdict=report.verdict)
    annotations = plan(report, digest, files, config)
    by = settings_tags(run, config, job.end, annotations, complete=complete)
    entries, now = run.acknowledgements(), time.time()
    answered = report.answered(entries, now)
    tags = {**annotations.tags, **by, **_step_tag(run), **_answer_tags(report, entries, now)}
    message = find_due_message(run, answered, config, job.recorded, now, notify=job.notifies)
    tags |= {NOTIFIED: message.value} if message.value else {}
    group, unjudged = _judge_group(job, evidence, report)
    if group is not None:
        tags |= group.tags
        annotations = replace(annotations, note=note_with_group(annotations.note, group_sentence(group)))
    answered = add_note(answered, unjudged)
    annotations = replace(annotations, tags=tags, exit=exit_to_keep(run, options.ending, job.end, evidence))
    return replace(annotations, files={}) if options.quick else annotations, answered, message


def _judge_group(job: _Job, evidence: Evidence, report: Report) -> tuple[GroupVerdict | None, str]:
    """The verdict on the ranks that the run stands for, None where there are none; and why they could not be judged."""
    groups, group = job.options.groups, job.group
    if groups is None or group is None:
        return None, ""

    def read(name: str) -> Evidence:
        with closing(_open(name, job.options)) as opened:
            return opened.read(replace(needs_of(job.config), parts=frozenset()))

    try:
        return groups.verdict(group, (evidence, report), job.config, read), ""
    except Exception as error:  # noqa: BLE001  the run's own verdict is as good without it; the next sweep tries again
        return None, f"its ranks could not be judged together: {printable(described(error), 300)}"


def _step_tag(run: TrackedRun) -> dict[str, str]:
    last = run.last_step()
    return {} if last is None else {STEP: str(last)}


def _answer_tags(report: Report, entries: tuple[Acknowledgement, ...], now: float) -> dict[str, str]:
    """The tags next to the verdict that say who answered it, and whether someone still has to look."""
    found = answer_marks(tuple(result.code for result in report.findings), report.cause, entries, now)
    return {ACK: found.ack, OPEN: found.open} if found.open else {}


def _describe(job: _Job, annotations: Annotations, report: Report, evidence: Evidence) -> Outcome:
    """The outcome before anything is written."""
    return Outcome(
        run=job.name,
        status="dry-run",
        report=report,
        annotations=annotations,
        sketch=sketch_curve(evidence, report),
        replaces_older=job.recorded is not None and job.recorded.is_older_than(job.run.last_step()),
        shadow=job.in_shadow,
    )


# Writing


def _verdict_that_stays(job: _Job, report: Report) -> Verdict | None:
    """The verdict that a run keeps, as this time it could not be judged; None where what was found is written."""
    if report.verdict is not Verdict.ERROR:
        return None
    if job.in_shadow:
        found = job.run.shadow()
        before = None if found is None else found.verdict
    else:
        before = job.recorded.verdict if job.recorded is not None and job.recorded.is_whole else None
    return None if before is Verdict.ERROR else before


def _refuse_to_replace(outcome: Outcome, stays: Verdict) -> Outcome:
    """The outcome for a run that has a verdict, and could not be judged this time."""
    why = next((f"{one.source}: {one.message}" for one in outcome.report.errors), outcome.report.summary)
    message = f"it could not be judged, and the verdict that it has ({stays}) stays: {printable(why, 400)}"
    return outcome.unwritten(RunError(message, "put that right and annotate it again; clear takes the verdict off"))


def _write_shadow(run: TrackedRun, annotations: Annotations, outcome: Outcome) -> Outcome:
    """The outcome of writing the one tag of a verdict that is only tried out."""
    try:
        run.write_shadow(shadow_of(outcome.report, annotations.digest))
    except Exception as error:  # noqa: BLE001  the verdict is reported all the same
        return outcome.unwritten(error)
    return replace(outcome, status="shadow")


def _write(run: TrackedRun, annotations: Annotations, outcome: Outcome) -> Outcome:
    """The outcome of writing; the report then also says what of it was left out, or could not be written."""
    try:
        omitted = run.write(annotations)
    except WrittenInPart as error:
        outcome, omitted = outcome.with_error(error), error.omitted
    except Exception as error:  # noqa: BLE001  the verdict is reported all the same
        return outcome.unwritten(error)
    report = add_note(outcome.report, f"not written: {'; '.join(omitted)}" if omitted else "")
    return replace(outcome, status="written", report=report, omitted=omitted)


def _add_message(job: _Job, report: Report, message: SentMessages, outcome: Outcome) -> Outcome:
    """The outcome, with the message that is due from us."""
    if job.options.quick or not job.options.notify or not message.due:
        return outcome
    uri = job.options.tracking_uri
    notice = make_notice(job.run, job.name, report, job.config, traits=job.run.traits(), due=message, tracking_uri=uri)
    drawn = outcome.annotations is not None and PICTURE_FILE in outcome.annotations.files
    return replace(outcome, notice=replace(notice, picture=picture_link(report.run)) if drawn else notice)
