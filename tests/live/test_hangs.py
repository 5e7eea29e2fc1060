"""A run that stands still by its own rhythm: what is said of it and how often, by whoever looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tracker_health import preset
from tracker_health.config import Config, Notify
from tracker_health.fleet.agents.roots import Roots
from tracker_health.fleet.agents.tools import Tools
from tracker_health.fleet.follow import Follower
from tracker_health.runs import message_queue
from tracker_health.runs.message_queue import MessageQueue

from ..receiver import Receiver  # noqa: TID252

POINTS, EVERY = 60, 30.0


@pytest.fixture(autouse=True)
def _quickly(monkeypatch, tmp_path):
    monkeypatch.setattr("tracker_health.fleet.follow._REST", 0.0)
    monkeypatch.setattr(message_queue, "SEND_SECONDS", 5.0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Silent:
    """A run of MLflow's that logged every 30 s for half an hour, and nothing for some time."""

    def __init__(self, mlflow, uri, *, quiet, vital=None):
        self.uri, self.client = uri, mlflow.MlflowClient(uri)
        experiment = self.client.get_experiment_by_name("live").experiment_id
        self.last = time.time() - quiet
        self.first = self.last - EVERY * (POINTS - 1)
        start = int(1000 * (self.first - 60))
        self.name = self.client.create_run(experiment, run_name="calm-rat", start_time=start).info.run_id
        times = (int(1000 * (self.first + EVERY * step)) for step in range(POINTS))
        points = [mlflow.entities.Metric("loss", 2.0 - at / POINTS, when, at) for at, when in enumerate(times)]
        self.client.log_batch(self.name, points)
        if vital is not None:
            self.log("system/cpu_utilization_percentage", 3.0, 9, self.last + vital)

    def log(self, name, value, step, when):
        self.client.log_metric(self.name, name, value, step=step, timestamp=int(1000 * when))

    def follow(self, wait, config=None, **options):
        follower = Follower(self.name, config or preset("default"), self.uri, every=0.0, **options)
        return list(follower.events(wait))

    @property
    def ours(self):
        return {name for name in self.client.get_run(self.name).data.tags if name.startswith("health")}


def looks(number, **actions):
    """A wait that does something at some looks, and ends after so many."""
    at = iter(range(1, number + 1))

    def wait(_):
        look = next(at)
        actions.get(f"at_{look}", lambda: None)()
        return look == number

    return wait


def test_a_silence_is_said_once_and_so_is_that_it_goes_on(mlflow, uri):
    run = Silent(mlflow, uri, quiet=1260.0, vital=1250.0)
    events = run.follow(looks(6, at_4=lambda: run.log("loss", 0.5, POINTS, time.time())))
    assert [one.kind for one in events] == ["following", "silent", "recovered"]
    said = events[1]
    assert (
        "WARN at step 59: RUN007 stands-still: nothing was logged for 21 min (step 59); usually every 30 s" in said.text
    )
    assert "its system metrics go on" in said.text
    document = said.to_json(time.time())
    assert (document["event"], document["code"], document["step"], document["stops"]) == ("silent", "RUN007", 59, False)
    assert events[2].text.startswith("it goes on, after 21 min")
    assert not run.ours


@pytest.mark.parametrize(
    ("quiet", "config"),
    [
        (600.0, Config()),  # shorter than the floor
        (1260.0, Config(hang_after=float("inf"))),
        (1260.0, Config(ignore=frozenset({"RUN007"}))),
        (1260.0, Config(thresholds={"stands-still": {"floor": 1500.0}})),
    ],
)
def test_what_is_no_hang_or_not_asked_for_is_not_said(mlflow, uri, quiet, config):
    run = Silent(mlflow, uri, quiet=quiet)
    assert [one.kind for one in run.follow(looks(3), config)] == ["following"]


def test_a_silence_is_read_once_where_it_is_normal(mlflow, uri, monkeypatch):
    run = Silent(mlflow, uri, quiet=1260.0)
    for at in range(3):  # evaluations of ten minutes: half an hour is normal
        run.log("val_loss", 1.0, POINTS + at, run.last + 1)
    run.log("loss", 1.0, 0, run.first - 1200.0)
    run.log("loss", 1.0, 0, run.first - 600.0)
    reads = []
    from tracker_health.stores.mlflow.run import MlflowRun

    read = MlflowRun.read
    monkeypatch.setattr(MlflowRun, "read", lambda self, request: reads.append(1) or read(self, request))
    assert [one.kind for one in run.follow(looks(8))] == ["following"]
    assert len(reads) == 2  # by the live rules, and to know its limit


def test_one_message_leaves_for_a_silence_whoever_follows_and_nothing_is_written(mlflow, uri):
    run = Silent(mlflow, uri, quiet=1260.0)
    with closing(Receiver()) as receiver:
        config = replace(Config(), notify=Notify(webhook=receiver.address))
        first = run.follow(looks(3), config)
        again = run.follow(looks(3), config)
        assert [one.kind for one in first] == ["following", "silent", "message"]
        assert [one.kind for one in again] == ["following", "silent"]
        muted = replace(config, notify=replace(config.notify, mute=("experiment:live",)))
        other = Silent(mlflow, uri, quiet=1260.0)
        assert [one.kind for one in other.follow(looks(3), muted)] == ["following", "silent"]
        (sent,) = receiver.accepted
    assert "WARN calm-rat (live): RUN007" in json.dumps(sent)
    assert "nothing was logged for 21 min" in json.dumps(sent).lower()
    assert not run.ours
    assert not MessageQueue()._read().waiting


def test_an_agent_that_watches_is_told_to_look_at_it(mlflow, uri):
    run = Silent(mlflow, uri, quiet=1260.0, vital=1250.0)
    answer = Tools(roots=Roots(tracking_uri=uri), config=Config()).watch_run(run.name)
    assert answer["advice"] == "look at it"
    assert answer["because"].startswith("RUN007 stands-still: nothing was logged for 21 min")


TRAINING = """
import sys, time, mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_system_metrics_sampling_interval(0.2)
with mlflow.start_run(experiment_id=sys.argv[2], log_system_metrics=sys.argv[3] == "waits") as run:
    print(run.info.run_id, flush=True)
    for step in range(40):
        mlflow.log_metric("loss", 2.0 - step / 40, step=step)
        time.sleep(0.05)
    print("trained", flush=True)
    time.sleep(600)  # for a lock that nobody lets go
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "says"), [("waits", "its system metrics go on"), ("stopped", "it hangs, or was lost")])
def test_a_training_that_stands(mlflow, uri, how, says):
    experiment = mlflow.MlflowClient(uri).get_experiment_by_name("live").experiment_id
    training = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TRAINING, uri, experiment, how], stdout=subprocess.PIPE, text=True
    )
    try:
        name = training.stdout.readline().strip()
        assert training.stdout.readline() == "trained\n"
        if how == "stopped":
            os.kill(training.pid, signal.SIGSTOP)
        quick = {"floor": 1.0, "first": 0.0}
        config = Config(thresholds={"stands-still": quick})
        end = time.monotonic() + 60.0
        for event in Follower(name, config, uri, every=0.5).events(lambda _: time.sleep(0.2) or time.monotonic() > end):
            if event.kind == "silent":
                break
        assert event.kind == "silent"
        assert says in event.text
    finally:
        training.kill()
        training.communicate()
