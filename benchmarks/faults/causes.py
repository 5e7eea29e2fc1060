"""How right the headlines are, and what each sign is worth: counted on flagged runs whose fault is known."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import tracker_health.diagnosis as diagnosis_package
from tracker_health import preset
from tracker_health.diagnosis import CAUSES, Cause, Facts, Sign
from tracker_health.diagnosis._counts import COUNTS_FILE, Counts
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_run

FINDINGS = Path(__file__).parent / "findings.jsonl"
"""What the flagged runs of the tuning tasks showed, a line each: the fault, the findings, and the signs."""

COUNTED = Path(diagnosis_package.__file__).parent / COUNTS_FILE
_FEWEST = 4
"""Of fewer runs with a cause, or in which a sign was seen at all, nothing is counted."""

_NORMAL = 1.96  # standard deviations on both sides of 95 %


def right_causes() -> dict[str, list[str]]:
    """The causes that are right for each fault, the best first."""
    with (Path(__file__).parent / "causes.csv").open(newline="") as file:
        return {row["fault"]: row["right_causes_best_first"].split("|") for row in csv.DictReader(file)}


class Shown(NamedTuple):
    """A faulty run that was flagged: what was found, which signs it shows, and what was said of it, the first cause and
    how sure it is, then the others.
    """

    run: str
    fault: str
    found: Mapping[str, Sequence[str]]
    signs: Sequence[str]
    said: Sequence[str]
    certainty: str


def shown(out: Path, split: str, place: str = "runs") -> list[Shown]:
    """All faulty runs of a split that are there and flagged."""
    truths = {path.stem: json.loads(path.read_text()) for path in sorted((out / "truth").glob("*.json"))}
    faults = {run: truth["fault"] for run, truth in truths.items() if truth["split"] == split}
    faulty = {run: fault for run, fault in faults.items() if fault != "none"}
    with ProcessPoolExecutor() as pool:
        found = pool.map(partial(_shown, out / place), faulty.items(), chunksize=8)
        return [one for one in found if one is not None]


def _shown(folder: Path, run: tuple[str, str]) -> Shown | None:
    source = open_run(str(folder / run[0]), tracking_uri=None, sidecar=False)
    try:
        report, evidence = judge_run(source, preset("default"))
    finally:
        source.close()
    diagnosis = report.diagnosis
    if str(report.verdict) not in ("warn", "fail"):
        return None
    facts = Facts(evidence, report.results)
    signs = sorted({sign.name for sign in _signs(CAUSES) if sign.seen(facts)})
    found = {one.code: (str(one.verdict), one.kind) for one in report.findings}
    said = [] if diagnosis is None else [diagnosis.cause, *(one.cause for one in diagnosis.others)]
    return Shown(*run, found, signs, said, "" if diagnosis is None else diagnosis.certainty)


def _signs(causes: Iterable[Cause]) -> list[Sign]:
    return list(dict.fromkeys(sign for cause in causes for sign in cause.signs))


def write_findings(found: Sequence[Shown]) -> Path:
    """Put what the runs showed where the counts are made from."""
    lines = (json.dumps({"run": one.run, "fault": one.fault, "found": one.found, "signs": one.signs}) for one in found)
    FINDINGS.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return FINDINGS


def counted(lines: Iterable[str]) -> Iterator[tuple[str, str, Counts]]:
    """How often each sign was seen with its cause and with others, of causes and signs with enough runs."""
    right, rows = right_causes(), [json.loads(line) for line in lines]
    for cause in CAUSES:
        own = [set(row["signs"]) for row in rows if right[row["fault"]][0] == cause.name]
        others = [set(row["signs"]) for row in rows if cause.name not in right[row["fault"]]]
        for sign in dict.fromkeys(cause.signs):
            seen, elsewhere = (sum(sign.name in signs for signs in some) for some in (own, others))
            if len(own) >= _FEWEST and seen + elsewhere >= _FEWEST:
                yield cause.name, sign.name, Counts(seen, len(own), elsewhere, len(others))


def write_counts() -> Path:
    """Put the counts where the causes have them."""
    with COUNTED.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("cause", "sign", *Counts._fields))
        for cause, sign, counts in counted(FINDINGS.read_text(encoding="utf-8").splitlines()):
            table.writerow((cause, sign, *counts))
    return COUNTED


# How right


def shares(found: Sequence[Shown]) -> dict[str, float]:
    """Of the flagged faulty runs: whose right cause is first, among the first two, and of which no cause is shown."""
    right = right_causes()
    first = sum(one.said[:1] != [] and one.said[0] in right[one.fault] for one in found)
    two = sum(not set(one.said[:2]).isdisjoint(right[one.fault]) for one in found)
    unknown = sum(one.certainty in ("", "unknown") for one in found)
    return {name: number / len(found) for name, number in (("first", first), ("two", two), ("not shown", unknown))}


def calibration(found: Sequence[Shown]) -> Iterator[tuple[str, int, int, float]]:
    """By how sure was said: runs, those whose cause is right, and the lower bound (Wilson, 95 %) of their share."""
    right = right_causes()
    for sure in ("certain", "likely", "possible", "unknown"):
        some = [one for one in found if one.certainty == sure]
        hits = sum(one.said[0] in right[one.fault] for one in some)
        yield sure, len(some), hits, lower_bound(hits, len(some))


def lower_bound(hits: int, of: int) -> float:
    """The lower end of Wilson's 95 % interval of a share."""
    if not of:
        return 0.0
    share, extra = hits / of, _NORMAL**2 / of
    spread = _NORMAL * math.sqrt(share * (1.0 - share) / of + extra / (4.0 * of))
    return (share + extra / 2.0 - spread) / (1.0 + extra)


def by_fault(found: Sequence[Shown]) -> Iterator[str]:
    """A line for each fault: how often which cause came first."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        groups[one.fault][f"{one.said[0]} ({one.certainty})" if one.said else "no cause"] += 1
    for fault, named in sorted(groups.items()):
        yield f"{fault:24} " + ", ".join(f"{times} {name}" for name, times in named.most_common())
