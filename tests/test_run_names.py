"""What a RUN may be called on the command line and in Python: each name leads to the run it means, and to no other."""

from __future__ import annotations

import pytest

import tracker_health as th
from tracker_health.errors import RunNotFound
from tracker_health.runs.lookup import open_run
from tracker_health.stores.wandb.address import Project, project_of

RUN_ID = "0123456789abcdef" * 2
PAGE = f"#/experiments/7/runs/{RUN_ID}"


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """The calls that reach MLflow: (run id, tracking URI)."""
    calls = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "tracker_health.stores.mlflow.run.open_mlflow_run", lambda *call, **_: calls.append(call) or call
    )
    return calls


@pytest.mark.parametrize(
    "name",
    [
        RUN_ID,
        f"mlflow:{RUN_ID}",
        f"runs:/{RUN_ID}",
        f"runs:/{RUN_ID}/",
        f"runs:/{RUN_ID}/model",
        f"runs:/{RUN_ID}/some/artifact path/model.pt",
        f"runs:/{RUN_ID}/../../etc",
    ],
)
def test_a_run_id_and_its_uris(opened, name):
    open_run(name, tracking_uri="http://host")
    assert opened == [(RUN_ID, "http://host")]


@pytest.mark.parametrize(
    ("url", "server"),
    [
        (f"http://127.0.0.1:5000/{PAGE}", "http://127.0.0.1:5000"),
        (f"https://host.example/{PAGE}/", "https://host.example"),
        (f"https://host.example/{PAGE}/model-metrics", "https://host.example"),
        (f"https://host.example/{PAGE}/artifacts/checkpoint/optimizer.pt", "https://host.example"),
        (f"https://host.example/{PAGE}?compareRunsMode=CHART", "https://host.example"),
        (f"https://host.example/mlflow/{PAGE}", "https://host.example/mlflow"),
        (f"https://host.example/a/b/mlflow/{PAGE}/artifacts", "https://host.example/a/b/mlflow"),
        (f"https://host.example/?workspace=x{PAGE}", "https://host.example"),
        (f"https://bob:s3cr3t@host.example:1/{PAGE}", "https://bob:s3cr3t@host.example:1"),
        (f"HTTP://[::1]:5000/{PAGE}", "HTTP://[::1]:5000"),
    ],
)
@pytest.mark.one_cell
def test_the_address_of_a_run_page_names_server_and_run(opened, url, server):
    open_run(url, tracking_uri="sqlite:///another.db")
    assert opened == [(RUN_ID, server, "7")]


@pytest.mark.parametrize(
    "url",
    [
        f"http://host/#/experiments//runs/{RUN_ID}",
        "http://host/#/experiments/7/runs/../x",
        f"http:///#/experiments/7/runs/{RUN_ID}",
        f"ftp://host/{PAGE}",
        f"http://host{PAGE}",
        "http://host/#/compare-runs?runs=[1,2]",
    ],
)
def test_other_addresses_are_told_to_be_none_of_a_run(opened, url):
    with pytest.raises(RunNotFound, match="is not the address of an MLflow run page"):
        open_run(url)
    assert opened == []


@pytest.mark.parametrize(
    "url",
    [
        "http://host/#/experiments/7",
        "http://host/#/experiments/7/",
        "http://host/#/experiments/7/runs",
        "http://host/#/experiments/7/runs/",
        "https://me:s3cr3t@host/mlflow/#/experiments/7?searchFilter=s3cr3t",
        "http://host/?workspace=x#/experiments/7/runs?compareRunsMode=CHART",
    ],
)
def test_the_page_of_an_experiment_is_told_to_be_one(opened, url):
    with pytest.raises(RunNotFound, match="is not the address of an MLflow run page but of an experiment's") as caught:
        open_run(url)
    assert "the run's id" in caught.value.hint
    assert "s3cr3t" not in str(caught.value)
    assert opened == []


@pytest.mark.parametrize("name", [f"  {RUN_ID}", f"runs:/{RUN_ID} ", f"\tmlflow:{RUN_ID}\n", f" http://host/{PAGE} "])
def test_spaces_around_a_name_do_not_count(opened, name):
    open_run(name, tracking_uri="http://host")
    assert [call[:2] for call in opened] == [(RUN_ID, "http://host")]


