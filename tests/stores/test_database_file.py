"""A SQLite database of MLflow's given as a file, or with its folder: known by its content, and never changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.cli import cli
from tracker_health.errors import ReadError, RunNotFound, StoreUnavailable

mlflow = pytest.importorskip("mlflow")

DIED = "step 1 loss=2\nTraceback (most recent call last):\n  x\nValueError: mine\n"


def make_database(folder, *names, file="mlflow.db", artifacts=None):
    """A store made by MLflow itself; its runs fall, and their console ends with an error."""
    folder.mkdir(exist_ok=True)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / file}")
    experiment = client.create_experiment("ours", artifact_location=artifacts or str(folder / "mlruns" / "1"))
    for name in names:
        run_id = client.create_run(experiment, run_name=name).info.run_id
        points = [mlflow.entities.Metric("train/loss", 2 / (1 + step), 10**12 + step, step) for step in range(60)]
        client.log_batch(run_id, metrics=points)
        client.log_text(run_id, DIED, "console.log")
        client.set_terminated(run_id, "FAILED")
    return folder / file


def contents(folder):
    """Every file, but for the log that SQLite keeps beside a database while it is in use."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", ["mlflow.db", "mlruns.db", "my runs.sqlite"])
@pytest.mark.parametrize("log", ["delete", "wal"])
def test_a_database_stands_for_its_only_run_and_is_not_changed(tmp_path, monkeypatch, file, log):
    path = make_database(tmp_path / "place", "alone", file=file)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {log}")
    before = contents(path.parent)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for given in (path, path.parent):
        report = th.check(given)
        assert (report.run.store, report.run.name, report.verdict) == ("mlflow", "alone", "fail")
        assert any("ValueError: mine" in one.message for one in report.results), "its artifacts were read"
    assert contents(path.parent) == before
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.exhaustive
def test_artifacts_lie_beside_a_database_that_was_moved(tmp_path):
    path = make_database(tmp_path / "place", "alone")
    shutil.move(path.parent, tmp_path / "moved")
    report = th.check(tmp_path / "moved")
    assert any("ValueError: mine" in one.message for one in report.results)


@pytest.mark.exhaustive
def test_of_several_runs_the_newest_are_judged(tmp_path):
    path = make_database(tmp_path / "place", "first", "second")
    (tmp_path / "place" / "mlruns" / "0").mkdir()
    (tmp_path / "place" / "mlruns" / "0" / "meta.yaml").write_text("experiment_id: '0'\nlifecycle_stage: active\n")
    before = contents(path.parent)
    for given in (path, path.parent):
        with pytest.raises(RunNotFound, match=r"2 runs, the newest: second \(\w{32}\), first"):
            th.open_run(given)
        done = CliRunner().invoke(cli, ["check", str(given), "--fail-on", "never"])
        assert done.exit_code == 0, done.output
        assert [line.split()[1] for line in done.output.splitlines() if line.startswith("FAIL  ")] == [
            "second",
            "first",
        ]
    assert contents(path.parent) == before


@pytest.mark.exhaustive
def test_what_else_is_in_the_folder_comes_first(tmp_path):
    path = make_database(tmp_path / "place", "alone")
    (path.parent / "train.log").write_text("".join(f"step {step} loss={3 - step / 100}\n" for step in range(100)))
    assert th.check(path.parent).run.store == "directory"


@pytest.mark.exhaustive
def test_a_database_of_another_mlflow(tmp_path):
    path = make_database(tmp_path / "place", "alone")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'unheard'")
    before = contents(path.parent)
    with pytest.raises(StoreUnavailable, match="is of a newer MLflow than the installed"):
        th.open_run(path)
    assert contents(path.parent) == before


@pytest.mark.exhaustive
def test_without_mlflow_it_says_so(tmp_path):
    path = make_database(tmp_path / "place", "first", "second")
    script = f"import sys; sys.modules['mlflow'] = None; from tracker_health.cli import main; sys.argv[1:] = ['check', {str(path)!r}]; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, "the package 'mlflow' is not installed" in done.stderr) == (3, True), done.stderr


