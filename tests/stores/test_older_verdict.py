"""A verdict that is older than its run's data, as after a resume without the hook, in both trackers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import mlflow
import pytest
from tests.stores import mlflow_tags

import tracker_health as th

pytestmark = pytest.mark.slow


def command(environment, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "tracker_health", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


class Mlflow:
    """Runs in a database, logged by MLflow itself."""

    def __init__(self, tmp_path):
        self.environment = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}"}
        self.client = mlflow.MlflowClient(self.environment["MLFLOW_TRACKING_URI"])
        place = self.client.create_experiment("mine", artifact_location=str(tmp_path / "artifacts"))
        self.run = self.client.create_run(place).info.run_id
        self.where = ["--experiment", "mine"]

    def train(self, steps, *, hook=False):
        loop = f"for n in {steps!r}: mlflow.log_metric('loss', 1 + 0.98**n, step=n)"
        code = f"import mlflow\nwith mlflow.start_run('{self.run}'):\n  {loop}"
        trained(self.environment, f"import tracker_health; tracker_health.autolog()\n{code}" if hook else code)

    def step(self):
        return int(mlflow_tags.ours(self.client.get_run(self.run).data.tags)["step"])


class Wandb:
    """A run on a server, logged by the SDK."""

    def __init__(self, server, tmp_path):
        self.environment = {**server.environment(tmp_path), "WANDB_SILENT": "true"}
        self.run, self._server, self.where = "wandb:team/proj/abc", server, ["--project", "team/proj"]

    def train(self, steps, *, hook=False):
        loop = f"for n in {steps!r}: run.log({{'loss': 1 + 0.98**n}})"
        code = f"import wandb\nrun = wandb.init(project='proj', id='abc', resume='allow')\n{loop}\nrun.finish()"
        trained(self.environment, f"import tracker_health; tracker_health.autolog()\n{code}" if hook else code)

    def step(self):
        return self._server.run("team/proj/abc").summary["health/step"]


def trained(environment, code):
    environment = {**os.environ, **environment, "TRACKER_HEALTH_HOOK_SECONDS": "60"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


@pytest.fixture(params=["mlflow", "wandb"])
def tracked(request, tmp_path, monkeypatch):
    found = Mlflow(tmp_path) if request.param == "mlflow" else Wandb(request.getfixturevalue("wandb_server"), tmp_path)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    found.train(range(300))
    assert th.annotate(found.run).status == "written"
    assert found.step() == 299
    return found


@pytest.mark.exhaustive
def test_whoever_looks_is_told(tracked):
    assert th.check(tracked.run).notes == ()
    assert json.loads(command(tracked.environment, "summary", *tracked.where, "--json").stdout)["older"] == 0
    tracked.train(range(300, 500))
    (note,) = th.check(tracked.run).notes
    assert note == (
        "the verdict on the run (pass) is older than its data: it was given at step 299, and the run is at 499; "
        "annotate judges it again"
    )
    (outcome,) = th.check_many([tracked.run])
    assert outcome.report.notes == (note,)
    assert json.loads(command(tracked.environment, "summary", *tracked.where, "--json").stdout)["older"] == 1
    text = command(tracked.environment, "summary", *tracked.where).stdout
    assert "1 verdict is older than the data of the run: sweep or annotate judges again" in text
    swept = command(tracked.environment, "sweep", *tracked.where)
    assert "1 verdict had been older than the data" in swept.stderr
    assert tracked.step() == 499
    assert th.check(tracked.run).notes == ()
    assert "had been older" not in command(tracked.environment, "sweep", *tracked.where).stderr


@pytest.mark.exhaustive
def test_the_hook_judges_a_resumed_run_again(tracked):
    tracked.train(range(300, 500), hook=True)
    assert tracked.step() == 499
    assert th.check(tracked.run).notes == ()
