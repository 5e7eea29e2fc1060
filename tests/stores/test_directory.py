"""A folder as a run: read in place, and the verdict written into its ``health/`` folder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tracker_health.errors import RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Part, Request
from tracker_health.judge.annotations import Annotations
from tracker_health.roles import RolePlan
from tracker_health.stores.base import Recorded
from tracker_health.stores.common.locks import locked
from tracker_health.stores.folder import directory
from tracker_health.stores.folder.annotation_file import ANNOTATION_SCHEMA
from tracker_health.stores.folder.directory import MAX_DEPTH, DirectoryRun
from tracker_health.text import printable
from tracker_health.words.acknowledgements import acknowledgement
from tracker_health.words.verdict import Verdict

EVERYTHING = Request(roles=RolePlan(), parts=frozenset(Part))

ANNOTATIONS = Annotations(
    verdict=Verdict.WARN,
    digest="0123456789abcdef",
    tags={"codes": "LOS003"},
    metrics={"severity": 1.0},
    files={"report.json": b"{}", "page.html": b"<p>"},
)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return DirectoryRun(folder)


def log(folder, *losses, name="log.jsonl"):
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in enumerate(losses)))
    return path


def health(run):
    return {path.name: path.read_bytes() for path in (Path(run.ref.id) / "health").iterdir()}


def annotation(run):
    return json.loads(health(run)["annotation.json"])


# Reading


def test_a_run_is_named_after_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "my run"
    folder.mkdir()
    ref = DirectoryRun(folder).ref
    assert (ref.store, ref.id, ref.name, ref.url) == ("directory", str(folder), "my run", None)
    monkeypatch.chdir(folder)
    assert DirectoryRun(".").ref.name == "my run"


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_folder_is_not_found(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(RunNotFound, match="not a folder"):
        DirectoryRun(tmp_path / name)


def test_a_log_is_read(run):
    log(run.ref.id, 3.0, 2.0)
    evidence = run.read(EVERYTHING)
    assert evidence.find("train_loss").values.tolist() == [3.0, 2.0]
    assert (evidence.run, evidence.problems) == (run.ref, ())
    run.close()
    run.close()


def test_an_empty_folder_is_one_problem(run):
    (problem,) = run.read(EVERYTHING).problems
    assert "it is empty" in problem.message
    (Path(run.ref.id) / "README.md").touch()
    (problem,) = DirectoryRun(run.ref.id).read(EVERYTHING).problems
    assert "no training log or checkpoint" in problem.message


def test_a_log_in_which_nothing_is_measured_is_named(run):
    (Path(run.ref.id) / "train.log").write_text("hello\nall fine\n")
    (problem,) = DirectoryRun(run.ref.id).read(EVERYTHING).problems
    assert "among 2 lines of train.log (begins 'hello') none names a metric" in problem.message


def test_files_are_sorted_and_other_tools_folders_are_left_out(run):
    for name in (
        "b/x.jsonl",
        "a.jsonl",
        "health/x.jsonl",
        "wandb/x.jsonl",
        "mlruns/x.jsonl",
        ".hidden/x.jsonl",
        "b/__pycache__/x.jsonl",
    ):
        log(run.ref.id, 1.0, name=name)
    assert [file.path for file in run.files] == ["a.jsonl", "b/x.jsonl"]


def test_only_the_folder_at_the_top_is_ours(run):
    log(run.ref.id, 1.0, name="checkpoints/health/x.jsonl")
    assert [file.path for file in run.files] == ["checkpoints/health/x.jsonl"]


def test_linked_folders_are_not_entered_and_linked_files_are_read(run, tmp_path):
    outside = tmp_path / "outside"
    log(outside, 1.0)
    (Path(run.ref.id) / "folder").symlink_to(outside)
    (Path(run.ref.id) / "file.jsonl").symlink_to(outside / "log.jsonl")
    (Path(run.ref.id) / "loop").symlink_to(run.ref.id)
    (Path(run.ref.id) / "broken.jsonl").symlink_to(outside / "nothing")
    (Path(run.ref.id) / "endless.jsonl").symlink_to("/dev/zero")
    assert [file.path for file in run.files] == ["file.jsonl"]


def test_special_files_are_not_opened(run):
    os.mkfifo(Path(run.ref.id) / "log.jsonl")
    assert run.files == ()


def test_folders_are_searched_to_a_depth(run):
    log(run.ref.id, 1.0, name="/".join(["d"] * MAX_DEPTH) + "/in.jsonl")
    log(run.ref.id, 1.0, name="/".join(["e"] * (MAX_DEPTH + 1)) + "/out.jsonl")
    assert [file.name for file in run.files] == ["in.jsonl"]


def test_more_files_than_are_looked_at_is_told(run, monkeypatch):
    monkeypatch.setattr("tracker_health.stores.folder.directory.MAX_FILES", 3)
    for index in range(5):
        log(run.ref.id, 1.0, name=f"{index}.jsonl")
    assert any("more than 3 files" in problem.message for problem in run.read(EVERYTHING).problems)
    assert len(run.files) == 3


def refuse(monkeypatch, refused):
    real = os.scandir

    def scandir(path):
        if Path(path).name == refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_folder_that_may_not_be_listed_is_refused(run, monkeypatch):
    refuse(monkeypatch, "run")
    with pytest.raises(StoreRefused, match="no permission"):
        run.read(EVERYTHING)


def test_a_folder_inside_that_may_not_be_listed_is_told_and_the_rest_read(run, monkeypatch):
    log(run.ref.id, 3.0)
    (Path(run.ref.id) / "lost+found").mkdir()
    refuse(monkeypatch, "lost+found")
    evidence = run.read(EVERYTHING)
    (problem,) = evidence.problems
    assert "lost+found" in problem.message
    assert len(evidence.find("train_loss")) == 1


def test_the_logs_of_the_store_above_an_adapter_version_are_read(tmp_path):
    version = tmp_path / "store" / "adapter" / "versions" / "v0001"
    version.mkdir(parents=True)
    log(tmp_path / "store" / "logs", 1.0, name="train-1.jsonl")
    log(tmp_path / "store" / "logs", 1.0, name="other.jsonl")
    (tmp_path / "store" / "logs" / "train-1.jsonl").write_text('{"type": "step", "step": 1, "loss": 2.0}\n')
    evidence = DirectoryRun(version).read(EVERYTHING)
    assert len(evidence.dlm_step_log) == 1
    assert evidence.dlm_step_log.files == ("../../../logs/train-1.jsonl",)
    elsewhere = tmp_path / "store" / "other" / "v0001"
    elsewhere.mkdir(parents=True)
    assert DirectoryRun(elsewhere).read(EVERYTHING).dlm_step_log is None


def test_a_fingerprint_hangs_on_the_files_that_are_read(run):
    path = log(run.ref.id, 3.0)
    (Path(run.ref.id) / "notes.txt").touch()
    os.utime(path, (100, 100))
    first = DirectoryRun(run.ref.id).fingerprint(EVERYTHING)
    assert first == DirectoryRun(run.ref.id).fingerprint(EVERYTHING)
    (Path(run.ref.id) / "notes.txt").write_text("more")
    assert first == DirectoryRun(run.ref.id).fingerprint(EVERYTHING)
    os.utime(path, (200, 200))
    assert first != DirectoryRun(run.ref.id).fingerprint(EVERYTHING)
    run.write(ANNOTATIONS)
    os.utime(path, (100, 100))
    assert first == DirectoryRun(run.ref.id).fingerprint(EVERYTHING)


def test_file_names_that_are_not_text(run):
    path = Path(os.fsdecode(os.fsencode(run.ref.id) + b"/\xff\x1b[31m\n.jsonl"))
    path.write_text("{broken")
    (problem,) = run.read(EVERYTHING).problems
    assert problem.source == printable(problem.source)
    assert len(run.fingerprint(EVERYTHING)) == 16


# Nothing in a run's files is run


class Call:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("way", ["system", "open"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("training_state.pt", "zip"),
        ("checkpoint-4/optimizer.pt", "zip"),
        ("last.ckpt", "zip"),
        ("training_state.pt", "legacy"),
        ("optimizer.pt", "legacy"),
        ("optimizer.bin", "pickle"),
        ("training_state.pt", "pickle"),
        ("log.jsonl", "pickle"),
        ("logs/train-1.jsonl", "pickle"),
        ("trainer_state.json", "pickle"),
        ("checkpoint-4/trainer_state.json", "pickle"),
        ("adapter_model.safetensors", "pickle"),
        ("adapter_model.safetensors", "zip"),
    ],
)
def test_nothing_is_run(name, kind, way, tmp_path, run):
    torch = pytest.importorskip("torch")
    canary = tmp_path / "canary"
    call = Call(os.system, f"echo alive > {canary}") if way == "system" else Call(open, str(canary), "w")
    moments = {"step": 5, "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
    state = {"state": {0: moments}, "param_groups": [{"params": [0]}]}
    path = Path(run.ref.id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pickle":
        path.write_bytes(pickle.dumps([call, call], protocol=2))
    else:
        content = {"optimizer_state_dict": state, "global_step": 5, "evil": {"deep": [call]}}
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")
    if path.suffix == ".safetensors":
        torch.save({"optimizer_state_dict": state, "global_step": 5}, path.parent / "training_state.pt")
    evidence = run.read(EVERYTHING)
    assert not canary.exists()
    assert evidence.problems
    for problem in evidence.problems:
        assert problem.message == printable(problem.message, 500)
    if kind == "zip":
        assert evidence.optimizer.steps == 5


# Writing


def test_a_run_without_an_annotation_bears_none(run):
    assert run.recorded() is None


def test_an_annotation_is_written_and_recorded(run):
    run.write(ANNOTATIONS)
    assert replace(run.recorded(), codes=(), explained=()) == Recorded(digest=ANNOTATIONS.digest, verdict=Verdict.WARN)
    assert health(run).keys() == {"annotation.json", "report.json", "page.html"}
    assert health(run)["page.html"] == b"<p>"
    assert annotation(run) == {
        "schema": ANNOTATION_SCHEMA,
        "verdict": "warn",
        "digest": ANNOTATIONS.digest,
        "tags": {"codes": "LOS003", "open": "true"},
        "metrics": {"severity": 1.0},
        "files": ["page.html", "report.json"],
    }


def test_a_second_annotation_leaves_nothing_of_the_first(run):
    run.write(ANNOTATIONS)
    run.write(
        replace(
            ANNOTATIONS,
            verdict=Verdict.PASS,
            digest="f" * 16,
            tags={},
            files={"report.json": b"new", "other.png": b"png"},
        )
    )
    assert replace(run.recorded(), codes=(), explained=()) == Recorded(digest="f" * 16, verdict=Verdict.PASS)
    assert health(run).keys() == {"annotation.json", "report.json", "other.png"}
    assert health(run)["report.json"] == b"new"
    assert annotation(run)["tags"] == {}


def test_other_peoples_files_beside_ours_stay(run):
    run.write(ANNOTATIONS)
    (Path(run.ref.id) / "health" / "mine.txt").write_text("mine")
    run.write(replace(ANNOTATIONS, files={}))
    assert health(run).keys() == {"annotation.json", "mine.txt"}


def test_nothing_outside_the_health_folder_is_touched(run):
    log(run.ref.id, 3.0)
    before = {path: path.read_bytes() for path in Path(run.ref.id).rglob("*") if path.is_file()}
    run.write(ANNOTATIONS)
    after = {
        path: path.read_bytes()
        for path in Path(run.ref.id).rglob("*")
        if path.is_file() and path.parent.name != "health"
    }
    assert after == before


@pytest.mark.parametrize(
    "content", [b"theirs", b"{}", b'{"schema": "other"}', b"[1]", b"\xff", b"[" * 10**6, b"9" * 10**6]
)
@pytest.mark.parametrize("name", ["annotation.json", "other.txt"])
def test_a_health_folder_of_others_is_refused_and_left_as_it_is(run, name, content):
    folder = Path(run.ref.id) / "health"
    folder.mkdir()
    (folder / name).write_bytes(content)
    assert run.recorded() is None
    with pytest.raises(WriteError, match="not ours"):
        run.write(ANNOTATIONS)
    assert health(run) == {name: content}


def test_an_empty_health_folder_is_taken(run):
    (Path(run.ref.id) / "health").mkdir()
    run.write(ANNOTATIONS)
    assert run.recorded().verdict is Verdict.WARN


def test_a_file_in_the_place_of_the_health_folder_is_an_error(run):
    (Path(run.ref.id) / "health").write_text("a file")
    with pytest.raises(WriteError):
        run.write(ANNOTATIONS)
    assert run.recorded() is None


def test_an_enormous_annotation_is_not_read(run, monkeypatch):
    run.write(ANNOTATIONS)
    monkeypatch.setattr("tracker_health.stores.folder.directory._MAX_ANNOTATION_BYTES", 10)
    assert DirectoryRun(run.ref.id).recorded() is None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"verdict": "splendid", "digest": 5},
        {"verdict": ["pass"], "digest": None},
        {"verdict": {}, "files": "x"},
        {"verdict": None, "files": [1, None]},
    ],
)
def test_an_annotation_that_somebody_changed_is_no_crash(run, document):
    folder = Path(run.ref.id) / "health"
    folder.mkdir()
    (folder / "annotation.json").write_text(json.dumps({"schema": ANNOTATION_SCHEMA, **document}))
    assert run.recorded() is None or run.recorded().digest == "pending"
    run.write(ANNOTATIONS)
    assert run.recorded().verdict is Verdict.WARN


@pytest.mark.parametrize(
    "name", ["../log.jsonl", "/etc/hostname", "..", ".", "", "a\\b", "a\0b", "\ud800", "sub/x", "new\nline"]
)
def test_an_annotation_cannot_have_other_files_removed(run, name):
    path = log(run.ref.id, 3.0)
    folder = Path(run.ref.id) / "health"
    folder.mkdir()
    (folder / "annotation.json").write_text(json.dumps({"schema": ANNOTATION_SCHEMA, "files": [name]}))
    run.write(ANNOTATIONS)
    assert path.exists()
    assert annotation(run)["files"] == ["page.html", "report.json"]


def test_an_interrupted_write_is_pending_and_the_next_one_cleans_up(run, monkeypatch):
    real = Path.replace

    def full_disk(path, target):
        if Path(target).name == "report.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, target)

    run.write(replace(ANNOTATIONS, files={"old.txt": b"old"}))
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(WriteError, match="No space left"):
        run.write(replace(ANNOTATIONS, files={"page.html": b"<p>", "report.json": b"{}"}))
    assert run.recorded().digest == "pending"
    assert health(run).keys() == {"annotation.json", "old.txt", "page.html"}  # no half-written file
    monkeypatch.undo()
    run.write(replace(ANNOTATIONS, files={"other.txt": b"x"}))
    assert health(run).keys() == {"annotation.json", "other.txt"}


def test_an_interrupted_clear_leaves_no_whole_annotation(run, monkeypatch):
    run.write(ANNOTATIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.clear()
    assert run.recorded().digest == "pending"
    assert annotation(run)["files"] == ["page.html", "report.json"]
    assert run.clear().found
    assert not (Path(run.ref.id) / "health").exists()


def test_the_owners_file_under_one_of_our_names_is_refused(run):
    run.write(replace(ANNOTATIONS, files={}))
    (Path(run.ref.id) / "health" / "page.html").write_text("mine")
    before = health(run)
    with pytest.raises(WriteError, match=r"page\.html of .* exists and is not ours; nothing was written"):
        run.write(ANNOTATIONS)
    assert health(run) == before


def test_while_another_annotator_is_at_work_nothing_is_written(run):
    run.write(ANNOTATIONS)
    folder = Path(run.ref.id) / "health"
    before = health(run)
    with locked(folder, "another"):
        for call in (lambda: run.write(replace(ANNOTATIONS, digest="f" * 16)), run.clear):
            with pytest.raises(WriteError, match="another annotator is at work"):
                call()
        assert health(run) == before
    run.write(replace(ANNOTATIONS, digest="f" * 16))
    assert run.recorded().digest == "f" * 16


def test_a_file_system_without_locks_is_written_to(run, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    run.write(ANNOTATIONS)
    assert run.clear().found


def test_a_folder_that_was_cleared_away_while_it_was_opened(run, monkeypatch):
    folder = Path(run.ref.id) / "health"
    flock = fcntl.flock

    def late(*arguments):
        folder.rmdir()
        return flock(*arguments)

    monkeypatch.setattr("fcntl.flock", late)
    with pytest.raises(WriteError, match="another annotator is at work"):
        run.write(ANNOTATIONS)


def test_a_linked_health_folder_is_refused(run, tmp_path):
    (tmp_path / "outside").mkdir()
    (Path(run.ref.id) / "health").symlink_to(tmp_path / "outside")
    with pytest.raises(WriteError, match="not ours"):
        run.write(ANNOTATIONS)
    assert not run.clear().found
    assert list((tmp_path / "outside").iterdir()) == []


def test_no_permission_to_write_is_said_so(run, monkeypatch):
    def refuse_writing(path, content):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(directory, "replace_file", refuse_writing)
    with pytest.raises(StoreRefused, match="no permission to write"):
        run.write(ANNOTATIONS)
    monkeypatch.undo()
    assert run.recorded() is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is read-only to the superuser")
def test_a_read_only_folder_is_refused(run):
    Path(run.ref.id).chmod(0o500)
    try:
        with pytest.raises(StoreRefused, match="no permission to write"):
            run.write(ANNOTATIONS)
    finally:
        Path(run.ref.id).chmod(0o700)


def test_answers_go_although_the_owner_has_put_a_file_beside_them(run):
    run.write(ANNOTATIONS)
    entry = acknowledgement(
        id="1" * 16, who="ana", when=1.9e9, because="known", codes=["LOS003"], evidence=run.evidence()
    )
    run.acknowledge(entry)
    (Path(run.ref.id) / "health" / "mine.txt").write_text("mine")
    assert run.clear().acks == 1
    assert run.clear(acks=True).found
    assert [path.name for path in (Path(run.ref.id) / "health").iterdir()] == ["mine.txt"]
