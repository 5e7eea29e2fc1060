"""A run on a W&B server: read by need only; the verdict becomes a tag, keys of the summary, and files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tracker_health.errors import UNREADABLE, RunError, StillRunning
from tracker_health.evidence import Evidence, Problem, Request, RunRef, Series
from tracker_health.judge.annotations import NOTIFIED, PENDING, Annotations, Shadow
from tracker_health.judge.messages import SentMessages
from tracker_health.readers.files.json_lines import as_step
from tracker_health.report.resume_point import Shelf
from tracker_health.stores.base import Cleared, Ours, Recorded
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.record import EXIT_TAG, changed_marks, notified_on, ours_on, recorded_on, shadow_on
from tracker_health.stores.files.reading import opened_files
from tracker_health.stores.files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.all_checkpoints import saved_by
from tracker_health.stores.wandb.connection import Connection, connect
from tracker_health.stores.wandb.online_files import OnlineFiles
from tracker_health.stores.wandb.online_history import metric_counts, read_histories
from tracker_health.stores.wandb.online_writer import (
    NOTIFIED_KEY,
    OnlineWriter,
    entries_in,
    has_their_notified,
    notified_in,
    one_at_a_time,
    our_tags,
    own_names,
    without_ack,
)
from tracker_health.stores.wandb.values import (
    ACK_WANDB_TAG,
    NOTIFIED_PLACE,
    OWN_TAGS,
    STEP,
    is_metric,
    params_of,
    tags_with,
)
from tracker_health.words.acknowledgements import Acknowledgement, on_evidence
from tracker_health.words.gap_names import LIVE_WANDB_TAGS, STOP_WANDB_TAG, STOPPED_TAG, WANDB_ALERT_LEVELS
from tracker_health.words.stopped import stop_of
from tracker_health.words.verdict import Verdict

_LIVE = frozenset({"running", "pending", "preempting"})
_FINISHED = "finished"
_ENDED = frozenset({_FINISHED, "failed", "killed", "preempted"})
_ON_ITS_WAY_SECONDS = 120
_LAG_SECONDS = (1, 2, 4, 8)
_AT_WORK_SECONDS = 120
"""W&B sends a heartbeat every 30 seconds: a run with one this young goes on."""
_HEARTBEAT_SECONDS = 600
"""A run that was not heard of for longer has ended, whatever its state says."""


def open_online_run(address: Address, *, over: bool = False, last_step: int | None = None) -> OnlineRun:
    """The run at this address, found. ``over``: it has ended, whatever its state says. ``last_step``: the last step of
    its history, whatever the server has of it.

    For the end of a history that is on its way to the server it waits for some seconds.

    Raises:
        RunNotFound: there is no such run, or its page is not of the configured server.
        StoreUnavailable: the server does not answer.
        StoreRefused: no API key, or no permission.
        MissingExtra: wandb is not installed.
    """
    connection = connect(address.server)
    run = connection.run(address)
    for wait in _LAG_SECONDS:
        if not _is_behind(run, last_step):
            break
        time.sleep(wait)
        run = connection.run(address)
    return OnlineRun(connection, Address(run.entity, run.project, run.id), run, over=over, last_step=last_step)


def _is_behind(run: Any, last_step: int | None) -> bool:
    """Whether the end of the history is still on its way to the server. In time all comes that ever will."""
    if last_step is None and (is_live(run) or time.time() - heard_of(run) > _HEARTBEAT_SECONDS):
        return False
    return _step_at_end(run, last_step) > last_step_of(run)


def _step_at_end(run: Any, last_step: int | None) -> int:
    """The last step of the history, by the summary, which is there at once, and by what else is known."""
    told = as_step(run.summary_metrics.get(STEP))
    return max(-1 if told is None else told, -1 if last_step is None else last_step)


def last_step_of(run: Any) -> int:
    """The last step of the history that the server has of a run of the SDK's; -1 for none."""
    last = (run.history_keys or {}).get("lastStep")
    return last if isinstance(last, int) else -1


