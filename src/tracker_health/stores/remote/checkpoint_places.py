"""The checkpoints of a run that a server keeps in several places: its files, and models or artifacts with a version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tracker_health.errors import UNREADABLE, described
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.report.resume_point import NOTHING, CheckpointContents, Counted, Saved, Shelf
from tracker_health.run_files.all_checkpoints import SavedFiles
from tracker_health.run_files.tree import FileTree, RunFile
from tracker_health.stores.remote.fetched_files import FetchedFiles
from tracker_health.text import printable


class PartOfTree:
    """See ``FileTree``: a few of the files of a tree."""

    def __init__(self, tree: FileTree, files: tuple[RunFile, ...]) -> None:
        self._tree = tree
        self.files = files

    def local(self, file: RunFile) -> Path:
        return self._tree.local(file)

    def open(self, file: RunFile) -> RandomAccess:
        return self._tree.open(file)


class Version(Protocol):
    """A model or an artifact that a run logged, and its files, which are asked for when it is looked into."""

    @property
    def saved(self) -> Saved: ...

    def files(self) -> FetchedFiles:
        """Its files.

        Raises:
            RunError: they cannot be reached.
        """

    def why_none(self, files: FetchedFiles) -> str:
        """Why none of its files is read."""


class Versions:
    """See ``resume_point.Shelf``: the checkpoints among a run's own files, and its versions. ``most``: bytes that
    may be fetched of all versions together.
    """

    def __init__(self, own: SavedFiles, versions: Callable[[], Sequence[Version]], most: int) -> None:
        self._own = own
        self._list = versions
        self._left = max(0, most)

    @cached_property
    def _versions(self) -> Mapping[str, Version]:
        return {one.saved.key: one for one in self._list()}

    @cached_property
    def listed(self) -> Sequence[Saved]:
        """All of them."""
        return [*self._own.listed, *(one.saved for one in self._versions.values())]

    def counted(self, saved: Saved) -> Counted:
        """As ``SavedFiles``; of a version nothing but what its record says."""
        return NOTHING if saved.key in self._versions else self._own.counted(saved)

    def look(self, saved: Saved) -> CheckpointContents:
        """As ``SavedFiles``."""
        version = self._versions.get(saved.key)
        if version is None:
            return self._own.look(saved)
        try:
            with closing(version.files()) as files:
                files.limit_to(self._left)
                look = _look_among(files, version)
                self._left = max(0, self._left - files.fetched_bytes)
        except UNREADABLE as error:
            return CheckpointContents(unchecked=described(error))
        return look


def _look_among(files: FetchedFiles, version: Version) -> CheckpointContents:
    if files.problem:
        return CheckpointContents(unchecked=printable(files.problem, 300))
    inside: Shelf = SavedFiles(files, str)
    looks = [inside.look(one) for one in inside.listed[:1]]
    return looks[0] if looks and not looks[0].is_none else CheckpointContents(unchecked=version.why_none(files))
