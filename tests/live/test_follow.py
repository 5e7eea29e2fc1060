"""A run followed from outside: what is said and when, what is asked of it, what is sent, and how little is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import annotate, preset
from tracker_health.api import baseline_from
from tracker_health.cli import cli
from tracker_health.config import Notify
from tracker_health.errors import ConfigError, RunNotFound, StoreRefused, StoreUnavailable
from tracker_health.fleet.follow import Follower
from tracker_health.judge.messages import SentMessages
from tracker_health.report.baseline import from_json, to_json
from tracker_health.runs import message_queue
from tracker_health.runs.lookup import open_run
from tracker_health.runs.message_queue import MessageQueue
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.mlflow.run import MlflowRun
from tracker_health.terminal import StopFlag
from tracker_health.words.stopped import stop_of

from ..receiver import Receiver  # noqa: TID252
from .test_stopping import diverging

PLAN = 120


@pytest.fixture(autouse=True)
def _quickly(monkeypatch, tmp_path):
    monkeypatch.setattr("tracker_health.fleet.follow._REST", 0.0)
    monkeypatch.setattr(message_queue, "SEND_SECONDS", 0.5)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def falling(n=PLAN, level=0.3, seed=0):
    random = np.random.default_rng(seed)
    return [float(one) for one in 2.0 * np.exp(-3.0 * np.arange(n) / n) + level + 0.05 * random.normal(size=n)]


class Folder:
    """A run whose training writes a line at a time."""

    tracking_uri = None

    def __init__(self, folder, values):
        folder.mkdir()
        self.name, self._log = str(folder), folder / "log.jsonl"
        self._left = list(enumerate(values))
        self._log.write_text(json.dumps({"type": "config", "max_steps": PLAN}) + "\n")

    def go_on(self, _=0.0):
        """Another row; whether there is none."""
        if not self._left:
            return True
        step, value = self._left.pop(0)
        with self._log.open("a") as log:
            log.write(json.dumps({"step": step, "loss": value}) + "\n")
        return False


class Tracked:
    """A run of MLflow's whose training logs a point at a time."""

    def __init__(self, mlflow, uri, values, **params):
        self.tracking_uri, self.client = uri, mlflow.MlflowClient(uri)
        experiment = self.client.get_experiment_by_name("live").experiment_id
        self.name = self.client.create_run(experiment, run_name="calm-rat").info.run_id
        for name, value in params.items():
            self.client.log_param(self.name, name, value)
        self._left = list(enumerate(values))

    def go_on(self, _=0.0):
        if self._left:
            step, value = self._left.pop(0)
            self.client.log_metric(self.name, "loss", value, step=step)
        else:
            self.client.set_terminated(self.name)
        return False

    @property
    def tags(self):
        return self.client.get_run(self.name).data.tags

    @property
    def ours(self):
        return {name for name in self.tags if name.startswith("health.")}


def follow(run, config="default", wait=None, **options):
    options = {"every": 0.0, **options}
    chosen = preset(config) if isinstance(config, str) else config
    return list(map(str, Follower(run.name, chosen, run.tracking_uri, **options).events(wait or run.go_on)))


# What is said


@pytest.mark.exhaustive
def test_a_finding_is_said_once_with_its_step_and_the_end_at_last(mlflow, uri):
    run = Tracked(mlflow, uri, diverging())
    lines = follow(run)
    assert lines[0] == f"following calm-rat ({run.name})"
    found = [one for one in lines if "LOS004 diverged" in one]
    assert len(found) == 1
    assert found[0].startswith("FAIL at step ")
    assert 50 < int(found[0].split()[3].strip(":")) < 119
    assert lines[-1].startswith("it is over at step 119: finished (MLflow says FINISHED); FAIL: LOS004")
    assert not run.ours


@pytest.mark.exhaustive
def test_a_healthy_run_is_left_alone(mlflow, uri):
    lines = follow(Tracked(mlflow, uri, falling()), stop_on="warn")
    assert [one.split()[0] for one in lines] == ["following", "it"]
    assert "nothing was found while it went on" in lines[-1]


@pytest.mark.slow
def test_a_run_that_was_over_is_said_to_be(mlflow, uri):
    run = Tracked(mlflow, uri, [])
    run.client.log_metric(run.name, "loss", 1.0)
    run.go_on()
    assert "it was over before anybody followed it" in follow(run)[-1]


