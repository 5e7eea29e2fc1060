"""What LiveHealth would have stopped: every run is replayed step by step, as if it were being trained.

Beside it Optuna's MedianPruner, with the runs of one task as the trials of one study, each of which reports its
validation loss (or, where none was logged, its training loss) at every twentieth of its plan.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from score import Run, counted

from tracker_health import Config, LiveHealth, open_run
from tracker_health.evidence import Series
from tracker_health.evidence.confirmation import Confirmed
from tracker_health.judge.engine import needs_of
from tracker_health.live import LIVE_RULES

_REPORTS = 20
_SEEDS = 5
_EARLY = 0.5
MEDIAN = "median"
FALSE_STOPS = Path(__file__).parents[2] / "src" / "tracker_health" / "live" / "false_stops.json"


@dataclass(frozen=True)
class Replayed:
    """What was found in a run: at which share of its steps, by which rule; 1.0 and "" for nothing.

    ``said``: the first finding of any kind; ``stopped``: the first that stops a training.
    """

    id: str
    group: str
    said: float
    said_by: str
    stopped: float
    stopped_by: str


def rows_of(series: Iterable[Series]) -> Iterator[tuple[int, dict[str, float]]]:
    """What was logged at each step, in the order of the steps."""
    at: dict[int, dict[str, float]] = {}
    for one in series:
        for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True):
            at.setdefault(step, {})[one.name] = value
    yield from sorted(at.items())


def replayed(key: str, group: str, series: Iterable[Series], params: dict[str, str], plan: float | None) -> Replayed:
    """What LiveHealth says of a run, by the growth of its history alone."""
    health = LiveHealth(plan=plan, params=params, seconds=math.inf, rest=0.0)
    rows = list(rows_of(series))
    for step, metrics in rows:
        health.log(metrics, step)
    steps = max(1, rows[-1][0]) if rows else 1
    first, stop = next(iter(health.findings), None), health.stopped_by
    return Replayed(
        key,
        group,
        1.0 if first is None else first.step / steps,
        "" if first is None else first.code,
        1.0 if stop is None else stop.step / steps,
        "" if stop is None else stop.code,
    )


def as_logged(folder: Path) -> tuple[list[Series], dict[str, str]]:
    """The series of a run with the names that it logged them by, and its params."""
    request = replace(needs_of(Config()), parts=frozenset(), confirm=lambda series, _: Confirmed(tuple(series), ()))
    evidence = open_run(folder).read(request)
    return list(evidence.series), dict(evidence.info.params)


def _one(out: Path, run: Run) -> Replayed:
    series, params = as_logged(out / "runs" / run.id)
    truth = json.loads((out / "truth" / f"{run.id}.json").read_text())["recipe"]
    return replayed(run.id, _group(run), series, params, truth["planned"] if truth["tells_plan"] else None)


def _group(run: Run) -> str:
    if run.label.certified:
        return "healthy"
    return "faulty" if run.fault != "none" and (run.structural or run.label.manifested) else "unsure"


def replay(size: str, out: Path, split: str, workers: int) -> list[Replayed]:
    """Every run of a split."""
    runs = [run for run in counted(size, out, split) if _group(run) != "unsure"]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(partial(_one, out), runs, chunksize=8))


def medians(size: str, out: Path, split: str) -> list[Replayed]:
    """What Optuna's MedianPruner stops, in ``_SEEDS`` orders of the trials; all runs of a task are trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    by_task: dict[str, list[Run]] = {}
    for run in counted(size, out, split):
        by_task.setdefault(run.task, []).append(run)
    found = []
    for task in sorted(by_task):
        reports = {run.id: _reports(out, run) for run in by_task[task]}
        for seed in range(_SEEDS):
            order = sorted(by_task[task], key=lambda one: one.id)
            random.Random(seed).shuffle(order)
            study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
            found += [
                Replayed(run.id, _group(run), share, by, share, by)
                for run in order
                for share in [_pruned_at(study, reports[run.id])]
                for by in [MEDIAN if share < 1.0 else ""]
                if _group(run) != "unsure"
            ]
    return found


