"""Runs of a W&B server, end to end: the real SDK logs, our command line annotates, a fresh ``wandb.Api`` looks."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import tracker_health as th
from tracker_health.api import runs_of_project
from tracker_health.errors import RunNotFound, StoreRefused, StoreUnavailable, WriteError
from tracker_health.evidence import Part, Request
from tracker_health.roles import RolePlan
from tracker_health.runs.lookup import open_model
from tracker_health.stores.remote import deadline
from tracker_health.stores.wandb import connection, online, online_files, online_history
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.project import tagged_runs
from tracker_health.testing.stores.answers import FAIL, REQUEST, SHADOW
from tracker_health.words.verdict import Verdict

from ..wandb_server import READER, Fault  # noqa: TID252  tests are no package of a name
from ..wandb_server.store import Blob  # noqa: TID252

pytestmark = pytest.mark.slow

TRAINING = """
import math, os, wandb
run = wandb.init(project="proj", id="abc", name="my run", config={"lr": 0.1, "model": {"depth": 3}}, tags=["mine"],
                 notes="My own words.")
for step in range(300):
    run.log({"train/loss": 2.0 - 0.005 * step if step < 250 else float("nan"), "train/global_step": 10 * step, "gpu": 1})
with open("readme.txt", "w") as file:
    file.write("mine")
artifact = wandb.Artifact("data", type="dataset")
artifact.add_file("readme.txt")
run.log_artifact(artifact)
run.save("readme.txt")
run.finish()
"""

LOOKING = """
import json, wandb
run = wandb.Api().run("team/proj/abc")
print(json.dumps({
    "state": run.state, "config": run.config, "tags": run.tags, "notes": run.notes, "name": run.name,
    "summary": run.summary_metrics, "rows": len(list(run.scan_history())),
    "files": {file.name: file.size for file in run.files()}, "artifacts": [one.name for one in run.logged_artifacts()],
}))
"""


OUR_FILES = {"health/report.json", "media/images/health/loss.png", "media/html/health/report.html"}


@pytest.fixture
def environment(wandb_server, tmp_path):
    return os.environ | wandb_server.environment(tmp_path) | {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}


def python(environment, tmp_path, *arguments, code=0, **more):
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment | more,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def command(environment, tmp_path, *arguments, code=0, **more):
    done = python(environment, tmp_path, "-m", "tracker_health", *arguments, code=code, **more)
    assert "Traceback" not in done.stderr
    return done


def logged(server, name="abc", losses=None, **more):
    """A finished run, put into the server's store."""
    run = server.store.new_run("team", "proj", name)
    losses = [1.0 + 0.98**step for step in range(300)] if losses is None else losses
    run.history = [json.dumps({"_step": n, "_timestamp": 1.0 * n, "loss": loss}) for n, loss in enumerate(losses)]
    run.state, run.tags, run.notes, run.config = "finished", ["mine"], "My own words.", {"lr": {"value": 0.1}}
    run.summary = {"loss": losses[-1] if losses else None, "best": "mine"}
    for key, value in more.items():
        setattr(run, key, value)
    return run


def names(listed):
    return [str(one) for one in listed]


def upserts(server):
    return [given["input"] for request in server.requests for name, given in request.calls if name == "upsertBucket"]


def test_a_verdict_on_a_run_of_the_sdk_and_its_owners_things_unharmed(wandb_server, environment, tmp_path):
    python(environment, tmp_path, "-c", TRAINING)
    before = json.loads(python(environment, tmp_path, "-c", LOOKING).stdout)
    started = len(wandb_server.requests)
    done = command(environment, tmp_path, "annotate", "wandb:proj/abc", "--json")
    report = json.loads(done.stdout)
    assert (report["verdict"], report["run"]["store"], report["run"]["id"]) == ("fail", "wandb", "team/proj/abc")
    assert report["run"]["url"] == f"{wandb_server.url}/team/proj/runs/abc"
    assert done.stderr == ""
    after = json.loads(python(environment, tmp_path, "-c", LOOKING).stdout)
    ours = {key: value for key, value in after["summary"].items() if key.startswith("health/")}
    assert (ours["health/verdict"], ours["health/codes"]) == ("fail", "LOS001")
    assert after["tags"] == ["health:fail", "mine"]
    page = ours["health/report"]
    assert after["files"][page["path"]] == page["size"]
    picture = ours["health/picture"]
    assert (picture["_type"], after["files"][picture["path"]]) == ("image-file", picture["size"])
    assert after["files"].keys() >= OUR_FILES
    theirs = {**after, "tags": ["mine"]}
    theirs["summary"] = {key: value for key, value in after["summary"].items() if key not in ours}
    theirs["files"] = {name: size for name, size in after["files"].items() if "health/" not in name}
    assert theirs == before
    written = [one for request in wandb_server.requests[started:] for one in request.calls if request.is_mutation]
    for name, given in written:
        assert name in ("upsertBucket", "createRunFiles", "markRunFilesUploaded")
        if name == "upsertBucket":
            assert given["input"].keys() <= {"id", "tags", "summaryMetrics"}
    assert not [request for request in wandb_server.requests[started:] if request.path.endswith("file_stream")]
    command(environment, tmp_path, "clear", f"{wandb_server.url}/team/proj/runs/abc")
    assert json.loads(python(environment, tmp_path, "-c", LOOKING).stdout) == before


