"""How far two runs differ that differ by their seed alone."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generate import Job, jobs
from oracle import labels
from reruns import Rerun, split_of, truth_of, truths_without_fault

from tracker_health.api import compare

HEALTHY, _FAULTY = 4, 1
"""Runs without a fault per task, and runs with one per fault."""

_PARTS = 8
"""A run's levels: medians over so many parts of its steps."""

_LEAST_ERROR = 0.005
"""One of the 200 samples that a log's accuracy is of: fewer are no factor."""

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


def pairs_of(out: Path, split: str) -> list[Twin]:
    """The healthy pairs of a split so far."""
    pairs = [Twin(**pair) for pair in json.loads((out / "pairs.json").read_text())]
    return [pair for pair in pairs if pair.healthy and pair.split == split]


def parted(out: Path, split: str) -> list[tuple[Twin, str]]:
    """What a comparison says of each healthy pair to have parted; empty where nothing clearly does."""
    found = []
    for pair in pairs_of(out, split):
        compared = compare(out / "runs" / pair.original, [out / "runs" / pair.twin])
        found.append((pair, "" if compared.first is None else compared.headline))
    return found


# How far they differ


class Spread(NamedTuple):
    """How far healthy twins are apart in one kind of quantity, at their end and along the run: by which factor, and by
    which share of the descent of the one that falls more. ``pairs``: those that have it.
    """

    kind: str
    pairs: int
    end_factors: list[float]
    factors: list[float]
    end_shares: list[float]
    shares: list[float]


def spreads(out: Path, split: str) -> list[Spread]:
    """How far healthy twins are apart, from logs that leave nothing out."""
    found: dict[str, Spread] = {}
    for pair in pairs_of(out, split):
        one, other = (_levels(out / "told" / run) for run in (pair.original, pair.twin))
        for kind in sorted(one.keys() & other.keys()):
            _add(found.setdefault(kind, Spread(kind, 0, [], [], [], [])), one[kind], other[kind])
    return [spread._replace(pairs=len(spread.end_factors)) for spread in found.values()]


def _add(spread: Spread, one: list[float], other: list[float]) -> None:
    pairs = [(a, b) for a, b in zip(one[1:], other[1:], strict=True) if math.isfinite(a + b)]
    descent = max(levels[0] - min(levels) for levels in (one, other))
    least = _LEAST_ERROR if spread.kind.endswith("error") else 1e-9
    factors = [max(*pair, least) / max(min(pair), least) for pair in pairs]
    shares = [abs(a - b) / descent if descent > 0 else 0.0 for a, b in pairs]
    spread.end_factors.append(factors[-1])
    spread.end_shares.append(shares[-1])
    spread.factors.extend(factors)
    spread.shares.extend(shares)


def _levels(folder: Path) -> dict[str, list[float]]:
    """The first value of each quantity, then its medians over equal parts of the run's steps; those that have points in
    every part.
    """
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max((row["step"] for row in rows if "step" in row), default=1)
    parts: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in range(_PARTS)])
    for row in rows:
        for name, value in row.items():
            kind = _KINDS.get(name)
            if kind is not None and "step" in row and isinstance(value, int | float):
                part = min(_PARTS - 1, int(_PARTS * (row["step"] - 1) / last))
                parts[kind][part].append(1.0 - value if kind.endswith("error") else value)
    return {kind: [some[0][0], *(float(np.median(one)) for one in some)] for kind, some in parts.items() if all(some)}


def table(found: list[Spread]) -> Iterator[str]:
    """Quantiles of the factors and shares, in Markdown."""
    heads = [
        f"{what} {share}"
        for what in ("end x", "along x", "end, of descent", "along, of descent")
        for share in ("95 %", "99 %")
    ]
    yield f"| | pairs | {' | '.join(heads)} |"
    yield "|---" * (2 + len(heads)) + "|"
    for one in found:
        numbers = (
            np.quantile(some, (0.95, 0.99)) for some in (one.end_factors, one.factors, one.end_shares, one.shares)
        )
        yield f"| {one.kind} | {one.pairs} | {' | '.join(f'{value:.3g}' for some in numbers for value in some)} |"
