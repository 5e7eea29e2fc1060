"""W&B's own alerts about verdicts on runs of a W&B server: asked for as the SDK asks, each once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest
from click.testing import CliRunner

pytest.importorskip("wandb")

from tracker_health import annotate, preset
from tracker_health.cli import cli
from tracker_health.config import Notify
from tracker_health.fleet.sweep import Sweep
from tracker_health.judge.messages import SentMessages
from tracker_health.runs import message_queue
from tracker_health.runs.due_messages import store_key
from tracker_health.runs.lookup import open_run
from tracker_health.runs.message_queue import MessageQueue
from tracker_health.words.verdict import Verdict

from ..receiver import Receiver  # noqa: TID252  tests are no package of a name
from ..wandb_server import READER, Fault  # noqa: TID252

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures", "_own_state")]

ALERTS = Notify(wandb_alert=True, certainty="possible")
OFF = Fault(
    lambda one: one.operation == "NotifyScriptableRunAlert", status=400, body=b'{"errors": [{"message": "no"}]}'
)


@pytest.fixture
def _own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def receiver():
    made = Receiver(200)
    yield made
    made.close()


def make_sick(server, name="sick", **fields):
    run = server.store.new_run("team", "proj", name)
    losses = [2.3 * 0.97**step if step < 100 else "NaN" for step in range(200)]
    rows = [{"_step": step, "_timestamp": 1000.0 + step, "loss": loss} for step, loss in enumerate(losses)]
    run.history, run.summary, run.state = list(map(json.dumps, rows)), dict(rows[-1]), "finished"
    for key, value in fields.items():
        setattr(run, key, value)
    return f"wandb:team/proj/{name}"


def found(run, notify):
    """The run judged, and its message in the queue."""
    outcome = annotate(run, config=replace(preset("default"), notify=notify), notify=True)
    if outcome.notice is not None:
        MessageQueue().put([outcome.notice])
    return outcome


def delivering(notify, now=None):
    return MessageQueue().deliver(notify, store_key(None), open_run, now)


def told_on(run):
    with closing(open_run(run)) as opened:
        return SentMessages.of(opened.recorded().notified)


def test_it_is_asked_for_as_the_sdk_asks_for_its_own(wandb_server, tmp_path):
    code = (
        "import wandb; run = wandb.init(project='proj', id='theirs'); run.alert('t', 'x', level='ERROR'); run.finish()"
    )
    environment = os.environ | wandb_server.environment(tmp_path)
    subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=120
    )
    with closing(open_run(make_sick(wandb_server))) as opened:
        opened.alert("t", "x", Verdict.FAIL)
        opened.alert("t", "x", Verdict.WARN)
    theirs, ours, warned = wandb_server.store.alerts
    assert {**theirs, "runName": "sick"} == ours
    assert warned["severity"] == "WARN"


def test_as_the_only_receiver_it_is_sent_once_and_the_run_says_so(wandb_server):
    run = make_sick(wandb_server, display_name="calm-rat <!channel>")
    found(run, ALERTS)
    assert told_on(run).due
    done = delivering(ALERTS)
    assert (done.messages, done.runs, done.waiting, done.problem) == (1, 1, 0, "")
    (alert,) = wandb_server.store.alerts
    assert (alert["runName"], alert["severity"]) == ("sick", "ERROR")
    assert alert["title"].startswith("FAIL calm-rat \u2039!channel\u203a: ")
    assert "Seen? tracker-health ack wandb:team/proj/sick" in alert["text"]
    assert "<" not in alert["title"] + alert["text"]
    assert told_on(run).causes
    for later in (0, 4_000):
        assert found(run, ALERTS).notice is None
        assert delivering(ALERTS, time.time() + later).messages == 0
    assert len(wandb_server.store.alerts) == 1
    assert not wandb_server.errors


def test_runs_of_other_trackers_are_due_to_nobody(write_log, healthy_losses):
    sick = write_log([*healthy_losses[:100], *[float("nan")] * 100], folder="sick")
    assert found(sick, ALERTS).notice is None
    assert told_on(sick) == SentMessages()


def test_a_message_to_one_receiver_does_not_wait_for_the_other_nor_is_it_sent_twice(wandb_server, receiver):
    both = replace(ALERTS, webhook=receiver.address)
    run = make_sick(wandb_server)
    found(run, both)
    with wandb_server.failing(OFF):
        done = delivering(both, now := time.time())
    assert (done.messages, done.waiting) == (1, 1)
    assert "an alert about W&B run sick" in done.problem
    assert told_on(run).causes, "somebody got it"
    assert delivering(both, now + 10).messages == 0, "it is left alone for a while"
    assert found(run, both).notice is None
    done = delivering(both, now + 40)
    assert (done.messages, done.waiting, done.problem) == (1, 0, "")
    assert (len(receiver.accepted), len(wandb_server.store.alerts)) == (1, 1)


def test_a_run_that_two_receivers_are_told_of_is_one_run(wandb_server, receiver, tmp_path):
    settings = tmp_path / "health.toml"
    settings.write_text(
        f'[notify]\nwebhook = "{receiver.address}"\nwandb_alert = true\ncertainty = "possible"\n', encoding="utf-8"
    )
    make_sick(wandb_server)
    MessageQueue().remember(f"{store_key(None)} team/proj")
    done = CliRunner().invoke(cli, ["sweep", "--config", str(settings), "--project", "team/proj"])
    assert "sent 2 messages about 1 run" in done.stderr.splitlines()
    assert (len(receiver.accepted), len(wandb_server.store.alerts)) == (1, 1)


def test_the_other_way_round(wandb_server, monkeypatch):
    monkeypatch.setattr(message_queue, "SEND_SECONDS", 0.5)
    receiver = Receiver(500, 200)
    both = replace(ALERTS, webhook=receiver.address)
    found(make_sick(wandb_server), both)
    done = delivering(both, now := time.time())
    assert (done.messages, done.problem) == (1, "the receiver answered 500")
    assert delivering(both, now + 40).messages == 1
    assert delivering(both, now + 4_000).messages == 0
    assert (len(receiver.accepted), len(wandb_server.store.alerts)) == (1, 1)
    receiver.close()


@pytest.mark.exhaustive
def test_a_sweep_alerts_once_about_many(wandb_server):
    make_sick(wandb_server, "first")
    config = replace(preset("default"), notify=ALERTS)

    def swept():
        sweep = Sweep(config=config, project="team/proj", since=time.time())
        list(sweep.annotate(sweep.candidates()))
        return sweep.send_messages(whole=True)

    assert swept().messages == 0, "what is wrong there is not new"
    for number in range(5):
        make_sick(wandb_server, f"run-{number}")
    done = swept()
    assert (done.messages, done.runs) == (1, 5)
    (alert,) = wandb_server.store.alerts
    assert alert["title"].startswith("FAIL 5 runs: 5 ")
    assert swept().messages == 0


def test_an_account_that_may_only_read_is_said_so(wandb_server, monkeypatch, tmp_path):
    run = make_sick(wandb_server)
    config = replace(preset("default"), notify=ALERTS)
    MessageQueue().remember(f"{store_key(None)} team/proj")
    monkeypatch.setenv("WANDB_API_KEY", READER)
    sweep = Sweep(config=config, project="team/proj", since=time.time(), report_to=tmp_path / "reports")
    list(sweep.annotate(sweep.candidates()))
    done = sweep.send_messages(whole=True)
    assert (done.messages, done.waiting) == (0, 1)
    assert "an alert about W&B run sick" in done.problem
    assert "no permission" in done.problem
    assert READER not in done.problem
    with closing(open_run(run)) as opened:
        assert opened.recorded() is None
