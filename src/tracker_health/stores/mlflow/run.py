"""A run in MLflow: read by need only; the verdict becomes tags, metrics, artifacts and a block of the description."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import (
    UNREADABLE,
    ReadError,
    RunError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    WriteError,
)
from tracker_health.evidence import Children, Evidence, FloatArray, IntArray, Pulse, Request, RunRef, Series, StepUnit
from tracker_health.judge.annotations import PICTURE_FILE
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS
from tracker_health.report.resume_point import Shelf
from tracker_health.roles import OWN_PREFIXES
from tracker_health.run_files.reading import opened_files
from tracker_health.run_files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.record import Written, is_annotated
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.mlflow.batch import Batch
from tracker_health.stores.mlflow.children import children_of
from tracker_health.stores.mlflow.connection import command_on, connect, folder_of, moved, refuse_copy, why_read_itself
from tracker_health.stores.mlflow.failures import shown, translated
from tracker_health.stores.mlflow.histories import read_history
from tracker_health.stores.mlflow.last_activity import in_seconds, last_heard_of, pulse_of
from tracker_health.stores.mlflow.marks import Kept, MlflowMarks, called, latest_points, remove_tag
from tracker_health.stores.mlflow.old_database import copy_of
from tracker_health.stores.mlflow.own_axes import Count, is_count, on_own_axes
from tracker_health.stores.mlflow.stored_files.all_checkpoints import saved_by
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree
from tracker_health.stores.mlflow.stored_files.health_folder import IMAGES_TAG, HealthFolder
from tracker_health.stores.mlflow.stored_files.store_files import require_plain_run
from tracker_health.stores.remote.reasons import TORN, TORN_HINT
from tracker_health.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_MOST_OF_A_SEARCH = 20  # metrics of its own
_LIVE = frozenset({"RUNNING", "SCHEDULED"})
_OF_THIS_MACHINE = ("sqlite:", "file:")
# A run that was heard of in this time needs no runs below it to be alive; of these so many are asked.
_QUIET_SECONDS, _MOST_BELOW = 60.0, 200
_NO_RUN = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})
# SQL and REST stores keep an infinity as the largest double.
_INFINITE = 1.79e308
# Params that the HF Trainer's callback logs, at the trainer's global step: a set that no other script has by chance.
_HF_PARAMS = frozenset({"output_dir", "num_train_epochs", "max_steps", "logging_steps", "save_strategy"})
_HF_METRIC = "train/global_step"
_OF_THE_MACHINE = "system/"


def open_mlflow_run(
    run_id: str, tracking_uri: str | None = None, experiment_id: str = "", *, pasted: bool = False
) -> MlflowRun:
    """The run of this id, found. ``experiment_id``: the one that its address names; ``pasted``: that the server is out
    of such an address, too: see ``connect``.

    Without a ``tracking_uri`` it is where MLflow itself would look (``MLFLOW_TRACKING_URI``, else its default).

    Raises:
        RunNotFound: no such run, database or folder; none is created.
        StoreUnavailable: the store does not answer, or its database needs another version of MLflow.
        StoreRefused: no permission.
        MissingExtra: mlflow is not installed.
    """
    client, uri = connect(tracking_uri, pasted=pasted)
    return MlflowRun(client, uri, _fetched(client, uri, run_id), experiment_id)


def _fetched(client: MlflowClient, uri: str, run_id: str) -> Any:
    if folder := folder_of(uri):
        require_plain_run(folder, run_id)
    try:
        with translated(doing := f"MLflow run {printable(run_id, 80)}", uri, absent=_NO_RUN):
            found = client.get_run(run_id)
        if found.info.run_id != run_id:
            raise StoreUnavailable(f"{doing} ({shown(uri)}): {TORN}", TORN_HINT)
        return moved(found, uri)
    except RunNotFound as error:
        if hint := hint_on_id(run_id):
            raise RunNotFound(error.message, hint) from None
        raise


@lru_cache(maxsize=256)
def _experiment_name(client: MlflowClient, experiment_id: str) -> str:
    """The name of an experiment, asked for once."""
    return str(client.get_experiment(experiment_id).name)


def hint_on_id(text: str) -> str:
    """What to try instead of something that is nearly the id of a run; empty for what is not."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) and text != text.lower():
        return f"ids of runs are in lower case: {text.lower()}"
    if re.fullmatch(r"[0-9a-fA-F]{6,31}", text):
        return "no run's id begins so: is it of another server? Then give that as --tracking-uri"
    return ""


