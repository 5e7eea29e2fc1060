"""A day on which not all goes well: runs of others under our names, runs that go on, names that are not there, and
annotators that die. What came of each, and with which exit code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli
from tracker_health.judge import messages
from tracker_health.runs.lookup import open_run

from ..receiver import Receiver  # noqa: TID252  tests are no package of a name
from ..wandb_server import Fault  # noqa: TID252
from .many_runs import make_runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures")]  # real servers

COMMANDS = ("check", "annotate", "report", "sweep", "summary", "diff", "clear", "doctor")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def told(*arguments, text=None):
    done = CliRunner().invoke(cli, [*map(str, arguments)], input=text)
    assert "Traceback" not in done.stderr
    return done


def logged(server, name, project="proj", losses=None, **more):
    """A finished run that is put into the server's store."""
    run = server.store.new_run("team", project, name)
    losses = [1.0 + 0.98**step for step in range(300)] if losses is None else losses
    run.history = [json.dumps({"_step": n, "_timestamp": 1.0 * n, "loss": loss}) for n, loss in enumerate(losses)]
    run.state, run.summary = "finished", {"loss": losses[-1]}
    for key, value in more.items():
        setattr(run, key, value)
    return run


@pytest.fixture
def project(wandb_server):
    """By name: runs that are annotated, go on, or have something of their owner's."""
    runs = {
        "good": logged(wandb_server, "good"),
        "theirs": logged(wandb_server, "theirs", summary={"loss": 1.0, "health/verdict": "good"}),
        "tagged": logged(wandb_server, "tagged", tags=["health:fail"]),
        "going": logged(wandb_server, "going", state="running"),
    }
    before = {name: (dict(run.summary), list(run.tags)) for name, run in runs.items()}
    yield before
    for name in ("theirs", "tagged", "going"):
        assert (runs[name].summary, runs[name].tags, runs[name].files) == (*before[name], {})
    assert not wandb_server.errors


WHY = {
    "theirs": "left alone: health/verdict in the summary of W&B run team/proj/theirs exists and is not ours; nothing was written",
    "tagged": "left alone: the tag health:fail of W&B run team/proj/tagged exists and is not ours; nothing was written",
    "going": "left alone: W&B run team/proj/going is still running: nothing was written",
}


def test_of_many_wandb_runs_those_of_others_and_those_that_go_on_are_left_alone(project):
    for _ in range(2):
        done = told("annotate", "--project", "team/proj")
        assert (done.exit_code, "try:" in done.stderr) == (0, False)
        assert sorted(line.strip() for line in done.stdout.splitlines() if "left alone" in line) == sorted(WHY.values())
    listed = told("annotate", "-", "--json", text="".join(f"wandb:team/proj/{name}\n" for name in project))
    assert listed.exit_code == 0
    assert sorted(listed.stderr.splitlines()) == sorted(
        f"tracker-health: wandb:team/proj/{name}: {why}" for name, why in WHY.items()
    )
    notes = {one["run"]["name"]: (one["notes"], one["errors"]) for one in map(json.loads, listed.stdout.splitlines())}
    assert {name: (notes[name][0][-1], notes[name][1]) for name in WHY} == {
        name: (why, []) for name, why in WHY.items()
    }
    assert told("annotate", "-q", "--project", "team/proj").stderr == ""


def test_a_verdict_that_is_asked_about_counts_though_its_run_is_left_alone(wandb_server):
    logged(wandb_server, "theirs", losses=[float("nan")] * 300, summary={"health/verdict": "good"})
    assert told("annotate", "--project", "team/proj").exit_code == 0
    assert told("annotate", "--project", "team/proj", "--fail-on", "fail").exit_code == 1


@pytest.mark.parametrize("name", WHY)
def test_one_run_that_was_named_and_left_alone_is_a_failure(project, name):
    done = told("annotate", f"wandb:team/proj/{name}", "--json")
    assert done.exit_code == 3
    why = WHY[name].removeprefix("left alone: ")
    assert f"tracker-health: {why}\n  try: " in done.stderr
    report = json.loads(done.stdout)
    assert [one["source"] for one in report["errors"]] == ["annotation"]
    assert why not in " ".join(report["notes"])


