"""Annotations onto a run: what is ours is replaced or taken away, and what is the owner's stays as it is.

Ours is what the mark ``written`` lists, and the verdict of a run that has a digest of ours. All else under such names
was there before us: a study of patients has such names too.

Trackers have no lock and no compare-and-set. The digest of a writing under way is its own; after each part of the work
it must still be there. Who finds another's owns up to all that is on the run now, and leaves it marked as unfinished.
Where all marks are written at once, someone else's writing in between may be lost. Then the tracker's own tag, or the
report, is not what we left.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tracker_health.errors import UNREADABLE, RunError, WriteError
from tracker_health.judge.annotations import (
    ACK,
    EXIT,
    NOTIFIED,
    OPEN,
    PENDING,
    PLAIN_NAMES,
    REPORT_FILE,
    SEVERITY,
    SHADOW,
    Annotations,
    incomplete,
)
from tracker_health.judge.messages import SentMessages
from tracker_health.report.result import SCHEMA
from tracker_health.stores.base import Cleared, NoPlace, StoredRun, WrittenInPart
from tracker_health.stores.common.exits import is_exit_value
from tracker_health.stores.common.note_block import has_broken_markers, has_markers, with_note
from tracker_health.stores.common.ownership import OUR_FILES, in_the_way, is_file_name, overtaken
from tracker_health.stores.common.record import (
    DIGEST,
    ENTRY_PREFIX,
    LIVE,
    MAX_MARK,
    NATIVE,
    NOTE,
    OWNERS,
    STOP,
    VERDICT,
    WRITTEN,
    Marks,
    Written,
    all_entries,
    bears_verdict,
    is_annotated,
    is_legible,
    is_measure,
    key_of,
    names_in_the_way,
    ours_by_form,
    owns_note,
    presumed,
    text_of,
)
from tracker_health.stores.common.repairing import note_to_write
from tracker_health.text import count

_MAX_REPORT_BYTES = 32 * 2**20
_RECORD_PAUSES = (0.01, 0.05, 0.2)  # seconds


class Writing:
    """One writing of annotations onto one run, or one clearing, within ``run.writing()``. ``described``: the run was
    seen with a description before.
    """

    def __init__(self, run: StoredRun, *, described: bool = False) -> None:
        self._run, self._shown, self._key = run, run.record.shown, key_of(run.record.identity)
        self._mark = self._pending = f"{PENDING}:{secrets.token_hex(4)}"
        self._touched: Written | None = None
        self._problems: list[str] = []
        self._omitted: list[str] = []
        self._adopted: frozenset[str] = frozenset()
        self._theirs: frozenset[str] = frozenset()
        self._listed: Mapping[str, str] | None = None
        self._report = ""
        self._has_place = True
        self._wait_for_record()
        self._owns_note = owns_note(self._marks)
        self._was_described = described or bool(text_of(self._marks, NOTE))
        self._take()

    @property
    def _marks(self) -> Marks:
        return self._run.record.marks()

    def _wait_for_record(self) -> None:
        """In a store of files a mark is empty while someone writes it. If the record were taken for empty, all that it
        names would count as the owner's from then on.
        """
        for pause in _RECORD_PAUSES:
            if is_legible(self._marks):
                return
            time.sleep(pause)
            self._run.look()

    def _take(self) -> None:
        """Take the run's record as it is now."""
        self._before: Marks = dict(self._marks)
        told = ours_by_form(self._marks) & {NOTIFIED}
        self._earlier = Written.of(self._marks) | Written(files=self._adopted, tags=told)
        if WRITTEN in self._marks:  # else our mark has taken the digest's place, and what was seen before counts
            self._owns_note = owns_note(self._marks)
        if not is_legible(self._marks) and text_of(self._marks, DIGEST) == PENDING:  # two at once have torn it
            self._earlier |= presumed(self._marks)
            self._owns_note = True

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """See ``TrackedRun.write``."""
        annotations = replace(annotations, note=note_to_write(self._run, annotations.note))
        values = self._values(annotations)
        if annotations.files or self._earlier.all_files or self._run.is_whole:
            self._sort_files(annotations.files.keys())
        self._refuse_to_overwrite(annotations)
        new = self._begin(annotations, values)
        lost = self._put({name: annotations.files[name] for name in sorted(new.files)}) - self._earlier.files
        left = self._delete_files_but(new.files)
        missing = left & self._earlier.missing
        undeleted = Written(files=(left & (self._earlier.all_files | OUR_FILES)) - missing, missing=missing)
        note, described = self._note(annotations.note)
        digest = incomplete(annotations.digest) if self._problems else annotations.digest
        record = replace(new.without(lost) | undeleted, note=described, digest=digest, run=self._key)
        kept = {name: value for name, value in values.items() if name in new.names}
        self._finish({**self._stale(new.names), **kept, **self._loose(annotations.exit), **note}, record, annotations)
        omitted = (*self._left_out(values, new), *self._omitted)
        if self._problems:
            message = f"the verdict is on {self._shown}, but {'; '.join(self._problems)}"
            raise WrittenInPart(message, "annotate it again when that is fixed", omitted)
        return omitted

    def clear(self, *, acks: bool) -> Cleared:
        """See ``TrackedRun.clear``."""
        entries = [f"{ENTRY_PREFIX}{one.id}" for one in all_entries(self._marks)]
        left = 0 if acks else len(entries)
        if self._run.is_whole or self._earlier.all_files:
            with suppress(*() if self._run.is_whole else (RunError,)):  # MLflow clears what it can reach
                self._sort_files(())
        loose = ours_by_form(self._marks) | (set(entries) if acks else set())
        if not is_annotated(self._marks) and not Written.of(self._marks) and not self._adopted:
            if loose:
                self._run.set_marks(dict.fromkeys(sorted(loose)))
                self._run.look()
            return Cleared(found=bool(loose), acks=left)
        verdict = [VERDICT] if bears_verdict(self._marks) else []
        self._begin(None, {})
        undeleted = self._delete_files_but(frozenset())
        files = undeleted & self._earlier.all_files
        note = self._note("")[0] if self._owns_note else {}
        broken = self._owns_note and has_broken_markers(text_of(self._marks, NOTE))
        gone = {**self._stale(()), **dict.fromkeys(sorted(loose)), **note, **dict.fromkeys(verdict)}
        # What could not be deleted stays ours: without its name it would be taken for the owner's without end.
        hidden = self._take_off(gone, Written(files=files), verdict)
        placed = [self._run.record.placing(name) for name in sorted(files)]
        kept = [*placed, *sorted(undeleted - files), *([self._run.record.naming(NOTE)] if broken else [])]
        return Cleared(found=True, hidden=tuple(sorted(hidden)), kept=tuple(kept), acks=left)

    def _take_off(self, gone: Mapping[str, Any], left: Written, verdict: list[str]) -> frozenset[str]:
        """Take these marks off, the record and the digest last. Gives the names of those that were hidden."""
        last = {WRITTEN: left.value or None, DIGEST: None}
        if self._run.is_whole:
            hidden = self._run.set_marks({**gone, **last})
        else:
            hidden = self._run.set_marks(gone)
            self._require_mark()
            self._run.set_marks(last)
        self._run.look()
        marks = self._marks
        is_ours = Written.of(marks).value == left.value and not any(name in marks for name in verdict)
        is_ours = is_ours and not (self._run.is_whole and self._has_strange_files(left, frozenset()))
        # With a digest someone else has begun since; that writing has seen ours, or is not lost under it.
        if (DIGEST in marks and self._run.is_whole) or (DIGEST not in marks and not is_ours):
            raise self._overtaken()
        return hidden

    # Whose is what

    def _values(self, annotations: Annotations) -> dict[str, Any]:
        """The marks to write besides verdict, digest and record."""
        metrics = {name: float(value) for name, value in annotations.metrics.items() if math.isfinite(value)}
        if self._run.is_charted and metrics.keys() <= {SEVERITY}:
            metrics = {}
        tags = {name: _cut(self._stamped(name, value)) for name, value in annotations.tags.items()}
        tags = {name: value for name, value in tags.items() if value}
        return {**metrics, **tags, **self._run.marks_of_files(annotations.files)}

    def _stamped(self, name: str, value: str) -> str:
        return SentMessages.of(value).stamped(self._key).value if name == NOTIFIED else value

    def _ours_of(self, annotations: Annotations | None, values: Mapping[str, Any]) -> Written:
        """The names to write: all but those of marks that are the owner's."""
        if annotations is None:
            return Written()
        theirs = {name for name in values.keys() - self._earlier.names if name in self._marks}
        note = bool(annotations.note and self._run.note) and self._may_describe(text_of(self._marks, NOTE))
        files = frozenset(annotations.files) if self._has_place else frozenset()
        return Written.naming(values.keys() - theirs, files=files, note=note).beside(self._earlier)

    def _left_out(self, values: Mapping[str, Any], new: Written) -> list[str]:
        """The marks that were not written, and why."""
        out = values.keys() - new.names
        theirs = sorted((name for name in out if name in self._before), key=lambda name: (is_measure(name), name))
        left = [f"{self._run.record.naming(name)} (the run has one of its own)" for name in theirs]
        if crowded := len(out) - len(theirs):
            left.append(f"{count(crowded, 'measure')} (there is no room to note down more names)")
        return left

    def _sort_files(self, wanted: Iterable[str]) -> None:
        """See which files there are the owner's. A report on this run is ours: its marks are lost where a database was
        restored, or a run of W&B resumed.
        """
        try:
            self._listed = self._run.list_files()
        except NoPlace as error:
            self._has_place = False
            self._omitted.append(f"the files ({error.message})")
            return
        except WriteError:
            raise
        except RunError as error:
            if not self._earlier.all_files.issuperset(wanted):  # else nothing of the owner's can be under these names
                self._problems.append(str(error))
            return
        if OUR_FILES & self._listed.keys() - self._earlier.all_files:  # of someone who has begun since we looked?
            self._run.look()
            self._wait_for_record()
            self._take()
        unknown = self._listed.keys() - self._earlier.all_files
        if REPORT_FILE in unknown and self._is_our_report():
            self._adopted = frozenset(unknown & OUR_FILES)
            self._earlier |= Written(files=self._adopted)
        self._theirs = frozenset(unknown - self._adopted)

    def _is_our_report(self) -> bool:
        with suppress(*UNREADABLE, ValueError, RecursionError, KeyError, TypeError):
            document = json.loads(self._run.get_file(REPORT_FILE, _MAX_REPORT_BYTES))
            return bool(document["schema"] == SCHEMA and document["run"]["id"] == self._run.record.ref.id)
        return False

    def _refuse_to_overwrite(self, annotations: Annotations) -> None:
        """Raise for what cannot be left out: the verdict would be someone else's, or the report."""
        record = self._run.record
        for name in names_in_the_way(self._marks):
            if name != NATIVE:
                raise in_the_way(record.naming(name), self._shown)
            if not self._adopted:
                raise in_the_way(record.naming(f"{name}{self._marks[name]}"), self._shown)
        for name in sorted(self._theirs & annotations.files.keys()):
            raise in_the_way(record.placing(name), self._shown)

    # Two at once

    def _begin(self, annotations: Annotations | None, values: Mapping[str, Any]) -> Written:
        """Mark the run as being written by us, with the names of all that may be on it from now on; the new ones."""
        if annotations and not (self._run.is_marked_first or is_annotated(self._marks) or self._earlier):
            self._mark, self._touched = "", self._ours_of(annotations, values)
            return self._touched
        self._touched = self._ours_of(annotations, values)
        self._run.set_marks({DIGEST: self._mark, WRITTEN: self._marked(self._earlier | self._touched).value or None})
        return self._touched

    def _look_again(self) -> None:
        """Take the run as it is now. Another one may have come and gone between our look and our mark, under which the
        names of its marks were lost.
        """
        self._require_mark()
        if others := self._appeared_marks():
            self._earlier |= others
            self._owns_note |= has_markers(text_of(self._marks, NOTE)) and not has_markers(text_of(self._before, NOTE))
            names = self._earlier | (self._touched or Written())
            self._run.set_marks({DIGEST: self._mark, WRITTEN: self._marked(names).value})
        self._before = dict(self._marks)

    def _marked(self, names: Written) -> Written:
        return replace(names, digest=self._pending, run=self._key)

    def _require_mark(self) -> None:
        """Take the run as it is now, which nobody else has begun to write."""
        self._run.look()
        if text_of(self._marks, DIGEST) != self._mark:
            raise self._overtaken()

    def _finish(self, marks: Mapping[str, Any], record: Written, annotations: Annotations) -> None:
        """Write our marks, take off those that no longer hold, and only then say that these are all."""
        all_marks = {**marks, WRITTEN: record.value or None, VERDICT: str(annotations.verdict), DIGEST: record.digest}
        seen = frozenset(self._listing() or ()) if self._run.is_whole else frozenset[str]()
        if self._run.is_whole:
            self._run.set_marks(all_marks)
        else:  # in two steps: who writes a whole annotation in between leaves marks that are not ours, under any digest
            last = {name: all_marks.pop(name) for name in (WRITTEN, DIGEST)}
            self._run.set_marks(all_marks)
            self._require_mark()
            self._run.set_marks(last)
        self._require_ours(record, seen, all_marks)
        if NOTE in marks and (cut := self._without_cut_note(text_of(marks, NOTE))) is not None:
            record = replace(record, note=False, digest=incomplete(annotations.digest))
            self._run.set_marks({NOTE: cut or None, WRITTEN: record.value or None, DIGEST: record.digest})

    def _require_ours(self, record: Written, seen: frozenset[str], all_marks: Mapping[str, Any]) -> None:
        """That nobody else wrote a whole annotation before our digest: its record would be there, its files or its
        marks. And that nobody who began with us and died left something that our record does not name. ``seen``: the
        files that were listed before.
        """
        self._run.look()
        marks = self._marks
        digest = text_of(marks, DIGEST)
        if digest == self._pending:
            raise WriteError(f"{self._shown} is as before its verdict was sent", "annotate it again")
        if digest != record.digest:
            if self._run.is_whole:
                raise self._overtaken()
            return
        ours = Written.of(marks).value == record.value and not self._has_strange_marks(all_marks)
        if not ours or self._has_strange_files(record, seen):
            raise self._overtaken()

    def _has_strange_marks(self, written: Mapping[str, Any]) -> bool:
        """Whether someone else's marks are among ours. Text that a store may keep in another encoding is not
        compared.
        """
        if self._run.is_whole:
            return False
        marks = self._marks
        texts = {name: value for name, value in written.items() if isinstance(value, str) and value.isascii()}
        answers = {NOTE, ACK, OPEN, *ours_by_form(marks)}
        changed = any(text_of(marks, name) != value for name, value in texts.items() if name not in answers)
        return changed or not self._appeared_marks().names <= written.keys()

    def _has_strange_files(self, record: Written, seen: frozenset[str]) -> bool:
        if not self._has_place or not (record.all_files or self._listed):
            return False
        listed = self._listing()
        if listed is None:
            return False
        there = listed.keys() - self._theirs
        report = listed.get(REPORT_FILE, "")
        replaced = report and self._report and report != self._report
        return not (record.files & seen <= there and there & OUR_FILES <= record.all_files) or bool(replaced)

    def _overtaken(self) -> WriteError:
        """Leave a run that someone else has written meanwhile as unfinished, with the names of all that is on it.

        The other's list of them may be lost under ours: what appeared since we looked is the other's.
        """
        if self._touched is not None:
            names = Written.of(self._marks) | self._earlier | self._touched | self._appeared()
            with suppress(RunError):  # it is reported that another one is at work: the next annotation looks again
                # The mark last, for stores that write one after the other: whoever began before the names were there
                # sees that they have been overtaken.
                self._run.set_marks({WRITTEN: self._marked(names).value or None, DIGEST: self._pending})
        return overtaken(self._shown)

    def _appeared(self) -> Written:
        """What of an annotation is there and was not when we began."""
        listed = self._listing() if self._listed is not None else None
        files = frozenset(listed or ()) - frozenset(self._listed or ()) - self._theirs
        return self._appeared_marks() | Written(files=frozenset(filter(is_file_name, files)))

    def _appeared_marks(self) -> Written:
        """Where its owner may write meanwhile, only what annotations consist of counts."""
        others = {VERDICT, DIGEST, WRITTEN, NOTE, NATIVE} | ours_by_form(self._marks)
        had = {name for name, value in self._before.items() if not _is_hidden(value)}
        has = {name for name, value in self._marks.items() if not _is_hidden(value) and value != OWNERS}
        new = {name for name in has - had - others if not name.startswith(ENTRY_PREFIX)}
        known = new if self._run.is_whole else PLAIN_NAMES | {ACK, OPEN}
        return Written.naming(name for name in new if name in known or is_measure(name))

    # Parts of the work

    def _listing(self) -> Mapping[str, str] | None:
        with suppress(RunError):
            return self._run.list_files()
        return None

    def _put(self, files: Mapping[str, bytes]) -> frozenset[str]:
        """Write our files. Gives those that did not get there, as far as anybody can tell."""
        if not files or self._problems:
            return frozenset(files)
        try:
            self._run.put_files(files)
        except RunError as error:
            self._problems.append(str(error))
            return frozenset(files) - frozenset(self._listing() or ())
        report = files.get(REPORT_FILE, b"")
        self._report = hashlib.md5(report, usedforsecurity=False).hexdigest() if report else ""
        return frozenset()

    def _delete_files_but(self, files: frozenset[str]) -> frozenset[str]:
        """Delete our files but these, and take the run as it is then. Gives those that the store would not delete."""
        ours = self._earlier.all_files
        if self._run.is_whole:
            self._require_mark()
            ours |= frozenset(self._listing() or ()) & OUR_FILES  # what another annotator has left since we began
        left = self._run.delete_files(ours - files - self._theirs)
        if not self._run.is_whole:
            self._look_again()
        return left

    def _stale(self, names: Iterable[str]) -> dict[str, None]:
        """Our earlier marks but these."""
        return dict.fromkeys(sorted(name for name in self._earlier.names.difference(names) if name in self._before))

    def _loose(self, seen_of_end: str) -> dict[str, str | None]:
        """The marks next to an annotation that it settles: what was seen of the run's end, and what was only tried out.
        Of a run that is over, also what was said while it was running.
        """
        ours = ours_by_form(self._marks)
        gone = {SHADOW, *({LIVE, STOP} if self._run.record.is_over else ())} & ours
        changes: dict[str, str | None] = dict.fromkeys(sorted(gone))
        if EXIT in self._marks and not is_exit_value(text_of(self._marks, EXIT)):
            self._omitted += [f"{self._run.record.naming(EXIT)} (the run has one of its own)"] * bool(seen_of_end)
        elif seen_of_end or EXIT in self._marks:
            changes[EXIT] = seen_of_end or None
        return changes

    # The description

    def _may_describe(self, text: str) -> bool:
        """Whether a block in this description can only be ours."""
        return self._run.note == "mark" or self._owns_note or not has_markers(text)

    def _note(self, note: str) -> tuple[dict[str, str | None], bool]:
        """What becomes of the description that a run has this moment, and whether ours is in it then."""
        text = self._description()
        if self._run.note != "block":
            return ({NOTE: note or None} if self._run.note and text != note else {}), bool(self._run.note and note)
        if not self._may_describe(text):
            if self._touched is not None and self._touched.note:  # they were not there when we began
                raise self._overtaken()
            if note:
                self._omitted.append("the description (it has markers of tracker-health in it that are not its own)")
            return {}, False
        if has_broken_markers(text):
            self._omitted.append("the description (where our block begins and ends in it can no longer be determined)")
            return {}, True
        described = with_note(text, note)
        there = has_markers(described) if note else False
        if note and not there:
            self._omitted.append("the description (it has no room for more)")
        return ({NOTE: described or None} if described != text else {}), there

    def _description(self) -> str:
        """The description of this moment. In a store of files it is empty while someone writes it. Taken for
        that, its owner's words would be gone.
        """
        for pause in _RECORD_PAUSES if self._run.note == "block" and self._was_described else ():
            if NOTE in self._marks and text_of(self._marks, NOTE):
                break
            time.sleep(pause)
            self._require_mark()
        return text_of(self._marks, NOTE)

    def _without_cut_note(self, described: str) -> str | None:
        """The description without our block, where an older server kept only the beginning of what was sent; else
        None.
        """
        kept = text_of(self._marks, NOTE)
        if kept == described or not described.startswith(kept):
            return None
        self._problems.append(f"its description is full: this server keeps {len(kept)} characters of it")
        return with_note(described, "")


def _is_hidden(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cut(value: str) -> str:
    return value if len(value) <= MAX_MARK else f"{value[: MAX_MARK - 1]}…"
