"""What people answered to a verdict: each entry a mark of its own, and the marks next to the verdict.

An entry is never part of a value that someone else writes as well. The marks follow from all entries; whoever writes
them looks again afterwards, and writes them again where an entry has come since.
"""

from __future__ import annotations

from dataclasses import replace

from tracker_health.errors import WriteError
from tracker_health.judge.annotations import ACK, OPEN
from tracker_health.stores.base import StoredRun
from tracker_health.stores.common.ownership import overtaken
from tracker_health.stores.common.record import (
    ENTRY_PREFIX,
    WRITTEN,
    Written,
    changed_answers,
    entries_on,
    recorded_on,
    text_of,
)
from tracker_health.words.acknowledgements import MOST_ENTRIES, Acknowledgement, AnswerMarks

_LOOKS = 8


def add(run: StoredRun, entry: Acknowledgement) -> None:
    """Add an entry, and bring the marks up to date.

    Raises:
        WriteError: the run has as many as it may have, no whole verdict, or others keep writing onto it.
    """
    marks, shown = run.record.marks(), run.record.shown
    if len(entries_on(marks)) >= MOST_ENTRIES:
        message = f"{shown} has {MOST_ENTRIES} entries of acknowledgements, and takes no more"
        raise WriteError(message, "clear --acks takes them off")
    recorded = recorded_on(marks)
    if recorded is None or not recorded.is_whole:
        raise overtaken(shown)
    run.set_marks({f"{ENTRY_PREFIX}{entry.id}": entry.value})
    run.look()
    settle(run, entry.when)


def settle(run: StoredRun, now: float) -> None:
    """Bring the marks up to date, as often as someone writes in between.

    Raises:
        WriteError: others keep writing.
    """
    for _ in range(_LOOKS):
        wanted = wanted_beside(run, now)
        if wanted is None:
            return
        marks = run.record.marks()
        own = Written.of(marks)
        found = {ACK: wanted.ack, OPEN: wanted.open}
        changed = {name: value for name, value in found.items() if text_of(marks, name) != value}
        new = frozenset(name for name, value in changed.items() if value) - own.tags
        # A record that does not know them is of an annotation from before there were marks.
        record = {WRITTEN: replace(own, tags=own.tags | new).value} if new else {}
        run.set_marks({**record, **{name: value or None for name, value in changed.items()}})
        run.look()
    raise overtaken(run.record.shown)


def wanted_beside(run: StoredRun, now: float) -> AnswerMarks | None:
    """The marks that belong next to the verdict, None where they are there."""
    marks = run.record.marks()
    entries = entries_on(marks)
    return changed_answers(marks, Written.of(marks).tags, entries, run.record.evidence() if entries else "", now)
