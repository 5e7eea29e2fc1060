"""A run of the benchmark once more: by another seed, or with something changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changes import NOTHING, Change, with_change
from generate import VERSION, Job, fault_of, train_and_write, train_one
from tasks import TASKS

RERUNS = "reruns"
"""The folder with what is true of runs that were trained once more."""

_SPLITS = {task.name: task.split for task in TASKS}


@dataclass(frozen=True)
class Rerun:
    """A job once more. ``number``: which other seed, 0 for the job's own. Its id is a hash, as a job's is."""

    job: Job
    number: int = 1
    change: Change = NOTHING

    @property
    def id(self) -> str:
        if self.number == 0 and self.change == NOTHING:
            return self.job.id
        about = json.dumps([VERSION, self.job.id, self.number, self.change.to_json()], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()[:16]

    @property
    def seed(self) -> int | None:
        return None if self.number == 0 else (self.job.seed + self.number) % 2**32


def split_of(job: Job) -> str:
    return _SPLITS[job.task]


def truth_of(run: Job | Rerun, out: Path) -> dict[str, Any]:
    """What is true of a run, which is trained if it is not there yet."""
    path = _place(run, out)
    if not path.is_file():
        _train(run, out)
    return json.loads(path.read_text())


def _place(run: Job | Rerun, out: Path) -> Path:
    first = isinstance(run, Job) or run.id == run.job.id
    return out / ("truth" if first else RERUNS) / f"{run.id}.json"


def _train(run: Job | Rerun, out: Path) -> None:
    if isinstance(run, Job) or run.id == run.job.id:
        (out / "truth").mkdir(parents=True, exist_ok=True)
        train_one(run if isinstance(run, Job) else run.job, str(out))
        return
    kind = fault_of(run.job)
    about = {
        "fault": run.job.fault,
        "symptoms": sorted(kind.symptoms),
        "of": run.job.id,
        "number": run.number,
        "change": run.change.to_json(),
    }
    train_and_write(run.job, with_change(kind, run.change), run.seed, out, RERUNS, about, run.id)


def truths_without_fault(out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """All that is there of runs that never had a fault, by id: what a run is compared with."""
    for folder in ("truth", RERUNS):
        for path in sorted((out / folder).glob("*.json")):
            truth = json.loads(path.read_text())
            if truth["fault"] == "none":
                yield path.stem, truth