@pytest.mark.slow
def test_a_folder_is_followed_until_nobody_wants_to(tmp_path):
    lines = follow(Folder(tmp_path / "run", diverging()))
    assert "LOS004" in lines[-1]
    assert not (tmp_path / "run" / "health").exists()


def test_a_folder_to_which_nothing_comes_is_over(tmp_path, monkeypatch):
    run = Folder(tmp_path / "run", falling(60))
    now = time.monotonic()

    def wait(_):
        if run.go_on():
            monkeypatch.setattr(time, "monotonic", lambda: now + 7 * 3600)
        return False

    lines = follow(run, wait=wait)
    assert "it is over at step 59: silent (" in lines[-1]


@pytest.mark.slow
def test_what_a_run_calls_itself_is_shown_in_one_line(mlflow, uri):
    run = Tracked(mlflow, uri, [1.0] * 6)
    run.client.set_tag(run.name, "mlflow.runName", "a\nb\x1b[31m" + "c" * 900)
    for line in follow(run):
        assert line.isprintable()
        assert len(line) <= 600


# How little is fetched


def reads_of(monkeypatch, kind):
    """The steps at which histories were fetched, and how often the record was asked for."""
    read, at = kind.read, []

    def counting(self, request):
        found = read(self, request)
        at.append(max((int(one.steps.max()) for one in found.series), default=-1))
        return found

    monkeypatch.setattr(kind, "read", counting)
    return at


@pytest.mark.exhaustive
def test_histories_are_fetched_where_they_grew_by_a_twentieth(mlflow, uri, monkeypatch):
    read = reads_of(monkeypatch, MlflowRun)
    follow(Tracked(mlflow, uri, falling(200)), every=86_400.0)
    late = np.array([one for one in read[:-1] if one > 40])
    assert len(late) > 10
    assert (late[1:] >= 1.05 * late[:-1]).all()
    assert read[-1] == 199


def test_what_did_not_change_is_not_fetched_again(tmp_path, monkeypatch):
    run, waits = Folder(tmp_path / "run", falling(30)), []
    for _ in range(30):
        run.go_on()
    read = reads_of(monkeypatch, DirectoryRun)
    follow(run, wait=lambda seconds: waits.append(seconds) or len(waits) > 20, every=8.0)
    assert read == [29]
    assert set(waits) == {2.0}


# Trouble


@pytest.mark.slow
@pytest.mark.parametrize("error", [StoreUnavailable("it does not answer"), StoreRefused("no permission")], ids=str)
def test_a_server_in_trouble_is_said_once_and_tried_again(tmp_path, monkeypatch, error):
    run, opened, asked = Folder(tmp_path / "run", diverging()), open_run, []

    def opening(*arguments, **options):
        asked.append(1)
        if 10 < len(asked) < 40:
            raise error
        return opened(*arguments, **options)

    monkeypatch.setattr("tracker_health.fleet.follow.open_run", opening)
    lines = follow(run)
    assert [one for one in lines if "is tried again" in one] == [f"this failed, and is tried again: {error.message}"]
    assert sum(one == "it works again" for one in lines) == 1
    assert any("LOS004" in one for one in lines)


def test_a_run_that_is_not_there_and_one_that_is_gone(tmp_path):
    with pytest.raises(RunNotFound):
        Follower(str(tmp_path / "none"), preset("default")).events(lambda _: True).__next__()
    run = Folder(tmp_path / "run", falling())

    def wait(_):
        (tmp_path / "run" / "log.jsonl").unlink(missing_ok=True)
        (tmp_path / "run").rmdir()
        return False

    with pytest.raises(RunNotFound):
        follow(run, wait=wait)


def test_arguments_that_make_no_sense():
    with pytest.raises(ConfigError):
        Follower("run", preset("default"), stop_on="error")


# Asking


@pytest.mark.exhaustive
def test_a_run_is_asked_to_stop_and_ended_as_it_says(mlflow, uri):
    run = Tracked(mlflow, uri, diverging())
    asked = []

    def wait(_):
        if "health.stop" in run.tags and not asked:
            asked.append(run.tags["health.stop"])
            run._left.clear()  # its training obeys
            run.client.set_tag(run.name, "health.stopped", replace(stop_of(asked[0]), when=time.time()).as_stopped)
            run.client.delete_tag(run.name, "health.stop")
        return run.go_on()

    lines = follow(run, wait=wait, stop_on="fail")
    stop = stop_of(asked[0])
    assert (stop.code, stop.verdict) == ("LOS004", "fail")
    assert sum(one.startswith("asked it to stop, for LOS004: ") for one in lines) == 1
    assert f": pruned (tracker-health stopped it at step {stop.step}: " in lines[-1]
    annotate(run.name, tracking_uri=uri)
    assert run.tags["health.ended"] == "pruned"


