"""Runs that are only read: what would be written onto them goes into a folder, for accounts that may write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.evidence import Evidence, Request
from tracker_health.judge.annotations import ACK, EXIT, NOTIFIED, OPEN, Annotations
from tracker_health.report.resume_point import Shelf
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.record import ENTRY_PREFIX, STOP, STOPPED
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement

_BESIDE = frozenset({EXIT, NOTIFIED, STOP, STOPPED})


class ReportedRun(TrackedRun):
    """A run that is only read. All that is written goes below a folder: ``mlflow-RUN_ID/health/report.json`` and so on.

    Reading, and what people answered, is as before.
    """

    note = "mark"

    def __init__(self, run: TrackedRun, folder: Path) -> None:
        self._run = run
        self._place = folder / f"{run.ref.store}-{quote(run.ref.id, safe='')}"

    @property
    def _own(self) -> DirectoryRun:
        return DirectoryRun(self._place)

    @property
    def record(self) -> RunRecord:
        # By its folder's name, what is there is of this run.
        return replace(self._run.record, marks=self._marks, naming="health/annotation.json: {}".format, identity="")

    def _marks(self) -> Mapping[str, Any]:
        """Those of the folder, and of the run what is no verdict."""
        own = dict(self._own.marks) if self._place.is_dir() else {}
        theirs = self._run.marks.items()
        return {name: value for name, value in theirs if name in _BESIDE or name.startswith(ENTRY_PREFIX)} | own

    def look(self) -> None:
        self._run.look()

    def fingerprint(self, request: Request) -> str:
        return self._run.fingerprint(request)

    def read(self, request: Request) -> Evidence:
        return self._run.read(request)

    def saved(self, request: Request) -> Shelf | None:
        return self._run.saved(request)

    def bytes_of_files(self, request: Request) -> int:
        return self._run.bytes_of_files(request)

    def close(self) -> None:
        self._run.close()

    @property
    def alert(self) -> Any:
        """How its tracker alerts people, where it does."""
        return getattr(self._run, "alert", None)

    def acknowledge(self, entry: Acknowledgement) -> None:  # noqa: ARG002 - the contract's
        raise StoreRefused("an acknowledgement goes onto the run, and this one is only read")

    def settle(self, now: float) -> None:
        """The marks of a run that may not be written to stay as they are."""

    def _settle_after_writing(self) -> None:
        """As for ``settle``."""

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Without the marks of who answered, which nobody would bring up to date."""
        tags = {name: value for name, value in annotations.tags.items() if name not in (ACK, OPEN)}
        return super().write(replace(annotations, tags=tags))

    def writing(self, doing: str, *, live: bool = False) -> AbstractContextManager[None]:
        try:
            self._place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            shown = printable(self._place)
            raise WriteError(f"{shown} cannot be made: {error.strerror}", "give another --report-to DIR") from error
        return self._own.writing(doing, live=live)

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        return self._own.set_marks(changes)

    def list_files(self) -> Mapping[str, str]:
        return self._own.list_files()

    def get_file(self, name: str, limit: int) -> bytes:
        return self._own.get_file(name, limit)

    def put_files(self, files: Mapping[str, bytes]) -> None:
        self._own.put_files(files)

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        return self._own.delete_files(names)
