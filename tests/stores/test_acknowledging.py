"""ack, shadow and what an account may do, against servers in processes of their own, by commands in processes of theirs."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stores import mlflow_tags

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from tracker_health.cli import main; main()"]
CODES = ("LOS001", "RUN001")


def begun(*arguments, **more):
    """A command of ours, in a process of its own."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "TRACKER_HEALTH_PAGES": "never", **more}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def done(*arguments, **more):
    process = begun(*arguments, **more)
    out, error = process.communicate(timeout=180)
    return process.returncode, out, error


def at_once(*calls, **more):
    """Several commands, all of them under way before any has ended; their exit codes."""
    processes = [begun(*call, **more) for call in calls]
    outputs = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def sick_run(client, experiment):
    """A run whose loss is NaN from the middle on."""
    from mlflow.entities import Metric

    run_id = client.create_run(experiment).info.run_id
    losses = [2.3 * 0.97**step if step < 100 else math.nan for step in range(200)]
    client.log_batch(run_id, metrics=[Metric("loss", value, 1000 + step, step) for step, value in enumerate(losses)])
    client.set_terminated(run_id)
    return run_id


def tags_of(client, run_id):
    return mlflow_tags.ours(client.get_run(run_id).data.tags)


ANA = ("ack", "--because", "the data has this", "--who", "ana")
BEN = ("ack", "--wrong", "--because", "no, it has not", "--who", "ben")


