"""Annotations onto an MLflow run: what is ours is replaced or taken away, and what is the user's stays as it is.

Ours is what the tag ``health.written`` lists, and the verdict of a run that has a digest of ours. All else below
``health`` was there before us: a study of patients has such names too.

MLflow has no lock and no compare-and-set. The mark of a writing under way is its own; after each part of the work it
must still be there. Who finds another's owns up to all that is on the run now, and leaves it marked as unfinished.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.errors import RunError, WriteError
from tracker_health.judge.annotations import (
    ACK,
    NOTIFIED,
    PENDING,
    PICTURE_FILE,
    REPORT_FILE,
    Annotations,
    incomplete,
)
from tracker_health.report.result import SCHEMA
from tracker_health.stores.base import Cleared, WrittenInPart
from tracker_health.stores.common.atomic_files import refuse_links
from tracker_health.stores.common.exits import is_exit_value
from tracker_health.stores.common.ownership import HEALTH_FOLDER, OUR_FILES, in_the_way, is_file_name, overtaken
from tracker_health.stores.common.record import (
    DIGEST_TAG,
    ENTRY_PREFIX,
    EXIT_TAG,
    MAX_TAG_VALUE,
    SHADOW_TAG,
    VERDICT_TAG,
    WRITTEN_TAG,
    Written,
    bears_verdict,
    is_annotated,
    is_legible,
    notified_on,
    owns_note,
    shadow_on,
)
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.note_block import has_broken_markers, has_markers, with_note
from tracker_health.stores.mlflow.stored_files.health_folder import HealthFolder
from tracker_health.stores.mlflow.stored_files.panel import IMAGES_TAG, Panel
from tracker_health.text import count, printable
from tracker_health.words.gap_names import LIVE_TAG, STOP_TAG, STOPPED_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE_TAG = "mlflow.note.content"

_MAX_REPORT_BYTES = 32 * 2**20
_RECORD_PAUSES = (0.01, 0.05, 0.2)  # seconds


def latest_points(run: Any) -> dict[str, Any]:
    """Per metric its latest point: key, value, timestamp (ms) and step; ``run.data.metrics`` has only the value."""
    return {metric.key: metric for metric in run.data.to_proto().metrics}


class MlflowWriter:
    """One writing of annotations onto one run, whose record is fresh."""

    def __init__(self, client: MlflowClient, run: Any, uri: str) -> None:
        self._client = client
        self._id = run.info.run_id
        self._uri = uri
        self._place = run.info.artifact_uri
        self._folder = HealthFolder(run.info.artifact_uri, uri)
        self._panel = Panel(run.info.artifact_uri, uri)
        self._why_no_files = ""
        self._listed: frozenset[str] | None = frozenset()
        self._mark = f"{PENDING}:{secrets.token_hex(4)}"
        self._touched: Written | None = None
        self._problems: list[str] = []
        self._omitted: list[str] = []
        self._adopted: frozenset[str] = frozenset()
        run = self._settled(run)
        self._owns_note = owns_note(run.data.tags)
        self._take(run)

    def _take(self, run: Any) -> None:
        self._tags: Mapping[str, str] = run.data.tags
        self._latest = latest_points(run)
        told = Written(tags=frozenset({NOTIFIED})) if notified_on(self._tags) else Written()
        self._earlier = Written.of(self._tags) | Written(files=self._adopted) | told
        if (
            WRITTEN_TAG in self._tags
        ):  # else our mark has taken the digest's place, and only what was seen before counts
            self._owns_note = owns_note(self._tags)

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """The digest ``pending`` first, the digest itself last: with any other digest a run is completely annotated.

        Gives what was left out, each with the reason.

        Raises:
            WrittenInPart: all but the files, or but the description, was written.
            WriteError: something of the user's is in the way (nothing is written then), or another annotator is at
                work.
        """
        if annotations.files:
            self._look_where_files_go()
        self._refuse_to_overwrite(self._ours_of(annotations))
        self._begin()
        new = self._touched = self._ours_of(annotations)
        # From now on some of the new names may be there, and all of the old ones still are.
        self._set_tags(_if_any(WRITTEN_TAG, self._marked(self._earlier | new).value))
        lost = self._upload({name: annotations.files[name] for name in new.files}) - self._earlier.files
        undeleted = self._delete_files_but(new.files)
        self._show(annotations.files.get(PICTURE_FILE, b""))
        self._write_metrics({name: annotations.metrics[name] for name in new.metrics})
        described = self._describe(annotations.note)
        digest = incomplete(annotations.digest) if self._problems else annotations.digest
        record = replace(new.without(lost) | undeleted, note=described, digest=digest)
        tags = {name: value for name in new.tags if (value := annotations.tags[name])}
        self._write_tags({f"health.{name}": value for name, value in tags.items()}, record)
        self._keep_exit(annotations.exit)
        if shadow_on(self._tags) is not None:
            self._delete_tags([SHADOW_TAG])
        self._require_mark()
        self._set_tags({VERDICT_TAG: str(annotations.verdict), DIGEST_TAG: digest})
        self._require_record(record)
        omitted = (*self._left_out(annotations, new), *self._omitted)
        if self._problems:
            message = f"the verdict is on MLflow run {self._id}, but {'; '.join(self._problems)}"
            raise WrittenInPart(message, "annotate it again when that is fixed", omitted)
        return omitted

    def _look_where_files_go(self) -> None:
        """Leave the files out where the run's record, which is not ours to trust, sends them somewhere else."""
        with suppress(Exception):  # a store that cannot be looked up says so when something is written to it
            self._why_no_files = self._folder.why_not_written()
        if self._why_no_files:
            self._omitted.append(f"the files ({self._why_no_files})")

    def clear(self, *, exit_stays: bool) -> Cleared:
        """Remove everything tracker-health wrote; the tag that names it goes last but the digest.

        ``exit_stays``: what was seen of the run's end still holds, and is left there.

        Raises:
            WriteError: another annotator is at work.
        """
        if not is_annotated(self._tags) and not self._earlier:
            return Cleared(found=False)
        verdict = [VERDICT_TAG] if bears_verdict(self._tags) else []
        if self._earlier.all_files:
            self._listed = self._listing()
        self._begin()
        self._touched = Written()
        undeleted = Written(files=self._delete_files_but(frozenset()).files)
        pictures = self._hide()
        hidden = self._write_metrics({})
        note = self._require_mark()
        if self._owns_note:
            self._write_note(note, "")
        self._delete_tags(verdict)
        # What could not be deleted stays ours: without its name it would be taken for the user's without end.
        self._write_tags({}, undeleted)
        if not exit_stays:
            self._keep_exit("")
        self._require_mark()
        self._delete_tags([DIGEST_TAG])
        self._require_nothing_but(undeleted, verdict)
        kept = [*(f"{HEALTH_FOLDER}/{name}" for name in sorted(undeleted.files)), *sorted(pictures)]
        if self._owns_note and has_broken_markers(note.data.tags.get(NOTE_TAG, "")):
            kept.append(NOTE_TAG)
        return Cleared(found=True, hidden=hidden, kept=tuple(kept), exit=exit_stays)

    # Whose is what

    def _ours_of(self, annotations: Annotations) -> Written:
        """The names to write: all but those of tags and metrics that are the user's."""
        metrics = {name for name, value in annotations.metrics.items() if math.isfinite(value)}
        # A mark that says nothing yet is ours as well: somebody may answer the verdict.
        tags = {name for name, value in annotations.tags.items() if value or name == ACK}
        names = Written(
            files=frozenset() if self._why_no_files else frozenset(annotations.files),
            metrics=frozenset(metrics - {name for name in metrics - self._earlier.metrics if self._is_theirs(name)}),
            tags=frozenset(tags - {name for name in tags - self._earlier.tags if f"health.{name}" in self._tags}),
            note=bool(annotations.note) and self._may_describe(self._tags.get(NOTE_TAG, "")),
        )
        return names.beside(self._earlier)

    def _left_out(self, annotations: Annotations, new: Written) -> list[str]:
        """The names of tags and metrics that were not written, and why."""
        tags = {name for name, value in annotations.tags.items() if value} - new.tags
        metrics = {name for name, value in annotations.metrics.items() if math.isfinite(value)} - new.metrics
        names = [f"the tag health.{name}" for name in sorted(tags) if f"health.{name}" in self._tags]
        names += [f"the metric health/{name}" for name in sorted(metrics) if f"health/{name}" in self._latest]
        left = [f"{name} (the run has one of its own)" for name in names]
        if crowded := len(tags) + len(metrics) - len(names):
            left.append(f"{count(crowded, 'measure')} (there is no room to note down more names)")
        return left

    def _is_theirs(self, metric: str) -> bool:
        """Whether the user has a metric of this name. One whose latest value is NaN may be one that we hid."""
        latest = self._latest.get(f"health/{metric}")
        if latest is None:
            return False
        if not math.isnan(latest.value) or latest.step != 0:
            return True
        # All of ours are at step 0, and before the NaN that hides them stood a number.
        points = self._client.get_metric_history(self._id, latest.key)
        return any(point.step != 0 for point in points) or all(math.isnan(point.value) for point in points)

    def _refuse_to_overwrite(self, new: Written) -> None:
        """Raise for what cannot be left out: the verdict would be somebody else's, or the report."""
        if not bears_verdict(self._tags):
            recorded = Written.of(self._tags) | Written(files=self._adopted)
            for tag in (VERDICT_TAG, DIGEST_TAG, *(() if recorded else (WRITTEN_TAG,))):
                if tag in self._tags:
                    raise self._in_the_way(f"the tag {tag}")
        if not new.files:
            self._listed = self._listing()
            return
        places: list[Path] = []
        try:
            with self._translated():
                places = [*self._folder.places(new.files | self._earlier.all_files), *self._panel.places()]
                self._listed = frozenset(self._folder.listed())
                in_its_place = not self._listed and self._folder.is_file()
        except RunError as error:
            refuse_links(places)
            self._listed = None
            if not new.files <= self._earlier.all_files:  # else nothing of the user's can be under these names
                self._problems.append(str(error))
            return
        refuse_links(places)
        if in_its_place:
            raise self._in_the_way(f"the artifact {HEALTH_FOLDER}")
        for name in sorted(self._listed & (new.files - self._earlier.all_files)):
            if name not in OUR_FILES or not self._is_our_report():
                raise self._in_the_way(f"the artifact {HEALTH_FOLDER}/{printable(name)}")
            self._adopted |= {name}

    def _is_our_report(self) -> bool:
        """Whether the report that is there is one on this run: its tags are lost where a database was restored."""
        with suppress(Exception):  # whatever a store's own library raises, and whatever stands there
            document = json.loads(self._folder.read(REPORT_FILE, _MAX_REPORT_BYTES))
            return bool(document["schema"] == SCHEMA and document["run"]["id"] == self._id)
        return False

    def _in_the_way(self, what: str) -> WriteError:
        return in_the_way(f"{what} of MLflow run {self._id}")

    # Two at once

    def _begin(self) -> None:
        """Mark the run as being written by us, and take its record as it is from then on."""
        self._set_tags({DIGEST_TAG: self._mark})
        self._take(self._require_mark())

    def _now(self) -> Any:
        return self._settled(self._client.get_run(self._id))

    def _settled(self, run: Any) -> Any:
        """The run once its record can be read.

        In a store of files a tag is empty while somebody writes it. If the record were taken for empty, all that it
        names would count as the user's from then on.
        """
        for pause in _RECORD_PAUSES:
            if is_legible(run.data.tags):
                break
            time.sleep(pause)
            run = self._client.get_run(self._id)
        return run

    def _require_mark(self) -> Any:
        """The run as it is now, which nobody else has begun to write."""
        run = self._now()
        if run.data.tags.get(DIGEST_TAG) != self._mark:
            raise self._overtaken(run)
        return run

    def _require_record(self, record: Written) -> None:
        """That nobody else wrote a whole annotation before our digest: its record would be there, not ours. And that
        nobody who began with us and died left a file that our record does not name.
        """
        run = self._now()
        if run.data.tags.get(DIGEST_TAG) != record.digest:
            return
        strays = (self._appeared(run).files & OUR_FILES) - record.all_files
        if strays or Written.of(run.data.tags).value != record.value:
            raise self._overtaken(run)

    def _require_nothing_but(self, record: Written, verdict: list[str]) -> None:
        """That nobody else wrote a whole annotation before we took the digest off."""
        run = self._now()
        tags = run.data.tags
        if DIGEST_TAG not in tags and (Written.of(tags).value != record.value or any(tag in tags for tag in verdict)):
            raise self._overtaken(run)

    def _overtaken(self, run: Any) -> WriteError:
        """Leave a run that somebody else has written meanwhile as unfinished, with the names of all that is on it.

        The other's list of them may be lost under ours: what appeared since we looked is the other's.
        """
        if self._touched is not None:
            names = Written.of(run.data.tags) | self._earlier | self._touched | self._appeared(run)
            # The mark last, for stores that write one tag after the other: whoever began before the names were there
            # sees that they have been overtaken.
            self._set_tags(_if_any(WRITTEN_TAG, self._marked(names).value) | {DIGEST_TAG: self._mark})
        return overtaken(f"MLflow run {self._id}")

    def _marked(self, names: Written) -> Written:
        return replace(names, digest=self._mark)

    def _appeared(self, run: Any) -> Written:
        now = self._listing() or frozenset()
        metrics = {
            name.removeprefix("health/")
            for name, point in latest_points(run).items()
            if name.startswith("health/") and point.step == 0 and not math.isnan(point.value)
            if name not in self._latest or math.isnan(self._latest[name].value)
        }
        tags = {name.removeprefix("health.") for name in run.data.tags.keys() - self._tags.keys() if _is_ours(name)}
        files = frozenset() if self._listed is None else frozenset(filter(is_file_name, now - self._listed))
        return Written(files=files, metrics=frozenset(metrics), tags=frozenset(tags))

    # Files

    def _translated(self) -> AbstractContextManager[None]:
        return translated("its files could not be written", self._uri, otherwise=WriteError, at=self._place)

    def _listing(self) -> frozenset[str] | None:
        with suppress(Exception):  # whatever a store's own library raises
            return frozenset(self._folder.listed())
        return None

    def _upload(self, files: Mapping[str, bytes]) -> frozenset[str]:
        """Write our files. Gives those that did not get there, as far as anybody can tell."""
        if not files or self._problems:
            return frozenset(files)
        try:
            with self._translated():
                self._folder.upload(files)
        except RunError as error:
            self._problems.append(str(error))
            return frozenset(files) - (self._listing() or frozenset())
        return frozenset()

    def _delete_files_but(self, files: frozenset[str]) -> Written:
        """Delete our files that no longer hold. Gives those that the store would not delete."""
        left = self._folder.delete(self._earlier.all_files - files)
        return Written(files=left & self._earlier.files, missing=left & self._earlier.missing)

    def _hide(self) -> frozenset[str]:
        """Take the picture away from among the metrics. Gives the files of it that the store would not delete."""
        if IMAGES_TAG not in self._tags and PICTURE_FILE not in self._earlier.all_files:
            return frozenset()
        left, alone = self._panel.remove()
        if alone:  # by this tag MLflow's pages show it, and it may be there still
            self._delete_tags([IMAGES_TAG])
        return left

    def _show(self, picture: bytes) -> None:
        """Bring the picture among the metrics up to date, or take it away."""
        if self._why_no_files:
            return
        if not picture:
            self._hide()
        elif not self._problems:
            try:
                with self._translated():
                    self._panel.show(picture)
            except RunError as error:
                self._problems.append(str(error))
            else:
                self._set_tags({IMAGES_TAG: "true"})

    # Metrics

    def _write_metrics(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Write our metrics, and hide those that no longer hold; the names of the hidden ones."""
        from mlflow.entities import Metric

        # A metric cannot be deleted: a NaN as its latest point takes it off the run page and out of filters.
        wanted = {**metrics, **dict.fromkeys(self._earlier.metrics - metrics.keys(), math.nan)}
        now = int(time.time() * 1000)
        points, hidden = [], []
        for name, value in sorted(wanted.items()):
            last = self._latest.get(f"health/{name}")
            if last is None and math.isnan(value):
                continue
            if math.isnan(value):
                hidden.append(f"health/{name}")
            if last is not None and (last.value == value or (math.isnan(last.value) and math.isnan(value))):
                continue
            # Of two points at one step the later is the latest; of two at one time the larger, whichever was meant.
            timestamp = now if last is None else max(now, last.timestamp + 1)
            points.append(Metric(f"health/{name}", value, timestamp, 0 if last is None else last.step))
        if points:
            self._client.log_batch(self._id, metrics=points)
        return tuple(hidden)

    # The description

    def _may_describe(self, text: str) -> bool:
        """Whether a block in this description can only be ours."""
        return self._owns_note or not has_markers(text)

    def _describe(self, note: str) -> bool:
        """Bring our block in the description up to date; whether there is one now."""
        run = self._require_mark()
        text = run.data.tags.get(NOTE_TAG, "")
        if not self._may_describe(text):
            if self._touched is not None and self._touched.note:  # they were not there when we began
                raise self._overtaken(run)
            if note:
                self._omitted.append("the description (it has markers of tracker-health in it that are not its own)")
            return False
        if has_broken_markers(text):
            self._omitted.append("the description (where our block begins and ends in it can no longer be determined)")
            return True
        described = self._write_note(run, note)
        if described and not self._is_kept(described):
            return False
        there = has_markers(described or text) if note else False
        if note and not there:
            self._omitted.append("the description (it has no room for more)")
        return there

    def _write_note(self, run: Any, note: str) -> str:
        """Put the note into the description that a run has this moment; the new one, empty if nothing was changed."""
        text = run.data.tags.get(NOTE_TAG, "")
        described = with_note(text, note)
        if described == text:
            return ""
        self._set_note(described)
        return described

    def _is_kept(self, described: str) -> bool:
        """Whether the description was not cut. Our block is taken out again where an older server kept only the
        beginning of what was sent.
        """
        kept = self._require_mark().data.tags.get(NOTE_TAG, "")
        if kept == described or not described.startswith(kept):
            return True
        self._set_note(with_note(described, ""))
        self._problems.append(f"its description is full: this server keeps {len(kept)} characters of it")
        return False

    def _set_note(self, text: str) -> None:
        if text:
            self._client.set_tag(self._id, NOTE_TAG, text)
        else:
            self._delete_tags([NOTE_TAG])

    # Tags

    def _write_tags(self, tags: Mapping[str, str], record: Written) -> None:
        """Write our tags, delete those that no longer hold, and only then say in the record that these are all."""
        self._set_tags(tags)
        earlier = {f"health.{name}" for name in self._earlier.tags}
        self._delete_tags(sorted((earlier & self._tags.keys()) - tags.keys()))
        kept = _if_any(WRITTEN_TAG, record.value)
        self._set_tags(kept)
        if not kept and WRITTEN_TAG in self._tags:
            self._delete_tags([WRITTEN_TAG])

    def _keep_exit(self, value: str) -> None:
        """Keep what was seen of the run's end, or take off what no longer holds. One of the owner's stays."""
        there = self._tags.get(EXIT_TAG, "")
        if there and not is_exit_value(there):
            self._omitted += [f"the tag {EXIT_TAG} (the run has one of its own)"] * bool(value)
        elif value:
            self._set_tags({EXIT_TAG: value})
        elif there:
            self._delete_tags([EXIT_TAG])

    def _set_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        if tags:
            self._client.log_batch(self._id, tags=[RunTag(key, _cut(value)) for key, value in tags.items()])

    def _delete_tags(self, keys: Iterable[str]) -> None:
        from mlflow.exceptions import MlflowException

        for key in keys:
            try:
                self._client.delete_tag(self._id, key)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise


def _is_ours(tag: str) -> bool:
    others = (DIGEST_TAG, VERDICT_TAG, WRITTEN_TAG, EXIT_TAG, SHADOW_TAG, LIVE_TAG, STOP_TAG, STOPPED_TAG)
    return tag.startswith("health.") and tag not in others and not tag.startswith(ENTRY_PREFIX)


def _if_any(key: str, value: str) -> dict[str, str]:
    return {key: value} if value else {}


def _cut(value: str) -> str:
    return value if len(value) <= MAX_TAG_VALUE else f"{value[: MAX_TAG_VALUE - 1]}…"
