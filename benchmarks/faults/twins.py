"""How far two runs differ that differ by their seed alone."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from generate import Job, jobs
from oracle import labels
from reruns import Rerun, split_of, truth_of, truths_without_fault

HEALTHY, _FAULTY = 4, 1
"""Runs without a fault per task, and runs with one per fault."""

_PARTS = 8
"""A run's levels: medians over so many parts of its steps."""

_KINDS = {
    "train_loss": "train loss", "valid_loss": "validation loss", "valid_acc": "validation error",
    "train_acc": "train error", "gradient_norm": "gradient norm", "grad_scale": "loss scale",
    "loss": "train loss", "val_loss": "validation loss", "val_accuracy": "validation error", "accuracy": "train error",
    "grad_norm": "gradient norm", "loss_scale": "loss scale", "train/loss": "train loss",
    "eval/loss": "validation loss", "eval/accuracy": "validation error", "train/accuracy": "train error",
    "train/grad_norm": "gradient norm", "train/loss_scale": "loss scale",
}  # fmt: skip
"""What the names of the logs mean. Of an accuracy its complement is compared."""


class Twin(NamedTuple):
    """Two runs that differ by their seed: the ids of their folders."""

    original: str
    twin: str
    split: str
    healthy: bool


def chosen() -> list[Job]:
    """The runs that get a twin: the first ones of every task and of every second fault, one of each at a time."""
    groups: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs("full"):
        groups[(job.task, "") if job.fault == "none" else (job.fault, split_of(job))].append(job)
    healthy = [group[:HEALTHY] for (_, split), group in groups.items() if not split]
    faults = sorted(fault for fault, split in groups if split == "tune")
    faulty = [groups[fault, ("tune", "validate")[number // 2 % 2]][:_FAULTY] for number, fault in enumerate(faults)]
    return _in_turn([*healthy, *faulty[::2]])


def _in_turn(groups: Sequence[Sequence[Job]]) -> list[Job]:
    return [job for row in zip_longest(*groups) for job in row if job is not None]


def train(out: Path) -> Iterator[Twin]:
    """Train what is not there yet, and write down all pairs so far after each."""
    done: list[tuple[Job, Rerun]] = []
    for job in chosen():
        truth_of(job, out)
        truth_of(Rerun(job), out)
        done.append((job, Rerun(job)))
        pairs = list(_labelled(done, out))
        (out / "pairs.json").write_text(json.dumps([one._asdict() for one in pairs], indent=1) + "\n")
        yield pairs[-1]


def _labelled(done: list[tuple[Job, Rerun]], out: Path) -> Iterator[Twin]:
    label = labels(dict(truths_without_fault(out)))
    for job, twin in done:
        healthy = all(one.id in label and label[one.id].certified for one in (job, twin))
        yield Twin(job.id, twin.id, split_of(job), healthy)


# How far they differ


class Spread(NamedTuple):
    """By which factors healthy twins differ in one kind of quantity, at their end and along the run; and how many
    pairs have it.
    """

    kind: str
    pairs: int
    at_the_end: list[float]
    along: list[float]


def spreads(out: Path, split: str) -> list[Spread]:
    """The factors between healthy twins, from logs that leave nothing out."""
    ends: dict[str, list[float]] = defaultdict(list)
    along: dict[str, list[float]] = defaultdict(list)
    for pair in json.loads((out / "pairs.json").read_text()):
        if pair["healthy"] and pair["split"] == split:
            for kind, factors in _factors(*(_levels(out / "told" / pair[one]) for one in ("original", "twin"))):
                ends[kind].append(factors[-1])
                along[kind] += factors
    return [Spread(kind, len(ends[kind]), ends[kind], along[kind]) for kind in sorted(ends)]


def _factors(one: dict[str, list[float]], other: dict[str, list[float]]) -> Iterator[tuple[str, list[float]]]:
    for kind in one.keys() & other.keys():
        pairs = zip(one[kind], other[kind], strict=True)
        yield kind, [max(a, b) / max(min(a, b), 1e-9) for a, b in pairs if math.isfinite(a + b)]


def _levels(folder: Path) -> dict[str, list[float]]:
    """The medians of each quantity over equal parts of the run's steps; those that have points in every part."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max((row["step"] for row in rows if "step" in row), default=1)
    parts: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in range(_PARTS)])
    for row in rows:
        for name, value in row.items():
            kind = _KINDS.get(name)
            if kind is not None and "step" in row and isinstance(value, int | float):
                part = min(_PARTS - 1, int(_PARTS * (row["step"] - 1) / last))
                parts[kind][part].append(1.0 - value if kind.endswith("error") else value)
    return {kind: [float(np.median(one)) for one in some] for kind, some in parts.items() if all(some)}


def table(found: list[Spread]) -> Iterator[str]:
    """Quantiles of the factors, in Markdown."""
    yield "| | pairs | end: 50 % | 95 % | 99 % | along: 50 % | 95 % | 99 % |"
    yield "|---" * 8 + "|"
    for one in found:
        cells = [
            f"{value:.3g}" for some in (one.at_the_end, one.along) for value in np.quantile(some, (0.5, 0.95, 0.99))
        ]
        yield f"| {one.kind} | {one.pairs} | {' | '.join(cells)} |"


def summary(pairs: list[dict[str, Any]]) -> str:
    healthy = sum(one["healthy"] for one in pairs)
    return f"{len(pairs)} pairs, of which {healthy} are healthy"