def _reports(out: Path, run: Run) -> list[tuple[int, float]]:
    """The newest loss at each twentieth of the run."""
    series, _ = as_logged(out / "runs" / run.id)
    roles = [one for role in ("val_loss", "train_loss") for one in series if one.role == role]
    if not roles:
        return []
    loss = roles[0].clean()
    last = max(int(one.steps.max()) for one in series)
    known = [(at, np.searchsorted(loss.steps, at * last / _REPORTS, side="right")) for at in range(1, _REPORTS + 1)]
    return [(at, float(loss.values[until - 1])) for at, until in known if until]


def _pruned_at(study: Any, reports: list[tuple[int, float]]) -> float:
    import optuna

    trial = study.ask()
    for at, value in reports:
        trial.report(value, at)
        if trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return at / _REPORTS
    value = reports[-1][1] if reports else math.nan
    study.tell(trial, value if math.isfinite(value) else 1e9)
    return 1.0


def curves(folder: Path) -> list[Replayed]:
    """The public curves whose label the expert was sure of; no plan is known of them."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from public_runs import CLASSES, evidence_of, judged, sure

    found = []
    for one in sure(judged(folder)):
        label = one.row["label"]
        if label == "healthy" or label in CLASSES:
            curve = json.loads((folder / "curves" / f"{one.row['id']}.json").read_text())
            group = "healthy" if label == "healthy" else "faulty"
            found.append(replayed(one.row["id"], group, evidence_of(curve).series, {}, None))
    return found


def lines(name: str, found: list[Replayed]) -> Iterator[str]:
    """A row of the table, and by which rules."""
    healthy, faulty = ([one for one in found if one.group == group] for group in ("healthy", "faulty"))
    early = sum(one.stopped < _EARLY for one in faulty)
    counts = [(_said(healthy), healthy), (_stopped(healthy), healthy), (_said(faulty), faulty)]
    counts += [(_stopped(faulty), faulty), (early, faulty)]
    saved = [f"{np.mean([1 - one.stopped for one in some]):.1%}" for some in (faulty, healthy)]
    yield f"| {' | '.join([name, *(_share(hits, len(some)) for hits, some in counts), *saved])} |"
    for group, some in (("healthy", healthy), ("faulty", faulty)):
        for what, codes in (("said", [one.said_by for one in some]), ("stopped", [one.stopped_by for one in some])):
            numbers = {code: codes.count(code) for code in (*LIVE_RULES, MEDIAN) if code in codes}
            yield f"  {group}, {what}: " + (", ".join(f"{code} {number}" for code, number in numbers.items()) or "none")


def write_false_stops(found: list[Replayed]) -> None:
    """Keep what ``watch_run`` says of itself next to the live rules."""
    healthy, faulty = ([one for one in found if one.group == group] for group in ("healthy", "faulty"))
    counts = {
        "by": "benchmarks/faults prefixes",
        "healthy_stopped": _stopped(healthy),
        "healthy": len(healthy),
        "faulty_stopped": _stopped(faulty),
        "faulty": len(faulty),
    }
    FALSE_STOPS.write_text(json.dumps(counts, indent=1) + "\n")


def _said(some: list[Replayed]) -> int:
    return sum(bool(one.said_by) for one in some)


def _stopped(some: list[Replayed]) -> int:
    return sum(bool(one.stopped_by) for one in some)


def _share(hits: int, total: int) -> str:
    return f"{hits} of {total} ({hits / total:.1%})" if total else "-"


HEAD = (
    "| | healthy, flagged at any time | healthy, stopped | faulty, flagged | faulty, stopped | "
    "before half of their steps | steps of faulty runs saved | of healthy runs |\n|---|---|---|---|---|---|---|---|"
)
