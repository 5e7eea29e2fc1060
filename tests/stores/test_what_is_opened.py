"""Whatever lies under the names of our own files, or of MLflow's: nothing hangs, nothing fills the memory."""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import tracker_health
from tracker_health.stores.mlflow.connection import _folders_allowed

from . import wandb_logs

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")

PACKAGE = Path(tracker_health.__path__[0])
SECONDS = 60
MEMORY = 3 * 2**30  # of addresses, the libraries' among them

_CHILD = """
import json, sys
import tracker_health as th
said = []
for work in (th.annotate, th.clear_annotations):
    try:
        done = work(sys.argv[1])
        said.append(getattr(done, "status", "") or str(done.found))
    except th.TrackerHealthError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def tried(run):
    """What comes of annotating and clearing a run, each in one line, in a process that is watched and limited."""

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD, str(run)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=environment,
        preexec_fn=limited,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def of_the_kernel(path):
    if not Path("/proc/kmsg").exists():
        pytest.skip("no such file here")
    path.symlink_to("/proc/kmsg")


BAD = [pipe, endless, of_the_kernel]


def losses():
    return "".join(json.dumps({"step": step, "loss": 2 / (1 + step)}) + "\n" for step in range(60))


def folder(place):
    place.mkdir(parents=True)
    (place / "log.jsonl").write_text(losses())
    return place, place / "health"


def run_of_wandb(place):
    log = place / "wandb" / "offline-run-1-abc123" / "run-abc123.wandb"
    rows = [wandb_logs.history(step, {"loss": 2.0 / (1 + step)}) for step in range(30)]
    wandb_logs.write_log(log, [wandb_logs.run_record(), *rows, wandb_logs.exit_record()])
    return log.parent, log.parent / "files" / "health"


def lone_run_of_mlflow(place):
    run = place / ("a" * 32)
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text(f"run_id: {run.name}\nexperiment_id: '7'\nstatus: 3\n")
    (run / "metrics" / "loss").write_text("".join(f"{1000 + step} {2 / (1 + step)} {step}\n" for step in range(60)))
    return run, run / "health"


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD, ids=lambda one: one.__name__)
@pytest.mark.parametrize("make", [folder, run_of_wandb, lone_run_of_mlflow], ids=lambda one: one.__name__)
@pytest.mark.thinned(3)
def test_a_record_of_ours_that_is_no_regular_file(make, bad, tmp_path):
    run, health = make(tmp_path / "run")
    health.mkdir(parents=True)
    bad(health / "annotation.json")
    annotated, cleared = tried(run)
    assert "exists and is not ours; nothing was written" in annotated
    assert cleared == "False"
    assert [path.name for path in health.iterdir()] == ["annotation.json"]


def store_of_mlflow(root):
    mlflow = pytest.importorskip("mlflow")
    with _folders_allowed():
        client = mlflow.MlflowClient(tracking_uri=str(root))
        run_id = client.create_run("0").info.run_id
        for step in range(60):
            client.log_metric(run_id, "loss", 2 / (1 + step), step=step)
        client.set_terminated(run_id)
    return root / "0" / run_id


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["params/lr", "tags/mlflow.user", "metrics/train/loss", "meta.yaml"])
@pytest.mark.parametrize("bad", [pipe, endless], ids=lambda one: one.__name__)
def test_a_file_of_mlflows_that_is_no_regular_one(bad, name, tmp_path):
    run = store_of_mlflow(tmp_path / "mlruns")
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    bad(run / name)
    annotated, _ = tried(run)
    if name != "meta.yaml":  # without it the folder is none of a run
        assert f"{name}: it is not a regular file" in annotated


@pytest.mark.exhaustive
def test_one_such_file_does_not_stop_a_search_for_ever(tmp_path):
    run = store_of_mlflow(tmp_path / "mlruns")
    pipe(run / "params" / "lr")
    code = "import sys; from tracker_health import api; print(list(api.runs_of_experiment('Default', tracking_uri=sys.argv[1])))"
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "mlruns")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "params/lr: it is not a regular file" in done.stderr


# Nothing else opens the files of a run

_OPENING = frozenset(
    ("open", "os.open", "io.open", "io.FileIO", "FileIO", "codecs.open", "gzip.open", "bz2.open", "lzma.open")
).union(
    ("tarfile.open", "zipfile.ZipFile", "ZipFile", "mmap.mmap", "np.load", "np.fromfile", "np.memmap", "np.loadtxt"),
    ("np.genfromtxt", "numpy.load", "json.load", "pickle.load", "yaml.load", "safe_open", "linecache.getlines"),
    ("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "fileinput.input"),
    ("sqlite3.connect", "tomllib.load", "configparser.read"),
)
_METHODS = frozenset({"read_bytes", "read_text"})
_WRITING = frozenset({"wb", "xb", "w", "x", "ab", "a"})
# What opens something else than a run's file.
ALLOWED = {
    "readers/files/regular_file.py: os.open(path, flags)": "the one place",
    "readers/run_settings.py: yaml.load(content, loader)": "of bytes that were read",
    "readers/torch_files/torch_legacy.py: pickle.load()": "our own machine of that name",
    "stores/common/locks.py: os.open(place, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 384)": "to lock it",
    "stores/common/sqlite_files.py: sqlite3.connect(source, uri=True, timeout=_LOOKING_SECONDS)": "what was looked at before",
    "stores/common/sqlite_files.py: sqlite3.connect(read_only(path), uri=True)": "a database that was named, to copy it",
    "stores/common/sqlite_files.py: sqlite3.connect(copy)": "the copy",
    "stores/mlflow/old_database.py: sqlite3.connect(source, uri=True)": "a database that was named, to copy it",
    "stores/mlflow/old_database.py: sqlite3.connect(copy)": "the copy",
    "stores/named.py: listed.open()": "a run of ours, by its name",
    "stores/found.py: self.listed.open()": "a run of ours, by its name",
    "stores/named.py: Named(self.word, self.address, self.store).open()": "a run of ours, by its name",
    "stores/trackio/alerts.py: sqlite3.connect(f'{path.resolve().as_uri()}?mode=rw', uri=True, timeout=_TURN_SECONDS)": "trackio's own, read before",
    "stores/trackio/marks.py: sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)": "ours, which is no link",
    "stores/remote/url.py: system.open(path, 'rb', cache_type='none')": "of an object store",
    "stores/wandb/alive.py: (process / 'fdinfo' / link.name).read_text()": "the kernel's",
    "stores/wandb/core.py: Path(f'/proc/{process}/statm').read_text()": "the kernel's",
    "stores/wandb/server.py: opener().open(request, timeout=ANSWER_SECONDS)": "a server, asked",
    "stores/wandb/server.py: opener(unencrypted=True).open(request, timeout=ANSWER_SECONDS)": "a server, asked",
    "stores/wandb/connection.py: shutil.move(path, target)": "what was fetched just now",
    "stores/wandb/log_writer.py: os.open(path.parent, os.O_RDONLY)": "a folder, to sync it",
}
# Objects of ours with a method of that name.
_OF_OURS = frozenset({"tree", "folder", "run", "chunk", "_folder", "_tree", "_listed", "_opener()", "archives.tree"})


def openings(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        owner, _, method = name.rpartition(".")
        mode = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        opens = method == "open" and owner.removeprefix("self.") not in _OF_OURS and mode not in _WRITING
        if name in _OPENING or (owner and (opens or method in _METHODS)):
            yield ast.unparse(node)


@pytest.mark.slow
def test_nothing_else_opens_the_files_of_a_run():
    found = set()
    for folder_name in ("readers", "stores"):
        for path in sorted((PACKAGE / folder_name).rglob("*.py")):
            place = path.relative_to(PACKAGE).as_posix()
            found |= {f"{place}: {one}" for one in openings(ast.parse(path.read_text()))}
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    "code", ["open(x)", "path.open()", "path.open('rb')", "x.read_bytes()", "np.load(x)", "zipfile.ZipFile(x)"]
)
def test_the_guard_sees_an_opening(code):
    assert list(openings(ast.parse(code)))
