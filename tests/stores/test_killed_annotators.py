"""Annotators that are killed in earnest, wherever they are at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tracker_health.judge.annotations import PENDING
from tracker_health.testing.stores.contract import FAIL, LOSS, PASS, View, write

from .test_contract import DirectoryHarness, MlflowHarness

ANNOTATOR = """
import sys
from contextlib import closing
from tracker_health.runs.lookup import open_run
from tracker_health.testing.stores.contract import FAIL, PASS

print("ready", flush=True)
while True:
    for annotations in (FAIL, PASS):
        with closing(open_run(sys.argv[1], tracking_uri=sys.argv[2])) as run:
            run.write(annotations)
    print("twice", flush=True)
"""


def kill_in_the_midst(run, uri, delay):
    """Annotate without end in another process, and kill it after that many seconds of work."""
    command = [sys.executable, "-c", ANNOTATOR, run, uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            assert process.stdout.readline() == b"twice\n"
            time.sleep(delay)
        finally:
            process.send_signal(signal.SIGKILL)


def check_and_repair(harness, run, wholes):
    with closing(harness.open(run)) as opened:
        digest = opened.recorded().digest
    if digest != PENDING:
        assert harness.view(run, ours=True) == wholes[digest]
    write(harness, run, PASS)
    assert harness.view(run, ours=True) == wholes[PASS.digest]
    with closing(harness.open(run)) as opened:
        opened.clear()
    assert harness.view(run, ours=True) == View()
    assert harness.view(run, ours=False).note == "mine"


def new_run(harness):
    return harness.new_run(metrics={"loss": LOSS}, files={}, note="mine")


def wholes_of(harness):
    wholes = {}
    for one in (FAIL, PASS):
        run = new_run(harness)
        write(harness, run, one)
        wholes[one.digest] = harness.view(run, ours=True)
    return wholes


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.001, 0.0023, 0.0037, 0.0051])
@pytest.mark.thinned(4)
def test_a_folder(tmp_path, delay):
    harness = DirectoryHarness(tmp_path)
    run = new_run(harness)
    kill_in_the_midst(run, "", delay)
    check_and_repair(harness, run, wholes_of(harness))


def test_half_a_file_in_a_folder_is_taken_away(tmp_path):
    harness = DirectoryHarness(tmp_path)
    run = new_run(harness)
    half = Path(run, "health", ".tracker-health-0123456789abcdef.tmp")
    half.parent.mkdir()
    half.write_text("half")
    write(harness, run, FAIL)
    assert harness.view(run, ours=True) == wholes_of(harness)[FAIL.digest]
    half.write_text("half")
    with closing(harness.open(run)) as opened:
        opened.clear()
    assert not half.parent.exists()


@pytest.mark.exhaustive
def test_a_database(sqlite_uri):
    pytest.importorskip("mlflow")
    harness = MlflowHarness(sqlite_uri)
    wholes = wholes_of(harness)
    run = new_run(harness)
    for delay in (0.03, 0.11):
        kill_in_the_midst(f"mlflow:{run}", sqlite_uri, delay)
        with closing(harness.open(run)) as opened:
            digest = opened.recorded().digest
        if digest != PENDING:
            assert harness.view(run, ours=True) == wholes[digest]
    check_and_repair(harness, run, wholes)
