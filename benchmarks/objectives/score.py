"""How right the verdicts are: shares of runs objected to, per kind and fault, and all that was judged wrongly."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from plan import FIRST_LOOK, RIGHT_CAUSES
from settings import Params

from tracker_health import check
from tracker_health.report.result import Report
from tracker_health.rules.registry import BUILT_IN

_SPLITS = dict.fromkeys(("cartpole", "bandit", "digits", "copy", "sort"), "tune")
"""The other tasks (grid, mountain, sinusoids, mixture, largest, runs) are the validation split."""


class Judged(NamedTuple):
    """A run of which it is known what became, and what is said of it."""

    name: str
    run: Params
    report: Report

    @property
    def flagged(self) -> bool:
        return self.report.verdict.value in ("warn", "fail", "error")

    @property
    def codes(self) -> list[str]:
        """What is objected to; empty where nothing is."""
        codes = sorted({finding.code for finding in self.report.findings})
        return codes or ["error"] if self.flagged else []

    @property
    def group(self) -> tuple[str, str, str]:
        split = "first look" if self.run["fault"] in FIRST_LOOK and self.run["kind"] == "llm" else ""
        kind = self.run["algorithm"] if self.run["kind"] in ("llm", "zoo") else self.run["kind"]
        return split or _SPLITS.get(self.run["task"], "validate"), kind, self.run["fault"] or "healthy"

    @property
    def right_cause(self) -> bool:
        """Whether the cause that comes first is right for the fault."""
        said = self.report.diagnosis
        return said is not None and said.cause in RIGHT_CAUSES.get(self.run["fault"], "").split()

    @property
    def wrong(self) -> bool:
        return self.flagged is (self.run["outcome"] == "healthy")

    def __str__(self) -> str:
        said = "; ".join(f"{finding.code} {finding.message}" for finding in self.report.findings)
        known = f"{self.name} [{self.run['measured']} {self.run.get('hard', '')}]".replace(" ]", "]")
        return f"{'false alarm' if self.flagged else 'missed'}: {known}: {self.report.verdict}: {said}"


def judge(folder: Path, names: Iterable[str]) -> Iterator[Judged]:
    """Every run that counts, judged by its log."""
    for name in names:
        run = json.loads((folder / "truth" / f"{name}.json").read_text())
        if run["outcome"] != "unclear":
            yield Judged(name, run, check(folder / "runs" / name))


def table(judged: Iterable[Judged]) -> Iterator[str]:
    """Lines of a table: per split, kind and fault, how many runs were objected to, and with which codes."""
    groups: dict[tuple[str, str, str], list[list[str]]] = {}
    for one in judged:
        groups.setdefault(one.group, []).append(one.codes)
    yield "| split | kind | run | flagged | codes |\n|---|---|---|---|---|"
    for (split, kind, label), found in sorted(groups.items(), key=lambda item: (*item[0][:2], item[0][2] != "healthy")):
        counts = Counter(code for codes in found for code in codes).most_common()
        said = ", ".join(f"{code} {count}" for code, count in counts)
        yield f"| {split} | {kind} | {label} | {_wilson(sum(map(bool, found)), len(found))} | {said} |"


def sums(judged: Iterable[Judged]) -> Iterator[str]:
    """Lines of a table: per split, the healthy runs that were objected to, the sick ones that were found, and of those
    how many have the right cause first, where that is known.
    """
    splits: dict[str, list[Judged]] = {}
    for one in judged:
        splits.setdefault(one.group[0], []).append(one)
    yield "| split | healthy flagged | sick found | right cause |\n|---|---|---|---|"
    for split, some in sorted(splits.items()):
        healthy = [one for one in some if one.run["outcome"] == "healthy"]
        sick = [one for one in some if one.run["outcome"] == "sick"]
        found = [one for one in sick if one.flagged]
        known = [one for one in found if one.run["fault"] in RIGHT_CAUSES and one.run["kind"] in ("llm", "zoo")]
        shares = (_wilson(sum(one.flagged for one in healthy), len(healthy)), _wilson(len(found), len(sick)))
        yield f"| {split} | {shares[0]} | {shares[1]} | {_wilson(sum(one.right_cause for one in known), len(known))} |"


def by_rule(judged: Iterable[Judged], today: str) -> dict[str, dict[str, Any]]:
    """What each rule on rewards gave on the runs that no threshold was chosen on: see ``render/calibration.json``."""
    unseen = [one for one in judged if one.group[0] != "tune" and one.run["kind"] in ("llm", "zoo")]
    healthy = [one for one in unseen if one.run["outcome"] == "healthy"]
    about = {"date": today, "healthy": len(healthy), "by": "benchmarks/objectives"}
    rules: dict[str, dict[str, Any]] = {}
    for code in sorted(rule.code for rule in BUILT_IN if rule.code.startswith("RWD")):
        seen = [one for one in healthy if any(result.code == code for result in one.report.results)]
        found: dict[str, list[int]] = {}
        for one in unseen:
            if one.run["outcome"] == "sick":
                hits, runs = found.get(one.run["fault"], (0, 0))
                found[one.run["fault"]] = [hits + (code in one.codes), runs + 1]
        rules[code] = {
            "judged": len(seen),
            "false_alarms": sum(code in one.codes for one in healthy),
            "found": {fault: counts for fault, counts in found.items() if counts[0]},
            "missed": {},
            "measured": about,
        }
    return rules


def _wilson(hits: int, count: int) -> str:
    """A share with its 95 % interval."""
    if not count:
        return "none"
    middle, z = (hits + 1.92) / (count + 3.84), 1.96
    reach = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    return f"{hits} of {count} ({max(0.0, middle - reach):.1%} to {min(1.0, middle + reach):.1%})"
