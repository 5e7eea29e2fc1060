"""One file that was given as a run: a log, or a checkpoint. It is judged, and never written onto."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from tracker_health.errors import StoreRefused
from tracker_health.evidence import Request, RunRef, TextLog
from tracker_health.judge.annotations import Annotations, Shadow
from tracker_health.stores.base import Cleared, Ours
from tracker_health.stores.files.tree import RunFile
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement


class OneFileRun(DirectoryRun):
    """A run of which one file is known. What lies beside that is not looked at."""

    def __init__(self, path: str | Path) -> None:
        place = Path(path)
        super().__init__(place.parent)
        self._given, self._place = str(path), place

    @property
    def ref(self) -> RunRef:
        return RunRef(store="directory", id=self._given, name=self._place.name)

    @cached_property
    def files(self) -> tuple[RunFile, ...]:
        """The one."""
        status = self._place.stat()
        return (RunFile(path=self._place.name, size=status.st_size, modified=status.st_mtime),)

    def saved(self, request: Request) -> None:
        """What lies beside the file is not looked at."""

    def write(self, annotations: Annotations) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        raise self._refused()

    def _refused(self) -> StoreRefused:
        message = f"{printable(self._given)} is a file, onto which no verdict can be written"
        return StoreRefused(message, "use check, or annotate the folder of the run")

    def write_shadow(self, shadow: Shadow) -> None:  # noqa: ARG002 - the protocol's
        raise self._refused()

    def mark_notified(self, value: str) -> None:  # noqa: ARG002
        raise self._refused()

    def acknowledge(self, entry: Acknowledgement) -> None:  # noqa: ARG002
        raise self._refused()

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        return ()

    def clear(self, *, acks: bool = False) -> Cleared:  # noqa: ARG002
        return Cleared(found=False)

    def ours(self) -> Ours:
        return Ours()

    def _annotation(self) -> dict[str, Any] | None:
        return None

    def _nothing_found(self, log: TextLog | None) -> str:
        found = super()._nothing_found(log) if log is not None else ""
        return found or "nothing to judge in it: it reads neither as a training log nor as a checkpoint"
