"""Which runs there are, and training those that are not there yet."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import recipes
from faults import FAULTS, Fault
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tasks import TASKS, Task

VERSION = 4
"""Raised when a run would come out otherwise: runs of another version are trained again."""

SIZES = {"small": (3, 1), "full": (36, 9)}
"""Runs without a fault per task, and runs with one per fault and split."""


@dataclass(frozen=True)
class Job:
    """One run to train. Its id is a hash: nothing that is judged carries the label."""

    task: str
    fault: str
    seed: int

    @property
    def id(self) -> str:
        revision = FAULTS[self.fault].revision if self.fault in FAULTS else 1
        fault = self.fault if revision == 1 else f"{self.fault} {revision}"
        return hashlib.sha256(f"{VERSION} {self.task} {fault} {self.seed}".encode()).hexdigest()[:16]


def jobs(size: str) -> Iterator[Job]:
    """All runs of a size, always the same ones; the small set is a part of the full one."""
    healthy, sick = SIZES[size]
    for task in TASKS:
        for number in range(healthy):
            yield Job(task.name, "none", _seed(task.name, "none", number))
    for name, fault in FAULTS.items():
        for split in ("tune", "validate"):
            tasks = [task for task in TASKS if task.gets_faults and task.split == split]
            yield from _with_fault(name, fault(), tasks, sick)


def _with_fault(name: str, fault: Fault, tasks: list[Task], wanted: int) -> Iterator[Job]:
    """The fault on the tasks that it suits, in turn."""
    start, found = crc32(name.encode()) % len(tasks), 0
    for number in range(20 * len(tasks)):
        task = tasks[(start + number) % len(tasks)]
        seed = _seed(task.name, name, number)
        if fault.suits(task, recipes.draw(task, seed)):
            yield Job(task.name, name, seed)
            found += 1
            if found == wanted:
                return


def _seed(task: str, fault: str, number: int) -> int:
    return crc32(f"{task} {fault} {number}".encode())


def train_one(job: Job, out: str) -> str:
    """Train a run and write what it leaves and its truth."""
    fault = fault_of(job)()
    train_and_write(job, fault, None, Path(out), "truth", {"fault": job.fault, "symptoms": sorted(fault.symptoms)})
    return job.id


def fault_of(job: Job) -> type[Fault]:
    """What a job is trained with."""
    return FAULTS[job.fault] if job.fault != "none" else Fault


def train_and_write(
    job: Job, fault: Fault, seed: int | None, out: Path, truths: str, about: dict[str, Any], name: str = ""
) -> None:
    """Train by a job's recipe and write what that leaves as ``name``, by default the job's id. The truth comes last, so
    that a run with a truth is whole; it has what is known ``about`` the run besides.
    """
    import torch
    from leave import leave, log
    from train import Training, truth_of

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, name = next(one for one in TASKS if one.name == job.task), name or job.id
    training = Training(task, recipes.draw(task, job.seed), fault, seed)
    training.run()
    leave(training, out / "runs" / name)
    log(training, recipes.telling_all(training.recipe), out / "told" / name)
    truth = truth_of(training) | {"structural": fault.structural and fault.shows(training.recipe)} | about
    path = out / truths / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".part").write_text(json.dumps(truth))
    path.with_suffix(".part").replace(path)


def generate(size: str, out: Path, workers: int | None = None) -> list[Job]:
    """Train every run of a size that is not there yet."""
    (out / "truth").mkdir(parents=True, exist_ok=True)
    (out / "runs").mkdir(exist_ok=True)
    every = list(jobs(size))
    todo = [job for job in every if not (out / "truth" / f"{job.id}.json").is_file()]
    columns = TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns) as progress, ProcessPoolExecutor(workers or os.cpu_count()) as pool:
        bar = progress.add_task("", total=len(every), completed=len(every) - len(todo))
        for future in as_completed([pool.submit(train_one, job, str(out)) for job in todo]):
            future.result()
            progress.advance(bar)
    return every
