"""The conformance suite on every store: folders, MLflow's file store, its database, its server, and one with passwords."""

import json
import math
import shutil
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stores import mlflow_tags

from tracker_health.errors import StoreRefused
from tracker_health.stores.base import StoredRun
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder import directory
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.mlflow import folder as mlflow_folder
from tracker_health.stores.mlflow import run as mlflow_run
from tracker_health.stores.mlflow.connection import _folders_allowed
from tracker_health.stores.mlflow.folder import open_run_folder
from tracker_health.stores.mlflow.run import MlflowRun, open_mlflow_run
from tracker_health.stores.mlflow.stored_files import artifact_folder
from tracker_health.stores.mlflow.stored_files.artifact_folder import ArtifactFolder
from tracker_health.stores.mlflow.stored_files.artifacts import ArtifactTree
from tracker_health.stores.wandb.local import LocalRun
from tracker_health.stores.wandb.online import OnlineRun
from tracker_health.testing.stores.contract import (
    FAIL,
    PASS,
    StoreContract,
    View,
    assert_bears,
    calls_counted,
    write,
)
from tracker_health.testing.stores.harness import without_run

BLOCK = "<!-- tracker-health:begin -->"


@contextmanager
def no_new_folders():
    """As for somebody who may read a folder and write nothing into it."""

    def refuse(_path, *_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        yield


class DirectoryHarness:
    """Runs as folders. A folder has no description: a file stands for it."""

    def __init__(self, root):
        self.root = root

    def new_run(self, *, metrics, files, note=""):
        run = Path(tempfile.mkdtemp(dir=self.root))
        rows = [{"step": step, name: value} for name, points in metrics.items() for step, value in points]
        (run / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run / "description.txt").write_text(note)
        for path, content in files.items():
            (run / path).parent.mkdir(parents=True, exist_ok=True)
            (run / path).write_bytes(content)
        return str(run)

    def open(self, run):
        return DirectoryRun(run)

    def view(self, run, *, ours):
        folder = Path(run)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if not ours:
            note = files.pop("description.txt", b"").decode()
            return View(
                note=note, files={path: content for path, content in files.items() if not path.startswith("health/")}
            )
        own = {path.removeprefix("health/"): content for path, content in files.items() if path.startswith("health/")}
        if not own:
            return View()
        document = json.loads(own.pop("annotation.json", b"{}"))
        tags = {**document.get("tags", {})}
        tags |= {name: document[name] for name in ("digest", "verdict", "shadow", "notified") if name in document}
        return View(tags=tags, metrics=document.get("metrics", {}), note=document.get("note", ""), files=own)

    def unknown_run(self):
        return str(self.root / "nowhere")

    def add_file(self, run, path, content):
        Path(run, path).parent.mkdir(exist_ok=True)
        Path(run, path).write_bytes(content)

    def owned(self, run, path):
        return Path(run, path).read_bytes()

    def add_point(self, run, metric, step, value):
        with Path(run, "log.jsonl").open("a") as log:
            log.write(json.dumps({"step": step, metric: value}) + "\n")

    def delete(self, run):
        shutil.rmtree(run)

    @contextmanager
    def before_write(self, action):
        with calls_counted(action) as called, pytest.MonkeyPatch.context() as patch:
            for owner, name in ((directory, "replace_file"), (Path, "mkdir"), (Path, "unlink"), (Path, "rmdir")):
                patch.setattr(owner, name, counted(getattr(owner, name), called))
            yield

    @contextmanager
    def before_read(self, action):
        with pytest.MonkeyPatch.context() as patch:
            local = DirectoryRun.local
            patch.setattr(DirectoryRun, "local", lambda run, file: action(file.path) or local(run, file))
            yield

    @contextmanager
    def forbid_writing(self, run):
        with no_new_folders():
            yield DirectoryRun(run)

    def supports(self, ability):
        reasons = {
            "delete": "a deleted folder is gone",
            "values": "a folder has no values of its owner's",
            "state": "no process of a folder is seen to end",
            "stops": "no training writes onto a folder why it stopped",
        }
        return reasons.get(ability, "")


# The picture among the metrics is two files and a tag in MLflow's own form.
IMAGES_TAG = "mlflow.loggedImages"
OUR_TAGS = ("health.", IMAGES_TAG)
OUR_PICTURES = "images/health~loss+"


class MlflowHarness:
    """Runs of an MLflow store, made and looked at with MLflow's own client."""

    def __init__(self, uri, experiment="local", readonly_uri=None):
        from mlflow import MlflowClient

        self.uri = uri
        self.readonly_uri = readonly_uri
        self.client = MlflowClient(tracking_uri=uri)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)

    def new_run(self, *, metrics, files, note=""):
        from mlflow.entities import Metric

        run = self.client.create_run(self.experiment, tags={"mlflow.note.content": note, "owner": "me"}).info.run_id
        points = [
            Metric(name, value, 1000 + step, step) for name, history in metrics.items() for step, value in history
        ]
        self.client.log_batch(run, metrics=points)
        with tempfile.TemporaryDirectory() as folder:
            for path, content in files.items():
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_bytes(content)
            if files:
                self.client.log_artifacts(run, folder)
        self.client.set_terminated(run, end_time=5000)
        return run

    def open(self, run):
        return open_mlflow_run(run, self.uri)

    def view(self, run, *, ours):
        found = self.client.get_run(run)
        tags, note = dict(found.data.tags), found.data.tags.get("mlflow.note.content", "")
        tags.pop("mlflow.note.content", None)
        own_tags = mlflow_tags.ours(tags) | {key: tags[key] for key in tags if key == IMAGES_TAG}
        own = [key for key in tags if key.startswith(OUR_TAGS)] + ["health"] * ("column" in own_tags)
        tags = {key: value for key, value in tags.items() if key not in own}
        metrics = dict(found.data.metrics)
        own_metrics = {
            name.removeprefix("health/"): metrics.pop(name) for name in list(metrics) if name.startswith("health/")
        }
        files = self._files(run)
        own_files = {
            path.removeprefix("health/"): files.pop(path) for path in list(files) if path.startswith("health/")
        }
        own_tags |= {path: files.pop(path).hex() for path in list(files) if path.startswith(OUR_PICTURES)}
        before, block, rest = note.partition(BLOCK)
        if ours:
            shown = {name: value for name, value in own_metrics.items() if not math.isnan(value)}
            return View(tags=without_run(own_tags, run), metrics=shown, note=block + rest, files=own_files)
        status = {"status": found.info.status, "end_time": str(found.info.end_time)}
        return View(tags={**tags, **status}, metrics=metrics, note=before.removesuffix("\n\n"), files=files)

    def _files(self, run):
        with tempfile.TemporaryDirectory() as folder:
            if not self.client.list_artifacts(run):
                return {}
            self.client.download_artifacts(run, "", folder)
            return {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in Path(folder).rglob("*")
                if path.is_file()
            }

    def unknown_run(self):
        return "0" * 32

    def add_file(self, run, path, content):
        self.client.log_text(run, content.decode(), path)

    def owned(self, run, path):
        return self._files(run)[path]

    def add_point(self, run, metric, step, value):
        self.client.log_metric(run, metric, value, timestamp=9000, step=step)

    def add_value(self, run, name, value):
        self.client.set_tag(run, f"health.{name}", value)

    def value(self, run, name):
        return self.client.get_run(run).data.tags.get(f"health.{name}")

    def delete(self, run):
        self.client.delete_run(run)

    @contextmanager
    def before_write(self, action):
        from mlflow import MlflowClient

        with calls_counted(action) as called, pytest.MonkeyPatch.context() as patch:
            for name in ("log_batch", "set_tag", "delete_tag"):
                patch.setattr(MlflowClient, name, counted(getattr(MlflowClient, name), called))
            patch.setattr(artifact_folder, "replace_file", counted(artifact_folder.replace_file, called))
            for name in ("put", "delete"):
                patch.setattr(ArtifactFolder, name, counted(getattr(ArtifactFolder, name), called))
            yield

    @contextmanager
    def before_read(self, action):
        with pytest.MonkeyPatch.context() as patch:
            history, local = mlflow_run.read_history, ArtifactTree.local
            patch.setattr(
                mlflow_run, "read_history", lambda client, run, name: action(name) or history(client, run, name)
            )
            patch.setattr(ArtifactTree, "local", lambda tree, file: action(file.path) or local(tree, file))
            yield

    @contextmanager
    def forbid_writing(self, run):
        yield open_mlflow_run(run, self.readonly_uri)

    def supports(self, ability):
        if ability == "permissions" and not self.readonly_uri:
            return "a server without accounts permits everything"
        return "each number is a chart" if ability == "numbers" else ""


