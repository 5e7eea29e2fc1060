"""What a server's failure kept from being looked at never replaces what was judged: of every endpoint, by every way."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health import errors
from tracker_health.cli import cli
from tracker_health.config import Config
from tracker_health.errors import MissingExtra, OutdatedPackage, StoreUnavailable
from tracker_health.fleet.gate import gate
from tracker_health.fleet.sweep import Sweep
from tracker_health.judge.gate_decision import GateDecision
from tracker_health.stores.mlflow import last_word
from tracker_health.stores.remote import deadline
from tracker_health.stores.wandb import connection as wandb_connection
from tracker_health.stores.wandb import server as wandb_of
from tracker_health.words.lowest_versions import _numbers
from tracker_health.words.verdict import Verdict

from ..wandb_server import Fault  # noqa: TID252  tests are no package of a name
from ..wandb_server.store import Blob  # noqa: TID252
from .faulty_proxy import Proxy
from .test_mlflow_store import Store, long_descent

mlflow = pytest.importorskip("mlflow")

BAD = [(step, float("nan") if step > 30 else 1.0 / (step + 1)) for step in range(60)]
ARTIFACTS = "GET /api/2.0/mlflow-artifacts/artifacts"
ENDPOINTS = {
    "run": "GET /api/2.0/mlflow/runs/get",
    "history": "/metrics/get-history",
    "listing": f"{ARTIFACTS}?",
    "file": f"{ARTIFACTS}/",
}
FAULTS = (500, 503, 429, "torn", "invalid", "hang")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The optimizer state of a small model that was trained long enough."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(300):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        optimizer.step()
    path = tmp_path_factory.mktemp("checkpoint") / "optimizer.pt"
    torch.save(optimizer.state_dict(), path)
    return path


@pytest.fixture
def little_patience(monkeypatch):
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 3)
    for module in ("tracker_health.stores.wandb.connection", "tracker_health.stores.mlflow.stored_files.artifacts"):
        monkeypatch.setattr(f"{module}.REQUEST_SECONDS", 3)
    monkeypatch.setattr(last_word, "ANSWER_SECONDS", 2)
    monkeypatch.setattr(wandb_of, "ANSWER_SECONDS", 2)
    monkeypatch.setattr(wandb_connection, "PATIENCE_SECONDS", 2)
    for noted in ("_answered", "_slow", "_silent"):
        monkeypatch.setattr(deadline, noted, {})


@pytest.fixture
def forgetful(monkeypatch):
    """No server is left alone for what it did before."""
    monkeypatch.setattr(deadline, "AGAIN_SECONDS", 0)


@pytest.fixture
def proxied(server_uri):
    with Proxy(server_uri) as proxy:
        yield proxy


def settled_run(store, checkpoint):
    """A run with a checkpoint and the verdict FAIL on it, which its files and history are then read for again."""
    run_id = store.run(metrics={"loss": BAD})
    store.client.log_artifact(run_id, str(checkpoint))
    assert th.annotate(run_id, tracking_uri=store.uri).report.verdict is Verdict.FAIL
    return run_id


def ours(store, run_id):
    return {key: value for key, value in store.tags(run_id).items() if key.startswith("health.")}


def is_told(message, fault):
    if fault == "hang":
        return "no answer in time" in message
    said = str(fault) if isinstance(fault, int) else "broke off"
    return said in message and "no answer in time" not in message


@pytest.mark.slow
@pytest.mark.thinned(3)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_failing_mlflow_server_fails_the_command_and_leaves_the_verdict(
    server_uri, proxied, checkpoint, little_patience, forgetful, monkeypatch, endpoint, fault
):
    store = Store(server_uri)
    run_id = settled_run(store, checkpoint)
    before = ours(store, run_id)
    # With the retries of MLflow that outlast the time for a request, as in earnest, and with none.
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "5" if fault == 503 else "0")
    with proxied.failing(fault, ENDPOINTS[endpoint]):
        (outcome,) = th.annotate_many([run_id], tracking_uri=proxied.uri, force=True)
        checked = CliRunner().invoke(cli, ["check", run_id, "--tracking-uri", proxied.uri])
    assert (outcome.status, type(outcome.error)) == ("failed", StoreUnavailable)
    assert is_told(outcome.error.message, fault), outcome.error.message
    assert outcome.error.hint
    assert checked.exit_code == 3
    assert "FAIL" not in checked.stdout
    assert ours(store, run_id) == before
    assert th.annotate(run_id, tracking_uri=proxied.uri).status == "unchanged"


@pytest.mark.exhaustive
def test_a_sweep_passes_over_what_a_server_does_not_give_and_comes_back(
    server_uri, proxied, checkpoint, little_patience, forgetful, monkeypatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = Store(server_uri)
    name = "swept while its artifacts are away"
    store.experiment = store.client.create_experiment(name)
    settled, new = settled_run(store, checkpoint), store.run(metrics={"loss": long_descent()})
    store.client.log_artifact(new, str(checkpoint))
    store.client.set_tag(settled, "health.digest", "of other settings")  # it is judged again
    before = ours(store, settled)
    sweep = Sweep(config=Config(), experiments=(name,), tracking_uri=proxied.uri)
    with proxied.failing(503, ENDPOINTS["listing"]):
        passes = [{one.run.name: one.kind for one in sweep.annotate(sweep.candidates())} for _ in range(2)]
    assert passes == [{settled: "failed", new: "failed"}] * 2
    assert ours(store, settled) == before
    assert ours(store, new) == {}
    assert sweep.oldest_unjudged is not None
    assert {one.kind for one in sweep.annotate(sweep.candidates())} == {"annotated"}
    assert (ours(store, settled)["health.verdict"], ours(store, new)["health.verdict"]) == ("fail", "pass")


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["history", "file"])
def test_a_model_whose_run_or_files_a_server_does_not_give_may_not_go_on(
    server_uri, proxied, checkpoint, little_patience, forgetful, monkeypatch, endpoint
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = Store(server_uri)
    run_id = store.run(metrics={"loss": long_descent()})
    store.client.log_artifact(run_id, str(checkpoint), "model")
    name = f"of a server that fails at {endpoint}"
    store.client.create_registered_model(name)
    store.client.create_model_version(name, f"runs:/{run_id}/model", run_id)
    with proxied.failing(500, ENDPOINTS[endpoint]):
        answer = gate(f"models:/{name}/1", tracking_uri=proxied.uri)
    assert answer.gate.answer is GateDecision.NOT_JUDGED
    assert "500" in answer.gate.reason
    assert not answer.written
    assert gate(f"models:/{name}/1", tracking_uri=proxied.uri).gate.answer is GateDecision.GO_ON


@pytest.mark.exhaustive
def test_a_hook_at_the_end_of_a_run_writes_nothing_and_says_one_line(server_uri, proxied, checkpoint, tmp_path):
    script = f"""
