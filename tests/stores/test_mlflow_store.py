"""MLflow runs: read by need, written back, and every failure told in seconds and in one line."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import math
import os
import shutil
import socket
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.stores import mlflow_tags

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import ReadError, RunNotFound, StoreRefused, StoreUnavailable, WriteError
from tracker_health.evidence import Part, Request, StepUnit
from tracker_health.judge.annotations import PENDING, Annotations
from tracker_health.roles import RolePlan
from tracker_health.roles import decided as decisions
from tracker_health.run_files.naming import is_plain
from tracker_health.runs.lookup import open_run
from tracker_health.stores.base import Recorded, WrittenInPart
from tracker_health.stores.common.note_block import BEGIN, END
from tracker_health.stores.mlflow import connection as mlflow_connection
from tracker_health.stores.mlflow import run as mlflow_run
from tracker_health.stores.mlflow.marks import NOTE_TAG
from tracker_health.stores.mlflow.run import MlflowRun, open_mlflow_run
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree, _Budget, _walk
from tracker_health.words.verdict import Verdict

from .many_runs import make_runs

mlflow = pytest.importorskip("mlflow")
sqlalchemy = pytest.importorskip("sqlalchemy")

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"),
]

STATE = frozenset({Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS})
METRICS_ONLY = Request(roles=RolePlan(), parts=frozenset())
WITH_STATE = Request(roles=RolePlan(), parts=STATE)


class Store:
    """A tracking store to test with: makes runs, and opens them the way the tool does."""

    def __init__(self, uri):
        self.uri = uri
        self.client = mlflow.MlflowClient(tracking_uri=uri)
        local = self.client.get_experiment_by_name("local")
        self.experiment = local.experiment_id if local else "0"
        self.opened = []

    def run(self, *, metrics=None, params=None, tags=None, name=None, finished=True):
        """A new run; ``metrics`` maps names to lists of (step, value) or (step, value, timestamp in ms)."""
        run_id = self.client.create_run(self.experiment, run_name=name, tags=tags).info.run_id
        points = [
            mlflow.entities.Metric(
                key, point[1], point[2] if len(point) > 2 else 1_700_000_000_000 + 10 * index, point[0]
            )
            for key, history in (metrics or {}).items()
            for index, point in enumerate(history)
        ]
        self.client.log_batch(
            run_id, metrics=points, params=[mlflow.entities.Param(*item) for item in (params or {}).items()]
        )
        if finished:
            self.client.set_terminated(run_id, "FINISHED")
        return run_id

    def open(self, run_id):
        run = open_mlflow_run(run_id, self.uri)
        self.opened.append(run)
        return run

    def close(self):
        for run in self.opened:
            run.close()

    def log(self, run_id, path, content):
        self.client.log_text(run_id, content, path)

    def tags(self, run_id):
        return mlflow_tags.expanded(self.client.get_run(run_id).data.tags)

    def history(self, run_id, key):
        return self.client.get_metric_history(run_id, key)

    def artifacts(self, run_id, folder=None):
        return sorted(entry.path for entry in self.client.list_artifacts(run_id, folder))


@pytest.fixture(params=["sqlite", "server"])
def store(request):
    with contextlib.closing(Store(request.getfixturevalue(f"{request.param}_uri"))) as store:
        yield store


@pytest.fixture
def local(sqlite_uri):
    with contextlib.closing(Store(sqlite_uri)) as store:
        yield store


@pytest.fixture
def remote(server_uri):
    with contextlib.closing(Store(server_uri)) as store:
        yield store


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """An optimizer.pt as a trainer writes it."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    path = tmp_path_factory.mktemp("checkpoint") / "optimizer.pt"
    torch.save(optimizer.state_dict(), path)
    return path


def descent(count=20):
    return [(step, 2.0 / (1 + step)) for step in range(count)]


def fail(**changes):
    defaults = {
        "verdict": Verdict.FAIL,
        "digest": "0123456789abcdef",
        "tags": {"codes": "LOS003", "symptoms": "spikes", "summary": "spikes", "version": "0.1.0"},
        "metrics": {"severity": 3.0, "loss_spike/events": 2.0},
        "files": {"report.json": b"{}\n", "loss.png": b"png"},
        "note": "**FAIL**",
    }
    return Annotations(**(defaults | changes))


SKIP = Annotations(verdict=Verdict.SKIP, digest="fedcba9876543210")


# Reading


def test_only_the_needed_histories_are_read(store, monkeypatch):
    run_id = store.run(
        metrics={
            "train/loss": descent(),
            "val/loss": descent(),
            "gpu/temperature": descent(),
            "health/severity": [(0, 1.0)],
        }
    )
    run = store.open(run_id)
    asked = []
    original = mlflow_run.read_history
    monkeypatch.setattr(mlflow_run, "read_history", lambda *known: asked.append(known[-1]) or original(*known))
    run.fingerprint(METRICS_ONLY)
    assert asked == []
    evidence = run.read(METRICS_ONLY)
    assert sorted(asked) == ["train/loss", "val/loss"]
    assert {series.role for series in evidence.series} == {"train_loss", "val_loss"}
    assert evidence.info.metric_names == ("gpu/temperature", "train/loss", "val/loss")
    assert evidence.info.status == "FINISHED"


def test_values_steps_and_times_arrive_as_they_were_logged(store):
    points = [(1, 2.0), (2, math.nan), (3, math.inf), (4, -math.inf), (4, 0.5), (3, 0.25)]
    run_id = store.run(metrics={"loss": points}, params={"lr": "0.1"})
    evidence = store.open(run_id).read(METRICS_ONLY)
    series = evidence.find("train_loss")
    assert sorted(zip(series.steps, map(str, series.values), strict=True)) == sorted(
        (step, str(value)) for step, value in points
    )
    assert series.times.min() == pytest.approx(1_700_000_000.0)
    assert series.step_unit is StepUnit.UNKNOWN
    assert series.nonfinite == 3
    assert list(series.clean().values)[-1] == 0.5
    assert evidence.info.params == {"lr": "0.1"}


def test_points_without_a_step_are_numbered_in_the_order_of_time(store):
    run_id = store.run(metrics={"loss": [(0, 1.0, 3000), (0, 3.0, 1000), (0, 2.0, 2000)], "val_loss": [(0, 1.0)]})
    evidence = store.open(run_id).read(METRICS_ONLY)
    series = evidence.find("train_loss")
    assert list(series.values) == [3.0, 2.0, 1.0]
    assert list(series.steps) == [0, 1, 2]
    assert series.step_unit is StepUnit.LOG_CALL
    assert evidence.find("val_loss").step_unit is StepUnit.UNKNOWN


