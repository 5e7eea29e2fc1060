"""A history of which W&B's server has not got the end yet, as in the first minute after a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import tracker_health as th
from tracker_health.stores.wandb import online

from ..wandb_server import Fault  # noqa: TID252  tests are no package of a name

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """Seconds that were waited for."""
    waited = []
    monkeypatch.setattr(online, "time", SimpleNamespace(time=time.time, sleep=waited.append))
    return waited


@pytest.fixture
def run(wandb_server):
    """A run that was healthy for a third of its time, of which the server has no more yet."""
    run = wandb_server.store.new_run("team", "proj", "abc")
    losses = [1.0 + 0.98**step for step in range(300)] + ["NaN"] * 600
    run.history = [json.dumps({"_step": n, "_timestamp": 1.0 * n, "loss": loss}) for n, loss in enumerate(losses)]
    run.state, run.summary, run.late = "finished", {"loss": "NaN", "_step": 899}, 600
    return run


def test_a_run_whose_end_has_not_come_does_not_pass(run, waits):
    report = th.check("wandb:team/proj/abc")
    assert (report.verdict, waits) == ("error", [1, 2, 4, 8])
    (error,) = report.errors
    assert error.message == (
        "the server has up to step 299 of 899: the rest is on its way; judge the run again in a minute"
    )


def test_what_is_bad_already_is_told(run):
    run.late = 500
    assert th.check("wandb:team/proj/abc").verdict == "fail"


def test_it_is_waited_for(wandb_server, run, waits):
    asked = []

    def arrive(_):
        asked.append(1)
        run.late = 0 if len(asked) > 2 else 600

    with wandb_server.failing(Fault(lambda request: request.operation == "Run", action=arrive)):
        assert th.check("wandb:team/proj/abc").verdict == "fail"
    assert waits == [1, 2]


def test_a_verdict_on_a_part_is_given_again(run):
    assert th.annotate("wandb:team/proj/abc").report.verdict == "error"
    run.late = 0
    assert th.annotate("wandb:team/proj/abc").report.verdict == "fail"
    assert th.annotate("wandb:team/proj/abc").status == "unchanged"


def test_a_run_that_goes_on_is_judged_at_once(run, waits):
    run.state = "running"
    found = th.check("wandb:team/proj/abc")
    assert (found.verdict, found.is_healthy_so_far, waits) == ("skip", True, [])


def test_what_has_not_come_for_long_does_not_come(run, waits):
    run.heartbeat = datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()
    report = th.check("wandb:team/proj/abc")
    assert (report.verdict, waits) == ("pass", [])
    assert "the server has its history up to step 299, and the summary is of step 899" in report.notes


TRAINING = """
import tracker_health, wandb
tracker_health.autolog()
run = wandb.init(project="proj", id="hooked")
for step in range(900):
    run.log({"loss": 1.0 + 0.98**step if step < 300 else float("nan")})
run.finish()
"""


@pytest.mark.exhaustive
def test_the_hook_knows_the_end_by_the_log_on_this_machine(wandb_server, tmp_path):
    """Here the summary on the server is as late as the history."""
    wandb_server.store.late = 600
    given = []

    def arrive_late():
        while not given:
            run = wandb_server.store.run("team", "proj", "hooked")
            if run is not None and run.state == "finished":
                threading.Event().wait(3)
                wandb_server.store.late = run.late = 0
                given.append(run)
            threading.Event().wait(0.1)

    threading.Thread(target=arrive_late, daemon=True).start()
    environment = {**os.environ, **wandb_server.environment(tmp_path), "WANDB_SILENT": "true"}
    environment |= {"TRACKER_HEALTH_HOOK_SECONDS": "60"}
    done = subprocess.run(
        [sys.executable, "-c", TRAINING], env=environment, check=True, timeout=120, capture_output=True, text=True
    )
    assert "FAIL hooked" in done.stderr, done.stderr