class OnlineRun:
    """A run of a W&B server, as it was when opened."""

    def __init__(
        self, connection: Connection, address: Address, run: Any, *, over: bool = False, last_step: int | None = None
    ) -> None:
        self._over = over
        self._ends_at = last_step
        self._connection = connection
        self._address = address
        self._run = run
        self._files = OnlineFiles(connection, run)

    @cached_property
    def ref(self) -> RunRef:
        return ref_of(self._run, self._address, self._connection.app)

    def traits(self) -> Mapping[str, str]:
        """The project's name, and the run's tags, without ours; a tag of W&B's has no value."""
        return {
            "project": self._address.project,
            **{f"tag:{tag}": "" for tag in self._run.tags if tag not in OWN_TAGS | LIVE_WANDB_TAGS | {ACK_WANDB_TAG}},
        }

    def remarks(self) -> tuple[str, ...]:
        there, end = last_step_of(self._run), _step_at_end(self._run, self._ends_at)
        if end <= there or is_live(self._run) or _is_behind(self._run, self._ends_at):
            return ()
        return (f"the server has its history up to step {there}, and the summary is of step {end}",)

    def _behind(self) -> Problem:
        there, end = last_step_of(self._run), _step_at_end(self._run, self._ends_at)
        has = f"up to step {there} of {end}" if there >= 0 else f"nothing of {end} steps"
        message = f"the server has {has}: the rest is on its way; judge the run again in a minute"
        return Problem(source="history", message=message, unfinished=True)

    @property
    def shared(self) -> bool:
        return True

    def heard(self) -> float | None:
        """When a run that claims to go on was last heard of."""
        return heard_of(self._run) if is_live(self._run) else None

    def exit(self) -> str:
        return our_tags(self._run.summary_metrics).get(EXIT_TAG, "")

    def stopped(self) -> str:
        text = our_tags(self._run.summary_metrics).get(STOPPED_TAG, "")
        return text if stop_of(text) is not None else ""

    def notified(self) -> str:
        """By a file, which a run has while it goes on, else by the summary."""
        return notified_in(self._connection, self._run) or notified_on(our_tags(self._run.summary_metrics))

    def why_not_asked(self) -> str:
        return ""

    def asked_to_stop(self) -> bool:
        return STOP_WANDB_TAG in self._run.tags

    def ask_to_stop(self, request: str) -> None:  # noqa: ARG002 - a tag of W&B's has no text
        """Give the run the tag ``health:stop``.

        Raises:
            StoreRefused: no permission.
            WriteError: the run could not be changed.
        """
        run = self._connection.run(self._address)
        if STOP_WANDB_TAG not in run.tags:
            self._connection.change(run, tags=[*run.tags, STOP_WANDB_TAG])
        self._take(run)

    def last_step(self) -> int | None:
        last = last_step_of(self._run)
        return last if last >= 0 else None

    def state(self) -> str:
        """The run's state, its last step, and when it was heard of."""
        return json.dumps([self._run.state, last_step_of(self._run), heard_of(self._run)])

    def is_in_state(self, state: str) -> bool:
        """Whether nothing came since but what was on its way; that the server calls it crashed counts as nothing."""
        try:
            earlier, step, heard = json.loads(state)
            late = heard_of(self._run) > heard + _ON_ITS_WAY_SECONDS
        except (ValueError, TypeError):
            return False
        ended_since = self._run.state != earlier and self._run.state in _ENDED
        return not ended_since and (step == last_step_of(self._run) or not late)

    def evidence(self) -> str:
        return evidence_of(self._run)

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        return acknowledgements_of(self._run)

    def shadow(self) -> Shadow | None:
        return shadow_on(our_tags(self._run.summary_metrics))

    def ours(self) -> Ours:
        found = ours_on(our_tags(self._run.summary_metrics))
        tagged = len(OWN_TAGS.intersection(self._run.tags))
        return replace(found, tags=found.tags + tagged, acks=len(entries_in(self._run.summary_metrics)))

    def acknowledge(self, entry: Acknowledgement) -> None:
        """Add an entry, in a file of its own, and bring summary and tags up to date.

        Raises:
            StoreRefused: no permission.
            WriteError: the run is not over, takes no more entries, or another annotator is at work.
        """
        with self._writer() as writer:
            writer.acknowledge(entry, evidence_of(self._run))

    def settle(self, now: float) -> None:
        summary = self._run.summary_metrics
        own, entries = own_names(summary), entries_in(summary)
        if changed_marks(our_tags(summary), own, entries, self.evidence(), now) is not None:
            with self._writer() as writer:
                writer.settle(evidence_of(writer.run), now)

    def mark_notified(self, value: str) -> None:
        """Renew the key ``health/notified`` of the summary of an annotated run. The summary of one that goes on, or has
        no verdict, is not ours to write: then it is a file.

        Raises:
            StoreRefused: no permission.
            WriteError: it could not be written.
        """
        summary = self._run.summary_metrics
        if self._is_over() and NOTIFIED in own_names(summary):
            with self._writer() as writer:
                writer.mark_notified(value)
        elif has_their_notified(self._connection, self._run):
            return
        elif not (theirs := summary.get(NOTIFIED_KEY)) or SentMessages.of(str(theirs)).value:
            self._connection.upload(self._run, {NOTIFIED_PLACE: value.encode()})

    def alert(self, title: str, text: str, verdict: Verdict) -> None:
        """Have W&B alert people about the run, by mail or Slack, as each has set it. It may still go on.

        Raises:
            StoreRefused: no permission.
            WriteError: the server did not take the alert.
        """
        self._connection.alert(self._run, title, text, WANDB_ALERT_LEVELS[verdict])

    def write_shadow(self, shadow: Shadow) -> None:
        """Put the key ``health/shadow`` into the summary.

        Raises:
            StoreRefused: no permission.
            WriteError: the run is not over, or has such a key of its owner's.
        """
        with self._writer() as writer:
            writer.write_shadow(shadow)

    def fingerprint(self, request: Request) -> str:
        """From the run's record and, where reading would open them, its files' paths, sizes and checksums: 16 hex
        digits.
        """
        content: list[Any] = [self._run.state, last_step_of(self._run), sorted(self._counts.items())]
        content.append(sorted(params_of(self._run.config)))
        if self._needs_files(request):
            content += [self._files.identity(self._opened(request)), bool(self._files.problem)]
        if stopped := self.stopped():
            content.append(stopped)
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        """What the request needs: only those metrics, and files only if they can add to it."""
        decided = request.roles.of(self._counts)
        roles, logs = decided.needed, not decided.has_loss
        found = self._files.evidence(request, logs=logs) if self._needs_files(request) else FileEvidence()
        series = self._series(roles, found) if roles else ()
        if _is_behind(self._run, self._ends_at):
            found.problems.append(self._behind())
        return found.evidence(
            self.ref,
            request,
            Tracked(
                status=str(self._run.state).upper(),
                tracker="W&B",
                # With any other exit code W&B calls a run failed.
                exit_code=0 if self._run.state == _FINISHED else None,
                at_work=is_live(self._run) and _has_heartbeat(self._run),
                stopped=self.stopped(),
                params=params_of(self._run.config),
                names=self._counts,
                series=series,
                experiment=self._address.project,
            ),
        )

    def saved(self, request: Request) -> Shelf | None:
        """Those among its files, and the versions of artifacts that it logged."""
        self._files.limit_to(request.max_download)
        return saved_by(self._connection, self._address, self._files, request.max_download)

    def bytes_of_files(self, request: Request) -> int:
        """How much of its files judging the run could read, at most."""
        return sum(file.size for file in self._opened(request)) if self._needs_files(request) else 0

    def _opened(self, request: Request) -> tuple[RunFile, ...]:
        logs = not request.roles.of(self._counts).has_loss
        return opened_files(self._files, logs=logs)

    def close(self) -> None:
        """Delete what was downloaded."""
        self._files.close()

    def recorded(self) -> Recorded | None:
        recorded = recorded_on(our_tags(self._run.summary_metrics))
        if recorded is None:
            return None
        # A tag that somebody has changed by hand is put right by the next annotation.
        tags = without_ack(self._run.tags, self._run.summary_metrics)
        whole = sorted(tags) == sorted(tags_with(tags, recorded.verdict))
        return recorded if whole else replace(recorded, digest=PENDING)

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run have these annotations and no older ones. Nothing changes that is not ours.

        Gives what was left out because something of the user's has its name.

        Raises:
            StoreRefused: no permission.
            WrittenInPart: all but the files was written.
            WriteError: the run is not over, another annotator is at work, or something of the user's is in the way
                (nothing is written then). Or something could not be written (the digest then says ``pending``).
        """
        with self._writer() as writer:
            return writer.write(annotations, evidence_of(self._run))

    def clear(self, *, acks: bool = False) -> Cleared:
        """Take everything tracker-health wrote off the run again.

        Raises:
            StoreRefused: no permission.
            WriteError: the run is not over, or something could not be taken off; the digest then says ``pending``.
        """
        with self._writer() as writer:
            cleared = writer.clear(exit_stays=ending_seen(self) is not None, acks=acks)
        return replace(cleared, exit=cleared.exit or bool(self.stopped()))

    @contextmanager
    def _writer(self) -> Iterator[OnlineWriter]:
        """What writes onto the run as it is now, with nobody else of this machine; the run is then as that left it."""
        with one_at_a_time(self._connection.server, self.ref.id):
            writer = OnlineWriter(self._connection, self._address)
            self._take(writer.run)
            self._require_over()
            try:
                yield writer
            except BaseException:
                with suppress(RunError):  # what it was about is reported already
                    writer.look()
                raise
            finally:
                self._take(writer.run)

    def _require_over(self) -> None:
        """A run that goes on sends its whole summary again and again, and ours would be lost."""
        if not self._is_over():
            message = f"W&B run {self.ref.id} is still {self._run.state}: nothing was written"
            raise StillRunning(message, "annotate it when it has finished; check judges it now")

    def _is_over(self) -> bool:
        return self._over or not is_live(self._run) or time.time() - heard_of(self._run) >= _HEARTBEAT_SECONDS

    def _take(self, run: Any) -> None:
        self._run = run
        self.__dict__.pop("_counts", None)

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {name: count for name, count in sorted(metric_counts(self._run).items()) if is_metric(name)}

    def _needs_files(self, request: Request) -> bool:
        return bool(request.parts) or not request.roles.of(self._counts).has_loss

    def _series(self, roles: Mapping[str, str], found: FileEvidence) -> tuple[Series, ...]:
        try:
            return read_histories(self._connection, self._run, roles)
        except UNREADABLE as error:
            found.cannot_read("history", error, roles.values())
            return ()


def ref_of(run: Any, address: Address, app: str) -> RunRef:
    """The reference to a run of the SDK's."""
    entity_path, project_path, run_path = run.path
    url = f"{app}/{entity_path}/{project_path}/runs/{run_path}"
    return RunRef(store="wandb", id="/".join(address[:3]), name=run.name or address.run, url=url)


def evidence_of(run: Any) -> str:
    """How far a run of the SDK's has come: its last step, and how its owner ended it."""
    return json.dumps([last_step_of(run), run.state if run.state in _ENDED else ""])


def acknowledgements_of(run: Any) -> tuple[Acknowledgement, ...]:
    """The entries on a run of the SDK's that are about what it is now."""
    return on_evidence(entries_in(run.summary_metrics), evidence_of(run))


def is_live(run: Any) -> bool:
    """Whether a run of the SDK's claims to go on."""
    return run.state in _LIVE


def _has_heartbeat(run: Any) -> bool:
    heard = seconds_of(run.heartbeat_at)
    return heard is not None and time.time() - heard < _AT_WORK_SECONDS


def heard_of(run: Any) -> float:
    """When a run of the SDK's was last heard of, in seconds since 1970; now where that is not known."""
    heard = seconds_of(run.heartbeat_at)
    return time.time() if heard is None else heard


def seconds_of(moment: object) -> float | None:
    """A time as W&B writes it, in seconds since 1970."""
    try:
        then = datetime.fromisoformat(str(moment))
    except ValueError:
        return None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
