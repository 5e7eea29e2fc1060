"""Annotating MLflow runs while others change them, and in stores that do less than they should."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import WriteError
from tracker_health.judge.annotations import PENDING, incomplete
from tracker_health.rules.registry import BUILT_IN
from tracker_health.stores.base import Recorded, WrittenInPart
from tracker_health.stores.common.note_block import BEGIN, END
from tracker_health.stores.common.writing import Writing
from tracker_health.stores.mlflow.marks import NOTE_TAG
from tracker_health.stores.mlflow.stored_files import artifact_folder
from tracker_health.stores.mlflow.stored_files.artifact_folder import ArtifactFolder
from tracker_health.words.verdict import Verdict

from .many_runs import make_runs
from .test_mlflow_store import SKIP, Store, broken, descent, fail, folder_of

mlflow = pytest.importorskip("mlflow")
from mlflow.entities import RunTag  # noqa: E402


@pytest.fixture
def local(sqlite_uri):
    with contextlib.closing(Store(sqlite_uri)) as store:
        yield store


@pytest.fixture
def remote(server_uri):
    with contextlib.closing(Store(server_uri)) as store:
        yield store


PICTURE_ENDS = (".png", "+compressed.webp")
PASS = fail(verdict=Verdict.PASS, digest="1" * 16, metrics={"severity": 0.0}, files={"report.json": b"1"}, note="ok")


# Two at once


@pytest.mark.parametrize("mark", ["pending", "pending:0123abcd"])
def test_every_mark_of_an_unfinished_annotation_is_ours(local, mark):
    run_id = local.run(tags={"health.digest": mark, "health.verdict": "fail"})
    assert replace(local.open(run_id).recorded(), codes=(), explained=()) == Recorded(
        digest=PENDING, verdict=Verdict.FAIL
    )
    local.open(run_id).write(fail())
    assert local.open(run_id).recorded().digest == fail().digest


def test_the_mark_says_whose_it_is(local, monkeypatch):
    marks = []
    delete_files = Writing._delete_files_but
    monkeypatch.setattr(
        Writing,
        "_delete_files_but",
        lambda self, files: marks.append(local.tags(self._run.ref.id)["health.digest"]) or delete_files(self, files),
    )
    run_id = local.run()
    for _ in range(2):
        local.open(run_id).write(fail())
    assert len(set(marks)) == 2
    assert all(mark.startswith("pending:") for mark in marks)


def test_the_slower_of_two_is_told(local, monkeypatch):
    run_id = local.run()
    delete_files = Writing._delete_files_but

    def second(self, files):
        monkeypatch.undo()
        local.open(run_id).write(PASS)
        return delete_files(self, files)

    monkeypatch.setattr(Writing, "_delete_files_but", second)
    with pytest.raises(WriteError, match="another annotator is at work on MLflow run") as caught:
        local.open(run_id).write(fail())
    assert "again" in caught.value.hint
    assert local.open(run_id).recorded().digest == PENDING


@pytest.mark.exhaustive
def test_a_file_of_one_who_began_with_us_and_died_is_not_left_without_a_name(local, monkeypatch):
    """The other begins, we begin; the other notes its names and uploads, and dies; our record takes its record's place."""
    run_id, begin, other = local.run(), Writing._begin, {}

    def second(self, *asked):
        if other:
            return begin(self, *asked)
        other["began"] = True
        with contextlib.suppress(WriteError):
            writer_of_another(self, asked)
        return other["ours"]

    def writer_of_another(ours, asked):
        def begin_both(theirs, *what):
            names = begin(theirs, *what)
            other["ours"] = begin(ours, *asked)
            return names

        def die(self, files):
            monkeypatch.setattr(Writing, "_delete_files_but", delete_files)
            raise ConnectionError

        delete_files = Writing._delete_files_but
        monkeypatch.setattr(Writing, "_begin", begin_both)
        monkeypatch.setattr(Writing, "_delete_files_but", die)
        local.open(run_id).write(fail())

    monkeypatch.setattr(Writing, "_begin", second)
    with pytest.raises(WriteError, match="another annotator"):
        local.open(run_id).write(PASS)
    monkeypatch.undo()
    assert local.open(run_id).recorded().digest == PENDING
    local.open(run_id).write(PASS)
    assert local.open(run_id).recorded().digest == PASS.digest
    local.open(run_id).write(fail())
    local.open(run_id).clear()
    assert [file.path for file in local.client.list_artifacts(run_id, "health")] == []


