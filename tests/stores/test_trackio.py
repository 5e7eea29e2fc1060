"""trackio's runs: databases that real trackio wrote, and what a hostile or broken one does."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from tests.stores.trackio_databases import NEWEST, VERSIONS, WITHOUT_IDS, age, alerts_in, log, rows_in, said, unpacked

from tracker_health.api import annotate, check, overview_of
from tracker_health.cli import main
from tracker_health.errors import MissingExtra, ReadError, RunNotFound, StillRunning, StoreRefused, WriteError
from tracker_health.fleet.operations import sweep
from tracker_health.runs.lookup import open_run
from tracker_health.stores.trackio import alerts, database, history, marks
from tracker_health.stores.trackio.database import file_name, projects_folder
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

HOUR = 3600.0


def run_cli(arguments):
    sys.argv = ["tracker-health", *arguments]
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code or 0


FALLING = [(step, {"loss": 2.0 - 0.01 * step}) for step in range(60)]
NAN = [(step, {"loss": 2.0 - 0.01 * step if step < 40 else "NaN"}) for step in range(60)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def project(folder):
    """The newest version's, an hour after its last row."""
    path = unpacked(folder)
    age(path, HOUR)
    return path


def schema_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


def execute(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join(statements))


# Reading


@pytest.mark.parametrize("version", VERSIONS)
def test_databases_of_real_trackio_are_read_annotated_and_cleared(folder, version):
    path = unpacked(folder, version)
    age(path, HOUR)
    before, tables = rows_in(path, "metrics"), schema_of(path)
    theirs = alerts_in(path)
    assert theirs == [("mine", "of its owner", "warn", 39)]
    assert check("trackio:project/healthy").verdict is Verdict.PASS
    report = check("trackio:project/nested")
    assert {one.name: one.role for one in report.series} == {"loss": "train_loss", "eval.loss": "val_loss"}
    outcome = annotate("trackio:project/nan")
    assert (outcome.status, outcome.report.verdict) == ("written", Verdict.FAIL)
    (alert,) = set(alerts_in(path)) - set(theirs)
    assert (alert[0], alert[2:]) == ("tracker-health: FAIL non-finite-loss (certain)", ("error", 30))
    assert annotate("trackio:project/nan").status == "unchanged"
    assert run_cli(["clear", "-q", "trackio:project/nan"]) == 0
    assert (rows_in(path, "metrics"), schema_of(path), alerts_in(path)) == (before, tables, theirs)
    assert sorted(one.name for one in folder.iterdir() if one.suffix != ".lock") == ["project.db"]


def test_params_are_those_of_the_configuration(project):
    run = open_run("trackio:project/healthy")
    assert run.record.kin().name == "healthy"
    with closing(run):
        info = run.read(_everything()).info
    assert info.params == {"lr": "0.1", "max_steps": "40", "note.of": "ours"}


def _everything():
    from tracker_health.testing.stores.harness import request_for

    return request_for("train_loss")


def test_a_run_is_named_by_name_or_id_and_of_two_names_by_id(folder, project, capsys):
    ids = [log(project, "twin", FALLING) for _ in range(2)]
    assert {check(f"trackio:project/{one}").run.id for one in ids} == {f"project/{one}" for one in ids}
    with pytest.raises(RunNotFound) as caught:
        check("trackio:project/twin")
    assert all(one in str(caught.value) for one in ids)
    for name, said_so in (
        ("trackio:project/none", "it has trackio:project/twin"),
        ("trackio:other/x", "there are project"),
        ("trackio:", "give trackio:PROJECT/RUN"),
        ("trackio:project", "has 5 runs"),
        (str(project), "has 5 runs"),
    ):
        assert run_cli(["check", name]) == 3
        assert said_so in capsys.readouterr().err


def test_the_only_run_of_a_project_is_named_by_it_or_by_its_file(folder):
    path = unpacked(folder, name="alone")
    execute(path, "DELETE FROM metrics")
    log(path, "a/b c", NAN)
    for name in ("trackio:alone", str(path), "trackio:alone/a/b c"):
        assert check(name).run.name == "a/b c"


