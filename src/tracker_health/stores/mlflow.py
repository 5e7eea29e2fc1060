"""A run in MLflow: read by need only; the verdict becomes tags, metrics, artifacts and a block of the description."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.annotations import PENDING, Annotations
from tracker_health.errors import RunError, StoreRefused, WriteError
from tracker_health.evidence import Evidence, IntArray, Request, RunRef, Series, StepUnit
from tracker_health.roles import OBJECTIVE_LOSS, OWN_PREFIXES
from tracker_health.stores.base import Recorded
from tracker_health.stores.files import FileEvidence, relevant_files
from tracker_health.stores.mlflow_artifacts import HEALTH_FOLDER, ArtifactTree, is_local, repository_of
from tracker_health.stores.mlflow_connection import connect, shown, translated
from tracker_health.stores.note_block import with_note
from tracker_health.text import printable
from tracker_health.verdict import Verdict

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE_TAG = "mlflow.note.content"
MAX_TAG_VALUE = 5_000
"""Characters of a tag that we write. MLflow cuts at 8,000 without a word, older servers earlier."""

_DIGEST, _VERDICT, _VERSION = "health.digest", "health.verdict", "health.version"
_WRITTEN = "health.written"
"""Names of the files and metrics that we wrote, so that nobody else's ``health/...`` is ever taken for ours."""

_OWN_TAGS = frozenset({_VERSION, _WRITTEN, "health.codes", "health.symptoms", "health.summary"})
_LOSSES = frozenset({"train_loss", "val_loss", OBJECTIVE_LOSS})
_NO_RUN = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
# SQL and REST stores keep an infinity as the largest double.
_INFINITE = 1.79e308
# Params that the HF Trainer's callback logs, at the trainer's global step: a set that no other script has by chance.
_HF_PARAMS = frozenset({"output_dir", "num_train_epochs", "max_steps", "logging_steps", "save_strategy"})
_HF_METRIC = "train/global_step"


def open_mlflow_run(run_id: str, tracking_uri: str | None = None) -> MlflowRun:
    """The run of this id, found.

    Without a ``tracking_uri`` it is where MLflow itself would look (``MLFLOW_TRACKING_URI``, else its default).

    Raises:
        RunNotFound: no such run, database or folder; none is created.
        StoreUnavailable: the store does not answer, or its database needs another version of MLflow.
        StoreRefused: no permission.
        MissingExtra: mlflow is not installed.
    """
    client, uri = connect(tracking_uri)
    return MlflowRun(client, uri, _fetched(client, uri, run_id))


def _fetched(client: MlflowClient, uri: str, run_id: str) -> Any:
    with translated(f"MLflow run {printable(run_id, 80)}", uri, absent=_NO_RUN):
        return client.get_run(run_id)


