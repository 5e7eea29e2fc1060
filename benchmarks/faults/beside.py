"""How right CMP001 is: each run beside the certified healthy ones of its task that log the same loss."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from score import Run, counted

from tracker_health import preset
from tracker_health.engine import needs_of
from tracker_health.evidence import Evidence, RunEnd, RunRef, Siblings
from tracker_health.opening import open_run
from tracker_health.probes.curves.odd_one_out import OddOneOut
from tracker_health.siblings import end_of, siblings_among
from tracker_health.verdict import Verdict

_REF = RunRef(store="directory", id="run", name="run")


@dataclass
class Tally:
    """Runs that had five siblings, and those of them that were called odd."""

    judged: int = 0
    odd: int = 0

    def __str__(self) -> str:
        return f"{self.odd:4} of {self.judged:4}" + (f"  {self.odd / self.judged:5.1%}" if self.judged else "")


def tally(size: str, out: Path, split: str) -> dict[str, Tally]:
    """Per fault, ``healthy`` among them, how many runs are odd beside the healthy ones of their task."""
    by_task: dict[str, list[tuple[Run, RunEnd | None]]] = defaultdict(list)
    for run in counted(size, out, split):
        by_task[run.task].append((run, _end(out / "runs" / run.id)))
    found: dict[str, Tally] = defaultdict(Tally)
    for runs in by_task.values():
        healthy = [(run.id, end) for run, end in runs if run.label.certified]
        for run, end in runs:
            if run.label.certified or run.label.manifested:
                others = [other for key, other in healthy if key != run.id]
                _count(found["healthy" if run.label.certified else run.fault], siblings_among([end, *others])[0])
    return found


def _end(folder: Path) -> RunEnd | None:
    run = open_run(folder)
    return end_of(run.read(needs_of(preset("default"))))


def _count(into: Tally, siblings: Siblings | None) -> None:
    rule = OddOneOut()
    if siblings is not None and len(siblings.others) >= rule.min_runs:
        into.judged += 1
        into.odd += rule.judge(Evidence(run=_REF, siblings=siblings)).verdict is Verdict.WARN
