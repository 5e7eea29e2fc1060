"""The demo in a real process: three trainings, a real sqlite store, the right verdicts for the right reasons."""

import io
import os
import re
import shlex
import subprocess
import sys

import pytest
from mlflow import MlflowClient

from .stores.conftest import _stop, _wait_until_up, free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "tracker_health", "demo", "store"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    return done, folder


def test_the_demo_shows_three_verdicts_and_how_to_find_them(demo):
    done, _ = demo
    assert done.returncode == 0, done.stderr
    rows = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.count("│") > 3}
    assert "PASS" in rows["brisk-otter"]
    assert "FAIL" in rows["calm-heron"]
    assert "learning_rate: 1 -> 0.001" in rows["calm-heron"]
    assert "FAIL" in rows["quiet-maple"]
    assert "from step 150 on" in rows["quiet-maple"]
    assert "mlflow ui --backend-store-uri sqlite:///store/mlflow.db" in done.stdout
    assert "tags.`health.verdict` = 'fail'" in done.stdout
    run_id = re.search(r"report mlflow:(\w+) --tracking-uri sqlite:///store/mlflow.db --open", done.stdout).group(1)
    assert f"/#/experiments/1/runs/{run_id} (calm-heron)" in done.stdout
    assert "searchFilter=tags.%60health.verdict%60" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_the_command_that_it_ends_with_works_as_printed(demo, tmp_path):
    done, folder = demo
    line = next(line for line in done.stdout.splitlines() if "mlflow ui" in line)
    command, port = shlex.split(line), free_port()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_until_up(process, port, tmp_path / "log")
        found = MlflowClient(tracking_uri=f"http://127.0.0.1:{port}").get_experiment_by_name("tracker-health-demo")
    finally:
        _stop(process)
    assert found.name == "tracker-health-demo"


def test_the_verdicts_are_tags_that_mlflow_finds(demo):
    _, folder = demo
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/store/mlflow.db")
    experiment = client.get_experiment_by_name("tracker-health-demo")
    failing = client.search_runs([experiment.experiment_id], "tags.`health.verdict` = 'fail'")
    assert {run.info.run_name for run in failing} == {"calm-heron", "quiet-maple"}
    assert all(run.info.status == "FINISHED" for run in failing)
    (passing,) = client.search_runs([experiment.experiment_id], "tags.`health.verdict` = 'pass'")
    assert passing.info.run_name == "brisk-otter"
    reasons = {run.info.run_name: run.data.tags["health.codes"] for run in failing}
    assert reasons["quiet-maple"] == "LOS001,GRD001,OPT002,WGT001"
    assert "LOS004" in reasons["calm-heron"].split(",")


def test_results_that_nobody_reads_are_no_error(monkeypatch, write_log, healthy_losses):
    """Printed by rich itself, the table would end the process with code 1."""
    from tracker_health.api import check_many
    from tracker_health.cli import demo

    class Gone(io.StringIO):
        def write(self, text):
            if text:
                raise BrokenPipeError
            return 0

    monkeypatch.setattr("sys.stdout", Gone())
    with pytest.raises(BrokenPipeError):
        demo._show(list(check_many([write_log(healthy_losses)])), "sqlite:///x", "1")