def test_projects_are_where_trackio_has_them(monkeypatch, tmp_path):
    for name, value, place in (
        ("XDG_CACHE_HOME", "/cache", "/cache/huggingface/trackio"),
        ("HF_HOME", "/hub", "/hub/trackio"),
        ("TRACKIO_DIR", str(tmp_path), str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
        assert str(projects_folder()) == place
    assert [file_name(name) for name in ("my.model v2", "a-b_c", "../..")] == ["mymodelv2.db", "a-b_c.db", "default.db"]


def test_reading_leaves_the_log_of_a_killed_process(folder):
    path = unpacked(folder)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE metrics SET timestamp = ?", (said(time.time() - HOUR),))
    connection.commit()
    copies = {}
    for ending in ("", "-wal"):
        shutil.copy(f"{path}{ending}", folder / f"left.db{ending}")
        copies[f"left.db{ending}"] = (folder / f"left.db{ending}").read_bytes()
    connection.close()
    assert check("trackio:left/nan").verdict is Verdict.FAIL
    assert check("trackio:left/healthy").ended == "", "the log was read: without it the run is of months ago"
    assert {name: (folder / name).read_bytes() for name in copies} == copies


# Running, and its end


def test_a_run_that_may_be_running_is_left_alone(project):
    log(project, "live", FALLING, last=time.time() - 60)
    report = check("trackio:project/live")
    assert (report.verdict, report.ended) == (Verdict.SKIP, "running")
    with pytest.raises(StillRunning, match="less than 10 minutes ago"):
        annotate("trackio:project/live")
    assert not (project.parent / "tracker-health").exists()
    with closing(open_run("trackio:project/live", over=True)) as run, run.writing("it failed"):
        pass


def test_a_run_whose_plan_was_not_reached_is_silent_after_some_hours(project):
    config = {"max_steps": 1000}
    rows = [(10 * step, values) for step, values in FALLING]  # steps of the training's own
    log(project, "quiet", rows, config=config, last=time.time() - HOUR)
    assert check("trackio:project/quiet").ended == Ended.RUNNING
    log(project, "silent", rows, config=config, last=time.time() - 10 * HOUR)
    report = check("trackio:project/silent")
    assert (report.ended, report.ended_by) == (
        Ended.SILENT,
        "trackio records no end, and nothing has come from it for 10.0 hours",
    )
    assert "RUN003" in {one.code for one in report.findings}
    log(project, "done", rows, config={"max_steps": 590}, last=time.time() - 10 * HOUR)
    assert check("trackio:project/done").ended == ""


@pytest.mark.parametrize(("hours", "asked", "alerted"), [(1, False, True), (30, False, False), (30, True, True)])
def test_alerts_are_for_runs_that_ended_lately_or_where_asked_for(project, hours, asked, alerted):
    run_id = log(project, "bad", NAN, last=time.time() - hours * HOUR)
    annotate(f"trackio:project/{run_id}", alert=asked)
    assert bool(alerts_in(project, run_id)) == alerted
    assert annotate(f"trackio:project/{run_id}", alert=asked).status == "unchanged"
    late = annotate(f"trackio:project/{run_id}", alert=True)
    assert (late.status, bool(alerts_in(project, run_id))) == ("unchanged" if alerted else "written", True)
    log(project, "good", FALLING)
    assert not alerts_in(project, "good")


def test_a_verdict_that_changes_changes_its_alert(project):
    run_id = log(project, "bad", NAN, last=time.time() - 30 * HOUR)
    annotate(f"trackio:project/{run_id}", alert=True)
    ((first, *_),) = alerts_in(project, run_id)
    execute(project, f"UPDATE metrics SET metrics = replace(metrics, '\"NaN\"', '9e9') WHERE run_id = '{run_id}'")
    assert annotate(f"trackio:project/{run_id}", force=True).status == "written"
    ((second, *_),) = alerts_in(project, run_id)
    assert first != second, "one that is there is replaced, however long ago the run ended"


# Many runs


def test_sweep_and_summary_of_a_project(folder, project, capsys):
    age(project, 8 * HOUR)
    log(project, "late", FALLING, last=time.time() - HOUR)
    found = {one["run"]["name"]: one["verdict"] for one in sweep(project="trackio:project")}
    assert found == {"healthy": "pass", "nan": "fail", "nested": "pass"}
    assert list(sweep(project="trackio:project")) == []
    seen = overview_of(project="trackio:project", by=("experiment",))
    assert (seen.runs, seen.verdicts["fail"], seen.verdicts["none"]) == (4, 1, 1)
    assert seen.groups["experiment"].keys() == {"project"}
    assert run_cli(["check", "--project", "trackio:project", "--where", "{}"]) == 2
    assert "has no filters" in capsys.readouterr().err
    assert run_cli(["clear", "-q", "--project", "trackio:project"]) == 0
    assert not (folder / "tracker-health").exists()


# Hostile and broken


@pytest.mark.parametrize(
    ("statements", "said_so"),
    [
        (["CREATE VIEW mine AS SELECT 1"], "has a view, mine"),
        (["CREATE TRIGGER t AFTER INSERT ON alerts BEGIN DELETE FROM metrics; END"], "has a trigger, t"),
        (["ALTER TABLE metrics RENAME COLUMN step TO at"], "lacks step"),
        (["DROP TABLE metrics", "CREATE TABLE other (x)"], "lacks id, metrics, run_name, step, timestamp"),
        (
            [
                "ALTER TABLE metrics RENAME TO old",
                "CREATE TABLE metrics (id, run_id, timestamp, run_name, step AS (1), metrics)",
            ],
            "lacks step",
        ),
    ],
)
def test_what_trackio_never_makes_is_refused(project, statements, said_so):
    execute(project, *statements)
    with pytest.raises(ReadError) as caught:
        check("trackio:project/nan")
    assert said_so in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_database_is_refused(folder):
    (folder / "text.db").write_text("no database")
    with pytest.raises(ReadError, match="no SQLite database"):
        check("trackio:text/run")
    path = unpacked(folder)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(ReadError, match="cannot be read"):
        check("trackio:project/nan")


def test_rows_that_cannot_be_read_are_counted(project):
    run_id = log(project, "odd", FALLING)
    row = f"'{run_id}', '{said(time.time() - HOUR)}', 'odd'"
    columns = "(run_id, timestamp, run_name, step, metrics)"
    large = json.dumps({"loss": 1.0, "text": "x" * 2**20})
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    with closing(sqlite3.connect(project)) as connection, connection:
        for content in (large, deep, "[1]", "{", b"\xff", "3"):
            connection.execute(f"INSERT INTO metrics {columns} VALUES ({row}, 70, ?)", (content,))
    report = check("trackio:project/odd")
    assert "6 rows could not be read; the others were" in [one.message for one in report.errors]


def test_too_many_rows_and_names_are_said_to_be(project, monkeypatch):
    monkeypatch.setattr(history, "MAX_ROWS", 20)
    report = check("trackio:project/nan")
    assert report.verdict is Verdict.ERROR
    assert any("more than the 20 rows" in one.message for one in report.errors)


def test_a_query_that_takes_too_long_is_given_up(project, monkeypatch):
    monkeypatch.setattr(database, "_READING_SECONDS", -1.0)
    monkeypatch.setattr("tracker_health.stores.common.sqlite_files._INSTRUCTIONS", 1)
    with pytest.raises(ReadError, match="took too long"):
        check("trackio:project/nan")


def test_ids_of_runs_lead_to_no_other_folder(folder, project):
    for run_id in ("../../up", "..", "/tmp/x", "a" * 500):
        log(project, "named", FALLING, run_id=run_id)
        place = marks.folder_of(project, run_id)
        assert place.parent == folder / "tracker-health" / "project"
        assert len(place.name) == 32


def test_links_in_the_place_of_our_table_are_left(folder, project, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "tracker-health").symlink_to(elsewhere)
    with pytest.raises(WriteError, match="is a link"):
        annotate("trackio:project/nan")
    assert list(elsewhere.iterdir()) == []


def test_a_table_of_marks_that_is_broken_is_said_to_be(folder, project):
    annotate("trackio:project/nan")
    table = folder / "tracker-health" / "project" / "marks.sqlite"
    table.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(ReadError, match="move it away"):
        annotate("trackio:project/nan")


# Others at work


def test_a_training_that_holds_the_database_is_waited_for_and_then_named(project, monkeypatch):
    monkeypatch.setattr(alerts, "_TURN_SECONDS", 0.5)
    begin = time.monotonic()
    with closing(sqlite3.connect(project)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(WriteError, match="its training writes to it all the time"):
            annotate("trackio:project/nan")
    assert time.monotonic() - begin >= 0.5
    with closing(open_run("trackio:project/nan")) as run:
        recorded = run.recorded()
    assert recorded is not None
    assert not recorded.is_whole
    assert annotate("trackio:project/nan").status == "written"
    assert len(alerts_in(project)) == 2


def test_trackios_own_lock_is_waited_for(project):
    with (project.parent / "project.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).start()
        assert annotate("trackio:project/nan").status == "written"
    assert len(alerts_in(project)) == 2


def test_without_permission_nothing_is_written(project, monkeypatch):
    before = project.read_bytes()

    def refuse(*_arguments, **_options):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(marks, "_opened", refuse)
    with pytest.raises(StoreRefused, match=r"marks\.sqlite"):
        annotate("trackio:project/nan")
    assert project.read_bytes() == before


@pytest.mark.slow
def test_several_processes_annotate_and_clear_while_a_training_logs(folder, project):
    """All runs of a project at once: the table of marks comes and goes under them."""
    names = [log(project, f"run {number}", NAN if number % 2 else FALLING) for number in range(4)]
    script = (
        "import sys; from tracker_health.api import annotate, clear_annotations as clear\n"
        "for _ in range(4):\n"
        "    annotate(sys.argv[1], force=True)\n"
        "    clear(sys.argv[1])\n"
        "annotate(sys.argv[1])\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, f"trackio:project/{name}"], stderr=subprocess.PIPE)
        for name in names
    ]
    while any(one.poll() is None for one in processes):
        log(project, "training", [(0, {"loss": 1.0})], run_id="training")
        time.sleep(0.02)
    assert [one.communicate()[1] for one in processes] == [b""] * 4
    for number, name in enumerate(names):
        with closing(open_run(f"trackio:project/{name}")) as run:
            assert run.recorded().verdict is (Verdict.FAIL if number % 2 else Verdict.PASS)
        assert len(alerts_in(project, name)) == number % 2


ANNOTATOR = """
import sys
from tracker_health.api import annotate, clear_annotations as clear
print("ready", flush=True)
while True:
    annotate(sys.argv[1], force=True)
    clear(sys.argv[1])
    print("once", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", [NEWEST, WITHOUT_IDS[0]])
def test_annotators_that_are_killed_leave_what_the_next_one_repairs(folder, version):
    path = unpacked(folder, version)
    age(path, HOUR)
    before, theirs = rows_in(path, "metrics"), alerts_in(path)
    command = [sys.executable, "-c", ANNOTATOR, "trackio:project/nan"]
    for delay in (0.001, 0.01, 0.02, 0.05, 0.11, 0.17, 0.23, 0.31):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
            assert process.stdout.readline() == b"ready\n"
            assert process.stdout.readline() == b"once\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        assert rows_in(path, "metrics") == before
        assert annotate("trackio:project/nan").report.verdict is Verdict.FAIL
        assert len(alerts_in(path)) == len(theirs) + 1, "whatever the killed one had done"
        assert run_cli(["clear", "-q", "trackio:project/nan"]) == 0
        assert (alerts_in(path), (folder / "tracker-health").exists()) == (theirs, False)


def test_other_packages_have_stores_of_their_own(monkeypatch):
    from importlib.metadata import EntryPoint

    from tracker_health.stores import named

    def entries(*, group, name):
        assert group == "tracker_health.stores"
        found = {"broken": "nowhere.at.all", "half": "json"}
        return [EntryPoint(name, found[name], group)] if name in found else []

    monkeypatch.setattr("importlib.metadata.entry_points", entries)
    named._store_of.cache_clear()
    with pytest.raises(MissingExtra, match="the store broken of another package cannot be used: ModuleNotFoundError"):
        check("broken:project/run")
    with pytest.raises(MissingExtra, match="it has no open_run and no run_names"):
        check("half:project/run")
    with pytest.raises(RunNotFound):
        check("nobody:project/run")
    named._store_of.cache_clear()