@pytest.mark.exhaustive
def test_two_people_on_an_mlflow_server_at_once(server_uri, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(server_uri)
    experiment = client.create_experiment(f"answers {tmp_path.name}")
    run_id = sick_run(client, experiment)
    where = ("--tracking-uri", server_uri)
    assert done("annotate", run_id, *where)[0] == 0
    before = tags_of(client, run_id)
    assert (before["verdict"], before["open"], "ack" in before) == ("fail", "true", False)
    for code, _, error in at_once((*ANA, run_id, *where), (*BEN, run_id, *where)):
        assert (code, error) == (0, "")
    after = tags_of(client, run_id)
    assert len([name for name in after if name.startswith("ack.")]) == 2
    assert after["open"] == "false"
    assert after["ack"] == "acknowledged by ana, called wrong by ben"
    beside = before.keys() - {"open", "written"}
    assert {name: after[name] for name in beside} == {name: before[name] for name in beside}, "all beside it stays"
    assert done("check", run_id, *where)[0] == 0
    answered = "tags.`health.verdict` = 'fail' and tags.`health.open` = 'false'"
    assert [run.info.run_id for run in client.search_runs([experiment], answered)] == [run_id]
    labels = tmp_path / "labels.jsonl"
    code, out, _ = done("summary", "--experiment", experiment, *where, "--json", "--export", labels)
    rules = {one["code"]: one for one in json.loads(out)["precision"]["rules"]}
    assert code == 0
    assert (rules["LOS001"]["flagged"], rules["LOS001"]["wrong"], rules["LOS001"]["precision"]) == (1, 1, 0.0)
    (label,) = map(json.loads, labels.read_text().splitlines())
    assert Counter(one["who"] for one in label["acknowledged"]) == {"ana": 1, "ben": 1}
    client.log_metric(run_id, "loss", math.nan, step=200)
    assert done("check", run_id, *where)[0] == 1, "the run has gone on"
    assert done("annotate", run_id, *where)[0] == 0
    assert tags_of(client, run_id)["open"] == "true"


@contextmanager
def account(monkeypatch, name, password):
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_USERNAME", name)
        patch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        yield


@pytest.mark.exhaustive
def test_an_account_that_may_only_read(auth_server_uri, tmp_path, monkeypatch):
    """As the page on rolling it out says."""
    from mlflow import MlflowClient

    admin, reader = ("admin", "for the tests only"), ("reader", "also for the tests only")
    with account(monkeypatch, *admin):
        client = MlflowClient(auth_server_uri)
        name = f"read {tmp_path.name}"
        experiment = client.create_experiment(name)
        fresh, judged = sick_run(client, experiment), sick_run(client, experiment)
        where = ("--tracking-uri", auth_server_uri)
        assert done("annotate", judged, *where)[0] == 0
        assert done(*ANA, judged, *where)[0] == 0
        before = [client.get_run(run).data.tags for run in (fresh, judged)]
    reports = tmp_path / "reports"
    sweep = ("sweep", "--experiment", name, "--report-to", reports, *where)
    with account(monkeypatch, *reader):
        assert done("check", fresh, *where)[0] == 1
        assert done("check", judged, *where)[0] == 0, "what somebody acknowledged counts for everybody"
        code, out, _ = done("summary", "--experiment", name, *where, "--json")
        assert (code, json.loads(out)["verdicts"]["fail"]) == (0, 1)
        code, out, _ = done("clear", "--dry-run", "--experiment", name, *where)
        assert (code, "would go from 1 of 2 runs" in out) == (0, True)
        code, out, error = done(*sweep)
        assert (code, out.count("written below"), "2 annotated" in error) == (0, 2, True)
        code, out, error = done(*sweep)
        assert (code, out, "2 unchanged" in error) == (0, "", True)
        code, out, error = done("annotate", fresh, *where)
        assert (code, "FAIL" in out) == (3, True)
        assert done("annotate", "--shadow", fresh, *where)[0] == 0
        for refused in ((*BEN, judged), ("ack", judged, "--undo"), ("clear", judged), ("clear", "--acks", judged)):
            code, _, error = done(*refused, *where)
            assert code == 3, refused
            assert len(error.splitlines()) <= 2
    for run in (fresh, judged):
        report = json.loads((reports / f"mlflow-{run}" / "health" / "report.json").read_text())
        assert (report["run"]["id"], report["verdict"]) == (run, "fail")
    with account(monkeypatch, *admin):
        assert [client.get_run(run).data.tags for run in (fresh, judged)] == before


@pytest.mark.exhaustive
def test_a_sweep_in_shadow_writes_one_tag_once(server_uri, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(server_uri)
    name = f"shadow {tmp_path.name}"
    experiment = client.create_experiment(name)
    run_id = sick_run(client, experiment)
    sweep = ("sweep", "--shadow", "--experiment", name, "--fail-on", "fail", "--tracking-uri", server_uri)
    code, out, error = done(*sweep)
    assert (code, "only health.shadow was written" in out, "1 annotated" in error) == (0, True, True)
    tags = tags_of(client, run_id)
    assert tags.keys() == {"shadow"}
    assert tags["shadow"].startswith("fail LOS001 ")
    assert client.list_artifacts(run_id) == []
    assert not [metric for metric in client.get_run(run_id).data.metrics if metric.startswith("health")]
    code, out, error = done(*sweep)
    assert (code, "1 unchanged" in error) == (0, True)
    code, out, _ = done("summary", "--experiment", name, "--tracking-uri", server_uri)
    assert "in shadow only: 1 fail" in out
    code, _, error = done("sweep", "--experiment", name, "--tracking-uri", server_uri)
    assert "1 annotated" in error
    tags = tags_of(client, run_id)
    assert ("shadow" in tags, tags["verdict"]) == (False, "fail")


SERVE = """
import json, math, sys
from tests.wandb_server import WandbServer, READER
with WandbServer() as server:
    run = server.store.new_run("team", "proj", "sick")
    losses = [2.3 * 0.97**step if step < 100 else "NaN" for step in range(200)]
    rows = [{"_step": step, "_timestamp": 1000.0 + step, "loss": loss} for step, loss in enumerate(losses)]
    run.history, run.summary, run.state = list(map(json.dumps, rows)), dict(rows[-1]), "finished"
    print(json.dumps([server.environment(sys.argv[1]), READER]), flush=True)
    for line in sys.stdin:
        print(json.dumps([run.tags, run.summary, sorted(run.files), server.errors]), flush=True)
"""


@pytest.fixture
def wandb_elsewhere(tmp_path):
    """The W&B server of the tests in a process of its own: the environment of its clients, a reader's key, and a look
    at its one run: tags, summary, files.
    """
    pytest.importorskip("wandb")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    environment, reader = json.loads(process.stdout.readline())

    def look():
        process.stdin.write("look\n")
        process.stdin.flush()
        tags, summary, files, errors = json.loads(process.stdout.readline())
        return tags, summary, files, errors

    yield {**environment, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}, reader, look
    process.communicate(timeout=20)


@pytest.mark.exhaustive
@pytest.mark.parametrize("machines", [1, 2])
def test_two_people_on_a_wandb_server_at_once(wandb_elsewhere, tmp_path, machines):
    environment, reader, look = wandb_elsewhere
    run = "wandb:team/proj/sick"
    assert done("annotate", "--shadow", run, **environment)[0] == 0
    tags, summary, files, _ = look()
    assert (tags, files) == ([], [])
    assert [key for key in summary if key.startswith("health/")] == ["health/shadow"]
    assert done("annotate", run, **environment)[0] == 0
    before = look()
    assert (before[1]["health/open"], "health/shadow" in before[1]) == ("true", False)
    for refused in ((*ANA, run), ("clear", run)):
        code, _, error = done(*refused, **{**environment, "WANDB_API_KEY": reader})
        assert (code, len(error.splitlines()) <= 2) == (3, True)
    assert look()[:3] == before[:3]
    people = [begun(*ANA, run, **environment)]
    elsewhere = environment if machines == 1 else {**environment, "XDG_RUNTIME_DIR": str(tmp_path / "another")}
    people.append(begun(*BEN, run, **elsewhere))
    for process in people:
        _, error = process.communicate(timeout=300)
        assert (process.returncode, error) == (0, "")
    tags, summary, files, _ = look()
    assert sorted(tags) == ["health:ack", "health:fail"]
    assert summary["health/open"] == "false"
    assert summary["health/ack"] == "acknowledged by ana, called wrong by ben"
    assert sorted(one["who"] for one in summary["health/acks"]) == ["ana", "ben"]
    assert len([name for name in files if name.startswith("health/acks/")]) == 2
    assert summary["health/verdict"] == "fail"
    assert summary["health/severity"] == 3.0
    assert done("check", run, **{**environment, "WANDB_API_KEY": reader})[0] == 0
    code, out, _ = done("annotate", run, **environment)
    assert "unchanged" in out, "an acknowledgement is no reason to judge again"
    code, out, _ = done("summary", "--project", "team/proj", "--json", **environment)
    assert json.loads(out)["precision"]["rules"][0]["wrong"] == 1
    code, out, _ = done("clear", run, **environment)
    assert (code, "2 acknowledgements kept" in out) == (0, True)
    assert look()[0] == []
    assert done("clear", "--acks", run, **environment)[0] == 0
    tags, summary, files, errors = look()
    assert (tags, files, [key for key in summary if key.startswith("health/")]) == ([], [], [])
    assert [one for one in errors if "permission denied" not in one] == []
