"""Runs that are done elsewhere: by other processes, and by a Dask cluster of which a worker dies in the middle."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import tracker_health as th
from tracker_health.errors import RunNotFound

from .conftest import free_port
from .many_runs import make_runs

pytestmark = pytest.mark.exhaustive


def verdicts(uri, ids):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    return Counter(client.get_run(one).data.tags.get("health.verdict") for one in ids)


def test_runs_are_done_by_other_processes(write_log, healthy_losses, tmp_path):
    folders = [write_log(healthy_losses, folder=f"run {index}") for index in range(3)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        outcomes = list(th.annotate_many([*folders, tmp_path / "missing"], executor=executor))
    assert Counter(one.status for one in outcomes) == {"written": 3, "failed": 1}
    (failed,) = [one for one in outcomes if one.error]
    assert isinstance(failed.error, RunNotFound)
    assert failed.error.hint
    assert all((folder / "health" / "report.json").stat().st_size > 1000 for folder in folders)
    written = [one for one in outcomes if one.status == "written"]
    assert all(one.annotations.files and not any(one.annotations.files.values()) for one in written)


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler, and its two workers, each a process of one thread."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    port, python = free_port(), [sys.executable, "-m"]
    address = f"tcp://127.0.0.1:{port}"
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h"}
    options = {"cwd": tmp_path, "env": os.environ | quiet, "start_new_session": True}
    with (tmp_path / "cluster.log").open("wb") as log:
        options |= {"stdout": log, "stderr": log}
        host = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        processes = [subprocess.Popen([*python, "distributed.cli.dask_scheduler", *host], **options)]
        worker = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        processes += [subprocess.Popen([*python, *worker], **options) for _ in range(2)]
    try:
        yield address, processes[1:]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_dask_worker_dies_in_the_middle(cluster, server_uri):
    address, workers = cluster
    name, ids = make_runs(server_uri, 12, sick={5})
    command = [sys.executable, "-m", "tracker_health", "annotate", "--experiment", name, "--json", "--dask", address]
    with subprocess.Popen(
        [*command, "--tracking-uri", server_uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        lines = [child.stdout.readline() for _ in range(3)]
        os.killpg(workers[0].pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        said = child.stderr.read()
    assert child.returncode == 0, said
    found = {one["run"]["id"]: one["verdict"] for one in map(json.loads, lines)}
    assert found == {**dict.fromkeys(ids, "pass"), ids[5]: "fail"}
    assert verdicts(server_uri, ids) == {"pass": 11, "fail": 1}
    assert workers[1].poll() is None


def test_no_scheduler(tmp_path, healthy_losses, write_log):
    pytest.importorskip("distributed", reason="distributed is not installed")
    command = [sys.executable, "-m", "tracker_health", "annotate", "--dask", "nonsense://x", "--", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 3
    assert "no Dask scheduler answers at nonsense://x" in done.stderr
