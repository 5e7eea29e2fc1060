"""The conformance suite on runs of a W&B server, through the real SDK and its core process."""

import contextlib
import itertools
import json

import pytest

from tracker_health.stores.common.writing import Writing
from tracker_health.stores.wandb.address import Address
from tracker_health.stores.wandb.connection import Connection
from tracker_health.stores.wandb.media import MEDIA_PLACES
from tracker_health.stores.wandb.online import open_online_run
from tracker_health.stores.wandb.online_files import OnlineFiles
from tracker_health.testing.stores.contract import StoreContract, View, calls_counted
from tracker_health.testing.stores.harness import without_run

from ..wandb_server import READER  # noqa: TID252  tests are no package of a name
from ..wandb_server.store import Blob  # noqa: TID252

pytestmark = pytest.mark.slow

pytest.importorskip("wandb")


class OnlineHarness:
    """Runs of a server of the tests, made and looked at in its store."""

    def __init__(self, server):
        self.server = server
        self._names = (f"run{number}" for number in itertools.count(len(server.store.runs)))

    def new_run(self, *, metrics, files, note=""):
        run = self.server.store.new_run("team", "proj", next(self._names))
        rows = {}
        for name, points in metrics.items():
            for step, value in points:
                rows.setdefault(step, {"_step": step, "_timestamp": 1000.0 + step})[name] = value
        run.history = [json.dumps(rows[step]) for step in sorted(rows)]
        run.summary = dict(rows[max(rows)]) if rows else {}
        run.files = {path: Blob(content) for path, content in files.items()}
        run.notes, run.tags, run.config = note, ["mine"], {"lr": {"value": 0.1}}
        run.state = "finished"
        return run.name

    def open(self, run):
        return open_online_run(Address("team", "proj", run))

    def view(self, run, *, ours):
        kept = self.server.store.run("team", "proj", run)
        if kept is None:  # deleted
            return View()
        mine = {key: value for key, value in kept.summary.items() if key.startswith("health/")}
        files = {path: blob.content for path, blob in kept.files.items()}
        places = {place: name for name, place in MEDIA_PLACES.items()}
        own = {
            places.get(path, path.removeprefix("health/")): files.pop(path)
            for path in list(files)
            if path.startswith("health/") or path in places
        }
        if not ours:
            rest = {key: str(value) for key, value in kept.summary.items() if key not in mine}
            record = {"tags": ",".join(kept.tags), "state": kept.state, "config": json.dumps(kept.config)}
            record["tags"] = ",".join(tag for tag in kept.tags if not tag.startswith("health:"))
            return View(tags={**rest, **record}, note=kept.notes, files=files)
        tags = {key.removeprefix("health/"): value for key, value in mine.items() if isinstance(value, str)}
        tags |= {tag: "tag" for tag in kept.tags if tag.startswith("health:")}
        metrics = {key.removeprefix("health/"): value for key, value in mine.items() if isinstance(value, float)}
        return View(tags=without_run(tags, run), metrics=metrics, files=own)

    def unknown_run(self):
        return "nowhere"

    def add_file(self, run, path, content):
        self.server.run(f"team/proj/{run}").files[path] = Blob(content)

    def owned(self, run, path):
        return self.server.run(f"team/proj/{run}").files[path].content

    def add_point(self, run, metric, step, value):
        row = {"_step": step, "_timestamp": 9000.0, metric: value}
        self.server.run(f"team/proj/{run}").history.append(json.dumps(row))

    def add_value(self, run, name, value):
        self.server.run(f"team/proj/{run}").summary[f"health/{name}"] = value

    def value(self, run, name):
        return self.server.run(f"team/proj/{run}").summary.get(f"health/{name}")

    def delete(self, run):
        del self.server.store.runs["team", "proj", run]

    @contextlib.contextmanager
    def before_write(self, action):
        with calls_counted(action) as called, pytest.MonkeyPatch.context() as patch:
            for name in ("change", "upload", "delete"):
                patch.setattr(Connection, name, counted(getattr(Connection, name), called))
            yield

    @contextlib.contextmanager
    def before_read(self, action):
        """What the server is asked for: a metric is read with all of its row."""
        local = OnlineFiles.local
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OnlineFiles, "local", lambda tree, file: action(file.path) or local(tree, file))
            yield

    @contextlib.contextmanager
    def forbid_writing(self, run):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WANDB_API_KEY", READER)
            yield self.open(run)

    def supports(self, ability):
        reasons = {
            "note": "what its owner wrote about the run is left as it is",
            "state": "what comes within two minutes was on its way",
        }
        return reasons.get(ability, "")


def counted(function, called):
    def call(*arguments, **options):
        called()
        return function(*arguments, **options)

    return call


# One annotator in the midst of another: on one machine the lock keeps them apart.
MIDST = "test_one_annotator_in_the_midst_of_another_leaves_no_mixture"
AT_ONCE = (
    MIDST,
    "test_two_writers_at_once_leave_one_whole_annotation_or_say_that_none_is",
    "test_two_people_at_once_lose_nothing",
    "test_a_second_person_in_the_midst_of_the_first_loses_nothing",
    "test_an_annotator_in_the_midst_of_an_acknowledgement_loses_nothing",
    "test_an_acknowledgement_in_the_midst_of_an_annotator_loses_nothing",
)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """This server gives what was written the moment before. And the reports of the suite do not say which run's."""
    of_the_suite = b'{"verdict"'
    monkeypatch.setattr(
        Writing, "_is_our_report", lambda self: self._run.get_file("report.json", 100).startswith(of_the_suite)
    )
    monkeypatch.setattr("tracker_health.stores.wandb.online._LAG_PAUSES", (0,))


@pytest.mark.thinned(4)
class TestOnline(StoreContract):
    @pytest.fixture
    def harness(self, wandb_server):
        return OnlineHarness(wandb_server)


setattr(TestOnline, MIDST, None)


@pytest.mark.exhaustive
class TestFromSeveralMachines(StoreContract):
    """Where no lock keeps the annotators apart: only what they see on the server does."""

    @pytest.fixture
    def harness(self, wandb_server, monkeypatch):
        monkeypatch.setattr("tracker_health.stores.wandb.online.one_at_a_time", lambda *_: contextlib.nullcontext())
        return OnlineHarness(wandb_server)


for name in dir(StoreContract):
    if name.startswith("test_") and name not in AT_ONCE:
        setattr(TestFromSeveralMachines, name, None)
