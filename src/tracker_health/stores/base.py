"""What every store's runs can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.evidence import Evidence, Request, RunRef
from tracker_health.judge.annotations import PENDING, Annotations, Shadow
from tracker_health.report.resume_point import Shelf
from tracker_health.words.acknowledgements import Acknowledgement
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.stores.files.tree import FileEvidence


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The annotation that a run has: its digest (``pending`` when it was interrupted) and verdict.

    ``settings``: by which configuration and policy it was judged, as ``annotations.JudgedBy`` has it. ``step``: up to
    which step of its history; None where that was not known. ``ended``: how it says that the run ended. ``rules``:
    under which version of the rules; None where it does not say. ``codes``: of what was found; ``cause``: of that, ""
    for none that is likely; ``certainty``: how sure that is; ``explained``: the codes that the cause explains.
    ``notified``: about what people were sent a message, as ``messages.SentMessages`` has it.
    """

    digest: str
    verdict: Verdict | None
    settings: str = ""
    step: int | None = None
    ended: str = ""
    rules: int | None = None
    codes: tuple[str, ...] = ()
    cause: str = ""
    certainty: str = ""
    explained: tuple[str, ...] = ()
    notified: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a verdict, and no annotation that was begun and not ended."""
        return self.digest != PENDING and self.verdict is not None

    def is_older_than(self, last_step: int | None) -> bool:
        """Whether the verdict is on a part of what the run has by now."""
        if self.verdict is None or self.step is None or last_step is None:
            return False
        return self.step < last_step


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """What taking an annotation off a run came to.

    ``found``: there was something of ours. ``hidden``: names that the tracker cannot delete, and that were hidden.
    ``kept``: names of ours that could be neither deleted nor hidden. ``exit``: what the launcher or a hook saw of the
    run's end stays on it. ``acks``: so many entries of acknowledgements stay on it.
    """

    found: bool
    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    exit: bool = False
    acks: int = 0


@dataclass(frozen=True, kw_only=True)
class Ours:
    """What a run has of ours, as its record says: how many tags (of W&B also keys of its summary), metrics and files;
    whether its description has a block. ``acks``: entries of acknowledgements; ``exit``: what was seen of its end.
    """

    tags: int = 0
    metrics: int = 0
    files: int = 0
    note: bool = False
    acks: int = 0
    exit: bool = False

    @property
    def found(self) -> bool:
        """Whether there is anything that ``clear`` takes off."""
        return bool(self.tags or self.metrics or self.files or self.note)


class Overtaken(WriteError):
    """Another annotator is at work on the run."""


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

    def heard(self) -> float | None:
        """When a run that claims to go on was last heard of, in seconds since 1970; None for one that does not, and
        where that is not known.
        """

    def exit(self) -> str:
        """What the launcher or a hook saw of the process's end, as ``exits.exit_value`` wrote it; empty without it."""

    def stopped(self) -> str:
        """What is on it of why its own training stopped it, as ``stopped.Stop`` wrote it; empty without that."""

    def notified(self) -> str:
        """About what people were sent a message, as ``messages.SentMessages`` has it; empty where nobody was."""

    def last_step(self) -> int | None:
        """The last step of its history, as its tracker has it; None where that is not known."""

    def state(self) -> str:
        """How far the run has come, for ``is_in_state`` to know later."""

    def is_in_state(self, state: str) -> bool:
        """Whether nothing has come from the run since it was in that state."""

    def evidence(self) -> str:
        """How far the run has come, whatever rules and settings make of it: what acknowledgements are about."""

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        """The entries on the run that are about what it is now, the oldest first."""

    def shadow(self) -> Shadow | None:
        """What was said of the run while verdicts were only tried out."""

    @property
    def shared(self) -> bool:
        """Whether the store is one that several people write to: a server's."""

    def fingerprint(self, request: Request) -> str:
        """What the evidence depends on, without reading the evidence: status, end, last metric points, paths and sizes
        of files.
        """

    def read(self, request: Request) -> Evidence:
        """Everything that the request needs, and nothing else. What cannot be read becomes a ``Problem``.

        Raises:
            RunError: nothing of the run can be read at all.
        """

    def saved(self, request: Request) -> Shelf | None:
        """The checkpoints that the run left, all of them, to find the one to go back to; None where none but the judged
        one can be known. They are listed when they are asked for.
        """

    def close(self) -> None:
        """Delete what was downloaded. Idempotent."""


class Untracked:
    """What runs have in common for which no tracker knows how they ended."""

    shared = False

    def heard(self) -> float | None:
        return None

    def exit(self) -> str:
        return ""

    def stopped(self) -> str:
        return ""

    def notified(self) -> str:
        return ""

    def last_step(self) -> int | None:
        return None

    def why_not_asked(self) -> str:
        return "no training looks there for such a request: it is a folder or a file"

    def asked_to_stop(self) -> bool:
        return False

    def ask_to_stop(self, request: str) -> None:  # noqa: ARG002 - the protocol's
        raise StoreRefused(f"the training cannot be asked to stop: {self.why_not_asked()}")

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        return ()

    def shadow(self) -> Shadow | None:
        return None

    def ours(self) -> Ours:
        return Ours()

    def settle(self, now: float) -> None:
        """There are no marks: they follow from the entries whenever somebody asks."""

    def state(self) -> str:
        return ""

    def is_in_state(self, state: str) -> bool:
        return state == self.state()

    def saved(self, request: Request) -> Shelf | None:  # noqa: ARG002 - the protocol's
        return None