def test_a_digest_on_the_names_of_another_annotation_is_no_whole_one(local):
    run_id = local.run()
    local.open(run_id).write(fail())
    local.client.set_tag(run_id, "health.digest", PASS.digest)
    assert local.open(run_id).recorded().digest == PENDING


def test_a_digest_over_the_names_of_an_annotation_under_way_is_no_whole_one(local, monkeypatch):
    run_id = local.run()
    local.open(run_id).write(fail())
    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_delete_files_but", broken)
        with pytest.raises(WriteError):
            local.open(run_id).write(fail())
    local.client.set_tag(run_id, "health.digest", fail().digest)
    assert local.open(run_id).recorded().digest == PENDING


# The description


@pytest.mark.parametrize("write", [True, False])
def test_a_description_that_is_edited_meanwhile_is_kept(local, monkeypatch, write):
    run_id = local.run(tags={NOTE_TAG: "v1"})
    local.open(run_id).write(fail())
    delete_files = Writing._delete_files_but

    def edit(self, files):
        text = local.tags(run_id)[NOTE_TAG]
        local.client.set_tag(run_id, NOTE_TAG, text.replace("v1", "v2: hours of my words"))
        return delete_files(self, files)

    monkeypatch.setattr(Writing, "_delete_files_but", edit)
    if write:
        local.open(run_id).write(PASS)
        assert local.tags(run_id)[NOTE_TAG] == f"v2: hours of my words\n\n{BEGIN}\nok\n{END}"
    else:
        local.open(run_id).clear()
        assert local.tags(run_id)[NOTE_TAG] == "v2: hours of my words"


def test_a_server_that_cuts_descriptions_gets_the_owners_text_back(local, monkeypatch):
    run_id = local.run(tags={NOTE_TAG: "mine " * 20})
    log_batch = mlflow.MlflowClient.log_batch

    def cut(self, run, metrics=(), params=(), tags=()):
        kept = [RunTag(tag.key, tag.value[:120] if tag.key == NOTE_TAG else tag.value) for tag in tags]
        log_batch(self, run, metrics, params, kept)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", cut)
    with pytest.raises(WrittenInPart, match="its description is full: this server keeps 120 characters"):
        local.open(run_id).write(fail())
    assert local.tags(run_id)[NOTE_TAG] == "mine " * 20
    assert replace(local.open(run_id).recorded(), codes=(), explained=()) == Recorded(
        digest=incomplete(fail().digest), verdict=Verdict.FAIL
    )


def test_a_description_with_broken_markers_is_told_on_clear(local):
    run_id = local.run(tags={NOTE_TAG: "mine"})
    local.open(run_id).write(fail())
    local.client.set_tag(run_id, NOTE_TAG, local.tags(run_id)[NOTE_TAG][:-5])
    assert local.open(run_id).clear().kept == (NOTE_TAG,)
    assert local.tags(run_id)[NOTE_TAG].startswith("mine")


# What is ours


def show_picture(local, run_id):
    """Put a picture among the metrics, as earlier versions did."""
    for name in ("health~loss+step+0+timestamp+1+5b0f3c7e-2d6b-4c1a-9f0e-7468656c7468" + end for end in PICTURE_ENDS):
        local.log(run_id, f"images/{name}", "picture")
    local.client.set_tag(run_id, "mlflow.loggedImages", "true")


def test_the_picture_of_an_earlier_version_goes_with_the_next_annotation(local):
    run_id = local.run()
    local.open(run_id).write(fail())
    show_picture(local, run_id)
    local.open(run_id).write(fail())
    assert local.artifacts(run_id, "images") == []
    assert "mlflow.loggedImages" not in local.tags(run_id)
    local.log(run_id, "images/theirs.png", "theirs")
    local.client.set_tag(run_id, "mlflow.loggedImages", "true")
    local.open(run_id).write(PASS)
    local.open(run_id).clear()
    assert local.artifacts(run_id, "images") == ["images/theirs.png"]
    assert "mlflow.loggedImages" in local.tags(run_id)


