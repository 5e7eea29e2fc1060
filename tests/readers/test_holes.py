"""Sparse files: of what was never written nothing is read, and what stands behind a hole counts."""

from __future__ import annotations

import os
import time
from contextlib import closing

import numpy as np
import pytest

from tracker_health.api import annotate
from tracker_health.errors import ReadError
from tracker_health.readers.files import regular_file
from tracker_health.readers.files.random_access import LocalFile
from tracker_health.readers.files.regular_file import open_regular, pass_hole
from tracker_health.readers.log_formats import read_log
from tracker_health.readers.mlflow_folder import read_points
from tracker_health.roles import RolePlan
from tracker_health.runs.lookup import open_run
from tracker_health.stores.wandb.transaction_log import read_log as read_transaction_log

from ..stores import wandb_logs  # noqa: TID252  tests are no package of a name

SECONDS = 5.0  # of this thread: to read all of the hole takes several times as long
HOLE = 15 * 2**30

ROWS = {
    "log.jsonl": b'{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n',
    "console.log": b"step 1 loss=2.0\nstep 2 loss=1.0\n",
    "metrics.csv": b"step,loss\n1,2.0\n2,1.0\n",
}


@pytest.fixture(autouse=True)
def _holes(tmp_path):
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        file.truncate(2**24)
    with probe.open("rb") as file:
        known = hasattr(os, "SEEK_DATA")
        try:
            os.lseek(file.fileno(), 0, os.SEEK_DATA)
            known = False
        except OSError:
            pass
    if not known or probe.stat().st_blocks:
        pytest.skip("no sparse files here")


def with_hole(path, content, behind=b"", size=HOLE):
    with path.open("wb") as file:
        file.write(content)
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(behind)
    return path


def in_time(work):
    start = time.thread_time()
    done = work()
    assert time.thread_time() - start < SECONDS
    return done


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("name", list(ROWS))
def test_a_log(name, behind, tmp_path):
    path = with_hole(tmp_path / name, ROWS[name], b"\n" + ROWS[name] if behind else b"")
    log, _ = in_time(lambda: read_log(path, name, RolePlan()))
    (series,) = log.series
    assert len(series) == (4 if behind else 2)


@pytest.mark.parametrize("behind", [b"", b"\n3 0.5 3\n"])
def test_a_metric_of_mlflows(behind, tmp_path):
    path = with_hole(tmp_path / "loss", b"1 2.0 1\n2 1.0 2\n", behind, 2**35)
    assert len(in_time(lambda: read_points(path)).values) == (3 if behind else 2)


@pytest.mark.parametrize("behind", [0, 5])
def test_a_log_of_wandbs(behind, tmp_path):
    records = [wandb_logs.run_record(), *(wandb_logs.history(step, {"loss": 1.0}) for step in range(30))]
    path = wandb_logs.write_log(tmp_path / "run-abc123.wandb", records)
    whole = path.read_bytes()
    size = 2**35
    more = [wandb_logs.history(30 + step, {"loss": 1.0}).SerializeToString() for step in range(behind)]
    with_hole(path, whole, wandb_logs.log_of(more, bytes(2**15))[2**15 :] if more else b"", size)
    log = in_time(lambda: read_transaction_log(path))
    assert (log.rows, log.run_id) == (30 + behind, "abc123")
    outcome = in_time(lambda: annotate(path))  # and it is not written out whole
    assert path.stat().st_size - size < 2**16
    assert path.stat().st_blocks * 512 < 2**20
    assert bool(outcome.omitted) is bool(behind)
    with closing(open_run(path)) as run:
        assert in_time(run.clear).found


@pytest.mark.parametrize("name", ["training_state.pt", "model.safetensors"])
def test_a_checkpoint_is_refused(name, tmp_path):
    path = with_hole(tmp_path / name, b"anything")
    with pytest.raises(ReadError, match=r"all holes: of its 16\.1 GB only .* were ever written"):
        LocalFile(path)


def test_a_checkpoint_with_a_hole_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_file, "_LARGE", 2**20)
    path = with_hole(tmp_path / "a", np.ones(2**19, dtype=np.uint8).tobytes(), size=2**22)
    with LocalFile(path) as file:
        assert file.size == 2**22


def test_a_file_system_that_does_not_say_what_it_keeps(tmp_path, monkeypatch):
    """It gives no blocks, and knows no holes: such a file is read."""
    monkeypatch.setattr(regular_file, "_LARGE", 2**20)
    monkeypatch.setattr(regular_file, "_DISK_BLOCK", 0)
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2**22)
    with LocalFile(path) as file:
        assert file.size == 2**22


def test_passing_a_hole_leaves_the_reading_in_order(tmp_path):
    from io import BufferedReader

    path = with_hole(tmp_path / "a", b"before", b"behind", 2**22)
    with BufferedReader(open_regular(path)) as file:
        assert file.read(6) == b"before"
        pass_hole(file)  # within a block that has data
        file.seek(2**16)
        pass_hole(file)
        assert file.read().lstrip(b"\0") == b"behind"
        pass_hole(file)
        assert file.read() == b""
