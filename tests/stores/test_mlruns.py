"""Folders of runs that MLflow kept before it had databases: read and annotated in their store, and each run alone."""

from __future__ import annotations

import math
import os
import shutil
import threading
from contextlib import closing
from pathlib import Path

import pytest
import yaml

import tracker_health as th
from tracker_health.errors import ReadError, RunNotFound, StoreRefused
from tracker_health.evidence import Part, Request, StepUnit
from tracker_health.readers import mlflow_folder
from tracker_health.roles import RolePlan
from tracker_health.runs.lookup import open_run
from tracker_health.stores.mlflow.connection import _folders_allowed, folder_of
from tracker_health.stores.mlflow.folder import LoneMlflowRun
from tracker_health.stores.mlflow.run import MlflowRun, open_mlflow_run

mlflow = pytest.importorskip("mlflow")

METRICS_ONLY = Request(roles=RolePlan(), parts=frozenset())


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


class Folder:
    """A file store with one run, made by MLflow itself."""

    def __init__(self, root):
        self.root = root
        with _folders_allowed():
            self.client = mlflow.MlflowClient(tracking_uri=str(root))
        self.run_id = self.client.create_run("0", run_name="an old one").info.run_id
        points = [mlflow.entities.Metric("train/loss", 2 / (1 + step), 10**12 + step, step) for step in range(60)]
        self.client.log_batch(self.run_id, metrics=points, params=[mlflow.entities.Param("lr", "0.1")])
        self.client.log_text(self.run_id, "theirs", "notes.txt")
        self.client.set_terminated(self.run_id)

    @property
    def run(self):
        return self.root / "0" / self.run_id


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my runs").mkdir()
    return Folder(tmp_path / "my runs" / "mlruns")


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# In its store


@pytest.mark.parametrize("uri", ["{}", "file://{}", "file:{}"])
def test_a_folder_is_a_tracking_uri(folder, uri):
    before, environment = contents(folder.root), dict(os.environ)
    report = th.check(
        folder.run_id, tracking_uri=uri.format(str(folder.root).replace(" ", "%20" if "file" in uri else " "))
    )
    assert (report.verdict, report.run.store, report.run.name) == (th.Verdict.PASS, "mlflow", "an old one")
    assert contents(folder.root) == before
    assert dict(os.environ) == environment


def test_a_relative_folder_and_a_path_in_it(folder, monkeypatch):
    monkeypatch.chdir(folder.root.parent)
    by_id, by_path = th.check(folder.run_id, tracking_uri="mlruns"), th.check(f"mlruns/0/{folder.run_id}")
    assert by_id == by_path
    assert by_path.run.store == "mlflow"


def test_it_is_annotated_and_cleared_through_mlflow(folder):
    before = contents(folder.root)
    outcome = th.annotate(folder.run)
    assert (outcome.status, outcome.report.run.store) == ("written", "mlflow")
    run = folder.client.get_run(folder.run_id)
    assert run.data.tags["health.verdict"] == "pass"
    assert run.info.status == "FINISHED"
    assert (folder.run / "artifacts" / "health" / "report.json").is_file()
    assert not (folder.run / "health").exists()
    assert th.annotate(folder.run_id, tracking_uri=str(folder.root)).status == "unchanged"
    assert th.clear_annotations(folder.run).found
    after = contents(folder.root)
    assert {name: after[name] for name in before} == before
    assert {name for name in after.keys() - before.keys() if "metrics/health" not in name} == set()


def test_a_store_that_was_moved_keeps_its_artifacts_with_it(folder, tmp_path):
    folder.root.parent.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "mlruns" / "0" / folder.run_id
    assert th.annotate(moved).status == "written"
    assert (moved / "artifacts" / "health" / "report.json").is_file()
    assert not folder.root.exists()
    with closing(open_run(moved)) as run:
        assert [file.path for file in run._artifacts.files] == ["notes.txt"]


def test_a_copied_store_is_annotated_and_cleared_without_touching_the_original(folder, tmp_path):
    th.annotate(folder.run)
    original = contents(folder.root)
    copy = Path(shutil.copytree(folder.root, tmp_path / "backup" / "mlruns")) / "0" / folder.run_id
    (copy / "artifacts" / "notes.txt").write_text("other words")
    with closing(open_run(copy)) as run:
        assert run._artifacts.local(run._artifacts.files[0]).read_text() == "other words"
    assert th.annotate(copy, config="strict").status == "written"
    assert contents(folder.root) == original
    assert th.clear_annotations(copy).found
    assert not (copy / "artifacts" / "health").exists()
    assert contents(folder.root) == original
    assert th.annotate(folder.run).status == "unchanged"


