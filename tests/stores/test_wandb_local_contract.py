"""The conformance suite on W&B's local runs: logs of the SDK's own records, with the files beside them."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from tracker_health.stores.folder import directory
from tracker_health.stores.wandb import log_writer, segments
from tracker_health.stores.wandb.folders import open_local_run
from tracker_health.stores.wandb.local import LocalRun
from tracker_health.stores.wandb.media import MEDIA_PLACES
from tracker_health.testing.stores.contract import FAIL, StoreContract, View, calls_counted, write

from . import wandb_logs
from .test_contract import counted, no_new_folders

pytest.importorskip("wandb")

OWN_TAGS = ("health:pass", "health:warn", "health:fail", "health:skip", "health:error")


class LocalHarness:
    """Runs as the SDK leaves them offline; looked at through its own classes."""

    def __init__(self, root):
        self.root = root

    def new_run(self, *, metrics, files, note=""):
        run = Path(tempfile.mkdtemp(prefix="offline-run-", dir=self.root))
        steps = sorted({step for points in metrics.values() for step, _ in points})
        rows = [
            wandb_logs.history(
                step, {name: dict(points)[step] for name, points in metrics.items() if step in dict(points)}
            )
            for step in steps
        ]
        first = wandb_logs.run_record(notes=note, tags=["mine"], config={"lr": 0.1})
        wandb_logs.write_log(run / "run-abc123.wandb", [first, *rows, wandb_logs.exit_record()])
        (run / "files").mkdir()
        (run / "files" / "output.log").write_text("words\n")
        for path, content in files.items():
            self.add_file(str(run), path, content)
        return str(run)

    def open(self, run):
        return open_local_run(run) or LocalRun(run, Path(run) / "run-abc123.wandb")

    def view(self, run, *, ours):
        records = wandb_logs.records_in(Path(run) / "run-abc123.wandb")
        own = [one for one in records if one.uuid == "tracker-health"]
        theirs = [one for one in records if one.uuid != "tracker-health"]
        files = self._files(run)
        media = {path: files.pop(path) for path in list(files) if path in MEDIA_PLACES.values()}
        own_files = {
            path.removeprefix("health/"): files.pop(path) for path in list(files) if path.startswith("health/")
        }
        if not ours:
            described = theirs[0].run
            tags = {str(number): one.SerializeToString().hex() for number, one in enumerate(theirs)}
            return View(tags={**tags, "tags": ",".join(described.tags)}, note=described.notes, files=files)
        if not own_files and not own:
            assert not media
        document = json.loads(own_files.pop("annotation.json", b"{}"))
        summary = {
            item.key.removeprefix("health/"): json.loads(item.value_json)
            for one in own
            if one.WhichOneof("record_type") == "summary"
            for item in one.summary.update
        }
        runs = [one.run for one in own if one.WhichOneof("record_type") == "run"]
        listed = [item.path for one in own for item in one.files.files]
        if document.get("digest") != "pending":
            written = [name for name in sorted(own_files) if not name.startswith("acks/")]
            assert [MEDIA_PLACES.get(name, f"health/{name}") for name in written] == listed
            assert media == {MEDIA_PLACES[name]: own_files[name] for name in MEDIA_PLACES if name in own_files}
        metrics = {name: value for name, value in summary.items() if isinstance(value, float)}
        tags = {name: value for name, value in summary.items() if isinstance(value, str)}
        tags |= {"tags": ",".join(runs[0].tags)} if runs else {}
        return View(tags=tags, metrics=metrics, note=document.get("note", ""), files=own_files)

    def _files(self, run):
        folder = Path(run, "files")
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def unknown_run(self):
        return str(self.root / "nowhere")

    def add_file(self, run, path, content):
        place = Path(run, "files", path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def owned(self, run, path):
        return Path(run, "files", path).read_bytes()

    def add_point(self, run, metric, step, value):
        path = Path(run, "run-abc123.wandb")
        contents = [content for _, content in wandb_logs.contents_of(path.read_bytes())]
        row = wandb_logs.history(step, {metric: value}).SerializeToString()
        path.write_bytes(wandb_logs.log_of([*contents[:-1], row, contents[-1]]))

    def add_value(self, run, name, value):
        """As ``run.log`` leaves it, or ``run.summary[...]``."""
        path = Path(run, "run-abc123.wandb")
        contents = [content for _, content in wandb_logs.contents_of(path.read_bytes())]
        in_summary = name in ("summary", "codes", "stopped")
        kind = wandb_logs.summary_record if in_summary else wandb_logs.history
        record = kind(60, {f"health/{name}": value})
        path.write_bytes(wandb_logs.log_of([contents[0], record.SerializeToString(), *contents[1:]]))

    def value(self, run, name):
        """What a server would have after a sync: the last one."""
        found = None
        for one in wandb_logs.records_in(Path(run) / "run-abc123.wandb"):
            items = one.history.item if one.WhichOneof("record_type") == "history" else one.summary.update
            for item in items:
                if (item.key or "/".join(item.nested_key)) == f"health/{name}":
                    found = json.loads(item.value_json)
        return found

    def delete(self, run):
        shutil.rmtree(run)

    @contextmanager
    def before_write(self, action):
        with calls_counted(action) as called, pytest.MonkeyPatch.context() as patch:
            places = [(directory, "replace_file"), (log_writer, "_put"), (log_writer, "_copy")]
            places += [(Path, name) for name in ("mkdir", "unlink", "rmdir", "hardlink_to")]
            for owner, name in places:
                patch.setattr(owner, name, counted(getattr(owner, name), called))
            yield

    @contextmanager
    def before_read(self, action):
        rows_of, find = segments.rows_of, LocalRun.local

        def rows(path, wanted):
            for name in wanted:
                action(name)
            return rows_of(path, wanted)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments, "rows_of", rows)
            patch.setattr(LocalRun, "local", lambda run, file: action(file.path) or find(run, file))
            yield

    @contextmanager
    def forbid_writing(self, run):
        with no_new_folders():
            yield self.open(run)

    def supports(self, ability):
        reasons = {"delete": "a deleted folder is gone", "marks": "the log has those of when it was annotated"}
        return reasons.get(ability, "")


@pytest.mark.thinned(2)
class TestLocalRun(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return LocalHarness(tmp_path)

    def test_of_two_verdicts_there_is_one_tag(self, harness, run):
        write(harness, run, FAIL)
        tags = harness.view(run, ours=True).tags["tags"].split(",")
        assert [tag for tag in tags if tag in OWN_TAGS] == ["health:fail"]
        assert "mine" in tags
