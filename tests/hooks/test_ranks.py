"""Several processes that train together: the rank that failed first is named, not rank 0, which it took with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from tests.stores import mlflow_tags

from tracker_health import check
from tracker_health.hooks.exec_log import ExecLog, RunToJudge, line_of
from tracker_health.words.ending import Ended, Ending

TRAINING = """
import os, sys
import torch
import torch.distributed as dist
import mlflow
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    mlflow.start_run()
for step in range(60):
    total = torch.ones(1)
    if rank == 1 and step == 40:
        raise ValueError("cannot read shard 17")
    dist.all_reduce(total)
    if rank == 0:
        mlflow.log_metric("train/loss", 2.0 * 0.9**step + 0.1, step=step)
"""
ROWS = [f"step {step} loss {2.0 * 0.9**step + 0.1:.4f}" for step in range(40)]
# As torchrun and its ranks print it.
OF_RANK_0 = """[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 20, in <module>
[rank0]:     dist.all_reduce(total)
[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:13715. Check the logs of the remote worker."""
OF_RANK_1 = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 19, in <module>
[rank1]:     raise ValueError("cannot read shard 17")
[rank1]: ValueError: cannot read shard 17"""
OF_TORCHRUN = """E1126 04:51:18.331000 9271 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 1
Traceback (most recent call last):
  File "run.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 9421)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-26_04:51:18
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 9422)
  error_file: <N/A>
============================================================"""


@pytest.mark.parametrize(
    ("code", "printed", "said", "ended"),
    [
        (1, [OF_RANK_0, OF_RANK_1], "rank 1: ValueError: cannot read shard 17", "failed"),
        (7, [OF_RANK_0], "rank 1: exit code 7", "failed"),
        (-9, [OF_RANK_0], "rank 1: exit code -9", "killed"),
    ],
)
def test_the_console_of_torchrun_names_the_rank(tmp_path, code, printed, said, ended):
    (tmp_path / "train.log").write_text("\n".join([*ROWS, *printed, OF_TORCHRUN.format(code=code)]) + "\n")
    report = check(tmp_path)
    assert said in report.headline
    assert "Connection closed" not in report.headline
    assert report.ended == ended


def test_a_run_that_went_on_after_a_restart_is_not_blamed_on_the_first_try(tmp_path):
    """A launcher starts all again: what was said before belongs to that."""
    again = [f"step {step} loss {2.0 * 0.9**step + 0.1:.4f}" for step in range(30, 90)]
    lines = [*ROWS, OF_RANK_1, OF_TORCHRUN.format(code=1), *again, "training complete"]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert check(tmp_path).ended == "finished"


def exec_log_of(tmp_path, *events):
    path = tmp_path / "exec_log"
    path.write_bytes(
        b"".join(line.replace(f'"pid": {os.getpid()}'.encode(), f'"pid": {pid}'.encode()) for pid, line in events)
    )
    return ExecLog(path).read()


FAILED = Ending(how=Ended.FAILED, by="ValueError: no")


def test_the_exec_log_knows_the_first_rank_that_failed_of_the_last_attempt(tmp_path):
    run = RunToJudge(run="mlflow:1", folder="/")
    ready = [(10 + rank, line_of("ready", rank=rank, attempt="0")) for rank in (0, 1)]
    worker = (99, line_of("ready", rank=1, attempt="0"))  # of a data loader, which inherits the rank
    start = (10, line_of("start", run))
    failed = (11, line_of("exit", ending=FAILED))
    ended = (10, line_of("end", run, leaving=True))
    found = exec_log_of(tmp_path, *ready, worker, start, (99, line_of("exit", ending=FAILED)), failed, ended)
    assert found.ended[0].after.said == Ending(how=Ended.FAILED, by="rank 1: ValueError: no")
    assert found.failed_before(11) is None
    before = exec_log_of(tmp_path, *ready, start, ended, failed)
    assert before.ended[0].after is None
    again = (20, line_of("ready", rank=0, attempt="1"))
    assert exec_log_of(tmp_path, *ready, failed, again).failed == []


@pytest.mark.exhaustive
def test_torchrun_with_a_rank_that_dies_first(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    database = tmp_path / "mlflow.db"
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{database}", "OMP_NUM_THREADS": "1"}
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    command = [sys.executable, "-m", "tracker_health", "exec", "--wait", "240", "--", *launched]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 1, done.stderr
    with closing(sqlite3.connect(database)) as opened:
        tags = mlflow_tags.expanded(dict(opened.execute("SELECT key, value FROM tags")))
    assert (tags["health.ended"], tags["health.ended_by"]) == ("failed", "rank 1: ValueError: cannot read shard 17")
    assert "Connection closed" not in tags["health.summary"]