@pytest.mark.exhaustive
def test_a_run_that_goes_on_is_asked_once_and_again_where_that_was_lost(mlflow, uri, monkeypatch):
    run, asks, ask = Tracked(mlflow, uri, diverging()), [], MlflowRun.ask_to_stop
    monkeypatch.setattr(MlflowRun, "ask_to_stop", lambda self, text: asks.append(text) or ask(self, text))

    def wait(_):
        if len(asks) == 1 and "health.stop" in run.tags:
            run.client.delete_tag(run.name, "health.stop")
        return run.go_on()

    lines = follow(run, wait=wait, stop_on="fail")
    assert len(asks) == 2
    assert sum("asked it to stop" in one for one in lines) == 1
    annotate(run.name, tracking_uri=uri)
    assert "health.stop" not in run.tags


@pytest.mark.exhaustive
def test_a_request_that_is_refused_is_tried_again(mlflow, uri, monkeypatch):
    run, asks, ask = Tracked(mlflow, uri, diverging()), [], MlflowRun.ask_to_stop

    def refusing(self, text):
        asks.append(text)
        if len(asks) < 4:
            raise StoreRefused("no permission to write")
        ask(self, text)

    monkeypatch.setattr(MlflowRun, "ask_to_stop", refusing)
    lines = follow(run, stop_on="fail")
    assert len(asks) == 4
    assert sum("no permission to write" in one for one in lines) == 1
    assert sum("asked it to stop" in one for one in lines) == 1


@pytest.mark.exhaustive
def test_in_a_dry_run_nobody_is_asked(mlflow, uri):
    run = Tracked(mlflow, uri, diverging())
    lines = follow(run, stop_on="fail", dry_run=True)
    assert sum(one.startswith("would ask it to stop, for LOS004") for one in lines) == 1
    assert not run.ours


# Messages


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def told_to(receiver, **more):
    notify = Notify(**{"webhook": receiver.address, "certainty": "possible", **more.pop("notify", {})})
    return replace(preset("default"), notify=notify, **more)


def delivered(config, uri):
    from functools import partial

    from tracker_health.runs.due_messages import store_key

    return MessageQueue().deliver(
        config.notify, store_key(uri), partial(open_run, tracking_uri=uri), time.time() + 4_000
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("ended", [False, True], ids=["again while it goes on", "when it is over"])
def test_a_confirmed_fail_is_sent_once_and_its_final_verdict_not_again(mlflow, uri, receiver, ended):
    run, config = Tracked(mlflow, uri, diverging()), told_to(receiver)
    lines = follow(run, config, wait=lambda _: run.go_on() or (not ended and bool(receiver.accepted)))
    (cause,) = {one.partition(": ")[2] for one in lines if one.startswith("sent a message: ")}
    (sent,) = receiver.accepted
    assert sent["text"].startswith(f"FAIL calm-rat (live): {cause}")
    assert "[31m" not in sent["text"]
    with closing(open_run(run.name, tracking_uri=uri)) as opened:
        assert (SentMessages.of(opened.notified()).causes, opened.recorded()) == ((cause,), None)
    if not ended:
        follow(run, config)
    outcome = annotate(run.name, config=config, tracking_uri=uri, notify=True)
    assert outcome.status == "written"
    assert run.tags["health.notified"].startswith(f"told={cause}")
    if outcome.report.diagnosis.cause == cause:
        assert outcome.notice is None
        delivered(config, uri)
        assert len(receiver.accepted) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "quiet",
    [{"mode": "shadow"}, {"notify": {"mute": ("experiment:live",)}}, {"notify": {"webhook": ""}}],
    ids=["shadow", "muted", "nobody"],
)
def test_nothing_is_sent_where_that_is_not_wanted(mlflow, uri, receiver, quiet):
    run = Tracked(mlflow, uri, diverging())
    follow(run, told_to(receiver, **quiet))
    assert receiver.asked == 0
    assert not run.ours


@pytest.mark.exhaustive
def test_a_dry_run_sends_nothing(mlflow, uri, receiver):
    run = Tracked(mlflow, uri, diverging())
    follow(run, told_to(receiver), dry_run=True)
    assert (receiver.asked, run.ours) == (0, set())