def test_spaces_around_the_name_of_a_folder(write_log, healthy_losses, monkeypatch):
    folder = write_log(healthy_losses)
    assert th.check(f" {folder}\n").verdict is th.Verdict.PASS
    monkeypatch.chdir(folder.parent)
    folder.rename(" run ")
    assert th.check(" run ").run.name == " run "


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_an_empty_name_is_told_to_be_one(opened, name):
    with pytest.raises(RunNotFound, match="an empty name is no folder and no run id"):
        open_run(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "models:/classifier/3",
            "models:/classifier/3 is a registered model, not a run (gate judges it; else give the id of the run that",
        ),
        ("models:/m-0123456789abcdef", "is a registered model"),
        (
            f"mlflow-artifacts:/7/{RUN_ID}/artifacts/model",
            "is a place where artifacts are, not a run (give the run's id",
        ),
        (f"mlflow-artifacts://me:s3cr3t@host/7/{RUN_ID}/artifacts", "is a place where artifacts are"),
    ],
)
def test_other_uris_of_mlflow_are_told_what_they_are(opened, name, said):
    with pytest.raises(RunNotFound) as caught:
        open_run(name)
    assert said in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert opened == []


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("wandb:team/project/abc123", ("team", "project", "abc123", "")),
        ("wandb:project/abc123", ("", "project", "abc123", "")),
        ("wandb:team/project/runs/abc123", ("team", "project", "abc123", "")),
        ("https://wandb.ai/team/my%20project/runs/abc123", ("team", "my project", "abc123", "https://wandb.ai")),
        ("https://wandb.ai/team/project/runs/abc123/overview?nw=x", ("team", "project", "abc123", "https://wandb.ai")),
        ("http://here:8080/team/project/runs/abc123", ("team", "project", "abc123", "http://here:8080")),
        ("https://host/below/team/project/runs/abc123", ("team", "project", "abc123", "https://host/below")),
    ],
)
def test_a_run_of_wandb_is_opened_on_its_server(opened, monkeypatch, name, address):
    found = []
    monkeypatch.setattr(
        "tracker_health.stores.wandb.online.open_online_run", lambda place, **_: found.append(place) or place
    )
    open_run(name)
    assert (found, opened) == ([address], [])


@pytest.mark.parametrize(
    "name",
    [
        "wandb:abc123",
        "wandb:",
        "wandb:a/b/c/d/e",
        "https://wandb.ai/team/project",
        "https://me:s3cr3t@wandb.ai/team/project/runs/abc123?nw=s3cr3t",
        "https://api.wandb.ai:443",
    ],
)
def test_what_names_no_run_of_wandb_is_told_how_to_name_one(opened, name):
    with pytest.raises(RunNotFound, match="does not name a run of Weights & Biases") as caught:
        open_run(name)
    assert "wandb:ENTITY/PROJECT/RUN" in caught.value.hint
    assert "s3cr3t" not in str(caught.value)
    assert opened == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("team/project/abc123", "wandb:team/project/abc123"),
        ("project/abc123", "wandb:project/abc123"),
        ("team/project/runs/abc123", "wandb:team/project/runs/abc123"),
        ("3kq92jfx", "wandb:ENTITY/PROJECT/3kq92jfx"),
    ],
)
def test_what_may_be_a_run_of_wandb_is_told_how_to_name_it(opened, name, form):
    with pytest.raises(RunNotFound) as caught:
        open_run(name)
    assert f"of W&B: {form}" in caught.value.hint


@pytest.mark.parametrize("name", ["./runs/gone", "runs/gone/model.pt/x/y/z", "no-such-run", "../a/b"])
def test_what_cannot_be_one_is_not(opened, name):
    with pytest.raises(RunNotFound) as caught:
        open_run(name)
    assert "W&B" not in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "team/project/sweeps/s1",
        "wandb:team/project/sweeps/s1",
        "wandb:project/sweeps/s1",
        "https://wandb.ai/team/project/sweeps/s1?nw=x",
    ],
)
def test_a_sweep_is_told_to_be_one(opened, name):
    with pytest.raises(RunNotFound, match="is a sweep of W&B, not a run") as caught:
        open_run(name)
    assert "--project ENTITY/PROJECT/sweeps/ID" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "project"),
    [
        ("project", Project("", "project")),
        ("team/project", Project("team", "project")),
        ("wandb:team/project/", Project("team", "project")),
        ("project/sweeps/s1", Project("", "project", "s1")),
        ("team/project/sweeps/s1", Project("team", "project", "s1")),
        ("https://wandb.ai/team/project", Project("team", "project", "", "https://wandb.ai")),
        ("https://wandb.ai/team/my%20project/workspace?nw=x", Project("team", "my project", "", "https://wandb.ai")),
        ("http://host:8080/team/project/sweeps/s1", Project("team", "project", "s1", "http://host:8080")),
    ],
)
def test_what_names_a_project(text, project):
    assert project_of(text) == project


@pytest.mark.parametrize("name", ["https://notwandb.ai/x", "https://wandb.ai.example/x", "https://x/wandb.ai/"])
def test_what_only_looks_like_wandb(opened, name):
    with pytest.raises(RunNotFound, match="is not the address of an MLflow run page"):
        open_run(name)


def test_no_outcome_of_a_run_page_holds_its_secrets():
    url = f"http://bob:s3cr3t@127.0.0.1:9/{PAGE}"
    (outcome,) = th.check_many([url])
    assert outcome.status == "failed"
    assert outcome.report.run.store == "mlflow"
    assert outcome.run == f"http://127.0.0.1:9/{PAGE}"
    assert "s3cr3t" not in repr(outcome)
    assert "bob" not in repr(outcome)