def counted(function, called):
    def call(*arguments, **options):
        called()
        return function(*arguments, **options)

    return call


class TestDirectory(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return DirectoryHarness(tmp_path)


@pytest.mark.costly_writes
class TestDatabase(StoreContract):
    @pytest.fixture
    def harness(self, sqlite_uri, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)  # of a file: URI MLflow makes a folder of that name where it is
        path = sqlite_uri.removeprefix("sqlite:///")
        return MlflowHarness(sqlite_uri, readonly_uri=f"sqlite:///file:{path}?mode=ro&uri=true")


class FolderHarness(MlflowHarness):
    """An old file store of MLflow's."""

    def __init__(self, root):
        with _folders_allowed():
            super().__init__(str(root), experiment="Default")

    def supports(self, ability):
        reasons = {
            "permissions": "files have the permissions of their folders",
            "numbers": "each number is a chart",
        }
        return reasons.get(ability, "")


@pytest.mark.thinned(3)
class TestFileStore(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return FolderHarness(tmp_path / "mlruns")

    def test_a_record_that_another_writes_this_moment_is_not_taken_for_none(self, harness, run, tmp_path):
        write(harness, run, PASS)
        (record,) = tmp_path.glob(f"mlruns/*/{run}/tags/health.digest")
        content = record.read_text()
        record.write_text("")  # as MLflow leaves it between opening the file and writing into it
        other = threading.Timer(0.05, record.write_text, [content])
        other.start()
        write(harness, run, FAIL)
        other.join()
        assert_bears(harness, run, FAIL)


class LoneHarness(DirectoryHarness):
    """Runs whose folders were copied out of a file store."""

    def new_run(self, *, metrics, files, note=""):
        run = Path(super().new_run(metrics={}, files={f"artifacts/{path}": files[path] for path in files}, note=note))
        (run / "log.jsonl").unlink()
        (run / "meta.yaml").write_text("run_id: abc\nstatus: 3\n")
        (run / "metrics").mkdir()
        for name, points in metrics.items():
            (run / "metrics" / name).write_text("".join(f"{1000 + step} {value!r} {step}\n" for step, value in points))
        return str(run)

    def open(self, run):
        return open_run_folder(run) or DirectoryRun(run)

    def add_point(self, run, metric, step, value):
        with Path(run, "metrics", metric).open("a") as file:
            file.write(f"9000 {value} {step}\n")

    def add_value(self, run, name, value):
        """A tag of the store that the folder was copied out of."""
        Path(run, "tags").mkdir(exist_ok=True)
        Path(run, "tags", f"health.{name}").write_text(value)

    def value(self, run, name):
        return Path(run, "tags", f"health.{name}").read_text()

    def supports(self, ability):
        return "" if ability == "stops" else super().supports(ability)

    @contextmanager
    def before_read(self, action):
        read = mlflow_folder.read_points
        with super().before_read(action), pytest.MonkeyPatch.context() as patch:
            patch.setattr(mlflow_folder, "read_points", lambda path: action(path.name) or read(path))
            yield


@pytest.mark.thinned(3)
class TestLoneRunFolder(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return LoneHarness(tmp_path)


@pytest.mark.slow
@pytest.mark.thinned(5)
class TestServer(StoreContract):
    # What is sent, and when, is the same as to a database, and the server with passwords takes nearly all of them.
    test_one_annotator_in_the_midst_of_another_leaves_no_mixture = None
    test_an_interrupted_write_is_repaired_by_the_next = None
    test_an_interrupted_clear_can_be_done_again = None
    test_an_interrupted_acknowledgement_costs_no_verdict_and_can_be_done_again = None
    test_an_acknowledgement_in_the_midst_of_an_annotator_loses_nothing = None
    test_an_annotator_in_the_midst_of_an_acknowledgement_loses_nothing = None

    @pytest.fixture
    def harness(self, server_uri):
        return MlflowHarness(server_uri, experiment="Default")


class PasswordHarness(MlflowHarness):
    """The same as its admin; by ``reader``, who may only read, where writing is forbidden."""

    @contextmanager
    def forbid_writing(self, run):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
            patch.setenv("MLFLOW_TRACKING_PASSWORD", "also for the tests only")
            yield open_mlflow_run(run, self.uri)

    def supports(self, ability):
        return "each number is a chart" if ability == "numbers" else ""


@pytest.fixture
def as_admin(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "for the tests only")


@pytest.mark.exhaustive
class TestServerWithPasswords(StoreContract):
    test_one_annotator_in_the_midst_of_another_leaves_no_mixture = None

    @pytest.fixture
    def harness(self, auth_server_uri, as_admin):
        return PasswordHarness(auth_server_uri, experiment="Default")


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_server_that_asks_for_passwords_says_how_to_give_one(auth_server_uri, monkeypatch, password):
    for name, value in (("MLFLOW_TRACKING_USERNAME", password and "admin"), ("MLFLOW_TRACKING_PASSWORD", password)):
        monkeypatch.delenv(name, raising=False)
        if value:
            monkeypatch.setenv(name, value)
    with pytest.raises(StoreRefused) as caught:
        open_mlflow_run("0" * 32, auth_server_uri)
    assert "MLFLOW_TRACKING_USERNAME" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_what_another_store_has_to_offer_stays_little():
    """Twelve members; what is a key of ours is made of them, once for all stores."""
    offered = {name for name, value in vars(StoredRun).items() if callable(value) or isinstance(value, property)}
    required = {name for name in offered if not name.startswith("_")} - {"marks_of_files"}
    assert len(required) <= 12
    for store in (MlflowRun, OnlineRun, LocalRun, DirectoryRun):
        own = {name for kind in store.__mro__[: store.__mro__.index(TrackedRun)] for name in vars(kind)}
        assert required <= own