def test_steps_of_the_hf_trainer_are_optimizer_steps(local):
    names = ("output_dir", "num_train_epochs", "max_steps", "logging_steps", "save_strategy")
    hf = local.run(metrics={"loss": descent()}, params=dict.fromkeys(names, "1"))
    counted = local.run(metrics={"train/loss": descent(), "train/global_step": descent()})
    other = local.run(metrics={"loss": descent()}, params={"output_dir": "x", "num_train_epochs": "3"})
    units = [local.open(run_id).read(METRICS_ONLY).find("train_loss").step_unit for run_id in (hf, counted, other)]
    assert units == [StepUnit.OPTIMIZER_STEP, StepUnit.OPTIMIZER_STEP, StepUnit.UNKNOWN]


def test_the_ref_names_the_run_and_its_page(store):
    run_id = store.run(name="warm-up")
    ref = store.open(run_id).ref
    assert (ref.store, ref.id, ref.name) == ("mlflow", run_id, "warm-up")
    page = f"{store.uri}/#/experiments/{store.experiment}/runs/{run_id}"
    assert ref.url == (page if store.uri.startswith("http") else None)


def test_an_empty_run_gives_empty_evidence(store):
    evidence = store.open(store.run()).read(WITH_STATE)
    assert (evidence.series, evidence.optimizer, evidence.problems, evidence.missing) == ((), None, (), {})


def test_a_parent_run_is_told_as_one(store):
    parent = store.run()
    store.run(tags={"mlflow.parentRunId": parent}, metrics={"loss": descent()})
    assert store.open(parent).read(METRICS_ONLY).missing == {
        "train_loss": "parent run: it has no history of its own; below it 1 run: 1 without a verdict"
    }


# Artifacts


def test_a_checkpoint_among_the_artifacts_is_read(store, checkpoint):
    run_id = store.run(metrics={"loss": descent()})
    store.client.log_artifact(run_id, str(checkpoint), "checkpoint-10")
    store.log(run_id, "checkpoint-10/notes.txt", "x" * 100)
    run = store.open(run_id)
    evidence = run.read(WITH_STATE)
    assert evidence.problems == ()
    assert evidence.optimizer.source == "checkpoint-10/optimizer.pt"
    assert len(evidence.optimizer.with_second_moment) == 2
    run.close()


def test_artifacts_are_not_even_listed_when_nothing_needs_them(store, monkeypatch):
    run = store.open(store.run(metrics={"loss": descent()}))
    monkeypatch.setattr(ArtifactTree, "_walk_roots", lambda _: pytest.fail("listed"))
    run.fingerprint(METRICS_ONLY)
    run.read(METRICS_ONLY)


def test_without_a_loss_in_the_tracker_the_logs_among_the_artifacts_are_read(store):
    run_id = store.run(metrics={"gpu/util": descent()})
    lines = [json.dumps({"step": step, "loss": value}) for step, value in descent()]
    store.log(run_id, "logs/train.jsonl", "\n".join(lines))
    store.log(run_id, "health/report.jsonl", "\n".join(lines))
    evidence = store.open(run_id).read(METRICS_ONLY)
    assert [(series.role, len(series), series.source) for series in evidence.series] == [
        ("train_loss", 20, "logs/train.jsonl")
    ]
    assert set(evidence.info.metric_names) >= {"gpu/util", "loss"}


def test_the_output_of_a_training_is_a_log_whatever_it_is_called(store):
    lines = "".join(f"step {step} loss {value}\n" for step, value in descent())
    silent, logged = store.run(metrics={"gpu/util": descent()}), store.run(metrics={"loss": descent()})
    for run_id in (silent, logged):
        store.log(run_id, "out.txt", lines)
        store.log(run_id, "model/out.txt", lines)
        store.log(run_id, "requirements.txt", lines)
    evidence = store.open(silent).read(METRICS_ONLY)
    assert [(one.role, len(one), one.source) for one in evidence.series] == [("train_loss", 20, "out.txt")]
    assert evidence.problems == ()
    assert "out.txt" not in {one.source for one in store.open(logged).read(METRICS_ONLY).series}


def test_the_trackers_params_win_over_those_of_a_trainer_state(local):
    run_id = local.run(metrics={"gpu/util": descent()}, params={"max_steps": "40"})
    state = {
        "global_step": 20,
        "max_steps": 99,
        "epoch": 1.0,
        "log_history": [{"step": step, "loss": value} for step, value in descent()],
    }
    local.log(run_id, "checkpoint-20/trainer_state.json", json.dumps(state))
    evidence = local.open(run_id).read(METRICS_ONLY)
    assert evidence.info.params["max_steps"] == "40"
    assert evidence.info.global_step == 20
    assert evidence.find("train_loss").step_unit is StepUnit.OPTIMIZER_STEP


def test_downloads_are_deleted_on_close(remote, checkpoint):
    run_id = remote.run()
    remote.client.log_artifact(run_id, str(checkpoint))
    run = remote.open(run_id)
    assert run.read(WITH_STATE).optimizer is not None
    folder = Path(run._artifacts._downloads._folder.name)
    assert [path.stat().st_size for path in folder.iterdir()] == [checkpoint.stat().st_size]
    run.close()
    assert not folder.exists()
    run.close()


def test_local_artifacts_are_read_in_place_and_stay(local, checkpoint):
    run_id = local.run()
    local.client.log_artifact(run_id, str(checkpoint))
    run = local.open(run_id)
    # A limit on downloads says nothing about files that are here.
    assert run.read(Request(roles=RolePlan(), parts=STATE, max_download=1)).optimizer is not None
    assert run._artifacts._downloads._folder is None
    path = run._artifacts.local(run._artifacts.files[0])
    run.close()
    assert path.read_bytes() == checkpoint.read_bytes()


@pytest.mark.parametrize("name", ["optimizer.pt", "last.ckpt"])
def test_a_checkpoint_above_the_limit_is_missing_with_the_reason(remote, checkpoint, tmp_path, name):
    run_id = remote.run(metrics={"loss": descent()})
    for folder in ("checkpoint-1", "checkpoint-2"):
        shutil.copy(checkpoint, tmp_path / name)
        remote.client.log_artifact(run_id, str(tmp_path / name), folder)
    run = remote.open(run_id)
    evidence = run.read(Request(roles=RolePlan(), parts=STATE, max_download=100))
    assert evidence.optimizer is None
    assert evidence.problems == ()
    assert "--max-download" in evidence.missing[Part.OPTIMIZER_STATE]
    assert run.read(WITH_STATE).optimizer is not None
    run.close()


