"""A stop that stands on the run, and a request that a training obeys only if it asked for that: real stores."""

from __future__ import annotations

import gc
import json
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores import mlflow_tags

from tracker_health import annotate, check, clear_annotations
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, stood
from tracker_health.live import LiveHealth
from tracker_health.live.tracked import LiveRuns, Requests
from tracker_health.monitor.background import Background
from tracker_health.monitor.trackers import ActiveWandbRun
from tracker_health.runs.lookup import open_run
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.stopped import MOST_CHARACTERS, Stop, _check, asks, stop_of

PATIENCE = 60.0


def diverging(n=120, at=50):
    values = 2.0 * np.exp(-3.0 * np.arange(n) / n) + 0.3 + 0.05 * np.random.default_rng(0).normal(size=n)
    values[at:] += np.linspace(0.5, 6.0, n - at)
    return [float(one) for one in values]


def train(log, values, health, *, stops=True):
    """Steps that were done."""
    for step, value in enumerate(values):
        log(step, value)
        health.step(step=step, loss=value)
        if stops and health.should_stop:
            return step
    return len(values)


def tags_of(mlflow, run):
    return mlflow_tags.expanded(mlflow.MlflowClient().get_run(run.info.run_id).data.tags)


def until(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def log_to(mlflow):
    return lambda step, value: mlflow.log_metric("loss", value, step=step)


@pytest.mark.exhaustive
def test_a_stop_stands_on_the_run_which_is_no_failure_of_its_process(mlflow, uri):
    with mlflow.start_run() as run:
        mlflow.log_param("max_steps", 120)
        health = LiveHealth(rest=0, plan=120)
        step = train(log_to(mlflow), diverging(), health)
        health.close()
    assert step < 119
    tags = tags_of(mlflow, run)
    stop = stop_of(tags["health.stopped"])
    assert (stop.step, stop.code, stop.verdict) == (step, "LOS004", "fail")
    assert json.loads(tags["health.stopped"])["said"].startswith(f"stopped at step {step}: ")
    assert "health.live" not in tags

    outcome = annotate(run.info.run_id, tracking_uri=uri)
    tags = tags_of(mlflow, run)
    assert (tags["health.verdict"], tags["health.ended"]) == ("fail", "pruned")
    assert tags["health.ended_by"].startswith(f"tracker-health stopped it at step {step}: ")
    assert "LOS004" in tags["health.codes"]
    assert "RUN" not in tags["health.codes"]
    assert "health.live" not in tags
    assert outcome.report.ended == "pruned"
    assert annotate(run.info.run_id, tracking_uri=uri).status == "unchanged"
    assert clear_annotations(run.info.run_id, tracking_uri=uri).exit
    assert stop_of(tags_of(mlflow, run)["health.stopped"]) == stop


@pytest.mark.exhaustive
def test_a_stop_that_the_training_did_not_obey_says_nothing(mlflow, uri):
    with mlflow.start_run() as run:
        health = LiveHealth(rest=0, plan=120)
        train(log_to(mlflow), diverging(), health, stops=False)
        health.close()
    assert stop_of(tags_of(mlflow, run)["health.stopped"]) is not None
    assert check(run.info.run_id, tracking_uri=uri).ended == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("status", ["FAILED", "KILLED"])
@pytest.mark.one_cell
def test_however_its_tracker_calls_what_came_of_a_stop(mlflow, uri, status):
    with mlflow.start_run() as run:
        health = LiveHealth(rest=0, plan=120)
        train(log_to(mlflow), diverging(), health)
        health.close()
    mlflow.MlflowClient().set_terminated(run.info.run_id, status)
    report = check(run.info.run_id, tracking_uri=uri)
    assert report.ended == "pruned"
    assert not [one for one in report.findings if one.code.startswith("RUN")]


@pytest.mark.exhaustive
def test_in_a_dry_run_nothing_is_written(mlflow, uri):
    with mlflow.start_run() as run:
        health = LiveHealth(rest=0, plan=120, dry_run=True, alert=False)
        assert train(log_to(mlflow), diverging(), health) == 120
        health.close()
    assert health.stopped_by is not None
    assert not [name for name in tags_of(mlflow, run) if name.startswith("health.")]


@pytest.mark.exhaustive
def test_a_finding_marks_the_run_where_that_is_asked_for(mlflow, uri):
    with mlflow.start_run() as run:
        health = LiveHealth(rest=0, plan=120, stop_on=None, alert=True)
        train(log_to(mlflow), diverging(), health)
        health.close()
        assert tags_of(mlflow, run)["health.live"] == "fail"
    assert "health.stopped" not in tags_of(mlflow, run)


@pytest.mark.slow
def test_what_the_owner_has_under_that_name_stays(mlflow, uri):
    with mlflow.start_run(tags={"health.stopped": "mine"}) as run:
        health = LiveHealth(rest=0, plan=120)
        train(log_to(mlflow), diverging(), health)
        health.close()
    assert tags_of(mlflow, run)["health.stopped"] == "mine"
    annotate(run.info.run_id, tracking_uri=uri)
    assert tags_of(mlflow, run)["health.stopped"] == "mine"


def test_without_a_tracker_and_with_one_that_raises_the_training_stops_all_the_same(monkeypatch):
    health = LiveHealth(rest=0, plan=120, runs=[])
    assert train(lambda *_: None, diverging(), health) < 119

    class Broken:
        def mark(self, word):
            raise OSError("gone")

        stopped = mark

    health = LiveHealth(rest=0, plan=120, runs=[Broken()])
    with pytest.warns(RuntimeWarning, match="could not be put onto its run: OSError: gone"):
        assert train(lambda *_: None, diverging(), health) < 119


@pytest.mark.slow
def test_no_thread_stays_behind_a_stop(mlflow, uri):
    before = threading.active_count()
    with mlflow.start_run():
        for _ in range(3):
            train(lambda *_: None, diverging(), LiveHealth(rest=0, plan=120))
    until(lambda: threading.active_count() <= before)


# Requests

HEALTHY = [float(2.0 / (1 + step / 50)) for step in range(100_000)]
ASKED = Stop(step=7, verdict="fail", code="LOS004", cause="learning-rate-too-high", reason="LOS004 rose", when=1.0)


@pytest.fixture
def quick(monkeypatch):
    """Requests are looked for often."""
    monkeypatch.setattr("tracker_health.live.health.Requests", lambda asked: Requests(asked, seconds=0.05))


def asked_after(steps, ask, log):
    """Logs, and asks for a stop at a step."""

    def logs(step, value):
        if step < steps + 2:
            log(step, value)
        if step == steps:
            time.sleep(0.5)  # the first look is over
            ask()
        if step > steps:
            time.sleep(0.02)

    return logs


@pytest.mark.slow
def test_a_training_that_wants_to_obeys_a_request(mlflow, uri, quick):
    said = []
    with mlflow.start_run() as run:
        health = LiveHealth(obey=True, on_finding=said.append)

        def ask():
            open_run(run.info.run_id, tracking_uri=uri).ask_to_stop(ASKED.as_request)

        step = train(asked_after(20, ask, log_to(mlflow)), HEALTHY[:2000], health)
        assert health.should_stop
        health.close()
    assert step < 1999
    assert health.step(loss=1.0) is None or said
    assert (
        str(health.stopped_by) == f"FAIL at step {health.stopped_by.step}: LOS004 asked-to-stop: asked to: LOS004 rose"
    )
    tags = tags_of(mlflow, run)
    assert "health.stop" not in tags
    stop = stop_of(tags["health.stopped"])
    assert (stop.cause, stop.code) == ("learning-rate-too-high", "LOS004")
    assert check(run.info.run_id, tracking_uri=uri).ended == "pruned"


@pytest.mark.slow
def test_a_request_by_hand_is_obeyed_and_stays(mlflow, uri, quick):
    with mlflow.start_run() as run:
        health = LiveHealth(obey=True)
        ask = lambda: mlflow.MlflowClient().set_tag(run.info.run_id, "health.stop", "Yes\n")  # noqa: E731
        assert train(asked_after(20, ask, log_to(mlflow)), HEALTHY[:2000], health) < 1999
        health.close()
    assert health.stopped_by.message.startswith("asked to: Yes")
    assert tags_of(mlflow, run)["health.stop"] == "Yes\n"


@pytest.mark.slow
@pytest.mark.parametrize("wants", [False, True], ids=["did not ask", "dry run"])
def test_who_did_not_ask_goes_on(mlflow, uri, quick, wants):
    with mlflow.start_run() as run:
        health = LiveHealth(obey=wants, dry_run=wants)
        open_now = open_run(run.info.run_id, tracking_uri=uri)
        log = asked_after(5, lambda: open_now.ask_to_stop(ASKED.as_request), log_to(mlflow))
        assert train(log, HEALTHY[:60], health) == 60
        health.close()
    assert (health.stopped_by is not None) is wants
    tags = tags_of(mlflow, run)
    assert stop_of(tags["health.stop"]) is not None
    assert "health.stopped" not in tags


@pytest.mark.slow
def test_a_request_from_before_the_training_asks_nobody(mlflow, uri, quick):
    with mlflow.start_run(tags={"health.stop": ASKED.as_request}):
        health = LiveHealth(obey=True)

        def log(step, value):
            time.sleep(0.02)

        assert train(log, HEALTHY[:60], health) == 60
        health.close()


@pytest.mark.slow
def test_nobody_looks_for_a_training_that_is_gone(mlflow, uri, quick):
    with mlflow.start_run():
        before = threading.active_count()
        health = LiveHealth(obey=True)
        health.step(loss=1.0)
        assert threading.active_count() > before
        del health
        gc.collect()
        until(lambda: threading.active_count() <= before)


def test_a_server_that_is_away_is_said_once_and_asked_again():
    asked = threading.Event()

    class Owner:
        def call(self, text):
            self.text = text
            asked.set()

    class Away:
        looks = 0

        def asks_to_stop(self):
            self.looks += 1
            if self.looks in (1, 2, 4):
                raise OSError("away")
            return "stop" if self.looks > 5 else "false"

    owner = Owner()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Requests(owner.call, seconds=0.01).begin([Away()])
        assert asked.wait(PATIENCE)
    assert owner.text == "stop"
    assert [str(one.message) for one in told] == [
        "tracker-health: whether the run asks to stop could not be seen, and is tried again: OSError: away"
    ]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [(ASKED.as_request, True), ("health:stop", True), (" Stop ", True), ("true", True), ("1", True)]
    + [(text, False) for text in ("", "false", "False", "0", "no", "none", "do not stop", ASKED.as_request + "x")],
)
def test_what_asks_for_a_stop(text, is_one):
    assert asks(text) is is_one


