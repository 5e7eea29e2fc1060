"""A real MLflow database and a real MLflow server, once per session; every test makes runs of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

STARTUP_SECONDS = 90


@pytest.fixture(scope="session", autouse=True)
def _no_telemetry():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


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
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination",
        str(folder / "a"),
    ]
    with Path(folder, "log").open("wb") as log:
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # a quicker start
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
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
