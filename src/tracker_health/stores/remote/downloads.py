"""What is fetched of a run's files from elsewhere: whole or in parts, below a limit, and deleted again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock

from tracker_health.evidence import Request
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.files.ranged_file import SMALLEST, RangedFile, Remote
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS
from tracker_health.run_files.tree import AboveLimit, FileEvidence, RunFile
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.remote.http_parts import Unanswered
from tracker_health.stores.remote.progress import downloading
from tracker_health.text import printable, size_of

Fetch = Callable[[int, int], bytes | bytearray]
"""Gives so many bytes from a position on. Called from several threads."""


class Downloads:
    """The files of one run that were fetched. ``limit``: bytes over all of them."""

    def __init__(self) -> None:
        self.limit = Request.max_download
        self._fetched: dict[str, Path] = {}
        self._ranged: dict[str, RangedFile] = {}
        self._spent = 0
        self._counting = Lock()
        self._folder: TemporaryFolder | None = None

    def whole(self, file: RunFile, fetch: Callable[[Path], object]) -> Path:
        """Where the file is that ``fetch`` writes into the place it is given, unless it is here already.

        Raises:
            AboveLimit: it is larger than what may still be fetched, or of unknown size.
            Unanswered: what came is not as large as its store says.
        """
        if file.path in self._fetched:
            return self._fetched[file.path]
        if not file.size:
            reason = f"{printable(file.path)} is empty, or its store does not say how large it is; it was not fetched"
            raise AboveLimit(reason)
        self._reserve(file, file.size)
        if self._folder is None:
            self._folder = TemporaryFolder()
        target = Path(self._folder.name) / str(len(self._fetched))
        with downloading(file.path, file.size, target):
            fetch(target)
        came = target.stat().st_size
        if came != file.size:
            raise Unanswered(f"the connection ended after {came} of {file.size} bytes")
        self._spent += came
        self._fetched[file.path] = target
        return target

    def opened(
        self, file: RunFile, parts: Callable[[], Fetch | None], local: Callable[[RunFile], Path]
    ) -> RandomAccess:
        """The file, to be read in parts where ``parts`` gives a way to fetch some, else as ``local`` gives it whole."""
        if file.path in self._ranged and file.path not in self._fetched:
            return self._ranged[file.path]
        fetch = None if file.path in self._fetched or file.size < SMALLEST else parts()
        if fetch is None:
            return LocalFile(local(file))
        remote = Remote(
            size=file.size,
            fetch=partial(self._part, fetch),
            whole=partial(local, file),
            reserve=partial(self._reserve, file),
        )
        return self._ranged.setdefault(file.path, RangedFile(remote))

    def explain_limit(self, found: FileEvidence) -> None:
        """Make of what the limit took away a skip, not an error."""
        for problem in found.above_limit:
            # Without roles it was one of several files that may hold a checkpoint: no loss if another did.
            lost = problem.roles or (CHECKPOINT_PARTS if found.optimizer is None else ())
            found.missing = dict.fromkeys(lost, problem.message) | found.missing

    @property
    def spent(self) -> int:
        """Bytes that were fetched."""
        return self._spent

    def close(self) -> None:
        """Delete what was fetched."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        for opened in self._ranged.values():
            opened.close()
        self._ranged.clear()
        self._fetched.clear()
        self._spent = 0

    def _part(self, fetch: Fetch, start: int, length: int) -> bytes | bytearray:
        part = fetch(start, length)
        with self._counting:
            self._spent += length
        return part

    def _reserve(self, file: RunFile, count: int) -> None:
        """Raise unless so many bytes of a file may be fetched."""
        if self._spent + count > self.limit:
            needed = "" if count == file.size else f", of which {size_of(count)} would be fetched"
            reason = (
                f"{printable(file.path)} has {size_of(file.size)}{needed}: with what was fetched before, that is above "
                f"the limit of {size_of(self.limit)}; raise it with --max-download"
            )
            raise AboveLimit(reason)