class MlflowRun:
    """A run that is tracked in MLflow, as it was when opened."""

    def __init__(self, client: MlflowClient, uri: str, run: Any) -> None:
        self._client = client
        self._uri = uri
        self._run = run
        self._artifacts = ArtifactTree(client, run, uri)

    @cached_property
    def ref(self) -> RunRef:
        info = self._run.info
        server = shown(self._uri).rstrip("/") if self._uri.startswith(("http://", "https://")) else None
        return RunRef(
            store="mlflow",
            id=info.run_id,
            name=info.run_name or info.run_id,
            url=f"{server}/#/experiments/{info.experiment_id}/runs/{info.run_id}" if server else None,
        )

    def fingerprint(self, request: Request) -> str:
        """From the run's record and, where reading would open them, the artifacts' paths and sizes: 16 hex digits."""
        latest = [self._latest[name] for name in self._names]
        points = [[point.key, point.step, point.timestamp, _value(point.value)] for point in latest]
        content: list[Any] = [self._run.info.status, self._run.info.end_time, points, len(self._run.data.params)]
        if self._needs_files(request):
            content.append([[file.path, file.size] for file in relevant_files(self._artifacts)])
            content.append(bool(self._artifacts.problem))
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        """What the request needs: only those metric histories, and artifacts only if they can add to it."""
        roles = request.select_names(self._names)
        series = [self._history(name, roles[name]) for name in self._names if name in roles]
        logs = _LOSSES.isdisjoint(roles.values())
        found = self._artifacts.evidence(request, logs=logs) if self._needs_files(request) else FileEvidence()
        info = found.info(self._run.info.status)
        return Evidence(
            run=self.ref,
            info=replace(
                info,
                params={**info.params, **self._run.data.params},
                metric_names=tuple(dict.fromkeys([*self._names, *info.metric_names])),
            ),
            series=(*series, *found.series),
            optimizer=found.optimizer,
            weights=found.weights,
            dlm_step_log=found.dlm_step_log,
            dlm_checkpoint=found.dlm_checkpoint,
            problems=tuple(found.problems),
            missing=found.missing if series or found.series else {**found.missing, **self._why_no_metrics()},
        )

    def close(self) -> None:
        """Delete what was downloaded."""
        self._artifacts.close()

    def recorded(self) -> Recorded | None:
        tags = self._run.data.tags
        if _DIGEST not in tags:
            return None
        verdict = tags.get(_VERDICT)
        return Recorded(digest=tags[_DIGEST], verdict=Verdict(verdict) if verdict in set(Verdict) else None)

    def write(self, annotations: Annotations) -> None:
        """Make the run bear these annotations and no older ones. Nothing changes that is not ours.

        Raises:
            StoreRefused: no permission, or the run is deleted (nothing is written then).
            WriteError: something could not be written; the digest then says ``pending``.
        """
        self._refresh()
        # Of a deleted run MLflow refuses tags, but takes artifacts.
        if self._run.info.lifecycle_stage == "deleted":
            raise StoreRefused(f"MLflow run {self.ref.id} is deleted", f"mlflow runs restore --run-id {self.ref.id}")
        doing = f"the verdict could not be written onto MLflow run {self.ref.id}"
        with translated(doing, self._uri, otherwise=WriteError):
            _Writer(self._client, self._run, self._uri).write(annotations)
        self._refresh()

    def _refresh(self) -> None:
        self._run = _fetched(self._client, self._uri, self._run.info.run_id)
        self.__dict__.pop("_latest", None)
        self.__dict__.pop("_names", None)

    @cached_property
    def _latest(self) -> dict[str, Any]:
        return _latest_points(self._run)

    @cached_property
    def _names(self) -> list[str]:
        return sorted(name for name in self._latest if _is_theirs(name))

    def _needs_files(self, request: Request) -> bool:
        return bool(request.parts) or _LOSSES.isdisjoint(request.select_names(self._names).values())

    def _history(self, name: str, role: str) -> Series:
        with translated(f"the history of the metric {printable(name)} could not be read", self._uri):
            points = self._client.get_metric_history(self._run.info.run_id, name)
        steps = np.array([point.step for point in points], dtype=np.int64)
        values = np.array([_value(point.value) for point in points], dtype=np.float64)
        times = np.array([point.timestamp for point in points], dtype=np.float64) / 1000
        unit = StepUnit.OPTIMIZER_STEP if self._is_hf_trainer else StepUnit.UNKNOWN
        if _has_no_steps(steps):
            order = np.argsort(times, kind="stable")
            steps, values, times = np.arange(len(order), dtype=np.int64), values[order], times[order]
            unit = StepUnit.LOG_CALL
        return Series(name=name, role=role, source="MLflow", steps=steps, values=values, times=times, step_unit=unit)

    @property
    def _is_hf_trainer(self) -> bool:
        return _HF_METRIC in self._latest or self._run.data.params.keys() >= _HF_PARAMS

    def _why_no_metrics(self) -> Mapping[str, str]:
        info = self._run.info
        # Only a better reason: without an answer the engine gives its own.
        with suppress(RunError), translated("the runs below it could not be looked up", self._uri):
            below = f"tags.mlflow.parentRunId = '{info.run_id}'"
            if not self._names and self._client.search_runs([info.experiment_id], below, max_results=1):
                return {"train_loss": "parent run: it has no metrics of its own"}
        return {}


def _latest_points(run: Any) -> dict[str, Any]:
    """Per metric its latest point: key, value, timestamp (ms) and step; ``run.data.metrics`` has only the value."""
    return {metric.key: metric for metric in run.data.to_proto().metrics}


def _is_theirs(name: str) -> bool:
    return not name.startswith(OWN_PREFIXES)


