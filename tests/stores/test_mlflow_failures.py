"""Servers, databases and artifact stores that fail: told in one line, with what to try, and without waiting for ever."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import RunNotFound, StoreRefused, StoreUnavailable, WriteError
from tracker_health.stores.mlflow import connection
from tracker_health.stores.mlflow.failures import translated
from tracker_health.stores.mlflow.run import open_mlflow_run
from tracker_health.stores.remote import deadline
from tracker_health.words.verdict import Verdict

from .conftest import READER_PASSWORD
from .test_mlflow_store import Store, copied, fail, long_descent, no_secret

mlflow = pytest.importorskip("mlflow")

RUN_ID = "0123456789abcdef" * 2


@pytest.fixture
def local(sqlite_uri):
    with contextlib.closing(Store(sqlite_uri)) as store:
        yield store


@pytest.fixture
def quick(monkeypatch):
    """Little patience, and no retries of MLflow's."""
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers all that is asked for with {}, but what ``bad`` names in its own way."""

    bad, asked = "", None

    def do_GET(self):
        self.asked.append(self.path)
        if self.bad in self.path:
            self.misbehave()
        else:
            self.answer(200)

    do_POST = do_GET  # noqa: N815

    def answer(self, status, body=b"{}"):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self, content):
        with contextlib.suppress(OSError):
            for byte in content * 1000:
                self.wfile.write(bytes([byte]))
                if self.over.wait(0.1):
                    return

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(misbehave, bad="runs/get"):
    over = threading.Event()
    kind = type("One", (Handler,), {"misbehave": misbehave, "bad": bad, "asked": [], "over": over})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", kind.asked
        finally:
            over.set()
            server.shutdown()
            thread.join()


def drips_its_header(handler):
    handler.drip(b"HTTP/1.1 200 OK\r\nX: ")


def drips_its_body(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.drip(b" ")


# Servers that take their time


@pytest.mark.slow
@pytest.mark.parametrize("drips", [drips_its_header, drips_its_body])
@pytest.mark.parametrize("bad", ["/", "runs/get"])
@pytest.mark.one_cell
def test_a_server_that_drips_is_given_up(quick, drips, bad):
    with serving(drips, bad) as (uri, _):
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="no answer in time") as caught:
            open_mlflow_run(RUN_ID, uri)
        assert time.monotonic() - start < 20
    assert "try again later" in caught.value.hint


@pytest.mark.slow
def test_the_other_runs_of_a_list_do_not_wait_for_a_server_that_is_silent(quick):
    with serving(drips_its_body, "/") as (uri, asked):
        start = time.monotonic()
        first, *others = th.check_many([f"{index:032x}" for index in range(20)], tracking_uri=uri)
        assert time.monotonic() - start < 20
    assert "no answer in time" in str(first.error)
    assert all("did not answer in time a moment ago; it was not asked again" in str(one.error) for one in others)
    assert len(asked) == 1


@pytest.mark.exhaustive
def test_a_server_that_answers_but_is_twice_too_slow_is_given_up_as_well(quick):
    with serving(drips_its_body) as (uri, asked):
        outcomes = list(th.check_many([f"{index:032x}" for index in range(20)], tracking_uri=uri))
    assert len([path for path in asked if "run_uuid" in path]) == 2, "MLflow's own requests"
    assert "was not asked again" in str(outcomes[-1].error)


def test_one_slow_answer_does_not_cost_the_other_runs(quick):
    slow = "0" * 31 + "1"
    with serving(drips_its_body, slow) as (uri, asked):
        list(th.check_many([slow, f"{2:032x}", f"{3:032x}"], tracking_uri=uri))
    assert len([path for path in asked if "run_uuid" in path]) == 3, "MLflow's own requests"


@pytest.mark.exhaustive
def test_a_request_that_was_given_up_does_not_keep_the_process_alive():
    with serving(drips_its_body) as (uri, _):
        script = (
            "import tracker_health; from tracker_health.stores.remote import deadline; deadline.REQUEST_SECONDS = 1\n"
            f"print(*[one.error for one in tracker_health.check_many(['{RUN_ID}'], tracking_uri='{uri}')])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "no answer in time" in done.stdout


def test_a_request_that_was_given_up_is_not_made_again(monkeypatch):
    """It might write what was said to be not written."""
    for name, value in {"MAX_RETRIES": "5", "BACKOFF_FACTOR": "1", "BACKOFF_JITTER": "0"}.items():
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 0.5)
    with serving(lambda handler: handler.answer(503)) as (uri, asked):
        with pytest.raises(StoreUnavailable, match=r"answered 503 to GET /api/2\.0/mlflow/runs/get"):
            open_mlflow_run(RUN_ID, uri)
        made = len(asked)
        time.sleep(2.5)  # the next would be after one or two
        assert len(asked) == made


def test_what_a_call_raises_in_its_time_is_raised():
    def leaves():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deadline.within(5, leaves)
    assert deadline.within(5, lambda: None) is None


def test_a_write_that_timed_out_says_how_it_is_put_right():
    doing = translated("it could not be written", "http://host", otherwise=WriteError)
    with pytest.raises(WriteError, match="no answer in time") as caught, doing:
        raise TimeoutError("timed out")
    assert "do it again when the server answers" in caught.value.hint


# Servers that answer with an error


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (500, "see the server's log"),
        (502, "a proxy before it"),
        (503, "try later"),
        (429, "too many requests: try later"),
    ],
)
def test_a_status_is_told_with_what_it_means(quick, status, hint):
    server = serving(lambda handler: handler.answer(status, b"<html>"))
    with server as (uri, _), pytest.raises(StoreUnavailable, match=rf"the server answered {status}") as caught:
        open_mlflow_run(RUN_ID, uri)
    assert hint in caught.value.hint
    assert "is the server running" not in str(caught.value)
    assert "Max retries" not in str(caught.value)


def test_who_may_read_and_not_write_is_told_what_to_ask_for(auth_server_uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "for the tests only")
    store = Store(auth_server_uri)
    run_id = store.run(metrics={"loss": long_descent()})
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", READER_PASSWORD)
    done = CliRunner().invoke(cli, ["annotate", run_id, "--tracking-uri", auth_server_uri])
    assert done.exit_code == 3
    assert "ask for EDIT permission on its experiment" in done.stderr
    assert done.stdout.startswith("PASS"), "the verdict is told all the same"
    assert "not written onto the run" in done.stdout


def test_401_and_403_differ():
    for status, words in ((401, "MLFLOW_TRACKING_USERNAME"), (403, "EDIT permission")):
        error = OSError("no")
        error.response = type("Response", (), {"status_code": status})()
        with pytest.raises(StoreRefused, match=words), translated("x", "http://host", otherwise=WriteError):
            raise error


# What is no server


@pytest.mark.exhaustive
def test_a_workspace_of_databricks_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 10)
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for uri, said in (
        ("databricks", "no credentials for Databricks .*DATABRICKS_TOKEN"),
        ("databricks://profile", "no credentials for Databricks"),
        ("databricks-uc", "it holds models, and no runs .*--tracking-uri databricks"),
    ):
        with pytest.raises(StoreUnavailable, match=said):
            open_mlflow_run(RUN_ID, uri)
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_another_kind_is_told_to_be_no_store():
    with pytest.raises(StoreUnavailable, match="that is no kind of MLflow store") as caught:
        open_mlflow_run(RUN_ID, "ftp://bob:p%40ss@host/x")
    assert no_secret(str(caught.value))
    assert "http(s)://" in caught.value.hint


@pytest.mark.parametrize("uri", ["sqlite:///file:{}?mode=ro&uri=true", "sqlite:///{}?timeout=5"])
@pytest.mark.slow
def test_looking_into_a_database_makes_no_folder(local, tmp_path, monkeypatch, uri):
    (tmp_path / "a b").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run_id = local.run(metrics={"loss": long_descent()})
    copied(local, tmp_path / "a b" / "x.db").close()
    path = "../a%20b/x.db" if "timeout" in uri else tmp_path / "a b" / "x.db"
    assert th.check(run_id, tracking_uri=uri.format(path)).verdict is Verdict.PASS
    assert list(Path.cwd().iterdir()) == []
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["a b", "here"]


def test_databases_that_cannot_be_used_come_with_a_hint(local, tmp_path):
    (tmp_path / "x.db").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreUnavailable) as caught:
        open_mlflow_run(RUN_ID, f"sqlite:///{tmp_path}/x.db")
    assert "is no SQLite database" in caught.value.hint
    for said, kind, hint in (
        ("database is locked", WriteError, "another process is writing to it"),
        ("attempt to write a readonly database", StoreRefused, "make it writable"),
    ):
        with pytest.raises(kind) as caught, translated("x", "sqlite:///x.db", otherwise=WriteError):
            raise sqlite3.OperationalError(said)
        assert hint in caught.value.hint


# Artifact stores


def with_artifacts_at(store, location):
    experiment = store.client.create_experiment(f"at {location} {time.time_ns()}", artifact_location=location)
    run_id = store.client.create_run(experiment).info.run_id
    store.client.log_batch(run_id, [mlflow.entities.Metric("loss", value, 1, step) for step, value in long_descent()])
    store.client.set_terminated(run_id)
    return run_id


@pytest.mark.parametrize(
    ("location", "module", "package"),
    [
        ("s3://bucket/runs", "botocore", "pip install boto3"),
        ("gs://bucket/runs", "google.cloud", "pip install google-cloud-storage"),
        ("wasbs://c@account.blob.core.windows.net/runs", "azure", "pip install azure-storage-blob"),
        ("abfss://c@account.dfs.core.windows.net/runs", "azure", "pip install azure-storage-file-datalake"),
    ],
)
def test_artifacts_out_of_reach_leave_the_metrics_to_be_judged(local, monkeypatch, location, module, package):
    def lacks_package(*_, **__):
        raise ModuleNotFoundError(f"No module named {module!r}")

    run_id = with_artifacts_at(local, location)
    monkeypatch.setattr("mlflow.store.artifact.artifact_repository_registry.get_artifact_repository", lacks_package)
    report = th.check(run_id, tracking_uri=local.uri)
    (problem,) = [error for error in report.errors if error.code is None]
    assert package in problem.message
    assert location.partition("://")[0] in problem.message
    assert "sqlite" not in problem.message
    assert {"LOS001", "LOS004"} <= {result.code for result in report.results}
    assert "OPT002" in {error.code for error in report.errors}


@pytest.mark.slow
def test_a_finding_counts_although_the_artifacts_are_out_of_reach(local):
    run_id = with_artifacts_at(local, "ftp://bob:p%40ss@127.0.0.1:9/x")
    local.client.log_metric(run_id, "loss", float("nan"), step=201)
    local.client.log_metric(run_id, "loss", float("nan"), step=202)
    report = th.check(run_id, tracking_uri=local.uri)
    assert report.verdict is Verdict.FAIL
    assert no_secret(json.dumps(report.to_json()))
    (outcome,) = th.annotate_many([run_id], tracking_uri=local.uri)
    assert "its files could not be written (ftp://127.0.0.1:9/x" in outcome.report.errors[-1].message


@pytest.mark.slow
def test_a_verdict_that_could_not_be_written_is_told_before_the_error(local, monkeypatch):
    run_id = local.run(metrics={"loss": [(step, float("nan")) for step in range(60)]}, tags={"health.verdict": "mine"})
    (outcome,) = th.annotate_many([run_id], tracking_uri=local.uri)
    assert (outcome.status, outcome.report.verdict) == ("left alone", Verdict.FAIL)
    with pytest.raises(WriteError, match=r"health\.verdict"):
        th.annotate(run_id, tracking_uri=local.uri)
    done = CliRunner().invoke(cli, ["annotate", run_id, "--tracking-uri", local.uri])
    assert done.exit_code == 3
    assert done.output.index("non-finite-loss") < done.output.index("is not ours; nothing was written")
    assert done.output.count("is not ours") == 1
    done = CliRunner().invoke(cli, ["annotate", "--json", run_id, "--tracking-uri", local.uri])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["verdict"]) == (3, "fail")
    assert "is not ours" in document["errors"][-1]["message"]


# Deleted runs, and names that are nearly right


@pytest.mark.exhaustive
def test_a_deleted_run_says_so_and_how_it_is_restored(local):
    run_id = local.run(metrics={"loss": long_descent()})
    local.client.delete_run(run_id)
    assert "the run is deleted" in th.check(run_id, tracking_uri=local.uri).notes
    with pytest.raises(StoreRefused, match="is deleted") as caught:
        open_mlflow_run(run_id, local.uri).write(fail())
    assert caught.value.hint == f"MLFLOW_TRACKING_URI={local.uri} mlflow runs restore --run-id {run_id}"
    environment = os.environ | {"MLFLOW_TRACKING_URI": local.uri}
    command = [sys.executable, "-m", *caught.value.hint.split()[1:]]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    assert th.check(run_id, tracking_uri=local.uri).notes == ()


def test_of_a_deleted_experiment_the_experiment_is_restored(local):
    experiment = local.client.create_experiment(f"deleted {time.time_ns()}")
    run_id = local.client.create_run(experiment).info.run_id
    local.client.delete_experiment(experiment)
    with pytest.raises(StoreRefused, match=f"is deleted, with its experiment {experiment}") as caught:
        open_mlflow_run(run_id, local.uri).write(fail())
    assert caught.value.hint.endswith(f"mlflow experiments restore --experiment-id {experiment}")


def test_the_address_of_another_experiment_is_told(server_uri):
    store = Store(server_uri)
    run_id = store.run(metrics={"loss": long_descent()})
    report = th.check(f"{server_uri}/#/experiments/999/runs/{run_id}")
    assert report.verdict is Verdict.PASS
    assert f"the run is in the experiment {store.experiment}, not in 999 as its address says" in report.notes
    assert th.check(f"{server_uri}/#/experiments/{store.experiment}/runs/{run_id}").notes == ()


@pytest.mark.parametrize("prefix", ["", "mlflow:"])
def test_ids_that_are_nearly_right_come_with_a_hint(local, prefix):
    run_id = local.run()
    nobody = f"{run_id[:8]}{'11' if run_id[8:10] == '00' else '00'}"  # never the beginning of the run's own id
    for name, hint in ((f"{run_id[:-1].upper()}A", "in lower case"), (nobody, "no run's id begins so")):
        with pytest.raises(RunNotFound) as caught:
            th.check(prefix + name, tracking_uri=local.uri)
        assert hint in caught.value.hint