class MlflowRun(TrackedRun):
    """A run that is tracked in MLflow, as it was when opened."""

    is_whole = False
    is_charted = True
    note = "block"

    def __init__(
        self,
        client: MlflowClient,
        uri: str,
        run: Any,
        addressed: str = "",
        batch: Batch | None = None,
    ) -> None:
        self._client = client
        self._batch = batch
        self._uri = uri
        self._run = run
        self._addressed = addressed
        self._kept = Kept()
        self._artifacts = ArtifactTree(client, run, uri, None if batch is None else batch.empty_runs)

    @cached_property
    def record(self) -> RunRecord:
        return RunRecord(
            ref=ref_of(self._run, self._uri),
            shown=f"MLflow run {self._run.info.run_id}",
            marks=lambda: self._marks,
            identity=self._run.info.run_id,
            naming=called,
            traits=self._traits,
            remarks=self._remarks,
            heard=self._heard,
            pulse=self._pulse,
            is_over=self._run.info.status in _ENDED,
            last_step=last_step_of(self._run),
            state=lambda: state_of(self._run),
            evidence=lambda: state_of(self._run),
            shared=self._is_shared(),
        )

    def look(self) -> None:
        self._run = _fetched(self._client, self._uri, self._run.info.run_id)
        for name in ("record", "_marks", "_latest", "_names", "_last_below"):
            self.__dict__.pop(name, None)

    def _traits(self) -> Mapping[str, str]:
        """The experiment's name and the run's tags, without ours."""
        with translated("the experiment of the run could not be read", self._uri):
            name = _experiment_name(self._client, str(self._run.info.experiment_id))
        tags = {f"tag:{key}": value for key, value in self._run.data.tags.items() if _is_theirs(key)}
        return {"experiment": name, **tags}

    @property
    def _experiment(self) -> str:
        """The name of its experiment; "" where that cannot be read, since no verdict depends on it."""
        with suppress(Exception):  # whatever a store's own library raises
            return _experiment_name(self._client, str(self._run.info.experiment_id))
        return ""

    def _remarks(self) -> tuple[str, ...]:
        """That it is deleted, in another experiment than its address says, or has artifacts out of reach."""
        info, remarks = self._run.info, []
        if info.lifecycle_stage == "deleted":
            remarks.append("the run is deleted")
        if self._addressed not in ("", info.experiment_id):
            address = printable(self._addressed, 40)
            remarks.append(f"the run is in the experiment {info.experiment_id}, not in {address} as its address says")
        if copy_of(self._uri):
            remarks.append("the database is of an older MLflow: a copy of it was upgraded and read")
        if why := why_read_itself(self._uri):
            remarks.append(f"the database has a log or journal and was read itself, which may change its files: {why}")
        if self._artifacts.apart:
            remarks.append(self._artifacts.apart)
        return tuple(remarks)

    def _is_shared(self) -> bool:
        """Whether the store is no file of this machine."""
        is_databricks = self._uri.partition(":")[0] == "databricks"  # also without a profile, which has no //
        return is_databricks or (not self._uri.startswith(_OF_THIS_MACHINE) and "://" in self._uri)

    def _heard(self) -> float | None:
        """When a run that claims to be running, or a run below it, logged its last metric, or began."""
        if self._run.info.status not in _LIVE:
            return None
        own = last_heard(self._run) / 1000
        return own if time.time() - own < _QUIET_SECONDS else self._heard_below(own)

    def _pulse(self) -> Pulse:
        """Of a run that claims to be running, the points of the runs below it count as its own."""
        points, vital = _last_times(self._run)
        if points is not None and self._run.info.status in _LIVE and time.time() - points > _QUIET_SECONDS:
            below = self._last_below
            points = None if below is None else max(points, below)
        return Pulse(points=points, vital=vital)

    def _heard_below(self, own: float) -> float | None:
        """The same of the runs below it; None where these cannot be asked. A search may log nothing itself for as long
        as its trials go on.
        """
        return None if self._last_below is None else max(own, self._last_below)

    @cached_property
    def _last_below(self) -> float | None:
        """When one of the runs below it that began last was heard of, 0 where there are none."""
        info = self._run.info
        with suppress(*UNREADABLE), translated("the runs below it could not be looked up", self._uri, ReadError):
            below = f"tags.mlflow.parentRunId = '{info.run_id}'"
            order = ["attributes.start_time DESC"]
            found = self._client.search_runs([info.experiment_id], below, max_results=_MOST_BELOW, order_by=order)
            return max([0.0, *(max(last_heard(run), run.info.end_time or 0) / 1000 for run in found)])
        return None

    def fingerprint(self, request: Request) -> str:
        """From the run's record and, where reading would open them, the artifacts' paths and sizes: 16 hex digits."""
        content: list[Any] = [self._status, self._run.info.end_time, self._points, len(self._run.data.params)]
        if self._children is not None:
            content.append(str(self._children))
        if self._needs_files(request):
            content.append([[file.path, file.size] for file in self._opened(request)])
            content.append(bool(self._artifacts.problem))
        if stopped := self.stopped():
            content.append(stopped)
        return _digest_of(content)

    @property
    def _points(self) -> list[list[Any]]:
        return _points_of(self._latest)

    @property
    def _status(self) -> str:
        """MLflow's word for the run's state, or that Optuna's callback calls it a trial that was pruned."""
        tags = self._run.data.tags
        pruned = tags.get("state") == "PRUNED" and "datetime_start" in tags
        return "PRUNED" if pruned else str(self._run.info.status)

    def read(self, request: Request) -> Evidence:
        """What the request needs: only those metric histories, and artifacts only if they can add to it."""
        decided = request.roles.of(self._names)
        roles, logs = decided.needed, not decided.has_loss
        found = self._artifacts.evidence(request, logs=logs) if self._needs_files(request) else FileEvidence()
        series = [one for name in self._names if name in roles for one in self._history(name, roles[name], found)]
        series = on_own_axes(series, self._counts, self._run.data.params)
        has_history = bool(found.series) or any(len(one) > 1 for one in series)
        children = None if has_history else self._children
        if children is not None:
            series = []  # what a search has of its best trial is no training of its own
            found.missing["train_loss"] = f"parent run: it has no history of its own; below it {children}"
        return found.evidence(
            self.ref,
            request,
            Tracked(
                status=self._status,
                tracker="MLflow",
                stopped=self.stopped(),
                params=self._run.data.params,
                names=self._names,
                series=series,
                children=children,
                experiment=self._experiment,
                started=in_seconds(self._run.info.start_time),
                ended=in_seconds(self._run.info.end_time),
            ),
        )

    def saved(self, request: Request) -> Shelf | None:
        """Those among its artifacts, and the models that it logged."""
        self._artifacts.limit_to(request.max_download)
        return saved_by(self._client, self._uri, self._run, self._artifacts, request.max_download)

    def bytes_of_files(self, request: Request) -> int:
        """How much of its files judging the run could read, at most."""
        return sum(file.size for file in self._opened(request)) if self._needs_files(request) else 0

    def _opened(self, request: Request) -> tuple[RunFile, ...]:
        logs = not request.roles.of(self._names).has_loss
        return opened_files(self._artifacts, logs=logs)

    def close(self) -> None:
        """Delete what was downloaded."""
        self._artifacts.close()
        if self._batch:
            self._batch.histories.forget(self._run.info.run_id)

    # Ours

    @contextmanager
    def writing(self, doing: str, *, live: bool = False) -> Iterator[None]:  # noqa: ARG002 - a tag is taken any time
        self.look()
        self._require_active()
        with translated(doing, self._uri, otherwise=WriteError):
            yield

    @cached_property
    def _marks(self) -> MlflowMarks:
        return MlflowMarks(self._client, self._run, self._kept, at_once=folder_of(self._uri) is None)

    def set_marks(self, changes: Mapping[str, Any]) -> frozenset[str]:
        return self._marks.change(changes)

    @cached_property
    def _own_files(self) -> HealthFolder:
        return HealthFolder(self.record.shown, self._run.info.artifact_uri, self._uri)

    def _reaching_files(self, otherwise: type[RunError] = ReadError) -> AbstractContextManager[None]:
        at = self._run.info.artifact_uri
        return translated("its files could not be written", self._uri, otherwise=otherwise, at=at)

    def list_files(self) -> Mapping[str, str]:
        if self._artifacts.lacks_our_folder and not is_annotated(self._marks):  # known since it was judged
            return {}
        with self._reaching_files():
            return dict.fromkeys(self._own_files.listed(Written.of(self._marks).all_files), "")

    def get_file(self, name: str, limit: int) -> bytes:
        with self._reaching_files():
            return self._own_files.read(name, limit)

    def put_files(self, files: Mapping[str, bytes]) -> None:
        with self._reaching_files(WriteError):
            self._own_files.upload(files)

    def delete_files(self, names: Iterable[str]) -> frozenset[str]:
        gone = frozenset(names)
        left = self._own_files.delete(gone)
        if IMAGES_TAG not in self._run.data.tags and PICTURE_FILE not in gone:
            return left
        pictures, alone = self._own_files.remove_picture()
        if alone:  # by this tag MLflow's pages look for images
            remove_tag(self._client, self._run.info.run_id, IMAGES_TAG)
        return left | pictures

    def _require_active(self) -> None:
        refuse_copy(self._uri)
        # Of a deleted run MLflow refuses tags, but takes artifacts.
        info = self._run.info
        if info.lifecycle_stage != "deleted":
            return
        with translated("the experiment of the run could not be read", self._uri):
            stage = self._client.get_experiment(info.experiment_id).lifecycle_stage
        if stage == "deleted":
            command = command_on(self._uri, f"mlflow experiments restore --experiment-id {info.experiment_id}")
            raise StoreRefused(
                f"MLflow run {info.run_id} is deleted, with its experiment {info.experiment_id}", command
            )
        command = command_on(self._uri, f"mlflow runs restore --run-id {info.run_id}")
        raise StoreRefused(f"MLflow run {info.run_id} is deleted", command)

    @cached_property
    def _latest(self) -> dict[str, Any]:
        return latest_points(self._run)

    @cached_property
    def _names(self) -> list[str]:
        return _metric_names(self._latest)

    @property
    def _counts(self) -> list[Count]:
        named = ((name, self._latest[name]) for name in self._names if is_count(name))
        return [Count(name, point.step, point.value) for name, point in named]

    def _needs_files(self, request: Request) -> bool:
        return bool(request.parts) or not request.roles.of(self._names).has_loss

    def _history(self, name: str, role: str, found: FileEvidence) -> list[Series]:
        """A metric's history; none, and a problem, where it is too long to be read."""
        run_id, batch = self._run.info.run_id, self._batch
        doing = f"the history of the metric {printable(name)} could not be read"
        try:
            with translated(doing, self._uri):
                points = batch.histories.read(run_id, name) if batch else read_history(self._client, run_id, name)
        except ReadError as error:
            found.cannot_read(f"metric {name}", error, [role])
            return []
        if not len(points.steps) or points.steps.max() < self._latest[name].step:  # the record has its last one
            raise StoreUnavailable(f"{doing} ({shown(self._uri)}): {TORN}", TORN_HINT)
        hf = is_hf_trainer(self._latest, self._run.data.params)
        return [history_series(name, role, points.steps, points.values, points.times, source="MLflow", hf=hf)]

    @cached_property
    def _children(self) -> Children | None:
        """How the runs below a run without a history fared; None where there are none, or they cannot be looked up.

        A search that says how its best trial did has a few metrics without a step.
        """
        if len(self._names) > _MOST_OF_A_SEARCH or any(self._latest[name].step for name in self._names):
            return None
        with suppress(*UNREADABLE), translated("the runs below it could not be looked up", self._uri, ReadError):
            return children_of(self._client, self._run)
        return None


