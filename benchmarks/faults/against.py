"""How right CMP001 is: against a baseline of eight certified healthy runs of a task."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from score import counted

from tracker_health import preset
from tracker_health.errors import ConfigError
from tracker_health.evidence import Baseline
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.report.baseline import Candidate, baseline_of
from tracker_health.rules.curves.odd_one_out import OddOneOut
from tracker_health.runs.lookup import open_run
from tracker_health.words.verdict import Verdict

_RUNS = 8


@dataclass
class Tally:
    """Runs that were judged, and those of them that were flagged."""

    judged: int = 0
    odd: int = 0

    def __str__(self) -> str:
        return f"{self.odd:4} of {self.judged:4}" + (f"  {self.odd / self.judged:5.1%}" if self.judged else "")


def against(size: str, out: Path, split: str) -> dict[str, dict[str, Tally]]:
    """Per fault, ``healthy`` among them, how many runs the default rules flag alone, and how many with CMP001 against a
    baseline of eight certified healthy runs of the task, the run itself not among them.

    All runs count, also those that cannot be compared. Names of losses are drawn by the benchmark, where people would
    keep one for a task: they are taken to be one.
    """
    judged = [(run, *_judged(run.id, out / "runs" / run.id)) for run in counted(size, out, split)]
    pools: dict[str, list[Candidate]] = defaultdict(list)
    for run, _, candidate in sorted(judged, key=lambda one: crc32(one[0].id.encode())):
        if run.label.certified and candidate.course is not None:
            pools[run.task].append(candidate)
    found: dict[str, dict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
    for run, flagged, candidate in judged:
        if run.label.certified or run.label.manifested:
            odd = _odd_against(candidate, _eight([one for one in pools[run.task] if one.id != run.id]))
            tallies = found["healthy" if run.label.certified else run.fault]
            says = {"alone": flagged, "baseline": odd, "both": flagged or odd, "compared": odd is not None}
            for name, said in says.items():
                tallies[name].judged += 1
                tallies[name].odd += bool(said)
    return found


def _judged(key: str, folder: Path) -> tuple[bool, Candidate]:
    """Whether a run is flagged by itself, and what a comparison needs of it."""
    config = preset("default")
    evidence = open_run(folder).read(needs_of(config))
    flagged = diagnose(evidence, config).verdict in (Verdict.WARN, Verdict.FAIL, Verdict.ERROR)
    course = None if evidence.course is None else replace(evidence.course, metric="loss")
    return flagged, Candidate(id=key, course=course, params=evidence.info.params)


def _eight(pool: list[Candidate]) -> Baseline | None:
    """The baseline of the first eight runs that are comparable to most of the others."""
    try:
        comparable = set(baseline_of(pool, "the task").runs)
        return baseline_of([one for one in pool if one.id in comparable][:_RUNS], "the task")
    except ConfigError:
        return None


def _odd_against(run: Candidate, baseline: Baseline | None) -> bool | None:
    """Whether CMP001 warns; None where the run cannot be compared."""
    if baseline is None or run.course is None or baseline.why_not(run.course, run.params):
        return None
    return OddOneOut().judged_against(baseline, run.course, run.params).verdict is Verdict.WARN
