"""Whatever path of the program has written something onto a run or a model of MLflow's: ``clear`` knows it."""

from __future__ import annotations

import sqlite3
import time
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

import tracker_health
from tracker_health.api import acknowledge, annotate_as, ours_on
from tracker_health.cli import cli
from tracker_health.config import Config, preset
from tracker_health.fleet.gate import gate
from tracker_health.judge.messages import SentMessages
from tracker_health.monitor.trackers import ActiveMlflowRun
from tracker_health.runs.annotating import AnnotateOptions
from tracker_health.runs.lookup import open_run
from tracker_health.testing.stores.repairs import REPAIR
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.stopped import Stop

from ..laws import draws  # noqa: TID252  tests are no package of a name
from .test_clear_in_database import rows

pytestmark = pytest.mark.slow

OWN_TAGS = {"mlflow.note.content": "My own words.", "health.patient": "17"}
STOP = Stop(step=60, verdict="fail", code="LOS001", cause="overfitting", reason="it rose", when=1_700_000_000.0)
WORDY = replace(preset("default"), metrics=True, description="always", pages="never")


def annotated(uri, run, **more):
    tracker_health.annotate(f"mlflow:{run}", config=replace(WORDY, **more), tracking_uri=uri, force=True)


def acknowledged(uri, run):
    annotated(uri, run)
    acknowledge(f"mlflow:{run}", because="known", who="ana", tracking_uri=uri)


def on_open(uri, run, work):
    with closing(open_run(f"mlflow:{run}", tracking_uri=uri)) as opened:
        work(opened)


def live(uri, run, work):
    active = ActiveMlflowRun(MlflowClient(tracking_uri=uri), run)
    work(active)
    active.close()


WHILE_IT_GOES_ON = {
    "live mark": lambda uri, run: live(uri, run, lambda one: one.mark("fail")),
    "stop request": lambda uri, run: on_open(uri, run, lambda one: one.ask_to_stop(STOP.as_request)),
    "stopped": lambda uri, run: live(uri, run, lambda one: one.stopped(STOP.as_stopped)),
}
WHEN_IT_IS_OVER = {
    "annotate": annotated,
    "picture": lambda uri, run: annotated(uri, run, pages="always"),
    "shadow": lambda uri, run: annotated(uri, run, mode="shadow"),
    "ack": acknowledged,
    "notified": lambda uri, run: on_open(
        uri, run, lambda one: one.mark_notified(SentMessages().owing("overfitting", time.time(), "0123abcd").value)
    ),
    "repaired": lambda uri, run: on_open(uri, run, lambda one: one.write_repair(REPAIR, as_old=True)),
    "repairs": lambda uri, run: on_open(uri, run, lambda one: one.write_repair(REPAIR, as_old=False)),
    "exit": lambda uri, run: annotate_as(
        f"mlflow:{run}",
        AnnotateOptions(config=Config(), tracking_uri=uri, ending=Ending(how=Ended.KILLED, by="SIGKILL")),
    ),
}


def own_run(uri, folder, *, images=""):
    """A run that still goes on, of somebody who has tags, metrics and files below ``health``. ``images``: what of it is
    among the images: ``logged`` as MLflow does, or a plain ``file``.
    """
    client = MlflowClient(tracking_uri=uri)
    run = client.create_run(client.get_experiment_by_name("local").experiment_id).info.run_id
    points = [
        Metric("train/loss", 2.0 * 0.9**step if step < 60 else float("nan"), 1000 + step, step) for step in range(99)
    ]
    points.append(Metric("health/heart_rate", 60.0, 1000, 7))
    client.log_batch(run, metrics=points, tags=[RunTag(key, value) for key, value in OWN_TAGS.items()])
    mine = folder / "mine.txt"
    mine.write_text("mine")
    for place in ("health", "images") if images == "file" else ("health",):
        client.log_artifact(run, str(mine), place)
    if images == "logged":
        client.log_image(run, np.zeros((4, 4, 3), np.uint8), key="mine", step=3)
    return run


def files_of(client, run):
    root = Path(client.get_run(run).info.artifact_uri.removeprefix("file://"))
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def cleared(uri, *names):
    done = CliRunner().invoke(cli, ["clear", "--acks", "--tracking-uri", uri, *names])
    assert done.exit_code == 0, done.output
    return done.stdout