def test_an_artifact_root_of_the_owners_choice_is_used(folder, tmp_path):
    """Its folders are named like those of a store, and it is none."""
    place = tmp_path / "artifact root" / "0" / folder.run_id / "artifacts"
    shutil.copytree(folder.run / "artifacts", place)
    meta = folder.run / "meta.yaml"
    meta.write_text(yaml.safe_dump(yaml.safe_load(meta.read_text()) | {"artifact_uri": place.as_uri()}))
    assert th.annotate(folder.run).status == "written"
    assert (place / "health" / "report.json").is_file()
    assert not (folder.run / "artifacts" / "health").exists()


def test_a_deleted_run_can_be_read_and_not_written(folder):
    folder.client.delete_run(folder.run_id)
    assert th.check(folder.run).verdict is th.Verdict.PASS
    with pytest.raises(StoreRefused, match="is deleted"):
        th.annotate(folder.run)


def test_an_unknown_run_of_a_folder(folder):
    with pytest.raises(RunNotFound, match="no such run"):
        open_mlflow_run("0" * 32, str(folder.root))


def test_a_folder_that_is_no_store_is_left_alone(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("x")
    with pytest.raises(RunNotFound, match="holds no experiments"):
        open_mlflow_run("0" * 32, str(tmp_path / "data"))
    assert contents(tmp_path / "data") == {"x": b"x"}


@pytest.mark.parametrize("before", [None, "false", "true"])
def test_the_environment_is_put_back_whatever_happens(monkeypatch, before):
    if before:
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", before)

    def fails():
        with _folders_allowed():
            assert os.environ["MLFLOW_ALLOW_FILE_STORE"] == "true"
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert os.environ.get("MLFLOW_ALLOW_FILE_STORE") == before


def test_many_threads_open_folders_at_once(tmp_path):
    folders = [Folder(tmp_path / str(number)) for number in range(6)]
    copies = [Path(shutil.copytree(folder.root, tmp_path / f"copy of {folder.root.name}")) for folder in folders]
    verdicts = []

    def work(folder, copy):
        verdicts.append(th.check(folder.run_id, tracking_uri=str(copy)).verdict)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(folders, copies, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [th.Verdict.PASS] * 6
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///a%20b/c", "/a b/c"),
        ("file://localhost/a", "/a"),
        ("/a%20b", "/a%20b"),
        ("mlruns", "mlruns"),
        ("file:mlruns", "mlruns"),
        ("http://host", None),
        ("sqlite:///x", None),
        ("databricks://x", None),
    ],
)
def test_the_folder_of_a_uri(uri, expected):
    assert folder_of(uri) == (expected and Path(expected))


# Alone


@pytest.fixture
def lone(folder, tmp_path):
    return Path(shutil.copytree(folder.run, tmp_path / "sent by mail"))


def test_a_run_out_of_its_store_is_read_and_annotated_as_a_folder(folder, lone):
    before = contents(lone)
    outcome = th.annotate(lone)
    assert (outcome.status, outcome.report.verdict) == ("written", th.Verdict.PASS)
    assert (outcome.report.run.store, outcome.report.run.name) == ("directory", "an old one")
    assert (lone / "health" / "report.json").is_file()
    assert th.annotate(lone).status == "unchanged"
    assert [result.measured for result in outcome.report.results] == [
        result.measured for result in th.check(folder.run).results
    ]
    assert th.clear_annotations(lone).found
    assert contents(lone) == before


def _is_found(folder):
    """Whether MLflow finds the run: where a run lacks one of its folders, MLflow 2 does and MLflow 3 does not."""
    try:
        return folder.client.get_run(folder.run_id).info.run_id == folder.run_id
    except mlflow.exceptions.MlflowException:
        return False


def test_its_tags_choose_overrides_as_in_its_store(folder, lone):
    with _folders_allowed():
        folder.client.set_tag(folder.run_id, "stage", "draft")
    (lone / "tags" / "stage").write_text("draft")
    (lone / "tags" / "health.verdict").write_text("pass")
    assert open_run(lone).traits() == {
        name: value for name, value in open_run(folder.run).traits().items() if name != "experiment"
    }
    shutil.rmtree(folder.run / "artifacts")
    shutil.rmtree(folder.run / "tags")
    inside = open_run(folder.run)
    assert isinstance(inside, MlflowRun if _is_found(folder) else LoneMlflowRun)
    assert inside.traits() == {"experiment": "Default"}