@pytest.mark.slow
def test_a_receiver_in_trouble_holds_nothing_up(tmp_path):
    receiver = Receiver(500)
    run = Folder(tmp_path / "run", diverging())
    lines = follow(run, told_to(receiver))
    receiver.close()
    assert sum("the message could not be sent yet: the receiver answered 500" in one for one in lines) == 1
    assert receiver.asked == 1
    assert any("LOS004" in one for one in lines)
    assert DirectoryRun(run.name).recorded() is None
    assert SentMessages.of(DirectoryRun(run.name).notified()).due


@pytest.fixture
def frozen(tmp_path):
    """A baseline of eight healthy runs."""
    runs = []
    for number in range(8):
        run = Folder(tmp_path / f"healthy {number}", falling(seed=number))
        while not run.go_on():
            pass
        runs.append(run.name)
    made = baseline_from(runs, of="eight", config=preset("default"))
    assert len(made.runs) == 8
    return from_json(json.loads(json.dumps(to_json(made))))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["folder", "mlflow"])
@pytest.mark.one_cell
def test_a_loss_above_the_band_is_said_while_it_goes_on_and_sent_once(
    mlflow,
    uri,
    tmp_path,
    receiver,
    frozen,
    where,
):
    values = falling(level=1.4, seed=9)
    run = Folder(tmp_path / "odd", values) if where == "folder" else Tracked(mlflow, uri, values, max_steps=PLAN)
    config = told_to(receiver, baseline=frozen)
    lines = follow(run, config, stop_on=None)
    (found,) = [one for one in lines if "CMP001" in one and "at step" in one and not one.startswith("it is over")]
    step = int(found.split()[3].strip(":"))
    assert 0.2 * PLAN <= step < 0.6 * PLAN
    assert f"at step {step} of 1" in found
    assert "the loss is above the band of 8 healthy runs" in found
    (sent,) = receiver.accepted
    assert "CMP001" in sent["text"]
    assert "the loss is above the band of 8 healthy runs" in sent["text"]
    follow(run, config, wait=lambda _: True)
    assert len(receiver.accepted) == 1


@pytest.mark.slow
def test_of_two_messages_at_once_both_are_sent(tmp_path, receiver, frozen):
    """A loss far above the band that also rises."""
    values = falling(80, level=1.4, seed=9) + [float(one) for one in np.linspace(4.0, 9.0, 40)]
    lines = follow(Folder(tmp_path / "odd", values), told_to(receiver, baseline=frozen))
    said = [one.partition(": ")[2] for one in lines if one.startswith("sent a message: ")]
    assert len(said) == len(set(said)) == len(receiver.accepted) >= 2
    assert "CMP001" in said


# On the command line