def test_a_logged_models_files_count(local, checkpoint, tmp_path):
    if not hasattr(local.client, "create_logged_model"):
        pytest.skip("this MLflow has no logged models")
    run_id = local.run(metrics={"loss": descent()})
    model = local.client.create_logged_model(local.experiment, name="checkpoint-10", source_run_id=run_id)
    shutil.copy(checkpoint, tmp_path / "optimizer.pt")
    local.client.log_model_artifacts(model.model_id, str(tmp_path))
    local.client.log_outputs(run_id, [mlflow.entities.LoggedModelOutput(model.model_id, 10)])
    assert local.open(run_id).read(WITH_STATE).optimizer.source == "checkpoint-10/optimizer.pt"


def test_mlflows_pickled_model_is_no_checkpoint(local):
    run_id = local.run(metrics={"loss": descent()})
    local.log(run_id, "model/MLmodel", "flavors: {}")
    local.log(run_id, "model/data/model.pth", "a pickled module")
    evidence = local.open(run_id).read(WITH_STATE)
    assert evidence.optimizer is None
    assert evidence.problems == ()


def folder_of(store, run_id):
    """Where a run's artifacts lie on this machine."""
    folder = Path(store.client.get_run(run_id).info.artifact_uri.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_pipes_and_devices_among_local_artifacts_are_refused(local, checkpoint):
    run_id = local.run(metrics={"gpu/util": descent()})
    folder = folder_of(local, run_id)
    os.mkfifo(folder / "x.pt")
    os.mkfifo(folder / "train.jsonl")
    (folder / "trainer_state.json").symlink_to("/dev/zero")
    run = local.open(run_id)
    run.fingerprint(WITH_STATE)
    start = time.monotonic()
    evidence = run.read(WITH_STATE)
    assert time.monotonic() - start < 20
    assert {problem.source for problem in evidence.problems} == {"x.pt", "train.jsonl", "trainer_state.json"}
    for file in run._artifacts.files:
        with pytest.raises(ReadError):
            run._artifacts.local(file)


def test_artifacts_that_cannot_be_listed_are_a_problem_of_the_parts_that_need_them(local, monkeypatch):
    run = local.open(local.run(metrics={"loss": descent()}))
    monkeypatch.setattr("mlflow.store.artifact.local_artifact_repo.LocalArtifactRepository.list_artifacts", broken)
    evidence = run.read(WITH_STATE)
    assert len(evidence.find("train_loss")) == 20
    assert [(problem.source, problem.roles) for problem in evidence.problems] == [("artifacts", STATE)]


def broken(*args, **kwargs):
    raise OSError("no credentials")


class Entry:
    def __init__(self, path, *, is_dir=False):
        self.path = path
        self.is_dir = is_dir


class Hostile:
    """A repository that lists what it should not, and itself for ever."""

    def list_artifacts(self, folder):
        prefix = f"{folder}/" if folder else ""
        hostile = ["../up", "/etc/passwd", "a/../../up", "a\\b", "", ".", prefix + "a//b"]
        folders = ["health", prefix + "deeper", folder or "x", prefix + "traces"]
        return (
            [Entry(path) for path in hostile] + [Entry(path, is_dir=True) for path in folders] + [Entry(prefix + "ok")]
        )


def test_paths_that_leave_the_run_are_ignored():
    budget = _Budget(1000, 10)
    paths = [entry.path for entry in _walk(Hostile(), budget, set())]
    assert paths[:3] == ["ok", "deeper/ok", "x/ok"]
    assert all(is_plain(path) and path.endswith("ok") for path in paths)
    assert budget.exceeded


# Fingerprint


def test_the_fingerprint_stays_until_something_changes(store):
    run_id = store.run(metrics={"loss": descent()}, finished=False)
    seen = [store.open(run_id).fingerprint(WITH_STATE)]
    assert store.open(run_id).fingerprint(WITH_STATE) == seen[0]
    assert len(seen[0]) == 16
    int(seen[0], 16)
    for change in (
        lambda: store.client.log_metric(run_id, "loss", 0.1, step=100),
        lambda: store.log(run_id, "logs/train.jsonl", "{}"),
        lambda: store.log(run_id, "logs/train.jsonl", "{}{}"),
        lambda: store.client.log_param(run_id, "lr", 1),
        lambda: store.client.set_terminated(run_id, "FAILED"),
    ):
        change()
        seen.append(store.open(run_id).fingerprint(WITH_STATE))
    assert len(set(seen)) == len(seen)


def test_our_own_annotations_do_not_change_the_fingerprint(store):
    run_id = store.run(metrics={"loss": descent()})
    before = store.open(run_id).fingerprint(WITH_STATE)
    run = store.open(run_id)
    run.write(fail(files={"report.jsonl": b"{}"}))
    assert run.fingerprint(WITH_STATE) == before
    assert store.open(run_id).fingerprint(WITH_STATE) == before


def test_files_of_no_consequence_do_not_change_the_fingerprint(local):
    run_id = local.run(metrics={"loss": descent()})
    before = local.open(run_id).fingerprint(WITH_STATE)
    local.log(run_id, "plot.txt", "x")
    assert local.open(run_id).fingerprint(WITH_STATE) == before


# Writing


def test_what_is_written_is_recorded(store):
    run_id = store.run(metrics={"loss": descent()})
    run = store.open(run_id)
    assert run.recorded() is None
    run.write(fail())
    expected = Recorded(digest="0123456789abcdef", verdict=Verdict.FAIL)
    assert replace(run.recorded(), codes=(), explained=()) == expected
    assert replace(store.open(run_id).recorded(), codes=(), explained=()) == expected
    tags = store.tags(run_id)
    assert tags["health.codes"] == "LOS003"
    assert tags["health.version"] == "0.1.0"
    assert tags[NOTE_TAG] == f"{BEGIN}\n**FAIL**\n{END}"
    assert store.client.get_run(run_id).data.metrics["health/severity"] == 3.0
    assert store.artifacts(run_id, "health") == ["health/loss.png", "health/report.json"]


def test_writing_the_same_again_changes_nothing(store):
    run_id = store.run(metrics={"loss": descent()})
    store.open(run_id).write(fail())
    before = store.tags(run_id)
    store.open(run_id).write(fail())
    assert store.tags(run_id) == before
    assert len(store.history(run_id, "health/severity")) == 1


def test_a_changed_verdict_replaces_everything(store):
    run_id = store.run(metrics={"loss": descent()})
    store.open(run_id).write(fail())
    changed = fail(
        verdict=Verdict.PASS,
        digest="1" * 16,
        tags={"codes": "", "summary": "healthy", "version": "0.1.0"},
        metrics={"severity": 0.0},
        files={"report.json": b"{1}"},
        note="**PASS**",
    )
    store.open(run_id).write(changed)
    tags = store.tags(run_id)
    assert replace(store.open(run_id).recorded(), codes=(), explained=()) == Recorded(
        digest="1" * 16, verdict=Verdict.PASS
    )
    assert {"health.codes", "health.symptoms"}.isdisjoint(tags)
    assert tags["health.summary"] == "healthy"
    assert "FAIL" not in tags[NOTE_TAG]
    metrics = store.client.get_run(run_id).data.metrics
    assert math.isnan(metrics["health/severity"])  # no chart for a verdict alone
    assert math.isnan(metrics["health/loss_spike/events"])
    assert store.artifacts(run_id, "health") == ["health/report.json"]


@pytest.mark.exhaustive
def test_what_was_there_before_us_under_our_names_is_left_out(store):
    theirs = {"health.summary": "the patient is well", "health.version": "3"}
    run_id = store.run(metrics={"loss": descent(), "health/severity": [(7, 60.0)]}, tags=theirs)
    for written in (fail(), fail(), fail(verdict=Verdict.PASS, digest="1" * 16, metrics={}), fail(), SKIP, fail()):
        store.open(run_id).write(written)
        assert store.tags(run_id).items() >= theirs.items()
        assert [(point.step, point.value) for point in store.history(run_id, "health/severity")] == [(7, 60.0)]
        assert replace(store.open(run_id).recorded(), codes=(), explained=()) == Recorded(
            digest=written.digest, verdict=written.verdict
        )
    assert store.tags(run_id)["health.codes"] == "LOS003"
    assert store.client.get_run(run_id).data.metrics["health/loss_spike/events"] == 2.0


@pytest.mark.parametrize("tag", ["health.verdict", "health.digest"])
def test_a_users_verdict_is_not_overwritten(store, tag):
    for written in (fail(), SKIP):
        run_id = store.run(tags={tag: "to be discussed"})
        assert store.open(run_id).recorded() is None
        before = store.client.get_run(run_id).data
        with pytest.raises(WriteError, match=f"{tag} .* is not ours; nothing was written"):
            store.open(run_id).write(written)
        after = store.client.get_run(run_id).data
        assert (after.tags, after.metrics) == (before.tags, before.metrics)
        assert store.artifacts(run_id) == []


@pytest.mark.exhaustive
def test_a_users_report_is_not_overwritten(store):
    """Before the first annotation, and after one that wrote no file of that name."""
    for annotated in (False, True):
        run_id = store.run()
        if annotated:
            store.open(run_id).write(SKIP)
        store.log(run_id, "health/report.json", "theirs")
        before = store.client.get_run(run_id).data
        with pytest.raises(WriteError, match=r"health/report\.json .* is not ours; nothing was written"):
            store.open(run_id).write(fail())
        after = store.client.get_run(run_id).data
        assert (after.tags, after.metrics) == (before.tags, before.metrics)
        assert store.artifacts(run_id, "health") == ["health/report.json"]
        store.open(run_id).write(fail(files={"loss.png": b"png"}))
        store.open(run_id).write(SKIP)
        assert store.artifacts(run_id, "health") == ["health/report.json"]


def test_a_list_of_files_that_a_user_happens_to_have_deletes_nothing(local):
    run_id = local.run(tags={"health.written": json.dumps({"files": ["patients.csv"]})})
    local.log(run_id, "health/patients.csv", "1")
    written = local.tags(run_id)["health.written"]
    local.open(run_id).write(fail())
    local.open(run_id).clear()
    assert local.artifacts(run_id, "health") == ["health/patients.csv"]
    assert local.tags(run_id)["health.written"] == written


@pytest.mark.slow
def test_a_folder_that_cannot_be_listed_takes_no_new_files(local, monkeypatch):
    run_id = local.run()
    local.open(run_id).write(fail())
    monkeypatch.setattr("mlflow.store.artifact.local_artifact_repo.LocalArtifactRepository.list_artifacts", broken)
    local.open(run_id).write(fail(digest="1" * 16))
    local.open(run_id).write(SKIP)
    with pytest.raises(WrittenInPart, match="no credentials"):
        local.open(run_id).write(fail(files={"report.json": b"", "other.png": b""}))
    monkeypatch.undo()
    assert local.open(run_id).recorded().verdict is Verdict.FAIL
    assert "health/other.png" not in local.artifacts(run_id, "health")


def test_a_digest_that_was_put_in_the_place_of_ours_is_judged_again(local):
    run_id = local.run()
    local.open(run_id).write(fail())
    local.client.set_tag(run_id, "health.digest", "pending")
    assert local.open(run_id).recorded().digest == PENDING
    local.open(run_id).write(fail(tags={"summary": "healthy", "version": "2"}, files={}))
    assert local.tags(run_id)["health.summary"] == "healthy"
    assert "health.codes" not in local.tags(run_id)
    assert local.artifacts(run_id, "health") == []


@pytest.mark.slow
def test_a_hidden_metric_comes_back(local):
    run_id = local.run()
    for written in (fail(), SKIP, SKIP, fail()):
        local.open(run_id).write(written)
    values = [point.value for point in local.history(run_id, "health/severity")]
    assert [str(value) for value in values] == ["3.0", "nan", "3.0"]
    assert local.client.get_run(run_id).data.metrics["health/severity"] == 3.0


@pytest.mark.slow
def test_skip_leaves_only_verdict_and_digest(store):
    fresh, annotated = store.run(), store.run()
    store.open(annotated).write(fail())
    for run_id in (fresh, annotated):
        store.open(run_id).write(SKIP)
        tags = {
            key: value
            for key, value in store.client.get_run(run_id).data.tags.items()
            if not key.startswith("mlflow.") or key == NOTE_TAG
        }
        assert mlflow_tags.written(tags) == {}
        assert tags.keys() == {"health", "health.verdict", "health.digest"}
        assert (tags["health"], tags["health.verdict"]) == ("SKIP", "skip")
        assert store.artifacts(run_id, "health") == []
        assert all(math.isnan(value) for value in store.client.get_run(run_id).data.metrics.values())


def test_what_is_the_users_stays_as_it_is(store):
    """Names below ``health`` too: a study of patients has them."""
    tags = {"team": "a", "health.study": "b", NOTE_TAG: "My *note*.\n"}
    run_id = store.run(metrics={"loss": descent(), "health/heart_rate": [(0, 60.0)]}, params={"lr": "1"}, tags=tags)
    store.log(run_id, "health/patients.csv", "1")
    store.log(run_id, "model.txt", "2")
    before = store.client.get_run(run_id)
    for written in (fail(), fail(verdict=Verdict.WARN, digest="2" * 16, metrics={}), SKIP):
        store.open(run_id).write(written)
        after = store.client.get_run(run_id)
        assert (after.info.status, after.info.end_time, after.info.run_name) == (
            before.info.status,
            before.info.end_time,
            before.info.run_name,
        )
        assert after.data.params == before.data.params
        assert after.data.metrics.items() >= before.data.metrics.items()
        assert len(store.history(run_id, "health/heart_rate")) == 1
        assert after.data.tags[NOTE_TAG].startswith("My *note*.\n")
        assert after.data.tags.items() >= (before.data.tags.items() - {(NOTE_TAG, tags[NOTE_TAG])})
        assert "model.txt" in store.artifacts(run_id)
        assert "health/patients.csv" in store.artifacts(run_id, "health")
    assert store.tags(run_id)[NOTE_TAG] == "My *note*.\n"


def test_runs_are_found_by_their_verdict(store):
    run_id, other = store.run(), store.run()
    store.open(run_id).write(fail())
    store.open(other).write(fail(verdict=Verdict.PASS))
    found = store.client.search_runs([store.experiment], "tags.`health.verdict` = 'fail'")
    ids = [run.info.run_id for run in found]
    assert run_id in ids
    assert other not in ids
    assert run_id in [
        run.info.run_id for run in store.client.search_runs([store.experiment], 'metrics."health/severity" >= 3')
    ]


def test_long_tags_are_cut_and_odd_metrics_left_out(local):
    run_id = local.run()
    metrics = {f"probe_{index:03}/a_long_name_of_a_measure": 1.0 for index in range(300)} | {"x/y": math.nan}
    local.open(run_id).write(fail(tags={"summary": "ä" * 9000}, metrics=metrics))
    assert local.tags(run_id)["health.summary"] == "ä" * 4999 + "…"
    assert len(local.tags(run_id)["health.written"]) <= 5000
    shown = {name for name, value in local.client.get_run(run_id).data.metrics.items() if not math.isnan(value)}
    assert shown == {f"health/{name}" for name in json.loads(local.tags(run_id)["health.written"])["metrics"]}
    assert "health/x/y" not in local.client.get_run(run_id).data.metrics


def test_an_interrupted_annotation_says_so_and_is_repaired(store, monkeypatch):
    run_id = store.run(metrics={"loss": descent()})
    run = store.open(run_id)
    with monkeypatch.context() as patch:
        patch.setattr("tracker_health.stores.common.writing.Writing._delete_files_but", broken)
        with pytest.raises(WriteError, match="no credentials"):
            run.write(fail())
    assert replace(store.open(run_id).recorded(), codes=(), explained=()) == Recorded(digest=PENDING, verdict=None)
    assert store.artifacts(run_id, "health") == ["health/loss.png", "health/report.json"]
    store.open(run_id).write(SKIP)
    assert store.artifacts(run_id, "health") == []
    assert replace(store.open(run_id).recorded(), codes=(), explained=()) == Recorded(
        digest=SKIP.digest, verdict=Verdict.SKIP
    )


def test_a_list_of_our_files_that_somebody_changed_deletes_nothing_else(local):
    run_id = local.run()
    local.open(run_id).write(fail())
    local.log(run_id, "model.txt", "x")
    for names in (["../model.txt", "", "."], "model.txt", None, [["x"]]):
        behind = json.dumps({"written": {"tool": "tracker-health", "files": names, "metrics": names}})
        local.client.set_tag(run_id, "health.digest", f"0123456789abcdef {behind}")
        local.open(run_id).write(fail(files={}))
    for text in ("{" * 3000, '{"written": 1}', '{"written": [1], "apart": [[1]]}'):
        local.client.set_tag(run_id, "health.digest", f"0123456789abcdef {text}")
        local.open(run_id).write(fail(files={}))
    assert "model.txt" in local.artifacts(run_id)


def test_a_store_that_cannot_delete_is_remembered(remote, monkeypatch):
    run_id = remote.run()
    remote.open(run_id).write(fail())
    with monkeypatch.context() as patch:
        patch.setattr("mlflow.store.artifact.http_artifact_repo.HttpArtifactRepository.delete_artifacts", broken)
        remote.open(run_id).write(SKIP)
    assert remote.open(run_id).recorded().verdict is Verdict.SKIP
    assert "report.json" in remote.tags(run_id)["health.written"]
    remote.open(run_id).write(SKIP)
    assert remote.artifacts(run_id, "health") == []
    assert "health.written" not in remote.tags(run_id)


def test_a_deleted_run_can_be_read_and_not_written(store):
    run_id = store.run(metrics={"loss": descent()})
    store.client.delete_run(run_id)
    run = store.open(run_id)
    assert len(run.read(METRICS_ONLY).find("train_loss")) == 20
    with pytest.raises(StoreRefused, match="deleted"):
        run.write(fail())
    store.client.restore_run(run_id)
    assert "health.digest" not in store.tags(run_id)
    assert store.artifacts(run_id) == []


# Kinds of runs


def long_descent(start=0, stop=200):
    return [(step, 0.1 + 2.2 * 0.98**step) for step in range(start, stop)]


def timed(points, begin):
    return [(step, value, begin + 10 * index) for index, (step, value) in enumerate(points)]


def test_two_writers_of_one_run_are_read_as_one_history(store):
    """As the processes of distributed training do: each logs every step, neither waits for the other."""
    points = timed(long_descent(), 10**12)
    other = [(step, value * 1.001, time + 35) for step, value, time in points]
    run_id = store.run(metrics={"loss": [point for pair in zip(points, other, strict=True) for point in pair]})
    outcome = th.annotate(run_id, tracking_uri=store.uri)
    assert (outcome.report.verdict, outcome.complete) == (Verdict.PASS, True)
    series = store.open(run_id).read(METRICS_ONLY).find("train_loss")
    assert len(series) == 400
    assert list(series.clean().steps) == list(range(200))
    assert list(series.clean().values) == [value for _, value, _ in other]


def test_a_resumed_run_overwrites_what_the_crash_left(store):
    """Logged to step 120 and on into a divergence; resumed from the checkpoint of step 100."""
    crashed = [*long_descent(0, 100), *((step, 50.0 + step) for step in range(100, 121))]
    resumed = long_descent(100, 200)
    run_id = store.run(metrics={"loss": [*timed(crashed, 10**12), *timed(resumed, 2 * 10**12)]})
    assert th.check(run_id, tracking_uri=store.uri).verdict is Verdict.PASS
    series = store.open(run_id).read(METRICS_ONLY).find("train_loss").clean()
    assert list(zip(series.steps, series.values, strict=True)) == long_descent()


@pytest.mark.slow
def test_a_run_that_is_resumed_after_its_annotation_is_judged_again(store):
    run_id = store.run(metrics={"loss": long_descent(0, 100)})
    assert th.annotate(run_id, tracking_uri=store.uri).report.verdict is Verdict.PASS
    store.client.update_run(run_id, "RUNNING")
    store.client.log_batch(run_id, [mlflow.entities.Metric("loss", math.nan, 2 * 10**12, 100)])
    store.client.set_terminated(run_id)
    outcome = th.annotate(run_id, tracking_uri=store.uri)
    assert (outcome.status, outcome.report.verdict) == ("written", Verdict.FAIL)
    assert store.tags(run_id)["health.verdict"] == "fail"


@pytest.mark.slow
def test_a_nested_run_is_judged_and_its_parent_skipped(store):
    parent = store.run(name="sweep")
    child = store.run(tags={"mlflow.parentRunId": parent}, metrics={"loss": long_descent()})
    below, above = th.annotate_many([parent, child], tracking_uri=store.uri)
    assert (above.report.verdict, below.report.verdict) == (Verdict.SKIP, Verdict.PASS)
    assert above.complete
    assert "parent run" in str(above.report.skipped)
    ours = {key: value for key, value in store.tags(parent).items() if key.startswith("health.")}
    assert ours.keys() == {
        f"health.{name}"
        for name in ("verdict", "digest", "written", "settings", "rules", "ended", "judged", "children", "summary")
    }
    assert ours["health.ended"] == "finished"
    assert store.tags(child)["health.verdict"] == "pass"


def test_a_parent_with_metrics_of_its_own_is_judged(store):
    parent = store.run(metrics={"loss": long_descent()})
    store.run(tags={"mlflow.parentRunId": parent}, metrics={"loss": [(0, math.nan)]})
    assert th.check(parent, tracking_uri=store.uri).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "metrics", [{}, {"system/cpu": [(0, 1.0), (1, 2.0)]}, {"accuracy": [(0, 0.9)]}], ids=["none", "system", "one"]
)
def test_a_run_without_training_is_skipped_quietly(store, metrics):
    run_id = store.run(metrics=metrics, params={"model": "xgboost"})
    outcome = th.annotate(run_id, tracking_uri=store.uri)
    assert (outcome.report.verdict, outcome.report.errors, outcome.complete) == (Verdict.SKIP, (), True)
    assert store.artifacts(run_id) == []
    apart = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}  # before click 8.2
    done = CliRunner(**apart).invoke(cli, ["check", f"mlflow:{run_id}", "--tracking-uri", store.uri])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "SKIP" in done.stdout


