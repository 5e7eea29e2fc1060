"""Verdicts on public training curves with an expert's labels: python benchmarks/public_runs.py [FOLDER].

FOLDER holds curves/<id>.json and labels.csv; by default shared/real_runs beside the project. Nothing of it is kept.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health import Config
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, StepUnit, confirm
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.report.result import Report

FOLDER = Path(__file__).parent.parent.parent / "shared" / "real_runs"
CLASSES = {
    "nan": "nan", "diverged": "diverged or spiky", "spiky/unstable": "diverged or spiky", "flat/not-learning": "flat",
    "overfit": "overfit", "zero-loss/zero-grad": "zero",
}  # fmt: skip
"""The labels that must be flagged, by the class under which they are counted."""


@dataclass(frozen=True)
class Judged:
    """A curve's label, what is known of it, and the report on it."""

    row: dict[str, str]
    report: Report

    @property
    def flagged(self) -> bool:
        return str(self.report.verdict) in ("warn", "fail", "error")


def evidence_of(curve: dict[str, Any]) -> Evidence:
    """Evidence in file order, as a reader would make it."""
    request = needs_of(Config())
    roles = request.roles.needed(list(curve["metrics"]))
    unit = StepUnit.OPTIMIZER_STEP if curve["kind"] == "hf" else StepUnit.UNKNOWN
    series = [
        Series(
            name=name,
            role=role,
            steps=np.array([int(step or 0) for step, _ in curve["metrics"][name]], dtype=np.int64),
            values=np.array([float(value) for _, value in curve["metrics"][name]]),
            step_unit=unit,
        )
        for name, role in roles.items()
    ]
    run = RunRef(store="directory", id="curve", name="curve")
    confirmed, notes = confirm(series, request.roles.of(curve["metrics"]))
    return Evidence(run=run, series=confirmed, info=RunInfo(metric_names=tuple(curve["metrics"])), notes=notes)


def judged(folder: Path, config: Config | None = None) -> list[Judged]:
    """Every curve with its report."""
    with (folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    curves = (json.loads((folder / "curves" / f"{row['id']}.json").read_text()) for row in rows)
    return [
        Judged(row, diagnose(evidence_of(curve), config or Config())) for row, curve in zip(rows, curves, strict=True)
    ]


def sure(every: Iterable[Judged]) -> list[Judged]:
    """Those whose label the expert was sure of; of one run in several forms the first."""
    seen: set[str] = set()
    kept = []
    for one in every:
        group = one.row["same_run_group"]
        if one.row["confidence"] == "high" and (not group or group not in seen):
            seen.add(group)
            kept.append(one)
    return kept


def main() -> None:
    """Print the table and every disagreement."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    if not (folder / "labels.csv").is_file():
        raise SystemExit(f"{folder} is not here: give the folder that holds labels.csv and curves/")
    every = judged(folder)
    known = sure(every)
    healthy = [one for one in known if one.row["label"] == "healthy"]
    bad = [one for one in known if one.row["label"] in CLASSES]
    broken = sum(bool(one.report.errors) for one in every)
    print(f"{len(every)} curves, {broken} with an error; {len(known)} sure labels\n")
    print("| class | runs | right | per repository |\n|---|---|---|---|")
    _row("healthy, not flagged", healthy, flagged=False)
    _row("bad, flagged", bad, flagged=True)
    for name in dict.fromkeys(CLASSES.values()):
        _row(f"{name}, flagged", [one for one in bad if CLASSES[one.row["label"]] == name], flagged=True)
    for label in sorted({one.row["label"] for one in known} - CLASSES.keys() - {"healthy"}):
        _row(f"({label}, flagged)", [one for one in known if one.row["label"] == label], flagged=True)
    print()
    for one in healthy + bad:
        if one.flagged == (one.row["label"] == "healthy"):
            print(f"{one.row['id']} [{one.row['label']}]: {one.report.verdict}: {one.report.summary}")


def _row(name: str, runs: list[Judged], *, flagged: bool) -> None:
    by_repository: dict[str, list[bool]] = defaultdict(list)
    for one in runs:
        by_repository[one.row["repo"]].append(one.flagged is flagged)
    right = [sum(group) / len(group) for group in by_repository.values()]
    hits = sum(sum(group) for group in by_repository.values())
    if runs:
        print(f"| {name} | {len(runs)} | {hits} ({hits / len(runs):.1%}) | {np.mean(right):.1%} of {len(right)} |")


if __name__ == "__main__":
    main()
