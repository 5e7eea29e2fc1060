"""What is found in many small runs, on record: each rule's verdict with its numbers, and what the report leads with.

    python -m tests.outcomes

writes the record again. What a commit changes in it is what that commit changes for people: look at it line by line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tracker_health import check
from tracker_health.config import Config
from tracker_health.diagnosis import CAUSES, Facts, diagnosis_of
from tracker_health.evidence import Evidence
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import ProbeResult, Report
from tracker_health.roles import understand

from .drawn_findings import drawn_findings
from .drawn_runs import drawn_runs

DATA = Path(__file__).parent / "data"
RECORD = DATA / "outcomes.jsonl"
EVERYTHING = Config(preset="everything", preview_votes=True, measure_only=frozenset())

SIGNS = list(dict.fromkeys(sign for cause in CAUSES for sign in (*cause.signs, *cause.never, *cause.doubts)))

Outcome = dict[str, Any]
"""Of a run, ``lead``: the verdict, the first cause with its signs, and the others; ``passed``: the rules that passed;
then by code the verdict and the numbers of each rule that objects. Of drawn findings the headline. Of a set of names,
``roles``.
"""
_NUMBERS = ("votes", "measured", "thresholds", "steps", "details")


def outcomes() -> dict[str, Callable[[], Outcome]]:
    """What tells the outcome of each run and set of names. None is of a run whose end is told by how long it is silent."""
    found = {f"headlines/{one.name}": partial(_of_folder, one) for one in (DATA / "headlines").iterdir()}
    for one in (DATA / "cases").glob("*/*"):
        if one.is_dir():
            found[f"cases/{one.parent.name}/{one.name}"] = partial(_of_folder, one)
    drawn = {name: partial(_of_evidence, evidence) for name, evidence in drawn_runs()}
    drawn |= {name: partial(_of_findings, run, found) for name, run, found in drawn_findings()}
    sets = (DATA / "names" / "sets.jsonl").read_text(encoding="utf-8").splitlines()
    named = {f"names/{one['id']}": partial(_of_names, list(one["names"])) for one in map(json.loads, sets)}
    return {**dict(sorted(found.items())), **drawn, **named}


def _of_folder(run: Path) -> Outcome:
    return _of_report(check(run))


def _of_evidence(evidence: Evidence) -> Outcome:
    return _of_report(diagnose(evidence, EVERYTHING))


def _of_findings(evidence: Evidence, found: list[ProbeResult]) -> Outcome:
    """The headline with its words, and every sign that is seen, whether it counts for that or not."""
    diagnosis, facts = diagnosis_of(evidence, found), Facts(evidence, found)
    seen = [sign.name for sign in SIGNS if sign.seen(facts)]
    if diagnosis is None:
        return {"cause": None, "seen": seen}
    cause = next(one for one in CAUSES if one.name == diagnosis.cause)
    set_in = cause.set_in(facts)
    place = {"from_the_start": cause.from_the_start, "set_in": None if set_in is None else set_in.to_json()}
    headline: Outcome = json.loads(json.dumps({**diagnosis.to_json(), "seen": seen, **place}))
    headline["signs"] = {sign["name"]: sign["weight"] for sign in headline["signs"]}
    headline["others"] = {one["cause"]: one["score"] for one in headline["others"]}
    return headline


def _of_names(names: list[str]) -> Outcome:
    meanings = understand(names)
    return {
        "roles": {name: [one.role, one.samples, one.quantity, one.part, one.guessed] for name, one in meanings.items()}
    }


def _of_report(judged: Report) -> Outcome:
    report = judged.to_json()
    passed = [one["code"] for one in report["results"] if one["verdict"] == "pass"]
    found = {
        one["code"]: [one["verdict"], one.get("kind", ""), *(one[part] for part in _NUMBERS)]
        for one in report["results"]
        if one["verdict"] in ("warn", "fail")
    }
    lead = [report["verdict"], *_causes(report["diagnosis"])]
    outcome: Outcome = json.loads(json.dumps({"lead": lead, "passed": sorted(passed), **found}))
    return outcome


def _causes(diagnosis: dict[str, Any] | None) -> Iterator[Any]:
    if diagnosis:
        yield from (diagnosis["cause"], diagnosis["certainty"], diagnosis["score"])
        yield {sign["name"]: sign["weight"] for sign in diagnosis["signs"]}
        yield {one["cause"]: one["score"] for one in diagnosis["others"]}


def recorded() -> dict[str, Outcome]:
    """What the record has, by run."""
    found: dict[str, Outcome] = {}
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        run, key, what = json.loads(line)
        found.setdefault(run, {})[key] = what
    return found


def main() -> None:
    """Write the record again, a line for each key of each run."""
    lines = [
        json.dumps([name, key, what], sort_keys=True, ensure_ascii=False)
        for name, outcome in outcomes().items()
        for key, what in outcome().items()
    ]
    RECORD.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