def invoked(*arguments):
    return CliRunner().invoke(cli, ["follow", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_ends_with_the_run_and_says_what_it_found(mlflow, uri, monkeypatch):
    run = Tracked(mlflow, uri, diverging())
    monkeypatch.setattr(StopFlag, "wait", lambda self, seconds: run.go_on())
    result = invoked(run.name, "--tracking-uri", uri, "--stop-on", "fail", "--every", 1)
    assert result.exit_code == 0
    first, *_, last = result.output.splitlines()
    assert first.endswith(f"following calm-rat ({run.name}); asks it to stop at fail")
    assert "it is over at step 119" in last


def test_ctrl_c_ends_it_politely(tmp_path, monkeypatch):
    run = Folder(tmp_path / "run", falling())

    def wait(self, _):
        self.wanted = run.go_on() or len(run._left) < 100
        return self.wanted

    monkeypatch.setattr(StopFlag, "wait", wait)
    result = invoked(run.name)
    assert result.exit_code == 130
    assert result.output.splitlines()[-1] == "tracker-health: no longer followed; the run is still running"


def test_a_folder_cannot_be_asked(tmp_path):
    result = invoked(Folder(tmp_path / "run", falling()).name, "--stop-on", "fail")
    assert result.exit_code == 3
    assert "cannot be asked to stop: no training looks there for such a request" in result.output
    assert len(result.output.splitlines()) == 2  # with what to try


TRAINING = """
import sys, time, mlflow, numpy as np
from tracker_health.live import LiveHealth

uri, wants = sys.argv[1], sys.argv[2] == "obeys"
mlflow.set_tracking_uri(uri)
with mlflow.start_run() as run:
    print(run.info.run_id, flush=True)
    health = LiveHealth(obey=wants, stop_on=None)
    for step in range(400):
        loss = 2.0 / (1 + step / 10) + 0.3 + (0.2 * (step - 40) if step > 40 else 0.0)
        mlflow.log_metric("loss", loss + 0.01 * (step % 7), step=step)
        health.step(step=step, loss=loss)
        if health.should_stop:
            break
        time.sleep(0.02 if step < 120 else 0.2)
        if step == 160 and not wants:
            break
    print("stopped" if health.should_stop else "went on", step, flush=True)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("wants", ["obeys", "did not ask"])
@pytest.mark.parametrize("store", ["sqlite", "server"])
def test_a_training_and_its_follower_in_processes_of_their_own(request, tmp_path, store, wants):
    place = request.getfixturevalue("sqlite_uri" if store == "sqlite" else "server_uri")
    source = TRAINING.replace("LiveHealth(", "often(LiveHealth)(")
    often = """
def often(health):
    from tracker_health.live import health as module
    from tracker_health.live.tracked import Requests
    module.Requests = lambda asked: Requests(asked, seconds=0.5)
    return health
"""
    script = tmp_path / "train.py"
    script.write_text(source.replace("uri, wants", f"{often}\nuri, wants", 1))
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "XDG_STATE_HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    training = subprocess.Popen(
        [sys.executable, script, place, wants], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    try:
        run = training.stdout.readline().strip()
        command = [sys.executable, "-m", "tracker_health", "follow", run, "--tracking-uri", place]
        followed = subprocess.run(
            [*command, "--stop-on", "fail", "--every", "2"],
            capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path, env=environment,
        )  # fmt: skip
        how, step = training.stdout.read().split("\n")[0].rsplit(" ", 1)
    finally:
        training.kill()
        training.wait()
        training.stdout.close()
    assert followed.returncode == 0, followed.stderr
    assert "asked it to stop, for " in followed.stdout
    tags = tags_of(place, run)
    assert how == ("stopped" if wants == "obeys" else "went on")
    if wants == "obeys":
        assert int(step) < 399
        assert stop_of(tags["health.stopped"]).reason.startswith("asked to: ")
        assert "health.stop" not in tags
        assert ": pruned (tracker-health stopped it at step " in followed.stdout.splitlines()[-1]
    else:
        assert "health.stopped" not in tags
        assert ": finished (" in followed.stdout.splitlines()[-1]
    annotate(run, tracking_uri=place)
    tags = tags_of(place, run)
    assert tags["health.ended"] == ("pruned" if wants == "obeys" else "finished")
    assert "health.stop" not in tags


def tags_of(uri, run):
    from mlflow import MlflowClient

    return MlflowClient(uri).get_run(run).data.tags


# Weights & Biases


@pytest.mark.exhaustive
def test_a_wandb_run_is_followed_asked_and_told_about_once(wandb_server, receiver, monkeypatch):
    monkeypatch.setattr("tracker_health.stores.wandb.online._LAG_PAUSES", (0,))
    kept = wandb_server.store.new_run("team", "live", "abc")
    kept.tags, kept.display_name = ["mine"], "calm-rat"
    left = list(enumerate(diverging()))

    class Online:
        name, tracking_uri = "wandb:team/live/abc", None

        @staticmethod
        def go_on(_):
            if not left:
                kept.state = "finished"
                return False
            for step, value in left[:4]:
                row = {"_step": step, "_timestamp": 1000.0 + step, "loss": value}
                kept.history.append(json.dumps(row))
                kept.summary = dict(row)  # the SDK sends its own whole, again and again
            del left[:4]
            return False

    config = told_to(receiver)
    lines = follow(Online, config, stop_on="fail")
    assert any("LOS004 diverged" in one for one in lines)
    assert set(kept.tags) == {"mine", "health:stop"}
    assert lines[-1].startswith("it is over at step 119: finished")
    assert len(receiver.accepted) == 1
    (cause,) = {one.partition(": ")[2] for one in lines if one.startswith("sent a message: ")}
    assert kept.files["health/notified.txt"].content == f"told={cause}".encode()
    outcome = annotate(Online.name, config=config, notify=True)
    assert kept.summary["health/notified"].startswith(f"told={cause}")
    assert outcome.notice is None or outcome.notice.subject != cause
    assert "health/notified.txt" not in kept.files
    assert set(kept.tags) == {"mine", "health:fail"}
