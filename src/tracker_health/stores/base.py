"""What every store's runs can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tracker_health.annotations import Annotations
from tracker_health.errors import WriteError
from tracker_health.evidence import Evidence, Request, RunRef
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The annotation that a run bears: its digest (``pending`` when it was interrupted) and verdict."""

    digest: str
    verdict: Verdict | None


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """What taking an annotation off a run came to.

    ``found``: there was something of ours. ``hidden``: names that the tracker cannot delete, and that were hidden.
    ``kept``: names of ours that could be neither deleted nor hidden.
    """

    found: bool
    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class WrittenInPart(WriteError):
    """The verdict is on the run, and something that belongs to it could not be written.

    The recorded digest is ``annotations.incomplete`` of the one that was to be written: the next annotation tries
    again. ``omitted``: what was left out on purpose besides, as ``Sink.write`` gives it.
    """

    def __init__(self, message: str, hint: str = "", omitted: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.omitted = omitted


class Source(Protocol):
    """A run that can be read. Opening it has already found it; reading never changes it."""

    @property
    def ref(self) -> RunRef: ...

    def traits(self) -> Mapping[str, str]:
        """What overrides of the configuration go by: ``experiment``, ``project``, and ``tag:NAME`` for each tag."""

    def remarks(self) -> tuple[str, ...]:
        """What the reader of any verdict on the run should know: that it is deleted, say."""

    def fingerprint(self, request: Request) -> str:
        """What the evidence hangs on, without reading the evidence: status, end, last metric points, paths and sizes
        of files.
        """

    def read(self, request: Request) -> Evidence:
        """Everything that the request needs, and nothing else. What cannot be read becomes a ``Problem``.

        Raises:
            RunError: nothing of the run can be read at all.
        """

    def close(self) -> None:
        """Delete what was downloaded. Idempotent."""


class Sink(Protocol):
    """A run that a verdict can be written onto."""

    def recorded(self) -> Recorded | None:
        """The annotation that is there, or None."""

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run bear these annotations and no older ones: digest ``pending`` first, the digest itself last.

        Gives what was left out because the owner's own has its name or needs its room, each with the reason.

        Raises:
            WrittenInPart: the verdict is there, and something beside it could not be written.
            RunError: the store is unreachable or refuses, something of the owner's is in the way, or another annotator
                is at work; the run is then left with the digest ``pending``, untouched, or as the other leaves it.
        """

    def clear(self) -> Cleared:
        """Take everything of ours off the run again, and nothing else. Interrupted, it can be done again.

        Raises:
            RunError: the store is unreachable or refuses.
        """


class TrackedRun(Source, Sink, Protocol):
    """One run of a store: what ``open_run`` gives."""
