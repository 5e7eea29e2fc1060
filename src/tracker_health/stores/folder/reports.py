"""Runs that are only read: what would be written onto them goes into a folder, for accounts that may write nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.judge.annotations import Annotations, Shadow
from tracker_health.stores.base import Cleared, OnServer, Ours, Recorded, TrackedRun
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.words.acknowledgements import Acknowledgement


def reporting_to(run: TrackedRun, folder: Path) -> OnServer:
    """The run, of which all that is written goes below ``folder``: ``mlflow-RUN_ID/health/report.json`` and so on.

    Reading, and what people answered, is as before.
    """
    return cast("OnServer", _ReportedRun(run, folder))


class _ReportedRun:
    """The run for reading, a folder of its own for writing."""

    def __init__(self, run: TrackedRun, folder: Path) -> None:
        self._run = run
        self._place = folder / f"{run.ref.store}-{quote(run.ref.id, safe='')}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def recorded(self) -> Recorded | None:
        return DirectoryRun(self._place).recorded() if self._place.is_dir() else None

    def shadow(self) -> Shadow | None:
        return DirectoryRun(self._place).shadow() if self._place.is_dir() else None

    def ours(self) -> Ours:
        return DirectoryRun(self._place).ours() if self._place.is_dir() else Ours()

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        return self._sink().write(annotations)

    def write_shadow(self, shadow: Shadow) -> None:
        self._sink().write_shadow(shadow)

    def notified(self) -> str:
        own = DirectoryRun(self._place).notified() if self._place.is_dir() else ""
        return own or self._run.notified()

    def mark_notified(self, value: str) -> None:
        self._sink().mark_notified(value)

    def settle(self, now: float) -> None:
        """The marks of a run that may not be written to stay as they are."""

    def acknowledge(self, entry: Acknowledgement) -> None:  # noqa: ARG002 - the protocol's
        raise StoreRefused("an acknowledgement goes onto the run, and this one is only read")

    def clear(self, *, acks: bool = False) -> Cleared:  # noqa: ARG002
        return DirectoryRun(self._place).clear() if self._place.is_dir() else Cleared(found=False)

    def _sink(self) -> DirectoryRun:
        try:
            self._place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            shown = printable(self._place)
            raise WriteError(f"{shown} cannot be made: {error.strerror}", "give another --report-to DIR") from error
        return DirectoryRun(self._place)
