"""How right the diagnoses are: the cause that comes first, beside those that are right for the fault."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from score import Run, counted

import tracker_health.diagnosis._counts as counts_module
from tracker_health import preset
from tracker_health.diagnosis import CAUSES, Facts
from tracker_health.evidence import Evidence
from tracker_health.report.result import Report
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_run
from tracker_health.words.diagnosis import Diagnosis

_FEWEST = 4
_LEAST_WEIGHT = 3


def right_causes() -> dict[str, list[str]]:
    """The causes that are right for each fault, the best first."""
    with (Path(__file__).parent / "causes.csv").open(newline="") as file:
        return {row["fault"]: row["right_causes_best_first"].split("|") for row in csv.DictReader(file)}


@dataclass(frozen=True)
class Diagnosed:
    """A faulty run that was flagged: its fault, what was said of it, and the signs of each cause that it shows."""

    run: Run
    diagnosis: Diagnosis | None
    signs: frozenset[tuple[str, str]]


def diagnosed(size: str, out: Path, split: str, place: str = "runs") -> list[Diagnosed]:
    """All faulty runs of a split that count and are flagged."""
    faulty = [run for run in counted(size, out, split) if run.fault != "none"]
    faulty = [run for run in faulty if run.structural or run.label.manifested]
    with ProcessPoolExecutor() as pool:
        found = pool.map(partial(_diagnosed, out / place), faulty, chunksize=8)
        return [one for one in found if one is not None]


def _diagnosed(folder: Path, run: Run) -> Diagnosed | None:
    report, evidence = _judged(folder / run.id)
    if str(report.verdict) not in ("warn", "fail"):
        return None
    facts = Facts(evidence, report.results)
    signs = {(cause.name, sign.name) for cause in CAUSES for sign in cause.signs if sign.seen(facts)}
    return Diagnosed(run, report.diagnosis, frozenset(signs))


def _judged(folder: Path) -> tuple[Report, Evidence]:
    config = preset("default")
    source = open_run(str(folder), tracking_uri=None, sidecar=False)
    try:
        return judge_run(source, config)
    finally:
        source.close()


def shares(found: Sequence[Diagnosed]) -> dict[str, float]:
    """Of the flagged faulty runs: whose right cause is first, among the first two, and who is wrong and certain."""
    right = right_causes()
    tally = Counter(word for one in found for word in _words(one, right[one.run.fault]))
    return {
        word: tally[word] / len(found) for word in ("first", "first two", "wrong and certain", "certain", "no cause")
    }


def _words(one: Diagnosed, right: Sequence[str]) -> Iterator[str]:
    if one.diagnosis is None:
        yield "no cause"
        return
    is_right = one.diagnosis.cause in right
    second = one.diagnosis.others[0].cause if one.diagnosis.others else ""
    if is_right:
        yield "first"
    if is_right or second in right:
        yield "first two"
    if one.diagnosis.certainty == "certain":
        yield "certain"
        if not is_right:
            yield "wrong and certain"


def by_fault(found: Sequence[Diagnosed]) -> Iterator[str]:
    """A line for each fault: how often which cause came first."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        named = "no cause" if one.diagnosis is None else f"{one.diagnosis.cause} ({one.diagnosis.certainty})"
        groups[one.run.fault][named] += 1
    for fault, named in sorted(groups.items()):
        yield f"{fault:24} " + ", ".join(f"{times} {name}" for name, times in named.most_common())


def counts(found: Sequence[Diagnosed]) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """How often each sign was seen with its cause and with others, where it is a finding or a number of some weight."""
    right = right_causes()
    table = {}
    for cause in CAUSES:
        own = [one for one in found if right[one.run.fault][0] == cause.name]
        others = [one for one in found if cause.name not in right[one.run.fault]]
        for sign in cause.signs:
            key = cause.name, sign.name
            seen, elsewhere = (sum(key in one.signs for one in group) for group in (own, others))
            if sign.kind != "setting" and sign.judged >= _LEAST_WEIGHT and seen >= _FEWEST:
                table[key] = seen, len(own), elsewhere, len(others)
    return table


def write(table: Mapping[tuple[str, str], tuple[int, int, int, int]]) -> Path:
    """Put the counts where the causes have them."""
    path = Path(counts_module.__file__)
    head = path.read_text().partition("COUNTS: ")[0]
    rows = "".join(
        f"    ({json.dumps(key[0])}, {json.dumps(key[1])}): Counts{value},\n" for key, value in table.items()
    )
    path.write_text(f"{head}COUNTS: Mapping[tuple[str, str], Counts] = {{\n{rows}}}\n")
    return path
