"""What runs say of repairs, end to end: on MLflow's database, on a server of W&B's kind and on what its SDK leaves."""

from __future__ import annotations

import json
import shutil
from contextlib import closing

import mlflow
import pytest
from click.testing import CliRunner
from mlflow.entities import RunTag

import tracker_health as th
from tracker_health.api import annotate, clear_annotations
from tracker_health.cli import cli
from tracker_health.errors import LeftAlone, StillRunning, WriteError
from tracker_health.runs.lookup import open_run
from tracker_health.stores.common.note_block import BEGIN
from tracker_health.testing.stores.repairs import REPAIR
from tracker_health.words.repairs import MAX_RUN, Answer, RepairMark

from .faulty_proxy import Proxy
from .many_runs import make_runs
from .test_clear_in_database import rows
from .test_wandb_local import state_of
from .test_wandb_online import logged
from .test_wandb_segments import write_segment

pytestmark = pytest.mark.usefixtures("no_pictures")


def mark(old, new, answer=Answer.REPAIRED, when=1_700_000_000.0):
    return RepairMark(
        old=str(old), new=str(new), answer=answer, cause="learning-rate-too-high",
        change="learning_rate 0.3 -> 0.03", because="The loss falls to the end.", when=when,
    )  # fmt: skip


def put(run, repair, *, as_old, uri=None):
    with closing(open_run(run, tracking_uri=uri)) as opened:
        return opened.write_repair(repair, as_old=as_old)


def put_on_both(uri, old, new, **more):
    repair = mark(old, new, **more)
    return [put(old, repair, as_old=True, uri=uri), put(new, repair, as_old=False, uri=uri)]


def repaired_pair(uri):
    """The names of an experiment and of two runs of it, the old one and the new one, both with a verdict."""
    name, (old, new) = make_runs(uri, 2, sick={0})
    client = mlflow.MlflowClient(tracking_uri=uri)
    client.set_tag(new, "mlflow.note.content", "My own words.")
    before = [rows(uri, run) for run in (old, new)] if uri.startswith("sqlite") else []
    for run in (old, new):
        annotate(run, tracking_uri=uri)
    return name, old, new, before


def test_on_mlflow_a_repair_is_on_both_runs_and_clear_leaves_every_row_of_the_owners(sqlite_uri):
    _, old, new, before = repaired_pair(sqlite_uri)
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    assert put_on_both(sqlite_uri, old, new) == [True, True]
    once = [rows(sqlite_uri, run) for run in (old, new)]
    assert put_on_both(sqlite_uri, old, new, when=1_800_000_000.0) == [False, False]
    assert [rows(sqlite_uri, run) for run in (old, new)] == once
    notes = [client.get_run(run).data.tags["mlflow.note.content"] for run in (old, new)]
    assert notes[0].count(f"**Repair tried in** `{new}`: repaired (learning-rate-too-high") == 1
    assert notes[1].startswith(f"My own words.\n\n{BEGIN}\n**Repair of** `{old}`: repaired (")
    found = client.search_runs(
        [client.get_run(new).info.experiment_id], """tags.`health.repairs` LIKE '%"answer":"repaired"%'"""
    )
    assert [run.info.run_id for run in found] == [new]
    assert [annotate(run, tracking_uri=sqlite_uri).status for run in (old, new)] == ["unchanged"] * 2
    assert [rows(sqlite_uri, run) for run in (old, new)] == once, "no verdict depends on it"
    for run in (old, new):
        annotate(run, tracking_uri=sqlite_uri, force=True)
    assert [client.get_run(run).data.tags["mlflow.note.content"] for run in (old, new)] == notes
    for run in (old, new):
        assert clear_annotations(run, tracking_uri=sqlite_uri).found
    assert [rows(sqlite_uri, run) for run in (old, new)] == before


def test_the_summary_has_repairs_without_another_request(server_uri):
    with Proxy(server_uri) as proxy:
        name, old, new, _ = repaired_pair(proxy.uri)
        arguments = ["summary", "--experiment", name, "--tracking-uri", proxy.uri]

        def asked(*options):
            before = len(proxy.asked)
            done = CliRunner().invoke(cli, [*arguments, *options])
            assert done.exit_code == 0, done.output
            return done.stdout, len(proxy.asked) - before

        _, without = asked()
        put_on_both(proxy.uri, old, new)
        text, requests = asked()
        assert requests == without
        assert "(repaired in run 1)" in text
        assert "  learning-rate-too-high: learning_rate lowered: repaired 1 of 1" in text
        assert "    run 1: repaired (learning-rate-too-high; changed: learning_rate 0.3 -> 0.03)" in text
        document = json.loads(asked("--json")[0])
        assert document["repairs"]["chains"][0]["attempts"][0]["new"] == new
        assert [one["repaired_by"]["new"] for one in document["worst"]] == [new]
        assert document["precision"]["causes"] == json.loads(asked("--json")[0])["precision"]["causes"]
        assert all(one["acknowledged"] == one["wrong"] == 0 for one in document["precision"]["rules"])