class Sink(Protocol):
    """A run that a verdict can be written onto."""

    def recorded(self) -> Recorded | None:
        """The annotation that is there, or None."""

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run have these annotations and no older ones: digest ``pending`` first, the digest itself last.

        Gives what was left out because the owner's own has its name or needs its room, each with the reason.

        Raises:
            WrittenInPart: the verdict is there, and something beside it could not be written.
            RunError: the store is unreachable or refuses, something of the owner's is in the way, or another annotator
                is at work; the run is then left with the digest ``pending``, untouched, or as the other leaves it.
        """

    def clear(self, *, acks: bool = False) -> Cleared:
        """Remove everything tracker-health wrote from the run, and nothing else. An interrupted call can be repeated.

        ``acks``: also what people answered to its verdicts.

        Raises:
            RunError: the store is unreachable or refuses.
        """

    def ours(self) -> Ours:
        """What of ours is on the run, as its record says."""

    def acknowledge(self, entry: Acknowledgement) -> None:
        """Add an entry to the run, beside all others, and bring the marks beside its verdict up to date.

        Raises:
            RunError: the store is unreachable or refuses, or another annotator is at work; the entry may be there.
        """

    def settle(self, now: float) -> None:
        """Bring the marks beside the verdict up to date with the entries, at this time (seconds since 1970).

        Raises:
            RunError: as for ``acknowledge``.
        """

    def mark_notified(self, value: str) -> None:
        """Say on the run about what people were sent a message: a value of ``messages.SentMessages``. It may still
        go on, and need not have a verdict. What its owner has under that name stays.

        Raises:
            RunError: the store is unreachable or refuses.
        """

    def why_not_asked(self) -> str:
        """Why its training cannot be asked to stop; empty where it can."""

    def asked_to_stop(self) -> bool:
        """Whether the run asks its training to stop."""

    def ask_to_stop(self, request: str) -> None:
        """Ask the training of a run that goes on to stop: one that wants to obey looks for that on its own run.

        Args:
            request: ``Stop.as_request``. A store without room for it says only that somebody asked.

        Raises:
            RunError: the store is unreachable or refuses, or can ask nobody.
        """

    def write_shadow(self, shadow: Shadow) -> None:
        """Put what is only tried out onto the run, in the place of an earlier one, and nothing else.

        Raises:
            RunError: the store is unreachable or refuses, or something of the owner's has its name.
        """


class TrackedRun(Source, Sink, Protocol):
    """One run of a store: what ``open_run`` gives."""


class Alerting(Protocol):
    """A run whose tracker alerts people itself, each as they have asked it to."""

    def alert(self, title: str, text: str, verdict: Verdict) -> None:
        """Have the tracker alert people about this run.

        Raises:
            StoreRefused: no permission.
            WriteError: it did not take the alert.
        """


def alerting(run: TrackedRun) -> Alerting | None:
    """The same run, where its tracker alerts people; None for all others."""
    return cast("Alerting", run) if callable(getattr(run, "alert", None)) else None


class Listed(Protocol):
    """A run that a search of a store found, to be opened when its turn comes. As text it is what ``open_run`` takes."""

    def open(self) -> TrackedRun:
        """The run, without asking the store again for what the search gave."""


class OnServer(TrackedRun, Protocol):
    """A run whose files would have to be fetched."""

    def bytes_of_files(self, request: Request) -> int:
        """How much of its files judging the run could read, at most."""


@dataclass(frozen=True, kw_only=True)
class TaggedRun:
    """What a run's record says of its annotation. ``verdict``: None without one of ours. ``codes``: of the rules behind
    it. ``cause``: of what they found, empty where none is likely; ``certainty``: how sure it is.
    ``experiment``: its name, or the project's.
    ``started``: in seconds since 1970, None where that is not known. ``older``: than the run's last data. ``acks``:
    entries that are about what the run is now. ``shadow``: what was said while verdicts were only tried out.
    """

    ref: RunRef
    verdict: Verdict | None
    codes: tuple[str, ...] = ()
    summary: str = ""
    cause: str = ""
    certainty: str = ""
    user: str = ""
    experiment: str = ""
    started: float | None = None
    older: bool = False
    acks: tuple[Acknowledgement, ...] = ()
    shadow: Shadow | None = None


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

    def close(self) -> None:
        """Delete what was downloaded. Idempotent."""


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
        """Whether it claims to go on."""

    @property
    def since(self) -> float | None:
        """When it ended, or was last heard of, in seconds since 1970; None where that is not known."""

    def open(self) -> OnServer:
        """The run as it is now."""


@dataclass(frozen=True, kw_only=True)
class Period:
    """Which runs a sweep covers, in seconds since 1970.

    Those that ended at ``since`` or later, and those that claim to go on and last sent something between ``since`` and
    ``silent_since``. Runs that sent something later count if they have a verdict that calls them silent.
    """

    since: float
    silent_since: float
