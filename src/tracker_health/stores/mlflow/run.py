"""A run in MLflow: read by need only; the verdict becomes tags, metrics, artifacts and a block of the description."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracker_health.errors import (
    UNREADABLE,
    ReadError,
    RunNotFound,
    StoreRefused,
    StoreUnavailable,
    WriteError,
)
from tracker_health.evidence import Children, Evidence, FloatArray, IntArray, Request, RunRef, Series, StepUnit
from tracker_health.judge.annotations import NOTIFIED, Annotations, Shadow
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS
from tracker_health.report.resume_point import Shelf
from tracker_health.roles import OWN_PREFIXES
from tracker_health.stores.base import Cleared, Ours, Recorded, WrittenInPart
from tracker_health.stores.common.exits import ending_seen
from tracker_health.stores.common.ownership import in_the_way
from tracker_health.stores.common.record import (
    EXIT_TAG,
    NOTIFIED_TAG,
    SHADOW_TAG,
    Written,
    changed_marks,
    entries_on,
    notified_on,
    ours_on,
    recorded_on,
    shadow_on,
)
from tracker_health.stores.files.reading import opened_files
from tracker_health.stores.files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.mlflow import last_word
from tracker_health.stores.mlflow.acknowledgement_tags import MlflowMarks, remove_tag
from tracker_health.stores.mlflow.batch import Batch
from tracker_health.stores.mlflow.children import children_of
from tracker_health.stores.mlflow.connection import command_on, connect, folder_of, moved, refuse_copy, why_read_itself
from tracker_health.stores.mlflow.failures import shown, translated
from tracker_health.stores.mlflow.histories import read_history
from tracker_health.stores.mlflow.last_activity import in_seconds, last_heard_of
from tracker_health.stores.mlflow.old_database import copy_of
from tracker_health.stores.mlflow.stored_files.all_checkpoints import saved_by
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree
from tracker_health.stores.mlflow.stored_files.store_files import require_plain_run
from tracker_health.stores.mlflow.writer import MlflowWriter, latest_points
from tracker_health.stores.remote.reasons import TORN, TORN_HINT
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement, on_evidence
from tracker_health.words.gap_names import LIVE_TAG, LIVE_WORDS, STOP_TAG, STOPPED_TAG
from tracker_health.words.stopped import stop_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
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
    asked = last_word.question("mlflow/runs/get", run_id=run_id)
    try:
        with translated(doing := f"MLflow run {printable(run_id, 80)}", uri, absent=_NO_RUN, asked=asked):
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
    """The name of an experiment, asked for once; "" where that cannot be read, since no verdict depends on it."""
    try:
        return str(client.get_experiment(experiment_id).name)
    except Exception:  # noqa: BLE001  whatever a store's own library raises
        return ""


def hint_on_id(text: str) -> str:
    """What to try instead of something that is nearly the id of a run; empty for what is not."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", text) and text != text.lower():
        return f"ids of runs are in lower case: {text.lower()}"
    if re.fullmatch(r"[0-9a-fA-F]{6,31}", text):
        return "this looks like the beginning of a run's id: give all of its 32 characters"
    return ""


