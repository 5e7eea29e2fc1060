"""Whether people are to be sent a message about a run, and the message. What waits is in ``message_queue``."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tracker_health.config import Config
from tracker_health.judge.messages import Before, Notice, SentMessages, due_of, notice_of, subject_of
from tracker_health.report.result import Report
from tracker_health.runs.still_holds import is_judged_alike
from tracker_health.stores.base import Recorded
from tracker_health.stores.common.tracked_run import TrackedRun, alerting


def has_receiver(run: TrackedRun, config: Config) -> bool:
    """Whether there is anybody to send a message about this run; while verdicts are only tried out there is not."""
    return config.mode != "shadow" and config.notify.reaches(alerts=alerting(run) is not None)


def find_due_message(
    run: TrackedRun, report: Report, config: Config, recorded: Recorded | None, now: float, *, notify: bool
) -> SentMessages:
    """About what people were sent a message, and whether one is due now; a token that is new says that it is ours.

    ``notify``: whether anybody is to be sent one at all.
    """
    sent = SentMessages.of(run.notified())
    if not notify:
        return sent
    before = None
    if recorded is not None and recorded.verdict is not None and recorded.is_whole:
        cause = recorded.cause or ",".join(recorded.codes[:1])
        before = Before(verdict=recorded.verdict, cause=cause, alike=is_judged_alike(recorded, config))
    return owe_message(sent, due_of(report, config.notify, run.traits(), sent, before), now)


def owe_message(sent: SentMessages, due: str, now: float) -> SentMessages:
    """The same, with a message on this cause due from us; on none where it is ""."""
    return sent.owing(due, now, secrets.token_hex(4))


def make_notice(
    run: TrackedRun,
    name: str,
    report: Report,
    config: Config,
    *,
    traits: Mapping[str, str],
    due: SentMessages,
    tracking_uri: str | None,
) -> Notice:
    """The message that is due on a report. ``name``: what ``open_run`` takes; ``traits``: the run's."""
    return notice_of(
        report,
        run=name_from_anywhere(name),
        store=store_key(tracking_uri),
        traits=traits,
        notify=config.notify,
        docs_url=config.docs_url,
        due=due,
        alerts=alerting(run) is not None,
    )


def silence_notice(
    run: TrackedRun, name: str, report: Report, config: Config, *, since: float, tracking_uri: str | None
) -> Notice | None:
    """The message on a run that stands still since ``since``, its last point, in seconds since 1970; None where it is
    one that nobody is sent a message about. ``name``: what ``open_run`` takes; ``report``: on the silence alone.
    """
    traits = run.traits()
    if not has_receiver(run, config) or config.notify.is_muted(traits):
        return None
    due = SentMessages(due=subject_of(report), since=int(time.time()))
    notice = make_notice(run, name, report, config, traits=traits, due=due, tracking_uri=tracking_uri)
    return replace(notice, silence=since)


def name_from_anywhere(run: str) -> str:
    """What ``open_run`` takes from another folder, too."""
    with suppress(OSError):
        return str(Path(run).absolute()) if Path(run).exists() else run
    return run


def store_key(tracking_uri: str | None) -> str:
    """Of the store of run ids. Its address may have a password in it, and is kept nowhere."""
    place = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", "")
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]
