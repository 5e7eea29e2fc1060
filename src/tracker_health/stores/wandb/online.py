"""A run on a W&B server: read by need only; the verdict becomes a tag, keys of the summary, and files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tracker_health.annotations import PENDING, Annotations
from tracker_health.errors import RunError, WriteError
from tracker_health.evidence import Evidence, Problem, Request, RunRef, Series
from tracker_health.gap_names import LIVE_WANDB_TAGS
from tracker_health.roles import ANY_LOSS
from tracker_health.stores.base import Cleared, Recorded
from tracker_health.stores.files import opened_files
from tracker_health.stores.record import recorded_on
from tracker_health.stores.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection, connect
from tracker_health.stores.wandb.online_files import OnlineFiles
from tracker_health.stores.wandb.online_history import metric_counts, read_histories
from tracker_health.stores.wandb.online_writer import OnlineWriter, one_at_a_time, our_tags
from tracker_health.stores.wandb.values import OWN_TAGS, is_metric, params_of, tags_with

_LIVE = frozenset({"running", "pending", "preempting"})
_HEARTBEAT_SECONDS = 600
"""A run that was not heard of for longer has ended, whatever its state says."""


def open_online_run(address: Address, *, over: bool = False) -> OnlineRun:
    """The run at this address, found. ``over``: it has ended, whatever its state says.

    Raises:
        RunNotFound: there is no such run, or its page is not of the configured server.
        StoreUnavailable: the server does not answer.
        StoreRefused: no API key, or no permission.
        MissingExtra: wandb is not installed.
    """
    connection = connect(address.server)
    run = connection.run(address)
    return OnlineRun(connection, Address(run.entity, run.project, run.id), run, over=over)


class OnlineRun:
    """A run of a W&B server, as it was when opened."""

    def __init__(self, connection: Connection, address: Address, run: Any, *, over: bool = False) -> None:
        self._over = over
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
            **{f"tag:{tag}": "" for tag in self._run.tags if tag not in OWN_TAGS | LIVE_WANDB_TAGS},
        }

    def remarks(self) -> tuple[str, ...]:
        return ()

    def fingerprint(self, request: Request) -> str:
        """From the run's record and, where reading would open them, its files' paths, sizes and checksums: 16 hex
        digits.
        """
        keys = self._run.history_keys or {}
        content: list[Any] = [self._run.state, keys.get("lastStep"), sorted(self._counts.items())]
        content.append(sorted(params_of(self._run.config)))
        if self._needs_files(request):
            content += [self._files.identity(self._opened(request)), bool(self._files.problem)]
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        """What the request needs: only those metrics, and files only if they can add to it."""
        roles = request.select_names(self._counts)
        logs = ANY_LOSS.isdisjoint(roles.values())
        found = self._files.evidence(request, logs=logs) if self._needs_files(request) else FileEvidence()
        series = self._series(roles, found) if roles else ()
        tracked = Tracked(
            status=str(self._run.state).upper(), params=params_of(self._run.config), names=self._counts, series=series
        )
        return found.evidence(self.ref, request, tracked)

    def bytes_of_files(self, request: Request) -> int:
        """How much of its files judging the run could read, at most."""
        return sum(file.size for file in self._opened(request)) if self._needs_files(request) else 0

    def _opened(self, request: Request) -> tuple[RunFile, ...]:
        logs = ANY_LOSS.isdisjoint(request.select_names(self._counts).values())
        return opened_files(self._files, logs=logs)

    def close(self) -> None:
        """Delete what was downloaded."""
        self._files.close()

    def recorded(self) -> Recorded | None:
        recorded = recorded_on(our_tags(self._run.summary_metrics))
        if recorded is None:
            return None
        # A tag that somebody has changed by hand is put right by the next annotation.
        whole = sorted(self._run.tags) == sorted(tags_with(self._run.tags, recorded.verdict))
        return recorded if whole else replace(recorded, digest=PENDING)

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run bear these annotations and no older ones. Nothing changes that is not ours.

        Gives what was left out because something of the user's has its name.

        Raises:
            StoreRefused: no permission.
            WrittenInPart: all but the files was written.
            WriteError: the run is not over, something of the user's is in the way (nothing is written then), another
                annotator is at work, or something could not be written (the digest then says ``pending``).
        """
        with one_at_a_time(self._connection.server, self.ref.id):
            self._refresh()
            self._require_over()
            try:
                return OnlineWriter(self._connection, self._address, self._run).write(annotations)
            finally:
                self._refresh_quietly()

    def clear(self) -> Cleared:
        """Take everything of ours off the run again.

        Raises:
            StoreRefused: no permission.
            WriteError: the run is not over, or something could not be taken off; the digest then says ``pending``.
        """
        with one_at_a_time(self._connection.server, self.ref.id):
            self._refresh()
            self._require_over()
            try:
                return OnlineWriter(self._connection, self._address, self._run).clear()
            finally:
                self._refresh_quietly()

    def _require_over(self) -> None:
        """A run that goes on sends its whole summary again and again, and ours would be lost."""
        if not self._over and is_live(self._run) and time.time() - heard_of(self._run) < _HEARTBEAT_SECONDS:
            message = f"W&B run {self.ref.id} is still {self._run.state}: nothing was written"
            raise WriteError(message, "annotate it when it has finished; check judges it now")

    def _refresh(self) -> None:
        self._run = self._connection.run(self._address)
        self.__dict__.pop("_counts", None)

    def _refresh_quietly(self) -> None:
        with suppress(RunError):  # what it was about is told already
            self._refresh()

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {name: count for name, count in sorted(metric_counts(self._run).items()) if is_metric(name)}

    def _needs_files(self, request: Request) -> bool:
        return bool(request.parts) or ANY_LOSS.isdisjoint(request.select_names(self._counts).values())

    def _series(self, roles: Mapping[str, str], found: FileEvidence) -> tuple[Series, ...]:
        try:
            return read_histories(self._connection, self._run, roles)
        except RunError as error:
            message = f"{error.message} ({error.hint})" if error.hint else error.message
            found.problems.append(Problem(source="history", message=message, roles=frozenset(roles.values())))
            return ()


def ref_of(run: Any, address: Address, app: str) -> RunRef:
    """The reference to a run of the SDK's."""
    entity_path, project_path, run_path = run.path
    url = f"{app}/{entity_path}/{project_path}/runs/{run_path}"
    return RunRef(store="wandb", id="/".join(address[:3]), name=run.name or address.run, url=url)


def is_live(run: Any) -> bool:
    """Whether a run of the SDK's claims to go on."""
    return run.state in _LIVE


def heard_of(run: Any) -> float:
    """When a run of the SDK's was last heard of, in seconds since 1970; now where that cannot be told."""
    heard = seconds_of(run.heartbeat_at)
    return time.time() if heard is None else heard


def seconds_of(moment: object) -> float | None:
    """A time as W&B writes it, in seconds since 1970."""
    try:
        then = datetime.fromisoformat(str(moment))
    except ValueError:
        return None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
