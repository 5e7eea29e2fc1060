"""Several processes: together they say, and write, what one alone does; and none waits for one that has failed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402

from tracker_health.readers.gradient_dumps import read_gradient_dumps  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="no gloo"
    ),
]

_HEAD = """
import json, os, sys, torch, torch.distributed as dist
from pathlib import Path
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from tracker_health.monitor import GradientDumps, watch
rank, port, out, kind = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
world = 1 if kind == "one" else 2
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1), nn.Linear(1, 7))
        self.unused = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.net(x)

def built(compiled=False):
    torch.manual_seed(0)
    model = Model()
    if kind == "fsdp":
        for module in [*model.net, model.unused]:
            if len(list(module.parameters())): fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    if compiled: model = torch.compile(model)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def ended():
    # Without the interpreter's own end: a thread of gloo that lets go of a tensor of Python's while Python ends aborts
    # the process ("terminate called without an active exception"), which has nothing to do with what is tested.
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)

def train(model, optimizer, steps, accumulation=1):
    data = torch.randn(steps * accumulation, 8, 6, generator=torch.Generator().manual_seed(3))
    for step in range(steps):
        for part in range(accumulation):
            batch = data[step * accumulation + part].chunk(world)[rank]
            (model(batch).square().mean() / accumulation).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()
"""

_STATISTICS = """
every = {}
for accumulation in (1, 4):
    for compiled in (False, True) if sys.argv[5] == "compiled" else (False,):
        model, optimizer = built(compiled)
        found = {}
        take = lambda step, metrics: found.update({step: dict(metrics)})
        with watch(model, optimizer, interval=1, detail=take): train(model, optimizer, 2, accumulation)
        assert rank == 0 or not found
        every[f"{accumulation} {compiled}"] = found
if rank == 0: (out / f"{kind}.json").write_text(json.dumps(every))
ended()
"""

_DUMPS = """
for n in (2, None):
    dumps = GradientDumps(folder=out / kind / str(n), start=2, end=4, step_interval=2, save_first_n=n)
    model, optimizer = built()
    with watch(model, optimizer, kinds=(), dumps=dumps): train(model, optimizer, 4)
ended()
"""

_ONE_FAILS = """
model, optimizer = built()
dumps = GradientDumps(folder=out / "dumps", start=1, save_first_n=2)
with watch(model, optimizer, interval=1, folder=out, dumps=dumps) as monitor:
    train(model, optimizer, 2)
    if rank == 1: monitor._fail(OSError("the disk of this machine is full"))
    train(model, optimizer, 2)
    assert monitor.steps == 4
ended()
"""

_STOPS = """
model, optimizer = built()
with watch(model, optimizer, interval=1, folder=out, stop_on="fail") as monitor:
    for step in range(1, 2000):
        train(model, optimizer, 1)
        if monitor.should_stop: break
(out / f"stopped{rank}").write_text(str(monitor.steps))
ended()
"""


def together(script, kind, tmp_path, *more):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    file = tmp_path / "worker.py"
    file.write_text(_HEAD + script)
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", file, str(rank), port, tmp_path, kind, *more], stderr=subprocess.PIPE, text=True
        )
        for rank in range(1 if kind == "one" else 2)
    ]  # fmt: skip
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=400)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
@pytest.mark.parametrize("compiled", ["plain", "compiled"])
@pytest.mark.exhaustive
def test_two_processes_say_what_one_says(kind, compiled, tmp_path):
    together(_STATISTICS, "one", tmp_path, "plain")
    together(_STATISTICS, kind, tmp_path, compiled)
    alone, found = (json.loads((tmp_path / f"{one}.json").read_text()) for one in ("one", kind))
    assert len(found) == (4 if compiled == "compiled" else 2)
    for how, steps in found.items():
        expected = alone[f"{how.split()[0]} False"]
        assert steps.keys() == expected.keys() == {"1", "2"}
        for step, metrics in expected.items():
            assert steps[step].keys() == metrics.keys()
            for name, value in metrics.items():
                # A process divides by its own batch: the gradients of its activations are twice those of the whole.
                factor = {"max": 2, "mean": 2, "var": 4}[name.rsplit("/", 1)[1]] if "activation_grads" in name else 1
                assert steps[step][name] == pytest.approx(factor * value, rel=1e-4, abs=1e-8), (how, name)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
@pytest.mark.exhaustive
def test_two_processes_write_the_gradients_that_one_writes(kind, tmp_path):
    for one in ("one", kind):
        together(_DUMPS, one, tmp_path)
    alone, found = (read_gradient_dumps(tmp_path / one / "2") for one in ("one", kind))
    assert [one.step for one in found] == [one.step for one in alone] == [2, 4]
    for mine, theirs in zip(found, alone, strict=True):
        assert [(one.name, one.shape) for one in mine.tensors] == [(one.name, one.shape) for one in theirs.tensors]
        assert {"net.0.weight", "unused.weight"} <= {one.name for one in mine.tensors}
        for one, other in zip(mine.tensors, theirs.tensors, strict=True):
            assert one.rms == pytest.approx(other.rms, rel=1e-4, abs=1e-9), one.name
    for step in (2, 4):
        read = []
        for one in ("one", kind):
            folder = tmp_path / one / "None" / "gradients" / f"step{step}" / "full_gradients"
            state = {"net.0.weight": torch.zeros(5, 6), "net.3.bias": torch.zeros(7), "unused.weight": torch.ones(3, 3)}
            dcp.load(state, checkpoint_id=folder)
            read.append(state)
        for name, value in read[0].items():
            torch.testing.assert_close(read[1][name], value)


@pytest.mark.exhaustive
def test_no_process_waits_for_one_that_has_failed(tmp_path):
    together(_ONE_FAILS, "fsdp", tmp_path)
    assert [one.step for one in read_gradient_dumps(tmp_path / "dumps")] == [1, 2]
    assert len((tmp_path / "gap.jsonl").read_text().splitlines()) >= 5  # the head, and all four steps


@pytest.mark.exhaustive
def test_all_processes_stop_at_the_same_step(tmp_path):
    together(_STOPS, "fsdp", tmp_path)
    first, second = ((tmp_path / f"stopped{rank}").read_text() for rank in (0, 1))
    assert first == second
    assert int(first) < 1999  # ``unused`` gets no gradient