def require_nothing_left(uri, run, before, files):
    client = MlflowClient(tracking_uri=uri)
    after = rows(uri, run)
    for table in ("tags", "params", "runs"):
        assert after[table] == before[table]
    assert set(before["latest_metrics"]) <= set(after["latest_metrics"])
    assert set(before["metrics"]) <= set(after["metrics"])
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        left = "SELECT key FROM latest_metrics WHERE run_uuid = ? AND key LIKE 'health%' AND NOT is_nan"
        assert database.execute(left, (run,)).fetchall() == [("health/heart_rate",)]
    assert files_of(client, run) == files
    assert ours_on(f"mlflow:{run}", tracking_uri=uri).found is False


def write_and_clear(uri, folder, while_it_goes_on, when_it_is_over, images=""):
    client, run = MlflowClient(tracking_uri=uri), own_run(uri, folder, images=images)
    before, files = rows(uri, run), files_of(client, run)
    for path in while_it_goes_on:
        WHILE_IT_GOES_ON[path](uri, run)
    client.set_terminated(run)
    before["runs"] = rows(uri, run)["runs"]
    for path in when_it_is_over:
        WHEN_IT_IS_OVER[path](uri, run)
    cleared(uri, f"mlflow:{run}")
    require_nothing_left(uri, run, before, files)


def some_of(paths):
    return st.lists(st.sampled_from(list(paths)), unique=True)


