"""Small trainings of several processes that average their gradients, healthy and broken: what RUN005 and SYS004 say.

    python benchmarks/ranks.py make build/ranks --seed 0     # by gloo, some seconds each
    python benchmarks/ranks.py score build/ranks

Each rank logs the loss of its own batch, as DDP's scripts do that log from every rank. It logs the time that it waited
for data, that of the whole step, and that of its own computation. Healthy groups differ in ranks, task, batch, rate,
noise and in how unlike their shards are. Their rank 0 evaluates now and then, and their loaders are not equally fast.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Rank, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.rules.run.rank_apart import RankApart
from tracker_health.rules.system.slow_rank import SlowRank

TASKS = ("clusters", "curve", "chain")
FAULTS = ("unsynchronised", "shard", "shard-midway", "noise", "hang", "nan")
SLOW = ("slow-loader", "slow-loader-midway", "slow-device")
ROLES = {
    "loss": "train_loss", "data_time": "data_time", "step_time": "step_time", "compute_step_time": "step_time",
}  # fmt: skip
RULES = (RankApart, SlowRank)
_INPUTS, _CLASSES, _SAMPLES = 16, 8, 3000
_STEP_SECONDS = 0.004


def planned(seed: int, fault: str, number: int) -> dict[str, Any]:
    """What a group is: drawn from the seed, its fault and its number."""
    draw = np.random.default_rng([seed, number, *fault.encode()])
    return {
        "seed": int(draw.integers(2**31)),
        "fault": fault,
        "task": TASKS[number % len(TASKS)],
        "ranks": int(draw.integers(2, 5)),
        "batch": int(draw.choice([4, 8, 16, 32, 64])),
        "steps": int(draw.choice([120, 200, 400, 800])),
        "every": int(draw.choice([1, 1, 2, 5])),
        "rate": float(10 ** draw.uniform(-3.3, -1.7)),
        "label_noise": float(draw.choice([0.0, 0.0, 0.1, 0.3])),
        "unlike": float(draw.choice([0.0, 0.0, 0.3, 0.6])),
        "at": float(draw.uniform(0.3, 0.6)),
        "depth": int(draw.integers(1, 3)),
        # Seconds: what each rank's loader takes, by how much that varies, and what a slow rank takes besides.
        "load": float(draw.choice([0.0, 0.0005, 0.002])),
        "varies": float(draw.choice([0.1, 0.3, 0.6])),
        "besides": float(draw.choice([0.5, 1.0, 3.0])),
        "evaluates": int(draw.choice([10, 50, 1000])),
    }


def shard_of(plan: dict[str, Any], rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of a rank: of one task for all, drawn apart, and of other classes or inputs as far as ``unlike``."""
    task, own = torch.Generator().manual_seed(plan["seed"]), torch.Generator().manual_seed(plan["seed"] + 1 + rank)
    labels = torch.randint(_CLASSES, (_SAMPLES,), generator=own)
    of_few = (labels + rank * 2) % 3 + 2 * rank
    takes = torch.rand(_SAMPLES, generator=own) < plan["unlike"]
    labels = torch.where(takes, of_few % _CLASSES, labels)
    if plan["task"] == "chain":  # the next of eight tokens, by the two before it
        table = torch.randn(_CLASSES, _CLASSES, _CLASSES, generator=task) * 2
        before = torch.stack([labels, torch.randint(_CLASSES, (_SAMPLES,), generator=own)], 1)
        chances = torch.softmax(table[before[:, 0], before[:, 1]], -1)
        targets = torch.multinomial(chances, 1, generator=own)[:, 0]
        inputs = nn.functional.one_hot(before, _CLASSES).float().flatten(1)
    else:
        centres = torch.randn(_CLASSES, _INPUTS, generator=task)
        inputs = centres[labels] + torch.randn(_SAMPLES, _INPUTS, generator=own)
        targets = labels
    if plan["label_noise"]:
        wrong = torch.rand(_SAMPLES, generator=own) < plan["label_noise"]
        targets = torch.where(wrong, torch.randint(_CLASSES, (_SAMPLES,), generator=own), targets)
    if plan["task"] == "curve":
        weights = torch.randn(_INPUTS, 1, generator=task)
        noise = torch.randn(_SAMPLES, 1, generator=own) * (0.1 + plan["label_noise"])
        return inputs, torch.sin(inputs @ weights / 2) + noise
    return inputs, targets


