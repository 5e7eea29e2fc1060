"""Messages about real runs, in folders and in a real MLflow database, to receivers on 127.0.0.1 of every temper."""

import json
import math
import re
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health import annotate, preset
from tracker_health.cli import cli
from tracker_health.config import Notify
from tracker_health.errors import ConfigError
from tracker_health.fleet.sweep import Sweep
from tracker_health.judge.messages import SentMessages
from tracker_health.runs import message_queue
from tracker_health.runs.due_messages import store_key
from tracker_health.runs.lookup import open_run
from tracker_health.runs.message_queue import MessageQueue

from ..receiver import Receiver  # noqa: TID252  tests are no package of a name
from .many_runs import make_runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures", "_own_state")]  # real servers

LATER = 100_000.0
SURE = {"certainty": "possible"}
"""NaN alone names no likely cause."""


@pytest.fixture
def _own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(message_queue, "SEND_SECONDS", 0.5)


@pytest.fixture
def receiving():
    made = []

    def make(*answers):
        made.append(Receiver(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def sick(write_log, healthy_losses):
    return write_log([*healthy_losses[:100], *[math.nan] * 100], folder="sick")


def config_of(receiver, **more):
    return replace(preset("default"), notify=Notify(**{"webhook": receiver.address, **SURE, **more}))


def told_on(run, uri=None):
    with closing(open_run(run, tracking_uri=uri)) as opened:
        return SentMessages.of(opened.recorded().notified)


def delivering(config, now=None, uri=None):
    return MessageQueue().deliver(config.notify, store_key(uri), partial(open_run, tracking_uri=uri), now)


def found(run, config, **more):
    """The run judged, and its message in the queue."""
    outcome = annotate(run, config=config, notify=True, **more)
    if outcome.notice is not None:
        MessageQueue().put([outcome.notice])
    return outcome


# A folder, and what receivers do


def test_a_message_is_sent_once_and_the_run_says_so(sick, receiving):
    receiver = receiving()
    config = config_of(receiver)
    found(sick, config)
    assert told_on(sick).due
    assert delivering(config).messages == 1
    assert told_on(sick).causes == (told_on(sick).causes[0],)
    for force in (False, True):
        assert found(sick, config, force=force).notice is None
        delivering(config, time.time() + 4_000)
    (sent,) = receiver.accepted
    assert sent["text"].startswith("FAIL sick")
    assert str(sick) not in sent["text"]


@pytest.mark.parametrize(
    ("temper", "why"),
    [
        ("hang", "did not answer within 0.5 seconds"),
        (500, "answered 500"),
        ((302, {"Location": "http://127.0.0.1:9/"}), "answered 302"),
        ((429, {"Retry-After": "60"}), "answered 429"),
    ],
    ids=str,
)
def test_a_receiver_in_trouble_is_tried_again_and_gets_it_once(sick, receiving, temper, why):
    receiver = receiving(temper, 200)
    config = config_of(receiver)
    found(sick, config)
    begin = time.monotonic()
    done = delivering(config, now := time.time())
    assert time.monotonic() - begin < 3
    assert (done.messages, done.waiting) == (0, 1)
    assert why in done.problem
    assert receiver.address not in done.problem
    assert delivering(config, now + 1).problem == ""  # it is left alone for a while
    assert receiver.asked == 1
    assert delivering(config, now + 61).messages == 1
    assert delivering(config, now + 5_000).messages == 0
    assert (receiver.asked, len(receiver.accepted)) == (2, 1)


def test_a_receiver_that_refuses_is_tried_again(sick, receiving):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    gone = replace(preset("default"), notify=Notify(webhook=f"http://127.0.0.1:{port}/", **SURE))
    found(sick, gone)
    done = delivering(gone)
    assert "cannot be reached" in done.problem
    assert str(port) not in done.problem
    receiver = receiving()
    assert delivering(config_of(receiver)).messages == 1
    assert len(receiver.accepted) == 1


def test_the_pauses_grow_and_end_after_an_hour_at_most(sick, receiving):
    receiver = receiving(500, 500, (429, {"Retry-After": "1000000"}), 200)
    config = config_of(receiver)
    found(sick, config)
    start = time.time()
    asked = []
    for minute in range(120):
        before = receiver.asked
        delivering(config, start + 60 * minute)
        asked += [minute] * (receiver.asked - before)
    assert asked == [0, 1, 2, 62]
    assert len(receiver.accepted) == 1


def test_what_waited_a_day_is_not_sent_any_more(sick, receiving):
    receiver = receiving()
    config = config_of(receiver)
    found(sick, config)
    assert delivering(config, time.time() + LATER).messages == 0
    assert receiver.asked == 0


def test_secrets_come_from_the_environment_and_are_in_no_message(sick, receiving, monkeypatch, tmp_path):
    receiver = receiving(500, 200)
    monkeypatch.setenv("MY_HOOK", f"{receiver.address}?key=s3cret")
    monkeypatch.setenv("MY_TOKEN", "t0ken")
    monkeypatch.setenv("TRACKER_HEALTH_TOKEN_ENVS", "MY_TOKEN@127.0.0.1")
    config = config_of(receiver, webhook="", webhook_env="MY_HOOK", token_env="MY_TOKEN")
    found(sick, config)
    assert "s3cret" not in delivering(config, now := time.time()).problem
    assert delivering(config, now + 40).messages == 1
    assert receiver.headers[0]["Authorization"] == "Bearer t0ken"
    kept = (tmp_path / "state" / "tracker-health" / "notices" / "notices.json").read_text()
    assert not [one for one in ("s3cret", "t0ken", receiver.address) if one in kept]
    monkeypatch.delenv("MY_HOOK")
    found(sick, config)
    assert "s3cret" not in str(delivering(config))


@pytest.mark.parametrize(
    ("allowed", "webhook", "said"),
    [
        ("", "", "export TRACKER_HEALTH_TOKEN_ENVS=MY_DB_PASSWORD@127.0.0.1"),
        ("MY_TOKEN", "", "does not allow"),
        ("MY_DB_PASSWORD@alerts.example.com", "", "does not allow"),
        ("MY_DB_PASSWORD", "http://alerts.example.com/x", "plain http"),
        ("MY_DB_PASSWORD", "http://127.evil.example/x", "plain http"),
    ],
)
def test_only_what_the_environment_allows_leaves_as_a_token(sick, receiving, monkeypatch, allowed, webhook, said):
    receiver = receiving()
    monkeypatch.setenv("MY_DB_PASSWORD", "s3cret")
    monkeypatch.setenv("TRACKER_HEALTH_TOKEN_ENVS", allowed)
    config = config_of(receiver, webhook=webhook or receiver.address, token_env="MY_DB_PASSWORD")
    found(sick, config)
    done = delivering(config)
    assert (done.messages, receiver.asked, said in done.problem) == (0, 0, True), done.problem


def test_a_variable_that_is_not_set_is_said_and_the_message_waits(sick, receiving, monkeypatch):
    receiver = receiving()
    config = config_of(receiver, webhook="", webhook_env="NO_SUCH_HOOK")
    found(sick, config)
    done = delivering(config, now := time.time())
    assert "NO_SUCH_HOOK is not set" in done.problem
    monkeypatch.setenv("NO_SUCH_HOOK", receiver.address)
    assert delivering(config, now + 40).messages == 1


def test_a_command_gets_the_message_on_standard_input(sick, tmp_path):
    target = tmp_path / "got.json"
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"
    config = replace(preset("default"), notify=Notify(command=(sys.executable, "-c", code, str(target)), **SURE))
    found(sick, config)
    message_queue.SEND_SECONDS = 20
    assert delivering(config).messages == 1
    assert json.loads(target.read_text())["verdict"] == "fail"


@pytest.mark.parametrize("command", [("/no/such/program",), ("false",), ("sleep", "30")])
def test_a_command_that_fails_is_said(sick, command):
    config = replace(preset("default"), notify=Notify(command=command, **SURE))
    found(sick, config)
    assert "the command" in delivering(config).problem


def test_a_template_is_what_is_sent(sick, receiving):
    receiver = receiving()
    config = config_of(receiver, template='{"title": "{verdict} {run}", "n": 1}')
    found(sick, config)
    delivering(config)
    assert receiver.accepted == [{"title": "fail sick", "n": 1}]


def test_the_message_of_the_page_that_starts_a_workflow(sick, receiving):
    page = Path(__file__).parents[2].joinpath("docs", "notify.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "dispatches" in one)
    receiver = receiving()
    config = config_of(receiver, template=tomllib.loads(block)["notify"]["template"])
    found(sick, config)
    delivering(config)
    (sent,) = receiver.accepted
    assert (sent["event_type"], sent["client_payload"].keys()) == ("run-failed", {"run", "cause"})


def test_what_was_acknowledged_meanwhile_is_not_sent(sick, receiving):
    receiver = receiving()
    config = config_of(receiver)
    found(sick, config)
    assert CliRunner().invoke(cli, ["ack", str(sick), "--because", "x", "--who", "ana"]).exit_code == 0
    assert delivering(config).messages == 0
    assert receiver.asked == 0


def test_in_shadow_and_by_default_nothing_is_due(sick, receiving):
    config = config_of(receiving())
    assert found(sick, replace(config, mode="shadow")).notice is None
    assert annotate(sick, config=config).notice is None  # nobody asked for it
    assert found(sick, preset("default"), force=True).notice is None
    assert told_on(sick) == SentMessages()


def test_an_upgrade_and_other_settings_are_no_news(write_log, healthy_losses, receiving, monkeypatch):
    config = config_of(receiving())
    run = write_log([*healthy_losses[:100], *[math.nan] * 100], folder="old")
    lenient = replace(config, ignore=frozenset({"LOS001"}), stale_after=3_600.0)
    annotate(run, config=lenient)
    assert found(run, config).notice is None
    later = write_log(healthy_losses, folder="later")
    with monkeypatch.context() as older:
        older.setattr("tracker_health.runs.still_holds.RULES_VERSION", 1)
        older.setattr("tracker_health.judge.annotations.RULES_VERSION", 1)
        assert annotate(later, config=config).report.verdict == "pass"
    write_log([*healthy_losses[:100], *[math.nan] * 100], folder="later")
    outcome = found(later, config)
    assert (outcome.report.verdict, outcome.notice) == ("fail", None)


def test_a_run_that_goes_wrong_later_is_news(write_log, healthy_losses, receiving):
    receiver = receiving()
    config = config_of(receiver)
    run = write_log(healthy_losses, folder="later")
    assert found(run, config).notice is None
    write_log([*healthy_losses[:100], *[math.nan] * 100], folder="later")
    assert found(run, config).notice is not None
    assert delivering(config).messages == 1


def test_what_the_finder_did_not_send_is_sent_by_another_machine(sick, receiving, monkeypatch, tmp_path):
    receiver = receiving()
    config = config_of(receiver)
    found(sick, config)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    other = found(sick, config)
    assert (other.status, other.notice, other.owes) == ("unchanged", None, True)
    later = time.time() + 1_801
    with monkeypatch.context() as ahead:
        ahead.setattr("time.time", lambda: later)
        assert found(sick, config).notice is not None
    elsewhere = MessageQueue(tmp_path / "another machine" / "tracker-health" / "notices")
    assert elsewhere.deliver(config.notify, store_key(None), open_run, later).messages == 1
    first = MessageQueue(tmp_path / "state" / "tracker-health" / "notices")
    assert first.deliver(config.notify, store_key(None), open_run).messages == 0
    assert len(receiver.accepted) == 1


def test_a_run_that_cannot_be_marked_now_is_marked_later_and_said_once(sick, receiving, monkeypatch):
    receiver = receiving()
    config = config_of(receiver)
    found(sick, config)
    with monkeypatch.context() as broken:
        broken.setattr("tracker_health.stores.folder.directory.DirectoryRun.mark_notified", lambda *_: 1 / 0)
        assert delivering(config).messages == 1
    assert told_on(sick).due
    assert delivering(config).messages == 0
    assert told_on(sick).causes
    assert len(receiver.accepted) == 1


def test_a_damaged_memory_costs_nothing_but_what_was_in_it(sick, receiving, tmp_path):
    config = config_of(receiving())
    for content in (
        b"",
        b"{",
        b"[]",
        b'{"waiting": 3}',
        b"\xff",
        b'{"waiting": [{}], "sent": [], "pause": [], "seen": []}',
    ):
        (folder := tmp_path / "damaged").mkdir(exist_ok=True)
        (folder / "notices.json").write_bytes(content)
        box = MessageQueue(folder)
        assert not box.knows("x")
        box.remember("x")
        assert box.knows("x")
        assert box.deliver(config.notify, "s", open_run).messages == 0


def test_a_user_without_a_home_is_said_so_and_judged_all_the_same(monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(lambda _: (_ for _ in ()).throw(RuntimeError)))
    box = MessageQueue()
    assert not box.knows("x")
    done = message_queue.deliver_quietly(lambda: box.deliver(Notify(webhook="http://127.0.0.1/"), "s", open_run))
    assert "set XDG_STATE_HOME" in done.problem


# Sweeps of a database


def sweep_of(uri, name, config, **more):
    return Sweep(config=config, experiments=(name,), tracking_uri=uri, **more)


def swept(sweep):
    """One pass, as the command does it."""
    kinds = [one.kind for one in sweep.annotate(sweep.candidates())]
    return kinds, sweep.send_messages(whole=True)


@pytest.mark.exhaustive
def test_the_first_sweep_of_a_server_is_silent_and_what_fails_at_once_later_is_one_message(sqlite_uri, receiving):
    receiver = receiving()
    config = config_of(receiver)
    old, _ = make_runs(sqlite_uri, 2, sick=(0, 1))
    assert swept(sweep_of(sqlite_uri, old, config))[1].messages == 0
    name, runs = make_runs(sqlite_uri, 12, sick=range(12))
    done = [swept(sweep_of(sqlite_uri, name, config, workers=2))[1] for _ in range(2)]
    assert [one.messages for one in done] == [1, 0]
    assert [one.runs for one in done] == [12, 0]
    (sent,) = receiver.accepted
    assert sent["text"].startswith(f"FAIL 12 runs of {name}: ")
    assert all(told_on(run, sqlite_uri).causes for run in (runs[0], runs[11]))
    assert not swept(sweep_of(sqlite_uri, old, config))[1].messages


def test_two_sweeps_of_the_same_runs_say_it_once(sqlite_uri, receiving):
    receiver = receiving()
    config = config_of(receiver)
    MessageQueue().remember(store_key(sqlite_uri))
    name, _ = make_runs(sqlite_uri, 2, sick=(1,))
    one, other = (sweep_of(sqlite_uri, name, config) for _ in range(2))
    ahead = other.candidates()
    first = next(ahead)
    swept(one)
    list(other.annotate([first, *ahead]))
    other.send_messages(whole=True)
    assert len(receiver.accepted) == 1
    assert receiver.accepted[0]["text"].startswith(f"FAIL run 1 ({name})")


def test_who_judged_a_run_while_another_wrote_its_verdict_writes_none(
    sqlite_uri, receiving, writes, monkeypatch, tmp_path
):
    """Two hosts that share nothing but the server, with the second's look before all that the first does, or between
    its verdict and its message.
    """
    from tracker_health.runs import annotating

    judge, receiver = annotating.judge_run, receiving()
    config = config_of(receiver)
    here, there = (MessageQueue(tmp_path / host) for host in ("here", "there"))

    def deliver(queue):
        queue.deliver(config.notify, store_key(sqlite_uri), partial(open_run, tracking_uri=sqlite_uri))

    for sends_at_once in (True, False):
        _, (run,) = make_runs(sqlite_uri, 1, sick=(0,))

        def annotated(queue, run=run):
            outcome = annotate(run, config=config, notify=True, tracking_uri=sqlite_uri)
            queue.put([outcome.notice] if outcome.notice else [])

        def meanwhile(*arguments, sends_at_once=sends_at_once, **options):
            monkeypatch.setattr(annotating, "judge_run", judge)
            annotated(there)
            if sends_at_once:
                deliver(there)
            return judge(*arguments, **options)

        monkeypatch.setattr(annotating, "judge_run", meanwhile)
        receiver.accepted.clear()
        annotated(here)
        deliver(here)
        deliver(there)
        assert (len(receiver.accepted), writes[run]) == (1, 1), sends_at_once
        assert told_on(run, sqlite_uri).causes


def test_a_sweep_that_may_only_read_says_it_once_too(sqlite_uri, receiving, tmp_path):
    receiver = receiving()
    config = config_of(receiver)
    MessageQueue().remember(store_key(sqlite_uri))
    name, (run,) = make_runs(sqlite_uri, 1, sick=(0,))
    for _ in range(2):
        swept(sweep_of(sqlite_uri, name, config, report_to=tmp_path / "reports"))
    assert len(receiver.accepted) == 1
    with closing(open_run(run, tracking_uri=sqlite_uri)) as opened:
        assert opened.recorded() is None


def test_the_command_says_what_it_sent_and_a_dead_receiver_costs_no_exit_code(sqlite_uri, receiving, tmp_path):
    receiver = receiving(500, 200)
    settings = tmp_path / "health.toml"
    settings.write_text(f'[notify]\nwebhook = "{receiver.address}"\ncertainty = "possible"\n')
    MessageQueue().remember(store_key(sqlite_uri))
    name, _ = make_runs(sqlite_uri, 1, sick=(0,))
    arguments = ["sweep", "--config", str(settings), "--experiment", name, "--tracking-uri", sqlite_uri]
    first = CliRunner().invoke(cli, arguments)
    assert (first.exit_code, "the receiver answered 500; still waiting: 1" in first.stderr) == (0, True)
    assert receiver.address not in first.output
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert receiver.accepted == []  # it was asked a moment ago


# Beside a training


TRAINING = """
import math, sys, time
import tracker_health
tracker_health.autolog()
import mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment(sys.argv[2])
with mlflow.start_run() as run:
    print(run.info.run_id, flush=True)
    for step in range(60):
        mlflow.log_metric("train/loss", 2.0 if step < 30 else math.nan, step=step)
    begin = time.monotonic()
print("ended in", time.monotonic() - begin, flush=True)
"""


@pytest.mark.exhaustive
def test_a_training_is_not_held_up_by_a_receiver_that_hangs(sqlite_uri, receiving, tmp_path):
    """The judge's own message: it waits for others first, and a sweep that comes after that finds it is said."""
    receiver = receiving("hang", 200)
    (tmp_path / "tracker-health.toml").write_text(f'[notify]\nwebhook = "{receiver.address}"\ncertainty = "possible"\n')
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, sqlite_uri, "hooked"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run, said = done.stdout.split("\n")[:2]
    assert float(said.split()[-1]) < 2
    end = time.monotonic() + 90
    while receiver.asked < 1 and time.monotonic() < end:
        time.sleep(0.2)
    assert receiver.asked == 1
    assert told_on(run, sqlite_uri).due
    config = config_of(receiver)
    time.sleep(12)  # until the judge has given up and let go
    assert delivering(config, time.time() + 31, uri=sqlite_uri).messages == 1
    assert len(receiver.accepted) == 1


# Settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("webhook", "https://user:pw@example.com/x"),
        ("webhook", "https://example.com/x?key=1"),
        ("webhook", "ftp://example.com"),
        ("webhook_env", "https://hooks.example.com/secret"),
        ("token_env", "a secret"),
        ("template", "{"),
        ("on", "pass"),
        ("certainty", "sure"),
        ("include", ["all"]),
        ("mute", ["sweep/*"]),
        ("command", "rm"),
        ("other", "x"),
    ],
)
def test_a_wrong_setting_is_refused_without_the_secret_in_it(key, value):
    from tracker_health.settings.values import converted

    with pytest.raises(ConfigError) as caught:
        converted(f"notify.{key}", value)
    assert not [one for one in ("com/secret", "a secret", "pw@", "key=1") if one in str(caught.value)]


def test_the_settings_are_read_and_shown_without_the_webhooks_path(tmp_path, monkeypatch):
    from tracker_health.settings.sources import effective

    (tmp_path / "tracker-health.toml").write_text(
        '[notify]\nwebhook = "https://hooks.example.com/T0/B1"\nmute = ["experiment:sweep/*"]\non = "warn"\n'
    )
    found = effective({}, folder=tmp_path, environ={"TRACKER_HEALTH_SET": "notify.include=params,paths"})
    assert found.config.notify.mute == ("experiment:sweep/*",)
    assert found.config.notify.include == ("params", "paths")
    assert found.config.digest == preset("default").digest
    shown = found.described(everything=False)
    assert shown["notify.webhook"].value == "https://hooks.example.com/…"
    assert shown["notify.on"].value == "warn"


def test_an_override_has_no_receiver_of_its_own(tmp_path):
    from tracker_health.settings.sources import effective

    (tmp_path / "tracker-health.toml").write_text('[[overrides]]\nmatch = "experiment:x"\nnotify = {on = "warn"}\n')
    with pytest.raises(ConfigError):
        effective({}, folder=tmp_path, environ={})


def test_a_policy_may_have_a_receiver_but_no_command_from_an_address(tmp_path):
    from tracker_health.settings.policy import _parsed
    from tracker_health.settings.sources import effective

    policy = tmp_path / "policy.toml"
    policy.write_text('locked = ["notify"]\n[notify]\nwebhook = "https://hooks.example.com/x"\n')
    environ = {"TRACKER_HEALTH_POLICY": str(policy), "TRACKER_HEALTH_SET": "notify.webhook=https://other.example.com"}
    found = effective({}, folder=tmp_path, environ=environ)
    assert found.config.notify.webhook == "https://hooks.example.com/x"
    assert "notify.webhook is locked" in " ".join(found.warnings)
    content = b'[notify]\ncommand = ["rm", "-r", "x"]\n'
    assert _parsed(content, "/etc/policy.toml").layer["notify.command"].value == ("rm", "-r", "x")
    at_an_address = _parsed(content, "https://policies.example.com/policy.toml")
    assert (dict(at_an_address.layer), "notify.command" in at_an_address.remarks[0]) == ({}, True)


def test_every_key_is_on_the_page_and_every_key_there_exists():
    page = (Path(__file__).parent.parent.parent / "docs" / "notify.md").read_text()
    keys = {row.split("|")[1].strip().strip("`") for row in page.splitlines() if row.startswith("| `")}
    assert keys == {one.name for one in fields(Notify)}