def test_what_was_not_looked_at_is_told(lone, monkeypatch):
    real = os.scandir

    def scandir(path):
        if Path(path).name == "secret":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    (lone / "artifacts" / "secret").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    assert "artifacts/secret" in str(th.check(lone).errors)
    monkeypatch.setattr("tracker_health.stores.folder.directory.MAX_FILES", 1)
    assert "more than 1 files" in str(open_run(lone).read(Request(roles=RolePlan(), parts=frozenset(Part))).problems)


def test_a_metric_that_goes_while_it_is_looked_at(lone):
    run = open_run(lone)
    assert run._theirs.keys() == {"train/loss"}
    (lone / "metrics" / "train" / "loss").unlink()
    assert len(run.fingerprint(METRICS_ONLY)) == 16
    assert [problem.source for problem in run.read(METRICS_ONLY).problems] == ["metrics/train/loss"]


def test_a_new_point_changes_the_fingerprint(lone):
    th.annotate(lone)
    with (lone / "metrics" / "train" / "loss").open("a") as file:
        file.write("1000000000060 0.01 60\n")
    assert th.annotate(lone).status == "written"


@pytest.mark.parametrize("change", ["renamed", "other experiment", "no experiment"])
def test_what_mlflow_would_not_find_there_is_read_alone(folder, change):
    assert isinstance(open_run(folder.run), MlflowRun)
    run = folder.run
    if change == "renamed":
        run = run.rename(run.with_name("best"))
    elif change == "other experiment":
        run = run.parent.rename(folder.root / "1") / run.name
    else:
        (run.parent / "meta.yaml").unlink()
    assert isinstance(open_run(run), LoneMlflowRun)


def test_a_run_that_lacks_its_empty_folders_is_read_alone(folder):
    shutil.rmtree(folder.run / "tags")
    shutil.rmtree(folder.run / "artifacts")
    report = th.check(folder.run)
    assert (report.verdict, report.errors) == (th.Verdict.PASS, ())


@pytest.mark.parametrize("text", ["", "name: x\n", "run_id:\n", "- a\n", "\0\0", "{run_id: x}"])
def test_a_folder_with_another_meta_file_is_none_of_a_run(write_log, healthy_losses, text):
    folder = write_log(healthy_losses)
    (folder / "meta.yaml").write_text(text)
    report = th.check(folder)
    assert (report.run.name, report.verdict) == (folder.name, th.Verdict.PASS)


@pytest.fixture
def handmade(tmp_path):
    """A lone run with the given metrics: name to the lines of the file."""

    def make(**metrics):
        run = tmp_path / "run"
        (run / "metrics").mkdir(parents=True)
        (run / "meta.yaml").write_text("run_uuid: 'abc'\nstatus: 3\nrun_name: null\n")
        for name, lines in metrics.items():
            (run / "metrics" / name).write_text("\n".join(lines))
        return run

    return make


def test_points_as_the_file_has_them(handmade):
    lines = ["1000 2.0 -1", "2000 nan 2", "3000 1.7976931348623157e+308 2", "4000 -1.797e308 1", "5000 inf 3 data 1f"]
    evidence = open_run(handmade(loss=lines)).read(METRICS_ONLY)
    series = evidence.find("train_loss")
    assert evidence.info.status == "FINISHED"
    assert evidence.problems == ()
    assert list(series.steps) == [-1, 2, 2, 1, 3]
    assert list(series.values[[0, 2, 3, 4]]) == [2.0, math.inf, -math.inf, math.inf]
    assert math.isnan(series.values[1])
    assert list(series.times) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert list(series.clean().steps) == [-1, 1, 2, 3]


def test_a_summary_and_concatenated_folds(handmade):
    folds = [f"{1000 * (60 * fold + step)} {2 / (1 + step)} {step}" for fold in range(3) for step in range(1, 60)]
    report = th.check(handmade(loss=[*folds, "999999999 1.36 0"]))
    assert report.verdict is th.Verdict.PASS


def test_points_without_steps_are_in_the_order_of_time(handmade):
    series = open_run(handmade(loss=["3000 1.0", "1000 3.0", "2000 2.0"])).read(METRICS_ONLY).find("train_loss")
    assert list(series.values) == [3.0, 2.0, 1.0]
    assert series.step_unit is StepUnit.LOG_CALL