def test_a_run_by_the_address_of_its_page(remote):
    run_id = remote.run(metrics={"loss": long_descent()})
    page = th.check(run_id, tracking_uri=remote.uri).run.url
    report = th.check(f"{page}/model-metrics", tracking_uri="sqlite:///elsewhere.db")
    assert (report.verdict, report.run.id, report.run.url) == (Verdict.PASS, run_id, page)
    with_secrets = th.check(page.replace("://", f"://{SECRETS}@"))
    assert no_secret(str(with_secrets))


# Artifact stores that the clients reach themselves


def test_artifacts_that_the_client_reaches_itself(direct_server, checkpoint):
    uri, artifacts = direct_server
    with contextlib.closing(Store(uri)) as store:
        run_id = store.run(metrics={"gpu/util": descent()})
        lines = [json.dumps({"step": step, "loss": value}) for step, value in long_descent()]
        store.log(run_id, "logs/train.jsonl", "\n".join(lines))
        store.client.log_artifact(run_id, str(checkpoint), "checkpoint-200")
        folder = artifacts / store.experiment / run_id / "artifacts"
        assert (folder / "checkpoint-200" / "optimizer.pt").is_file()
        outcome = th.annotate(run_id, tracking_uri=uri)
        assert outcome.complete
        assert [use.source for use in outcome.report.series] == ["logs/train.jsonl"]
        assert (folder / "health" / "report.json").is_file()
        assert store.artifacts(run_id, "health") == [
            f"health/{name}" for name in ("loss.png", "report.html", "report.json")
        ]
        assert th.annotate(run_id, tracking_uri=uri).status == "unchanged"
        assert th.clear_annotations(run_id, tracking_uri=uri).kept == ()
        assert not (folder / "health" / "report.json").exists()
        assert (folder / "logs" / "train.jsonl").is_file()