import mlflow, tracker_health
tracker_health.autolog()
with mlflow.start_run() as run:
    for step in range(60):
        mlflow.log_metric("loss", 1 / (step + 1), step)
    mlflow.log_artifact({str(checkpoint)!r})
print(run.info.run_id)
"""
    environment = os.environ | {"MLFLOW_TRACKING_URI": proxied.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    with proxied.failing(503, ENDPOINTS["listing"]):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "tracker-health" in line]
    assert len(said) == 1, done.stderr
    assert "was not judged" in said[0]
    assert "503" in said[0]
    assert "health.verdict" not in Store(server_uri).tags(done.stdout.split()[-1])


# W&B


def of(operation):
    return lambda request: request.operation == operation


WANDB_ENDPOINTS = {
    "run": of("Run"),
    "history": of("HistoryPage"),
    "files": of("RunFiles"),
    "file": lambda request: request.method == "GET" and "optimizer.pt" in request.path,
}
WANDB_FAULTS = {
    500: {"status": 500},
    503: {"status": 503},
    429: {"status": 429},
    "torn": {"status": 200, "body": b'{"data": {"proj'},
    "hang": {"hang": 12},
}


@pytest.mark.slow
@pytest.mark.thinned(4)
@pytest.mark.parametrize("fault", WANDB_FAULTS)
@pytest.mark.parametrize("endpoint", WANDB_ENDPOINTS)
def test_a_failing_wandb_server_fails_the_command_and_leaves_the_verdict(
    wandb_server, checkpoint, little_patience, forgetful, endpoint, fault
):
    run = wandb_server.store.new_run("team", "proj", "abc")
    rows = [{"_step": step, "_timestamp": 1.0 * step, "loss": loss} for step, loss in BAD]
    run.history = [json.dumps(row) for row in rows]
    run.state = "finished"
    run.files["optimizer.pt"] = Blob(checkpoint.read_bytes())
    if endpoint == "files":  # more than come with the run
        run.files |= {f"other/{number}.txt": Blob(b"x") for number in range(120)}
    name = "wandb:team/proj/abc"
    assert th.annotate(name).report.verdict is Verdict.FAIL
    before = (list(run.tags), dict(run.summary), set(run.files))
    with wandb_server.failing(Fault(WANDB_ENDPOINTS[endpoint], **WANDB_FAULTS[fault])):
        (outcome,) = th.annotate_many([name], force=True)
    assert (outcome.status, type(outcome.error)) == ("failed", StoreUnavailable)
    assert is_told(outcome.error.message, fault), outcome.error.message
    assert (run.tags, run.summary, set(run.files)) == before
    for noted in (deadline._silent, deadline._slow):
        noted.clear()
    assert th.annotate(name).status == "unchanged"


# What is the run's own


def test_what_cannot_be_read_replaces_no_verdict(tmp_path, checkpoint):
    """A file that was damaged since: told, with the exit code for that, and the verdict stays; a new run gets ERROR."""
    rows = "\n".join(json.dumps({"step": step, "loss": loss}) for step, loss in BAD)
    for name in ("judged", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(rows)
        (tmp_path / name / "optimizer.pt").write_bytes(checkpoint.read_bytes())
    assert th.annotate(tmp_path / "judged").report.verdict is Verdict.FAIL
    kept = (tmp_path / "judged/health/annotation.json").read_bytes()
    for name in ("judged", "new"):
        (tmp_path / name / "log.jsonl").write_bytes(b"\x80\x81" * 100)
    done = CliRunner().invoke(cli, ["annotate", str(tmp_path / "judged")])
    assert done.exit_code == 3
    assert "the verdict that it has (fail) stays" in done.stderr
    assert (tmp_path / "judged/health/annotation.json").read_bytes() == kept
    assert th.annotate(tmp_path / "new").report.verdict is Verdict.ERROR
    assert json.loads((tmp_path / "new/health/report.json").read_text())["verdict"] == "error"


# A client that is missing or too old


def test_a_missing_sdk_is_named_with_the_extra_for_servers(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra) as caught:
        th.check("wandb:team/proj/abc")
    assert caught.value.hint == "pip install 'tracker-health[wandb-server]'"


@pytest.mark.parametrize(("package", "run"), [("mlflow", "0" * 32), ("wandb", "wandb:team/proj/abc")])
def test_a_client_that_is_too_old_is_named_and_no_server_blamed(monkeypatch, package, run):
    module = pytest.importorskip(package)
    monkeypatch.setattr(module, "__version__", "0.14.1")
    with pytest.raises(OutdatedPackage) as caught:
        th.check(run, tracking_uri="http://127.0.0.1:9")
    assert f"{package} 0.14.1 is installed, tracker-health needs >= " in caught.value.message
    assert caught.value.hint == f"pip install -U {package}"
    assert "server" not in str(caught.value)
    place = (
        ["--project", "team/proj"]
        if package == "wandb"
        else ["--experiment", "x", "--tracking-uri", "http://127.0.0.1:9"]
    )
    done = CliRunner().invoke(cli, ["doctor", *place])
    assert done.exit_code == 3
    assert f"{package} 0.14.1 is installed" in done.output
    for version, lowest in (("3.10.0rc1", "3.10"), ("3.9", "3.10"), ("2.13.0+cpu", "2.10")):
        assert (
            errors.older_than_supported("no such extra"),
            _numbers(version) < _numbers(lowest),
        ) == (None, version == "3.9")


def test_no_reader_of_a_part_takes_a_servers_failure_for_the_parts():
    """Who reads evidence catches ``UNREADABLE``: a ``RunError`` may be a server's failure."""
    folder = Path(th.__file__).parent / "stores"
    of_the_way_back_and_writers = {
        "all_checkpoints.py",
        "checkpoint_places.py",
        "writing.py",
        "own_files.py",
        "registry.py",
    }
    late = {
        ("empty_runs.py", 1),
        ("bulk.py", 1),
        ("url.py", 1),
        ("online.py", 1),
        ("artifact.py", 1),
        ("connection.py", 1),
    }
    found = {}
    for path in folder.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        caught = [node.type for node in nodes if isinstance(node, ast.ExceptHandler) and node.type is not None]
        amount = sum(isinstance(one, ast.Name) and one.id == "RunError" for kind in caught for one in ast.walk(kind))
        if amount and path.name not in of_the_way_back_and_writers:
            found[path.name] = amount
    assert set(found.items()) <= late
