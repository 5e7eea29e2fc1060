"""Runs given as a folder of an MLflow file store: in their store through MLflow, alone as a folder like any other."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tracker_health.errors import ReadError, RunNotFound
from tracker_health.evidence import Evidence, Problem, Pulse, Request, Series
from tracker_health.readers.files.json_lines import as_number
from tracker_health.readers.mlflow_folder import (
    META_FILE,
    TRASH_FOLDER,
    last_time,
    metric_files,
    read_meta,
    read_points,
    read_texts,
    run_id_of,
    status_of,
)
from tracker_health.roles import OWN_PREFIXES
from tracker_health.run_files.reading import read_files, relevant_files
from tracker_health.run_files.tree import FileEvidence, RunFile, Tracked
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.mlflow.database_file import holds_databases
from tracker_health.stores.mlflow.last_activity import in_seconds, last_heard_of, pulse_of
from tracker_health.stores.mlflow.own_axes import Count, is_count, on_own_axes
from tracker_health.text import count, printable
from tracker_health.words.gap_names import STOPPED_TAG
from tracker_health.words.stopped import stop_of

_ARTIFACTS = "artifacts/"
_STORE = "mlruns"
_LIVE = frozenset({"RUNNING", "SCHEDULED"})
_HISTORIES = ("train_loss", "val_loss", "objective_loss")


def open_run_folder(folder: str | Path) -> TrackedRun | None:
    """The run whose folder this is; None where it is none of an MLflow file store.

    Raises:
        RunError: its store refuses.
    """
    meta = read_meta(Path(folder))
    run_id = run_id_of(meta)
    if meta is None or not run_id:
        return None
    store = store_of(Path(folder), run_id, meta.get("experiment_id", ""))
    if store is not None:
        # Here and below: what reads a run through MLflow is not loaded for a folder that is none.
        from tracker_health.stores.mlflow.run import open_mlflow_run

        # MLflow knows no run that lacks one of its folders, as a run without params does in a checkout of git.
        with suppress(RunNotFound):
            return open_mlflow_run(run_id, str(store))
    return LoneMlflowRun(folder, meta)


def lone_run(run_id: str, tracking_uri: str | None) -> LoneMlflowRun | None:
    """The folder of a run in a file store in which MLflow does not find it, since one of its folders is not there."""
    import mlflow

    from tracker_health.stores.mlflow.connection import folder_of

    store = folder_of(tracking_uri or mlflow.get_tracking_uri())
    folders = (place for place in store.glob(f"*/{run_id}") if run_id_of(read_meta(place)) == run_id) if store else ()
    found = next(iter(folders), None)
    return LoneMlflowRun(found, read_meta(found) or {}) if found else None


def open_run_below(folder: str | Path) -> TrackedRun | None:
    """The run in the ``mlruns`` folder below this one, where nothing else in it is of a run; None where there is none.

    Raises:
        RunNotFound: there are several.
    """
    store = Path(folder, _STORE)
    if not _holds_experiments(store) or relevant_files(DirectoryRun(folder)):
        return None
    runs = _runs_of(store)
    if len(runs) == 1:
        return open_run_folder(runs[0])
    if not runs and holds_databases(Path(folder)):  # next to which MLflow left an empty store
        return None
    root = shlex.quote(printable(store))
    hint = f"name one, or an experiment: --tracking-uri {root} RUN_ID, --tracking-uri {root} --experiment NAME"
    raise RunNotFound(f"{printable(folder)} holds an MLflow store with {count(len(runs), 'run')}", hint)


def _runs_of(store: Path) -> list[Path]:
    """The folders of the runs in a file store that are not deleted."""
    experiments = [place for place in sorted(store.iterdir()) if place.is_dir() and _is_experiment(place)]
    return [run for place in experiments for run in sorted(place.iterdir()) if run_id_of(read_meta(run))]


def refuse_store(folder: str | Path) -> None:
    """Raise for a folder that is an MLflow file store, or an experiment in one: MLflow takes what is put into it for
    its own.

    Raises:
        RunNotFound: it is one.
    """
    place = Path(folder)
    try:
        if _is_experiment(place):
            what, root = "an experiment of an MLflow store", place.resolve().parent
        elif _holds_experiments(place):
            what, root = "an MLflow store", place.resolve()
        else:
            return
    except OSError:  # it cannot be looked into: whoever reads it says so
        return
    root = root.parent if root.name == TRASH_FOLDER else root
    hint = f"name a run: --tracking-uri {shlex.quote(printable(root))} RUN_ID"
    raise RunNotFound(f"{printable(folder)} is {what}, not a run", hint)


def _holds_experiments(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        return any(_is_experiment(Path(entry)) for entry in entries if entry.is_dir())


def _is_experiment(folder: Path) -> bool:
    meta = read_meta(folder)
    return meta is not None and bool(meta.get("experiment_id")) and "lifecycle_stage" in meta and not run_id_of(meta)


def store_of(folder: Path, run_id: str, experiment_id: str) -> Path | None:
    """The root of the file store in which MLflow finds this run here, None where there is none."""
    place = folder.resolve()
    experiment = place.parent
    if (place.name, experiment.name) != (run_id, experiment_id) or run_id_of(read_meta(experiment)):
        return None
    if not (experiment / META_FILE).is_file():
        return None
    root = experiment.parent
    return root.parent if root.name == TRASH_FOLDER else root


class LoneMlflowRun(DirectoryRun):
    """A run's folder that was copied out of its file store. The verdict goes into its ``health/`` folder."""

    _has_settings = False

    def __init__(self, folder: str | Path, meta: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._meta = meta

    @cached_property
    def record(self) -> RunRecord:
        folder = super().record
        name = self._meta.get("run_name") or self._tags.get("mlflow.runName") or run_id_of(self._meta)
        ref = replace(folder.ref, name=printable(name))
        return replace(folder, ref=ref, traits=self._traits, heard=self._heard, pulse=self._pulse)

    @cached_property
    def files(self) -> tuple[RunFile, ...]:
        """The artifacts: what else is in the folder is the store's."""
        return tuple(file for file in super().files if file.path.startswith(_ARTIFACTS))

    @cached_property
    def _experiment(self) -> str:
        """The experiment's name where its folder is around the run's, else ""."""
        experiment = read_meta(self._folder.resolve().parent) or {}
        known = experiment.get("experiment_id") == self._meta.get("experiment_id", "") and not run_id_of(experiment)
        return str(experiment.get("name") or "") if known else ""

    def _traits(self) -> Mapping[str, str]:
        """The run's tags, without ours, and the experiment's name where its folder is around the run's."""
        name = {"experiment": self._experiment} if self._experiment else {}
        theirs = {key: value for key, value in self._tags.items() if not key.startswith(OWN_PREFIXES)}
        return {**name, **{f"tag:{key}": value for key, value in theirs.items()}}

    def _heard(self) -> float | None:
        """When a run that claims to be running logged its last metric, or began."""
        if status_of(self._meta) not in _LIVE:
            return None
        times = [one for one in self._last_times.values() if one is not None]
        return last_heard_of(as_number(self._meta.get("start_time")), times)

    @property
    def _last_times(self) -> dict[str, float | None]:
        """The times of the last points as they are in the files, by metric."""
        times = {}
        for name, path in self._theirs.items():
            with suppress(ReadError, OSError):
                times[name] = last_time(path)
        return times

    def _pulse(self) -> Pulse:
        points, vital = pulse_of({name: in_seconds(when) for name, when in self._last_times.items()})
        return Pulse(points=points, vital=vital)

    def stopped(self) -> str:
        text = self._tags.get(STOPPED_TAG, "")
        return text if stop_of(text) is not None else ""

    def fingerprint(self, request: Request) -> str:
        sizes = [[name, _size(path)] for name, path in self._theirs.items()]
        content = [super().fingerprint(request), self._meta.get("status"), self._meta.get("end_time"), sizes]
        content += [self.stopped()] if self.stopped() else []
        return hashlib.sha256(json.dumps(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, request: Request) -> Evidence:
        decided = request.roles.of(self._theirs)
        roles, logs = decided.needed, not decided.has_loss
        problems: list[Problem] = []
        series = [one for name in self._theirs if name in roles for one in self._series(name, roles[name], problems)]
        series = on_own_axes(series, self._counts(), self._params)
        found = read_files(self, request, logs=logs) if request.parts or logs else FileEvidence()
        tracked = Tracked(
            status=status_of(self._meta),
            tracker="MLflow",
            stopped=self.stopped(),
            params=self._params,
            names=self._theirs,
            series=series,
            experiment=self._experiment,
            started=in_seconds(as_number(self._meta.get("start_time"))),
            ended=in_seconds(as_number(self._meta.get("end_time"))),
        )
        return found.evidence(
            self.ref, request, tracked, problems=(*self._listing_problems, *problems, *self._unseen())
        )

    def _counts(self) -> Iterator[Count]:
        for name in filter(is_count, self._theirs):
            with suppress(ReadError, OSError):  # what it counts is a word in a message
                points = read_points(self._theirs[name])
                if len(points.steps):
                    yield Count(name, int(points.steps[-1]), float(points.values[-1]))

    def _series(self, name: str, role: str, problems: list[Problem]) -> list[Series]:
        from tracker_health.stores.mlflow.run import history_series, is_hf_trainer

        source = f"metrics/{printable(name)}"
        try:
            points = read_points(self._theirs[name])
        except (ReadError, OSError) as error:
            found = FileEvidence()
            found.cannot_read(source, error, [role])
            problems += found.problems
            return []
        if points.bad_lines:
            message = f"{count(points.bad_lines, 'line')} could not be read as time, value and step"
            problems.append(Problem(source=source, message=message))
        hf = is_hf_trainer(self._theirs, self._params)
        return [history_series(name, role, points.steps, points.values, points.times, source=source, hf=hf)]

    @cached_property
    def _listed(self) -> tuple[dict[str, Path], tuple[Problem, ...]]:
        try:
            files = metric_files(self._folder)
        except (ReadError, OSError) as error:
            found = FileEvidence()
            found.cannot_read("metrics", error, _HISTORIES)
            return {}, tuple(found.problems)
        return {name: path for name, path in files.items() if not name.startswith(OWN_PREFIXES)}, ()

    @property
    def _theirs(self) -> dict[str, Path]:
        return self._listed[0]

    @property
    def _listing_problems(self) -> tuple[Problem, ...]:
        return self._listed[1]

    @cached_property
    def _params(self) -> dict[str, str]:
        return self._texts("params")

    @cached_property
    def _tags(self) -> dict[str, str]:
        return self._texts("tags")

    def _texts(self, kind: str) -> dict[str, str]:
        try:
            return read_texts(self._folder, kind)
        except (ReadError, OSError):  # they only add to what the metrics say
            return {}


def _size(path: Path) -> int | None:
    """None for a file that is gone: a live run writes its metrics again."""
    try:
        return path.stat().st_size
    except OSError:
        return None
