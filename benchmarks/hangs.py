"""Small jobs of several processes that leave dumps of their flight recorders: how often RUN006 is right.

    TORCH_FR_BUFFER_SIZE=2000 python benchmarks/hangs.py make build/hangs --healthy 40 --broken 10    # by gloo
    python benchmarks/hangs.py score build/hangs

Each process writes its dump from a thread of its own, at a moment that is drawn. In healthy jobs that is at any step, a
little earlier or later on each rank, or after the end. In the others it is after the time-out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch._C._distributed_c10d import _dump_fr_trace

from tracker_health import check

FAULTS = ("late", "other-operation")
_LIMIT, _STEP, _HEALTHY_LIMIT = 5.0, 0.02, 60.0  # seconds


def planned(seed: int, fault: str, number: int) -> dict[str, Any]:
    """What a job is: drawn from the seed, its fault and its number."""
    draw = np.random.default_rng([seed, number, *fault.encode()])
    ranks = int(draw.integers(2, 5))
    return {
        "fault": fault,
        "ranks": ranks,
        "steps": int(draw.integers(20, 150)),
        "at": int(draw.integers(3, 19)),
        "rank": int(draw.integers(ranks)),
        "operations": [str(one) for one in draw.choice(["all_reduce", "broadcast", "barrier", "all_gather"], size=3)],
        "when": float(draw.uniform(0.2, 1.2)),
        "apart": [float(one) for one in draw.uniform(0.0, 0.1, size=ranks)],
    }


def run_one(operation: str, total: torch.Tensor) -> None:
    """Run one collective operation."""
    match operation:
        case "broadcast":
            dist.broadcast(total, 0)
        case "barrier":
            dist.barrier()
        case "all_gather":
            dist.all_gather([torch.empty_like(total) for _ in range(dist.get_world_size())], total)
        case _:
            dist.all_reduce(total)


def write(folder: str, rank: int) -> None:
    """Write the dump of a rank; the file is as old as the moment at which it was asked for."""
    asked, path = time.time(), Path(folder, f"nccl_trace_rank_{rank}")
    path.write_bytes(_dump_fr_trace())
    os.utime(path, (asked, asked))


def job(rank: int, plan: dict[str, Any], port: int, folder: str) -> None:
    """One rank of a job."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    broken = bool(plan["fault"])
    limit = dt.timedelta(seconds=_LIMIT if broken else _HEALTHY_LIMIT)
    dist.init_process_group("gloo", rank=rank, world_size=plan["ranks"], timeout=limit)

    def later() -> None:
        time.sleep(1.2 * _LIMIT + plan["apart"][rank] if broken else plan["when"] + plan["apart"][rank])
        write(folder, rank)
        if broken:
            os._exit(0)

    writer = threading.Thread(target=later)
    writer.start()
    try:
        steps(rank, plan)
    except RuntimeError:
        time.sleep(4 * _LIMIT)
    writer.join()
    os._exit(0)


def steps(rank: int, plan: dict[str, Any]) -> None:
    """The steps of a job: one rank leaves them at its fault."""
    for step in range(plan["steps"]):
        total = torch.ones(8)
        time.sleep(_STEP * (1 + 0.2 * rank))
        if rank == plan["rank"] and step == plan["at"] and plan["fault"]:
            if plan["fault"] == "late":
                time.sleep(4 * _LIMIT)
            run_one("broadcast", total)
        if step == plan["at"] and plan["fault"]:
            run_one("all_reduce", total)
        for operation in plan["operations"]:
            run_one(operation, total)


def make(folder: Path, seed: int, healthy: int, broken_each: int) -> None:
    """Run all jobs that are not there yet."""
    kinds = [("", number) for number in range(healthy)]
    kinds += [(fault, number) for number in range(broken_each) for fault in FAULTS]
    for fault, number in kinds:
        place = folder / f"{fault or 'healthy'}-{seed}-{number:03}"
        if (place / "plan.json").exists():
            continue
        dumps, plan = place / "dumps", planned(seed, fault, number)
        dumps.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = mp.start_processes(
            job, (plan, port, str(dumps)), nprocs=plan["ranks"], start_method="fork", join=False
        )
        ends = time.monotonic() + 12 * _LIMIT
        for process in context.processes:
            process.join(max(0.1, ends - time.monotonic()))
            process.kill()
        (place / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def score(folder: Path, *, verbose: bool) -> None:
    """Say how many jobs of each kind are flagged, as what, and how often the rank that is broken is named."""
    seen, said, named = Counter[str](), Counter[tuple[str, str]](), Counter[str]()
    for place in sorted(one.parent for one in folder.glob("*/plan.json")):
        plan = json.loads((place / "plan.json").read_text(encoding="utf-8"))
        kind, dumps = plan["fault"] or "healthy", place / "dumps"
        seen[kind] += 1
        for found in check(dumps).findings if any(dumps.iterdir()) else ():
            said[kind, f"{found.code} {found.kind}"] += 1
            named[kind] += found.measured.get("rank") == plan["rank"]
            if verbose:
                print(place.name, plan, found.message)
    for kind, of in seen.items():
        parts = ", ".join(f"{what} {hits}" for (one, what), hits in said.items() if one == kind)
        print(f"{kind}: of {of} jobs flagged: {parts or 'none'}; rank named {named[kind]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--healthy", type=int, default=40)
    parser.add_argument("--broken", type=int, default=10)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.what == "make":
        make(asked.folder, asked.seed, asked.healthy, asked.broken)
    else:
        score(asked.folder, verbose=asked.verbose)
