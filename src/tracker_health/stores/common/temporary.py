"""Folders for what is fetched or sent. What an annotator that was killed left behind, the next one takes away."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path

from tracker_health.readers.files.regular_file import note_fetched
from tracker_health.stores.common.locks import let_go, try_lock

_PREFIX = "tracker-health-fetched-"
_OURS = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
_YOUNG_SECONDS = 60
"""A folder that is made this moment is not locked yet."""


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder that is deleted at the end, and locked until then: by that the next annotator knows whose it is."""

    def __init__(self) -> None:
        _sweep()
        super().__init__(prefix=_PREFIX)
        note_fetched(Path(self.name))
        descriptor = try_lock(Path(self.name))
        self._unlock = None if descriptor is None else weakref.finalize(self, let_go, descriptor)

    def cleanup(self) -> None:
        """See ``tempfile.TemporaryDirectory``."""
        note_fetched(Path(self.name), gone=True)
        super().cleanup()
        if self._unlock is not None:
            self._unlock()


@cache
def _sweep() -> None:
    """Delete, once in a process, the folders of this user's processes that have ended without doing so."""
    with suppress(OSError):
        for place in Path(tempfile.gettempdir()).iterdir():
            if _OURS.fullmatch(place.name) and _is_abandoned(place.lstat()):
                descriptor = try_lock(place)
                if descriptor is not None:
                    shutil.rmtree(place, ignore_errors=True)
                    let_go(descriptor)


def _is_abandoned(status: os.stat_result) -> bool:
    ours = hasattr(os, "geteuid") and status.st_uid == os.geteuid()
    return ours and stat.S_ISDIR(status.st_mode) and time.time() - status.st_mtime > _YOUNG_SECONDS
