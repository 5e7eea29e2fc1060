"""What a server's failure kept from being looked at never replaces what was judged: of every endpoint, by every way."""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws import draws

import tracker_health as th
from tracker_health import errors
from tracker_health.cli import cli
from tracker_health.config import Config
from tracker_health.errors import MissingExtra, OutdatedPackage
from tracker_health.fleet.gate import gate
from tracker_health.fleet.sweep import Sweep
from tracker_health.judge.gate_decision import GateDecision
from tracker_health.words.lowest_versions import _numbers
from tracker_health.words.verdict import Verdict

from .failing_servers import BEFORE, LASTING, OPERATIONS, OfMlflow, OfWandb, Trial, broken_laws
from .faulty_proxy import FAULTS, Proxy
from .test_mlflow_store import Store, long_descent

mlflow = pytest.importorskip("mlflow")

ARTIFACTS = "GET /api/2.0/mlflow-artifacts/artifacts"
ENDPOINTS = {"history": "/metrics/get-history", "listing": f"{ARTIFACTS}?", "file": f"{ARTIFACTS}/"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The optimizer state of a small model that was trained long enough."""
    return saved_state(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def broken_checkpoint(tmp_path_factory):
    """The same with a NaN in it: a run with it fails, and one without is healthy."""
    return saved_state(tmp_path_factory.mktemp("broken"), broken=True)


def saved_state(folder, *, broken=False):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(300):
        x = torch.randn(16, 40)
        optimizer.zero_grad()
        (model(x) - x[:, :30]).square().mean().backward()
        optimizer.step()
    state = optimizer.state_dict()
    if broken:
        state["state"][0]["exp_avg"][0, 0] = float("nan")
    torch.save(state, folder / "optimizer.pt")
    return folder / "optimizer.pt"


@pytest.fixture
def proxied(server_uri):
    with Proxy(server_uri) as proxy:
        yield proxy


TRIALS = st.builds(
    Trial,
    *map(st.sampled_from, (OPERATIONS, BEFORE, sorted(FAULTS), LASTING)),
    at=st.integers(0, 99),
)


@pytest.fixture
def mlflow_servers(proxied, server_uri, broken_checkpoint, no_pictures):
    return [OfMlflow(server_uri, proxied, broken_checkpoint)]


@pytest.fixture
def wandb_servers(wandb_server, broken_checkpoint, no_pictures, monkeypatch):
    """Of one behind a proxy, through which everything goes."""
    for kind in ("GRAPHQL", "FILE_TRANSFER"):
        monkeypatch.setenv(f"WANDB_X_{kind}_RETRY_WAIT_MIN_SECONDS", "1")
    with Proxy(wandb_server.url) as proxy:
        monkeypatch.setenv("WANDB_BASE_URL", proxy.uri)
        wandb_server.url = proxy.uri
        yield [OfWandb(wandb_server, proxy, broken_checkpoint, in_artifact=one) for one in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_a_fault_of_the_server_is_never_evidence(request, tracker):
    servers = request.getfixturevalue(f"{tracker}_servers")

    @example(servers[0], Trial("annotate", "judged", "another object", "there", 2))
    @example(servers[-1], Trial("clear", "judged", "401", "there", 17))
    @settings(max_examples=draws(300))
    @given(st.sampled_from(servers), TRIALS)
    def law(servers, trial):
        assert broken_laws(servers, trial) == [], trial

    law()


@pytest.mark.exhaustive
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_it_is_none_at_any_request(request, tracker, operation, before):
    kinds, lasting = itertools.cycle(sorted(FAULTS)), itertools.cycle(LASTING)
    for servers in request.getfixturevalue(f"{tracker}_servers"):
        for at in range(len(servers.whole(operation, before).asked)):
            trial = Trial(operation, before, next(kinds), next(lasting), at)
            assert broken_laws(servers, trial) == [], trial


@pytest.mark.exhaustive
def test_a_sweep_passes_over_what_a_server_does_not_give_and_comes_back(server_uri, proxied, checkpoint, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = Store(server_uri)
    name = "swept while its artifacts are away"
    store.experiment = store.client.create_experiment(name)
    run_id = store.run(metrics={"loss": long_descent()})
    store.client.log_artifact(run_id, str(checkpoint))
    sweep = Sweep(config=Config(), experiments=(name,), tracking_uri=proxied.uri)
    with proxied.failing("503 html", ENDPOINTS["listing"]):
        passes = [[one.kind for one in sweep.annotate(sweep.candidates())] for _ in range(2)]
    assert passes == [["failed"]] * 2
    assert "health.verdict" not in store.tags(run_id)
    assert sweep.oldest_unjudged is not None
    assert [one.kind for one in sweep.annotate(sweep.candidates())] == ["annotated"]
    assert store.tags(run_id)["health.verdict"] == "pass"


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["history", "file"])
def test_a_model_whose_run_or_files_a_server_does_not_give_may_not_go_on(
    server_uri, proxied, checkpoint, monkeypatch, endpoint
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = Store(server_uri)
    run_id = store.run(metrics={"loss": long_descent()})
    store.client.log_artifact(run_id, str(checkpoint), "model")
    name = f"of a server that fails at {endpoint}"
    store.client.create_registered_model(name)
    store.client.create_model_version(name, f"runs:/{run_id}/model", run_id)
    with proxied.failing("500 html", ENDPOINTS[endpoint]):
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
    with proxied.failing("503 html", ENDPOINTS["listing"]):
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


# What is the run's own


def test_what_cannot_be_read_replaces_no_verdict(tmp_path, checkpoint):
    """A file that was damaged since: told, with the exit code for that, and the verdict stays; a new run gets ERROR."""
    rows = "\n".join(json.dumps({"step": n, "loss": float("nan") if n > 30 else 1 / (n + 1)}) for n in range(60))
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
