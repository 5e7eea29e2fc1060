"""The examples do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .stores.wandb_runs import inspected
from .wandb_server import WandbServer

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(("rate", "verdicts"), [("0.001", ["pass"]), ("3", ["warn", "fail"])])
@pytest.mark.exhaustive
def test_wandb_offline(tmp_path, rate, verdicts):
    pytest.importorskip("wandb")
    pytest.importorskip("sklearn")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    command = [sys.executable, str(EXAMPLES / "wandb_offline.py"), "--learning-rate", rate]
    trained = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    annotate = trained.stdout.strip().splitlines()[-1].split()
    assert annotate[:2] == ["tracker-health", "annotate"]
    tool = [sys.executable, "-m", *annotate]
    tool[2] = "tracker_health"
    before = summary_and_rows(annotate[2])
    told = subprocess.run(tool, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    verdict = told.stdout.split()[0].lower()
    assert verdict in verdicts
    (was, rows_before), (seen, rows) = before, summary_and_rows(annotate[2])
    assert seen["summary"].pop("health/verdict") == verdict
    assert seen["tags"] == [f"health:{verdict}"]
    theirs = {key: value for key, value in seen["summary"].items() if not key.startswith("health/")}
    assert (rows, seen["config"], theirs) == (rows_before, was["config"], was["summary"])
    assert len(rows) == 60
    with WandbServer() as server:
        wandb_sync(annotate[2], server, tmp_path)
        (run,) = server.store.runs.values()
    assert (run.tags, run.summary["health/verdict"], run.state) == ([f"health:{verdict}"], verdict, "finished")
    assert len(run.history) == 60
    page = run.summary.get("health/report")
    assert page["path"] in run.files if verdict != "pass" else page is None
    assert json.loads(run.files["health/report.json"].content)["verdict"] == verdict


def summary_and_rows(folder):
    """What W&B's own reader says of a local run: its summary, and the rows of its history."""
    rows = [one["history"]["item"] for one in inspected(folder) if one["type"] == "history"]
    return inspected(folder, "--summary"), rows


def wandb_sync(folder, server, home):
    """Send a local run to a server as its owner would."""
    command = [str(Path(sys.executable).parent / "wandb"), "sync", folder]
    environment = os.environ | server.environment(home)
    subprocess.run(command, env=environment, cwd=home, capture_output=True, check=True, timeout=200)


def told_then_written(stderr, tracking_uri):
    """The verdict that the hook told when the run ended, once the one that came of all its evidence is on the run."""
    (line,) = (line for line in stderr.splitlines() if line.startswith("tracker-health: "))
    ours, provisional, told, name, _ = line.split(maxsplit=4)
    assert (ours, provisional) == ("tracker-health:", "provisional:")
    assert line.endswith("; the final verdict will be there")
    run = judged_run(tracking_uri)
    assert (f"{run.info.run_name}:", run.data.tags["health.verdict"].upper()) == (name, told)
    return told


