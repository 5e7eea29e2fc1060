"""A client of one MLflow with the server of another: checked, annotated and cleared over the network.

The other MLflow is that of the Python that ``OTHER_MLFLOW`` names; ``make lowest`` gives the lowest and the newest.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tracker_health as th
from tracker_health import Verdict
from tracker_health.stores.mlflow.stored_files.repositories import repository_of

from .conftest import server_of

OTHER = os.environ.get("OTHER_MLFLOW", "")

pytestmark = pytest.mark.skipif(not OTHER, reason="make lowest names the Python of another MLflow")

HEALTHY = [(step, 0.1 + 2.2 * 0.98**step + 0.01 * (step % 3)) for step in range(200)]
DIVERGED = [(step, 2.3 - 0.01 * step if step < 100 else 1.3 * 1.05 ** (step - 100)) for step in range(200)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """As the command line is: a server that fails at each deletion is asked again for a minute by MLflow's client."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    mlflow = pytest.importorskip("mlflow")
    for uri in server_of(tmp_path_factory.mktemp("other"), python=OTHER):
        yield mlflow.MlflowClient(tracking_uri=uri)


def logged(client, losses):
    from mlflow.entities import Metric

    run = client.create_run("0").info.run_id
    points = [Metric("train_loss", value, 1_700_000_000_000 + step * 1000, step) for step, value in losses]
    client.log_batch(run, metrics=points)
    client.set_terminated(run)
    return run


@pytest.mark.parametrize(("losses", "verdict"), [(HEALTHY, Verdict.PASS), (DIVERGED, Verdict.FAIL)])
def test_a_run_is_judged_annotated_and_cleared(client, losses, verdict):
    uri, run = client.tracking_uri, logged(client, losses)
    before = client.get_run(run).data
    assert th.check(run, tracking_uri=uri).verdict is verdict
    assert th.annotate(run, tracking_uri=uri).report.verdict is verdict
    tags = client.get_run(run).data.tags
    assert tags["health.verdict"] == str(verdict.value)
    # Not by the client: that of MLflow 3 asks a server of MLflow 2 for models that it does not know.
    health = repository_of(client.get_run(run).info.artifact_uri, uri)
    assert "health/report.json" in {one.path for one in health.list_artifacts("health")}
    assert th.clear_annotations(run, tracking_uri=uri).found
    after = client.get_run(run).data
    left = {name for name in after.tags if name.startswith("health")}
    # A server of MLflow 2 deletes no single file: what stays is written down. Nor is a metric ever deleted.
    assert left <= {"health.digest"}
    assert {name: after.tags[name] for name in after.tags.keys() - left} == before.tags
    assert after.metrics.keys() == before.metrics.keys()


def test_a_checkpoint_on_the_server_is_read(client, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    run = logged(client, HEALTHY)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)  # where MLflow 2 looks for a run's artifacts
    client.log_artifact(run, str(Path(tmp_path, "optimizer.pt")))
    report = th.check(run, tracking_uri=client.tracking_uri)
    assert {one.verdict for one in report.results if one.code.startswith("OPT")} & {Verdict.PASS, Verdict.FAIL}


def test_the_runs_of_an_experiment_are_found(client):
    run = logged(client, HEALTHY)
    listed = list(th.api.runs_of_experiment("Default", tracking_uri=client.tracking_uri))
    outcomes = list(th.check_many(listed, tracking_uri=client.tracking_uri))
    assert run in map(str, listed)
    assert all(one.error is None for one in outcomes)
