"""Annotations onto a run of a W&B server: what is ours is replaced or taken away, what is the user's stays as it is.

Ours is what ``health/written`` in the summary lists, and the verdict's tag of a run that has a digest of ours.

W&B has no lock and no compare-and-set, and a summary can only be sent whole. So it is read right before it is sent,
twice per writing. The first request has only a mark of this writing. That mark must still be there when the files have
been written. The second request has the tag and all that is ours. Somebody else's writing in between may be lost. Then
the tag, or the report, is not what we left, and the run is marked as unfinished.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tracker_health.errors import RunError, StoreRefused, WriteError
from tracker_health.judge.annotations import (
    ACK,
    ACTION,
    BASELINE,
    CAUSE,
    CERTAINTY,
    ENDED,
    ENDED_BY,
    EXIT,
    EXPLAINED,
    IGNORED,
    JUDGED,
    NOTIFIED,
    OPEN,
    PENDING,
    REPORT_FILE,
    RULES,
    SETTINGS,
    SHADOW,
    STEP,
    Annotations,
    Shadow,
    incomplete,
)
from tracker_health.judge.messages import SentMessages
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.report.result import SCHEMA
from tracker_health.rules.registry import probe_classes
from tracker_health.stores.base import Cleared, WrittenInPart
from tracker_health.stores.common.exits import is_exit_value
from tracker_health.stores.common.locks import locked
from tracker_health.stores.common.ownership import HEALTH_FOLDER, OUR_FILES, in_the_way, overtaken
from tracker_health.stores.common.record import (
    DIGEST_TAG,
    EXIT_TAG,
    VERDICT_TAG,
    WRITTEN_TAG,
    Written,
    bears_verdict,
    changed_marks,
    is_annotated,
    recorded_on,
)
from tracker_health.stores.common.temporary import TemporaryFolder
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection, fetched, files_of
from tracker_health.stores.wandb.media import LOCAL_COPIES, MEDIA_KEYS, media_of, place_of
from tracker_health.stores.wandb.values import (
    ACK_WANDB_TAG,
    NOTIFIED_PLACE,
    OWN_KEY,
    OWN_TAGS,
    STEP_KEY,
    summary_of,
    tags_with,
)
from tracker_health.text import printable
from tracker_health.words.acknowledgements import (
    MOST_ENTRIES,
    Acknowledgement,
    Marks,
    from_json,
    in_order,
    is_ack_mark,
    parsed,
)
from tracker_health.words.gap_names import LIVE_WANDB_TAGS
from tracker_health.words.verdict import Verdict

_OF_ANY_VERDICT = frozenset({BASELINE, ENDED, ENDED_BY, IGNORED, JUDGED, RULES, SETTINGS, STEP})
_PLAIN_NAMES = _OF_ANY_VERDICT | {
    "severity",
    "codes",
    "symptoms",
    "summary",
    "version",
    EXPLAINED,
    NOTIFIED,
    ACK,
    OPEN,
    CAUSE,
    CERTAINTY,
    ACTION,
    *MEDIA_KEYS.values(),
}
NOTIFIED_KEY = f"{OWN_KEY}{NOTIFIED}"
_MAX_NOTIFIED_BYTES = 5_000
_EXIT_KEY, _SHADOW_KEY, _ACK_KEY = f"{OWN_KEY}{EXIT}", f"{OWN_KEY}{SHADOW}", f"{OWN_KEY}{ACK}"
_ENTRIES_KEY = f"{OWN_KEY}acks"
"""In the summary: all entries as a list, for whoever reads many runs. What counts are the files that it is made of."""
_ENTRIES_FOLDER = "acks"
_ENTRY_BYTES = 20_000
_MARKS_LOOKS = 8
_LOOKS = (0, 1, 3)  # seconds before each: for a moment a server may give what was there before
_MAX_REPORT_BYTES = 32 * 2**20
_PLACES = (*sorted(map(place_of, OUR_FILES)), NOTIFIED_PLACE)


def our_tags(summary: Mapping[str, Any]) -> dict[str, str]:
    """The texts under our keys of a summary, by the names that a record has for them."""
    return {
        f"health.{key.removeprefix(OWN_KEY)}": str(value)
        for key, value in summary.items()
        if key.startswith(OWN_KEY) and (isinstance(value, str) or key == STEP_KEY)
    }


def entries_in(summary: Mapping[str, Any]) -> tuple[Acknowledgement, ...]:
    """What people answered to the verdicts on a run, by its summary, the oldest first."""
    listed = summary.get(_ENTRIES_KEY)
    if not isinstance(listed, list):
        return ()
    found = (from_json(one) for one in listed[-MOST_ENTRIES:] if isinstance(one, Mapping))
    return in_order(one for one in found if one is not None)


def own_names(summary: Mapping[str, Any]) -> frozenset[str]:
    """The names below ``health/`` in a summary that are ours."""
    return _written(our_tags(summary), summary).tags


def without_ack(tags: Iterable[str], summary: Mapping[str, Any]) -> list[str]:
    """A run's tags without the one that says that its verdict was answered, where it is ours."""
    ours = is_ack_mark(str(summary.get(_ACK_KEY, "")))
    return [tag for tag in tags if not (ours and tag == ACK_WANDB_TAG)]


