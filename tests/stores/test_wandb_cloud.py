"""What only W&B's cloud, or another real server, can say: does it change a run as the tests' own server does?

With ``TRACKER_HEALTH_WANDB_CLOUD=ENTITY/PROJECT`` and ``WANDB_API_KEY`` in the environment a run is logged there, and
deleted in the end.
"""

import json
import os
import subprocess
import sys
import time
import uuid

import pytest

import tracker_health as th

PROJECT = os.environ.get("TRACKER_HEALTH_WANDB_CLOUD", "")
pytestmark = pytest.mark.skipif(
    not (PROJECT and os.environ.get("WANDB_API_KEY")),
    reason="no TRACKER_HEALTH_WANDB_CLOUD=ENTITY/PROJECT and WANDB_API_KEY: there is no real W&B server to ask",
)

TRAINING = """
import sys, wandb
entity, project, name = sys.argv[1:]
run = wandb.init(entity=entity, project=project, id=name, config={"lr": 0.1}, tags=["mine"], notes="My own words.")
for step in range(1500):
    run.log({"train/loss": 2.0 - 0.001 * step if step < 1400 else float("nan"), "gpu": step})
run.finish()
"""
ATTRIBUTES = ("state", "config", "notes", "name", "display_name", "group", "job_type")


@pytest.fixture
def name(tmp_path):
    wandb = pytest.importorskip("wandb")
    run = f"health{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-c", TRAINING, *PROJECT.split("/"), run]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    yield f"{PROJECT}/{run}"
    wandb.Api().run(f"{PROJECT}/{run}").delete()


def looked_at(name):
    import wandb

    run = wandb.Api().run(name)
    kept = {attribute: getattr(run, attribute, None) for attribute in ATTRIBUTES}
    theirs = {key: value for key, value in run.summary_metrics.items() if not key.startswith("health/")}
    return {**kept, "summary": theirs, "rows": len(list(run.scan_history()))}, run


def test_a_run_of_a_real_server_bears_the_verdict_and_is_otherwise_as_it_was(name):
    before, run = looked_at(name)
    assert before["rows"] == 1500
    outcome = th.annotate(f"wandb:{name}")
    assert (outcome.status, outcome.report.verdict, outcome.omitted) == ("written", "fail", ())
    after, run = looked_at(name)
    assert after == before
    assert sorted(run.tags) == ["health:fail", "mine"]
    assert run.summary_metrics["health/codes"] == "LOS001"
    assert th.annotate(f"wandb:{name}").status == "unchanged"
    found = json.dumps({"summary_metrics.health/verdict": "fail", "name": name.rpartition("/")[2]})
    assert [str(one) for one in th.api.runs_of_project(PROJECT, where=found)] == [f"wandb:{name}"]
    time.sleep(10)  # until the files are listed
    files = {file.name for file in run.files()}
    assert {"health/report.json", "media/html/health/report.html", "media/images/health/loss.png"} <= files
    th.clear_annotations(f"wandb:{name}")
    after, run = looked_at(name)
    assert after == before
    assert run.tags == ["mine"]