def test_a_run_whose_artifacts_are_out_of_reach_is_still_judged_by_its_metrics(direct_server):
    uri, _ = direct_server
    client = mlflow.MlflowClient(tracking_uri=uri)
    name = f"out of reach {time.time_ns()}"
    experiment = client.create_experiment(name, artifact_location="/dev/null/nowhere")
    run_id = client.create_run(experiment).info.run_id
    client.log_batch(run_id, [mlflow.entities.Metric("loss", value, 10**12, step) for step, value in long_descent()])
    client.set_terminated(run_id)
    report = th.check(run_id, tracking_uri=uri)
    assert report.verdict is Verdict.PASS
    for _ in range(2):
        (outcome,) = th.annotate_many([run_id], tracking_uri=uri, config=th.Config(description="always"))
        assert (outcome.status, outcome.report.verdict, outcome.complete) == ("written", Verdict.PASS, False)
        assert "the verdict is on" in outcome.report.errors[0].message
        assert "files could not be written" in outcome.report.errors[0].message
    data = client.get_run(run_id).data
    assert data.tags["health.verdict"] == "pass"
    assert "PASS" in data.tags[NOTE_TAG]
    done = CliRunner().invoke(cli, ["annotate", run_id, "--tracking-uri", uri])
    assert done.exit_code == 3
    assert "its files could not be written" in " ".join(done.stdout.split())
    assert "PASS" in done.stdout
    cleared = th.clear_annotations(run_id, tracking_uri=uri)
    assert cleared.kept == ()
    assert set(cleared.hidden) == set(data.metrics) - {"loss"}
    assert not any(name.startswith("health") for name in client.get_run(run_id).data.tags)


