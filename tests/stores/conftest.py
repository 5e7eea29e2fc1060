"""A real MLflow database and a real MLflow server, once per session; every test makes runs of its own."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tracker_health.testing.stores")

from tracker_health.stores.wandb import connection  # noqa: E402  the suite is rewritten first

from ..wandb_server import WandbServer  # noqa: E402, TID252  tests are no package of a name
from .wandb_runs import SCRIPTS, run_script  # noqa: E402

STARTUP_SECONDS = 90


@pytest.fixture(scope="session", autouse=True)
def _no_telemetry():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


@pytest.fixture(scope="session", autouse=True)
def _artifacts_at_the_clients_server():
    """Trainings of these tests log artifacts to the server of their client, which MLflow before 3.0 does to that of the
    process.
    """
    if not _is_mlflow_2():
        yield
        return
    from mlflow.tracking._tracking_service.client import TrackingServiceClient

    theirs = TrackingServiceClient._get_artifact_repo

    def found(self, run_id):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", self.tracking_uri)
            return theirs(self, run_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrackingServiceClient, "_get_artifact_repo", found)
        yield


def _is_mlflow_2():
    try:
        return version("mlflow").startswith("2.")
    except PackageNotFoundError:
        return False


@pytest.fixture
def no_pictures(monkeypatch):
    """What is drawn is no matter to these tests, and takes most of the time."""
    monkeypatch.setattr("tracker_health.runs.annotating._draw", lambda *_, **__: ({}, ""))


@pytest.fixture
def writes(monkeypatch):
    """How often each MLflow run is written onto, by id."""
    from tracker_health.stores.common.writing import Writing

    counted = Counter()
    write = Writing.write

    def counting(self, annotations):
        counted[self._run.ref.id] += 1
        return write(self, annotations)

    monkeypatch.setattr(Writing, "write", counting)
    return counted


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory, _no_telemetry):
    """A fresh database with local artifacts."""
    import mlflow

    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    mlflow.MlflowClient(tracking_uri=uri).create_experiment("local", artifact_location=str(folder / "artifacts"))
    return uri


@pytest.fixture(scope="session")
def server_uri(tmp_path_factory, _no_telemetry):
    """A server on this machine that keeps the artifacts for its clients."""
    yield from server_of(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="session")
def direct_server(tmp_path_factory, _no_telemetry):
    """A server that leaves the artifacts to its clients, and the folder (in earnest: a bucket) where these keep them."""
    folder = tmp_path_factory.mktemp("direct")
    artifacts = folder / "artifacts of clients"
    for uri in server_of(folder, ["--no-serve-artifacts", "--default-artifact-root", str(artifacts)]):
        yield uri, artifacts


@pytest.fixture(scope="session")
def auth_server_uri(tmp_path_factory, _no_telemetry):
    """A server that asks for passwords: ``admin`` may do everything, ``reader`` may read."""
    folder = tmp_path_factory.mktemp("auth")
    users = f"sqlite:///{folder / 'users.db'}"
    settings = f"[mlflow]\ndefault_permission = READ\ndatabase_uri = {users}\nadmin_username = admin\nadmin_password = {ADMIN_PASSWORD}\n"
    settings += "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    (folder / "auth.ini").write_text(settings)
    environment = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of the tests",
    }
    for uri in server_of(folder, ["--app-name", "basic-auth"], environment):
        user = json.dumps({"username": "reader", "password": READER_PASSWORD}).encode()
        request = urllib.request.Request(
            f"{uri}/api/2.0/mlflow/users/create", user, {"Content-Type": "application/json"}
        )
        token = base64.b64encode(f"admin:{ADMIN_PASSWORD}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
        with urllib.request.urlopen(request, timeout=30):
            _make_passwords_cheap(folder / "users.db")
        yield uri


def _make_passwords_cheap(users):
    """Hash the same passwords with one round: the server checks them at each request, and means it to be slow."""
    from werkzeug.security import generate_password_hash

    with closing(sqlite3.connect(users)) as database, database:
        for name, password in (("admin", ADMIN_PASSWORD), ("reader", READER_PASSWORD)):
            cheap = generate_password_hash(password, method="pbkdf2:sha256:1")
            database.execute("UPDATE users SET password_hash = ? WHERE username = ?", (cheap, name))


ADMIN_PASSWORD, READER_PASSWORD = "for the tests only", "also for the tests only"


def server_of(folder, options=(), environment=None, python=sys.executable):
    port = free_port()
    command = [python, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination",
        str(folder / "a"),
    ]
    # A quicker start without jobs.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | (environment or {})
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options], stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True
        )
    try:
        _wait_until_up(process, port, folder / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_up(process, port, log):
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the MLflow server did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _stop(process):
    """The server and its workers: the process group that it was started as, and nothing else."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            continue


@pytest.fixture
def wandb_server(tmp_path, monkeypatch):
    """A W&B server of the tests that this process is logged in to, and the SDK as after a start."""
    pytest.importorskip("wandb")
    import wandb

    with WandbServer() as server:
        for name, value in server.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
        connection._kept.__dict__.clear()
        wandb.teardown()
        yield server
        connection._kept.__dict__.clear()
        wandb.teardown()


@pytest.fixture(scope="session")
def offline_runs(tmp_path_factory):
    """By name, the folders of runs that W&B's SDK left offline. Not to be written to."""
    return {name: run_script(script, tmp_path_factory.mktemp(name)) for name, script in SCRIPTS.items()}
