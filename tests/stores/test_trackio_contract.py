"""The conformance suite on trackio's runs: in databases of real trackio, of its newest version and its oldest."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.stores import trackio_databases
from tests.stores.trackio_databases import alerts_in, log

from tracker_health.errors import RunNotFound
from tracker_health.stores.trackio import history, marks
from tracker_health.stores.trackio import run as trackio_run
from tracker_health.stores.trackio.database import Database
from tracker_health.stores.trackio.run import TrackioRun
from tracker_health.testing.stores.contract import FAIL, PASS, StoreContract, View, calls_counted, clear, write
from tracker_health.testing.stores.harness import without_run

from .test_contract import counted, no_new_folders

ENDED = 1_700_000_048.0


class TrackioHarness:
    """Runs of one project. trackio describes none: a file next to the database stands for that."""

    def __init__(self, root, version):
        self.path = trackio_databases.unpacked(root, version)
        self.has_ids = version not in trackio_databases.WITHOUT_IDS
        self.owners = root / "owner"

    def new_run(self, *, metrics, files, note=""):
        name = f"run {uuid.uuid4().hex}"
        rows = [(step, {metric: value}) for metric, points in metrics.items() for step, value in points]
        run_id = log(self.path, name, rows, config={"lr": 0.1, "_Username": "ana"}, last=ENDED)
        run = run_id if self.has_ids else name
        self.add_file(run, "description.txt", note.encode())
        for path, content in files.items():
            self.add_file(run, path, content)
        return run

    def open(self, run):
        database = Database(self.path)
        opened = TrackioRun(database, database.find(run))
        opened.alerts_late = True
        return opened

    def view(self, run, *, ours):
        folder = marks.folder_of(self.path, run)
        if not ours:
            files = {str(path): path.read_bytes() for path in (self.owners / run).rglob("*") if path.is_file()}
            note = files.pop(str(self.owners / run / "description.txt"), b"").decode()
            with closing(sqlite3.connect(self.path)) as connection:
                key = "run_id" if self.has_ids else "run_name"
                tables = {
                    table: str(connection.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,)).fetchall())
                    for table in ("metrics", "configs", "system_metrics")
                }
            return View(tags=tables, note=note, files=files)
        found = marks.MarksTable(self.path).of(run)
        note = found.pop("note:", "")
        metrics = {name: value for name, value in found.items() if isinstance(value, float)}
        tags = {name: value for name, value in found.items() if name not in metrics}
        alerted = "; ".join(f"{title} {text} {level}" for title, text, level, _ in alerts_in(self.path, run))
        tags |= {"alert": alerted} if alerted else {}
        files = {path.name: path.read_bytes() for path in folder.glob("*")}
        return View(tags=self._of_any(run, tags, folder), metrics=metrics, note=note, files=files)

    def _of_any(self, run, tags, folder):
        """Without what says of which run they are."""
        if not tags:
            return {}
        identity = run if self.has_ids else f"{run} {Database(self.path).find(run).first}"
        return {name: text.replace(str(folder), "") for name, text in without_run(tags, identity).items()}

    def unknown_run(self):
        return "nowhere"

    def _place(self, run, path):
        ours = marks.folder_of(self.path, run)
        return ours / path.removeprefix("health/") if path.startswith("health/") else self.owners / run / path

    def add_file(self, run, path, content):
        place = self._place(run, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def owned(self, run, path):
        return self._place(run, path).read_bytes()

    def add_point(self, run, metric, step, value):
        name = Database(self.path).find(run).name
        log(self.path, name, [(step, {metric: value})], run_id=run, last=ENDED + 100)

    def add_value(self, run, name, value):
        marks.MarksTable(self.path).path.parent.mkdir(parents=True, exist_ok=True)
        marks.MarksTable(self.path).change(run, {name: value})

    def value(self, run, name):
        return marks.MarksTable(self.path).of(run).get(name)

    def delete(self, run):
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(f"DELETE FROM metrics WHERE {'run_id' if self.has_ids else 'run_name'} = ?", (run,))

    @contextmanager
    def forbid_writing(self, run):
        with no_new_folders():
            yield self.open(run)

    @contextmanager
    def before_write(self, action):
        with calls_counted(action) as called, pytest.MonkeyPatch.context() as patch:
            places = [(trackio_run, "replace_file"), (trackio_run, "put"), (marks.MarksTable, "change")]
            places += [(Path, name) for name in ("mkdir", "unlink", "rmdir")]
            for owner, name in places:
                patch.setattr(owner, name, counted(getattr(owner, name), called))
            yield

    @contextmanager
    def before_read(self, action):
        series_in = history.series_in

        def read(connection, layout, row, names, roles):
            for name in roles:
                action(name)
            return series_in(connection, layout, row, names, roles)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trackio_run, "series_in", read)
            yield

    def supports(self, ability):
        reasons = {"values": "the marks are in a table of ours, where nobody else writes"}
        return reasons.get(ability, "")


@pytest.mark.thinned(2)
class TestTrackio(StoreContract):
    @pytest.fixture(params=[trackio_databases.NEWEST, trackio_databases.WITHOUT_IDS[0]])
    def harness(self, request, tmp_path):
        return TrackioHarness(tmp_path, request.param)

    def test_an_alert_comes_and_goes_with_its_verdict(self, harness, run):
        write(harness, run, FAIL)
        folder = marks.folder_of(harness.path, run)
        report = f"\nReport: {folder / 'report.json'}"
        assert alerts_in(harness.path, run) == [
            ("tracker-health: FAIL diverged", f"diverged: it rose{report}", "error", None)
        ]
        write(harness, run, PASS)
        assert alerts_in(harness.path, run) == []
        write(harness, run, FAIL)
        assert clear(harness, run)
        assert alerts_in(harness.path, run) == []
        assert not (harness.path.parent / "tracker-health").exists(), "nothing of ours is left"

    def test_a_run_that_was_deleted_and_begun_again_has_no_verdict(self, harness, run):
        write(harness, run, FAIL)
        before = harness.open(run)
        harness.delete(run)
        with pytest.raises(RunNotFound):
            before.look()
        name = before.ref.name
        log(harness.path, name, [(step, {"loss": 1.0}) for step in range(9)])
        again = Database(harness.path).find(name)
        assert (found := TrackioRun(Database(harness.path), again).recorded()) is None or not found.is_whole