def broken(plan: dict[str, Any], targets: torch.Tensor, share: float) -> torch.Tensor:
    """The targets, so many of them another sample's."""
    draw = torch.Generator().manual_seed(plan["seed"] - 1)
    mixed = targets[torch.randperm(len(targets), generator=draw)]
    takes = torch.rand(len(targets), generator=draw) < share
    return torch.where(takes.view(-1, *[1] * (targets.dim() - 1)), mixed, targets)


def pauses(plan: dict[str, Any], speeds: np.random.Generator, rank: int, step: int, fault: str) -> tuple[float, float]:
    """How long a rank waits for the data of a step, and how long it computes besides, in seconds."""
    sets_in = int(plan["at"] * plan["steps"]) if "midway" in fault else 0
    late = _STEP_SECONDS * plan["besides"] if fault in SLOW and step >= sets_in else 0.0
    load = plan["load"] * (1 + 0.1 * rank) * float(speeds.lognormal(0.0, plan["varies"]))
    compute = _STEP_SECONDS * float(speeds.lognormal(0.0, 0.05))
    if rank == 0 and step % plan["evaluates"] == 0:
        compute += 2 * _STEP_SECONDS
    return (load, compute + late) if fault == "slow-device" else (load + late, compute)


def note_times(
    times: dict[str, list[list[float]]], plan: dict[str, Any], step: int, began: float, loaded: float, computed: float
) -> None:
    """Note the times of a step that ends now, where it is one that is logged."""
    now = time.perf_counter()
    ends = {"data_time": loaded - began, "step_time": now - began, "compute_step_time": computed - loaded}
    for name, seconds in ends.items() if step % plan["every"] == 0 else ():
        times[name].append([step, seconds])


def averaged(model: nn.Module, plan: dict[str, Any]) -> None:
    """Average the gradients over the ranks."""
    if plan["fault"] != "unsynchronised":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= plan["ranks"]


def train(rank: int, plan: dict[str, Any], port: int, folder: str) -> None:
    """One rank: its losses go into a file of its own."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=plan["ranks"])
    torch.manual_seed(plan["seed"])
    inputs, targets = shard_of(plan, rank)
    is_curve, last = plan["task"] == "curve", rank == plan["ranks"] - 1
    hidden = [layer for _ in range(plan["depth"] - 1) for layer in (nn.Linear(48, 48), nn.ReLU())]
    outputs = 1 if is_curve else _CLASSES
    model = nn.Sequential(nn.Linear(inputs.shape[1], 48), nn.ReLU(), *hidden, nn.Linear(48, outputs))
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan["rate"])
    measure = nn.MSELoss() if is_curve else nn.CrossEntropyLoss()
    draw, fault = torch.Generator().manual_seed(plan["seed"] + 100 + rank), plan["fault"] if last else ""
    if plan["fault"] == "unsynchronised":
        torch.manual_seed(plan["seed"] + rank)
    told, broke_at = [], int(plan["at"] * plan["steps"])
    speeds = np.random.default_rng([plan["seed"], rank])
    times: dict[str, list[list[float]]] = {"data_time": [], "step_time": [], "compute_step_time": []}
    if fault in ("shard", "noise"):
        targets = broken(plan, targets, 1.0 if fault == "shard" else 0.5)
    for step in range(plan["steps"]):
        if fault == "shard-midway" and step == broke_at:
            targets = broken(plan, targets, 1.0)
        began = time.perf_counter()
        load, compute = pauses(plan, speeds, rank, step, fault)
        time.sleep(load)
        chosen = torch.randint(len(inputs), (plan["batch"],), generator=draw)
        loaded = time.perf_counter()
        time.sleep(compute)
        loss = measure(model(inputs[chosen]), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        computed = time.perf_counter()
        averaged(model, plan)
        optimizer.step()
        note_times(times, plan, step, began, loaded, computed)
        value = math.nan if fault == "nan" and step >= broke_at else loss.item()
        if step % plan["every"] == 0 and not (fault == "hang" and step >= broke_at):
            told.append([step, value])
    written = {"loss": told, **times}
    Path(folder, f"{rank}.json").write_text(json.dumps(written), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def make(folder: Path, seed: int, healthy: int, broken_each: int, faults: tuple[str, ...], most: int) -> None:
    """Train all groups that are not there yet, each for ``most`` steps at most."""
    kinds = [("", number) for number in range(healthy)]
    kinds += [(fault, number) for number in range(broken_each) for fault in faults]
    for fault, number in kinds:
        group = folder / f"{fault or 'healthy'}-{seed}-{number:03}"
        if (group / "plan.json").exists():
            continue
        group.mkdir(parents=True, exist_ok=True)
        plan = planned(seed, fault, number)
        plan["steps"] = min(plan["steps"], most)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.start_processes(train, (plan, port, str(group)), nprocs=plan["ranks"], start_method="fork")
        (group / "plan.json").write_text(json.dumps(plan), encoding="utf-8")


def groups(folder: Path) -> Iterator[tuple[dict[str, Any], Evidence]]:
    """Each group's plan, and what its ranks logged."""
    for group in sorted(one.parent for one in folder.glob("*/plan.json")):
        plan = json.loads((group / "plan.json").read_text(encoding="utf-8"))
        ranks = []
        for number in range(plan["ranks"]):
            logged = json.loads((group / f"{number}.json").read_text(encoding="utf-8"))
            series = [
                Series(name=name, role=ROLES[name], steps=points[:, 0].astype(np.int64), values=points[:, 1])
                for name, rows in logged.items()
                if name in ROLES and len(points := np.array(rows, dtype=float))
            ]
            ranks.append(Rank(number=number, name=f"rank {number}", series=tuple(series)))
        yield plan, Evidence(run=RunRef(store="directory", id=group.name, name=group.name), ranks=tuple(ranks))


