"""What becomes of a faulty run when the advice on it is followed, and when nothing is done but to train again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from advice import Advice, advice_of
from changes import NOTHING, Change, change_from
from generate import Job, jobs
from oracle import LEAST_MOVE, Siblings, curve_of, ends_worse, labels, late_peak, siblings_of, spiked
from reruns import Rerun, split_of, truth_of
from tasks import TASKS
from twins import HEALTHY

from tracker_health import check

REPAIRS, PLACEBOS = "repairs.jsonl", "placebo.jsonl"

_RUNS, _PLACEBO_RUNS = 8, 2
"""Of each fault: runs whose advice is followed, and those of them that are also trained again as they were."""

_SEEDS = {"other": 1, "same": 0}
_REFERENCES = (0, 2)
"""The seeds of the runs without the fault that a run is compared with in its own recipe."""

_OF_A_PEAK = 2.0
"""Times as high as in runs without the fault: the losses of small batches scatter widely."""


@dataclass
class Oracle:
    """What is true of runs of the benchmark, whatever was changed in them."""

    out: Path
    _of_task: dict[str, Siblings] = field(default_factory=dict)

    @cached_property
    def _healthy(self) -> dict[str, list[Job]]:
        groups: dict[str, list[Job]] = defaultdict(list)
        for job in jobs("full"):
            if job.fault == "none" and len(groups[job.task]) < HEALTHY:
                groups[job.task].append(job)
        return groups

    def siblings(self, task: str) -> Siblings:
        """Medians over runs of the task without a fault, each of them by two seeds: of those that are certified, where
        they are enough.
        """
        if task not in self._of_task:
            runs = [run for job in self._healthy[task] for run in (job, Rerun(job))]
            truths = {run.id: truth_of(run, self.out) for run in runs}
            certified = {key: truths[key] for key, label in labels(truths).items() if label.certified}
            self._of_task |= siblings_of(certified if len(certified) >= HEALTHY else truths)
        return self._of_task[task]

    def is_faulty(self, run: Rerun) -> bool:
        """Whether a fault is in the run that does harm, or that its user would have to know of: its trace is there, a
        part of the model did not move, or it ends worse than its siblings. A run that ends no worse than runs of its
        recipe without the fault is not faulty for that.
        """
        truth, siblings = truth_of(run, self.out), self.siblings(run.job.task)
        if self._has_trace(run):
            return True
        if not (ends_worse(truth, siblings) or spiked(truth)) and _all_moved(truth):
            return False
        references = self._references(run.job)
        return (
            ends_worse(truth, _no_better_than(references, siblings))
            or (spiked(truth) and late_peak(truth) > _OF_A_PEAK * max(map(late_peak, references)))
            or (not _all_moved(truth) and all(map(_all_moved, references)))
        )

    def closed(self, old: Rerun, new: Rerun) -> float:
        """How much of what a faulty run was worse by at its end is made good in another one, by the set on which that
        is less: 1 where it ends as well as runs without the fault, 0 where nothing is, or the fault's trace is there.
        """
        if self._has_trace(new):
            return 0.0
        good = _no_better_than(self._references(old.job), self.siblings(old.job.task))
        before, after = truth_of(old, self.out), truth_of(new, self.out)
        shares = [
            1.0
            if curve_of(after, which)[-1] < good.worst_end(which)
            else _closed(curve_of(before, which), curve_of(after, which)[-1], good.end[which])
            for which in good.end
        ]
        return max(0.0, min(shares))

    def _has_trace(self, run: Rerun) -> bool:
        return truth_of(run, self.out)["structural"] and not _is_taken_back(run)

    def _references(self, job: Job) -> list[dict[str, Any]]:
        """What is true of runs of a job's recipe without the fault."""
        return [truth_of(Rerun(job, seed, Change(undone="fault")), self.out) for seed in _REFERENCES]


def _closed(old: np.ndarray, end: float, good: float) -> float:
    """The share of a gap that is closed. A run that ends above its start, or not finite, is as bad as its start."""
    bad = min(old[0], old[-1])  # the first where the last is NaN
    if not np.isfinite(end) or bad <= good:
        return 0.0
    return float(1.0 - (end - good) / (bad - good))


def _all_moved(truth: Mapping[str, Any]) -> bool:
    return not min(truth["moved"].values()) < LEAST_MOVE


def _no_better_than(references: Iterable[Mapping[str, Any]], siblings: Siblings) -> Siblings:
    """The siblings, of whom no better end is asked than of these runs."""
    ends = {which: [one["evaluations"][-1][which] for one in references] for which in siblings.end}
    worst = {
        which: max([end, *(one for one in ends[which] if np.isfinite(one))]) for which, end in siblings.end.items()
    }
    return replace(siblings, end=worst)