def test_nothing_waits_for_a_server(monkeypatch):
    """Neither a stop nor a look for requests."""
    waits = threading.Event()

    class Slow:
        def asks_to_stop(self):
            waits.wait(PATIENCE)
            return ""

        mark = stopped = lambda self, text: None

    begun = time.monotonic()
    health = LiveHealth(rest=0, plan=120, runs=[Slow()], obey=True)
    assert train(lambda *_: None, diverging(), health) < 119
    assert time.monotonic() - begun < PATIENCE / 2
    waits.set()


# Weights & Biases


@pytest.mark.slow
def test_a_wandb_run_is_asked_and_obeys(wandb_server, quick):
    import wandb

    run = wandb.init(project="live", entity="team", tags=["mine"])
    name = f"wandb:team/live/{run.id}"
    health = LiveHealth(obey=True)

    def ask():
        until(lambda: run.id in {one.name for one in wandb_server.store.runs.values()})
        opened = open_run(name)
        assert not opened.why_not_asked()
        opened.ask_to_stop(ASKED.as_request)
        assert "health:stop" in wandb_server.run(f"team/live/{run.id}").tags

    step = train(asked_after(60, ask, lambda step, value: run.log({"loss": value})), HEALTHY[:3000], health)
    assert health.should_stop
    health.close()
    run.finish()
    assert step < 2999
    kept = wandb_server.run(f"team/live/{run.id}")
    assert set(kept.tags) == {"mine", "health:stop"}
    assert stop_of(kept.summary["health/stopped"]).reason == "asked to: health:stop"
    outcome = annotate(name)
    assert outcome.report.ended == "pruned"
    assert kept.summary["health/ended"] == "pruned"
    assert "health:stop" not in kept.tags


