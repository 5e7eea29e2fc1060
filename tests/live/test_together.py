"""Several processes: the first decides, all stop at the same step, and none waits for one that has failed."""

from __future__ import annotations

import json
import math

import pytest

torch = pytest.importorskip("torch")

from tracker_health.live import LiveHealth  # noqa: E402

from .curves import diverging  # noqa: E402
from .processes import run_in_two_processes  # noqa: E402

_NO_GLOO = not torch.distributed.is_available() or not torch.distributed.is_gloo_available()
_HEAD = """
import json, os, sys, torch, torch.distributed as dist
from pathlib import Path
import numpy as np
from tests.live.curves import diverging, falling
from tracker_health.live import LiveHealth
rank, port, out = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

def run(health, values):
    for step, value in enumerate(values):
        health.step(step=step, loss=float(value))
        if health.should_stop:
            break
    return step

def ended(**what):
    # Without the interpreter's own end, at which a thread of gloo may abort the process.
    (out / f"{rank}.json").write_text(json.dumps(what))
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)
"""

_STOPS = """
told = []
health = LiveHealth(plan=200, together=True, seconds=0.0, on_finding=told.append)
# What the second process logs is no reason to stop, or is one at another step.
step = run(health, diverging(200, 60) if rank == 0 else diverging(200, 20) if sys.argv[4] == "other" else falling(200))
ended(step=step, why=str(health.stopped_by), findings=len(health.findings), told=len(told))
"""

_FIRST_FAILS = """
health = LiveHealth(plan=200, together=True)
evidence = health._evidence
health._evidence = lambda: evidence() if health._history.points <= 40 else 1 / 0
step = run(health, diverging(200, 60))
calls = []
dist.broadcast_object_list = lambda *_, **__: calls.append(1)
run(health, diverging(200, 60))
ended(step=step, later=len(calls), broken=health._broken)
"""

_ASKED = """
health = LiveHealth(plan=200, together=True, obey=True, runs=())
for step, value in enumerate(falling(200)):
    if rank == 0 and step == 50:
        health._asked("by hand")  # as the thread does that looks for requests
        assert not health.should_stop
    health.step(step=step, loss=float(value))
    if health.should_stop:
        break
ended(step=step, why=str(health.stopped_by))
"""

_ONE_ALONE = """
health = LiveHealth(plan=200, rest=0)
step = run(health, diverging(200, 60)) if rank == 0 else None
ended(step=step)
"""


def stopped(tmp_path, script, *more):
    run_in_two_processes(_HEAD + script, tmp_path, *more)
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]


def alone():
    """Where one process stops that looks as several do: when its history has grown."""
    health = LiveHealth(plan=200, seconds=math.inf, rest=0)
    for step, value in enumerate(diverging(200, 60)):
        health.step(step=step, loss=float(value))
        if health.should_stop:
            return step
    return None


def test_with_one_process_it_changes_nothing():
    health = LiveHealth(plan=200, seconds=math.inf, rest=0, together=True)
    for step, value in enumerate(diverging(200, 60)):
        health.step(step=step, loss=float(value))
        if health.should_stop:
            break
    assert step == alone()


@pytest.mark.exhaustive
@pytest.mark.skipif(_NO_GLOO, reason="no gloo")
@pytest.mark.parametrize("second", ["healthy", "other"])
def test_all_stop_where_the_first_does(tmp_path, second):
    first, other = stopped(tmp_path, _STOPS, second)
    assert first["step"] == other["step"] == alone()
    assert first["why"] == other["why"]
    assert first["why"].startswith("FAIL at step ")
    assert first["findings"] == other["findings"] >= 1
    assert (first["told"], other["told"]) == (first["findings"], 0)


@pytest.mark.exhaustive
@pytest.mark.skipif(_NO_GLOO, reason="no gloo")
def test_all_obey_a_request_at_the_same_look(tmp_path):
    first, other = stopped(tmp_path, _ASKED)
    assert first == other
    assert 50 <= first["step"] <= 53
    assert "asked to: by hand" in first["why"]


@pytest.mark.exhaustive
@pytest.mark.skipif(_NO_GLOO, reason="no gloo")
def test_no_process_waits_for_a_first_one_that_has_failed(tmp_path):
    found = stopped(tmp_path, _FIRST_FAILS)
    assert [one["step"] for one in found] == [199, 199]
    assert all(one["broken"] and one["later"] == 0 for one in found)


@pytest.mark.exhaustive
@pytest.mark.skipif(_NO_GLOO, reason="no gloo")
def test_one_process_may_log_alone_unless_it_asked_for_more(tmp_path):
    first, _ = stopped(tmp_path, _ONE_ALONE)
    assert first["step"] is not None