def _is_taken_back(run: Rerun) -> bool:
    """Whether a setting does away with what the fault did: then the run counts by what became of it."""
    match run.job.fault:
        case "rate-zero":
            return run.change.peak_rate is not None
        case "group-rate-zero":
            return run.change.group_rate is not None
        case "scale-collapse":
            return ("half", False) in run.change.recipe
        case "stopped-early" | "too-few-steps":
            return run.change.longer > 1
    return False


def chosen(split: str = "tune") -> Iterator[Job]:
    """Faulty runs of a split, one of each fault at a time. Some are left out that train poorly in their recipe whatever
    the weights begin as: tiny weights under SGD, of tasks that SGD is not for.
    """
    groups: dict[str, list[Job]] = defaultdict(list)
    unfit = {("vanishing-init", task.name) for task in TASKS if task.sgd is None}
    for job in jobs("full"):
        if job.fault != "none" and split_of(job) == split and (job.fault, job.task) not in unfit:
            groups[job.fault].append(job)
    for row in zip_longest(*(group[:_RUNS] for group in groups.values())):
        yield from (job for job in row if job is not None)


def follow(out: Path, split: str = "tune") -> Iterator[dict[str, Any]]:
    """Train again by the advice on each flagged run, and write down a line for each; goes on where it stopped."""
    oracle, done, placebos = Oracle(out), _olds(out / REPAIRS), _placebos(out)
    label_again(oracle)
    for job in chosen(split):
        if job.id in done:
            continue
        truth_of(job, out)
        report = check(str(out / "runs" / job.id))
        if str(report.verdict) not in ("warn", "fail"):
            continue
        advice = advice_of(report, job.fault)
        lines = list(_followed(job, advice, oracle))
        _append(out / REPAIRS, lines)
        if placebos[job.fault] < _PLACEBO_RUNS and lines[0]["was_faulty"]:
            placebos[job.fault] += 1
            _append(out / PLACEBOS, [_placebo(job, advice, oracle)])
        yield from lines


def _followed(job: Job, advice: Advice, oracle: Oracle) -> Iterator[dict[str, Any]]:
    """A line for each seed; where the advice changes nothing in the run, for the other seed alone."""
    action = advice.action
    for seed, number in _SEEDS.items():
        rerun = Rerun(job, number, advice.change)
        if rerun.id == job.id:
            continue
        yield {
            "old": job.id,
            "new": rerun.id,
            "fault": job.fault,
            "task": job.task,
            "split": split_of(job),
            "seed": seed,
            "cause": advice.cause,
            "certainty": advice.certainty,
            "action": action.text,
            "setting": action.setting,
            "from": action.old,
            "to": action.new,
            "kind": advice.kind,
            "applied": advice.change != NOTHING,
            "change": advice.change.to_json(),
        } | _labels(Rerun(job, 0), rerun, oracle)


def _placebo(job: Job, advice: Advice, oracle: Oracle) -> dict[str, Any]:
    again = Rerun(job)
    return {
        "old": job.id,
        "new": again.id,
        "fault": job.fault,
        "task": job.task,
        "split": split_of(job),
        "cause": advice.cause,
    } | _labels(Rerun(job, 0), again, oracle)


def _labels(old: Rerun, new: Rerun, oracle: Oracle) -> dict[str, Any]:
    """What is true of two runs; ``closed`` is 0 of runs that were not faulty."""
    was, still = oracle.is_faulty(old), oracle.is_faulty(new)
    closed = oracle.closed(old, new) if was and still else float(was)
    return {"was_faulty": was, "still_faulty": still, "closed": round(closed, 3)}


def label_again(oracle: Oracle) -> None:
    """Put what the oracle says now into the lines that are there."""
    by_id = {job.id: job for job in chosen()}
    for place in (REPAIRS, PLACEBOS):
        lines = [line for line in lines_of(oracle.out / place) if line["old"] in by_id]
        for line in lines:
            job, number = by_id[line["old"]], _SEEDS[line.get("seed", "other")]
            rerun = Rerun(job, number, change_from(line.get("change", {})))
            line.update(_labels(Rerun(job, 0), rerun, oracle))
        part = oracle.out / f"{place}.part"
        part.unlink(missing_ok=True)
        _append(part, lines)
        part.replace(oracle.out / place)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """What was written down so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _olds(path: Path) -> set[str]:
    return {line["old"] for line in lines_of(path)}


def _placebos(out: Path) -> defaultdict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    for line in lines_of(out / PLACEBOS):
        counts[line["fault"]] += 1
    return counts


def _append(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