def test_histories_are_complete_and_in_the_steps_of_the_trainer(wandb_server):
    run = logged(wandb_server)
    run.history = [
        json.dumps({"_step": n, "train/loss": "NaN" if n == 7 else 1.0 * n, "train/global_step": 10 * n, "gpu": n})
        for n in range(2600)
    ]
    with_counter = series_of("wandb:team/proj/abc")
    assert with_counter.steps.tolist() == [10 * n for n in range(2600)]
    assert with_counter.values[8:].tolist() == [1.0 * n for n in range(8, 2600)]
    assert with_counter.values[7] != with_counter.values[7]


@pytest.mark.parametrize("many", [online_history._MANY_VALUES, 100])
def test_metrics_that_were_logged_at_different_steps_keep_all_their_points(wandb_server, monkeypatch, many):
    monkeypatch.setattr(online_history, "_MANY_VALUES", many)
    run = logged(wandb_server)
    more = {f"gpu{one}": 1 for one in range(9)}
    loss = [{"train/loss": 1.0} if n % 3 else {"val/loss": 2.0} for n in range(1500)]
    rows = [{"_step": n, "_timestamp": 1.0 * n, **more, **loss[n]} for n in range(1500)]
    run.history = [json.dumps(row) for row in rows]
    with closing_run("wandb:team/proj/abc") as opened:
        evidence = opened.read(Request(roles=RolePlan(), parts=frozenset()))
    found = {one.name: one.steps.tolist() for one in evidence.series}
    assert found == {
        "train/loss": [n for n in range(1500) if n % 3],
        "val/loss": [n for n in range(1500) if n % 3 == 0],
    }


def test_steps_far_apart_cost_no_request_each(wandb_server):
    run = logged(wandb_server)
    run.history = [json.dumps({"_step": 50_000 * n, "loss": 2.0 + n % 7}) for n in range(400)]
    assert series_of("wandb:team/proj/abc").values.tolist() == [2.0 + n % 7 for n in range(400)]
    assert len(wandb_server.requests) < 20


def series_of(name):
    with closing_run(name) as opened:
        evidence = opened.read(Request(roles=RolePlan(), parts=frozenset()))
    return evidence.first("train_loss")


def closing_run(name):
    return closing(th.open_run(name))


@pytest.mark.exhaustive
def test_ten_annotations_in_a_row_leave_one(wandb_server):
    run = logged(wandb_server)
    before = (run.notes, run.config, run.state, list(run.history))
    for number in range(10):
        run.history[-1] = json.dumps({"_step": 299, "loss": "NaN" if number % 2 else 1.0})
        outcome = th.annotate("wandb:team/proj/abc", force=True)
        verdicts = [tag for tag in run.tags if tag.startswith("health:")]
        assert (verdicts, outcome.status) == ([f"health:{outcome.report.verdict}"], "written")
    assert run.tags[0] == "mine"
    assert run.summary["best"] == "mine"
    assert (run.notes, run.config, run.state, len(run.history)) == (*before[:3], 300)


@pytest.mark.exhaustive
def test_where_to_see_it_is_told(wandb_server, environment, tmp_path):
    for name in ("a", "b", "c", "d", "e", "with space"):
        logged(wandb_server, name)
    done = command(environment, tmp_path, "annotate", "wandb:proj/with space")
    assert done.stderr == f"the run: {wandb_server.url}/team/proj/runs/with%20space\n"
    assert command(environment, tmp_path, "annotate", "wandb:proj/with space").stderr == ""
    done = command(environment, tmp_path, "annotate", "--force", "--project", "proj")
    assert done.stderr.splitlines()[-1] == f"the project's runs: {wandb_server.url}/team/proj/table"


def test_an_annotation_that_holds_is_not_written_again(wandb_server):
    logged(wandb_server)
    th.annotate("wandb:team/proj/abc")
    written = len(wandb_server.written())
    assert th.annotate("wandb:proj/abc").status == "unchanged"
    assert len(wandb_server.written()) == written


def test_a_verdict_whose_tag_was_edited_is_put_right(wandb_server):
    run = logged(wandb_server)
    verdict = th.annotate("wandb:team/proj/abc").report.verdict
    run.tags = ["mine", "health:fail", "health:warn"]
    assert th.annotate("wandb:team/proj/abc").status == "written"
    assert run.tags == ["mine", f"health:{verdict}"]


def test_the_mark_of_a_run_that_went_wrong_goes_with_the_verdict(wandb_server):
    run = logged(wandb_server, tags=["mine", "health:live-fail"])
    verdict = th.annotate("wandb:team/proj/abc").report.verdict
    assert run.tags == ["mine", f"health:{verdict}"]


