"""A run that stands still by its own rhythm: what is said of it and how often, by whoever looks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tracker_health import LiveHealth, check, preset
from tracker_health.cli import cli
from tracker_health.config import Config, Notify
from tracker_health.evidence import rhythm_of
from tracker_health.fleet.agents.roots import Roots
from tracker_health.fleet.agents.tools import Tools
from tracker_health.fleet.follow import Follower
from tracker_health.fleet.sweep import Sweep
from tracker_health.live.silence import Arrivals, SilenceTimer
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

    def __init__(self, mlflow, uri, *, quiet, vital=None, experiment="live"):
        self.uri, self.client = uri, mlflow.MlflowClient(uri)
        experiment = self.client.get_experiment_by_name(experiment).experiment_id
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
    assert events[2].text.startswith("it continues, after 21 min")
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


# Sweeps


@pytest.fixture
def alone(mlflow, uri, request):
    """An experiment of the test's own."""
    mlflow.MlflowClient(uri).create_experiment(request.node.name)
    return request.node.name


def test_a_sweep_lists_hung_runs_sends_one_message_each_and_writes_nothing(mlflow, uri, alone, monkeypatch):
    from tracker_health.stores.mlflow.run import MlflowRun

    reads, read = [], MlflowRun.read
    monkeypatch.setattr(MlflowRun, "read", lambda self, request: reads.append(self.ref.id) or read(self, request))
    with closing(Receiver()) as receiver:
        monkeypatch.setenv("HANGS_WEBHOOK", receiver.address)
        arguments = ["sweep", "--tracking-uri", uri, "--experiment", alone, "--set", "notify.webhook_env=HANGS_WEBHOOK"]
        goes_on = Silent(mlflow, uri, quiet=100.0, experiment=alone)
        first = CliRunner().invoke(cli, arguments)  # what is wrong there by now is no news
        hung = Silent(mlflow, uri, quiet=1260.0, vital=1250.0, experiment=alone)
        second = CliRunner().invoke(cli, arguments)
        third = CliRunner().invoke(cli, [*arguments, "--json"])
        assert receiver.asked == 1
    assert "HANGS" not in first.output
    assert "HANGS  calm-rat  RUN007 stands-still: nothing was logged for 21 min (step 59)" in second.output
    assert second.output.strip().endswith("0 failed; 1 running run stands still")
    assert second.exit_code == 0
    (document,) = [json.loads(line) for line in third.stdout.splitlines()]
    assert (document["schema"], document["run"]["id"], document["kind"]) == (
        "tracker-health/silence/1",
        hung.name,
        "standing",
    )
    assert not hung.ours
    assert set(reads) == {hung.name}
    assert not goes_on.ours


def test_passes_of_one_sweep_read_a_hung_run_once_and_see_that_it_goes_on(mlflow, uri, alone, monkeypatch):
    from tracker_health.stores.mlflow.run import MlflowRun

    reads, read = [], MlflowRun.read
    monkeypatch.setattr(MlflowRun, "read", lambda self, request: reads.append(1) or read(self, request))
    run, swept = (
        Silent(mlflow, uri, quiet=1260.0, experiment=alone),
        Sweep(config=Config(), tracking_uri=uri, experiments=(alone,)),
    )

    def pass_over():
        assert list(swept.annotate(swept.candidates())) == []
        return [one.is_new for one in swept.hung()]

    assert [pass_over() for _ in range(3)] == [[True], [False], [False]]
    assert len(reads) == 1
    run.log("loss", 0.5, POINTS, time.time())
    assert pass_over() == []
    off = Sweep(config=Config(hang_after=float("inf")), tracking_uri=uri, experiments=(alone,))
    Silent(mlflow, uri, quiet=1260.0, experiment=alone)
    assert list(off.candidates()) == []
    assert list(off.hung()) == []


# Within a training


def quick(**more):
    return Config(thresholds={"stands-still": {"floor": 0.4, "first": 0.0, **more}})


def logged(health, number=200, pause=0.004):
    for step in range(number):
        health.step(step=step, loss=2.0 - step / number)
        time.sleep(pause)


