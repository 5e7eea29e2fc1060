"""Annotations onto a run of a W&B server: what is ours is replaced or taken away, what is the user's stays as it is.

Ours is what ``health/written`` in the summary lists, and the verdict's tag of a run that bears a digest of ours.

W&B has no lock and no compare-and-set, and a summary can only be sent whole. So it is read right before it is sent,
twice a writing; the mark of a writing under way is its own, and after each part of the work it must still be there.
Somebody else's writing in between may go under in ours: then the tag, or the report, is not what we left, and the run
is marked as unfinished.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracker_health.annotations import PENDING, REPORT_FILE, Annotations, incomplete
from tracker_health.errors import RunError, StoreRefused, WriteError
from tracker_health.gap_names import LIVE_WANDB_TAGS
from tracker_health.readers.regular_file import read_regular
from tracker_health.registry import probe_classes
from tracker_health.result import SCHEMA
from tracker_health.stores.base import Cleared, WrittenInPart
from tracker_health.stores.locks import locked
from tracker_health.stores.own import OUR_FILES, in_the_way, overtaken
from tracker_health.stores.record import (
    DIGEST_TAG,
    VERDICT_TAG,
    WRITTEN_TAG,
    Written,
    bears_verdict,
    is_annotated,
    recorded_on,
)
from tracker_health.stores.temporary import TemporaryFolder
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection, fetched
from tracker_health.stores.wandb.media import LOCAL_COPIES, MEDIA_KEYS, media_of, place_of
from tracker_health.stores.wandb.values import OWN_KEY, OWN_TAGS, summary_of, tags_with
from tracker_health.text import printable
from tracker_health.verdict import Verdict

_PLAIN_NAMES = frozenset({"severity", "codes", "symptoms", "summary", "version", *MEDIA_KEYS.values()})
_LOOKS = (0, 1, 3)  # seconds before each: for a moment a server may give what was there before
_MAX_REPORT_BYTES = 32 * 2**20


def our_tags(summary: Mapping[str, Any]) -> dict[str, str]:
    """The texts under our keys of a summary, by the names that a record has for them."""
    return {
        f"health.{key.removeprefix(OWN_KEY)}": value
        for key, value in summary.items()
        if key.startswith(OWN_KEY) and isinstance(value, str)
    }


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

    def __init__(self, connection: Connection, address: Address, run: Any) -> None:
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
        self._take(run)

    def _take(self, run: Any) -> None:
        self._run = run
        self._summary: Mapping[str, Any] = run.summary_metrics
        self._tags = our_tags(self._summary)
        self._earlier = _written(self._tags, self._summary) | Written(files=self._adopted)

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """The digest ``pending`` first, the digest itself last: with any other digest a run is completely annotated.

        Gives what was left out, each with the reason.

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
        undeleted = self._delete_files_but(new.files)
        self._set_tags(annotations.verdict)
        digest = incomplete(annotations.digest) if self._problems else annotations.digest
        record = replace(new.without(lost) | undeleted, digest=digest)
        plain = {VERDICT_TAG: str(annotations.verdict), DIGEST_TAG: digest, WRITTEN_TAG: record.value}
        kept = {name: value for name, value in values.items() if name in new.tags}
        self._finish({**{f"{OWN_KEY}{name}": value for name, value in kept.items()}, **_keys(plain)})
        self._require_ours(annotations.verdict, digest)
        if self._problems:
            message = f"the verdict is on W&B run {self._id}, but {'; '.join(self._problems)}"
            raise WrittenInPart(message, "annotate it again when that is mended", tuple(omitted))
        return tuple(omitted)

    def clear(self) -> Cleared:
        """Take everything of ours off the run; the keys of the summary that name it go last.

        Raises:
            WriteError: another annotator is at work.
        """
        self._list_files()
        if not is_annotated(self._tags) and not self._earlier:
            return Cleared(found=self._take_mark_off())
        self._begin(Written())
        undeleted = self._delete_files_but(frozenset())
        self._set_tags(None)
        # What could not be deleted stays ours: without its name it would be taken for the user's for ever.
        self._finish(_keys({WRITTEN_TAG: undeleted.value}))
        self._require_ours(None, "")
        return Cleared(found=True, kept=tuple(place_of(name) for name in sorted(undeleted.files)))

    def _take_mark_off(self) -> bool:
        """Take off the mark of a run that went wrong while it went on, and that bears nothing else of ours."""
        theirs = [tag for tag in self._run.tags if tag not in LIVE_WANDB_TAGS]
        if len(theirs) == len(self._run.tags):
            return False
        self._connection.set_tags(self._run, theirs)
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
        return {name: value for name, value in values.items() if name not in ("verdict", "digest")}

    def _ours_of(self, annotations: Annotations, values: Mapping[str, Any]) -> Written:
        """The names to write: all but those of keys that are the user's."""
        theirs = {name for name in values.keys() - self._earlier.tags if f"{OWN_KEY}{name}" in self._summary}
        names = Written(files=frozenset(annotations.files), tags=frozenset(values.keys() - theirs))
        return names.beside(self._earlier)

    def _refuse_to_overwrite(self, annotations: Annotations) -> None:
        """Raise for what cannot be left out: the verdict would be somebody else's, or the report."""
        self._list_files()
        if not (bears_verdict(self._tags) or self._adopted):
            for name in ("verdict", "digest", "written"):
                if f"{OWN_KEY}{name}" in self._summary and not self._earlier:
                    raise self._in_the_way(f"{OWN_KEY}{name} in the summary")
            for tag in sorted(OWN_TAGS.intersection(self._run.tags)):
                raise self._in_the_way(f"the tag {tag}")
        for name in sorted(self._theirs & annotations.files.keys()):
            raise self._in_the_way(f"the file {printable(place_of(name))}")

    def _list_files(self) -> None:
        """See which files under our names are the user's. A report on this run is ours: the summary that says so is
        lost where a run was resumed.
        """
        there = self._listed()
        unknown = frozenset(there) - self._earlier.all_files
        if unknown and self._is_our_report(there.get(REPORT_FILE)):
            self._adopted, unknown = unknown & OUR_FILES, unknown - OUR_FILES
            self._earlier |= Written(files=self._adopted)
        self._theirs = unknown

    def _is_our_report(self, file: Any) -> bool:
        content = self._content(file)
        with suppress(ValueError, RecursionError, KeyError, TypeError):
            document = json.loads(content)
            return bool(document["schema"] == SCHEMA and document["run"]["id"] == self._id)
        return False

    def _in_the_way(self, what: str) -> WriteError:
        """The error; another one where somebody began to annotate since the run was read: then it is theirs."""
        now = our_tags(self._connection.run(self._address).summary_metrics)
        if now.get(DIGEST_TAG) != self._tags.get(DIGEST_TAG):
            return overtaken(f"W&B run {self._id}")
        return in_the_way(f"{what} of W&B run {self._id}")

    # Two at once

    def _begin(self, new: Written) -> None:
        """Mark the run as being written by us, with the names of all that may be on it from now on."""
        self._touched, self._before = new, self._tags.get(DIGEST_TAG, "")
        self._send_marked(self._earlier | new)
        self._require_mark()

    def _send_marked(self, names: Written) -> None:
        """Send the summary with our mark, and with these names as ours."""
        record = replace(names, digest=self._mark)
        changes = _keys({DIGEST_TAG: self._mark, WRITTEN_TAG: record.value})
        self._connection.set_summary(self._run, {**self._summary, **changes})

    def _require_mark(self) -> None:
        """Take the run as it is now, which nobody else has begun to write."""
        run = self._with_digest(self._mark)
        if our_tags(run.summary_metrics).get(DIGEST_TAG) != self._mark:
            raise self._overtaken(run)
        self._take(run)

    def _with_digest(self, sent: str) -> Any:
        """The run with the digest that was sent, or with somebody else's; after a while with the one from before."""
        for wait in _LOOKS:
            time.sleep(wait)
            run = self._connection.run(self._address)
            found = our_tags(run.summary_metrics).get(DIGEST_TAG, "")
            if found == sent or found != self._before:
                break
        return run

    def _require_ours(self, verdict: Verdict | None, digest: str) -> None:
        """That nobody's whole writing went under in the last of ours: the tag and the report would be theirs."""
        run = self._with_digest(digest)
        as_left = our_tags(run.summary_metrics).get(DIGEST_TAG, "") == digest
        tagged = sorted(run.tags) == sorted(tags_with(run.tags, verdict))
        if not (as_left and tagged and self._has_our_report()):
            raise self._overtaken(run)

    def _has_our_report(self) -> bool:
        """Whether the report is what we uploaded, as far as the list of files has it already."""
        if not self._report:
            return True
        for wait in _LOOKS:
            time.sleep(wait)
            found = self._content(self._listed().get(REPORT_FILE))
            if not found or found == self._report:
                return True
        return False

    def _overtaken(self, run: Any) -> WriteError:
        """Own up to all that may be on the run by now, and leave it marked as unfinished."""
        self._take(run)
        with suppress(RunError):  # it is told that another one is at work: the next annotation looks again
            there = frozenset(self._listed()) & OUR_FILES
            self._send_marked(self._earlier | self._touched | Written(files=there - self._theirs))
        return overtaken(f"W&B run {self._id}")

    # Parts of the work

    def _listed(self) -> dict[str, Any]:
        """The files of the run under names of ours, by name."""
        places = {place_of(name): name for name in OUR_FILES | self._earlier.all_files}
        doing = f"the files of W&B run {self._id} could not be listed"
        listed = self._connection.asked(doing, lambda: list(self._run.files(names=sorted(places))))
        return {places[file.name]: file for file in listed if file.name in places}

    def _content(self, file: Any) -> bytes:
        """A file's content; empty for none, and for one that is too large to be ours."""
        if file is None or not 0 < file.size <= _MAX_REPORT_BYTES:
            return b""
        with suppress(RunError), TemporaryFolder() as folder:
            target = Path(folder, "file")
            fetched(self._connection, file, target)
            return read_regular(target, _MAX_REPORT_BYTES)
        return b""

    def _upload(self, files: Mapping[str, bytes]) -> frozenset[str]:
        """Write our files; those that did not get there, as far as anybody can tell."""
        for name, content in files.items():
            try:
                self._connection.upload(self._run, place_of(name), content)
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
        for name, file in sorted(self._listed().items()):
            if name in files | self._theirs:
                continue
            try:
                self._connection.delete(self._run, file)
            except RunError:
                left.add(name)
        return Written(files=frozenset(left))

    def _set_tags(self, verdict: Verdict | None) -> None:
        """Bring the verdict's tag up to date, beside the tags that the run has this moment."""
        self._require_mark()
        tags = tags_with(self._run.tags, verdict)
        if sorted(tags) != sorted(self._run.tags):
            self._connection.set_tags(self._run, tags)

    def _finish(self, ours: Mapping[str, Any]) -> None:
        """Send the summary that the run has this moment, with these keys of ours and no others."""
        self._require_mark()
        names = self._earlier.tags | self._touched.tags | {"verdict", "digest", "written"}
        gone = {f"{OWN_KEY}{name}" for name in names}
        theirs = {key: value for key, value in self._summary.items() if key not in gone}
        self._before = self._mark
        self._connection.set_summary(
            self._run, {**theirs, **{key: value for key, value in ours.items() if value != ""}}
        )


def _written(tags: Mapping[str, str], summary: Mapping[str, Any]) -> Written:
    """What of a run is ours. A run that was annotated in its folder, and then synced, has no list of it: there all that
    goes by our names is.
    """
    recorded = recorded_on(tags)
    if (
        WRITTEN_TAG in tags
        or recorded is None
        or recorded.digest == PENDING
        or recorded.verdict in (None, Verdict.SKIP)
    ):
        return Written.of(tags)
    rules = {probe.name.replace("-", "_") for probe in probe_classes()}
    names = {key.removeprefix(OWN_KEY) for key in summary if key.startswith(OWN_KEY)}
    ours = {name for name in names if name in _PLAIN_NAMES or name.partition("/")[0] in rules}
    return Written(files=OUR_FILES | LOCAL_COPIES.keys(), tags=frozenset(ours))


def _keys(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"{OWN_KEY}{name.removeprefix('health.')}": value for name, value in tags.items()}
