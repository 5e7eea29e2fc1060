"""Stores whose runs are named by a word and a colon: ``trackio:PROJECT/RUN``.

Next to trackio's these are the stores of other packages, by the entry point group ``tracker_health.stores``: its name
is the word, and it loads to a ``NamedStore`` (a module with its two functions will do). Such a store implements
``base.StoredRun``, and gets all commands; how many of its runs stand is worked out here from their records.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from tracker_health.errors import ConfigError, MissingExtra, RunNotFound, TrackerHealthError, named
from tracker_health.rules.plugins import SWITCH, quietly
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.common.record import is_finished, tagged
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Period, SweptListed
from tracker_health.text import printable

GROUP = "tracker_health.stores"
_BUILT_IN = {"trackio": "tracker_health.stores.trackio.store"}
_NAMED = re.compile(r"([a-z][a-z0-9-]{1,30}):(?!//)(.*)", re.DOTALL)
_TAKEN = frozenset({"mlflow", "wandb", "runs", "models", "file", "sqlite"})
_OFF = frozenset({"0", "false", "no", "off"})


class NamedStore(Protocol):
    """What is known of a store before any of its runs."""

    def open_run(self, address: str, *, over: bool = False) -> TrackedRun:
        """The run of what follows the colon. ``over``: it has ended, whatever the store says.

        Raises:
            RunNotFound: there is none.
            RunError: the store cannot be reached or refuses.
        """

    def run_names(self, project: str) -> Iterator[str]:
        """What ``open_run`` takes for each run of a project, the newest first.

        Raises:
            RunNotFound: there is no such project.
            RunError: the store cannot be reached or refuses.
        """


class Named(NamedTuple):
    """A store, what it is called, and what follows the colon."""

    word: str
    rest: str
    store: NamedStore

    def open(self, *, over: bool = False) -> TrackedRun:
        """The run of that name.

        Raises:
            RunError: as for ``NamedStore.open_run``.
        """
        with quietly():
            return self.store.open_run(self.rest, over=over)


def named_in(text: str) -> Named | None:
    """The store that a text names, with the rest of it; None for a text that names none.

    Raises:
        MissingExtra: the store of another package cannot be loaded.
    """
    found = _NAMED.fullmatch(text)
    if found is None or found[1] in _TAKEN or (store := _store_of(found[1])) is None:
        return None
    return Named(found[1], found[2], store)


def word_of(text: str) -> str:
    """The word of a store that a text begins with; empty where it names none that works."""
    try:
        found = named_in(text)
    except TrackerHealthError:
        return ""
    return "" if found is None else found.word


@cache
def _store_of(word: str) -> NamedStore | None:
    if word in _BUILT_IN:
        return cast("NamedStore", import_module(_BUILT_IN[word]))
    if os.environ.get(SWITCH, "").strip().lower() in _OFF:
        return None
    from importlib.metadata import entry_points

    entries = list(entry_points(group=GROUP, name=word))
    if not entries:
        return None
    entry = entries[0]
    try:
        with quietly():
            store: Any = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _unusable(word, named(error)) from error
    if lacking := [name for name in ("open_run", "run_names") if not callable(getattr(store, name, None))]:
        raise _unusable(word, f"it has no {' and no '.join(lacking)}")
    return cast("NamedStore", store)


def _unusable(word: str, why: str) -> MissingExtra:
    message = f"the store {word} of another package cannot be used: {printable(why, 300)}"
    return MissingExtra(message, f"bring that package up to date; with {SWITCH}=0 it is not loaded")


# Its runs


@dataclass(frozen=True)
class ListedRun:
    """A run that a store listed. As text it is what ``open_run`` takes."""

    word: str
    address: str
    store: NamedStore = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.word}:{self.address}"

    def open(self) -> TrackedRun:
        """The run as it is now."""
        return Named(self.word, self.address, self.store).open()


def listed_runs(project: Named, where: str = "") -> Iterator[ListedRun]:
    """The runs of a project, the newest first.

    Raises:
        ConfigError: ``where`` is given: such stores have no language for filters.
        RunError: as for ``NamedStore.run_names``.
    """
    if where:
        raise ConfigError(f"--where cannot be used with {project.word}:, which has no filters", "leave it out")
    with quietly():
        addresses = list(project.store.run_names(project.rest))
    for address in addresses:
        yield ListedRun(project.word, address, project.store)


def _opened(project: Named, where: str = "") -> Iterator[tuple[ListedRun, TrackedRun]]:
    """Each run, open for as long as it is looked at; without those that are gone since they were listed."""
    for listed in listed_runs(project, where):
        try:
            run = listed.open()
        except RunNotFound:
            continue
        try:
            yield listed, run
        finally:
            run.close()


def swept_runs(project: Named, period: Period, *, kin: bool = False) -> Iterator[SweptListed]:
    """The runs of a project that a sweep is about. ``kin``: with their relations.

    Raises:
        RunError: as for ``listed_runs``.
    """
    for listed, run in _opened(project):
        record = run.record
        ended, silent = record.ended, record.heard() is not None
        quiet = silent and ended is not None and ended > period.silent_since
        if (ended is not None and ended < period.since) or (quiet and not _may_be_quiet(ended, period)):
            continue
        marks = record.marks()
        yield SweptListed(
            name=str(listed),
            state=f"{record.state()} {sorted(marks.items())}",
            annotated=is_finished(marks),
            silent=silent,
            since=ended,
            kin=record.kin() if kin else None,
            listed=listed,
            quiet=quiet,
        )


def _may_be_quiet(heard: float | None, period: Period) -> bool:
    return heard is not None and period.quiet_since is not None and heard <= period.quiet_since


def tagged_runs(
    project: Named, where: str = "", since: float | None = None, *, kin: bool = False
) -> Iterator[TaggedRun]:
    """What the marks of a project's runs say of their health. ``since``: as for the runs of other stores; ``kin``: with
    their relations.

    Raises:
        RunError: as for ``listed_runs``.
    """
    for _, run in _opened(project, where):
        record = run.record
        if since is not None and record.ended is not None and record.ended < since:
            continue
        yield tagged(
            record.ref,
            record.marks(),
            user=record.user,
            started=record.started,
            last_step=record.last_step,
            experiment=record.traits().get("project", ""),
            acks=run.acknowledgements(),
            kin=record.kin() if kin else None,
        )