def test_a_sweep_leaves_them_alone_and_none_of_them_waits_for_a_verdict(project, tmp_path):
    stats = tmp_path / "passes.jsonl"
    done = told("sweep", "--project", "team/proj", "--stats", stats)
    assert done.exit_code == 0
    assert "swept 3 runs: 1 annotated, 0 unchanged, 0 taken, 2 left alone, 0 failed" in done.stderr
    assert sum(WHY["theirs"] in line for line in (done.stdout + done.stderr).splitlines()) == 1
    counted = json.loads(stats.read_text())
    assert [counted[key] for key in ("judged", "skipped", "errors", "oldest_unjudged")] == [1, 2, 0, None]


def test_clear_and_follow_have_nothing_to_complain_of(project):
    done = told("clear", "--project", "team/proj")
    assert (done.exit_code, done.stdout.count("nothing from tracker-health on it")) == (0, 4)
    for name in ("theirs", "tagged"):
        assert told("follow", f"wandb:team/proj/{name}").exit_code == 0


def test_a_run_that_goes_on_and_has_a_verdict_of_ours_is_not_cleared(wandb_server):
    run = logged(wandb_server, "resumed")
    assert told("annotate", "wandb:team/proj/resumed").exit_code == 0
    run.state = "running"
    done = told("clear", "--project", "team/proj")
    assert (done.exit_code, "is still running" in done.stderr) == (3, True)


def test_of_many_mlflow_runs_those_of_others_are_left_alone(sqlite_uri, tmp_path):
    import mlflow

    client, where = mlflow.MlflowClient(tracking_uri=sqlite_uri), ("--tracking-uri", sqlite_uri)
    name, (theirs, both, good) = make_runs(sqlite_uri, 3)
    for run in (theirs, both):
        client.set_tag(run, "health.verdict", "good")
    for command in ("annotate", "sweep"):
        done = told(command, "--experiment", name, *where)
        assert done.exit_code == 0
        assert (
            sum(f"left alone: the tag health.verdict of MLflow run {theirs}" in one for one in done.stdout.splitlines())
            == 1
        )
    assert client.get_run(good).data.tags["health.verdict"] == "pass"
    assert client.get_run(theirs).data.tags["health.verdict"] == "good"
    assert told("annotate", theirs, *where).exit_code == 3
    assert told("annotate", theirs, good, *where).exit_code == 0
    # What cannot be read is a failure whoever the verdict is of.
    (tmp_path / "optimizer.pt").write_bytes(b"no checkpoint at all")
    client.log_artifact(both, tmp_path / "optimizer.pt")
    for command in ("annotate", "sweep"):
        assert told(command, "--experiment", name, *where).exit_code == 3


def test_of_many_folders_those_of_others_are_left_alone(write_log, healthy_losses, tmp_path):
    theirs, good = (write_log(healthy_losses, folder=name) for name in ("theirs", "good"))
    Path(theirs, "health").mkdir()
    Path(theirs, "health", "mine").write_text("x")
    done = told("annotate", theirs, good)
    assert (done.exit_code, done.stdout.count("left alone: ")) == (0, 1)
    assert told("annotate", theirs).exit_code == 3
    assert [path.name for path in Path(theirs, "health").iterdir()] == ["mine"]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_not_there_is_an_error_that_says_so(wandb_server, sqlite_uri, command):
    logged(wandb_server, "good")
    for name, said in (
        ("team/proj/sweeps/NOPE", "there is no sweep NOPE in the W&B project team/proj"),
        ("team/nope", "there is no W&B project team/nope"),
        ("team/nope/sweeps/NOPE", "there is no W&B project team/nope"),
    ):
        done = told(command, "--project", name)
        assert (done.exit_code, said in done.output) == (3, True), done.output
    assert wandb_server.store.projects() == {("team", "proj")}
    done = told(command, "--experiment", "nope", "--tracking-uri", sqlite_uri)
    assert (done.exit_code, "there is no experiment" in done.output) == (3, True), done.output