def test_what_could_not_be_deleted_stays_ours(local, monkeypatch):
    run_id = local.run()
    local.open(run_id).write(fail())
    show_picture(local, run_id)
    with monkeypatch.context() as patch:
        patch.setattr(ArtifactFolder, "delete", lambda *_: False)
        kept = local.open(run_id).clear().kept
    pictures = local.artifacts(run_id, "images")
    assert len(pictures) == 2
    assert kept == ("health/loss.png", "health/report.json", *pictures)
    assert local.open(run_id).recorded() is None
    assert {name for name in local.tags(run_id) if name.startswith("health")} == {"health.digest", "health.written"}
    assert local.tags(run_id)["health.digest"] == "-"
    local.open(run_id).write(PASS)
    assert local.artifacts(run_id, "health") == ["health/report.json"]
    assert local.artifacts(run_id, "images") == []
    with monkeypatch.context() as patch:
        patch.setattr(ArtifactFolder, "delete", lambda *_: False)
        local.open(run_id).clear()
    cleared = local.open(run_id).clear()
    assert (cleared.found, cleared.kept) == (True, ())
    assert not any(name.startswith("health.") for name in local.tags(run_id))


@pytest.mark.parametrize("end", ["clear", "pass"])
@pytest.mark.parametrize("theirs", [False, True])
def test_a_picture_that_could_not_be_deleted_is_no_longer_shown(local, monkeypatch, end, theirs):
    """Pages of MLflow show images where a run has its tag for them: it stays where the owner logged one."""
    run_id = local.run()
    local.open(run_id).write(fail())
    show_picture(local, run_id)
    if theirs:
        local.log(run_id, "images/theirs.png", "theirs")
    monkeypatch.setattr(ArtifactFolder, "delete", lambda *_: False)
    run = local.open(run_id)
    run.clear() if end == "clear" else run.write(PASS)
    assert ("mlflow.loggedImages" in local.tags(run_id)) == theirs


def test_without_a_digest_nothing_says_what_is_ours_and_nothing_is_touched(local):
    """Neither where somebody took ours off, nor where its owner has a verdict of the same words."""
    annotated = local.run()
    local.open(annotated).write(fail())
    local.client.delete_tag(annotated, "health.digest")
    own = {"health": "PASS", "health.verdict": "pass", "health.summary": "the patient is well"}
    owned = local.run(tags=own)
    local.log(owned, "health/report.html", "mine")
    for run_id in (annotated, owned):
        before = local.client.get_run(run_id).data, local.artifacts(run_id, "health")
        assert not local.open(run_id).ours().found
        assert not local.open(run_id).clear().found
        with pytest.raises(WriteError, match=r"the tag health\.verdict .* is not ours"):
            local.open(run_id).write(fail())
        after = local.client.get_run(run_id).data, local.artifacts(run_id, "health")
        assert (after[0].tags, after[0].metrics, after[1]) == (before[0].tags, before[0].metrics, before[1])


def test_a_users_verdict_beside_a_file_that_stayed_is_not_overwritten(local, monkeypatch):
    run_id = local.run()
    local.open(run_id).write(fail())
    with monkeypatch.context() as patch:
        patch.setattr(ArtifactFolder, "delete", lambda *_: False)
        local.open(run_id).clear()
    local.client.set_tag(run_id, "health.verdict", "mine")
    with pytest.raises(WriteError, match=r"the tag health\.verdict"):
        local.open(run_id).write(fail())


@pytest.mark.slow
def test_a_users_metric_of_nothing_but_nan_is_left_alone(local):
    for points in ([(5, math.nan)], [(0, math.nan)], [(0, 1.0), (5, math.nan)]):
        run_id = local.run(metrics={"health/severity": points})
        for one in (fail(), SKIP, fail()):
            local.open(run_id).write(one)
            assert len(local.history(run_id, "health/severity")) == len(points)


def test_a_metric_that_we_hid_before_a_clear_is_ours_again(local):
    run_id = local.run()
    for _ in range(2):
        local.open(run_id).write(fail())
        assert local.client.get_run(run_id).data.metrics["health/severity"] == 3.0
        local.open(run_id).clear()


@pytest.mark.slow
def test_a_file_in_the_place_of_our_folder_is_told_before_anything_is_written(remote, local):
    for store in (remote, local):
        run_id = store.run()
        store.log(run_id, "health", "mine")
        with pytest.raises(WriteError, match=r"the artifact health of MLflow run .* nothing was written"):
            store.open(run_id).write(fail())
        assert not any(name.startswith("health.") for name in store.tags(run_id))
        store.open(run_id).write(SKIP)
        assert store.open(run_id).recorded().digest == SKIP.digest


@pytest.mark.slow
def test_clear_leaves_no_empty_folder_on_this_machine(local):
    run_id = local.run()
    local.open(run_id).write(fail())
    local.open(run_id).clear()
    assert not (folder_of(local, run_id) / "health").exists()
    local.open(run_id).write(fail())
    local.log(run_id, "health/mine.txt", "mine")
    local.open(run_id).clear()
    assert local.artifacts(run_id, "health") == ["health/mine.txt"]


