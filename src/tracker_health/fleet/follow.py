"""A run that is still running, followed from outside: judged by the live rules again and again, until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from tracker_health.config import Config, Notify
from tracker_health.errors import ConfigError, RunError, RunNotFound, StoreRefused, described
from tracker_health.evidence import Evidence
from tracker_health.fleet.silence import SilenceWatch
from tracker_health.judge.messages import SentMessages, due_of
from tracker_health.live.hang import Hang
from tracker_health.live.replay import extent_of
from tracker_health.live.verdicts import FEWEST_POINTS, GROWTH, LiveFinding, LiveJudge
from tracker_health.report.brief import brief_cause
from tracker_health.report.result import Report
from tracker_health.runs.due_messages import has_receiver, make_notice, owe_message, silence_notice, store_key
from tracker_health.runs.lookup import open_run, shown_name
from tracker_health.runs.message_queue import MessageQueue, deliver_quietly
from tracker_health.runs.run_config import config_for_run
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.text import clipped, duration, printable
from tracker_health.words.verdict import Verdict

EVERY_SECONDS = 60.0
_ASKS = 4
"""How often the run's record is asked for in that time: its history is fetched only where that says that it grew."""
_REST = 20.0
"""So many times as long as a look took nothing is asked or fetched again: a long history costs its server little."""
_MOST_CHARACTERS = 600
_EVENT_BYTES, _NAME_BYTES = 1_200, 60
_COMPARED = "CMP001"
_OUR_TRACKERS = frozenset({"mlflow", "wandb", "trackio"})


