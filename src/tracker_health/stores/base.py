"""What every store's runs can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tracker_health.errors import WriteError
from tracker_health.evidence import Evidence, Pulse, Request, RunRef
from tracker_health.evidence.kin import Kin
from tracker_health.judge.annotations import PENDING, Shadow
from tracker_health.report.resume_point import Shelf
from tracker_health.words.acknowledgements import Acknowledgement
from tracker_health.words.repairs import RepairMark
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The annotation that a run has: its digest (``pending`` when it was interrupted) and verdict.

    ``settings``: by which configuration and policy it was judged, as ``annotations.JudgedBy`` has it. ``step``: up to
    which step of its history; None where that was not known. ``ended``: how it says that the run ended. ``rules``:
    under which version of the rules; None where it does not say. ``codes``: of what was found; ``cause``: of that, ""
    for none that is likely; ``certainty``: how sure that is; ``explained``: the codes that the cause explains.
    ``notified``: about what people were sent a message, as ``messages.SentMessages`` has it. ``summary``: the sentence.
    ``group_verdict`` and ``group``: on the ranks that it stands for, as ``group_verdict.GroupVerdict`` has them.
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
    summary: str = field(default="", compare=False)
    group_verdict: Verdict | None = None
    group: str = ""
    group_state: str = ""

    @property
    def headline(self) -> str:
        """What it says in a sentence, behind the cause where there is one; empty where it says nothing."""
        return f"{self.cause} ({self.certainty}): {self.summary}" if self.cause and self.certainty else self.summary

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
    ``kept``: names of ours that could be neither deleted nor hidden. ``acks``: so many entries of acknowledgements stay
    on it.
    """

    found: bool
    hidden: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    acks: int = 0


@dataclass(frozen=True, kw_only=True)
class Ours:
    """What a run has of ours, as its record says: how many tags (of W&B keys of its summary), metrics and files;
    whether its description has a block. ``acks``: entries of acknowledgements.
    """

    tags: int = 0
    metrics: int = 0
    files: int = 0
    note: bool = False
    acks: int = 0

    @property
    def found(self) -> bool:
        """Whether there is anything that ``clear`` takes off."""
        return bool(self.tags or self.metrics or self.files or self.note)


class Overtaken(WriteError):
    """Another annotator is at work on the run."""


