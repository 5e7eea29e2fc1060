"""A run on a W&B server: read by need only; the verdict becomes a tag, keys of the summary, and files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tracker_health.errors import UNREADABLE, StillRunning
from tracker_health.evidence import Evidence, Problem, Pulse, Request, RunRef, Series
from tracker_health.judge.annotations import STEP as STEP_TAG
from tracker_health.readers.files.json_lines import as_step
from tracker_health.report.resume_point import Shelf
from tracker_health.run_files.reading import opened_files
from tracker_health.run_files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.locks import one_at_a_time
from tracker_health.stores.common.record import ENTRY_PREFIX, LIVE, NATIVE, STOP, Written, entries_on, of_run
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.all_checkpoints import saved_by
from tracker_health.stores.wandb.connection import Connection, connect
from tracker_health.stores.wandb.marks import ENTRIES_KEY, entries_in, marks_in, marks_of_tags, own_keys, tags_after
from tracker_health.stores.wandb.media import media_of, place_of
from tracker_health.stores.wandb.online_files import OnlineFiles
from tracker_health.stores.wandb.online_history import metric_counts, read_histories
from tracker_health.stores.wandb.own_files import OwnFiles
from tracker_health.stores.wandb.values import (
    ACK_WANDB_TAG,
    OWN_KEY,
    OWN_TAGS,
    STEP,
    TIME,
    is_metric,
    number,
    params_of,
)
from tracker_health.words.acknowledgements import Acknowledgement, on_evidence
from tracker_health.words.gap_names import LIVE_WANDB_TAGS, WANDB_ALERT_LEVELS
from tracker_health.words.verdict import Verdict

_LIVE = frozenset({"running", "pending", "preempting"})
_FINISHED = "finished"
_ENDED = frozenset({_FINISHED, "failed", "killed", "preempted"})
_ON_ITS_WAY_SECONDS = 120
_LAG_SECONDS = (1, 2, 4, 8)
_LAG_PAUSES = (0, 1, 3, 8, 15)
"""Seconds before each look at a run that was written to."""
_AT_WORK_SECONDS = 120
"""W&B sends a heartbeat every 30 seconds: a run with one this young is running."""
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


class OnlineRun(TrackedRun):
    """A run of a W&B server, as it was when opened."""

    is_marked_first = False

    def __init__(
        self, connection: Connection, address: Address, run: Any, *, over: bool = False, last_step: int | None = None
    ) -> None:
        self._over = over
        self._ends_at = last_step
        self._connection = connection
        self._address = address
        self._run = run
        self._files = OnlineFiles(connection, run)
        self._own = OwnFiles(connection, run)
        self._before: list[dict[str, Any]] = []
        self._sent: dict[str, Any] = {}
        self._lags = False

    @cached_property
    def record(self) -> RunRecord:
        return RunRecord(
            ref=ref_of(self._run, self._address, self._connection.app),
            shown=f"W&B run {'/'.join(self._address[:3])}",
            marks=lambda: self._marks,
            identity=self._run.id,
            naming=_called,
            placing=place_of,
            traits=self._traits,
            remarks=self._remarks,
            heard=lambda: heard_of(self._run) if is_live(self._run) else None,
            pulse=lambda: pulse_of(self._run),
            last_step=last if (last := last_step_of(self._run)) >= 0 else None,
            state=lambda: json.dumps([self._run.state, last_step_of(self._run), heard_of(self._run)]),
            still=self._is_in_state,
            evidence=lambda: evidence_of(self._run),
            shared=True,
        )

    def look(self) -> None:
        """Take the run as it is now. For a moment, or longer, a server may give what was there before it was written
        to: that is waited for. Where it takes too long, what the server answered to the writing counts.
        """
        for wait in _LAG_PAUSES[: 1 if self._lags else None]:
            time.sleep(wait)
            run = self._connection.run(self._address, own_files=True)
            own = self._own.listed_again(run)
            if self._shows_what_was_sent(run) and own.is_as_left:
                break
        else:
            self._lags = True
        if self._shows_what_was_sent(run):
            self._run = run
        self._own = own
        self._forget()

    def _shows_what_was_sent(self, run: Any) -> bool:
        """Whether a run has the keys that were sent, or others that someone else wrote, and not those from before."""
        own = own_keys(run.summary_metrics)
        return own == self._sent or own not in self._before

    def _forget(self) -> None:
        for name in ("record", "_marks", "_counts"):
            self.__dict__.pop(name, None)

    def _traits(self) -> Mapping[str, str]:
        """The project's name, and the run's tags, without ours; a tag of W&B's has no value."""
        return {
            "project": self._address.project,
            **{f"tag:{tag}": "" for tag in self._run.tags if tag not in OWN_TAGS | LIVE_WANDB_TAGS | {ACK_WANDB_TAG}},
        }

    def _remarks(self) -> tuple[str, ...]:
        there, end = last_step_of(self._run), _step_at_end(self._run, self._ends_at)
        if end <= there or is_live(self._run) or _is_behind(self._run, self._ends_at):
            return ()
        return (f"the server has its history up to step {there}, and the summary is of step {end}",)

    def _behind(self) -> Problem:
        there, end = last_step_of(self._run), _step_at_end(self._run, self._ends_at)
        has = f"up to step {there} of {end}" if there >= 0 else f"nothing of {end} steps"
        message = f"the server has {has}: the rest is on its way; judge the run again in a minute"
        return Problem(source="history", message=message, unfinished=True)

    def _is_in_state(self, state: str) -> bool:
        """Whether nothing came since but what was on its way; that the server calls it crashed counts as nothing."""
        try:
            earlier, step, heard = json.loads(state)
            late = heard_of(self._run) > heard + _ON_ITS_WAY_SECONDS
        except (ValueError, TypeError):
            return False
        ended_since = self._run.state != earlier and self._run.state in _ENDED
        return not ended_since and (step == last_step_of(self._run) or not late)

    def alert(self, title: str, text: str, verdict: Verdict) -> None:
        """Have W&B alert people about the run, by mail or Slack, as each has set it. It may still go on.

        Raises:
            StoreRefused: no permission.
            WriteError: the server did not take the alert.
        """
        self._connection.alert(self._run, title, text, WANDB_ALERT_LEVELS[verdict])

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
                sweep=str(getattr(self._run, "sweep_name", None) or ""),
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

    # Ours

    @contextmanager
    def writing(self, doing: str, *, live: bool = False) -> Iterator[None]:  # noqa: ARG002 - each request says it
        with one_at_a_time(self._connection.server, self.ref.id):
            self._before, self._lags = [], False
            self.look()
            if not (live or self._is_over()):
                # A run that is still running sends its whole summary again and again, and ours would be lost.
                message = f"W&B run {self.ref.id} is still {self._run.state}: nothing was written"
                raise StillRunning(message, "annotate it when it has finished; check judges it now")
            yield

    def _is_over(self) -> bool:
        return self._over or not is_live(self._run) or time.time() - heard_of(self._run) >= _HEARTBEAT_SECONDS

    @cached_property
    def _marks(self) -> dict[str, Any]:
        """Of the summary and W&B's own tags, and what is in files: what was sent of a run whose summary cannot be
        written yet, and entries that someone put there whose summary was lost.
        """
        found = marks_in(self._run.summary_metrics)
        found |= marks_of_tags(self._run.tags, found)
        return of_run(found | self._own.marks(found), self._run.id)

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        before = self._marks
        in_files = self._own.set_marks(changes, in_summary=self._is_in_summary)
        changed = {name: value for name, value in changes.items() if name not in in_files}
        summary = dict(self._run.summary_metrics)
        for name, value in changed.items():
            key = f"{OWN_KEY}{name}"
            if name in (LIVE, STOP) or name.startswith(ENTRY_PREFIX):
                continue  # of W&B's own tags; in files, and in a list of all
            if value is None:
                summary.pop(key, None)
            else:
                summary[key] = int(value) if name == STEP_TAG else value
        if any(name.startswith(ENTRY_PREFIX) for name in {**before, **changed}):
            self._list_entries(summary, changed)
        after = {**before, **{name: "" if value is None else value for name, value in changed.items()}}
        tags = tags_after(self._run.tags, before, after, changed)
        same_tags, same = sorted(tags) == sorted(self._run.tags), summary == self._run.summary_metrics
        if not (same and same_tags):
            self._before.append(own_keys(self._run.summary_metrics))
            self._sent = own_keys(summary)
            self._connection.change(self._run, summary=None if same else summary, tags=None if same_tags else tags)
        self._forget()
        return frozenset()

    def _is_in_summary(self, name: str) -> bool:
        """Whether the run's summary is ours to write: of one that is running, or has no verdict, it is not."""
        return self._is_over() and name in Written.of(self._marks).tags

    def _list_entries(self, summary: dict[str, Any], changed: Mapping[str, Any]) -> None:
        """Bring the list of entries in a summary up to date with what is known of them."""
        listed = summary.get(ENTRIES_KEY, [])
        entries = entries_on({**self._marks, **changed})
        if isinstance(listed, list) and entries:
            summary[ENTRIES_KEY] = [one.to_json() for one in entries]
        elif isinstance(listed, list):
            summary.pop(ENTRIES_KEY, None)

    def marks_of_files(self, files: Mapping[str, bytes]) -> Mapping[str, Any]:
        return media_of(files)

    def list_files(self) -> Mapping[str, str]:
        return self._own.listed(Written.of(self._marks).all_files)

    def get_file(self, name: str, limit: int) -> bytes:
        return self._own.get(name, limit)

    def put_files(self, files: Mapping[str, bytes]) -> None:
        self._own.put(files)

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        return self._own.delete(names)

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


def _called(name: str) -> str:
    return f"the tag {name.removeprefix(NATIVE)}" if name.startswith(NATIVE) else f"{OWN_KEY}{name} in the summary"


def is_live(run: Any) -> bool:
    """Whether a run of the SDK's claims to be running."""
    return run.state in _LIVE


def _has_heartbeat(run: Any) -> bool:
    heard = seconds_of(run.heartbeat_at)
    return heard is not None and time.time() - heard < _AT_WORK_SECONDS


def pulse_of(run: Any) -> Pulse:
    """When a run of the SDK's logged its last row, by its summary, and last sent anything at all, as the load of its
    machine: in seconds since 1970.
    """
    return Pulse(points=number(run.summary_metrics.get(TIME)), vital=seconds_of(run.heartbeat_at))


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
