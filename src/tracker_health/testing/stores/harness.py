"""What the suite of tests for stores needs of a store under test, and what it does with its runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from tracker_health.errors import RunError
from tracker_health.evidence import Evidence, Request
from tracker_health.judge.annotations import Annotations, Shadow
from tracker_health.roles import RolePlan
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.record import key_of
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.words.acknowledgements import Acknowledgement, acknowledgement
from tracker_health.words.ending import Ending

Points = Sequence[tuple[int, float]]
LOSS: Points = [(step, 2.0 - 0.01 * step) for step in range(50)]
NOON = 1_900_000_000.0


class Killed(BaseException):
    """Stands for the end of the process in the middle of writing: nothing may catch it."""


def without_run(tags: Mapping[str, str], run: str) -> dict[str, str]:
    """Without what says of which run they are, where that is this one."""
    key = key_of(run)
    return {name: text.replace(f'"run": "{key}", ', "").replace(f" of={key}", "") for name, text in tags.items()}


@dataclass(frozen=True, kw_only=True)
class View:
    """What a run has, timestamps aside: tags, latest metric values, description, and files with their bytes."""

    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


class StoreHarness(Protocol):
    """What the suite needs of a store under test."""

    def new_run(self, *, metrics: Mapping[str, Points], files: Mapping[str, bytes], note: str = "") -> str:
        """A finished run as a trainer leaves it, with these metric histories, files and description; its name for
        ``open``.
        """

    def open(self, run: str) -> TrackedRun:
        """The run, as the store gives it."""

    def view(self, run: str, *, ours: bool) -> View:
        """What the run has that is ours, or all the rest."""

    def unknown_run(self) -> str:
        """The name of a run that is not there."""

    def add_file(self, run: str, path: str, content: bytes) -> None:
        """Add a file of its owner's to the run, ``health/...`` for one among ours."""

    def owned(self, run: str, path: str) -> bytes:
        """The content of a file of its owner's."""

    def add_point(self, run: str, metric: str, step: int, value: float) -> None:
        """Log one more point, as training that went on."""

    def add_value(self, run: str, name: str, value: str) -> None:
        """Put a value of its owner's under a name that we write as well (``verdict``, ``summary``): a tag, or a key of
        the summary.
        """

    def value(self, run: str, name: str) -> str | None:
        """What the owner sees under that name."""

    def delete(self, run: str) -> None:
        """Delete the run, as its owner would."""

    def forbid_writing(self, run: str) -> AbstractContextManager[TrackedRun]:
        """The run, opened by somebody who may read it and not write to it."""

    def before_write(self, action: Any) -> AbstractContextManager[None]:
        """Call ``action(number)`` before each single write to the store, the first being number 1."""

    def before_read(self, action: Any) -> AbstractContextManager[None]:
        """Call ``action(name)`` before each reading of a metric history or a file."""

    def supports(self, ability: str) -> str:
        """Empty where the store has the ability (``delete``, ``permissions``, ``note``, ``values``, ``state``,
        ``marks``, ``stops``: why a training stopped its run can be on it; ``numbers``: that of a verdict is shown),
        else why it has not.
        """


def request_for(*roles: str, parts: frozenset[str] = frozenset()) -> Request:
    """A request for the series of these roles and for these parts."""
    return Request(roles=RolePlan(wanted=frozenset(roles)), parts=parts)


def read(harness: StoreHarness, run: str, request: Request) -> Evidence:
    """The evidence of a run."""
    with closing(harness.open(run)) as opened:
        return opened.read(request)


def fingerprint(harness: StoreHarness, run: str) -> str:
    """The fingerprint of a run for a request of its training loss."""
    with closing(harness.open(run)) as opened:
        return opened.fingerprint(request_for("train_loss"))


def state(harness: StoreHarness, run: str) -> str:
    """How far a run has come."""
    with closing(harness.open(run)) as opened:
        return opened.state()


def write(harness: StoreHarness, run: str, annotations: Annotations) -> None:
    """Annotate a run."""
    with closing(harness.open(run)) as opened:
        opened.write(annotations)


def clear(harness: StoreHarness, run: str, *, acks: bool = False) -> bool:
    """Clear a run; whether there was anything of ours."""
    with closing(harness.open(run)) as opened:
        return opened.clear(acks=acks).found


def entry_on(
    harness: StoreHarness, run: str, number: int = 1, who: str = "ana", codes: Sequence[str] = ("LOS004",), **more: Any
) -> Acknowledgement:
    """An entry about a run as it is now; of several the order is that of their numbers."""
    with closing(harness.open(run)) as opened:
        evidence = opened.evidence()
    given = {"because": "a known spike", "cause": "bad-data", "evidence": evidence, **more}
    return acknowledgement(id=f"{number:016x}", who=who, when=NOON + number, codes=codes, **given)


def acknowledge(harness: StoreHarness, run: str, entry: Acknowledgement) -> None:
    """Add an entry to a run."""
    with closing(harness.open(run)) as opened:
        opened.acknowledge(entry)