def test_what_was_copied_with_the_tags_of_a_run_is_not_about_the_copy(sqlite_uri):
    _, old, new, _ = repaired_pair(sqlite_uri)
    put_on_both(sqlite_uri, old, new)
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    source = client.get_run(new)
    copy = client.create_run(source.info.experiment_id).info.run_id
    client.set_tag(copy, "health.repairs", source.data.tags["health.repairs"])
    client.set_terminated(copy)
    with closing(open_run(copy, tracking_uri=sqlite_uri)) as opened:
        assert opened.repairs() == {}
        assert opened.write_repair(mark(old, "x"), as_old=False), "it is ours to replace"
        assert opened.repairs()["repairs"].new == copy


def test_a_server_that_cuts_descriptions_gets_back_what_was_there(sqlite_uri, monkeypatch):
    _, old, new, _ = repaired_pair(sqlite_uri)
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    log_batch, note = mlflow.MlflowClient.log_batch, "mlflow.note.content"
    before = rows(sqlite_uri, new)

    def cut(self, run, metrics=(), params=(), tags=()):
        kept = [RunTag(tag.key, tag.value[:60] if tag.key == note else tag.value) for tag in tags]
        log_batch(self, run, metrics, params, kept)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", cut)
    assert put(new, mark(old, new), as_old=False, uri=sqlite_uri)
    tags = client.get_run(new).data.tags
    assert tags[note] == "My own words."
    client.delete_tag(new, "health.repairs")
    assert rows(sqlite_uri, new) == before


def test_a_full_description_keeps_its_verdict(sqlite_uri):
    _, old, new, _ = repaired_pair(sqlite_uri)
    client = mlflow.MlflowClient(tracking_uri=sqlite_uri)
    note = client.get_run(old).data.tags["mlflow.note.content"]
    full = "x" * (7_900 - len(note)) + "\n\n" + note
    client.set_tag(old, "mlflow.note.content", full)
    assert put(old, mark(old, new), as_old=True, uri=sqlite_uri)
    annotate(old, tracking_uri=sqlite_uri, force=True)
    assert client.get_run(old).data.tags["mlflow.note.content"] == full
    assert not put(old, mark(old, new), as_old=True, uri=sqlite_uri)


def test_what_the_sdk_of_wandb_left_offline_is_as_before_byte_for_byte(offline_runs, tmp_path):
    old, new = (shutil.copytree(offline_runs[kind], tmp_path / f"offline-run-{kind}") for kind in ("odd", "healthy"))
    before = [state_of(run) for run in (old, new)]
    for run in (old, new):
        annotate(run)
    logs = [next(run.glob("*.wandb")).read_bytes() for run in (old, new)]
    assert put_on_both(None, old, new) == [True, True]
    once = [state_of(run) for run in (old, new)]
    assert put_on_both(None, old, new, when=1_800_000_000.0) == [False, False]
    assert [annotate(run).status for run in (old, new)] == ["unchanged"] * 2
    assert [state_of(run) for run in (old, new)] == once
    assert [next(run.glob("*.wandb")).read_bytes() for run in (old, new)] == logs, "it is in the folder alone"
    document = json.loads((new / "files" / "health" / "annotation.json").read_text())
    assert json.loads(document["repairs"])["old"] == str(old)
    assert document["note"].endswith("The loss falls to the end.")
    assert put_on_both(None, old, new, answer=Answer.NOT_REPAIRED) == [True, True]
    for run in (old, new):
        annotate(run, force=True)
        with closing(open_run(run)) as opened:
            (repair,) = opened.repairs().values()
        assert repair.answer is Answer.NOT_REPAIRED
        assert clear_annotations(run).found
    assert [state_of(run) for run in (old, new)] == before


def test_what_a_later_log_of_wandb_continues_is_refused(tmp_path):
    first, last = (
        write_segment(tmp_path, at, first=0, trained=100 * at, began=1000 * at, ended=at == 1) for at in range(2)
    )
    with pytest.raises(LeftAlone, match="written to its last part"):
        put(first, mark(first, last), as_old=True)
    assert not (first / "files" / "health").exists()
    assert put(last, mark(first, last), as_old=False)


def test_a_run_of_a_wandb_server_that_goes_on_is_refused_and_one_that_is_over_is_in_the_summary(wandb_server):
    old, new = (logged(wandb_server, name=name) for name in ("old", "new"))
    for name in ("old", "new"):
        th.annotate(f"wandb:team/proj/{name}")
    own = dict(new.summary)
    new.state = "running"
    with pytest.raises(StillRunning, match="is still running: nothing was written"):
        put("wandb:team/proj/new", REPAIR, as_old=False)
    assert new.summary == own
    new.state = "finished"
    repair = mark("team/proj/old", "team/proj/new")
    assert put("wandb:team/proj/new", repair, as_old=False)
    assert put("wandb:team/proj/old", repair, as_old=True)
    assert (old.notes, new.notes) == ("My own words.", "My own words.")
    done = CliRunner().invoke(cli, ["summary", "--project", "team/proj", "--json"])
    (chain,) = json.loads(done.stdout)["repairs"]["chains"]
    assert (chain["run"], [one["new"] for one in chain["attempts"]]) == ("team/proj/old", ["team/proj/new"])
    for name in ("old", "new"):
        assert clear_annotations(f"wandb:team/proj/{name}").found
    assert not any(key.startswith("health/") for run in (old, new) for key in run.summary)


def test_a_path_with_too_many_characters_is_an_error_of_one_line(tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n")
    with pytest.raises(WriteError, match="could not be written down") as caught:
        put(tmp_path, mark("x" * (MAX_RUN + 1), tmp_path), as_old=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "health").exists()
