"""Watched runs in real trackers: summaries as metrics, everything as a file, and the rules on what comes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
mlflow = pytest.importorskip("mlflow")
from torch import nn  # noqa: E402

import tracker_health  # noqa: E402
from tracker_health import watch  # noqa: E402
from tracker_health.monitor import trackers  # noqa: E402
from tracker_health.monitor.trackers import ActiveWandbRun, mlflow_name  # noqa: E402
from tracker_health.stores.wandb.transaction_log import read_log  # noqa: E402


class Cut(nn.Module):
    """Its first layer gets no gradient."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layers[1](self.layers[0](x).detach()))


def train(model, log, **options):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, **options):
        for step in range(1, 13):
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log(step, loss.item())


@pytest.mark.parametrize("detail", ["file", "metrics"])
@pytest.mark.thinned(2)
def test_an_mlflow_run(detail, store):
    client, uri, experiment = store
    with mlflow.start_run(experiment_id=experiment) as run:
        train(Cut(), lambda step, loss: mlflow.log_metric("loss", loss, step=step), detail=detail)
    metrics = client.get_run(run.info.run_id).data.metrics
    files = [one.path for one in client.list_artifacts(run.info.run_id)]
    if detail == "file":
        assert "gap/grads/layers.0/max" in metrics
        assert "gap/grads/layers.0.weight/max" not in metrics
        assert files == ["gap.jsonl"]
    else:
        assert "gap/grads/layers.0.weight/max" in metrics
        assert not files
    report = tracker_health.check(f"mlflow:{run.info.run_id}", tracking_uri=uri)
    found = {one.code: one for one in report.results}["GAP006"]
    assert found.verdict == "fail"
    assert found.votes
    silent = {"layers.0.weight", "layers.0.bias"} | ({"layers.0"} if detail == "file" else set())
    assert set(found.details["silent"]) == silent


REFUSED = ("a<b,c", "a//b", "long" * 100)


class Named(nn.Module):
    """Layers of names that MLflow refuses; the first ones get no gradient."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({name: nn.Linear(4, 4) for name in REFUSED}) for _ in range(2)])
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for layer in self.layers:
            x = sum(layer[name](x.detach()) for name in REFUSED)
        return self.head(x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("detail", ["file", "metrics"])
def test_a_name_that_mlflow_refuses_costs_no_metric(detail, store, recwarn):
    client, uri, experiment = store
    with mlflow.start_run(experiment_id=experiment) as run:
        train(Named(), lambda step, loss: mlflow.log_metric("loss", loss, step=step), detail=detail)
    assert not [str(one.message) for one in recwarn if "tracker-health" in str(one.message)]
    metrics = client.get_run(run.info.run_id).data.metrics
    layers = [one for one in metrics if one.startswith("gap/grads/layers.") and one.endswith("/max")]
    assert len(layers) == (2 if detail == "file" else 2 * len(REFUSED) * 2)
    report = tracker_health.check(f"mlflow:{run.info.run_id}", tracking_uri=uri)
    found = {one.code: one for one in report.results}["GAP006"]
    assert found.verdict == "fail"
    assert all(one.startswith("layers.0") for one in found.details["silent"])
    if detail == "file":
        assert {f"layers.0.{name}.weight" for name in REFUSED} <= set(found.details["silent"])


def test_names_in_mlflow_are_accepted_and_stay_distinct():
    validation = mlflow.utils.validation
    long = "x" * 120 + "{}" + "y" * 120
    inner = ["a", "a b", "a:b", "a,b", "a<b", "a_b", "a_x2c_b", "a_x3c_b", "a,b_x2c_", "é", "a/b", "a//b", "a/./b"]
    inner += [
        "a/../b",
        "/a",
        "a/",
        "a\n",
        "\ud800",
        "z" * 229,
        "z" * 230,
        "," * 100,
        *map(long.format, ("0", "1", ",")),
    ]
    every = [f"gap/grads/{one}/{statistic}" for one in inner for statistic in ("max", "mean", "var")]
    taken = [mlflow_name(one) for one in every]
    assert len(set(taken)) == len(every)
    for before, after in zip(every, taken, strict=True):
        validation._validate_metric_name(after)
        assert len(after) <= validation.MAX_ENTITY_KEY_LENGTH
        if before.split("/", 2)[2].rsplit("/", 1)[0] in {"a", "a b", "a_b", "a/b", "z" * 229, "é"}:
            assert after == before
        assert after.startswith("gap/grads/")
        assert after.rpartition("/")[2] == before.rpartition("/")[2]
    assert mlflow_name("gap/params/layers.3.a,b/max") == "gap/params/layers.3.a_x2c_b/max"
    assert mlflow_name("my,own") == "my_x2c_own"


@pytest.mark.parametrize(("takes", "name"), [(True, "gap/params/net:0/max"), (False, "gap/params/net_x3a_0/max")])
def test_a_colon_stays_where_mlflow_takes_it(monkeypatch, takes, name):
    monkeypatch.setattr(trackers, "takes_colons", lambda: takes)
    assert mlflow_name("gap/params/net:0/max") == name


def finished(run):
    """The folder of a run of W&B. Its process may still be writing the end when ``finish`` comes back."""
    folder = Path(run.dir).parent  # not below tmp_path where an earlier test of this process has begun a run
    run.finish()
    deadline = time.monotonic() + 60
    while not any(read_log(log).exit_code is not None for log in folder.glob("*.wandb")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return folder


@pytest.mark.slow
def test_an_offline_wandb_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    run = wandb.init(project="watched")
    train(Cut(), lambda _, loss: run.log({"loss": loss}))
    report = tracker_health.check(finished(run))
    found = {one.code: one for one in report.results}["GAP006"]
    assert found.verdict == "fail"
    assert "layers.0.weight" in found.details["silent"]


@pytest.mark.slow
def test_the_mark_on_an_offline_wandb_run_goes_with_the_verdict(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    run = wandb.init(project="watched", tags=["mine"])
    mark = ActiveWandbRun(run)
    mark.mark("warn")
    mark.mark("fail")
    assert set(run.tags) == {"mine", "health:live-fail"}
    for step in range(60):
        run.log({"loss": 2.0 / (step + 1)})
    folder = finished(run)
    (log,) = folder.glob("*.wandb")
    assert set(read_log(log).tags) == {"mine", "health:live-fail"}
    tracker_health.annotate(str(folder))
    assert set(read_log(log).own_tags) == {"mine", "health:pass"}
