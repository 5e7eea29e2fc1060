"""How people name experiments and runs, and what a store gives that is old, lone, or half out of reach."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tracker_health as th
from tracker_health.api import runs_of_experiment
from tracker_health.errors import RunNotFound, StoreRefused, StoreUnavailable
from tracker_health.runs.lookup import open_run
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree
from tracker_health.words.verdict import Verdict

from .conftest import server_of

mlflow = pytest.importorskip("mlflow")

RUN_ID = "0123456789abcdef" * 2
LOSSES = [2.3 * 0.95**step for step in range(60)]


def logged(uri, experiment="an experiment", name="run", client=None):
    client = client or mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    where = found.experiment_id if found else client.create_experiment(experiment)
    run = client.create_run(where, run_name=name)
    points = [
        mlflow.entities.Metric("loss", value, 1_700_000_000_000 + step, step) for step, value in enumerate(LOSSES)
    ]
    client.log_batch(run.info.run_id, metrics=points)
    client.set_terminated(run.info.run_id)
    return client.get_run(run.info.run_id)


def names(found):
    return [str(one) for one in found]


# Experiments


def test_an_experiment_by_name_id_and_page(server_uri):
    run = logged(server_uri, "by any name")
    number = run.info.experiment_id
    for given in (
        "by any name",
        number,
        f"{server_uri}/#/experiments/{number}",
        f"{server_uri}/#/experiments/{number}/runs?x=1",
    ):
        assert names(runs_of_experiment(given, tracking_uri=server_uri)) == [run.info.run_id], given
    # The page names the server, too.
    page = f"{server_uri}/#/experiments/{number}"
    assert names(runs_of_experiment(page, tracking_uri="sqlite:////nowhere/at/all.db")) == [run.info.run_id]


def test_a_name_goes_before_an_id(sqlite_uri):
    first = logged(sqlite_uri, "named")
    second = logged(sqlite_uri, first.info.experiment_id)
    assert names(runs_of_experiment(first.info.experiment_id, tracking_uri=sqlite_uri)) == [second.info.run_id]


def test_a_page_is_of_an_id_whatever_another_experiment_is_called(server_uri):
    first = logged(server_uri, "with a page")
    logged(server_uri, first.info.experiment_id)
    page = f"{server_uri}/#/experiments/{first.info.experiment_id}"
    assert names(runs_of_experiment(page)) == [first.info.run_id]


@pytest.mark.parametrize("given", ["no such one", "987654321", "https://x/y"])
def test_an_experiment_that_is_not_there(sqlite_uri, given):
    with pytest.raises(RunNotFound, match="there is no experiment"):
        list(runs_of_experiment(given, tracking_uri=sqlite_uri))


# Folders


@pytest.fixture
def folder_store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    return tmp_path / "project" / "mlruns"


def test_a_run_whose_empty_folders_are_lost(folder_store, tmp_path):
    """As git loses them: in its store, by its id there, and alone."""
    run = logged(str(folder_store))
    place = folder_store / run.info.experiment_id / run.info.run_id
    for empty in ("artifacts", "params", "tags"):
        shutil.rmtree(place / empty, ignore_errors=True)
    assert th.check(place).verdict is Verdict.PASS
    assert th.check(run.info.run_id, tracking_uri=str(folder_store)).verdict is Verdict.PASS
    place.rename(tmp_path / "lone")
    assert th.check(tmp_path / "lone").verdict is Verdict.PASS


def test_a_folder_that_holds_mlruns(folder_store):
    run = logged(str(folder_store))
    assert th.check(folder_store.parent).run.id.endswith(run.info.run_id)
    logged(str(folder_store))
    with pytest.raises(RunNotFound, match="holds an MLflow store with 2 runs") as caught:
        th.check(folder_store.parent)
    assert "mlruns RUN_ID" in caught.value.hint


def test_a_folder_with_a_run_of_its_own_beside_mlruns(folder_store, write_log):
    logged(str(folder_store))
    write_log(LOSSES, "project")
    report = th.check(folder_store.parent)
    assert (report.run.name, report.verdict) == ("project", Verdict.PASS)


# Artifacts out of reach


@pytest.mark.exhaustive
def test_artifacts_behind_a_server_that_gives_none(tmp_path):
    """Whoever reads its database, or a server that serves no artifacts, has the metrics, which are judged."""
    for served in server_of(tmp_path):
        run = logged(served)
        assert run.info.artifact_uri.startswith("mlflow-artifacts:")
        assert th.check(run.info.run_id, tracking_uri=served).notes == ()
    for served in server_of(tmp_path, ["--no-serve-artifacts", "--default-artifact-root", str(tmp_path / "b")]):
        for uri, said in (
            (served, "--no-serve-artifacts"),
            (f"sqlite:///{tmp_path}/mlflow.db", "the run's MLflow server"),
        ):
            report = th.check(run.info.run_id, tracking_uri=uri)
            assert (report.verdict, report.errors) == (Verdict.PASS, ())
            assert any(said in note for note in report.notes), report.notes


# Databases of an older MLflow

OLD = """
import sys
import alembic.command
from mlflow.store.db.utils import _get_alembic_config, create_sqlalchemy_engine
from mlflow.store.tracking.dbmodels.initial_models import Base
uri = f"sqlite:///{sys.argv[1]}"
engine = create_sqlalchemy_engine(uri)
Base.metadata.create_all(engine)
config = _get_alembic_config(uri)
with engine.begin() as connection:
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, sys.argv[2])
engine.dispose()
"""


def old_database(path, revision="cfd24bdc0731"):
    """As MLflow 1.8 made it: its own migrations, that far."""
    subprocess.run([sys.executable, "-c", OLD, path, revision], check=True, capture_output=True, timeout=300)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO experiments VALUES (0, 'Default', './mlruns/0', 'active')")
        columns = "run_uuid, name, source_type, user_id, status, start_time, end_time, lifecycle_stage, artifact_uri, experiment_id"
        values = (
            RUN_ID,
            "",
            "LOCAL",
            "me",
            "FINISHED",
            1_577_000_000_000,
            1_577_000_100_000,
            "active",
            str(path.parent / "a"),
            0,
        )
        database.execute(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        for step, value in enumerate(LOSSES):
            database.execute(
                "INSERT INTO metrics VALUES ('loss', ?, ?, ?, ?, 0)", (value, 1_577_000_000_000 + step, RUN_ID, step)
            )
        last = (LOSSES[-1], 1_577_000_000_059, 59, RUN_ID)
        database.execute("INSERT INTO latest_metrics VALUES ('loss', ?, ?, ?, 0, ?)", last)
        database.commit()


@pytest.mark.slow
def test_a_database_of_an_old_mlflow_is_read_and_never_upgraded(tmp_path, capfd):
    path = tmp_path / "old.db"
    old_database(path)
    before = path.read_bytes()
    report = th.check(RUN_ID, tracking_uri=f"sqlite:///{path}")
    assert report.verdict is Verdict.PASS
    assert any("an older MLflow" in note for note in report.notes)
    for change in (th.annotate, th.clear_annotations):
        with pytest.raises(StoreRefused, match="was read from a copy") as caught:
            change(RUN_ID, tracking_uri=f"sqlite:///{path}")
        assert "mlflow db upgrade" in caught.value.hint
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["old.db"]
    assert "alembic" not in capfd.readouterr().err


# What needs a package of its own


@pytest.mark.parametrize(
    ("uri", "package"),
    [
        ("arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/x", "sagemaker-mlflow"),
        ("azureml://westeurope.api.azureml.ms/mlflow/v1.0/x", "azureml-mlflow"),
    ],
)
def test_a_store_that_needs_a_package_names_it(uri, package):
    with pytest.raises(StoreUnavailable) as caught:
        th.check(RUN_ID, tracking_uri=uri)
    assert caught.value.hint == f"pip install {package}"


# Models as pickles


def test_a_link_to_nowhere_among_the_artifacts_costs_nothing_but_itself(sqlite_uri, tmp_path):
    run = logged(sqlite_uri)
    folder = Path(run.info.artifact_uri.removeprefix("file://"))
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "notes.txt").write_text("mine")
    for place in ("gone", "deep/last.ckpt"):
        (folder / place).symlink_to(tmp_path / "nowhere")
    (folder / "round").symlink_to("round")
    (outcome,) = th.check_many([run.info.run_id], tracking_uri=sqlite_uri)
    assert (outcome.report.verdict, outcome.error) == (Verdict.PASS, None)
    tree = ArtifactTree(mlflow.MlflowClient(tracking_uri=sqlite_uri), run, sqlite_uri)
    assert [file.path for file in tree.files] == ["deep/notes.txt"]


def test_a_pickled_model_is_there_and_not_read(sqlite_uri, tmp_path):
    torch = pytest.importorskip("torch")
    run = logged(sqlite_uri, "local")
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    torch.save(torch.nn.Linear(4, 3), tmp_path / "model.pth")
    client.log_artifact(run.info.run_id, str(tmp_path / "model.pth"), "model/data")
    client.log_text(run.info.run_id, "flavors: {}", "model/MLmodel")
    for given, uri, path in (
        (run.info.run_id, sqlite_uri, "model/data/model.pth"),
        (tmp_path / "model.pth", None, "model.pth"),
    ):
        report = th.check(given, tracking_uri=uri)
        (skipped,) = (one for one in report.skipped if one.code == "WGT001")
        assert skipped.reason.startswith(f"{path} is a pickled model: it is there, and not read")


# A file as a run


def test_a_log_by_itself(tmp_path, write_log):
    write_log(LOSSES, "run", "log.jsonl")
    file = tmp_path / "run" / "log.jsonl"
    report = th.check(file)
    assert (report.verdict, report.run.name) == (Verdict.PASS, "log.jsonl")
    with pytest.raises(StoreRefused, match="is a file, onto which no verdict can be written"):
        th.annotate(file)
    assert th.clear_annotations(file).found is False
    assert [one.name for one in (tmp_path / "run").iterdir()] == ["log.jsonl"]


def test_a_checkpoint_by_itself(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    model[0].weight.data[0, 0] = float("nan")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "log.jsonl").write_text("not looked at")
    report = th.check(tmp_path / "model.pt")
    assert report.verdict is Verdict.FAIL
    assert [one.path for one in open_run(tmp_path / "model.pt").files] == ["model.pt"]


def test_a_file_of_something_else(tmp_path):
    (tmp_path / "notes.py").write_text("print(1)\n")
    report = th.check(tmp_path / "notes.py")
    assert report.verdict is Verdict.ERROR
    assert "neither as a training log nor as a checkpoint" in report.errors[0].message