def test_a_training_that_logs_no_more_is_said_to_from_a_thread_and_stops_for_nothing():
    said, heard = [], threading.Event()

    def hear(one):  # a machine that is busy may pause a training, too
        said.append(one)
        if one.step == 199:
            heard.set()

    with LiveHealth(config=quick(), on_finding=hear) as health:
        logged(health)
        assert heard.wait(30.0)
        assert not health.should_stop
        assert health.stopped_by is None
        health.step(step=200, loss=0.9)  # it goes on: the same silence is over
    (finding,) = [one for one in said if one.step == 199]
    assert (finding.code, finding.verdict, finding.step, finding.stops) == ("RUN007", "warn", 199, False)
    assert "its process is alive" in finding.message
    assert finding in health.findings


@pytest.mark.parametrize("options", [{"hang": False}, {"config": Config(hang_after=float("inf"))}])
def test_where_nobody_asks_for_hangs_there_is_no_thread(options):
    before = threading.active_count()
    with LiveHealth(**options) as health:
        logged(health, 20, 0.0)
        assert threading.active_count() == before


def test_the_thread_ends_with_its_training_and_with_whoever_is_told():
    def others():
        return [one for one in threading.enumerate() if one.name == "tracker-health" and one not in before]

    before = threading.enumerate()
    health = LiveHealth(config=quick())
    logged(health, 2)
    (thread,) = others()
    assert thread.daemon
    health.close()
    thread.join(30.0)
    assert not thread.is_alive()
    health = LiveHealth(config=quick())
    logged(health, 2)
    (thread,) = others()
    del health
    thread.join(30.0)
    assert not thread.is_alive()


def test_a_process_that_was_not_run_at_all_was_not_silent():
    timer = SilenceTimer(quick(), {}, Heard().hear)
    for at in range(200):
        timer._arrivals.add(100.0 + at)
    assert timer.look(299.5, 0.0) is None
    assert timer.look(900.0, 600.0) is None  # a laptop that slept
    assert timer.look(900.0, 0.0) is None
    assert timer.look(920.0, 0.0).message.startswith("nothing was logged for 21 s")
    assert timer.look(930.0, 0.0) is None


class Heard:
    def hear(self, finding):
        """Nothing to do with it."""


def test_a_long_training_keeps_few_gaps_and_the_longest():
    arrivals, now = Arrivals(), 0.0
    for step in range(50_000):
        now += 60.0 if step % 5_000 == 4_999 else 1.0
        arrivals.add(now)
    rhythm = rhythm_of([arrivals.series(49_999)])
    assert len(rhythm.times) < 5_000
    assert (rhythm.usual, rhythm.recurring, rhythm.longest) == pytest.approx((1.0, 60.0, 60.0), abs=1e-3)


def test_a_mark_is_set_once_where_it_is_asked_for(mlflow, uri):
    run, heard = mlflow.start_run(), threading.Event()
    try:
        with LiveHealth(config=quick(), alert=True, on_finding=lambda _: heard.set()) as health:
            logged(health, 100)
            assert heard.wait(30.0)
        assert mlflow.MlflowClient(uri).get_run(run.info.run_id).data.tags["health.live"] == "warn"
    finally:
        mlflow.end_run()


WANDB_TRAINING = """
import sys, time, wandb
settings = wandb.Settings(x_stats_sampling_interval=0.5, silent=True)
with wandb.init(mode="offline", project="p", dir=sys.argv[1], settings=settings) as run:
    for step in range(40):
        run.log({"loss": 2.0 - step / 40})
        time.sleep(0.05)
    print("trained", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("waits", "kind"), [(600.0, "standing"), (30.0, "stood")])
def test_an_offline_run_of_wandb_that_stands_while_its_machine_is_measured(tmp_path, waits, kind):
    pytest.importorskip("wandb")
    training = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WANDB_TRAINING, tmp_path, str(waits)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert training.stdout.readline() == "trained\n"
        config = Config(preview_votes=True, thresholds={"stands-still": {"floor": 1.0, "first": 0.0}})
        (folder,) = (tmp_path / "wandb").glob("offline-run-*")
        if kind == "stood":
            training.wait(120.0)
        end = time.monotonic() + 200.0  # the log is written whenever 32 KiB have come together
        while time.monotonic() < end:
            found = [one for one in check(folder, config=config).findings if one.code == "RUN007"]
            if found:
                break
            time.sleep(1.0)
        (result,) = found
        assert (result.kind, result.verdict, result.steps) == (kind, "warn", (39,))
        assert "its system metrics go on" in result.message
    finally:
        training.kill()
        training.communicate()
