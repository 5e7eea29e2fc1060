"""The W&B server of the tests: the real SDK logs a run to it, and reads back what it logged."""

import json
import os
import subprocess
import sys

import pytest

from ..wandb_server import READER, WandbServer  # noqa: TID252  tests are no package of a name

pytest.importorskip("wandb")

TRAINING = """
import os, wandb
run = wandb.init(project="proj", id="abc", config={"lr": 0.1}, tags=["mine"], notes="My own words.")
for step in range(1200):
    run.log({"loss": 2.0 - 0.001 * step, "gpu": step})
run.log({"loss": float("nan")})
run.log({"rare": float("inf")})
os.makedirs("kept", exist_ok=True)
for name in ("optimizer.pt", "kept/readme.txt"):
    with open(name, "w") as file:
        file.write("mine")
artifact = wandb.Artifact("checkpoint", type="model")
artifact.add_file("optimizer.pt", "checkpoint-5/optimizer.pt")
run.log_artifact(artifact)
run.save("kept/readme.txt")
run.finish()
"""

READING = """
import json, wandb
run = wandb.Api().run("team/proj/abc")
(artifact,) = run.logged_artifacts()
print(json.dumps({
    "state": run.state, "config": run.config, "tags": run.tags, "notes": run.notes, "name": run.name,
    "summary": run.summary_metrics, "rows": list(run.scan_history()), "losses": list(run.scan_history(keys=["loss"])),
    "files": {file.name: file.size for file in run.files()},
    "artifact": [artifact.name, artifact.type, list(artifact.manifest.entries)],
}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wandb")
    with WandbServer() as server:
        run_with(server, folder, TRAINING)
        yield server, folder


def run_with(server, folder, code, **environment):
    command = [sys.executable, "-c", code]
    environment = os.environ | server.environment(folder) | environment
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_sdk_logs_it_reads_back(server):
    server, folder = server
    read = json.loads(run_with(server, folder, READING))
    assert (read["state"], read["config"], read["tags"], read["notes"]) == (
        "finished",
        {"lr": 0.1},
        ["mine"],
        "My own words.",
    )
    assert len(read["rows"]) == 1202
    assert [row["loss"] for row in read["losses"]] == [2.0 - 0.001 * step for step in range(1200)] + ["NaN"]
    assert read["rows"][-1]["rare"] == "Infinity"
    assert read["summary"]["gpu"] == 1199
    assert read["files"]["kept/readme.txt"] == 4
    assert read["artifact"] == ["checkpoint:v0", "model", ["checkpoint-5/optimizer.pt"]]
    assert not server.errors


@pytest.mark.slow
def test_reading_sends_nothing_that_changes_anything(server):
    server, folder = server
    before = len(server.written())
    run_with(server, folder, READING, WANDB_API_KEY=READER)
    assert len(server.written()) == before


@pytest.mark.slow
def test_a_summary_that_is_given_takes_the_place_of_the_one_before_and_nothing_else_changes(server):
    server, folder = server
    change = "import wandb; run = wandb.Api().run('team/proj/abc'); run.summary['mine'] = 1; run.summary.update()"
    run_with(server, folder, change)
    ((name, given),) = server.written()[-1].calls
    assert (name, set(given["input"])) == ("upsertBucket", {"id", "summaryMetrics"})
    run = server.run("team/proj/abc")
    assert (run.summary["mine"], run.summary["gpu"]) == (1, 1199)
    assert (run.state, run.tags, run.notes, run.config["lr"]["value"]) == ("finished", ["mine"], "My own words.", 0.1)