def judged_run(tracking_uri, seconds=120):
    """The only run of a store, when its report is there: the last thing that the judge writes."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # Lightning's logger makes an experiment of its own.
        (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
        if "report.json" in run.data.tags.get("health.digest", ""):  # the first verdict has no files
            return run
        time.sleep(0.2)
    pytest.fail(f"no final verdict after {seconds} s: {run.data.tags}")


@pytest.mark.parametrize(("rate", "verdicts"), [("0.1", ["PASS"]), ("30", ["WARN", "FAIL"])])
@pytest.mark.exhaustive
def test_mlflow_torch(tmp_path, rate, verdicts):
    """One line of it is ours."""
    for package in ("mlflow", "sklearn", "torch"):
        pytest.importorskip(package)
    script = EXAMPLES / "mlflow_torch.py"
    assert script.read_text().count("tracker_health.") == 1
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment |= {"TRACKER_HEALTH_HOOK_SECONDS": "100", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    command = [sys.executable, str(script), "--learning-rate", rate]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=200
    )
    assert done.stdout == "150 steps\n"
    assert told_then_written(done.stderr, environment["MLFLOW_TRACKING_URI"]) in verdicts


@pytest.mark.frameworks
@pytest.mark.parametrize(("rates", "verdicts"), [(("0.003", "0.1"), ["PASS"]), (("10", "30"), ["WARN", "FAIL"])])
@pytest.mark.parametrize("package", ["transformers", "pytorch_lightning"])
def test_trainers_of_others(tmp_path, package, rates, verdicts):
    """One line of each is ours."""
    for needed in ("mlflow", "sklearn", package):
        pytest.importorskip(needed, reason=f"{needed} is not installed (make frameworks)")
    name, rate = {"transformers": ("transformers", rates[0]), "pytorch_lightning": ("lightning", rates[1])}[package]
    script = EXAMPLES / f"{name}_mlflow.py"
    assert script.read_text().count("tracker_health.") == 1
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment |= {"TRACKER_HEALTH_HOOK_SECONDS": "100", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    environment |= {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(script), "--learning-rate", rate]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert told_then_written(done.stderr, environment["MLFLOW_TRACKING_URI"]) in verdicts


@pytest.mark.frameworks
@pytest.mark.parametrize(("options", "verdicts"), [([], ["PASS"]), (["--constant-reward"], ["FAIL"])])
def test_trl(tmp_path, options, verdicts):
    """One line of it is ours; a constant reward is the first thing that is told."""
    for needed in ("mlflow", "trl"):
        pytest.importorskip(needed, reason=f"{needed} is not installed (make frameworks)")
    script = EXAMPLES / "trl_grpo.py"
    assert script.read_text().count("tracker_health.") == 1
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment |= {"TRACKER_HEALTH_HOOK_SECONDS": "100", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    environment |= {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(script), *options]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert told_then_written(done.stderr, environment["MLFLOW_TRACKING_URI"]) in verdicts


@pytest.mark.exhaustive
def test_optuna_study(tmp_path):
    """Learning rates far too high are pruned with a cause; a healthy one is best."""
    for package in ("optuna", "sklearn", "torch"):
        pytest.importorskip(package)
    command = [sys.executable, str(EXAMPLES / "optuna_study.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300)
    *trials, best = done.stdout.splitlines()
    rates = [float(re.search(r"learning_rate=([\d.e+-]+)", line)[1]) for line in trials]
    judged = [rate for rate, line in zip(rates, trials, strict=True) if "at step" in line]
    assert len(trials) == 12
    assert judged
    assert min(judged) > 0.5
    assert "non-finite-loss" in done.stdout or "diverged" in done.stdout or "learning-rate-too-high" in done.stdout
    assert float(re.search(r"learning_rate=([\d.e+-]+)", best)[1]) < 1


@pytest.mark.exhaustive
def test_wandb_offline_under_exec(tmp_path):
    """Not one line of it is ours."""
    pytest.importorskip("wandb")
    pytest.importorskip("sklearn")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    environment |= {"TRACKER_HEALTH_HOOK_SECONDS": "100"}
    command = [sys.executable, "-m", "tracker_health", "exec", "--wait", "100", "--"]
    command += [sys.executable, str(EXAMPLES / "wandb_offline.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=200
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["tracker-health"]  # what the example says itself
    assert done.stderr.count("tracker-health: PASS ") == 1


BARRIERS = {"pass": [], "warn": ["--tau", "5"], "fail": ["--adapter-stays-on"]}


@pytest.mark.parametrize("expected", list(BARRIERS))
@pytest.mark.exhaustive
def test_heal_barrier(tmp_path, expected):
    """A barrier that acts, one that never has to, one that is wired wrongly; from MLflow and from the table alone."""
    pytest.importorskip("mlflow")
    pytest.importorskip("torch")
    environment = os.environ | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    command = [sys.executable, str(EXAMPLES / "heal_barrier.py"), *BARRIERS[expected]]
    trained = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "out.log").write_text(trained.stdout)
    for run in (trained.stderr.split()[-1], str(alone)):
        tool = [sys.executable, "-m", "tracker_health", "check", run, "--json"]
        told = subprocess.run(
            tool, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        report = json.loads(told.stdout)
        assert report["verdict"] == expected
        results = {one["code"]: one for one in report["results"]}
        assert results["REG001"]["verdict"] == expected
        assert results["REG002"]["verdict"] == results["REG003"]["verdict"] == "pass"


def test_the_loop_of_an_agent_closes_with_the_first_change(tmp_path):
    """Five seeded faults, each repaired by what the action names."""
    pytest.importorskip("mcp")
    pytest.importorskip("torch")
    command = [sys.executable, str(EXAMPLES / "agent_loop.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.splitlines()[-1] == "the first change ended in PASS: 5 of 5"
