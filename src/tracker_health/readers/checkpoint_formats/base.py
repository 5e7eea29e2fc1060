"""What a checkpoint format declares: how it is recognised among the files of a folder, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from tracker_health.evidence import OptimizerState, Weights
from tracker_health.readers.files.folder import Folder


class NameMatch(IntEnum):
    """What a file's name says about it, the more the higher."""

    POSSIBLE = 1  # anything can be called so: it has to be looked into
    LIKELY = 2  # it is of this format, but may hold something else than an optimizer's state
    SURE = 3


class CheckpointFormat(Protocol):
    """One format of checkpoints. One of its files, the lead, shows that there is a checkpoint."""

    @property
    def name(self) -> str:
        """What people call it."""

    def belongs(self, name: str) -> bool:
        """Whether reading a checkpoint of this format may open a file of this name."""

    def leads(self, names: Sequence[str]) -> dict[str, NameMatch]:
        """The leads among the files of one folder."""

    def why_not(self, names: Sequence[str]) -> str:
        """Why a folder with these files, none of them a lead, has no checkpoint though it seems to; else ""."""

    def holds_state(self, folder: Folder, lead: str) -> bool:
        """Whether there is an optimizer's state in it. Reads no tensor.

        Raises:
            ReadError: it is not of this format, or cannot be trusted.
            OSError: a file cannot be read.
        """

    def read(self, folder: Folder, lead: str, source: str) -> OptimizerState:
        """The optimizer state, every moment reduced to its statistics, reported under the name ``source``.

        Raises:
            RunError: a file is missing, not what it should be, or holds no optimizer state.
            OSError: a file cannot be read.
        """

    def weights(self, folder: Folder, lead: str, source: str) -> Weights | None:
        """Names, shapes and dtypes of the weights in it; None where it has none, or where they are in other files.

        Raises:
            RunError, OSError: as for ``read``.
        """