def test_an_experiment_that_is_deleted_is_an_error_and_an_empty_one_is_not(sqlite_uri):
    import mlflow

    client, where = mlflow.MlflowClient(tracking_uri=sqlite_uri), ("--tracking-uri", sqlite_uri)
    (empty, _), (gone, _) = make_runs(sqlite_uri, 0), make_runs(sqlite_uri, 1)
    client.delete_experiment(client.get_experiment_by_name(gone).experiment_id)
    for command in ("annotate", "sweep", "summary", "clear"):
        assert told(command, "--experiment", empty, *where).exit_code == 0
        done = told(command, "--experiment", gone, *where)
        assert (done.exit_code, f"the experiment '{gone}' is deleted" in done.stderr) == (3, True)


def test_a_sweep_without_a_run_is_empty_and_no_error(wandb_server):
    logged(wandb_server, "good")
    wandb_server.store.sweeps.add(("team", "proj", "new"))
    assert told("sweep", "--project", "team/proj/sweeps/new").exit_code == 0


# Annotators that die

KILLED = [sys.executable, "-m", "tracker_health", "sweep", "--config", "th.toml"]
DIVERGED = [2.0 - 0.01 * step for step in range(60)] + [float("nan")] * 60


@pytest.fixture
def receiver(tmp_path):
    found = Receiver()
    Path(tmp_path, "th.toml").write_text(f'[notify]\nwebhook = "{found.address}"\ncertainty = "possible"\n')
    yield found
    found.close()


def ends_up_whole(receiver, monkeypatch, run, where, uri=None):
    """What the next sweeps make of a run whose annotator died: its whole verdict, and one message."""
    for lease in (messages.LEASE_SECONDS, 0, 0):
        monkeypatch.setattr(messages, "LEASE_SECONDS", lease)
        done = told("sweep", "--config", "th.toml", *where)
        assert done.exit_code == 0, done.stderr
        with closing(open_run(run, tracking_uri=uri)) as opened:
            recorded = opened.recorded()
        assert (recorded.verdict, recorded.is_whole) == ("fail", True)
    assert len(receiver.accepted) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_sweep_of_wandb_that_is_killed_at_any_change_is_finished_by_the_next(
    wandb_server, receiver, monkeypatch, tmp_path, nth, applied
):
    logged(wandb_server, "before")
    where = ("--project", "team/proj")
    assert told("sweep", "--config", "th.toml", *where).exit_code == 0  # the first of a server sends nothing
    logged(wandb_server, "abc", losses=DIVERGED)
    left = [nth]
    child = subprocess.Popen([*KILLED, *where], env=os.environ, cwd=tmp_path, stderr=subprocess.PIPE)

    def is_nth(request):
        left[0] -= request.writes
        return request.writes and left[0] == 0

    fault = Fault(is_nth, status=0 if applied else 500, action=lambda _: child.kill())
    with wandb_server.failing(fault), child:
        child.wait(120)
    assert child.returncode == -signal.SIGKILL
    ends_up_whole(receiver, monkeypatch, "wandb:team/proj/abc", where)


DYING = """
import os, signal, sys
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from tracker_health.cli import cli

left, applied = int(sys.argv.pop(1)), sys.argv.pop(1) == "True"

def dying(change):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0 and not applied:
            os.kill(os.getpid(), signal.SIGKILL)
        done = change(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call

for name in ("set_tag", "delete_tag", "log_batch", "log_metric"):
    setattr(SqlAlchemyStore, name, dying(getattr(SqlAlchemyStore, name)))
cli()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("nth", range(1, 7))
def test_a_sweep_of_a_database_that_is_killed_at_any_change_is_finished_by_the_next(
    sqlite_uri, receiver, monkeypatch, tmp_path, nth, applied
):
    name, _ = make_runs(sqlite_uri, 1)
    where = ("--experiment", name, "--tracking-uri", sqlite_uri)
    assert told("sweep", "--config", "th.toml", *where).exit_code == 0  # the first of a server sends nothing
    other, (run,) = make_runs(sqlite_uri, 1, sick={0})
    where = ("--experiment", other, "--tracking-uri", sqlite_uri)
    command = [sys.executable, "-c", DYING, str(nth), str(applied), "sweep", "--config", "th.toml", *where]
    child = subprocess.run(command, env=os.environ, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr
    ends_up_whole(receiver, monkeypatch, run, where, sqlite_uri)