def entries(harness: StoreHarness, run: str) -> tuple[Acknowledgement, ...]:
    """The entries on a run that are about what it is now."""
    with closing(harness.open(run)) as opened:
        return opened.acknowledgements()


def try_out(harness: StoreHarness, run: str, shadow: Shadow) -> None:
    """Put what is only tried out onto a run."""
    with closing(harness.open(run)) as opened:
        opened.write_shadow(shadow)


def killed_before(harness: StoreHarness, number: int, work: Callable[[], object]) -> bool:
    """Do the work and die before write ``number``; whether it came that far."""

    def die(count: int) -> None:
        if count == number:
            raise Killed

    with harness.before_write(die):
        try:
            work()
        except Killed:
            return True
    return False


def interrupted_at(harness: StoreHarness, number: int, slow: Callable[[], None], quick: Callable[[], None]) -> bool:
    """Do ``slow``, and all of ``quick`` before its write ``number``; whether it came that far. Either may be notified
    that the other is at work.
    """
    came = False

    def act(count: int) -> None:
        nonlocal came
        if count == number:
            came = True
            with suppress(RunError):
                quick()

    with harness.before_write(act), suppress(RunError):
        slow()
    return came


def bearing(harness: StoreHarness, annotations: Annotations | None) -> str:
    """A new run with these annotations, None for none."""
    run = harness.new_run(metrics={"loss": LOSS}, files={}, note="My own words.")
    if annotations is not None:
        write(harness, run, annotations)
    return run


def write_or_clear(harness: StoreHarness, run: str, annotations: Annotations | None) -> None:
    """Annotate a run, or clear it for None."""
    if annotations is None:
        clear(harness, run)
    else:
        write(harness, run, annotations)


def kill_at(harness: StoreHarness, run: str, number: int, annotations: Annotations | None) -> bool:
    """Write (or clear, for None) and die before write ``number``; whether it came that far."""
    return killed_before(harness, number, lambda: write_or_clear(harness, run, annotations))


def interleaved_at(
    harness: StoreHarness, run: str, number: int, slow: Annotations | None, quick: Annotations | None
) -> bool:
    """Write ``slow``, and all of ``quick`` before its write ``number`` (None clears); whether it came that far.

    Either may be notified that the other is at work.
    """
    return interrupted_at(
        harness, number, lambda: write_or_clear(harness, run, slow), lambda: write_or_clear(harness, run, quick)
    )


def seen_of(harness: StoreHarness, run: str) -> Ending | None:
    """What a run has of how its process was seen to end."""
    with closing(harness.open(run)) as opened:
        return ending_seen(opened)


def recorded_digest(harness: StoreHarness, run: str) -> str | None:
    """The digest that a run records, None for none."""
    with closing(harness.open(run)) as opened:
        recorded = opened.recorded()
    return recorded.digest if recorded else None


def assert_pending_or_whole(harness: StoreHarness, run: str, wholes: Mapping[str, View]) -> None:
    """Check that a run which records the digest of one of ``wholes`` has that one and nothing else of ours."""
    digest = recorded_digest(harness, run)
    if digest is not None and digest in wholes:
        assert harness.view(run, ours=True) == wholes[digest]


def assert_bears(
    harness: StoreHarness, run: str, annotations: Annotations, *, ack: str = "", is_open: bool | None = None
) -> None:
    """Check that a run has these annotations: its record, and what its owner sees. ``ack`` and ``is_open``: what the
    marks beside the verdict say, in a store that has any; by default what nobody has answered.
    """
    with closing(harness.open(run)) as opened:
        recorded = opened.recorded()
    assert recorded is not None
    assert (recorded.digest, recorded.verdict) == (annotations.digest, annotations.verdict)
    view = harness.view(run, ours=True)
    kept = {name: content for name, content in view.files.items() if not name.startswith("acks/")}
    assert kept == annotations.files
    assert view.metrics == metrics_shown(harness, annotations)
    tags = {name: value for name, value in annotations.tags.items() if name not in ("ack", "open")}
    assert {name: view.tags.get(name) for name in tags} == tags
    if not harness.supports("marks"):
        marks = view.tags.get("ack", ""), view.tags.get("open")
        assert marks == (ack, annotations.tags.get("open") if is_open is None else str(is_open).lower())
    assert harness.supports("note") or annotations.note in view.note


def metrics_shown(harness: StoreHarness, annotations: Annotations) -> Mapping[str, float]:
    """The numbers of an annotation that a run gets: where each makes a chart, not that of the verdict alone."""
    alone = annotations.metrics.keys() <= {"severity"}
    return {} if alone and harness.supports("numbers") else annotations.metrics


def skip_unless(harness: StoreHarness, ability: str) -> None:
    """Skip the test, with the reason, where the store has not the ability."""
    reason = harness.supports(ability)
    if reason:
        pytest.skip(reason)


@contextmanager
def calls_counted(action: Any) -> Iterator[Any]:
    """For harnesses: a function to call before each write, which numbers the calls for ``action``."""
    lock, count = threading.Lock(), 0

    def called() -> None:
        nonlocal count
        with lock:
            count += 1
            number = count
        action(number)

    yield called