def test_names_that_are_recorded_already_are_never_cut_off(local, monkeypatch):
    """An annotation that dies with its mark on the run must not have forgotten what the one before wrote."""
    run_id = local.run()
    earlier = {f"z_probe_{index:03}/a_long_name_of_a_measure": 1.0 for index in range(100)}
    local.open(run_id).write(fail(metrics=earlier))
    before = set(json.loads(local.tags(run_id)["health.written"])["metrics"])
    later = {f"a_probe_{index:03}/a_long_name_of_a_measure": 1.0 for index in range(100)}
    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_put", broken)
        with pytest.raises(WriteError):
            local.open(run_id).write(fail(metrics=later))
    assert before <= set(json.loads(local.tags(run_id)["health.written"])["metrics"])
    local.open(run_id).write(SKIP)
    assert all(math.isnan(value) for value in local.client.get_run(run_id).data.metrics.values())


# Artifact stores


class DeletesByPrefix:
    """A repository that deletes all that begins with a path, as object stores do under older versions."""

    def __init__(self, repository):
        self._repository = repository

    def __getattr__(self, name):
        return getattr(self._repository, name)

    def delete_artifacts(self, path):
        root = Path(self._repository.artifact_dir)
        for file in list(root.rglob("*")):
            if file.is_file() and file.relative_to(root).as_posix().startswith(path):
                file.unlink()


def test_a_store_that_deletes_by_prefix_deletes_only_ours(local, monkeypatch):
    run_id = local.run()
    find = artifact_folder.repository_of
    monkeypatch.setattr(artifact_folder, "repository_of", lambda *place: DeletesByPrefix(find(*place)))
    local.open(run_id).write(fail())
    local.log(run_id, "health/report.json.bak", "mine")
    local.log(run_id, "health/loss.png.d/mine", "mine")
    cleared = local.open(run_id).clear()
    assert cleared.kept == ("health/loss.png", "health/report.json")
    assert {"health/report.json.bak", "health/loss.png.d"} <= set(local.artifacts(run_id, "health"))
    assert local.artifacts(run_id, "health/loss.png.d") == ["health/loss.png.d/mine"]
    (folder_of(local, run_id) / "health" / "report.json.bak").unlink()
    assert local.open(run_id).clear().kept == ("health/loss.png",)


ALL = th.Config(metrics=True, pages="always", description="always")


def test_a_healthy_run_gets_tags_and_one_small_file(local):
    """And what an older version wrote, or --metrics asked for, goes."""
    run_id = local.run(metrics={"loss": descent(200)})
    local.client.set_tag(run_id, NOTE_TAG, "mine")
    th.annotate(run_id, tracking_uri=local.uri, config=ALL)
    assert local.artifacts(run_id, "health") == [
        f"health/{name}" for name in ("loss.png", "report.html", "report.json")
    ]
    assert len([name for name in shown_metrics(local, run_id) if name.startswith("health/")]) > 3
    assert "Training health: PASS" in local.tags(run_id)[NOTE_TAG]
    th.annotate(run_id, tracking_uri=local.uri)
    assert shown_metrics(local, run_id) == {"loss"}
    assert local.artifacts(run_id) == ["health"]
    (file,) = local.client.list_artifacts(run_id, "health")
    assert (file.path, file.file_size < 350 * len(BUILT_IN)) == ("health/report.json", True)
    assert local.tags(run_id)[NOTE_TAG] == "mine"
    assert "mlflow.loggedImages" not in local.tags(run_id)


@pytest.fixture(params=["local", "remote"])
def store(request):
    return request.getfixturevalue(request.param)


def test_clear_leaves_nothing_but_hidden_metrics(store):
    run_id = store.run(metrics={"loss": descent(200)})
    before = store.tags(run_id)
    th.annotate(run_id, tracking_uri=store.uri, config=th.Config(metrics=True))
    store.log(run_id, "health.txt", "mine")
    cleared = th.clear_annotations(run_id, tracking_uri=store.uri)
    assert "health/severity" in cleared.hidden
    left = store.tags(run_id), store.artifacts(run_id), shown_metrics(store, run_id)
    assert left == (before, ["health.txt"], {"loss"})