def _value(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= _INFINITE else value


def _has_no_steps(steps: IntArray) -> bool:
    """Whether the points were logged without a step: MLflow then puts all of them at one."""
    return len(steps) > 1 and bool((steps == steps[0]).all())


# Writing


@dataclass(frozen=True)
class _Written:
    """The names of our files and metrics (without prefix) that a run bears."""

    files: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> _Written:
        """What the tag says, as far as it can be ours: anybody may have changed it."""
        if _DIGEST not in tags and _VERSION not in tags:
            return cls()
        try:
            document = json.loads(tags.get(_WRITTEN, "{}"))
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            return cls()
        return cls(
            files=frozenset(name for name in _strings(document.get("files")) if _is_file_name(name)),
            metrics=frozenset(_strings(document.get("metrics"))),
        )

    def __or__(self, other: _Written) -> _Written:
        return _Written(files=self.files | other.files, metrics=self.metrics | other.metrics)

    @property
    def tag(self) -> str:
        """For the tag's value: as many of the names as it takes, empty when there are none."""
        files, metrics = sorted(self.files), sorted(self.metrics)
        while files or metrics:
            text = json.dumps({"files": files, "metrics": metrics})
            if len(text) <= MAX_TAG_VALUE:
                return text
            (metrics or files).pop()
        return ""


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _is_file_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name


class _Writer:
    """One writing of annotations onto one run, whose record is fresh."""

    def __init__(self, client: MlflowClient, run: Any, uri: str) -> None:
        self._client = client
        self._run = run
        self._id = run.info.run_id
        self._uri = uri
        self._tags: Mapping[str, str] = run.data.tags
        self._earlier = _Written.of(self._tags)

    def write(self, annotations: Annotations) -> None:
        """The digest ``pending`` first, the digest itself last: with any other digest a run is completely annotated."""
        new = _Written(files=frozenset(annotations.files), metrics=frozenset(annotations.metrics))
        # From now on some of the new names may be there, and all of the old ones still are.
        self._set_tags({_DIGEST: PENDING} | _if_any(_WRITTEN, (self._earlier | new).tag))
        undeleted = self._write_files(annotations.files)
        self._write_metrics(annotations.metrics)
        tags = {f"health.{key}": value for key, value in annotations.tags.items() if value}
        self._write_tags(tags | _if_any(_WRITTEN, (new | undeleted).tag))
        self._write_note(annotations.note)
        self._client.set_tag(self._id, _VERDICT, str(annotations.verdict))
        self._client.set_tag(self._id, _DIGEST, annotations.digest)

    def _write_files(self, files: Mapping[str, bytes]) -> _Written:
        """Write our files, and delete those that no longer hold. Gives the ones that the store would not delete."""
        stale = sorted(self._earlier.files - files.keys())
        if not files and not stale:
            return _Written()
        repository = repository_of(self._run.info.artifact_uri, self._uri)
        if files:
            with tempfile.TemporaryDirectory(prefix="tracker-health-") as folder:
                for name, content in files.items():
                    Path(folder, name).write_bytes(content)
                repository.log_artifacts(folder, HEALTH_FOLDER)
        return _Written(files=frozenset(name for name in stale if not _deleted(repository, f"{HEALTH_FOLDER}/{name}")))

    def _write_metrics(self, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        latest = _latest_points(self._run)
        wanted = {name: value for name, value in metrics.items() if math.isfinite(value)}
        # A metric cannot be deleted: a NaN as its latest point takes it off the run page and out of filters.
        wanted |= dict.fromkeys(self._earlier.metrics - wanted.keys(), math.nan)
        now = int(time.time() * 1000)
        points = []
        for name, value in wanted.items():
            last = latest.get(f"health/{name}")
            if last is None and math.isnan(value):
                continue
            if last is not None and (last.value == value or (math.isnan(last.value) and math.isnan(value))):
                continue
            # Of two points at one step the later is the latest; of two at one time the larger, whichever was meant.
            timestamp = now if last is None else max(now, last.timestamp + 1)
            points.append(Metric(f"health/{name}", value, timestamp, 0 if last is None else last.step))
        if points:
            self._client.log_batch(self._id, metrics=points)

    def _write_tags(self, tags: Mapping[str, str]) -> None:
        self._set_tags(tags)
        if _DIGEST in self._tags or _VERSION in self._tags:
            self._delete_tags(key for key in _OWN_TAGS - tags.keys() if key in self._tags or key == _WRITTEN)

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
