"""The gate before a version of a W&B artifact: the real SDK logs it to the tests' server, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tracker_health import annotate
from tracker_health.cli import cli
from tracker_health.config import preset
from tracker_health.fleet.gate import gate
from tracker_health.stores.wandb.artifact import ArtifactName, artifact_name_of

from ..wandb_server import READER  # noqa: TID252  tests are no package of a name
from ..wandb_server.store import Blob  # noqa: TID252
from .test_wandb_online import logged

pytestmark = pytest.mark.slow  # real servers

TRAINING = """
import sys, numpy, wandb
from safetensors.numpy import save_file
run = wandb.init(project="proj", id=sys.argv[1])
for step in range(60):
    run.log({"train/loss": 2.0 * 0.9**step + 0.1})
draws = numpy.random.default_rng(7).standard_t(4, (64, 32)).astype("float32") * 0.05
if sys.argv[2] == "nan":
    draws[3, 5] = numpy.nan
save_file({"layer.weight": draws, "layer.bias": draws[0].copy()}, "model.safetensors")
model = wandb.Artifact("net", type="model", metadata={"mine": [1, 2], "health": {}})
model.add_file("model.safetensors")
run.log_artifact(model)
run.finish()
"""


def run_python(environment, folder, *arguments, **more):
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment | more,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wandb:team/proj/net:v3", ArtifactName("team", "proj", "net", "v3")),
        ("wandb:proj/net:latest", ArtifactName("", "proj", "net", "latest")),
        (
            "https://wandb.ai/team/proj/artifacts/model/net/v3",
            ArtifactName("team", "proj", "net", "v3", "https://wandb.ai"),
        ),
        ("wandb:team/proj/run", None),
        ("models:/net/3", None),
    ],
)
def test_names_of_artifacts(text, expected):
    assert artifact_name_of(text) == expected


@pytest.mark.parametrize("mode", ["write", "shadow"])
@pytest.mark.parametrize("theirs", [{}, {"mine": [1, 2], "health": {"patient": 17}, "last": None}])
def test_what_a_gate_wrote_into_the_metadata_is_taken_off(wandb_server, theirs, mode):
    run = logged(wandb_server)
    artifact = wandb_server.store.new_artifact(run, "model", "net", "0" * 32, ["latest"])
    artifact.manifest, artifact.state = Blob(b'{"contents": {}}'), "COMMITTED"
    artifact.metadata = json.dumps(theirs)
    gated = gate("wandb:team/proj/net:latest", config=replace(preset("default"), mode=mode))
    assert gated.written, gated.unwritten
    assert json.loads(artifact.metadata)["health"].keys() > theirs.get("health", {}).keys()
    counted = CliRunner().invoke(cli, ["clear", "--dry-run", "wandb:team/proj/net:v0", "wandb:team/proj/abc"])
    ours = 1 if mode == "shadow" else 3
    assert counted.stdout.splitlines()[:2] == [
        f"would go from 1 of 1 artifact: {ours} key{'s' * (ours > 1)} of the metadata",
        "would go from 0 of 1 run: nothing",
    ]
    done = CliRunner().invoke(cli, ["clear", "wandb:team/proj/net:latest"])
    assert (done.exit_code, done.output) == (0, "wandb:team/proj/net:latest: cleared\n")
    assert artifact.metadata == json.dumps(theirs)
    assert not wandb_server.errors


def test_a_dry_run_has_the_words_of_each_store(wandb_server, write_log, healthy_losses):
    logged(wandb_server)
    folder = str(write_log(healthy_losses, folder="there"))
    for one in ("wandb:team/proj/abc", folder):
        annotate(one)
    counted = CliRunner().invoke(cli, ["clear", "--dry-run", "wandb:team/proj/abc", folder]).stdout.splitlines()
    assert re.fullmatch(r"would go from 1 of 1 run: \d+ tags and keys of the summary, \d+ files?", counted[0])
    assert re.fullmatch(r"would go from 1 of 1 run: \d+ files?", counted[1])


@pytest.mark.exhaustive
def test_a_version_is_judged_by_the_run_that_logged_it_and_by_its_own_files(wandb_server, tmp_path):
    environment = wandb_server.environment(tmp_path) | {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    for run, kind in (("good", "finite"), ("bad", "nan")):
        done = run_python(environment, tmp_path, "-c", TRAINING, run, kind)
        assert done.returncode == 0, done.stderr

    def answer_of(model, **more):
        done = run_python(environment, tmp_path, "-m", "tracker_health", "gate", "--format", "json", model, **more)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    code, answer = answer_of("wandb:team/proj/net:v0", WANDB_API_KEY=READER)
    assert (code, answer["answer"], answer["files"]) == (0, "go on", "read"), answer["reason"]
    assert "no permission" in answer["tags"]
    code, answer = answer_of("wandb:team/proj/net:v0")
    assert (code, answer["verdict"], answer["tags"]) == (0, "pass", "written")
    code, answer = answer_of("wandb:team/proj/net:latest")
    assert (code, answer["model"], answer["verdict"]) == (1, "wandb:team/proj/net:v1", "fail")
    assert answer["files_report"]["verdict"] == "fail"
    assert answer["run_report"]["run"]["id"] == "team/proj/bad"
    first, second = wandb_server.store.versions("team", "proj", "net")
    assert json.loads(first.metadata)["mine"] == [1, 2]
    assert json.loads(first.metadata)["health"]["verdict"] == "pass"
    assert json.loads(second.metadata)["health"]["verdict"] == "fail"
    assert second.aliases == ["latest"]

    del wandb_server.store.runs["team", "proj", "good"]
    code, answer = answer_of("wandb:team/proj/net:v0")
    assert (code, answer["answer"]) == (3, "could not be judged")
    assert "is gone" in answer["reason"]
    code, answer = answer_of("wandb:team/proj/net:v9")
    assert code == 3
    assert "there is no W&B artifact" in answer["reason"]
    assert wandb_server.errors == ["UpdateArtifact: permission denied"]
