"""``wandb sync`` of an annotated run, to a server of the tests: verdict, files and all of the owner's arrive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tracker_health.api import annotate, clear_annotations
from tracker_health.config import Config
from tracker_health.runs.lookup import open_run
from tracker_health.stores.wandb import alive
from tracker_health.stores.wandb.media import media_of, place_of
from tracker_health.testing.stores.contract import PASS

from ..wandb_server import WandbServer  # noqa: TID252  tests are no package of a name

pytestmark = pytest.mark.slow

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _in_no_container(monkeypatch):
    """The tests may well run in one."""
    monkeypatch.setattr(alive, "_sees_every_process", lambda: True)


def synced(run, folder):
    """The run as it arrives at a server."""
    with WandbServer() as server:
        command = [str(Path(sys.executable).parent / "wandb"), "sync", str(run)]
        environment = {**os.environ, **server.environment(folder)}
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert server.errors == []
        (found,) = server.store.runs.values()
        return found


def plain(run):
    """What is the owner's of a run on a server, without what each sync makes anew."""
    config = {key: value for key, value in run.config.items() if key != "_wandb"}
    summary = {key: value for key, value in run.summary.items() if not key.startswith("health/")}
    rows = [json.loads(row) for row in run.history]
    return run.name, run.display_name, run.notes, run.state, config, summary, rows


@pytest.mark.parametrize("name", ["healthy", "killed"])
@pytest.mark.exhaustive
def test_an_annotated_run_arrives_with_its_verdict_and_as_it_was(offline_runs, tmp_path, name):
    bare = shutil.copytree(offline_runs[name], tmp_path / "bare" / offline_runs[name].name)
    run = shutil.copytree(offline_runs[name], tmp_path / "annotated" / offline_runs[name].name)
    with closing(open_run(run)) as opened:
        opened.write(PASS)  # an earlier verdict leaves nothing behind
    pages = Config(pages="always")
    outcome = annotate(run, config=pages)
    without, arrived = synced(bare, tmp_path / "bare"), synced(run, tmp_path / "annotated")
    assert plain(arrived) == plain(without)
    assert arrived.tags == [*without.tags, f"health:{outcome.report.verdict}"]
    expected = {"health/verdict": str(outcome.report.verdict), "health/digest": outcome.annotations.digest}
    expected |= {f"health/{key}": value for key, value in outcome.annotations.tags.items() if value}
    expected["health/step"] = int(expected["health/step"])  # beside W&B's own _step, a number as well
    expected |= {f"health/{key}": value for key, value in outcome.annotations.metrics.items()}
    expected |= {f"health/{key}": value for key, value in media_of(outcome.annotations.files).items()}
    assert {key: value for key, value in arrived.summary.items() if key.startswith("health/")} == expected
    files = {path: blob.content for path, blob in arrived.files.items() if "health/" in path}
    assert files == {place_of(key): value for key, value in outcome.annotations.files.items()}
    for key, kind in (("health/report", "html-file"), ("health/picture", "image-file")):
        assert arrived.summary[key]["_type"] == kind
        assert arrived.summary[key]["path"] in files
    assert annotate(run, config=pages).status == "unchanged"


def test_a_synced_run_is_left_as_it_is(offline_runs, tmp_path):
    run = shutil.copytree(offline_runs["healthy"], tmp_path / offline_runs["healthy"].name)
    synced(run, tmp_path)
    outcome = annotate(run)
    assert "synced already" in outcome.omitted[0]
    clear_annotations(run)