def test_a_health_folder_with_something_of_the_owners_stays(store):
    run_id = store.run(metrics={"loss": descent(200)})
    th.annotate(run_id, tracking_uri=store.uri)
    store.log(run_id, "health/mine.txt", "mine")
    th.clear_annotations(run_id, tracking_uri=store.uri)
    assert store.artifacts(run_id, "health") == ["health/mine.txt"]


def shown_metrics(store, run_id):
    """Those that MLflow's page of the run shows."""
    return {name for name, value in store.client.get_run(run_id).data.metrics.items() if not math.isnan(value)}


@pytest.mark.slow
def test_files_that_do_not_arrive_are_written_by_the_next_annotation(local, monkeypatch):
    run_id = local.run(metrics={"loss": descent(200)})
    with monkeypatch.context() as patch:
        patch.setattr(artifact_folder, "replace_file", broken)
        outcome = th.annotate(run_id, tracking_uri=local.uri, config=ALL)
    assert (outcome.status, outcome.complete) == ("written", False)
    assert "no credentials" in outcome.report.errors[0].message
    assert local.tags(run_id)["health.verdict"] == str(outcome.report.verdict)
    assert local.artifacts(run_id, "health") == []
    again = th.annotate(run_id, tracking_uri=local.uri, config=ALL)
    assert (again.status, again.complete) == ("written", True)
    assert local.artifacts(run_id, "health") == [
        f"health/{name}" for name in ("loss.png", "report.html", "report.json")
    ]
    assert th.annotate(run_id, tracking_uri=local.uri, config=ALL).status == "unchanged"


def test_files_that_arrived_in_part_are_known_as_ours(local, monkeypatch):
    run_id = local.run()

    def half(path, content):
        if path.name != "report.json":
            broken()
        path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(artifact_folder, "replace_file", half)
        with pytest.raises(WrittenInPart):
            local.open(run_id).write(fail())
    cleared = local.open(run_id).clear()
    assert cleared.kept == ()
    assert local.artifacts(run_id, "health") == []


# What is left out, and told


def test_what_is_left_out_for_something_of_the_owners_is_told(local):
    theirs = {"health.summary": "the patient is well", NOTE_TAG: "x" * 7_990}
    run_id = local.run(metrics={"loss": descent(200), "health/severity": [(7, 60.0)]}, tags=theirs)
    outcome = th.annotate(run_id, tracking_uri=local.uri, config=th.Config(description="always", metrics=True))
    expected = (
        "the tag health.summary (the run has one of its own)",
        "the metric health/severity (the run has one of its own)",
        "the description (it has no room for more)",
    )
    assert (outcome.status, outcome.omitted) == ("written", expected)
    assert outcome.report.notes == (f"not written: {'; '.join(expected)}",)
    assert local.tags(run_id).items() >= theirs.items()
    again = ["annotate", "--force", run_id, "--set", "description=always", "--set", "metrics=true"]
    again += ["--tracking-uri", local.uri]
    shown = " ".join(CliRunner().invoke(cli, again).stdout.split())
    assert "written onto the run, except the tag health.summary (the run has one of its own); the metric" in shown
    assert shown.count("no room for more") == 1
    document = CliRunner().invoke(cli, [*again, "--json"]).stdout
    assert json.loads(document)["notes"] == list(outcome.report.notes)
    again = th.annotate(run_id, tracking_uri=local.uri, config=th.Config(description="always", metrics=True))
    assert again.status == "unchanged"


def test_names_that_found_no_room_are_told(local):
    metrics = {f"probe_{index:03}/a_long_name_of_a_measure": 1.0 for index in range(300)}
    (told,) = local.open(local.run()).write(fail(metrics=metrics))
    assert "measures (there is no room to note down more names)" in told


@pytest.mark.slow
def test_what_is_left_out_is_told_in_a_list_too(local):
    runs = [local.run(metrics={"loss": descent(200)}, tags={"health.ended": "3"}) for _ in range(6)]
    done = CliRunner().invoke(cli, ["annotate", *runs, "--tracking-uri", local.uri])
    assert done.stdout.count("written onto the run, except the tag health.ended") == 6


@pytest.mark.slow
def test_files_that_did_not_arrive_are_told_in_a_list_too(local, monkeypatch):
    monkeypatch.setattr(artifact_folder, "replace_file", broken)
    runs = [local.run(metrics={"loss": descent(200)}) for _ in range(6)]
    done = CliRunner().invoke(cli, ["annotate", *runs, "--tracking-uri", local.uri])
    assert (done.exit_code, done.stderr.count("its files could not be written")) == (3, 6)


# A description with markers that we did not put there