def notified_in(connection: Connection, run: Any) -> str:
    """About what people were sent a message while the run had no verdict, by a file of it; empty without one, and where
    it is another's.

    Raises:
        RunError: the file cannot be fetched.
    """
    text = _notified_text(connection, run)
    return text if text is not None and SentMessages.of(text).value else ""


def has_their_notified(connection: Connection, run: Any) -> bool:
    """Whether the file of that name is not ours."""
    text = _notified_text(connection, run)
    return text is not None and not SentMessages.of(text).value


def _notified_text(connection: Connection, run: Any) -> str | None:
    listed = files_of(run)
    if listed is None:
        doing = f"the files of W&B run {'/'.join(run.path)} could not be listed"
        listed = connection.asked(doing, lambda: list(run.files(names=[NOTIFIED_PLACE])))
    file = next((one for one in listed if one.name == NOTIFIED_PLACE), None)
    return None if file is None else _content_of(connection, file, _MAX_NOTIFIED_BYTES).decode(errors="replace").strip()


def _content_of(connection: Connection, file: Any, limit: int) -> bytes:
    """A file's content; empty for none, and for one that is too large to be ours.

    Raises:
        RunError: it cannot be fetched.
    """
    if file is None or not 0 < file.size <= limit:
        return b""
    with TemporaryFolder() as folder:
        target = Path(folder, "file")
        fetched(connection, file, target)
        return read_regular(target, limit)


@contextmanager
def one_at_a_time(server: str, run: str) -> Iterator[None]:
    """Keep the other annotators of this user on this machine off the run.

    Raises:
        WriteError: one is at work on it.
    """
    name = hashlib.sha256(f"{server}/{run}".encode()).hexdigest()[:32]
    place = _lock_folder() / f"{name}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
    except OSError:  # nowhere to keep one; those of other machines are noticed without it
        yield
        return
    with locked(place, f"W&B run {run}", flags=os.O_RDWR | os.O_CREAT):
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


def _lock_folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tracker-health" / "locks"