@pytest.mark.slow
def test_an_offline_wandb_run_keeps_why_it_stopped(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("WANDB_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    run = wandb.init(project="live")
    health = LiveHealth(rest=0, plan=120, obey=True)
    step = train(lambda step, value: run.log({"loss": value}), diverging(), health)
    health.close()
    assert not ActiveWandbRun(run).asks_to_stop()
    folder = tmp_path / "wandb" / run.dir.split("/")[-2]
    run.finish()
    outcome = annotate(str(folder))
    assert outcome.report.ended == "pruned"
    assert f"stopped it at step {step}: " in outcome.report.ended_by


# What a run keeps of it


def test_a_stop_is_read_back_and_nothing_else_is():
    stop = Stop(step=620, verdict="fail", code="LOS004", cause="x", reason="r: \x1b[31m\n" + "y" * 9000, when=5.0)
    found = stop_of(stop.as_stopped)
    assert (found.step, found.verdict, found.code, found.cause, found.when) == (620, "fail", "LOS004", "x", 5.0)
    assert len(found.reason) <= MOST_CHARACTERS
    assert "\x1b" not in found.ending.by
    assert "\n" not in found.ending.by
    for text in ("", "stop", "{}", "[]", "[" * 9999, stop.as_stopped.replace("620", "621"), stop.as_stopped + " "):
        assert stop_of(text) is None or text == stop.as_stopped + " "


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=3)


@given(st.text() | st.dictionaries(st.sampled_from(["said", "step", "verdict", "code", "cause", "when"]), JSON))
def test_whatever_stands_there_is_read_or_is_not(content):
    text = content if isinstance(content, str) else json.dumps({**content, "check": _check(content)})
    found = stop_of(text)
    if found is not None:
        shown = (found.verdict, found.code, found.cause, found.reason, found.ending.by)
        assert all(one.isprintable() and len(one) <= 400 for one in shown)
        assert stop_of(found.as_stopped) is not None


def test_runs_that_come_later_are_found(monkeypatch):
    there = []
    monkeypatch.setattr("tracker_health.live.tracked.active_runs", lambda **_: list(there))
    runs = LiveRuns(None)
    assert not runs.there()

    class Run:
        said = ()

        def mark(self, word):
            self.said += (word,)

        def close(self):
            self.said += ("closed",)

    there.append(Run())
    runs.mark("warn")
    runs.close()
    assert there[0].said == ("warn", "closed")


def evidence_of(*, status="FINISHED", after=0, stopped=True, **info):
    """A run of 100 points, with more after its stop, a second apart."""
    steps = np.arange(100 + after)
    times = 1_700_000_000.0 + steps
    series = Series(name="loss", role="train_loss", source="x", steps=steps * 50, values=1.0 / (1 + steps), times=times)
    stop = Stop(step=7, verdict="fail", code="LOS004", cause="", reason="LOS004 rose", when=times[99] + 0.5)
    kept = stop if stopped and stood(stop, [series]) else None
    run = RunInfo(status=status, tracker="MLflow", stopped=kept, **info)
    return Evidence(run=RunRef(store="x", id="x", name="x"), info=run, series=(series,))


@pytest.mark.parametrize(("after", "holds"), [(0, True), (3, True), (10, True), (11, False), (100, False)])
def test_by_their_times_more_than_a_tenth_came_later(after, holds):
    """Whatever its tracker counts as steps."""
    ended = evidence_of(after=after).ending.how
    assert (ended is Ended.PRUNED) is holds


@pytest.mark.parametrize("seen", [Ended.FINISHED, Ended.KILLED, Ended.INTERRUPTED])
def test_what_was_seen_of_the_process_comes_of_the_stop(seen):
    assert evidence_of(seen=Ending(how=seen, by="SIGTERM")).ending.how is Ended.PRUNED


@pytest.mark.parametrize("seen", [Ended.FAILED, Ended.OUT_OF_MEMORY, Ended.PREEMPTED])
def test_what_broke_afterwards_is_said(seen):
    ending = Ending(how=seen, by="ValueError")
    assert evidence_of(seen=ending).ending == ending


def test_a_run_that_is_stopping_still_goes_on_and_one_that_went_silent_has_stopped():
    assert evidence_of(status="RUNNING").goes_on
    assert evidence_of(status="RUNNING", silent_for=1e6).ending.how is Ended.PRUNED
    assert evidence_of(status="RUNNING", silent_for=1e6, stopped=False).ending.how is Ended.SILENT


def test_what_ends_in_the_background_is_done_and_closed_once():
    done = []
    calls = Background("a test")
    calls.put(lambda: (time.sleep(0.1), done.append(1)))
    calls.end()
    calls.put(lambda: done.append(2))
    assert calls.close()
    assert calls.close()
    assert done == [1]
    idle = Background("a test")
    idle.end()
    assert idle.close()


@pytest.mark.parametrize("alert", [True, False])
def test_wandb_alerts_people_only_where_that_was_asked_for(tmp_path, monkeypatch, alert):
    class TheirRun:
        tags, project, entity, id, name, url = (), "p", "e", "1", "calm-rat", ""

        def __init__(self):
            self.alerts, self.summary = [], {}

        def alert(self, title, text, level):
            self.alerts.append((title, text, level))

    (tmp_path / "tracker-health.toml").write_text("[notify]\nwandb_alert = true\n")
    monkeypatch.chdir(tmp_path)
    theirs = TheirRun()
    health = LiveHealth(plan=120, rest=0, runs=[ActiveWandbRun(theirs)], alert=alert)
    train(lambda *_: None, diverging(), health)
    health.close()
    assert health.should_stop
    assert len(theirs.alerts) == alert
    if alert:
        title, text, _ = theirs.alerts[0]
        assert "FAIL calm-rat" in title
        assert "LOS004" in text