@settings(max_examples=draws(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_of(WHILE_IT_GOES_ON), some_of(WHEN_IT_IS_OVER))
@example(["live mark", "stop request"], ["shadow", "picture", "ack", "notified", "annotate"])
@example(["stop request"], [])
@example([], ["notified", "shadow"])
@example(["stopped"], ["exit", "annotate"])
def test_nothing_of_any_path_is_left_on_a_run_and_all_of_the_owners(sqlite_uri, tmp_path, while_it_goes_on, when_over):
    write_and_clear(sqlite_uri, tmp_path, while_it_goes_on, when_over)


@pytest.mark.parametrize("images", ["file", "logged"])
def test_nor_of_our_picture_beside_what_the_owner_has_among_the_images(sqlite_uri, tmp_path, images):
    write_and_clear(sqlite_uri, tmp_path, [], ["picture"], images)


# Models


def registered(uri, tags, versions=1):
    """A registered model of somebody who has these tags on its versions, and the model that a run has logged."""
    client, name = MlflowClient(tracking_uri=uri), f"net {uuid.uuid4().hex[:8]}"
    run = client.create_run(client.get_experiment_by_name("local").experiment_id)
    points = [Metric("train/loss", 2.0 * 0.9**step + 0.1, 1000 + step, step) for step in range(60)]
    client.log_batch(run.info.run_id, metrics=points)
    model = client.create_logged_model(run.info.experiment_id, "net", source_run_id=run.info.run_id)
    client.finalize_logged_model(model.model_id, "READY")
    client.set_logged_model_tags(model.model_id, tags)
    client.set_terminated(run.info.run_id)
    client.create_registered_model(name)
    for number in range(1, versions + 1):
        client.create_model_version(name, f"{run.info.artifact_uri}/model", run_id=run.info.run_id)
        for key, value in tags.items():
            client.set_model_version_tag(name, str(number), key, value)
    client.set_registered_model_alias(name, "champion", "1")
    return client, name, model.model_id


@pytest.mark.parametrize("mode", ["write", "shadow"])
def test_what_a_gate_wrote_on_models_is_taken_off(sqlite_uri, mode):
    theirs = {"health.patient": "17", "stage": "mine"}
    client, name, logged = registered(sqlite_uri, theirs, versions=3)
    versions = [f"models:/{name}/{number}" for number in (1, 2, 3)]

    def tags():
        found = [client.get_model_version(name, str(number)).tags for number in (1, 2, 3)]
        return [*found, {k: v for k, v in client.get_logged_model(logged).tags.items() if not k.startswith("mlflow.")}]

    config = replace(preset("default"), mode=mode)
    for one in (*versions, f"models:/{logged}"):
        assert gate(one, config=config, tracking_uri=sqlite_uri).written
    written = tags()
    assert all(one.keys() > theirs.keys() for one in written)
    counted = CliRunner().invoke(cli, ["clear", "--dry-run", "--tracking-uri", sqlite_uri, f"models:/{name}"]).stdout
    ours = sum(len(one) - len(theirs) for one in written[:3])
    assert counted.startswith(f"would go from 3 of 3 models: {ours} tags\n")
    assert tags() == written
    cleared(sqlite_uri, f"models:/{name}@champion")
    assert tags() == [theirs, *written[1:]]
    said = cleared(sqlite_uri, f"models:/{name}", f"models:/{logged}").splitlines()
    assert said == [f"{versions[2]}: cleared", f"{versions[1]}: cleared", f"{versions[0]}: nothing from tracker-health on it", f"models:/{logged}: cleared"]  # fmt: skip
    assert tags() == [theirs] * 4


@pytest.mark.parametrize(
    "key", ["health.verdict", "health.cause", "health.rules", "health.settings", "health.accepted"]
)
def test_a_tag_of_the_owners_keeps_a_gate_from_writing_and_is_not_cleared(sqlite_uri, key):
    client, name, _ = registered(sqlite_uri, {key: "of the patient"})
    answer = gate(f"models:/{name}/1", tracking_uri=sqlite_uri)
    assert answer.unwritten == f"it has a {key} that is not ours"
    assert "nothing from tracker-health on it" in cleared(sqlite_uri, f"models:/{name}/1")
    assert client.get_model_version(name, "1").tags == {key: "of the patient"}


def test_a_gate_that_broke_off_in_the_middle_is_done_again_and_cleared(sqlite_uri, monkeypatch):
    from tracker_health.stores.mlflow import registry

    client, name, _ = registered(sqlite_uri, {})
    model, whole = f"models:/{name}/1", registry.ModelVersion._set_tag
    seen = []

    def breaks(self, key, value):
        if seen:
            raise KeyboardInterrupt
        seen.append(key)
        whole(self, key, value)

    monkeypatch.setattr(registry.ModelVersion, "_set_tag", breaks)
    with pytest.raises(KeyboardInterrupt):
        gate(model, tracking_uri=sqlite_uri)
    monkeypatch.setattr(registry.ModelVersion, "_set_tag", whole)
    assert client.get_model_version(name, "1").tags.keys() == set(seen)
    assert gate(model, tracking_uri=sqlite_uri).written
    assert cleared(sqlite_uri, model) == f"{model}: cleared\n"
    assert client.get_model_version(name, "1").tags == {}


@pytest.mark.parametrize(
    "name", ["models:/none", "models:/none/", "models:/none/3", "models:/none@best", "models:/a'b"]
)
def test_a_model_that_is_not_there_is_said_and_the_others_are_cleared(sqlite_uri, name):
    _, there, _ = registered(sqlite_uri, {})
    gate(f"models:/{there}/1", tracking_uri=sqlite_uri)
    done = CliRunner().invoke(cli, ["clear", "--tracking-uri", sqlite_uri, name, f"models:/{there}/1"])
    assert (done.exit_code, done.stdout) == (3, f"models:/{there}/1: cleared\n")
    assert done.stderr.startswith("tracker-health: ")
    assert "unexpected" not in done.stderr


# What is said


def test_an_experiment_is_cleared_and_what_is_left_is_no_success(sqlite_uri, tmp_path):
    client, run = MlflowClient(tracking_uri=sqlite_uri), own_run(sqlite_uri, tmp_path)
    client.set_terminated(run)
    annotated(sqlite_uri, run)
    note = client.get_run(run).data.tags["mlflow.note.content"]
    client.set_tag(run, "mlflow.note.content", note.rpartition("<!--")[0])  # half of our block was deleted by hand
    arguments = [
        "clear",
        "--tracking-uri",
        sqlite_uri,
        "--experiment",
        "local",
        "--where",
        f"attributes.run_id = '{run}'",
    ]
    counted = CliRunner().invoke(cli, [*arguments, "--dry-run"]).stdout
    assert "(hidden by NaN, as MLflow cannot delete them)" in counted
    for quiet in ([], ["-q"]):
        done = CliRunner().invoke(cli, [*arguments, *quiet])
        if not quiet:
            assert done.stdout.startswith(f"{run}: cleared in part; hidden, as they cannot be deleted: health/")
            assert done.exit_code == 3
            assert f"{run}: could not be deleted: mlflow.note.content" in done.stderr
            client.set_tag(run, "mlflow.note.content", note)
    assert (done.exit_code, done.output) == (0, "")