def _share_of_a_step(plan: dict[str, Any], evidence: Evidence) -> float:
    """How much longer the slow rank of a group takes, over a step, which may be mostly communication."""
    name = "compute_step_time" if plan["fault"] == "slow-device" else "step_time"
    steps = [np.median(one.values) for rank in evidence.ranks[:-1] for one in rank.series if one.name == name]
    return _STEP_SECONDS * plan["besides"] / float(np.median(steps))


def wilson(hits: int, of: int, deviations: float = 1.96) -> float:
    """The upper end of the 95 % interval of a share."""
    share, square = hits / of, deviations**2
    middle = share + square / (2 * of)
    return (middle + deviations * math.sqrt(share * (1 - share) / of + square / (4 * of * of))) / (1 + square / of)


def score(folder: Path, *, verbose: bool) -> None:
    """Say how many groups of each kind a rule flags, and how often it names the rank that is broken."""
    seen, flagged, named = Counter[str](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for plan, evidence in groups(folder):
        kind = plan["fault"] or "healthy"
        if kind in SLOW:
            kind += ", a fifth of a step or more" if _share_of_a_step(plan, evidence) >= 0.2 else ", less of a step"
        seen[kind] += 1
        for rule in RULES:
            for found in diagnose(evidence, Config(), probes=[rule()]).findings:
                flagged[kind, rule.code] += 1
                named[kind, rule.code] += found.measured["rank"] == plan["ranks"] - 1
                if verbose:
                    print(evidence.run.id, plan, found.message)
    for kind, of in seen.items():
        for code in (rule.code for rule in RULES):
            hits = flagged[kind, code]
            print(f"{kind}: {code} flagged {hits} of {of} (at most {wilson(hits, of):.1%}), named {named[kind, code]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--healthy", type=int, default=60)
    parser.add_argument("--broken", type=int, default=10)
    parser.add_argument("--faults", nargs="*", choices=(*FAULTS, *SLOW), default=(*FAULTS, *SLOW))
    parser.add_argument("--most-steps", type=int, default=800)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    if asked.what == "make":
        make(asked.folder, asked.seed, asked.healthy, asked.broken, tuple(asked.faults), asked.most_steps)
    else:
        score(asked.folder, verbose=asked.verbose)
