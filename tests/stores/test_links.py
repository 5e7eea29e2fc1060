"""Nothing is written through a link, in any store, whatever the run's own record says is ours."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial

import pytest

import tracker_health as th
from tracker_health.errors import WriteError
from tracker_health.runs.lookup import open_run
from tracker_health.stores.common.record import DIGEST, WRITTEN
from tracker_health.stores.mlflow.connection import _folders_allowed
from tracker_health.stores.remote import hosts
from tracker_health.testing.stores.contract import FAIL

from . import wandb_logs
from .test_mlflow_store import Store, descent, folder_of

MINE = b"what somebody else needs"


@pytest.fixture
def target(tmp_path):
    """A file elsewhere, with a folder of its own."""
    path = tmp_path / "elsewhere" / "precious"
    path.parent.mkdir()
    path.write_bytes(MINE)
    yield path
    assert path.read_bytes() == MINE
    assert [one.name for one in path.parent.iterdir()] == ["precious"]


def tried(work):
    """What a work says that may be refused."""
    try:
        return str(work())
    except WriteError as error:
        return str(error)


# MLflow, with artifacts on this machine


@pytest.fixture
def store(sqlite_uri):
    pytest.importorskip("mlflow")
    with closing(Store(sqlite_uri)) as one:
        yield one


# With its page, as after a finding: so that there is something to write at each of these places.
annotate = partial(th.annotate, config=th.Config(pages="always"))


def claiming(store, run_id, names):
    """Write a record as ours onto a run that lists these files."""
    record = {"tool": "tracker-health", "digest": "0" * 16, "files": names, "metrics": [], "tags": [], "note": False}
    store.client.set_tag(run_id, f"health.{WRITTEN}", json.dumps(record))
    store.client.set_tag(run_id, f"health.{DIGEST}", "0" * 16)
    store.client.set_tag(run_id, "health.verdict", "pass")


@pytest.mark.parametrize("place", ["health/report.html", "health/other"])
@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.thinned(4)
def test_a_link_among_the_artifacts(store, target, claimed, place):
    run_id = store.run(metrics={"loss": descent(200)})
    link = folder_of(store, run_id) / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    if claimed:
        claiming(store, run_id, ["report.html", "other", "report.json"])
    said = tried(lambda: annotate(run_id, tracking_uri=store.uri))
    assert link.is_symlink()
    if claimed or place != "health/other":
        assert "nothing was" in said
    tried(lambda: th.clear_annotations(run_id, tracking_uri=store.uri))
    assert link.is_symlink()


def test_a_linked_folder_of_ours_among_the_artifacts(store, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "report.html").write_bytes(MINE)
    run_id = store.run(metrics={"loss": descent(200)})
    folder_of(store, run_id).mkdir(parents=True, exist_ok=True)
    (folder_of(store, run_id) / "health").symlink_to(outside)
    claiming(store, run_id, ["report.html"])
    assert "nothing was changed" in tried(lambda: annotate(run_id, tracking_uri=store.uri))
    th.clear_annotations(run_id, tracking_uri=store.uri)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"report.html": MINE}


def test_where_the_artifacts_are_a_link_the_files_are_left_out(store, target):
    run_id = store.run(metrics={"loss": descent(200)})
    folder = folder_of(store, run_id)
    folder.rmdir()
    folder.symlink_to(target.parent)
    outcome = annotate(run_id, tracking_uri=store.uri)
    assert outcome.status == "written"
    assert "the files (the folder of its artifacts is a link" in outcome.omitted[0]
    assert store.client.get_run(run_id).data.tags["health.verdict"] == "pass"
    assert annotate(run_id, tracking_uri=store.uri).status == "unchanged"
    assert th.clear_annotations(run_id, tracking_uri=store.uri).found


# A server that names a folder of this machine


@pytest.fixture
def named(direct_server, monkeypatch):
    """A server that leaves the artifacts to its clients, as if it were on another machine."""
    uri, _ = direct_server
    monkeypatch.setattr(hosts, "_is_loopback", lambda host: False)
    monkeypatch.setattr(hosts, "_allowed", set())
    with closing(Store(uri)) as one:
        yield one


@pytest.mark.exhaustive
def test_a_folder_that_a_server_names_is_not_written_to(named):
    run_id = named.run(metrics={"loss": descent(200)})
    before = sorted(folder_of(named, run_id).rglob("*"))
    outcome = annotate(run_id, tracking_uri=named.uri)
    assert outcome.status == "written"
    (omitted,) = outcome.omitted
    host = named.uri.partition("://")[2]
    assert f"{host} names a folder of this machine as their place" in omitted
    assert f"trusted_hosts = ['{host}']" in omitted
    assert sorted(folder_of(named, run_id).rglob("*")) == before
    assert named.client.get_run(run_id).data.tags["health.verdict"] == "pass"
    assert th.clear_annotations(run_id, tracking_uri=named.uri).found
    allowed = th.Config(trusted_hosts=(host,))
    assert annotate(run_id, tracking_uri=named.uri, config=allowed).omitted == ()
    assert (folder_of(named, run_id) / "health" / "report.json").is_file()
    monkeypatched = hosts._allowed.copy()
    hosts._allowed.clear()
    kept = th.clear_annotations(run_id, tracking_uri=named.uri).kept  # as little is deleted there
    assert "health/report.json" in kept
    hosts._allowed |= monkeypatched
    assert th.clear_annotations(run_id, tracking_uri=named.uri).kept == ()


def test_a_server_on_this_machine_names_folders_of_it(direct_server):
    uri, _ = direct_server
    with closing(Store(uri)) as one:
        run_id = one.run(metrics={"loss": descent(200)})
        assert annotate(run_id, tracking_uri=uri).omitted == ()


def test_a_link_in_a_folder_of_runs(tmp_path, target):
    mlflow = pytest.importorskip("mlflow")
    with _folders_allowed():
        client = mlflow.MlflowClient(tracking_uri=str(tmp_path / "mlruns"))
    run_id = client.create_run("0").info.run_id
    for step in range(30):
        client.log_metric(run_id, "loss", 2 / (1 + step), step=step)
    client.set_terminated(run_id)
    run = tmp_path / "mlruns" / "0" / run_id
    (run / "artifacts" / "health").mkdir(parents=True)
    (run / "artifacts" / "health" / "report.html").symlink_to(target)
    assert "report.html is a link, and not ours; nothing was changed" in tried(lambda: annotate(run))


# Folders, and runs of W&B


def folder(place):
    place.mkdir()
    (place / "log.jsonl").write_text("".join(f'{{"step": {step}, "loss": {2 / (1 + step)}}}\n' for step in range(60)))
    return place, place / "health"


def run_of_wandb(place):
    log = place / "run-abc123.wandb"
    rows = [wandb_logs.history(step, {"loss": 2.0 / (1 + step)}) for step in range(30)]
    wandb_logs.write_log(log, [wandb_logs.run_record(), *rows, wandb_logs.exit_record()])
    (place / "files").mkdir()
    return place, place / "files" / "health"


@pytest.mark.parametrize("name", ["report.json", "report.html", "annotation.json", "old.html"])
@pytest.mark.parametrize("make", [folder, run_of_wandb], ids=lambda one: one.__name__)
@pytest.mark.thinned(3)
def test_a_link_in_the_folder_of_ours(make, name, tmp_path, target):
    run, health = make(tmp_path / "run")
    annotate(run)
    record = json.loads((health / "annotation.json").read_text())
    (health / "annotation.json").write_text(json.dumps({**record, "files": [*record["files"], "old.html"]}))
    place = health / name
    if name == "annotation.json":
        place.rename(tmp_path / "record")
        place.symlink_to(tmp_path / "record")
        before = (tmp_path / "record").read_bytes()
    else:
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    for work in (lambda: annotate(run, force=True), lambda: th.clear_annotations(run)):
        assert f"{name} is a link, and not ours; nothing was changed" in tried(work)
    assert place.is_symlink()
    if name == "annotation.json":
        assert (tmp_path / "record").read_bytes() == before
        assert annotate(run).status == "unchanged"  # read it may be: data versioning makes links of files


def test_linked_files_of_a_run_of_wandb(tmp_path, target):
    run, _ = run_of_wandb(tmp_path / "run")
    (run / "files").rmdir()
    (run / "files").symlink_to(target.parent)
    assert "files is a link, and not ours; nothing was changed" in tried(lambda: annotate(run))
    assert not th.clear_annotations(run).found


def test_a_medium_of_wandbs_that_is_a_link(tmp_path, target):
    run, health = run_of_wandb(tmp_path / "run")
    with closing(open_run(run)) as opened:
        opened.write(FAIL)
    place = next(path for path in (run / "files" / "media").rglob("*") if path.is_file())
    place.unlink()
    place.symlink_to(target)
    with closing(open_run(run)) as opened:
        assert "exists and is not ours" in tried(lambda: opened.write(FAIL))
    with closing(open_run(run)) as opened:
        opened.clear()
    assert place.is_symlink()
    assert not health.exists()
