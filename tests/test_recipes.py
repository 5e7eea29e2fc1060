"""The recipes of docs/operation.md for schedulers, as far as this goes without them: a script of Slurm's is run by bash, files of
Kubernetes and of Argo are validated by their schemas, and the task of Airflow is loaded and run by the real Airflow.

``make recipes`` installs what validates and Airflow, and names their Pythons.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parent.parent / "docs" / "operation.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
(SLURM,) = (text for language, text in BLOCKS if "#SBATCH" in text)
(AIRFLOW,) = (text for language, text in BLOCKS if "airflow" in text)
MANIFESTS = [one for language, text in BLOCKS if language == "yaml" for one in yaml.safe_load_all(text)]
RECIPES, AIRFLOWS = os.environ.get("RECIPES_PYTHON", ""), os.environ.get("AIRFLOW_PYTHON", "")

TRAIN = """
import json, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit("saved a checkpoint"))
with open("log.jsonl", "w") as log:
    for step in range(200):
        log.write(json.dumps({"step": step, "train_loss": 0.1 + 2.2 * 0.98**step}) + "\\n")
"""


@pytest.mark.slow
def test_a_batch_script_of_slurm_runs_the_training_and_ends_as_it_ends(tmp_path):
    """``srun`` is a stand-in that starts its command, as it does for one task of a job."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, line in (
        ("srun", 'exec "$@"'),
        ("tracker-health", f'exec "{sys.executable}" -m tracker_health "$@"'),
        ("python", f'exec "{sys.executable}" "$@"'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    for training, code in (("train.py", 0), ("raise SystemExit(7)", 7)):
        if code:
            (tmp_path / "train.py").write_text(training)
        (tmp_path / "job.sh").write_text(SLURM)
        done = subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=environment, check=False, capture_output=True)
        assert done.returncode == code, done.stderr


def test_every_manifest_is_of_a_kind_that_is_known():
    assert [one["kind"] for one in MANIFESTS] == ["Job", "CronJob", "Workflow"]


VALIDATE = """
import json, sys
from kubernetes_validate import validate
from hera.workflows.models import Workflow
for manifest in json.load(sys.stdin):
    if manifest["apiVersion"].startswith("argoproj.io/"):
        workflow = Workflow.model_validate(manifest)
        assert json.loads(workflow.json(by_alias=True, exclude_unset=True)) == manifest, "keys that Argo does not know"
        known = {one.name for one in workflow.spec.templates}
        assert workflow.spec.entrypoint in known
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gate"}, "spec": {"containers": [
            {"name": "main", **template["container"]} for template in manifest["spec"]["templates"]]}}
    validate(manifest, sys.argv[1], strict=True)
print("valid")
"""


@pytest.mark.slow
@pytest.mark.skipif(not RECIPES, reason="make recipes has the schemas")
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes_and_of_argo(version):
    command = [RECIPES, "-c", VALIDATE, version]
    done = subprocess.run(command, input=json.dumps(MANIFESTS), text=True, capture_output=True, check=False)
    assert done.stdout == "valid\n", done.stderr


DAG = """
import os, sys
from datetime import datetime
from airflow.sdk import DAG
with DAG("promote", start_date=datetime(2026, 1, 1), schedule=None) as dag:
{task}
from airflow.exceptions import AirflowException, AirflowSkipException
try:
    gate.execute({{}})
    print("ENDED done")
except AirflowSkipException:
    print("ENDED skipped")
except AirflowException:
    print("ENDED failed")
"""


@pytest.mark.slow
@pytest.mark.skipif(not AIRFLOWS, reason="make recipes has Airflow")
@pytest.mark.parametrize(("code", "state"), [(0, "done"), (1, "failed"), (3, "failed"), (4, "skipped")])
def test_the_task_of_airflow_ends_as_the_gate_answers(tmp_path, code, state):
    gate = tmp_path / "tracker-health"
    gate.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/called"\nexit {code}\n')
    gate.chmod(0o755)
    task = "".join(f"    {line}\n" for line in AIRFLOW.splitlines())
    environment = {
        "HOME": str(tmp_path),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    }
    command = [AIRFLOWS, "-c", DAG.format(task=task)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert f"ENDED {state}\n" in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "called").read_text() == "gate --timeout 10m models:/net/3\n"
