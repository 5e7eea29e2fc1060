"""Marks of repairs onto a run, of whichever store, and their lines in what describes it.

Each is a mark of its own, and ours by what it says. It is no part of an annotation: the next one leaves it, and says it
again in the note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracker_health.errors import WriteError
from tracker_health.judge.annotations import has_repairs, note_with_repairs, repairs_in_markdown
from tracker_health.stores.base import StoredRun
from tracker_health.stores.common.note_block import block_of, has_broken_markers, has_markers, with_note
from tracker_health.stores.common.ownership import in_the_way
from tracker_health.stores.common.record import (
    DIGEST,
    NOTE,
    WRITTEN,
    Marks,
    Written,
    is_finished,
    key_of,
    owns_note,
    repairs_on,
    text_of,
)
from tracker_health.words.repairs import REPAIRED_BY, REPAIRS, RepairMark


def repairs_of(run: StoredRun) -> dict[str, RepairMark]:
    """What a run says of repairs, by the names of the marks, without what is about a run that they were copied from."""
    record = run.record
    return repairs_on(record.marks(), record.ref.id if record.identity else "")


def write(run: StoredRun, mark: RepairMark, *, as_old: bool, described: bool) -> bool:
    """See ``TrackedRun.write_repair``; within ``run.writing()``."""
    record, marks = run.record, dict(run.record.marks())
    name = REPAIRED_BY if as_old else REPAIRS
    if name in marks and name not in repairs_on(marks):
        raise in_the_way(record.naming(name), record.shown)
    try:
        mark = (replace(mark, old=record.ref.id) if as_old else replace(mark, new=record.ref.id)).bounded()
    except ValueError:
        message = f"{record.shown}: the repair could not be written down"
        raise WriteError(message, "the name of a run has too many characters; give a shorter path") from None
    before = repairs_of(run)
    news = {} if mark.says_the_same(before.get(name)) else {name: mark.to_text()}
    repairs = {**before, name: mark} if news else before
    in_note = _changes_of_note(run, marks, repairs) if described else {}
    if news or in_note:
        run.set_marks({**news, **in_note})
    if in_note:
        _restore_cut_note(run, {one: marks.get(one) for one in in_note}, in_note[NOTE])
    return bool(news or in_note)


def note_to_write(run: StoredRun, note: str) -> str:
    """A note as it is to be written: with what the run says of repairs, where it is described or was."""
    repairs, now = repairs_of(run), text_of(run.record.marks(), NOTE)
    there = block_of(now) if run.note == "block" else now
    if not repairs or not (note or has_repairs(there)):
        return note
    longer = note_with_repairs(note, repairs_in_markdown(repairs))
    return longer if _has_room(run, now, longer) else note


def _changes_of_note(run: StoredRun, marks: Marks, repairs: Mapping[str, RepairMark]) -> dict[str, Any]:
    """What is to change for the lines of these marks in the note of a run that has a whole annotation: nothing where
    there is no room for them, or where what describes it cannot be ours.
    """
    now = text_of(marks, NOTE)
    is_ours = run.note == "mark" or owns_note(marks) or not has_markers(now)
    if not run.note or not is_finished(marks) or not is_ours or has_broken_markers(now):
        return {}
    in_block = run.note == "block"
    note = note_with_repairs(block_of(now) if in_block else now, repairs_in_markdown(repairs))
    wanted = with_note(now, note) if in_block else note
    if wanted == now or not _has_room(run, now, note):
        return {}
    own, digest = Written.of(marks), text_of(marks, DIGEST)
    record = replace(own, note=True, digest=own.digest or digest, run=own.run or key_of(run.record.identity))
    return {NOTE: wanted, **({} if own.note else {WRITTEN: record.value})}


def _has_room(run: StoredRun, text: str, note: str) -> bool:
    return run.note != "block" or has_broken_markers(text) or has_markers(with_note(text, note))


def _restore_cut_note(run: StoredRun, before: Mapping[str, Any], described: str) -> None:
    """Put back what was there where an older server kept only the beginning of what was sent."""
    if run.note == "block":
        run.look()
        kept = text_of(run.record.marks(), NOTE)
        if kept != described and described.startswith(kept):
            run.set_marks(before)
