"""Trainings with real trackio: make trackio installs its oldest and its newest version, and names their Pythons."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest
from tests.stores.trackio_databases import age, alerts_in, rows_in

from tracker_health.api import annotate, clear_annotations
from tracker_health.runs.lookup import open_run
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

PYTHONS = os.environ.get("TRACKIO_PYTHONS", "").split()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHONS, reason="needs Pythons with trackio: make trackio"),
    pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.split("/")[-3]),
]

TRAINING = """
import sys, time
import tracker_health
if "hook" in sys.argv:
    tracker_health.autolog()
import trackio
trackio.init(project="real", name=sys.argv[1], config={"lr": 0.1})
health = tracker_health.LiveHealth(plan=200, alert=True, obey="obey" in sys.argv) if "live" in sys.argv else None
for step in range(200):
    loss = 2 - 0.005 * step if step < 40 or sys.argv[1] != "nan" else float("nan")
    trackio.log({"train/loss": loss})
    if health is not None:
        health.log({"train/loss": loss}, step)
        if health.should_stop:
            break
    if sys.argv[1] == "crash" and step == 60:
        raise RuntimeError("boom")
    if "slow" in sys.argv:
        time.sleep(0.02)
if health is not None:
    health.close()
trackio.finish()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKER_HEALTH_HOOK_SECONDS", "60")
    return tmp_path


def train(python, *arguments):
    return subprocess.run(
        [python, "-c", TRAINING, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def recorded(name):
    with closing(open_run(f"trackio:real/{name}")) as run:
        return run.recorded()


@pytest.mark.parametrize(
    ("name", "verdict", "ended"),
    [
        ("fine", Verdict.PASS, Ended.FINISHED),
        ("nan", Verdict.FAIL, Ended.FINISHED),
        ("crash", Verdict.FAIL, Ended.FAILED),
    ],
)
def test_a_run_is_judged_at_its_finish(folder, python, name, verdict, ended):
    done = train(python, name, "hook")
    assert f"{verdict.upper()} {name}" in done.stderr
    end = time.monotonic() + 60
    while time.monotonic() < end and not any(folder.glob("tracker-health/real/*/report.json")):
        time.sleep(0.2)
    found = recorded(name)
    assert (found.verdict, found.ended) == (verdict, ended)
    assert len(alerts_in(folder / "real.db")) == (verdict is Verdict.FAIL)


def test_what_goes_wrong_is_alerted_on_while_it_is_running_and_replaced_by_the_verdict(folder, python):
    done = train(python, "nan", "live")
    assert "tracker-health: FAIL while it is running" in done.stdout
    path = folder / "real.db"
    (live,) = alerts_in(path)
    assert live[0] == "tracker-health: FAIL while it is running"
    rows = rows_in(path, "metrics")
    age(path, 3600)
    assert annotate("trackio:real/nan").report.ended == Ended.PRUNED
    ((title, _, level, step),) = alerts_in(path)
    assert (title, level, step) == ("tracker-health: FAIL non-finite-loss (certain)", "error", 40)
    clear_annotations("trackio:real/nan")
    assert alerts_in(path) == []
    assert [row[-1] for row in rows_in(path, "metrics")] == [row[-1] for row in rows]
    assert not (folder / "tracker-health").exists()


def test_a_training_that_obeys_stops_when_its_run_asks(folder, python, monkeypatch):
    script = TRAINING.replace(
        "import tracker_health\n", "import tracker_health, tracker_health.live.tracked as t\nt.ASK_SECONDS = 0.2\n"
    )
    script = script.replace("range(200)", "range(100_000)")
    with subprocess.Popen([python, "-c", script, "long", "live", "obey", "slow"]) as process:
        try:
            for _ in range(200):
                time.sleep(0.1)
                if rows_so_far(folder / "real.db") > 30:
                    break
            time.sleep(1.0)
            with closing(open_run("trackio:real/long")) as run:
                run.ask_to_stop("true")
            assert process.wait(timeout=60) == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def rows_so_far(path):
    """How many rows a database has that is only being made."""
    try:
        return len(rows_in(path, "metrics")) if path.exists() else 0
    except sqlite3.OperationalError:
        return 0


def test_trackio_reads_what_was_written_and_goes_on(folder, python):
    train(python, "nan")
    age(folder / "real.db", 3600)
    annotate("trackio:real/nan")
    script = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as S\n"
        "print(json.dumps(S.get_alerts('real')))\n"
        "print(json.dumps(S.get_projects()))"
    )
    found = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout
    alerts, projects = map(json.loads, found.splitlines()[-2:])
    assert [(one["run"], one["level"], one["step"]) for one in alerts] == [("nan", "error", 40)]
    assert projects == ["real"], "our table is no project"
    assert train(python, "fine").returncode == 0
    assert recorded("nan").verdict is Verdict.FAIL


def test_annotating_next_to_a_training_takes_nothing_from_it(folder, python):
    train(python, "nan")
    path = folder / "real.db"
    age(path, 3600)
    with subprocess.Popen([python, "-c", TRAINING, "fine", "slow"], stderr=subprocess.PIPE) as process:
        rounds = 0
        while process.poll() is None:
            annotate("trackio:real/nan", force=True)
            clear_annotations("trackio:real/nan")
            rounds += 1
        said = process.stderr.read().decode()
    assert rounds > 2
    assert "could not" not in said
    assert "failed" not in said
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM metrics WHERE run_name = 'fine'").fetchone() == (200,)
