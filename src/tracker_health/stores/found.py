"""What searches of stores and registries find: runs and models, to be opened when their turn comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tracker_health.evidence import Request
from tracker_health.evidence.kin import Kin
from tracker_health.stores.common.tracked_run import TrackedRun

if TYPE_CHECKING:
    from tracker_health.run_files.tree import FileEvidence


class Listed(Protocol):
    """A run that a search of a store found, to be opened when its turn comes. As text it is what ``open_run`` takes."""

    def open(self) -> TrackedRun:
        """The run, without asking the store again for what the search gave."""


@dataclass(frozen=True, kw_only=True)
class SweptListed:
    """A run that a sweep is about, of a store that need not be asked again to open it. As text it is its name."""

    name: str
    state: str
    annotated: bool
    silent: bool
    since: float | None
    kin: Kin | None
    listed: Listed = field(repr=False)
    quiet: bool = False

    def __str__(self) -> str:
        return self.name

    def open(self) -> TrackedRun:
        """The run as it is now."""
        return self.listed.open()


class RegisteredModel(Protocol):
    """A version of a model in a registry, or a model that a run logged: found, and not yet read."""

    @property
    def name(self) -> str:
        """As it is named for good: by its version, whatever alias it was asked for by."""

    @property
    def url(self) -> str:
        """Of its page; empty where it has none."""

    @property
    def state(self) -> str:
        """What of its record says that something about it changed, our own tags aside."""

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags, all of them."""

    def run(self) -> TrackedRun:
        """The run that made it, opened.

        Raises:
            RunNotFound: the registry names none, or it is gone.
            RunError: it cannot be reached.
        """

    def files(self, request: Request) -> FileEvidence:
        """What the registered files themselves hold of a checkpoint. ``missing`` says why they hold none.

        Raises:
            RunError: they cannot be reached at all.
        """

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set these tags, by their full names; one with an empty value is taken off. Nothing else is changed.

        Raises:
            StoreRefused: no permission.
            RunError: the registry is unreachable.
        """

    @property
    def description(self) -> str | None:
        """What its owner wrote of it, which its page shows as Markdown; None where its page shows none."""

    def describe(self, change: Callable[[str], str]) -> None:
        """Change the description that it has this moment, where its page shows one.

        Raises:
            StoreRefused: no permission.
            RunError: the registry is unreachable.
        """

    def promote(self, alias: str) -> str:
        """Give it this alias in its registry; the name of the model that had it before, empty where none had.

        Raises:
            StoreRefused: no permission.
            RunError: it can have none, or the registry is unreachable.
        """

    def close(self) -> None:
        """Delete what was downloaded. Idempotent."""


class Undescribed:
    """A model whose page shows no description, or whose description is left to its owner."""

    @property
    def description(self) -> str | None:
        """None."""
        return None

    def describe(self, change: Callable[[str], str]) -> None:
        """Nothing to do."""


class SweptRun(Protocol):
    """A run that a sweep found: over, or perhaps silent for so long that it must be. As text it is its ``name``."""

    @property
    def name(self) -> str:
        """What ``open_run`` takes."""

    @property
    def state(self) -> str:
        """What of its record says that something about it changed."""

    @property
    def annotated(self) -> bool:
        """Whether it seemed to have a whole annotation when it was found."""

    @property
    def silent(self) -> bool:
        """Whether it claims to be running."""

    @property
    def quiet(self) -> bool:
        """Whether it claims to be running, is not silent, and may stand still: nothing else is asked of such a run."""

    @property
    def since(self) -> float | None:
        """When it ended, or was last heard of, in seconds since 1970; None where that is not known."""

    @property
    def kin(self) -> Kin | None:
        """Its relations, where these were asked for."""

    def open(self) -> TrackedRun:
        """The run as it is now."""


@dataclass(frozen=True, kw_only=True)
class Period:
    """Which runs a sweep covers, in seconds since 1970.

    Those that ended at ``since`` or later, and those that claim to be running and last sent something between ``since``
    and ``silent_since``. Runs that sent something later count if they have a verdict that calls them silent.

    ``quiet_since``: running ones that sent something after ``silent_since`` count as quiet, unless a point of theirs is
    known to have come after that. None where nobody asks for those.
    """

    since: float
    silent_since: float
    quiet_since: float | None = None
