"""Many pieces of work at once: what becomes of the others when a worker dies, or when nobody wants to wait."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from tracker_health.evidence import RunRef
from tracker_health.runs.overview import GROUPS
from tracker_health.runs.parallel import in_executor
from tracker_health.stores.base import TaggedRun

IN_THREADS = """
import os, signal, time
from tracker_health.runs.parallel import in_threads
from tracker_health.terminal import leave_threads
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
def work(item):
    os.write(1, b"begun\\n")
    time.sleep(120)
try:
    list(in_threads(work, range(4), 2))
except KeyboardInterrupt:
    print("stopped")
    leave_threads(130)
"""


def dies(item):
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_pool_whose_worker_dies_gives_something_for_every_item():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        found = dict(in_executor(dies, range(8), pool, in_hand=2, retries=1))
    assert sorted(found) == list(range(8))
    assert found[0] == 0
    assert isinstance(found[2], Exception)


def test_an_interrupt_does_not_wait_for_what_is_in_hand():
    process = subprocess.Popen([sys.executable, "-c", IN_THREADS], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith("stopped\n")


@pytest.mark.parametrize("started", [None, 1.7e18, float("nan"), -1e30])
def test_a_run_that_began_at_no_time_is_of_no_week(started):
    run = TaggedRun(ref=RunRef(store="mlflow", id="x", name="x"), verdict=None, started=started)
    assert list(GROUPS["week"](run)) == [""]
