"""Jobs of three processes under torchrun, one of which hangs: what its console, and what real dumps alone, say of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tracker_health import check
from tracker_health.readers.flight_recorder import read_dump

pytestmark = pytest.mark.slow

# Each rank writes what its recorder has after some seconds, from a thread of its own, as NCCL's watchdog does.
JOB = """
import datetime, os, sys, threading, time
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

mode, limit, folder = sys.argv[1], float(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=limit))
rank = dist.get_rank()


def dump():
    for name, content in (("pickles", _dump_fr_trace()), ("json", _dump_fr_trace_json())):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        with open(f"{folder}/{name}/nccl_trace_rank_{rank}", "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)


def dump_late():
    time.sleep(2 * limit)
    dump()
    os._exit(0)  # a launcher ends the others when one fails


if folder and mode != "healthy":
    threading.Thread(target=dump_late, daemon=True).start()
total = torch.ones(8)
try:
    for step in range(12):
        if rank == 1 and step == 6 and mode == "hang":
            time.sleep(120)
        if rank == 1 and step == 6 and mode == "other":
            dist.broadcast(total, 0)
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {2.0 * 0.8**step + 0.1:.4f}", flush=True)
except RuntimeError:
    if not folder:
        raise
    time.sleep(120)  # another rank may still be at work
if folder:
    dump()
"""


@pytest.fixture
def launch(tmp_path):
    """Run a job; what it printed. It has a port and a process group of its own."""
    pytest.importorskip("torch")
    script = tmp_path / "job.py"
    script.write_text(JOB)

    def run(mode, *, limit=4, folder="", debug="OFF"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = ["--nproc-per-node", "3", "--master-addr", "127.0.0.1", "--master-port", str(port)]
        own = {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", "TORCH_DISTRIBUTED_DEBUG": debug}
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *address, str(script), mode, str(limit), str(folder)],
            env=os.environ | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            return job.communicate(timeout=180)[0]
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            raise

    return run


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_the_console_of_torchrun_names_the_rank(tmp_path, launch, debug):
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text(launch("hang", debug=debug))
    report = check(run)
    assert (report.verdict, report.diagnosis.cause) == ("fail", "hang-in-collective"), report.summary
    (found,) = (one for one in report.findings if one.code == "RUN006")
    assert (found.kind, found.measured["rank"], found.measured["seconds"]) == ("did-not-come", 1, 4)
    assert found.confidence == ("low" if debug == "OFF" else "high")
    assert "Rank 1 " in report.summary
    assert "all_reduce" in report.summary


def test_real_dumps_alone_name_the_rank(tmp_path, launch):
    launch("hang", folder=tmp_path)
    for form in ("pickles", "json"):
        report = check(tmp_path / form)
        assert (report.verdict, report.diagnosis.cause) == ("warn", "hang-in-collective"), report.summary
        assert report.summary.startswith("Rank 1 did not enter all_reduce number 7, for which ranks 0 and 2 waited 4 s")


def test_real_dumps_name_the_rank_that_ran_something_else(tmp_path, launch):
    launch("other", folder=tmp_path)
    said = "as number 7: rank 1 ran broadcast; ranks 0 and 2 ran all_reduce"
    assert said in check(tmp_path / "pickles").summary


def test_a_healthy_job_with_dumps_is_not_flagged(tmp_path, launch):
    run = tmp_path / "pickles"
    printed = launch("healthy", limit=60, folder=tmp_path)
    assert len(list(run.glob("nccl_trace_rank_*"))) == 3, printed
    (run / "train.log").write_text(printed)
    report = check(run)
    assert report.verdict == "pass", report.summary
    assert "RUN006" in {one.code for one in report.results}
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader")
    theirs = loader.read_dump("nccl_trace_rank_", str(run / "nccl_trace_rank_2"))
    (ours,) = read_dump(run / "nccl_trace_rank_2", "x", 2, None).groups
    assert [one.number for one in ours.entered] == [one["collective_seq_id"] for one in theirs["entries"]]