def test_lines_cut_short_are_told_of_and_the_rest_is_read(handmade):
    lines = [f"{1000 * step} {2 / step} {step}" for step in range(1, 60)]
    lines += ["x y z", "1 2 99999999999999999999", "nan 1 1", "1000 1 1.5", "1 2 3 4", "\x00" * 9000, "60000"]
    evidence = open_run(handmade(loss=lines)).read(METRICS_ONLY)
    assert len(evidence.find("train_loss")) == 59
    assert [(problem.source, bool(problem.roles)) for problem in evidence.problems] == [("metrics/loss", False)]


def test_a_file_that_holds_no_points_is_an_error_of_the_rules_that_need_it(handmade):
    report = th.check(handmade(loss=["not", "a metric"]))
    assert report.verdict is th.Verdict.ERROR
    assert "no line of it is a point" in str(report.errors)


def test_an_empty_metric_is_no_evidence(handmade):
    report = th.check(handmade(loss=[]))
    assert (report.verdict, report.errors) == (th.Verdict.SKIP, ())


def test_pipes_links_and_deep_folders_stop_nobody(handmade, tmp_path):
    run = handmade(loss=[f"{step} {2 / step} {step}" for step in range(1, 60)])
    os.mkfifo(run / "metrics" / "pipe")
    (run / "metrics" / "link").symlink_to("/dev/zero")
    (run / "metrics" / "loop").symlink_to(run)
    (run / "params").mkdir()
    os.mkfifo(run / "params" / "lr")
    run.joinpath("metrics", *["deep"] * 40).mkdir(parents=True)
    run.joinpath("metrics", *["deep"] * 40, "loss").write_text("1 1 1\n")
    assert mlflow_folder.metric_files(run).keys() == {"loss"}
    assert th.check(run).verdict is th.Verdict.PASS


def test_too_many_names_and_points(handmade, monkeypatch):
    run = handmade(loss=["1 1 1"] * 20, val_loss=["1 1 1"])
    monkeypatch.setattr(mlflow_folder, "MAX_POINTS", 10)
    with pytest.raises(ReadError, match="more than the 10 points"):
        mlflow_folder.read_points(run / "metrics" / "loss")
    assert th.check(run).verdict is th.Verdict.ERROR
    monkeypatch.setattr(mlflow_folder, "MAX_NAMES", 1)
    report = th.check(run)
    assert report.verdict is th.Verdict.ERROR
    assert "more than the 1 names" in str(report.errors)


def test_names_with_control_characters_are_shown_safely(handmade):
    run = handmade(loss=["x"])
    (run / "meta.yaml").write_text("run_id: a\nrun_name: '\x1b[31mred'\n")
    assert "\x1b" not in open_run(run).ref.name


# Folders that are no run


@pytest.mark.parametrize("command", [th.check, th.annotate, th.clear_annotations])
def test_a_store_and_its_experiments_are_no_runs(folder, monkeypatch, command):
    folder.client.delete_experiment(folder.client.create_experiment("gone"))
    before = contents(folder.root)
    monkeypatch.chdir(folder.root.parent)
    for path in (folder.root, folder.root / "0", "mlruns", "mlruns/0", folder.root / ".trash"):
        with pytest.raises(
            RunNotFound, match=r"is an (MLflow store|experiment of an MLflow store), not a run"
        ) as caught:
            command(path)
        assert f"--tracking-uri '{folder.root}' RUN_ID" in caught.value.hint
    assert contents(folder.root) == before
    with _folders_allowed():
        assert len(mlflow.MlflowClient(tracking_uri=str(folder.root)).search_experiments()) == 1


def test_a_folder_with_nothing_to_judge_gets_nothing_written(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", folder.run / "metrics", folder.run / "params"):
        before = contents(tmp_path)
        (outcome,) = th.annotate_many([path])
        assert (outcome.status, outcome.report.verdict) == ("failed", th.Verdict.ERROR)
        assert "holds no run: nothing was written" in str(outcome.error)
        assert contents(tmp_path) == before
        assert not (path / "health").exists()


def test_a_folder_that_lost_what_there_was_to_judge_says_so_and_keeps_its_verdict(write_log, healthy_losses):
    run = write_log(healthy_losses)
    th.annotate(run)
    (run / "train_log.jsonl").unlink()
    with pytest.raises(th.RunError, match=r"the verdict that it has \(pass\) stays"):
        th.annotate(run)
    assert '"pass"' in (run / "health" / "annotation.json").read_text()
