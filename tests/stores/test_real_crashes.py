"""Runs that really died, each of something else: the console's output beside the metrics tells of what."""

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest

import tracker_health

TRAINING = """
import json, os, sys
log = open("train.jsonl", "a")
def trained(steps, first=0):
    for step in range(first, first + steps):
        row = {"step": step, "loss": 3.0 / (1 + step / 20)}
        log.write(json.dumps(row) + "\\n"); log.flush()
        print(f"step {step} loss={row['loss']:.4f}", flush=True)
trained(60)
"""
OUT_OF_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
batches = []
while True:
    batches.append(bytearray(2**26))
"""
TRACEBACK = """
labels = {}
print("epoch 2", labels["of_epoch_2"])
"""
KILLED_WORKER = """
import signal, time, torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        if i == 8:
            time.sleep(2)  # until what it has sent is received: else the connection breaks before the loader looks
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(3)
for _ in DataLoader(Samples(), batch_size=4, num_workers=1):
    pass
"""
FULL_DISK = """
with open(sys.argv[1] + "/last.ckpt", "wb") as file:
    for _ in range(64):
        file.write(bytes(2**20))
"""
CAUGHT = """
import traceback
try:
    raise MemoryError("this batch is too large")
except MemoryError:
    traceback.print_exc()
trained(60, first=60)
"""
MIN_TRAIN = """
kept, min_train = 12, 30
assert kept >= min_train, f"need >= min_train ({min_train}), {kept} were kept"
"""


def crashed(folder, end, *arguments, begin=TRAINING):
    """Run a training script to its death, its output in a log beside its metrics; what RUN004 says of the folder."""
    script = folder / "train.py"
    script.write_text(begin + end)
    with (folder / "console.log").open("wb") as console:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "train.py", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=console, stderr=subprocess.STDOUT, check=False, timeout=120
        )
    report = tracker_health.check(folder)
    return done.returncode, next((one for one in report.results if one.code == "RUN004"), None), report


@pytest.mark.parametrize(
    ("end", "cause", "verdict"),
    [(OUT_OF_MEMORY, "out of memory", "fail"), (TRACEBACK, "an exception", "fail")],
    ids=["memory", "traceback"],
)
@pytest.mark.slow
def test_a_process_that_raised(tmp_path, end, cause, verdict):
    code, result, report = crashed(tmp_path, end)
    assert code == 1
    assert (result.details["cause"], result.verdict) == (cause, verdict)
    assert "after step 59" in result.message
    assert report.verdict == verdict


def test_a_traceback_before_the_plan_was_reached(tmp_path):
    """The plan makes the difference between a script that failed after training and a training that failed."""
    begin = TRAINING.replace('"step": step', '"global_step": step').replace(
        "trained(60)", 'log.write(json.dumps({"max_steps": 500}) + "\\n")\ntrained(60)'
    )
    code, result, _ = crashed(tmp_path, TRACEBACK, begin=begin)
    assert code == 1
    assert (result.verdict, result.details["cause"]) == ("fail", "an exception")
    assert "KeyError: 'of_epoch_2'" in result.message


@pytest.mark.exhaustive
def test_a_data_loader_worker_that_was_killed(tmp_path):
    pytest.importorskip("torch")
    code, result, _ = crashed(tmp_path, KILLED_WORKER)
    assert code == 1
    assert (result.verdict, result.details["cause"]) == ("fail", "a data loader worker died")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no command mount")
    if mounted.returncode:
        pytest.skip(f"a small file system needs the rights to mount one: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=30)


def test_a_full_disk(tmp_path, small_disk):
    run = tmp_path / "run"
    run.mkdir()
    code, result, _ = crashed(run, FULL_DISK, small_disk)
    assert code == 1
    assert (result.verdict, result.details["cause"]) == ("fail", "no space left on the disk")


def test_a_process_killed_by_the_system(tmp_path):
    """The shell that started it says so."""
    (tmp_path / "train.py").write_text(TRAINING + "os.kill(os.getpid(), 9)\n")
    (tmp_path / "run.sh").write_text(f"{sys.executable} train.py\nexit $?\n")
    with (tmp_path / "console.log").open("wb") as console, suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["bash", "run.sh"], cwd=tmp_path, stdout=console, stderr=subprocess.STDOUT, check=False, timeout=60
        )
    result = next(one for one in tracker_health.check(tmp_path).results if one.code == "RUN003")
    assert (result.verdict, result.details["cause"]) == ("fail", "SIGKILL")


def test_what_a_run_checks_of_its_own_data(tmp_path):
    """Nothing was trained, and the log has no row; that it ended so is sure all the same."""
    code, result, report = crashed(
        tmp_path, MIN_TRAIN, begin='print("heal[kl_rev] 12 completions x 3 ep = 36 steps")\n'
    )
    assert code == 1
    assert (result.verdict, result.details["cause"]) == ("fail", "too few samples kept")
    assert report.verdict == "fail"


def test_an_error_that_was_caught_is_none(tmp_path):
    code, result, report = crashed(tmp_path, CAUGHT)
    assert (code, result, report.ended) == (0, None, "")


@pytest.mark.exhaustive
def test_mlflow_has_the_metrics_and_the_log_is_an_artifact(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    code, _, _ = crashed(tmp_path, OUT_OF_MEMORY)
    assert code == 1
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.create_run(
        client.create_experiment("crashes", artifact_location=str(tmp_path / "artifacts"))
    ).info.run_id
    for line in (tmp_path / "train.jsonl").read_text().splitlines():
        row = json.loads(line)
        client.log_metric(run, "loss", row["loss"], step=row["step"])
    client.log_artifact(run, str(tmp_path / "console.log"))
    client.set_terminated(run, "FAILED")
    report = tracker_health.check(run, tracking_uri=uri)
    result = next(one for one in report.results if one.code == "RUN004")
    assert (result.verdict, result.details["cause"]) == ("fail", "out of memory")
    assert "after step 59" in result.message


@pytest.mark.parametrize("off", [0.0, 0.5])
@pytest.mark.thinned(2)
@pytest.mark.slow
def test_a_console_log_beside_a_trackers_history(tmp_path, monkeypatch, off):
    """The tracker's is judged; where the log says something else, the report's notes do so."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("a", artifact_location=str(tmp_path / "artifacts"))).info.run_id
    losses = [3.0 / (1 + step / 20) for step in range(40)]
    client.log_batch(run, [mlflow.entities.Metric("train/loss", loss, step, step) for step, loss in enumerate(losses)])
    log = tmp_path / "console.log"
    log.write_text("".join(f"step {step} loss={loss + off * (step == 30):.3f}\n" for step, loss in enumerate(losses)))
    client.log_artifact(run, str(log))
    client.set_terminated(run)
    report = tracker_health.check(run, tracking_uri=uri)
    notes = [note for note in report.notes if note.startswith("log integrity")]
    assert len(notes) == bool(off)
    if off:
        assert "at 1 of 40 common steps, first at step 30 (1.2 against 1.7)" in notes[0]
    assert [one.source for one in report.series if one.role == "train_loss"] == ["MLflow"]
