"""What people answered to a verdict, on an MLflow run: each entry a tag of its own, and the marks beside the verdict.

MLflow has no compare-and-set, so an entry is never part of a value that somebody else writes as well. The marks follow
from all entries; whoever writes them looks again afterwards, and writes them again where an entry has come since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracker_health.errors import WriteError
from tracker_health.judge.annotations import ACK, OPEN
from tracker_health.stores.common.ownership import overtaken
from tracker_health.stores.common.record import (
    ACK_TAG,
    ENTRY_PREFIX,
    OPEN_TAG,
    WRITTEN_TAG,
    Written,
    changed_marks,
    entries_on,
    recorded_on,
)
from tracker_health.words.acknowledgements import MOST_ENTRIES, Acknowledgement, Marks

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOOKS = 8
Fetch = Callable[[], tuple[Any, str]]
"""The run's record as it is now, and how far the run has come."""


class MlflowMarks:
    """The entries and marks of one run. ``fetch``: looks at it again."""

    def __init__(self, client: MlflowClient, run_id: str, fetch: Fetch) -> None:
        self._client, self._id, self._fetch = client, run_id, fetch

    def add(self, entry: Acknowledgement) -> None:
        """Add an entry, and bring the marks up to date.

        Raises:
            WriteError: the run has as many as it may have, no whole verdict, or others keep writing onto it.
        """
        run, _ = self._fetch()
        if len(entries_on(run.data.tags)) >= MOST_ENTRIES:
            message = f"MLflow run {self._id} has {MOST_ENTRIES} entries of acknowledgements, and takes no more"
            raise WriteError(message, "clear --acks takes them off")
        recorded = recorded_on(run.data.tags)
        if recorded is None or not recorded.is_whole:
            raise overtaken(f"MLflow run {self._id}")
        self._client.set_tag(self._id, f"{ENTRY_PREFIX}{entry.id}", entry.value)
        self.settle(entry.when)

    def settle(self, now: float) -> None:
        """Bring the marks up to date, as often as somebody writes in between.

        Raises:
            WriteError: others keep writing.
        """
        for _ in range(_LOOKS):
            run, evidence = self._fetch()
            tags = run.data.tags
            wanted = changed_marks(tags, Written.of(tags).tags, entries_on(tags), evidence, now)
            if wanted is None:
                return
            self._write(tags, wanted)
        raise overtaken(f"MLflow run {self._id}")

    def _write(self, tags: dict[str, str], wanted: Marks) -> None:
        from mlflow.entities import RunTag

        found = {ACK: (ACK_TAG, wanted.ack), OPEN: (OPEN_TAG, wanted.open)}
        changed = {name: pair for name, pair in found.items() if tags.get(pair[0], "") != pair[1]}
        own = Written.of(tags)
        new = frozenset(name for name, (_, value) in changed.items() if value) - own.tags
        if new:  # of an annotation from before there were marks
            record = replace(own, tags=own.tags | new).value
            self._client.set_tag(self._id, WRITTEN_TAG, record)
        written = [RunTag(tag, value) for tag, value in changed.values() if value]
        if written:
            self._client.log_batch(self._id, tags=written)
        for tag, value in changed.values():
            if not value and tag in tags:
                remove_tag(self._client, self._id, tag)

    def remove(self) -> int:
        """Take all entries off; how many there were."""
        run, _ = self._fetch()
        names = sorted(name for name in run.data.tags if name.startswith(ENTRY_PREFIX))
        ours = {f"{ENTRY_PREFIX}{one.id}" for one in entries_on(run.data.tags)}
        for name in names:
            if name in ours:
                remove_tag(self._client, self._id, name)
        return len(ours)


def remove_tag(client: MlflowClient, run_id: str, tag: str) -> None:
    """Delete a tag that may be gone already."""
    from mlflow.exceptions import MlflowException

    try:
        client.delete_tag(run_id, tag)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
