"""Trials of a sweep on this machine whose logs have no end: stopped by it, or lost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracker_health.api import check
from tracker_health.stores.wandb import alive

from . import wandb_logs

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _in_no_container(monkeypatch):
    monkeypatch.setattr(alive, "_sees_every_process", lambda: True)
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "vm")


def write_trial(root, number, *, rate, rows=60, ended=True, sweep="s1"):
    """A trial that learns at this rate, and did so many of its 60 rows."""
    noise = np.random.default_rng(number)
    record = wandb_logs.run_record(f"t{number:02}", sweep_id=sweep)
    losses = 2.3 * np.exp(-rate * np.arange(rows)) + 0.1 + 0.02 * noise.normal(size=rows)
    records = [record, *(wandb_logs.history(step, {"loss": float(loss)}) for step, loss in enumerate(losses))]
    records += [wandb_logs.exit_record()] if ended else []
    folder = root / "wandb" / f"offline-run-20260101_{number:06}-t{number:02}"
    wandb_logs.write_log(folder / f"run-t{number:02}.wandb", records)
    (folder / "files").mkdir()
    return folder


@pytest.fixture
def sweep(tmp_path):
    """Five good trials that ended, and five that learnt slowly and were stopped at two levels."""
    good = [write_trial(tmp_path, at, rate=0.1 + 0.01 * at) for at in range(5)]
    slow = [write_trial(tmp_path, 10 + at, rate=0.03, rows=14 if at < 3 else 30, ended=False) for at in range(5)]
    return good, slow


def test_trials_that_lagged_behind_were_stopped_on_purpose(tmp_path, sweep):
    reports = [check(folder) for folder in sweep[1]]
    assert [str(one.ended) for one in reports] == ["pruned"] * 5
    assert {str(one.verdict) for one in reports} <= {"pass", "skip"}
    assert any("its sweep stopped it" in note for note in reports[0].notes)


def test_a_good_trial_without_an_end_was_lost(tmp_path, sweep):
    lost = write_trial(tmp_path, 20, rate=0.2, rows=30, ended=False)
    assert str(check(lost).ended) == "silent"
    assert str(check(sweep[1][0]).ended) == "pruned"


def test_a_lone_trial_without_an_end_was_lost(tmp_path):
    for at in range(5):
        write_trial(tmp_path, at, rate=0.1)
    lost = write_trial(tmp_path, 10, rate=0.03, rows=14, ended=False)
    assert str(check(lost).ended) == "silent"


def test_runs_of_no_sweep_or_another_one_are_no_trials_of_it(tmp_path, sweep):
    for name in ("", "s2"):
        run = write_trial(tmp_path, 30 + len(name), rate=0.03, rows=14, ended=False, sweep=name)
        assert str(check(run).ended) == "silent"


@pytest.mark.parametrize(
    ("state", "sweep", "ended"),
    [
        ("killed", "s1", "pruned"),
        ("killed", None, "interrupted"),
        ("crashed", "s1", "silent"),
        ("failed", "s1", "failed"),
    ],
)
def test_a_trial_that_was_killed_on_the_server_was_stopped_on_purpose(wandb_server, state, sweep, ended):
    losses = 2.3 * np.exp(-0.05 * np.arange(120)) + 0.1
    rows = [{"loss": float(loss), "_step": step, "_timestamp": 1.7e9 + step} for step, loss in enumerate(losses)]
    run = wandb_server.store.new_run("team", "proj", "t1")
    run.history, run.summary, run.state, run.sweep = list(map(json.dumps, rows)), dict(rows[-1]), state, sweep
    report = check("wandb:team/proj/t1")
    assert str(report.ended) == ended
    assert (str(report.verdict) == "pass") == (ended == "pruned")