def ref_of(run: Any, uri: str) -> RunRef:
    """The reference to a run, by its record."""
    info = run.info
    server = shown(uri).rstrip("/") if uri.startswith(("http://", "https://")) else None
    return RunRef(
        store="mlflow",
        id=info.run_id,
        name=info.run_name or info.run_id,
        url=f"{server}/#/experiments/{info.experiment_id}/runs/{info.run_id}" if server else None,
    )


def history_series(
    name: str, role: str, steps: IntArray, values: FloatArray, times: FloatArray, *, source: str, hf: bool
) -> Series:
    """A metric's points as a series. ``hf``: the HF Trainer logged them."""
    values = np.where(np.abs(values) >= _INFINITE, np.copysign(np.inf, values), values)
    unit = StepUnit.OPTIMIZER_STEP if hf else StepUnit.UNKNOWN
    if _has_no_steps(steps):
        order = np.argsort(times, kind="stable")
        steps, values, times = np.arange(len(order), dtype=np.int64), values[order], times[order]
        unit = StepUnit.LOG_CALL
    return Series(name=name, role=role, source=source, steps=steps, values=values, times=times, step_unit=unit)


def state_of(record: Any) -> str:
    """How far a run has come, by its record: 16 hexadecimal digits."""
    info = record.info
    ended = [info.status, info.end_time] if info.status in _ENDED else []
    return _digest_of([ended, _points_of(latest_points(record))])


