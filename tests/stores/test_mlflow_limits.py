"""How much of an MLflow run is listed, downloaded and read."""

from __future__ import annotations

import contextlib

import pytest

import tracker_health as th
from tracker_health.errors import ReadError
from tracker_health.evidence import Part
from tracker_health.stores.mlflow import histories
from tracker_health.stores.mlflow import run as mlflow_run
from tracker_health.stores.mlflow.stored_files import artifacts
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree

from .test_mlflow_store import METRICS_ONLY, STATE, WITH_STATE, Store, checkpoint, descent, folder_of  # noqa: F401

mlflow = pytest.importorskip("mlflow")


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


# Listing


@pytest.mark.parametrize("pictures", ["plots", "images", "a/images", "traces"])
def test_thousands_of_pictures_hide_no_checkpoint(local, checkpoint, monkeypatch, pictures):  # noqa: F811
    monkeypatch.setattr(artifacts, "MAX_FILES", 20)
    run_id = local.run(metrics={"loss": descent()})
    folder = folder_of(local, run_id) / pictures
    folder.mkdir(parents=True)
    for index in range(60):
        (folder / f"{index}.png").touch()
    local.client.log_artifact(run_id, str(checkpoint), "outputs/checkpoint-5")
    evidence = local.open(run_id).read(WITH_STATE)
    assert evidence.optimizer.source == "outputs/checkpoint-5/optimizer.pt"
    assert evidence.problems == ()


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_SEEN", "MAX_FOLDERS"])
def test_more_than_is_looked_at_is_told(local, monkeypatch, limit):
    monkeypatch.setattr(artifacts, limit, 5)
    run_id = local.run(metrics={"loss": descent()})
    folder = folder_of(local, run_id)
    for index in range(8):
        (folder / str(index)).mkdir()
        (folder / str(index) / "log.jsonl").touch()
    assert "not all were looked at" in str(local.open(run_id).read(WITH_STATE).problems)


def test_all_places_of_a_run_share_one_budget(local, monkeypatch):
    monkeypatch.setattr(artifacts, "MAX_SEEN", 6)
    run_id = local.run(metrics={"loss": descent()})
    local.log(run_id, "a.txt", "x")
    repository = artifacts.repository_of(local.client.get_run(run_id).info.artifact_uri, local.uri)
    monkeypatch.setattr(
        ArtifactTree, "_roots", lambda _: [artifacts._Root(str(index), repository) for index in range(10)]
    )
    run = local.open(run_id)
    assert len(run._artifacts.files) == 6
    assert run._artifacts._listing.truncated


# Downloads


@pytest.mark.parametrize("size", [None, 0])
@pytest.mark.slow
def test_a_file_of_unknown_size_is_not_fetched(remote, checkpoint, monkeypatch, size):  # noqa: F811
    run_id = remote.run(metrics={"loss": descent()})
    remote.client.log_artifact(run_id, str(checkpoint))
    repository = "mlflow.store.artifact.mlflow_artifacts_repo.MlflowArtifactsRepository"
    entries = [mlflow.entities.FileInfo("optimizer.pt", False, size)]
    monkeypatch.setattr(f"{repository}.list_artifacts", lambda *_: entries)
    monkeypatch.setattr(f"{repository}._download_file", lambda *_: pytest.fail("fetched"))
    evidence = remote.open(run_id).read(WITH_STATE)
    assert evidence.problems == ()
    assert "does not say how large it is" in evidence.missing[Part.OPTIMIZER_STATE]


# Histories


def test_a_history_in_pages_is_the_same_as_in_one(store, monkeypatch):
    points = [(step % 7, 2.0 / (1 + step), 1000 + step // 3) for step in range(100)]
    run_id = store.run(metrics={"loss": points})
    whole = store.history(run_id, "loss")
    for page in (1, 7, 100, 25_000):
        if page == 1 and store.uri.startswith("http"):
            continue  # a hundred requests
        monkeypatch.setattr(histories, "PAGE_POINTS", page)
        read = histories.read_history(store.client, run_id, "loss")
        assert read.steps.tolist() == [point.step for point in whole]
        assert read.values.tolist() == [point.value for point in whole]
        assert read.times.tolist() == [point.timestamp / 1000 for point in whole]


def test_a_history_that_is_too_long_is_an_error_of_the_rules_that_need_it(local, monkeypatch):
    run_id = local.run(metrics={"loss": descent(300), "val_loss": descent(20)})
    monkeypatch.setattr(histories, "PAGE_POINTS", 20)
    with pytest.raises(ReadError, match="more than the 100 points that are read"):
        histories.read_history(local.client, run_id, "loss", 100)
    limited = histories.read_history
    monkeypatch.setattr(mlflow_run, "read_history", lambda *run: limited(*run, limit=100))
    evidence = local.open(run_id).read(METRICS_ONLY)
    assert [series.role for series in evidence.series] == ["val_loss"]
    assert [(problem.source, problem.roles) for problem in evidence.problems] == [("metric loss", {"train_loss"})]
    assert th.check(run_id, tracking_uri=local.uri).verdict is th.Verdict.ERROR