Kind = Literal["following", "finding", "asked", "message", "failed", "recovered", "silent", "over"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something to say of a run that is followed: in one line, and the finding that it is about."""

    kind: Kind
    text: str
    finding: LiveFinding | None = None

    def __str__(self) -> str:
        return self.text

    def to_json(self, now: float) -> dict[str, Any]:
        """As strict JSON values, of at most 2 kB on one line.

        Args:
            now: In seconds since 1970.

        Returns:
            The event with its time, and of a finding the rule, the step and the cause.
        """
        found = self.finding
        cause = found.cause if found is not None else None
        return {
            "schema": "tracker-health/event/1",
            "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
            "event": self.kind,
            "text": clipped(self.text, _EVENT_BYTES),
            "verdict": None if found is None else str(found.verdict),
            "code": None if found is None else found.code or None,
            "name": None if found is None else clipped(found.name, _NAME_BYTES),
            "step": None if found is None else found.step,
            "cause": None if cause is None else brief_cause(cause.cause, cause.certainty),
            "stops": found is not None and found.stops,
        }


class Follower:
    """One run, for as long as it continues. Nothing of its history is kept from one look to the next."""

    def __init__(
        self,
        run: str,
        config: Config,
        tracking_uri: str | None = None,
        *,
        stop_on: str | None = None,
        every: float = EVERY_SECONDS,
        dry_run: bool = False,
        messages: MessageQueue | None = None,
    ) -> None:
        """Follow a run.

        Args:
            run: What names it, as ``open_run`` takes it.
            config: How to judge, and whom to send messages. Its ``baseline`` is what is usual.
            tracking_uri: The MLflow store of run ids.
            stop_on: ``"fail"`` or ``"warn"``: at such a finding the run is asked to stop; None for never.
            every: Seconds between two judgements at most, if something was logged since.
            dry_run: Only say so: nobody is asked to stop or sent a message.
            messages: Where messages wait; by default that of this user.

        Raises:
            ConfigError: ``stop_on`` makes no sense.
        """
        if stop_on not in (None, "warn", "fail"):
            raise ConfigError(f'stop_on={stop_on!r}: it must be "warn", "fail" or None')
        self._run, self._config, self._tracking_uri = run, config, tracking_uri
        self._stop_on, self._every, self._dry_run = Verdict(stop_on) if stop_on else None, every, dry_run
        self._messages = messages or MessageQueue()
        self._judge: LiveJudge | None = None
        self._seen: tuple[str, bool] | None = None
        self._last_step, self._changed = -1, time.monotonic()
        self._not_before = self._due_at = self._spent = 0.0
        self._to_stop_for: LiveFinding | None = None
        self._was_asked = False
        self._to_send: list[tuple[Report, LiveFinding]] = []
        self._owed: list[str] = []
        self._trouble = self._unsent_why = ""
        self._over = False
        self._silences: SilenceWatch | None = None

    def events(self, wait: Callable[[float], bool]) -> Iterator[Event]:
        """What there is to say of the run while it is running.

        Args:
            wait: Waits for so many seconds; true where nobody wants to follow the run any longer.

        Yields:
            Findings, requests, what went wrong on the way, and at last how the run ended.

        Raises:
            RunError: the run is not there, cannot be opened to begin with, or cannot be asked to stop.
        """
        yield from self._begin()
        while True:
            try:
                yield from self._look()
                if self._trouble:
                    yield _event("recovered", "it works again")
                self._trouble = ""
            except RunNotFound:
                raise
            except RunError as error:
                if not self._trouble:
                    self._trouble = described(error)
                    yield _event("failed", f"this failed, and is tried again: {self._trouble}")
            yield from self._deliver()
            if self._over or wait(max(self._every / _ASKS, min(self._every, _REST * self._spent))):
                return

    def _begin(self) -> Iterator[Event]:
        with closing(self._open()) as opened:
            settings = config_for_run(self._config, opened)
            self._judge, self._silences = LiveJudge(settings, self._stop_on), SilenceWatch(settings, self._every)
            if self._stop_on is not None and (why := opened.why_not_asked()):
                raise StoreRefused(
                    f"{printable(shown_name(self._run))} cannot be asked to stop: {why}", "leave out --stop-on"
                )
            asks = f"; asks it to stop at {self._stop_on}" if self._stop_on is not None else ""
            dry = " (dry run: only says so)" if self._dry_run and asks else ""
            yield _event("following", f"following {opened.ref.name} ({opened.ref.url or opened.ref.id}){asks}{dry}")

    def _open(self) -> TrackedRun:
        return open_run(self._run, tracking_uri=self._tracking_uri)

    @property
    def _known(self) -> LiveJudge:
        if self._judge is None:
            raise LookupError("the run was not opened yet")
        return self._judge

    # Looking

    def _look(self) -> Iterator[Event]:
        begin = time.monotonic()
        with closing(self._open()) as opened:
            request = replace(self._known.request, parts=frozenset())  # what trains is not read back from its files
            silent = self._silent_for(opened)
            state = (opened.fingerprint(request), silent is not None)
            self._spent = time.monotonic() - begin
            if state != self._seen and (self._is_due(opened) or self._has_ended(opened) or silent is not None):
                begin = time.monotonic()
                evidence = self._add_silence(opened.read(request), silent)
                yield from self._judge_evidence(evidence)
                self._seen = state
                self._rest(begin)
            yield from self._look_for_hang(opened)
            yield from self._ask_to_stop(opened)
            while self._to_send and not self._owed:  # of two messages at once a run keeps only that the second is due
                yield from self._queue_message(opened, *self._to_send[0])
                del self._to_send[0]
                yield from self._deliver()

    def _look_for_hang(self, opened: TrackedRun) -> Iterator[Event]:
        """Say once for a silence that it is longer than the rhythm of the run explains, and when points come again."""
        if self._silences is None or self._over or self._has_ended(opened):
            return
        changed = time.time() - (time.monotonic() - self._changed)
        found = self._silences.look(opened, round(changed), lambda evidence: self._add_silence(evidence, None))
        if isinstance(found, float):
            yield _event("recovered", f"it continues, after {duration(round(found))} without a point")
        elif found is not None:
            yield _event("silent", f"{found.finding}{_then(found.finding.remedy)}", found.finding)
            yield from self._queue_silence(opened, found)

    def _queue_silence(self, opened: TrackedRun, hang: Hang) -> Iterator[Event]:
        """Let a message wait, once for a silence: this machine keeps that, and nothing is written onto the run."""
        silences = self._silences
        if self._dry_run or silences is None:
            return
        config, uri = self._known.config, self._tracking_uri
        notice = silence_notice(opened, self._run, hang.report, config, since=silences.last, tracking_uri=uri)
        try:
            is_new = notice is not None and bool(self._messages.put_silences([notice]))
        except OSError as error:
            yield _event("message", f"no message about {hang.result.code} can be sent: {described(error)}")
            return
        self._owed += [hang.result.code] if is_new else []

    def _is_due(self, opened: TrackedRun) -> bool:
        """Whether the history has grown by a twentieth since it was judged, or the time for that is over."""
        step, now = opened.last_step(), time.monotonic()
        grew = step is not None and step >= max(self._last_step + 1, self._last_step * GROWTH)
        return now >= (self._not_before if grew else max(self._not_before, self._due_at))

    def _rest(self, begin: float) -> None:
        end = time.monotonic()
        self._changed, self._not_before, self._due_at = end, end + _REST * (end - begin), end + self._every

    @staticmethod
    def _has_ended(opened: TrackedRun) -> bool:
        return opened.ref.store in _OUR_TRACKERS and opened.heard() is None

    def _silent_for(self, opened: TrackedRun) -> float | None:
        """For how many seconds nothing came, where these are too many."""
        heard = opened.heard()
        # A file says no more than when it was written, which is seen from here.
        silent = time.monotonic() - self._changed if heard is None else time.time() - heard
        too_long = silent > self._known.config.stale_after and not self._has_ended(opened)
        return silent if too_long else None

    def _add_silence(self, evidence: Evidence, silent: float | None) -> Evidence:
        """The evidence of a run that may still go on. Of a folder nobody says so."""
        info = replace(evidence.info, silent_for=silent)
        if evidence.ending is None:
            info = replace(info, status="RUNNING", tracker="the folder")
        return replace(evidence, info=info, baseline=self._known.config.baseline)

    def _judge_evidence(self, evidence: Evidence) -> Iterator[Event]:
        extent = extent_of(evidence)
        self._last_step = extent.last
        self._over = evidence.ending is not None and evidence.ending.how.is_over
        if extent.points >= FEWEST_POINTS:
            points, last, share = extent.points, extent.last, extent.share
            for finding in self._known.look(evidence, points=points, step=last, share=share):
                yield _event("finding", f"{finding}{_then(finding.remedy)}", finding)
                self._to_stop_for = finding if finding.stops and not self._over else self._to_stop_for
                if (report := self._known.report) is not None:
                    self._to_send.append((report, finding))
        if self._over:
            yield self._describe_end(evidence)

    def _describe_end(self, evidence: Evidence) -> Event:
        how = evidence.ending
        found = self._known.findings
        worst = max(found, key=lambda one: one.verdict.rank, default=None)
        codes = ", ".join(dict.fromkeys(one.code for one in found))
        never_seen = "it was over before anybody followed it"
        said = never_seen if self._seen is None else "nothing was found while it was running"
        said = f"{worst.verdict.upper()}: {codes}" if worst is not None else said
        ended = f"{how.how} ({how.by})" if how is not None else "ended"
        at = f" at step {self._last_step}" if self._last_step >= 0 else ""
        return _event("over", f"it is over{at}: {ended}; {said}; annotate judges all of it")

    # Asking

    def _ask_to_stop(self, opened: TrackedRun) -> Iterator[Event]:
        """Ask the run to stop, once that is due, and again where someone's own tags took the place of the request."""
        finding = self._to_stop_for
        if finding is None or self._over:
            return
        if self._dry_run:
            self._to_stop_for = None
            yield _event("asked", f"would ask it to stop, for {finding.code}; in a dry run it continues", finding)
        elif not self._was_asked or not (opened.asked_to_stop() or opened.stopped()):
            first, self._was_asked = not self._was_asked, True
            try:
                opened.ask_to_stop(finding.stop(time.time()).as_request)
            except RunError:
                self._was_asked = not first
                raise
            if first:
                obeys = "a training with LiveHealth(obey=True) stops within half a minute, any other continues"
                yield _event("asked", f"asked it to stop, for {finding.code}: {obeys}", finding)

    # Messages

    def _queue_message(self, opened: TrackedRun, report: Report, finding: LiveFinding) -> Iterator[Event]:
        """Let a message wait where one is due, once for a run and its cause; the run keeps that."""
        config = self._known.config
        if self._dry_run or not has_receiver(opened, config):
            return
        about, notify = _about(report, finding, config)
        sent, traits = SentMessages.of(opened.notified()), opened.traits()
        due = due_of(about, notify, traits, sent, None)
        if not due:
            return
        sent = owe_message(sent, due, time.time())
        opened.mark_notified(sent.value)
        notice = make_notice(opened, self._run, about, config, traits=traits, due=sent, tracking_uri=self._tracking_uri)
        try:
            self._messages.put([notice])
        except OSError as error:
            yield _event("message", f"a message about {due} is left to the next sweep: {described(error)}")
            return
        self._owed.append(due)

    def _deliver(self) -> Iterator[Event]:
        if not self._owed:
            return
        opener = partial(open_run, tracking_uri=self._tracking_uri)
        notify = self._known.config.notify
        done = deliver_quietly(partial(self._messages.deliver, notify, store_key(self._tracking_uri), opener))
        if done.messages:
            yield _event("message", f"sent a message: {', '.join(self._owed)}")
        self._owed = self._owed if done.waiting and not done.messages else []
        if done.problem and done.problem != self._unsent_why:
            self._unsent_why = done.problem
            yield _event("message", f"the message could not be sent yet: {done.problem}")


def _about(report: Report, finding: LiveFinding, config: Config) -> tuple[Report, Notify]:
    """What a message on a finding is about, and to whom. A baseline was named to hear of what is above it."""
    if finding.code != _COMPARED or config.baseline is None or not config.baseline.frozen:
        return replace(report, verdict=finding.verdict), config.notify
    results = tuple(one for one in report.results if one.code == _COMPARED)
    alone = replace(report, verdict=finding.verdict, results=results, errors=(), diagnosis=None)
    return alone, replace(config.notify, on="warn", certainty="possible")


def _then(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""


def _event(kind: Kind, text: str, finding: LiveFinding | None = None) -> Event:
    return Event(kind=kind, text=printable(text, _MOST_CHARACTERS), finding=finding)