THEIRS = f"How it works:\n\n{BEGIN}\nmy example\n{END}\nmore"


@pytest.mark.slow
@pytest.mark.parametrize("text", [THEIRS, f"see {BEGIN}", f"{END}\n{BEGIN}"])
def test_markers_in_a_description_that_we_never_wrote_are_the_owners(local, text):
    run_id = local.run(tags={NOTE_TAG: text})
    for written in (fail(), PASS, SKIP, fail()):
        omitted = local.open(run_id).write(written)
        assert bool(omitted) is (written is not SKIP)
        assert local.tags(run_id)[NOTE_TAG] == text
        assert local.open(run_id).recorded().digest == written.digest
    cleared = local.open(run_id).clear()
    assert (cleared.found, cleared.kept) == (True, ())
    assert local.tags(run_id)[NOTE_TAG] == text
    local.open(run_id).write(SKIP)
    local.open(run_id).clear()
    assert local.tags(run_id)[NOTE_TAG] == text


def test_an_annotation_that_died_at_once_makes_no_description_ours(local, monkeypatch):
    run_id = local.run(tags={NOTE_TAG: THEIRS})
    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_require_mark", broken)
        with pytest.raises(WriteError):
            local.open(run_id).write(fail())
    assert local.open(run_id).recorded().digest == PENDING
    with monkeypatch.context() as patch:
        patch.setattr(Writing, "_delete_files_but", broken)
        with pytest.raises(WriteError):
            local.open(run_id).write(fail())
    local.open(run_id).write(PASS)
    assert local.tags(run_id)[NOTE_TAG] == THEIRS


@pytest.mark.slow
def test_the_block_of_an_annotation_without_a_word_on_it_is_ours(local):
    """As older versions recorded it, and where the record was taken off."""
    for change in ("no word", "no record"):
        run_id = local.run(tags={NOTE_TAG: "mine"})
        local.open(run_id).write(fail())
        tags = local.client.get_run(run_id).data.tags
        digest, _, behind = tags["health.digest"].partition(" ")
        record = json.loads(behind)["written"]
        assert record.pop("note") is True
        if change == "no word":
            local.client.set_tag(run_id, "health.digest", f"{digest} {json.dumps({'column': True, 'written': record})}")
            local.open(run_id).write(PASS)
            assert local.tags(run_id)[NOTE_TAG] == f"mine\n\n{BEGIN}\nok\n{END}"
        else:
            local.client.set_tag(run_id, "health.digest", digest)
        local.open(run_id).clear()
        assert local.tags(run_id)[NOTE_TAG] == "mine"


# A database that was restored from a backup


def test_the_report_of_a_restored_database_is_ours(local, remote):
    for store in (local, remote):
        run_id = store.run(metrics={"loss": descent(200)})
        assert th.annotate(run_id, tracking_uri=store.uri).status == "written"
        for tag in store.client.get_run(run_id).data.tags:
            if tag.startswith("health"):
                store.client.delete_tag(run_id, tag)
        assert th.annotate(run_id, tracking_uri=store.uri).status == "written"
        assert th.clear_annotations(run_id, tracking_uri=store.uri).kept == ()
        assert store.artifacts(run_id, "health") == []


def test_a_report_on_another_run_is_not_ours(local, monkeypatch):
    run_id, other = (local.run(metrics={"loss": descent(200)}) for _ in range(2))
    th.annotate(other, tracking_uri=local.uri)
    report = (folder_of(local, other) / "health" / "report.json").read_text()
    for content in (report, "[1]", report.replace("/report/2", "/report/9").replace(other, run_id)):
        local.log(run_id, "health/report.json", content)
        with pytest.raises(WriteError, match=r"report\.json .* is not ours"):
            th.annotate(run_id, tracking_uri=local.uri)
    local.log(run_id, "health/report.json", report.replace(other, run_id))
    monkeypatch.setattr("tracker_health.stores.common.writing._MAX_REPORT_BYTES", 10)
    with pytest.raises(WriteError, match=r"report\.json .* is not ours"):
        th.annotate(run_id, tracking_uri=local.uri)


def test_of_many_runs_one_address_is_said_that_of_the_worst(server_uri):
    name, _ = make_runs(server_uri, 4, sick={1})
    done = CliRunner().invoke(cli, ["annotate", "--tracking-uri", server_uri, "--experiment", name])
    (link,) = [line for line in done.stderr.splitlines() if server_uri in line]
    assert link.startswith(f"all runs with fail: {server_uri}/#/experiments/")
