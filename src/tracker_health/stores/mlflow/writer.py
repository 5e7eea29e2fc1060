"""Annotations onto an MLflow run: what is ours is replaced or taken away, and what is the user's stays as it is.

Ours is what the tag ``health.written`` lists, and the verdict of a run that bears a digest of ours. All else below
``health`` was there before us: a study of patients has such names too.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.annotations import PENDING, Annotations
from tracker_health.errors import WriteError
from tracker_health.stores.base import Cleared
from tracker_health.stores.mlflow.artifacts import HEALTH_FOLDER, is_local, repository_of
from tracker_health.stores.mlflow.note_block import with_note
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

DIGEST_TAG, VERDICT_TAG = "health.digest", "health.verdict"
NOTE_TAG = "mlflow.note.content"
MAX_TAG_VALUE = 5_000
"""Characters of a tag that we write. MLflow cuts at 8,000 without a word, older servers earlier."""

_WRITTEN_TAG, _VERSION_TAG = "health.written", "health.version"
_DIGEST = re.compile(rf"{PENDING}|[0-9a-f]{{16}}")


def is_annotated(tags: Mapping[str, str]) -> bool:
    """Whether a run bears a digest of ours, also one that says that it was never finished."""
    return bool(_DIGEST.fullmatch(tags.get(DIGEST_TAG, "")))


def latest_points(run: Any) -> dict[str, Any]:
    """Per metric its latest point: key, value, timestamp (ms) and step; ``run.data.metrics`` has only the value."""
    return {metric.key: metric for metric in run.data.to_proto().metrics}


class MlflowWriter:
    """One writing of annotations onto one run, whose record is fresh."""

    def __init__(self, client: MlflowClient, run: Any, uri: str) -> None:
        self._client = client
        self._run = run
        self._id = run.info.run_id
        self._uri = uri
        self._tags: Mapping[str, str] = run.data.tags
        self._latest = latest_points(run)
        self._earlier = _Written.of(self._tags)

    def write(self, annotations: Annotations) -> None:
        """The digest ``pending`` first, the digest itself last: with any other digest a run is completely annotated.

        Raises:
            WriteError: something of the user's is in the way; nothing is written then.
        """
        new = self._ours_of(annotations)
        self._refuse_to_overwrite(new)
        # From now on some of the new names may be there, and all of the old ones still are.
        self._set_tags({DIGEST_TAG: PENDING} | _if_any(_WRITTEN_TAG, (self._earlier | new).tag))
        undeleted = self._write_files({name: annotations.files[name] for name in new.files})
        self._write_metrics({name: annotations.metrics[name] for name in new.metrics})
        tags = {f"health.{name}": annotations.tags[name] for name in new.tags}
        self._write_tags(tags | _if_any(_WRITTEN_TAG, (new | undeleted).tag))
        self._write_note(annotations.note)
        self._client.set_tag(self._id, VERDICT_TAG, str(annotations.verdict))
        self._client.set_tag(self._id, DIGEST_TAG, annotations.digest)

    def clear(self) -> Cleared:
        """Take everything of ours off the run; the tag that names it goes last but the digest."""
        if not is_annotated(self._tags) and not self._earlier.tag:
            return Cleared(found=False)
        self._set_tags({DIGEST_TAG: PENDING})
        undeleted = self._write_files({})
        hidden = self._write_metrics({})
        self._write_note("")
        if is_annotated(self._tags):
            self._delete_tags([VERDICT_TAG])
        self._write_tags({})
        self._delete_tags([DIGEST_TAG])
        kept = tuple(f"{HEALTH_FOLDER}/{name}" for name in sorted(undeleted.files))
        return Cleared(found=True, hidden=hidden, kept=kept)

    def _ours_of(self, annotations: Annotations) -> _Written:
        """The names to write: all but those of tags and metrics that are the user's."""
        metrics = {name for name, value in annotations.metrics.items() if math.isfinite(value)}
        tags = {name for name, value in annotations.tags.items() if value}
        return _Written(
            files=frozenset(annotations.files),
            metrics=frozenset(metrics - {name for name in metrics - self._earlier.metrics if self._is_shown(name)}),
            tags=frozenset(tags - {name for name in tags - self._earlier.tags if f"health.{name}" in self._tags}),
        ).recordable

    def _is_shown(self, metric: str) -> bool:
        """Whether the run has a metric of this name. One whose latest value is NaN may be one that we hid."""
        latest = self._latest.get(f"health/{metric}")
        return latest is not None and not math.isnan(latest.value)

    def _refuse_to_overwrite(self, new: _Written) -> None:
        """Raise for what cannot be left out: the verdict would be somebody else's, or the report."""
        if not is_annotated(self._tags) and not self._earlier.tag:
            for tag in (VERDICT_TAG, DIGEST_TAG, _WRITTEN_TAG):
                if tag in self._tags:
                    raise self._in_the_way(f"the tag {tag}")
        unknown = new.files - self._earlier.files
        if unknown:
            listed = {entry.path for entry in self._repository.list_artifacts(HEALTH_FOLDER)}
            for path in sorted(f"{HEALTH_FOLDER}/{name}" for name in unknown):
                if path in listed:
                    raise self._in_the_way(f"the artifact {printable(path)}")

    def _in_the_way(self, what: str) -> WriteError:
        message = f"{what} of MLflow run {self._id} exists and is not ours; nothing was written"
        return WriteError(message, "rename it, or take it off the run")

    @property
    def _repository(self) -> Any:
        return repository_of(self._run.info.artifact_uri, self._uri)

    def _write_files(self, files: Mapping[str, bytes]) -> _Written:
        """Write our files, and delete those that no longer hold. Gives the ones that the store would not delete."""
        stale = sorted(self._earlier.files - files.keys())
        if not files and not stale:
            return _Written()
        repository = self._repository
        if files:
            with tempfile.TemporaryDirectory(prefix="tracker-health-") as folder:
                for name, content in files.items():
                    Path(folder, name).write_bytes(content)
                repository.log_artifacts(folder, HEALTH_FOLDER)
        return _Written(files=frozenset(name for name in stale if not _deleted(repository, f"{HEALTH_FOLDER}/{name}")))

    def _write_metrics(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Write our metrics, and hide those that no longer hold; the names of the hidden ones."""
        from mlflow.entities import Metric

        # A metric cannot be deleted: a NaN as its latest point takes it off the run page and out of filters.
        wanted = {**metrics, **dict.fromkeys(self._earlier.metrics - metrics.keys(), math.nan)}
        now = int(time.time() * 1000)
        points = []
        for name, value in wanted.items():
            last = self._latest.get(f"health/{name}")
            if last is None and math.isnan(value):
                continue
            if last is not None and (last.value == value or (math.isnan(last.value) and math.isnan(value))):
                continue
            # Of two points at one step the later is the latest; of two at one time the larger, whichever was meant.
            timestamp = now if last is None else max(now, last.timestamp + 1)
            points.append(Metric(f"health/{name}", value, timestamp, 0 if last is None else last.step))
        if points:
            self._client.log_batch(self._id, metrics=points)
        return tuple(f"health/{name}" for name, value in sorted(wanted.items()) if math.isnan(value))

    def _write_tags(self, tags: Mapping[str, str]) -> None:
        self._set_tags(tags)
        earlier = {_WRITTEN_TAG, *(f"health.{name}" for name in self._earlier.tags)}
        self._delete_tags(sorted((earlier & self._tags.keys()) - tags.keys()))

    def _write_note(self, note: str) -> None:
        text = self._tags.get(NOTE_TAG, "")
        changed = with_note(text, note)
        if changed == text:
            return
        if changed:
            self._client.set_tag(self._id, NOTE_TAG, changed)
        else:
            self._delete_tags([NOTE_TAG])

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


@dataclass(frozen=True)
class _Written:
    """The names of our files, metrics and tags (without prefix) that a run bears."""

    files: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> _Written:
        """What a run's tags say, as far as it can be ours: anybody may have changed it."""
        if not is_annotated(tags) and _VERSION_TAG not in tags:
            return cls()
        try:
            document = json.loads(tags.get(_WRITTEN_TAG, "{}"))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            return cls()
        return cls(
            files=frozenset(name for name in _strings(document.get("files")) if _is_file_name(name)),
            metrics=frozenset(_strings(document.get("metrics"))),
            tags=frozenset(_strings(document.get("tags"))),
        )

    def __or__(self, other: _Written) -> _Written:
        return _Written(
            files=self.files | other.files, metrics=self.metrics | other.metrics, tags=self.tags | other.tags
        )

    @property
    def recordable(self) -> _Written:
        """As much of it as one tag takes. What is not recorded would be taken for the user's later."""
        files, metrics, tags = sorted(self.files), sorted(self.metrics), sorted(self.tags)
        while len(_document(files, metrics, tags)) > MAX_TAG_VALUE:
            (metrics or files or tags).pop()
        return _Written(files=frozenset(files), metrics=frozenset(metrics), tags=frozenset(tags))

    @property
    def tag(self) -> str:
        """For the tag's value; empty when there is nothing to record."""
        if not (self.files or self.metrics or self.tags):
            return ""
        kept = self.recordable
        return _document(sorted(kept.files), sorted(kept.metrics), sorted(kept.tags))


def _document(files: list[str], metrics: list[str], tags: list[str]) -> str:
    return json.dumps({"files": files, "metrics": metrics, "tags": tags})


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_file_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name


def _if_any(key: str, value: str) -> dict[str, str]:
    return {key: value} if value else {}


def _cut(value: str) -> str:
    return value if len(value) <= MAX_TAG_VALUE else f"{value[: MAX_TAG_VALUE - 1]}…"


def _deleted(repository: Any, path: str) -> bool:
    """Whether the artifact could be deleted. Not every store can, and not everybody who may write may delete."""
    with suppress(Exception):
        if is_local(repository):  # MLflow 2 deletes nothing but folders here
            Path(repository.artifact_dir, path).unlink(missing_ok=True)
        else:
            repository.delete_artifacts(path)
        return True
    return False