# What can go wrong


@pytest.mark.parametrize("run_id", ["0" * 32, "no such run!", "../x", "\x1b[31m", ""])
def test_an_unknown_run(store, run_id):
    with pytest.raises(RunNotFound) as caught:
        store.open(run_id)
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_database_is_not_created(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    by_default = "database" if mlflow.get_tracking_uri().startswith("sqlite:") else "folder"  # that of MLflow 2
    with pytest.raises(RunNotFound, match=f"no MLflow {by_default}"):
        open_mlflow_run("0" * 32)
    for uri in ("sqlite:///other.db", f"sqlite:///{tmp_path}/deep/er/x.db", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(RunNotFound, match="no MLflow database"):
            open_mlflow_run("0" * 32, uri)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlruns").mkdir()
    with pytest.raises(RunNotFound, match="mlruns"):
        open_mlflow_run("0" * 32)


def test_the_default_is_mlflows_own(local, monkeypatch):
    run_id = local.run()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", local.uri)
    assert open_mlflow_run(run_id).ref.id == run_id
    assert os.environ["MLFLOW_TRACKING_URI"] == local.uri


def copied(local, path):
    source = sqlite3.connect(local.uri.removeprefix("sqlite:///"))
    target = sqlite3.connect(path)
    source.backup(target)
    source.close()
    return target


def test_a_read_only_database_is_told_in_one_line(local, tmp_path, capfd, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)  # of a file: URI MLflow makes a folder of that name where it is
    caplog.set_level(logging.WARNING, "alembic")  # of MLflow 2: INFO whenever it opens a database, once it made one
    run_id = local.run(metrics={"loss": descent()})
    copied(local, tmp_path / "x.db").close()
    run = open_mlflow_run(run_id, f"sqlite:///file:{tmp_path}/x.db?mode=ro&uri=true")
    assert len(run.read(METRICS_ONLY).find("train_loss")) == 20
    capfd.readouterr()
    filters = list(logging.getLogger("mlflow.store.db.utils").filters)
    with pytest.raises(StoreRefused, match="it is read-only") as caught:
        run.write(fail())
    assert "SQL" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert logging.getLogger("mlflow.store.db.utils").filters == filters


def test_only_the_thread_that_raises_is_muted(caplog):
    logger = logging.getLogger("mlflow.store.db.utils")
    with mlflow_connection.translated("x", "y"):
        thread = threading.Thread(target=logger.error, args=["theirs"])
        thread.start()
        thread.join()
        logger.error("ours")
    logger.error("later")
    assert [record.getMessage() for record in caplog.records] == ["theirs", "later"]


@pytest.mark.parametrize(
    ("error", "expected", "words"),
    [
        (PermissionError(13, "Permission denied", "/a/health"), StoreRefused, "no permission"),
        (OSError("permission denied for table tags\n[SQL: UPDATE tags SET x]"), StoreRefused, "for table tags"),
        (OSError("(1142) UPDATE command denied to user"), StoreRefused, "no permission"),
        (OSError("cannot execute INSERT in a read-only transaction"), StoreRefused, "it is read-only"),
        (OSError("database is locked\n[SQL: SELECT a]\n(Background on this error at: x)"), WriteError, "is locked"),
    ],
)
def test_what_a_database_may_say(error, expected, words):
    with pytest.raises(expected, match=words) as caught, mlflow_connection.translated("x", "y", otherwise=WriteError):
        raise error
    assert not any(word in str(caught.value) for word in ("SQL", "Background", "\n"))


@pytest.mark.parametrize(("revision", "expected"), [("451aebb31d03", "mlflow db upgrade"), ("ffffffffffff", "newer")])
def test_a_database_of_another_version_is_not_touched(local, tmp_path, revision, expected):
    path = tmp_path / "old.db"
    database = copied(local, path)
    database.execute("UPDATE alembic_version SET version_num = ?", [revision])
    # MLflow migrates a database that lacks a table without being asked.
    database.execute("DROP TABLE input_tags")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=expected):
        open_mlflow_run("0" * 32, f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_file_that_is_no_mlflow_database(tmp_path):
    path = tmp_path / "x.db"
    for content in (b"", b"not a database" * 100):
        path.write_bytes(content)
        with pytest.raises(StoreUnavailable):
            open_mlflow_run("0" * 32, f"sqlite:///{path}")
        assert path.read_bytes() == content


def test_a_database_in_a_folder_with_a_blank(local, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    run_id = local.run()
    copied(local, folder / "x.db").close()
    encoded = f"sqlite:///{tmp_path}/a%20b/x.db"
    if sqlalchemy.make_url(encoded).database == str(folder / "x.db"):
        assert open_mlflow_run(run_id, encoded).ref.id == run_id
    else:  # SQLAlchemy before 2.1, and MLflow with it, look for a folder of the name a%20b
        with pytest.raises(RunNotFound, match="no MLflow database"):
            open_mlflow_run(run_id, encoded)
    assert open_mlflow_run(run_id, f"sqlite:///{folder}/x.db").ref.id == run_id
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]


def test_a_folder_that_holds_no_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    (tmp_path / "file").write_text("x")
    for uri in (f"file://{tmp_path}/none", f"{tmp_path}/none", f"{tmp_path}/file"):
        with pytest.raises(RunNotFound, match="no MLflow folder"):
            open_mlflow_run("0" * 32, uri)
    for uri in (f"file://{tmp_path}", str(tmp_path)):
        with pytest.raises(RunNotFound, match="holds no experiments"):
            open_mlflow_run("0" * 32, uri)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


SECRETS = "bob:p%40ss"


def no_secret(text):
    return not any(secret in text for secret in ("bob", "p%40ss", "p@ss"))


def test_an_unreachable_server_is_told_in_seconds():
    from .conftest import free_port

    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="connection refused") as caught:
        open_mlflow_run("0" * 32, f"http://{SECRETS}@127.0.0.1:{free_port()}")
    assert time.monotonic() - start < 15
    assert no_secret(str(caught.value))
    assert caught.value.__suppress_context__


@pytest.mark.slow
def test_a_server_that_never_answers_is_told_in_seconds(monkeypatch):
    monkeypatch.setattr(mlflow_connection, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            open_mlflow_run("0" * 32, f"http://{SECRETS}@127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - start < 15


@pytest.mark.slow
def test_a_server_that_answers_but_whose_database_hangs_is_told_in_seconds(monkeypatch):
    """As when its database does not answer: what needs none is answered still."""
    monkeypatch.setattr(mlflow_connection, "ANSWER_SECONDS", 1)
    over = threading.Event()

    class Hanging(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if "/api/" in self.path:
                over.wait(60)
                return
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hanging) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        start = time.monotonic()
        try:
            with pytest.raises(StoreUnavailable, match="no answer in time"):
                open_mlflow_run("0" * 32, f"http://127.0.0.1:{server.server_address[1]}")
            assert time.monotonic() - start < 15
        finally:
            over.set()
            server.shutdown()
            thread.join()


class Answering(http.server.BaseHTTPRequestHandler):
    status, body = 403, b"{}"

    def do_GET(self):
        self.send_response(self.status if "runs/get" in self.path else 200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args):
        pass


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (401, b"You are not authenticated, bob", StoreRefused, "MLFLOW_TRACKING_USERNAME"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "no"}', StoreRefused, "MLFLOW_TRACKING_TOKEN"),
        (404, b"<html>", StoreUnavailable, "MLflow server"),
        (200, b"<html>", StoreUnavailable, "MLflow server"),
        (
            400,
            b'{"error_code": "BAD_REQUEST", "message": "a http://bob:p@ss@h/ b\\n\\u001b[31m"}',
            StoreUnavailable,
            "http://h/",
        ),
    ],
)
def test_what_a_server_may_say(status, body, error, words):
    handler = type("Handler", (Answering,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(error, match=words) as caught:
                open_mlflow_run("0" * 32, f"http://{SECRETS}@127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
    assert no_secret(str(caught.value))
    assert not set("\n\x1b") & set(str(caught.value))


def test_user_names_and_passwords_stay_out_of_everything(remote):
    run_id = remote.run(metrics={"loss": descent()})
    run = open_mlflow_run(run_id, remote.uri.replace("://", f"://{SECRETS}@"))
    assert run.ref.url == remote.open(run_id).ref.url
    run.write(fail())
    assert no_secret(str(remote.tags(run_id)))
    with pytest.raises(RunNotFound) as caught:
        open_mlflow_run("0" * 32, remote.uri.replace("://", f"://{SECRETS}@"))
    assert no_secret(str(caught.value))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://bob:pw@host:5000/base/?token=x#y", "http://host:5000/base/"),
        ("http://bob:p@w@host", "http://host"),
        ("https://token@[::1]:80/a@b", "https://[::1]:80/a@b"),
        ("http://bob:p/w@host/", "http://…"),
        ("postgresql+psycopg2://u:p@h:1/db?password=x", "postgresql+psycopg2://h:1/db"),
        ("sqlite:////tmp/a b.db", "sqlite:////tmp/a b.db"),
        ("sqlite:///rel.db", "sqlite:///rel.db"),
        ("/plain/path", "/plain/path"),
        ("databricks", "databricks"),
    ],
)
def test_a_uri_as_it_is_shown(uri, expected):
    assert mlflow_connection.shown(uri) == expected


def test_an_artifact_that_cannot_be_fetched_is_a_problem(remote, checkpoint, monkeypatch):
    run_id = remote.run(metrics={"loss": descent()})
    remote.client.log_artifact(run_id, str(checkpoint))
    run = remote.open(run_id)
    monkeypatch.setattr("mlflow.store.artifact.mlflow_artifacts_repo.MlflowArtifactsRepository._download_file", broken)
    evidence = run.read(WITH_STATE)
    assert [problem.source for problem in evidence.problems] == ["optimizer.pt"]
    with pytest.raises(ReadError, match="no credentials"):
        run._artifacts.local(run._artifacts.files[0])
    run.close()


def test_nothing_is_printed_and_no_global_state_changes(store, checkpoint, capfd, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run_id = store.run(metrics={"loss": descent()})
    store.client.log_artifact(run_id, str(checkpoint))
    capfd.readouterr()
    environment, uri = dict(os.environ), mlflow.get_tracking_uri()
    run = store.open(run_id)
    run.fingerprint(WITH_STATE)
    run.read(WITH_STATE)
    run.write(fail())
    run.close()
    assert capfd.readouterr() == ("", "")
    assert (dict(os.environ), mlflow.get_tracking_uri()) == (environment, uri)


def test_the_values_are_numpy_arrays_of_the_promised_types(local):
    series = local.open(local.run(metrics={"loss": descent()})).read(METRICS_ONLY).find("train_loss")
    assert (series.steps.dtype, series.values.dtype, series.times.dtype) == (np.int64, np.float64, np.float64)


@pytest.mark.parametrize(
    ("uri", "shared"),
    [
        ("http://127.0.0.1:5000", True),
        ("postgresql://host/db", True),
        ("databricks", True),
        ("databricks://profile", True),
        ("sqlite:////tmp/mlflow.db", False),
        ("file:///tmp/mlruns", False),
        ("/tmp/mlruns", False),
    ],
)
def test_which_stores_are_everybodys(uri, shared):
    """There another's settings leave a verdict as it is."""
    run = object.__new__(MlflowRun)
    run._uri = uri
    assert run._is_shared() is shared


def test_what_a_metric_is_is_decided_once(local, monkeypatch):
    history = [(step, 0.5 + 2.0 * 0.97**step + 0.02 * math.sin(7.0 * step)) for step in range(150)]
    run_id = local.run(metrics={"once/loss": history, "once/val_loss": history}, params={"learning_rate": "0.001"})
    decided, understand = [], decisions.Run

    def counting(names, *more):
        decided.append(tuple(names))
        return understand(names, *more)

    monkeypatch.setattr(decisions, "Run", counting)
    config = th.Config()  # nobody has asked under it yet
    for judge in (th.check, th.annotate):
        judged = judge(run_id, config=config, tracking_uri=local.uri)
        report = getattr(judged, "report", judged)
        assert {one.role for one in report.series} == {"train_loss", "val_loss"}
        assert [names for names in decided if "once/loss" in names] == [("once/loss", "once/val_loss")]


@pytest.mark.slow
def test_a_run_is_named_by_the_beginning_of_its_id(sqlite_uri):
    """Where only one begins so, in any experiment; else the answer has those that do."""
    _, ids = make_runs(sqlite_uri, 3, points=2)
    with closing(sqlite3.connect(sqlite_uri.removeprefix("sqlite:///"))) as database, database:
        for table in ("metrics", "latest_metrics", "tags"):
            database.execute(f"DELETE FROM {table}")
        for number, run_id in enumerate(ids[:2]):
            database.execute("UPDATE runs SET run_uuid = ? WHERE run_uuid = ?", ("abcdef" + f"{number:026x}", run_id))
    with closing(open_run(ids[2][:6], tracking_uri=sqlite_uri)) as run:
        assert run.ref.id == ids[2]
    with pytest.raises(RunNotFound, match="several runs begin") as error:
        open_run("abcdef", tracking_uri=sqlite_uri)
    assert "abcdef" + "0" * 26 in error.value.hint
    with pytest.raises(RunNotFound, match="neither a folder here nor"):
        open_run("0" * 31, tracking_uri=sqlite_uri)