def test_a_database_that_is_none_of_mlflows(tmp_path):
    other = tmp_path / "place" / "other.db"
    other.parent.mkdir()
    with closing(sqlite3.connect(other)) as connection, connection:
        for name in ("experiments", "metrics", "params", "tags", "alembic_version"):
            connection.execute(f"CREATE TABLE {name} (a)")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS run_uuid FROM n"
        connection.execute(f"CREATE VIEW runs AS {endless}")
    for given in (other, other.parent):
        assert th.check(given).run.store == "directory"
    other.write_bytes(other.read_bytes()[:100] + os.urandom(3000))
    with pytest.raises(ReadError, match="cannot be read"):
        th.open_run(other)


KILLED = """
import os, sqlite3, sys
path, mode = sys.argv[1:]
connection = sqlite3.connect(path)
connection.execute(f"PRAGMA journal_mode = {mode}")
connection.execute("UPDATE runs SET name = 'by the killed'")
if mode == "wal":
    connection.commit()
else:
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("CREATE TABLE much AS SELECT zeroblob(100000) FROM metrics")
os._exit(0)
"""

ALL_OF = """
import ast, sys
from tracker_health.cli import cli
for command in ast.literal_eval(sys.argv[1]):
    try:
        cli(command)
    except SystemExit as end:
        assert end.code in (0, 1), (command, end.code)
"""


def files_of(folder):
    """Names, content and times of all files, of SQLite's own as well."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    ("mode", "lost", "name"),
    [("wal", "", "by the killed"), ("wal", "-shm", "by the killed"), ("delete", "", "alone")],
)
@pytest.mark.exhaustive
def test_what_a_killed_process_left_stays_as_it_is(tmp_path, mode, lost, name):
    path = make_database(tmp_path / "place", "alone")
    subprocess.run([sys.executable, "-c", KILLED, path, mode], check=True)
    if lost:
        (path.parent / f"{path.name}{lost}").unlink()
    before = files_of(path.parent)
    assert {"wal": f"{path}-wal", "delete": f"{path}-journal"}[mode] in map(str, before)
    uri, run = f"sqlite:///{path}", th.check(path.parent).run
    assert run.name == name
    commands = [["check", str(path)], ["check", str(path.parent)], ["report", str(path)]]
    commands += [[command, run.id, "--tracking-uri", uri] for command in ("check", "report", "series")]
    commands += [["sweep", "--tracking-uri", uri, "--report-to", str(tmp_path / "reports"), "--experiment", "ours"]]
    # In a process of their own: SQLite tidies up when the last connection is closed.
    done = subprocess.run(
        [sys.executable, "-c", ALL_OF, repr(commands)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, files_of(path.parent)) == (0, before), done.stderr
    assert done.stdout.count("mine") >= 3, done.stdout
    th.annotate(run.id, tracking_uri=uri)
    assert mlflow.MlflowClient(uri).get_run(run.id).data.tags["health.verdict"] == "fail"
    assert th.check(run.id, tracking_uri=uri).run.name == name


@pytest.mark.exhaustive
def test_one_that_is_too_large_to_copy_is_read_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("tracker_health.stores.common.sqlite_files.MAX_BYTES", 1000)
    path = make_database(tmp_path / "place", "alone")
    subprocess.run([sys.executable, "-c", KILLED, path, "wal"], check=True)
    notes = th.check(path).notes
    assert any("was read itself, which may change its files: it is" in note for note in notes)


@pytest.mark.exhaustive
def test_what_is_written_after_it_was_copied_is_read(tmp_path):
    path = make_database(tmp_path / "place", "alone")
    subprocess.run([sys.executable, "-c", KILLED, path, "wal"], check=True)
    run = th.open_run(path)
    assert run.ref.name == "by the killed"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").set_tag(run.ref.id, "mine", "later")
    run.look()
    assert run.traits()["tag:mine"] == "later"
    run.close()