class WrittenInPart(WriteError):
    """The verdict is on the run, and something that belongs to it could not be written.

    The recorded digest is ``annotations.incomplete`` of the one that was to be written: the next annotation tries
    again. ``omitted``: what was left out on purpose besides, as ``TrackedRun.write`` gives it.
    """

    def __init__(self, message: str, hint: str = "", omitted: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.omitted = omitted


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the tracker says of a run in one answer, as it was when someone looked. What costs more is a function.

    ``shown``: what errors call it. ``marks``: what it has under names of ours, be it ours or its owner's. ``naming``:
    what its tracker calls a mark of that name; ``placing``: a file of ours.

    ``traits``: what overrides of the configuration go by: ``experiment``, ``project``, and ``tag:NAME`` for each tag.
    ``remarks``: what the reader of any verdict should know: that it is deleted, say. ``heard``: when a run that claims
    to go on was last heard of, in seconds since 1970; None for one that does not, and where that is not known.
    ``pulse``: when its training and its machine last gave a sign of life; None where only ``heard`` says that.
    ``is_over``: it does not go on. ``last_step``: of its history, None where that is not known. ``shared``: several
    people write to its store. ``why_not_asked``: why its training cannot be asked to stop.

    ``state``: how far it has come, and ``still``: whether nothing has come since it was in such a state. ``evidence``:
    how far it has come, whatever settings make of it: what acknowledgements are about. ``identity``: what tells it from
    another run that its marks were copied to; empty where a copy counts as the same run.

    ``started``, ``ended`` (or last heard of; seconds since 1970), ``user`` and ``kin``: what lists of runs say of it.
    Stores that list their runs in their own way need not say it here.
    """

    ref: RunRef
    shown: str
    marks: Callable[[], Mapping[str, Any]]
    naming: Callable[[str], str]
    placing: Callable[[str], str] = "health/{}".format
    traits: Callable[[], Mapping[str, str]] = dict
    remarks: Callable[[], tuple[str, ...]] = tuple
    heard: Callable[[], float | None] = lambda: None
    pulse: Callable[[], Pulse | None] = lambda: None
    is_over: bool = True
    last_step: int | None = None
    state: Callable[[], str] = str
    still: Callable[[str], bool] | None = None
    evidence: Callable[[], str] = str
    shared: bool = False
    why_not_asked: str = ""
    identity: str = ""
    started: float | None = None
    ended: float | None = None
    user: str = ""
    kin: Callable[[], Kin | None] = lambda: None


class StoredRun(Protocol):
    """A run in a store: what another store has to offer. Opening it has already found it."""

    # What a store declares, where trackers differ.

    is_whole: bool
    """All marks are written at once, or nobody else can write meanwhile: of two writings one is there, not both."""

    is_marked_first: bool
    """A writing begins with a mark on every run. Else not on one that has no mark yet: files that are found there
    without marks are known by the report among them.
    """

    note: str
    """``block``: the mark ``note`` is the owner's description, in which ours is a block. ``mark``: it is ours alone.
    Empty where nothing is described.
    """

    is_charted: bool
    """Each number gets a chart on the run's page, among its owner's: that of the verdict is not worth one."""

    def marks_of_files(self, files: Mapping[str, bytes]) -> Mapping[str, Any]:  # noqa: ARG002 - for W&B's pages
        """The marks by which the tracker's pages show these files of an annotation: none, for most."""
        return {}

    # The source: what was logged. Reading never changes it.

    @property
    def record(self) -> RunRecord:
        """What its tracker says of it, as it was at the last look."""

    def look(self) -> None:
        """Take the record as it is now: at least as the last writing from here left it."""

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

    # Marks: our own keys on the run.

    def writing(self, doing: str, *, live: bool = False) -> AbstractContextManager[None]:
        """Look, and keep others off the run as far as that is possible. ``doing``: what fails if it does. ``live``: the
        run may go on; of its marks only those are written that it has meanwhile.

        Raises:
            Overtaken: another annotator is at work.
            StoreRefused: no permission, or nothing can ever be written onto such a run.
            WriteError: nothing can be written onto it now; or what the tracker raises inside.
        """

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        """Set these marks in their order, and take those off whose value is None, before the others. Nothing else
        changes. Gives the names of those that could only be hidden.
        """

    # Files: those of ours.

    def list_files(self) -> Mapping[str, str]:
        """The files where ours are, by name, each with a checksum where the tracker has one, else "".

        Raises:
            NoPlace: none can be put there.
            WriteError: something of the owner's is in their place.
            RunError: they cannot be listed.
        """

    def get_file(self, name: str, limit: int) -> bytes:
        """A file's content; empty for one of more than ``limit`` bytes.

        Raises:
            RunError: it cannot be read.
        """

    def put_files(self, files: Mapping[str, bytes]) -> None:
        """Write files of ours, by name.

        Raises:
            RunError: some could not be written.
        """

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        """Delete files of ours. Gives those that are still there, or may be: not every store can delete."""


class NoPlace(WriteError):
    """Files cannot be put where the run's record, which is not ours to trust, has its files."""


@dataclass(frozen=True, kw_only=True)
class TaggedRun:
    """What a run's record says of its annotation. ``verdict``: None without one of ours. ``codes``: of the rules behind
    it. ``cause``: of what they found, empty where none is likely; ``certainty``: how sure it is.
    ``experiment``: its name, or the project's.
    ``started``: in seconds since 1970, None where that is not known. ``older``: than the run's last data. ``acks``:
    entries that are about what the run is now. ``shadow``: what was said while verdicts were only tried out. ``kin``:
    of its relations, where these were asked for; ``group_verdict`` and ``group``: as ``Recorded`` has them.
    ``repairs`` and ``repaired_by``: what it says of a repair as the new run, and as the old one.
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
    kin: Kin | None = None
    group_verdict: Verdict | None = None
    group: str = ""
    group_state: str = ""
    repairs: RepairMark | None = None
    repaired_by: RepairMark | None = None
