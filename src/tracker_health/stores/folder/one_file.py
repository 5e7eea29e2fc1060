"""One file that was given as a run: a log, or a checkpoint. It is judged, and never written onto."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tracker_health.evidence import Request, RunRef, TextLog
from tracker_health.run_files.tree import RunFile
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.tracked_run import ReadOnlyRun
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.folder.unread import head_of


class OneFileRun(ReadOnlyRun, DirectoryRun):
    """A run of which one file is known. What is next to that is not looked at."""

    _what = "a file"
    _instead = "use check, or annotate the folder of the run"

    def __init__(self, path: str | Path) -> None:
        place = Path(path)
        super().__init__(place.parent)
        self._given, self._place = str(path), place

    @cached_property
    def record(self) -> RunRecord:
        ref = RunRef(store="directory", id=self._given, name=self._place.name)
        return replace(super().record, ref=ref, marks=dict)

    @cached_property
    def files(self) -> tuple[RunFile, ...]:
        """The one."""
        status = self._place.stat()
        return (RunFile(path=self._place.name, size=status.st_size, modified=status.st_mtime),)

    def saved(self, request: Request) -> None:
        """What is next to the file is not looked at."""

    def _nothing_found(self, log: TextLog | None) -> str:
        found = super()._nothing_found(log) if log is not None else ""
        begins = head_of(self.files[0], self._folder)
        unread = f"nothing to judge in it: it reads neither as a training log nor as a checkpoint{begins}"
        return found or f"{unread}; give a log, a checkpoint, or the folder of a run"