def test_clear_takes_the_mark_off_a_run_without_a_verdict(wandb_server):
    run = logged(wandb_server, tags=["mine", "health:live-warn"])
    assert th.clear_annotations("wandb:team/proj/abc").found
    assert run.tags == ["mine"]
    assert not th.clear_annotations("wandb:team/proj/abc").found


def test_two_at_once_leave_one_verdict_and_lose_nothing(wandb_server, environment, tmp_path):
    run = logged(wandb_server)
    results = []

    def annotate(folder):
        done = subprocess.run(
            [sys.executable, "-m", "tracker_health", "annotate", "--force", "wandb:team/proj/abc"],
            env=environment | {"XDG_RUNTIME_DIR": str(tmp_path / folder)},  # as on two machines
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        results.append((done.returncode, done.stderr))

    threads = [threading.Thread(target=annotate, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(code == 0 or "another annotator is at work" in said for code, said in results), results
    outcome = th.annotate("wandb:team/proj/abc")
    assert outcome.status in ("written", "unchanged")
    assert run.tags == ["mine", f"health:{outcome.report.verdict}"]
    assert (run.summary["best"], run.notes, run.state) == ("mine", "My own words.", "finished")


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("late", [2, 9], ids=["for a moment", "for long"])
def test_a_server_that_gives_what_was_there_before(wandb_server, monkeypatch, late, judged):
    """As one that reads from a copy of its database. That is no other annotator, and what was answered counts."""
    monkeypatch.setattr(online, "_LAG_PAUSES", (0, 0, 0))
    run = logged(wandb_server)
    if judged:
        th.annotate("wandb:team/proj/abc")
    read, change = connection.Connection.run, connection.Connection.change
    old, first = [], [read(connection.connect(), Address("team", "proj", "abc"), own_files=True)]

    def change_late(self, *arguments, **values):
        change(self, *arguments, **values)
        old[:] = first * late

    def run_late(self, *arguments, **options):
        return old.pop() if old else read(self, *arguments, **options)

    monkeypatch.setattr(connection.Connection, "change", change_late)
    monkeypatch.setattr(connection.Connection, "run", run_late)
    (outcome,) = th.annotate_many(["wandb:team/proj/abc"], force=True)
    assert outcome.status == "written"
    assert run.tags == ["mine", "health:pass"]
    assert sorted(run.files) == ["health/report.json"]


def test_what_its_owner_changes_meanwhile_is_kept(wandb_server):
    """The notes and the configuration are in no request of ours, and tags are read right before they are sent."""
    run = logged(wandb_server)

    def edit(_):
        run.notes, run.config = "New words.", {"lr": {"value": 0.2}}
        run.tags = [*run.tags, "late"] if "late" not in run.tags else run.tags

    with wandb_server.failing(Fault(lambda one: one.operation == "CreateRunFiles", action=edit)):
        th.annotate("wandb:team/proj/abc")
    assert (run.notes, run.config["lr"]["value"]) == ("New words.", 0.2)
    assert sorted(run.tags)[1:] == ["late", "mine"]


def test_a_run_that_goes_on_is_judged_and_not_written(wandb_server):
    run = logged(wandb_server, state="running")
    assert th.check("wandb:team/proj/abc").is_healthy_so_far
    with pytest.raises(WriteError, match="is still running: nothing was written"):
        th.annotate("wandb:team/proj/abc")
    run.heartbeat = "2020-01-01T00:00:00Z"
    assert th.annotate("wandb:team/proj/abc").status == "written"
    assert run.state == "running"


TRACEBACK = b'step 1\nTraceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: mine\n'


@pytest.mark.parametrize(
    ("state", "silent", "how"),
    [("finished", 0, "finished"), ("failed", 0, "failed"), ("running", 30, "running"), ("running", 300, "failed")],
)
def test_an_exception_that_was_printed_ended_only_what_is_over(wandb_server, state, silent, how):
    """W&B calls a run finished that left with code 0: what it printed was caught."""
    heartbeat = (datetime.now(UTC) - timedelta(seconds=silent)).isoformat()
    run = logged(wandb_server, state=state, heartbeat=heartbeat)
    run.files["output.log"] = Blob(TRACEBACK)
    assert th.check("wandb:team/proj/abc").ended == how


@pytest.mark.parametrize("tag", ["health:fail", "health:pass"])
def test_a_tag_of_its_owners_that_says_a_verdict_is_in_the_way(wandb_server, tag):
    run = logged(wandb_server, tags=["mine", tag])
    with pytest.raises(WriteError, match=f"the tag {tag} of W&B run team/proj/abc exists and is not ours"):
        th.annotate("wandb:team/proj/abc")
    assert (run.tags, run.files) == (["mine", tag], {})


def test_a_key_of_its_owners_stays_and_is_told(wandb_server):
    run = logged(wandb_server)
    run.summary["health/severity"] = "of the patients"
    outcome = th.annotate("wandb:team/proj/abc")
    assert outcome.omitted == ("health/severity in the summary (the run has one of its own)",)
    assert run.summary["health/severity"] == "of the patients"
    th.clear_annotations("wandb:team/proj/abc")
    assert run.summary == {"loss": pytest.approx(1.0 + 0.98**299), "best": "mine", "health/severity": "of the patients"}


def test_a_resumed_run_that_lost_its_summary_is_annotated_again(wandb_server):
    run = logged(wandb_server)
    th.annotate("wandb:team/proj/abc")
    run.summary = {"loss": 1.0}
    assert th.annotate("wandb:team/proj/abc").status == "written"
    assert len([tag for tag in run.tags if tag.startswith("health:")]) == 1
    th.clear_annotations("wandb:team/proj/abc")
    assert (run.tags, run.summary, run.files) == (["mine"], {"loss": 1.0}, {})


# Files


@pytest.mark.exhaustive
def test_a_checkpoint_of_an_artifact_is_read_and_not_kept(wandb_server, environment, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    parameter = torch.nn.Parameter(torch.ones(40, 8))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(40, 8)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    logging = """
import wandb
run = wandb.init(project="proj", id="abc")
run.log({"train/loss": 1.0})
artifact = wandb.Artifact("checkpoint-abc", type="model")
artifact.add_file("optimizer.pt", "checkpoint-1/optimizer.pt")
run.log_artifact(artifact)
run.finish()
"""
    python(environment, tmp_path, "-c", logging)
    with closing_run("wandb:team/proj/abc") as opened:
        request = Request(roles=RolePlan(), parts=frozenset({Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS}))
        first = opened.fingerprint(request)
        evidence = opened.read(request)
        folder = opened._files._downloads._folder.name
    assert evidence.problems == ()
    assert evidence.optimizer.source == "checkpoint-abc/v0/checkpoint-1/optimizer.pt"
    assert not Path(folder).exists()
    with closing_run("wandb:team/proj/abc") as opened:
        assert opened.fingerprint(request) == first
        limited = opened.read(Request(roles=RolePlan(), parts=request.parts, max_download=100))
    assert limited.optimizer is None
    assert "above the limit of 100 bytes" in limited.missing[Part.OPTIMIZER_STATE]


@pytest.mark.parametrize("one_address", [False, True], ids=["two addresses", "one address"])
def test_a_reference_is_known_by_the_manifest_and_never_followed(
    wandb_server, environment, tmp_path, monkeypatch, one_address
):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    wandb_server.store.one_address = one_address
    elsewhere = f"{wandb_server.url}/storage/elsewhere/model.safetensors"
    logging = f"""
import numpy, wandb
from safetensors.numpy import save_file
save_file({{"layer.weight": numpy.ones((40, 8), "float32")}}, "model.safetensors")
run = wandb.init(project="proj", id="abc")
run.log({{"train/loss": 1.0}})
artifact = wandb.Artifact("net", type="model")
artifact.add_file("model.safetensors", "first/model.safetensors")
artifact.add_reference("{elsewhere}", "second/model.safetensors", checksum=False)
run.log_artifact(artifact)
run.finish()
"""
    python(environment, tmp_path, "-c", logging)
    wandb_server.requests.clear()
    with closing_run("wandb:team/proj/abc") as opened:
        assert [file.path for file in opened._files.files] == ["net/v0/first/model.safetensors"]
        evidence = opened.read(Request(roles=RolePlan(), parts=frozenset({Part.WEIGHTS})))
        shelf = opened.saved(Request(roles=RolePlan(), parts=frozenset()))
        assert "wandb:team/proj/net:v0" in [one.path for one in shelf.listed]
    assert evidence.problems == ()
    assert evidence.weights is not None
    assert not [one.path for one in wandb_server.requests if "elsewhere" in one.path]
    with closing(open_model("wandb:team/proj/net:v0")) as model:
        found = model.files(Request(roles=RolePlan(), parts=frozenset({Part.WEIGHTS})))
        assert found.weights is not None
    assert not wandb_server.errors


@pytest.mark.parametrize(
    "content", [b"<html>", b"[]", b'{"contents": 3}', b'{"contents": {"a": 1}}', b"[" * 10**6, b" " * 3 * 10**6]
)
def test_a_manifest_that_is_none_is_said(wandb_server, monkeypatch, content):
    monkeypatch.setattr(online_files, "MOST_ANSWER_BYTES", 2 * 10**6)
    wandb_server.store.one_address = True
    run = logged(wandb_server)
    artifact = wandb_server.store.new_artifact(run, "model", "net", "0" * 32, ["latest"])
    entries = {"contents": {"model.safetensors": {"digest": "AAAA", "size": 8}}}
    artifact.manifest, artifact.state = Blob(json.dumps(entries).encode()), "COMMITTED"
    fault = Fault(lambda one: "/storage/manifest/" in one.path, status=200, body=content)
    with wandb_server.failing(fault), closing_run("wandb:team/proj/abc") as opened:
        why = "it is larger than 2.0 MB" if len(content) > 2 * 10**6 else "it is no list of files"
        assert opened._files.problem == f"what the artifact net:v0 lists could not be read: {why}"


def test_logs_among_the_files_are_read_where_no_loss_was_logged(wandb_server):
    run = logged(wandb_server, losses=[])
    rows = [json.dumps({"step": n, "loss": 2.0 - 0.01 * n}) for n in range(100)]
    run.files = {"train.jsonl": Blob("\n".join(rows).encode()), "wandb-events.jsonl": Blob(b'{"step": 1, "loss": 9}')}
    (series,) = series_at("wandb:team/proj/abc")
    assert (series.source, len(series)) == ("train.jsonl", 100)


def series_at(name):
    with closing_run(name) as opened:
        return opened.read(Request(roles=RolePlan(), parts=frozenset())).series


def test_of_a_large_checkpoint_only_the_needed_parts_are_fetched(wandb_server, tmp_path):
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(1000, 250))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(1000, 250)
    optimizer.step()
    path = tmp_path / "last.ckpt"
    state = {"weights": torch.ones(3000, 1000), "optimizer_states": [optimizer.state_dict()], "state_dict": {}}
    torch.save({**state, "pytorch-lightning_version": "2.4.0", "global_step": 1, "epoch": 0}, path)
    logged(wandb_server).files = {"last.ckpt": Blob(path.read_bytes())}
    parts = frozenset({Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS})
    with closing_run("wandb:team/proj/abc") as opened:
        evidence = opened.read(Request(roles=RolePlan(), parts=parts, max_download=4 * 10**6))
    assert evidence.problems == ()
    assert evidence.optimizer.source == "last.ckpt"
    assert path.stat().st_size > 12 * 10**6


# Batches


@pytest.mark.exhaustive
def test_the_runs_of_a_project_by_a_filter(wandb_server, environment, tmp_path):
    runs = [logged(wandb_server, name, tags=[name]) for name in ("a", "b", "c")]
    where = json.dumps({"tags": {"$in": ["a", "c"]}})
    done = command(environment, tmp_path, "annotate", "--project", "team/proj", "--where", where, "--json")
    assert {json.loads(line)["run"]["id"] for line in done.stdout.splitlines()} == {"team/proj/c", "team/proj/a"}
    assert [bool(run.files) for run in runs] == [True, False, True]
    written = len(wandb_server.written())
    again = command(environment, tmp_path, "annotate", "--project", "team/proj", "--where", where)
    assert len(wandb_server.written()) == written
    assert again.stdout.count("unchanged") == 2
    found = json.dumps({"summary_metrics.health/verdict": "pass"})
    assert names(runs_of_project("proj", where=found)) == ["wandb:team/proj/c", "wandb:team/proj/a"]
    page = tmp_path / "all.html"
    command(environment, tmp_path, "report", "--project", "proj", "-o", str(page))
    assert "Project proj" in page.read_text()
    command(environment, tmp_path, "clear", "--project", "team/proj")
    assert [run.files for run in runs] == [{}, {}, {}]


def test_the_runs_of_a_sweep(wandb_server):
    for name, sweep in {"a": "s1", "b": "s2", "c": "s1", "d": None}.items():
        logged(wandb_server, name, sweep=sweep)
    assert names(runs_of_project("team/proj/sweeps/s1")) == ["wandb:team/proj/c", "wandb:team/proj/a"]
    page = f"{wandb_server.url}/team/proj/sweeps/s1?nw=x"
    assert list(runs_of_project(page, where='{"display_name": "a"}')) == []
    assert [one.report.verdict for one in th.annotate_many(runs_of_project(page))] == [Verdict.PASS] * 2
    assert "health:pass" not in wandb_server.store.run("team", "proj", "b").tags


@pytest.mark.exhaustive
def test_a_sweep_of_a_project_and_its_summary(wandb_server, environment, tmp_path):
    now = datetime.now(UTC)
    heard = {
        name: (now - timedelta(hours=hours)).isoformat() for name, hours in (("dead", 9), ("alive", 1), ("old", 999))
    }
    logged(wandb_server, "done", heartbeat=now.isoformat())
    logged(wandb_server, "sick", [1.0 + 0.95**step for step in range(50)] + ["NaN"] * 50, heartbeat=now.isoformat())
    logged(wandb_server, "dead", state="running", heartbeat=heard["dead"])
    logged(wandb_server, "alive", state="running", heartbeat=heard["alive"])
    logged(wandb_server, "old", heartbeat=heard["old"])
    first = command(environment, tmp_path, "sweep", "--project", "team/proj", "--json")
    found = {one["run"]["id"]: one["verdict"] for one in map(json.loads, first.stdout.splitlines())}
    assert found == {"team/proj/done": "pass", "team/proj/sick": "fail", "team/proj/dead": "warn"}
    again = command(environment, tmp_path, "sweep", "--project", "team/proj", "--dry-run")
    assert again.stdout == "would read at most 0 bytes of files, write 0 runs\n"
    compared = command(environment, tmp_path, "diff", "--project", "team/proj")
    assert "compared 3 runs: 0 would change" in compared.stderr
    compared = command(environment, tmp_path, "diff", "--project", "team/proj", "--ignore", "LOS001", "--json")
    changes = {one["run"]["id"]: (one["before"], one["after"]) for one in map(json.loads, compared.stdout.splitlines())}
    assert changes == {"team/proj/sick": ("fail", "pass")}
    counted = json.loads(command(environment, tmp_path, "summary", "--project", "proj", "--json").stdout)
    assert counted["verdicts"] == {"fail": 1, "error": 0, "warn": 1, "pass": 1, "skip": 0, "none": 2}
    assert {one["code"] for one in counted["reasons"]} == {"LOS001", "RUN003"}
    assert {one["run"]["id"] for one in counted["worst"]} == {"team/proj/sick", "team/proj/dead"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--project", "nowhere"], "there is no W&B project team/nowhere"),
        (["--project", "proj", "--where", "tags = 'x'"], "is no JSON"),
        (["--project", "proj", "--where", "[1]"], "is no JSON object"),
        (["--project", "proj", "--experiment", "x"], "an experiment is of MLflow and a project of W&B"),
        (["--where", "{}"], "--where filters the runs of an experiment or a project"),
    ],
)
def test_a_batch_that_cannot_be_is_told(wandb_server, environment, tmp_path, arguments, said):
    logged(wandb_server)
    code = 3 if "nowhere" in arguments else 2
    assert said in command(environment, tmp_path, "annotate", *arguments, code=code).stderr


# What goes wrong


def failing(server, monkeypatch, patience=3, **fault):
    monkeypatch.setattr(connection, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(deadline, "_answered", {})
    monkeypatch.setattr(deadline, "_slow", {})
    monkeypatch.setattr(deadline, "_silent", {})
    return server.failing(Fault(**fault))


def operation(*names):
    return lambda request: request.operation in names


@pytest.mark.parametrize("status", [429, 503])
def test_a_request_that_is_turned_away_is_sent_again(wandb_server, monkeypatch, status):
    logged(wandb_server)
    headers = {"Retry-After": "1"}
    with failing(
        wandb_server, monkeypatch, 20, applies=operation("Run", "UpsertBucket"), status=status, headers=headers, times=2
    ):
        assert th.annotate("wandb:team/proj/abc").status == "written"
    assert len([one for one in wandb_server.requests if one.operation == "Run"]) >= 5


@pytest.mark.exhaustive
def test_a_server_that_counts_requests_is_left_alone_as_long_as_it_says(wandb_server, monkeypatch):
    """429 until the count begins anew, longer than the SDK goes on asking."""
    logged(wandb_server)
    start, asked = time.monotonic(), []

    def is_too_early(request):
        asked.append(time.monotonic() - start)
        return request.operation in {"Run", "Viewer"} and asked[-1] < 12

    headers = {"RateLimit-Reset": "9", "RateLimit-Remaining": "0"}
    with failing(wandb_server, monkeypatch, 3, applies=is_too_early, status=429, headers=headers):
        assert th.check("wandb:team/proj/abc").verdict is Verdict.PASS
    assert max(after - before for before, after in pairwise(asked)) >= 9


@pytest.mark.parametrize(("status", "said"), [(429, "the server answers 429"), (503, "the server answers 503")])
@pytest.mark.exhaustive
def test_a_server_that_turns_everything_away_is_given_up(wandb_server, monkeypatch, status, said):
    logged(wandb_server)
    start = time.monotonic()
    fault = failing(wandb_server, monkeypatch, applies=lambda _: True, status=status, headers={"Retry-After": "1"})
    with fault, pytest.raises(StoreUnavailable, match=said) as caught:
        th.check("wandb:team/proj/abc")
    assert time.monotonic() - start < 60
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_server_that_hangs_is_given_up_and_not_asked_again_for_a_while(wandb_server, monkeypatch):
    monkeypatch.setattr("tracker_health.stores.wandb.server.ANSWER_SECONDS", 1)
    logged(wandb_server)
    with failing(wandb_server, monkeypatch, applies=lambda _: True, hang=60):
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            th.check("wandb:team/proj/abc")
        asked = len(wandb_server.requests)
        with pytest.raises(StoreUnavailable, match="a moment ago; it was not asked again"):
            th.check("wandb:team/proj/abc")
        assert len(wandb_server.requests) == asked


@pytest.mark.parametrize("names", [(), ("Run",), ("UpsertBucket",)])
def test_a_web_page_in_place_of_an_answer_is_told_as_such(wandb_server, monkeypatch, names):
    run = logged(wandb_server)
    page = {"status": 200, "body": b"<html>Log in to the network of this hotel</html>"}
    with failing(wandb_server, monkeypatch, applies=operation(*names) if names else lambda _: True, **page):
        (outcome,) = th.annotate_many(["wandb:team/proj/abc"])
    assert "what answers there is no W&B server, or a page before it" in str(outcome.error)
    assert "WANDB_BASE_URL" in outcome.error.hint
    assert (run.tags, [key for key in run.summary if key.startswith("health/")]) == (["mine"], [])
    assert th.annotate("wandb:team/proj/abc").status == "written"


@pytest.mark.exhaustive
def test_a_history_that_does_not_come_is_a_failure_of_the_server(wandb_server, monkeypatch):
    logged(wandb_server)
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 3)
    fault = failing(wandb_server, monkeypatch, applies=operation("HistoryPage"), hang=20)
    with fault, pytest.raises(StoreUnavailable, match=r"its history could not be read .*no answer in time"):
        th.check("wandb:team/proj/abc")


@pytest.mark.exhaustive
def test_a_process_ends_although_a_call_hangs(wandb_server, environment, tmp_path):
    logged(wandb_server)
    code = (
        "import tracker_health.stores.wandb.connection as c; c.REQUEST_SECONDS = 2\n"
        "from tracker_health.__main__ import main; main()"
    )
    with wandb_server.failing(Fault(operation("HistoryPage"), hang=60)):
        start = time.monotonic()
        python(environment, tmp_path, "-c", code, "check", "wandb:team/proj/abc", code=3)
    assert time.monotonic() - start < 50


def test_files_that_cannot_be_uploaded_do_not_keep_the_verdict_off_the_run(wandb_server, monkeypatch):
    run = logged(wandb_server)
    with failing(wandb_server, monkeypatch, applies=lambda one: one.method == "PUT", status=400):
        monkeypatch.setattr(connection, "REQUEST_SECONDS", 5)
        outcome = th.annotate("wandb:team/proj/abc")
    assert outcome.status == "written"
    assert "the verdict is on W&B run team/proj/abc, but" in outcome.report.errors[-1].message
    assert run.tags == ["mine", "health:pass"]
    again = th.annotate("wandb:team/proj/abc")
    assert (again.status, again.report.errors) == ("written", ())
    assert "health/report.json" in run.files


def test_files_that_are_listed_late_are_written_all_the_same(wandb_server):
    run = logged(wandb_server)
    wandb_server.store.lists_files = False
    pages = th.Config(pages="always")
    outcome = th.annotate("wandb:team/proj/abc", config=pages)
    assert (outcome.status, outcome.report.errors, run.tags) == ("written", (), ["mine", "health:pass"])
    wandb_server.store.lists_files = True
    assert run.files.keys() == OUR_FILES
    assert th.annotate("wandb:team/proj/abc", config=pages, force=True).status == "written"
    th.clear_annotations("wandb:team/proj/abc")
    assert run.files == {}


def test_who_may_only_read_is_told_so(wandb_server, environment, tmp_path):
    run = logged(wandb_server)
    command(environment, tmp_path, "check", "wandb:team/proj/abc", WANDB_API_KEY=READER)
    done = command(environment, tmp_path, "annotate", "wandb:team/proj/abc", code=3, WANDB_API_KEY=READER)
    assert "no permission" in done.stderr
    assert "ask for a seat that may write" in done.stderr
    assert (run.tags, run.files) == (["mine"], {})


@pytest.mark.parametrize(
    ("more", "name", "said", "hint"),
    [
        ({"WANDB_API_KEY": ""}, "wandb:team/proj/abc", "there is no API key for the W&B server", "wandb login"),
        ({"WANDB_API_KEY": "short"}, "wandb:team/proj/abc", "does not accept the API key", "WANDB_API_KEY"),
        ({"WANDB_API_KEY": "local-" + "x" * 40}, "wandb:team/proj/abc", "does not accept the API key", "WANDB_API_KEY"),
        ({}, "wandb:team/proj/nope", "there is no such run", "check entity, project and run id"),
        ({}, "wandb:team/nope/abc", "there is no such run", "check entity, project and run id"),
        ({}, "https://elsewhere.example/team/proj/runs/abc", "nor of the configured W&B server", "WANDB_BASE_URL="),
        ({"WANDB_BASE_URL": "http://127.0.0.1:9"}, "wandb:team/proj/abc", "connection refused", "WANDB_BASE_URL"),
        ({"WANDB_BASE_URL": "https://nowhere.invalid"}, "wandb:team/proj/abc", "no such host", "WANDB_BASE_URL"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(wandb_server, environment, tmp_path, more, name, said, hint):
    logged(wandb_server)
    start = time.monotonic()
    done = command(environment, tmp_path, "check", name, code=3, **more)
    assert time.monotonic() - start < 60
    first, second = done.stderr.splitlines()
    assert said in first
    assert hint in second
    assert done.stdout == ""
    assert "x" * 40 not in done.stderr


def test_nobody_is_asked_for_a_key_at_a_terminal(wandb_server, environment, tmp_path):
    import pty

    logged(wandb_server)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", "import tracker_health as th\nth.check('wandb:team/proj/abc')"],
        env=environment | {"WANDB_API_KEY": ""},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 1
    assert "there is no API key" in said
    assert "Paste" not in said


def test_an_annotation_takes_few_requests(wandb_server):
    run = logged(wandb_server)
    run.files["output.log"] = Blob(b"words\n")
    asked = []
    for options in ({}, {}, {"force": True}):
        before = len(wandb_server.requests)
        th.annotate("wandb:team/proj/abc", **options)
        asked.append(len([one for one in wandb_server.requests[before:] if one.path == "/graphql"]))
    first, unchanged, again = asked
    assert first <= 11  # two of them once a process
    assert unchanged <= 1
    assert again <= 10


@pytest.mark.parametrize(("key", "name", "error"), [("", "nope", RunNotFound), ("x" * 40, "abc", StoreRefused)])
def test_errors_are_of_their_kind(wandb_server, monkeypatch, key, name, error):
    logged(wandb_server)
    if key:
        monkeypatch.setenv("WANDB_API_KEY", f"local-{key}")
    with pytest.raises(error):
        th.open_run(f"wandb:team/proj/{name}")


@pytest.mark.parametrize("takes_all", [False, True])
@pytest.mark.exhaustive
def test_a_run_that_was_annotated_in_its_folder_and_synced_is_ours_on_the_server(
    wandb_server, environment, tmp_path, takes_all
):
    """The way in which older SDKs sync takes all files along."""
    logging = """
import wandb
run = wandb.init(project="proj", id="abc", tags=["mine"], notes="My own words.")
for step in range(300):
    run.log({"train/loss": 1.0 + 0.98**step})
run.finish()
"""
    python(environment, tmp_path, "-c", logging, WANDB_MODE="offline")
    (folder,) = tmp_path.glob("**/offline-run-*-abc")
    command(environment, tmp_path, "annotate", str(folder), "--set", "pages=always")
    python(environment, tmp_path, "-m", "wandb", "sync", str(folder))
    run = wandb_server.run("team/proj/abc")
    synced = {key for key in run.summary if key.startswith("health/")}
    assert (sorted(run.tags), run.summary["health/verdict"]) == (["health:pass", "mine"], "pass")
    assert run.files.keys() >= OUR_FILES
    if takes_all:
        run.files |= {f"health/{path.name}": Blob(path.read_bytes()) for path in (folder / "files/health").iterdir()}
    run.history[-1] = json.dumps({**json.loads(run.history[-1]), "train/loss": "NaN"})
    outcome = th.annotate("wandb:team/proj/abc")
    assert (outcome.status, outcome.omitted, run.tags) == ("written", (), ["mine", "health:fail"])
    assert json.loads(run.files["health/report.json"].content)["verdict"] == "fail"
    assert {name for name in run.files if "health/" in name} == OUR_FILES
    assert {"health/verdict", "health/digest", "health/severity"} <= synced
    th.clear_annotations("wandb:team/proj/abc")
    assert not [key for key in run.summary if key.startswith("health/")]
    assert not [name for name in run.files if "health/" in name]
    assert (run.tags, run.notes, run.state) == (["mine"], "My own words.", "finished")


def test_what_its_owner_does_while_a_run_is_judged_is_seen_before_it_is_written_to(wandb_server):
    run = logged(wandb_server)
    with closing(th.open_run("wandb:team/proj/abc")) as opened:
        run.tags.append("late")
        run.summary["late"] = 1
        opened.ask_to_stop(REQUEST)
        opened.write_shadow(SHADOW)
        assert (sorted(run.tags), run.summary["late"]) == (["health:stop", "late", "mine"], 1)
    with closing(th.open_run("wandb:team/proj/abc")) as opened:
        run.summary["health/verdict"] = "patient fine"
        run.files["health/report.json"] = Blob(b"mine")
        with pytest.raises(WriteError, match="is not ours"):
            opened.write(FAIL)
    assert (run.summary["health/verdict"], run.files["health/report.json"].content) == ("patient fine", b"mine")


def test_a_file_of_ours_is_found_behind_very_many_of_its_owners(wandb_server):
    run = logged(wandb_server)
    run.files |= {f"health/aa_{number:04}.png": Blob(b"scan") for number in range(1100)}
    assert th.annotate("wandb:team/proj/abc").status == "written"
    assert th.clear_annotations("wandb:team/proj/abc").kept == ()
    assert len(run.files) == 1100
    run.files["health/report.json"] = Blob(b"mine")
    (outcome,) = th.annotate_many(["wandb:team/proj/abc"])
    assert outcome.status == "left alone"
    assert run.files["health/report.json"].content == b"mine"


@pytest.mark.slow
def test_runs_with_long_summaries_come_in_smaller_pages(wandb_server):
    """A hundred of them in one answer would take more of the core process's memory than any answer may."""
    for number in range(100):
        run = wandb_server.store.new_run("team", "long", f"run{number:03}")
        run.state, run.summary = "finished", {"loss": 1.0} | {f"table_{at}": "x" * 1000 for at in range(400)}
    with_summaries = [one.ref.id for one in tagged_runs("team/long")]
    assert len(with_summaries) == len(set(with_summaries)) == 100
