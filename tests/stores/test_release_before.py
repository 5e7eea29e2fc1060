"""What the release before wrote, by its own wheel in a process of its own: it is read, kept, answered to and cleared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health import annotate, check
from tracker_health.cli import cli

from . import wandb_runs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
RELEASE = "8353d486264910a1c2d8c443315fec652a6d0798"
"""The commit of version 0.1.0."""


@pytest.fixture(scope="module")
def old_release(tmp_path_factory):
    """Runs a command of the wheel of version 0.1.0."""
    folder = tmp_path_factory.mktemp("release")
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shallow.stdout.strip() != "false":
        pytest.skip("version 0.1.0 is built from the history of the repository, which is not here as a whole")
    source = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True, check=True)
    (folder / "source").mkdir()
    subprocess.run(["tar", "-x", "-C", folder / "source"], input=source.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, folder / "source"], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert "0.1.0" in wheel.name
    place = folder / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", place, wheel], check=True, capture_output=True)

    def run(*arguments, cwd=folder):
        command = [sys.executable, "-m", "tracker_health", *map(str, arguments)]
        environment = wandb_runs.environment(PYTHONPATH=str(place), HOME=str(folder))
        done = subprocess.run(
            command, check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    assert "0.1.0" in run("--version")
    return run


def losses(faulty):
    return [2.3 * 0.95**step + (3.0**step if faulty and step > 40 else 0.05) for step in range(60)]


def folder_run(folder, faulty):
    rows = [json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(losses(faulty), 1)]
    folder.mkdir()
    (folder / "log.jsonl").write_text("\n".join(rows) + "\n")
    return str(folder), [], lambda: {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mlflow_run(folder, faulty):
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    folder.mkdir()
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri)
    place = client.create_experiment("mine", artifact_location=(folder / "artifacts").as_uri())
    run = client.create_run(place, tags={"mine": "kept"}).info.run_id
    client.log_batch(run, metrics=[Metric("loss", loss, 1_000 * at, at) for at, loss in enumerate(losses(faulty), 1)])
    client.set_terminated(run)

    def state():
        data = client.get_run(run).data
        ours = ("health.", "mlflow.note")
        return {name: text for name, text in data.tags.items() if not name.startswith(ours)}, dict(data.params)

    def seen():
        tags = client.get_run(run).data.tags
        return state(), sorted(name for name in tags if name.startswith("health."))

    return run, ["--tracking-uri", uri], seen


def wandb_run(folder, faulty):
    script = f"import wandb\nrun = wandb.init(project='p', tags=['mine'])\nfor x in {losses(faulty)}:\n run.log({{'loss': x}})\nrun.finish()"
    run = wandb_runs.run_script(script, folder)
    return str(run), [], lambda: {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.parametrize("faulty", [False, True], ids=["healthy", "diverged"])
@pytest.mark.parametrize("make", [folder_run, mlflow_run, wandb_run])
@pytest.mark.thinned(2)
def test_what_the_release_before_wrote(old_release, make, faulty, tmp_path):
    run, options, seen = make(tmp_path / "run", faulty)
    before = seen()
    old_release("annotate", run, *options)
    written = seen()
    assert written != before, "the old release wrote something"
    uri = {"tracking_uri": options[1]} if options else {}
    verdict = str(check(run, **uri).verdict)
    assert verdict == ("fail" if faulty else "pass")

    kept = annotate(run, **uri)
    ended = make is not folder_run  # of which nothing says whether it has ended: the rules of today judge it again
    assert (kept.status, str(kept.report.verdict)) == ("unchanged" if ended else "written", verdict)
    is_marked_open = faulty and make is wandb_run  # of findings that nobody has answered yet: the old one had no mark
    assert seen() == written or not ended or is_marked_open

    if faulty:
        old_release("ack", run, "--because", "known", "--who", "ann", *options)
        assert annotate(run, **uri).status == "unchanged"
        assert "ann" in printed("check", run, *options), "the old answer counts"
        printed("ack", run, "--because", "seen again", "--who", "ben", *options)
        assert "ben" in printed("check", run, *options)
    printed("clear", run, "--acks", *options)
    assert seen() == before, "nothing of the old release is left, and nothing of the user's is gone"


def printed(*arguments):
    done = CliRunner().invoke(cli, [*map(str, arguments)])
    assert done.exit_code in (0, 1), done.output
    return done.output