def _points_of(latest: Mapping[str, Any]) -> list[list[Any]]:
    """Name, step, time and value of the last point of each of the owner's metrics."""
    points = [latest[name] for name in _metric_names(latest)]
    return [[point.key, point.step, point.timestamp, _value(point.value)] for point in points]


def _metric_names(latest: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in latest if _is_theirs(name) and len(name) <= MAX_NAME_CHARACTERS)


def is_hf_trainer(metrics: Container[str], params: Mapping[str, str]) -> bool:
    """Whether metrics and params are those that the HF Trainer's callback logs."""
    return _HF_METRIC in metrics or params.keys() >= _HF_PARAMS


def last_heard(record: Any) -> int:
    """When a run logged its last metric, or began, in ms; of its artifacts MLflow does not say when they came."""
    times = (point.timestamp for name, point in latest_points(record).items() if _is_theirs(name))
    return int(1000 * (last_heard_of(record.info.start_time, times) or 0))


def last_point(record: Any) -> float | None:
    """When a run logged its last metric, those of the machine aside, in seconds since 1970; None without any."""
    return _last_times(record)[0]


def _last_times(record: Any) -> tuple[float | None, float | None]:
    theirs = {name: point for name, point in latest_points(record).items() if _is_theirs(name)}
    return pulse_of({name: in_seconds(point.timestamp) for name, point in theirs.items()})


def last_step_of(record: Any) -> int | None:
    """The last step at which a run has a metric; None without any. Those of the machine are counted on their own."""
    steps = (
        point.step
        for name, point in latest_points(record).items()
        if _is_theirs(name) and not name.startswith(_OF_THE_MACHINE)
    )
    return max(steps, default=None)


def _digest_of(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_theirs(name: str) -> bool:
    return not name.startswith(OWN_PREFIXES)


def _value(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= _INFINITE else value


def _has_no_steps(steps: IntArray) -> bool:
    """Whether the points were logged without a step: MLflow then puts all of them at one."""
    return len(steps) > 1 and bool((steps == steps[0]).all())