class OnlineWriter:
    """One writing of annotations onto one run, whose record is fresh."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection = connection
        self._address = address
        self._id = "/".join(address[:3])
        self._mark = f"{PENDING}:{secrets.token_hex(4)}"
        self._before = ""
        self._touched = Written()
        self._problems: list[str] = []
        self._theirs: frozenset[str] = frozenset()
        self._adopted: frozenset[str] = frozenset()
        self._report = b""
        self._exit = ""
        self._entries: tuple[Acknowledgement, ...] = ()
        self.look()

    def look(self) -> None:
        """Take the run as it is now, with its files under names of ours.

        Raises:
            RunError: the server does not give it.
        """
        self.run = self._connection.run(self._address, _PLACES)
        self._summary: Mapping[str, Any] = self.run.summary_metrics
        self._tags = our_tags(self._summary)
        self._earlier = _written(self._tags, self._summary) | Written(files=self._adopted)
        self._there = self._listed()

    def write(self, annotations: Annotations, evidence: str) -> tuple[str, ...]:
        """The digest ``pending`` first, the digest itself last: with any other digest a run is completely annotated.

        Gives what was left out, each with the reason. ``evidence``: how far the run has come.

        Raises:
            WrittenInPart: all but the files was written.
            WriteError: something of the user's is in the way (nothing is written then), or another annotator is at
                work.
        """
        values = self._values(annotations)
        self._refuse_to_overwrite(annotations)
        new = self._ours_of(annotations, values)
        omitted = [
            f"{OWN_KEY}{name} of the summary (the run has one of its own)" for name in sorted(values.keys() - new.tags)
        ]
        self._begin(new)
        lost = self._upload({name: annotations.files[name] for name in sorted(new.files)})
        self._require_mark()
        undeleted = self._delete_files_but(new.files)
        digest = incomplete(annotations.digest) if self._problems else annotations.digest
        record = replace(new.without(lost) | undeleted, digest=digest)
        plain = {VERDICT_TAG: str(annotations.verdict), DIGEST_TAG: digest, WRITTEN_TAG: record.value}
        kept = {name: value for name, value in values.items() if name in new.tags}
        self._exit = annotations.exit
        ours = {**{f"{OWN_KEY}{name}": value for name, value in kept.items()}, **_keys(plain)}
        self._entries = self._all_entries()
        self._finish(ours, annotations.verdict)
        self._require_ours(annotations.verdict, digest, new.files | undeleted.files)
        self._settle(evidence, time.time())
        self._drop_notified()
        if self._problems:
            message = f"the verdict is on W&B run {self._id}, but {'; '.join(self._problems)}"
            raise WrittenInPart(message, "annotate it again when that is fixed", tuple(omitted))
        return tuple(omitted)

    def acknowledge(self, entry: Acknowledgement, evidence: str) -> None:
        """Add an entry in a file of its own, then say so in the summary and the tags.

        Raises:
            WriteError: the run takes no more, has no whole verdict, or another annotator is at work.
        """
        if len(entries_in(self._summary)) >= MOST_ENTRIES:
            message = f"W&B run {self._id} has {MOST_ENTRIES} entries of acknowledgements, and takes no more"
            raise WriteError(message, "clear --acks takes them off")
        recorded = recorded_on(self._tags)
        if recorded is None or not recorded.is_whole:
            raise overtaken(f"W&B run {self._id}")
        self._connection.upload(self.run, {_entry_place(entry.id): entry.value.encode()})
        self.look()
        self._entries = in_order([*self._all_entries(), entry])
        self._settle(evidence, entry.when)

    def settle(self, evidence: str, now: float) -> None:
        """Bring the marks up to date with the entries, at this time.

        Raises:
            WriteError: another annotator is at work.
        """
        self._entries = self._all_entries()
        self._settle(evidence, now)

    def _settle(self, evidence: str, now: float) -> None:
        """As often as somebody else's summary takes the place of ours."""
        for _ in range(_MARKS_LOOKS):
            self._entries = in_order([*entries_in(self._summary), *self._entries])
            wanted = changed_marks(self._tags, self._own, self._entries, evidence, now)
            is_listed = entries_in(self._summary) == self._entries
            if wanted is None and is_listed:
                return
            changes: dict[str, Any] = {_ENTRIES_KEY: [one.to_json() for one in self._entries]}
            tags = None
            if wanted is not None:
                changes |= self._mark_changes(wanted)
                tags = without_ack(self.run.tags, self._summary) + [ACK_WANDB_TAG] * is_ack_mark(wanted.ack)
            summary = {key: value for key, value in {**self._summary, **changes}.items() if value != ""}
            self._connection.change(self.run, summary=summary, tags=tags)
            self.look()
        raise overtaken(f"W&B run {self._id}")

    def _mark_changes(self, wanted: Marks) -> dict[str, Any]:
        """The keys of the summary for these marks, and for the record where it does not know them yet."""
        marks = {ACK: wanted.ack, OPEN: wanted.open}
        changed = {name for name, value in marks.items() if self._summary.get(f"{OWN_KEY}{name}", "") != value}
        changes = {f"{OWN_KEY}{name}": marks[name] for name in changed}
        if new := frozenset(name for name in changed if marks[name]) - self._own:
            own = _written(self._tags, self._summary)  # of an annotation from before there were marks
            changes |= _keys({WRITTEN_TAG: replace(own, tags=own.tags | new).value})
        return changes

    @property
    def _own(self) -> frozenset[str]:
        return own_names(self._summary)

    def _all_entries(self) -> tuple[Acknowledgement, ...]:
        """Those of the summary, and those whose files were put there by somebody whose summary was lost."""
        known = {one.id: one for one in entries_in(self._summary)}
        for entry_id, file in self._entry_files().items():
            entry = known.get(entry_id) or parsed(self._content(file, _ENTRY_BYTES).decode(errors="replace"), entry_id)
            if entry is not None:
                known[entry_id] = entry
        return in_order(known.values())

    def _entry_files(self) -> dict[str, Any]:
        """The files of entries, by their ids."""
        doing = f"the acknowledgements of W&B run {self._id} could not be listed"
        places = f"{HEALTH_FOLDER}/{_ENTRIES_FOLDER}/%"
        listed = self._connection.asked(doing, lambda: list(islice(self.run.files(pattern=places), 2 * MOST_ENTRIES)))
        found = {file.name.rpartition("/")[2].removesuffix(".json"): file for file in listed}
        return {entry_id: file for entry_id, file in found.items() if file.name == _entry_place(entry_id)}

    def _remove_entries(self) -> int:
        """Take all entries off: files first, since the summary follows from them. How many there were."""
        files = self._entry_files()
        known = {one.id for one in entries_in(self._summary)} | files.keys()
        for file in files.values():
            self._connection.delete(self.run, file)
        if known:
            self.look()
            summary = {key: value for key, value in self._summary.items() if key != _ENTRIES_KEY}
            self._connection.change(self.run, summary=summary)
            self.look()
        return len(known)

    def mark_notified(self, value: str) -> None:
        """Say in the summary about what people were sent a message, where it says anything of that.

        Raises:
            WriteError: somebody else keeps writing the summary.
        """
        for _ in range(_MARKS_LOOKS):
            if self._summary.get(NOTIFIED_KEY) == value or NOTIFIED not in own_names(self._summary):
                return
            self._connection.change(self.run, summary={**self._summary, NOTIFIED_KEY: value})
            self.look()
        raise overtaken(f"W&B run {self._id}")

    def write_shadow(self, shadow: Shadow) -> None:
        """Put what is only tried out into the summary.

        Raises:
            WriteError: the owner has something under that name, or somebody else keeps writing the summary.
        """
        for _ in range(_MARKS_LOOKS):
            there = self._summary.get(_SHADOW_KEY, "")
            if there == shadow.value:
                return
            if there and Shadow.of(str(there)) is None:
                raise in_the_way(f"{_SHADOW_KEY} in the summary of W&B run {self._id}")
            self._connection.change(self.run, summary={**self._summary, _SHADOW_KEY: shadow.value})
            self.look()
        raise overtaken(f"W&B run {self._id}")

    def clear(self, *, exit_stays: bool, acks: bool = False) -> Cleared:
        """Remove everything tracker-health wrote; the keys of the summary that name it go last.

        ``exit_stays``: what was seen of the run's end still holds, and is left there.

        Raises:
            WriteError: another annotator is at work.
        """
        removed = self._remove_entries() if acks else 0
        left = 0 if acks else len(entries_in(self._summary))
        cleared = self._clear(exit_stays=exit_stays)
        return replace(cleared, found=cleared.found or bool(removed), acks=left)

    def _clear(self, *, exit_stays: bool) -> Cleared:
        self._sort_files()
        dropped = self._drop_notified()
        if not is_annotated(self._tags) and not self._earlier:
            return Cleared(found=self._take_mark_off() or dropped)
        self._begin(Written())
        self._require_mark()
        self._exit = self._tags.get(EXIT_TAG, "") if exit_stays else ""
        undeleted = self._delete_files_but(frozenset())
        # What could not be deleted stays ours: without its name it would be taken for the user's without end.
        self._finish(_keys({WRITTEN_TAG: undeleted.value}), None)
        self._require_ours(None, "", undeleted.files)
        return Cleared(found=True, kept=tuple(place_of(name) for name in sorted(undeleted.files)), exit=exit_stays)

    def _take_mark_off(self) -> bool:
        """Take off the mark of a run that went wrong while it went on, and that has nothing else of ours."""
        theirs = [tag for tag in self.run.tags if tag not in LIVE_WANDB_TAGS]
        summary = {key: value for key, value in self._summary.items() if key != _SHADOW_KEY or not _is_shadow(value)}
        if len(theirs) == len(self.run.tags) and len(summary) == len(self._summary):
            return False
        changed = summary if len(summary) < len(self._summary) else None
        self._connection.change(self.run, tags=theirs, summary=changed)
        return True

    # Whose is what

    def _values(self, annotations: Annotations) -> dict[str, Any]:
        """What goes into the summary besides verdict, digest and record, by name."""
        kept = {name for name, value in annotations.metrics.items() if math.isfinite(value)}
        metrics = {name: annotations.metrics[name] for name in kept}
        values: dict[str, Any] = {
            key.removeprefix(OWN_KEY): value for key, value in summary_of(replace(annotations, metrics=metrics)).items()
        }
        values |= media_of(annotations.files)
        # A mark that says nothing yet is ours as well: somebody may answer the verdict.
        values |= {name: value for name, value in annotations.tags.items() if name == ACK}
        return {name: value for name, value in values.items() if name not in ("verdict", "digest")}

    def _ours_of(self, annotations: Annotations, values: Mapping[str, Any]) -> Written:
        """The names to write: all but those of keys that are the user's."""
        theirs = {name for name in values.keys() - self._earlier.tags if f"{OWN_KEY}{name}" in self._summary}
        names = Written(files=frozenset(annotations.files), tags=frozenset(values.keys() - theirs))
        return names.beside(self._earlier)

    def _refuse_to_overwrite(self, annotations: Annotations) -> None:
        """Raise for what cannot be left out: the verdict would be somebody else's, or the report."""
        self._sort_files()
        if not (bears_verdict(self._tags) or self._adopted):
            for name in ("verdict", "digest", "written"):
                if f"{OWN_KEY}{name}" in self._summary and not self._earlier:
                    raise in_the_way(f"{OWN_KEY}{name} in the summary of W&B run {self._id}")
            for tag in sorted(OWN_TAGS.intersection(self.run.tags)):
                raise in_the_way(f"the tag {tag} of W&B run {self._id}")
        for name in sorted(self._theirs & annotations.files.keys()):
            raise in_the_way(f"the file {printable(place_of(name))} of W&B run {self._id}")

    def _sort_files(self) -> None:
        """See which files under our names are the user's. A report on this run is ours: the summary that says so is
        lost where a run was resumed.
        """
        unknown = frozenset(self._there) - self._earlier.all_files
        if unknown and self._is_our_report(self._there.get(REPORT_FILE)):
            self._adopted, unknown = unknown & OUR_FILES, unknown - OUR_FILES
            self._earlier |= Written(files=self._adopted)
        self._theirs = unknown

    def _is_our_report(self, file: Any) -> bool:
        content = self._content(file)
        with suppress(ValueError, RecursionError, KeyError, TypeError):
            document = json.loads(content)
            return bool(document["schema"] == SCHEMA and document["run"]["id"] == self._id)
        return False

    # Two at once

    def _begin(self, new: Written) -> None:
        """Mark the run as being written by us, with the names of all that may be on it from now on."""
        self._touched, self._before = new, self._tags.get(DIGEST_TAG, "")
        self._send_marked(self._earlier | new)

    def _send_marked(self, names: Written) -> None:
        """Send the summary with our mark, and with these names as ours."""
        record = replace(names, digest=self._mark)
        changes = _keys({DIGEST_TAG: self._mark, WRITTEN_TAG: record.value})
        self._connection.change(self.run, summary={**self._summary, **changes})

    def _require_mark(self) -> None:
        """Take the run as it is now, which nobody else has begun to write."""
        self._look_for(self._mark)
        if self._tags.get(DIGEST_TAG) != self._mark:
            raise self._overtaken()

    def _look_for(self, sent: str) -> None:
        """Take the run with the digest that was sent, or another one; after a while with the one from before."""
        for wait in _LOOKS:
            time.sleep(wait)
            self.look()
            found = self._tags.get(DIGEST_TAG, "")
            if found == sent or found != self._before:
                break

    def _require_ours(self, verdict: Verdict | None, digest: str, files: frozenset[str]) -> None:
        """That nobody's whole writing went under in the last of ours: the tag or the files would be theirs."""
        seen = frozenset(self._there)
        self._look_for(digest)
        as_left = self._tags.get(DIGEST_TAG, "") == digest
        tags = without_ack(self.run.tags, self._summary)
        tagged = sorted(tags) == sorted(tags_with(tags, verdict))
        if not (as_left and tagged and self._has_our_files(files, seen)):
            raise self._overtaken()

    def _has_our_files(self, files: frozenset[str], seen: frozenset[str]) -> bool:
        """Whether the run has these files of ours, as far as they were listed already, and no others."""
        for wait in _LOOKS:
            if wait:
                time.sleep(wait)
                self.look()
            there = frozenset(self._there) & OUR_FILES - self._theirs
            if files & seen <= there <= files and self._has_our_report():
                return True
        return False

    def _has_our_report(self) -> bool:
        """Whether the report is what we uploaded, as far as the list of files has it."""
        file = self._there.get(REPORT_FILE)
        if file is None or not self._report:
            return True
        md5 = base64.b64encode(hashlib.md5(self._report, usedforsecurity=False).digest()).decode()
        return file.md5 == md5 or self._content(file) in (b"", self._report)

    def _overtaken(self) -> WriteError:
        """Own up to all that may be on the run by now, and leave it marked as unfinished."""
        with suppress(RunError):  # it is reported that another one is at work: the next annotation looks again
            there = frozenset(self._there) & OUR_FILES
            self._send_marked(self._earlier | self._touched | Written(files=there - self._theirs))
        return overtaken(f"W&B run {self._id}")

    # Parts of the work

    def _listed(self) -> dict[str, Any]:
        """The files of the run under names of ours, by name; those of other versions of ours are asked for."""
        places = {place_of(name): name for name in OUR_FILES | self._earlier.all_files}
        found = files_of(self.run)
        if found is None or places.keys() - set(_PLACES):
            doing = f"the files of W&B run {self._id} could not be listed"
            found = self._connection.asked(doing, lambda: list(self.run.files(names=sorted(places))))
        return {places[file.name]: file for file in found if file.name in places}

    def _content(self, file: Any, limit: int = _MAX_REPORT_BYTES) -> bytes:
        with suppress(RunError):
            return _content_of(self._connection, file, limit)
        return b""

    def _drop_notified(self) -> bool:
        """Delete the file that stood for the key of the summary; whether there was one."""
        file = next((one for one in files_of(self.run) or () if one.name == NOTIFIED_PLACE), None)
        if file is not None and notified_in(self._connection, self.run):
            self._connection.delete(self.run, file)
            return True
        return False

    def _upload(self, files: Mapping[str, bytes]) -> frozenset[str]:
        """Write our files; those that did not get there, as far as anybody can tell."""
        try:
            self._connection.upload(self.run, {place_of(name): content for name, content in files.items()})
        except StoreRefused:
            raise
        except RunError as error:
            self._problems.append(str(error))
            return frozenset(files)
        self._report = files.get(REPORT_FILE, b"")
        return frozenset()

    def _delete_files_but(self, files: frozenset[str]) -> Written:
        """Delete our files that no longer hold, and those that another annotator left since we began. Gives those that
        would not go.
        """
        left = set()
        for name, file in sorted(self._there.items()):
            if name in files | self._theirs:
                continue
            try:
                self._connection.delete(self.run, file)
            except RunError:
                left.add(name)
        return Written(files=frozenset(left))

    def _finish(self, ours: Mapping[str, Any], verdict: Verdict | None) -> None:
        """Send the summary that the run has this moment, with these keys of ours and no others, and its tags with the
        verdict's.
        """
        names = self._earlier.tags | self._touched.tags | {"verdict", "digest", "written"}
        gone = {f"{OWN_KEY}{name}" for name in names}
        theirs = {key: value for key, value in self._summary.items() if key not in gone}
        if _EXIT_KEY not in theirs or is_exit_value(str(theirs[_EXIT_KEY])):
            theirs.pop(_EXIT_KEY, None)
            ours = {**ours, _EXIT_KEY: self._exit}
        if _is_shadow(theirs.get(_SHADOW_KEY)):
            theirs.pop(_SHADOW_KEY)
        self._before = self._mark
        summary = {**theirs, **{key: value for key, value in ours.items() if value != ""}}
        tags = tags_with(without_ack(self.run.tags, self._summary), verdict)
        tags += [ACK_WANDB_TAG] * is_ack_mark(str(ours.get(_ACK_KEY, "")))
        changed = sorted(tags) != sorted(self.run.tags)
        self._connection.change(self.run, summary=summary, tags=tags if changed else None)


def _written(tags: Mapping[str, str], summary: Mapping[str, Any]) -> Written:
    """What of a run is ours. A run that was annotated in its folder, and then synced, has no list of it: there all that
    goes by our names is.
    """
    recorded = recorded_on(tags)
    if WRITTEN_TAG in tags or recorded is None or recorded.digest == PENDING or recorded.verdict is None:
        return Written.of(tags)
    names = {key.removeprefix(OWN_KEY) for key in summary if key.startswith(OWN_KEY)}
    if recorded.verdict is Verdict.SKIP:
        return Written(tags=frozenset(names & _OF_ANY_VERDICT))
    rules = {probe.name.replace("-", "_") for probe in probe_classes()}
    ours = {name for name in names if name in _PLAIN_NAMES or name.partition("/")[0] in rules}
    return Written(files=OUR_FILES | LOCAL_COPIES.keys(), tags=frozenset(ours))


def _entry_place(entry_id: str) -> str:
    return f"{HEALTH_FOLDER}/{_ENTRIES_FOLDER}/{entry_id}.json"


def _is_shadow(value: Any) -> bool:
    return isinstance(value, str) and Shadow.of(value) is not None


def _keys(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"{OWN_KEY}{name.removeprefix('health.')}": value for name, value in tags.items()}
