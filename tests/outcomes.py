"""What is found in many small runs, on record: each rule's verdict with its numbers, and what the report leads with.

    python -m tests.outcomes

writes the record again. What a commit changes in it is what that commit changes for people: look at it line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracker_health import check

DATA = Path(__file__).parent / "data"
RECORD = DATA / "outcomes.jsonl"
Outcome = dict[str, Any]
"""``lead``: the verdict, the first cause with its signs, and the others; ``passed``: the rules that passed; then by code the verdict and the numbers of
each rule that objects.
"""
_NUMBERS = ("votes", "measured", "thresholds", "steps", "details")


def runs() -> dict[str, Path]:
    """The folders, by the names they have in the record. None is of a run whose end is told by how long it is silent."""
    plain = {f"headlines/{one.name}": one for one in (DATA / "headlines").iterdir()}
    paired = {f"cases/{one.parent.name}/{one.name}": one for one in (DATA / "cases").glob("*/*") if one.is_dir()}
    return dict(sorted({**plain, **paired}.items()))


def outcome(run: Path) -> Outcome:
    """What is found in a run."""
    report = check(run).to_json()
    passed = [one["code"] for one in report["results"] if one["verdict"] == "pass"]
    found = {
        one["code"]: [one["verdict"], *(one[part] for part in _NUMBERS)]
        for one in report["results"]
        if one["verdict"] in ("warn", "fail")
    }
    lead = [report["verdict"], *_causes(report["diagnosis"])]
    return json.loads(json.dumps({"lead": lead, "passed": sorted(passed), **found}))


def _causes(diagnosis: dict[str, Any] | None) -> Iterator[Any]:
    if diagnosis:
        yield from (diagnosis["cause"], diagnosis["certainty"], diagnosis["score"])
        yield {sign["name"]: sign["weight"] for sign in diagnosis["signs"]}
        yield {one["cause"]: one["score"] for one in diagnosis["others"]}


def lines(found: dict[str, Outcome]) -> Iterator[str]:
    """The record, a line for each key of each run."""
    for run, outcome_of in found.items():
        for key, what in outcome_of.items():
            yield json.dumps([run, key, what], sort_keys=True, ensure_ascii=False)


def recorded() -> dict[str, Outcome]:
    """What the record has, by run."""
    found: dict[str, Outcome] = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        run, key, what = json.loads(line)
        found.setdefault(run, {})[key] = what
    return found


def main() -> None:
    """Write the record again."""
    found = {run: outcome(path) for run, path in runs().items()}
    RECORD.write_text("".join(f"{line}\n" for line in lines(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
