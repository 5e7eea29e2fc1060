"""The files of a run that its store lists when asked and that are fetched when they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from tracker_health.evidence import Problem, Request
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.run_files.reading import read_files
from tracker_health.run_files.tree import FileEvidence, RunFile
from tracker_health.stores.remote.downloads import Downloads, Fetch

MAX_FILES = 5_000
"""Files of a run that reading may open."""
MAX_SEEN = 100_000
"""Files of a run that are looked at at all."""


@dataclass(frozen=True)
class Listing:
    """The files that reading may open, sorted by path; ``problem``: why they could not be listed, empty when they
    could; ``truncated``: there are more than were looked at.
    """

    files: tuple[RunFile, ...] = ()
    problem: str = ""
    truncated: bool = False


class FetchedFiles(ABC):
    """A ``FileTree`` of what a store has elsewhere. ``what`` the store calls its files."""

    what: ClassVar[str]

    def __init__(self) -> None:
        self._downloads = Downloads()

    @property
    @abstractmethod
    def _listing(self) -> Listing: ...

    @abstractmethod
    def local(self, file: RunFile) -> Path:
        """Where the file can be read.

        Raises:
            ReadError: it cannot be fetched, is beyond the download limit, or is no regular file.
        """

    @abstractmethod
    def _parts(self, file: RunFile) -> Fetch | None:
        """What fetches a part of the file; None where its store gives it only whole."""

    @property
    def files(self) -> tuple[RunFile, ...]:
        return self._listing.files

    @property
    def pickled(self) -> tuple[RunFile, ...]:
        """The models that were logged as pickles, of which nothing is read. They are not among the files."""
        return ()

    @property
    def problem(self) -> str:
        """Why the files could not be listed, empty when they could."""
        return self._listing.problem

    def open(self, file: RunFile) -> RandomAccess:
        """The file, of which only the parts that are read are fetched where its store gives parts.

        Raises:
            ReadError: as for ``local``.
        """
        return self._downloads.opened(file, partial(self._parts, file), self.local)

    def evidence(self, request: Request, *, logs: bool) -> FileEvidence:
        """What the files give; a part whose files are beyond the download limit is missing with that reason."""
        self._downloads.limit = request.max_download
        found = read_files(self, request, logs=logs)
        self._downloads.explain_limit(found)
        found.files = (*self.files, *self.pickled)
        if self.problem:
            # Whether there was evidence cannot be said: a rule that needs it must not pass over that in silence.
            roles = {*request.parts, *(("train_loss", "val_loss") if logs else ())}
            found.problems.append(Problem(source=self.what, message=self.problem, roles=frozenset(roles)))
        if self._listing.truncated:
            message = f"more than {MAX_FILES} logs and checkpoints, or {MAX_SEEN} files; not all were looked at"
            found.problems.append(Problem(source=self.what, message=message))
        return found

    def limit_to(self, most_bytes: int) -> None:
        """Fetch no more than that, over all files."""
        self._downloads.limit = most_bytes

    @property
    def fetched_bytes(self) -> int:
        """How much was fetched."""
        return self._downloads.spent

    def close(self) -> None:
        """Delete what was fetched."""
        self._downloads.close()