class MlflowRun:
    """A run that is tracked in MLflow, as it was when opened."""

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
        self._artifacts = ArtifactTree(client, run, uri, None if batch is None else batch.empty_runs)

    @cached_property
    def ref(self) -> RunRef:
        return ref_of(self._run, self._uri)

    def traits(self) -> Mapping[str, str]:
        """The experiment's name and the run's tags, without ours."""
        with translated("the experiment of the run could not be read", self._uri):
            name = self._client.get_experiment(self._run.info.experiment_id).name
        tags = {f"tag:{key}": value for key, value in self._run.data.tags.items() if _is_theirs(key)}
        return {"experiment": name, **tags}

    def remarks(self) -> tuple[str, ...]:
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

    @property
    def shared(self) -> bool:
        """Whether the store is no file of this machine."""
        is_databricks = self._uri.partition(":")[0] == "databricks"  # also without a profile, which has no //
        return is_databricks or (not self._uri.startswith(_OF_THIS_MACHINE) and "://" in self._uri)

    def heard(self) -> float | None:
        """When a run that claims to go on, or a run below it, logged its last metric, or began."""
        if self._run.info.status not in _LIVE:
            return None
        own = last_heard(self._run) / 1000
        return own if time.time() - own < _QUIET_SECONDS else self._heard_below(own)

    def _heard_below(self, own: float) -> float | None:
        """The same of the runs below it that began last; None where these cannot be asked. A search may log nothing
        itself for as long as its trials go on.
        """
        info = self._run.info
        doing, asked = "the runs below it could not be looked up", last_word.search("mlflow/runs/search")
        with suppress(*UNREADABLE), translated(doing, self._uri, ReadError, asked=asked):
            below = f"tags.mlflow.parentRunId = '{info.run_id}'"
            order = ["attributes.start_time DESC"]
            found = self._client.search_runs([info.experiment_id], below, max_results=_MOST_BELOW, order_by=order)
            return max([own, *(max(last_heard(run), run.info.end_time or 0) / 1000 for run in found)])
        return None

    def exit(self) -> str:
        return str(self._run.data.tags.get(EXIT_TAG, ""))

    def stopped(self) -> str:
        text = str(self._run.data.tags.get(STOPPED_TAG, ""))
        return text if stop_of(text) is not None else ""

    def notified(self) -> str:
        return notified_on(self._run.data.tags)

    def why_not_asked(self) -> str:
        return ""

    def asked_to_stop(self) -> bool:
        return bool(self._run.data.tags.get(STOP_TAG))

    def ask_to_stop(self, request: str) -> None:
        """Set the tag ``health.stop``, unless somebody has done so by hand.

        Raises:
            StoreRefused: no permission, or the run is deleted.
            WriteError: the tag could not be written.
        """
        self.refresh()
        self._require_active()
        there = self._run.data.tags.get(STOP_TAG, "")
        if there and stop_of(there) is None:
            return
        self._set_tag(STOP_TAG, request)

    def last_step(self) -> int | None:
        return last_step_of(self._run)

    def state(self) -> str:
        """From the last point of each metric, and from how its owner ended the run: 16 hexadecimal digits."""
        return state_of(self._run)

    def is_in_state(self, state: str) -> bool:
        return state == self.state()

    def evidence(self) -> str:
        return self.state()

    def acknowledgements(self) -> tuple[Acknowledgement, ...]:
        return on_evidence(entries_on(self._run.data.tags), self.evidence())

    def shadow(self) -> Shadow | None:
        return shadow_on(self._run.data.tags)

    def ours(self) -> Ours:
        return ours_on(self._run.data.tags)

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
        children = None if series or found.series else self._children
        if children is not None:
            found.missing["train_loss"] = f"parent run: it has no metrics of its own; below it {children}"
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
                experiment=_experiment_name(self._client, str(self._run.info.experiment_id)),
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

    def recorded(self) -> Recorded | None:
        return recorded_on(self._run.data.tags)

    def write(self, annotations: Annotations) -> tuple[str, ...]:
        """Make the run have these annotations and no older ones. Nothing changes that is not ours.

        Gives what was left out because something of the user's has its name or its room.

        Raises:
            StoreRefused: no permission, or the run is deleted (nothing is written then).
            WrittenInPart: all but the files, or but the description, was written.
            WriteError: something of the user's is in the way (nothing is written then), or another annotator is at
                work. Or something could not be written (the digest then says ``pending``).
        """
        self.refresh()
        self._require_active()
        doing = f"the verdict could not be written onto MLflow run {self.ref.id}"
        try:
            with translated(doing, self._uri, otherwise=WriteError):
                omitted = MlflowWriter(self._client, self._run, self._uri).write(annotations)
                if self._run.info.status in _ENDED:
                    self._take_mark_off()
        except WrittenInPart:
            self.refresh()
            raise
        self.refresh()
        self.settle(time.time())  # somebody may have answered meanwhile
        return omitted

    def acknowledge(self, entry: Acknowledgement) -> None:
        """Add an entry, in a tag of its own, and bring the marks beside the verdict up to date.

        Raises:
            StoreRefused: no permission, or the run is deleted.
            WriteError: the run takes no more entries, or another annotator is at work.
        """
        self.refresh()
        self._require_active()
        with self._marking():
            self._marks.add(entry)

    def settle(self, now: float) -> None:
        tags = self._run.data.tags
        if changed_marks(tags, Written.of(tags).tags, entries_on(tags), self.evidence(), now) is not None:
            with self._marking():
                self._marks.settle(now)

    def mark_notified(self, value: str) -> None:
        """Renew the tag ``health.notified``.

        Raises:
            StoreRefused: no permission, or the run is deleted.
        """
        self.refresh()
        self._require_active()
        tags = self._run.data.tags
        if tags.get(NOTIFIED_TAG) and not notified_on(tags) and NOTIFIED not in Written.of(tags).tags:
            return  # the owner's
        self._set_tag(NOTIFIED_TAG, value)

    def _set_tag(self, tag: str, value: str) -> None:
        doing = f"the tag {tag} could not be written onto MLflow run {self.ref.id}"
        with translated(doing, self._uri, otherwise=WriteError):
            self._client.set_tag(self._run.info.run_id, tag, value)
        self.refresh()

    def write_shadow(self, shadow: Shadow) -> None:
        """Put the tag ``health.shadow`` onto the run.

        Raises:
            StoreRefused: no permission, or the run is deleted.
            WriteError: the run has such a tag of its owner's.
        """
        self.refresh()
        self._require_active()
        there = self._run.data.tags.get(SHADOW_TAG, "")
        if there and Shadow.of(there) is None:
            raise in_the_way(f"the tag {SHADOW_TAG} of MLflow run {self.ref.id}")
        if there != shadow.value:
            self._set_tag(SHADOW_TAG, shadow.value)

    @property
    def _marks(self) -> MlflowMarks:
        def fetch() -> tuple[Any, str]:
            run = self._client.get_run(self._run.info.run_id)
            return run, state_of(run)

        return MlflowMarks(self._client, self._run.info.run_id, fetch)

    @contextmanager
    def _marking(self) -> Iterator[None]:
        doing = f"the acknowledgement could not be written onto MLflow run {self.ref.id}"
        with translated(doing, self._uri, otherwise=WriteError):
            yield
        self.refresh()

    def clear(self, *, acks: bool = False) -> Cleared:
        """Remove everything tracker-health wrote. Metrics cannot be deleted: they are hidden behind a NaN.

        Raises:
            StoreRefused: no permission, or the run is deleted.
            WriteError: something could not be taken off; the digest then says ``pending``.
        """
        self.refresh()
        self._require_active()
        doing = f"the annotation could not be taken off MLflow run {self.ref.id}"
        with translated(doing, self._uri, otherwise=WriteError):
            writer = MlflowWriter(self._client, self._run, self._uri)
            cleared = writer.clear(exit_stays=ending_seen(self) is not None)
            marked = self._take_mark_off() | self._take_shadow_off()
            removed = self._marks.remove() if acks else 0
        self.refresh()
        left = len(entries_on(self._run.data.tags))
        stays = cleared.exit or bool(self.stopped())
        return replace(cleared, found=cleared.found or marked or bool(removed), exit=stays, acks=left)

    def _take_shadow_off(self) -> bool:
        if self.shadow() is None:
            return False
        remove_tag(self._client, self._run.info.run_id, SHADOW_TAG)
        return True

    def _take_mark_off(self) -> bool:
        """Take off the mark that a run went wrong while it went on, and our request that it stop: once that is over,
        its verdict stands.
        """
        tags = self._run.data.tags
        marks = [LIVE_TAG] * (tags.get(LIVE_TAG) in LIVE_WORDS)
        marks += [STOP_TAG] * (stop_of(tags.get(STOP_TAG, "")) is not None)
        for tag in marks:
            self._client.delete_tag(self._run.info.run_id, tag)
        return bool(marks)

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

    def refresh(self) -> None:
        """Look at the run's record again."""
        self._run = _fetched(self._client, self._uri, self._run.info.run_id)
        self.__dict__.pop("_latest", None)
        self.__dict__.pop("_names", None)

    @cached_property
    def _latest(self) -> dict[str, Any]:
        return latest_points(self._run)

    @cached_property
    def _names(self) -> list[str]:
        return _metric_names(self._latest)

    def _needs_files(self, request: Request) -> bool:
        return bool(request.parts) or not request.roles.of(self._names).has_loss

    def _history(self, name: str, role: str, found: FileEvidence) -> list[Series]:
        """A metric's history; none, and a problem, where it is too long to be read."""
        run_id, batch = self._run.info.run_id, self._batch
        doing = f"the history of the metric {printable(name)} could not be read"
        asked = last_word.question("mlflow/metrics/get-history", run_id=run_id, metric_key=name, max_results="1")
        try:
            with translated(doing, self._uri, asked=asked):
                points = batch.histories.read(run_id, name) if batch else read_history(self._client, run_id, name)
        except ReadError as error:
            found.cannot_read(f"metric {name}", error, [role])
            return []
        if not len(points.steps):  # the record has its last one
            raise StoreUnavailable(f"{doing} ({shown(self._uri)}): {TORN}", TORN_HINT)
        hf = is_hf_trainer(self._latest, self._run.data.params)
        return [history_series(name, role, points.steps, points.values, points.times, source="MLflow", hf=hf)]

    @cached_property
    def _children(self) -> Children | None:
        """How the runs below a run without metrics fared; None where there are none, or they cannot be looked up."""
        if self._names:
            return None
        doing, asked = "the runs below it could not be looked up", last_word.search("mlflow/runs/search")
        with suppress(*UNREADABLE), translated(doing, self._uri, ReadError, asked=asked):
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
