"""What each rule's defaults gave on runs whose truth is known, as the fault-injection benchmark measured it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from math import comb
from typing import Any

from tracker_health.text import percent

_FILE = "calibration.json"
_MOST_FAULTS = 6
_FEW_FAULTS = 2
_FEWEST_HEALTHY = 30
"""Healthy runs that had what a rule judges: of fewer its rate of false alarms is not known."""


@cache
def _measured() -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(files("tracker_health.render").joinpath(_FILE).read_text(encoding="utf-8"))
    return measured


def calibration(code: str) -> list[str]:
    """Sentences on a rule: its false alarms and what it finds, by itself, on the validation runs.

    Empty for a rule that was not measured, such as a plugin's.
    """
    measured = dict(_measured())
    rule = measured["rules"].get(code)
    if rule is None:
        return []
    measured |= rule.get("measured", {})
    by = measured.get("by", "benchmarks/faults")
    return [
        _alarms(rule, measured["healthy"]),
        _found(rule),
        f"Measured on {measured['date']} by {by}; how: [accuracy](../accuracy.md).",
    ]


def why_rate_unknown(code: str) -> str:
    """Why nobody knows how often a rule is a false alarm; empty where that was measured, and for rules of plugins."""
    rule = _measured()["rules"].get(code)
    judged = None if rule is None else rule.get("judged", _measured()["healthy"])
    if judged is None or judged >= _FEWEST_HEALTHY:
        return ""
    return f"its false-alarm rate is unknown: {judged or 'none'} of the healthy runs had what it judges"


def how_often_right(code: str) -> list[str]:
    """Sentences for the page of a rule, without the faults, which ``faults_found`` has: on healthy runs, on faulty
    ones, and when and how that was measured. Empty for a rule that was not measured.
    """
    sentences = calibration(code)
    rule = _measured()["rules"].get(code)
    if rule is None:
        return []
    judged = rule.get("judged", 0)
    if judged:
        low, high = interval(rule["false_alarms"], judged)
        sentences[0] += f" With so many runs, the true share is between {percent(low)} and {percent(high)} (95 %)."
    return [sentences[0], *([] if rule["found"] else [sentences[1]]), sentences[2]]


def faults_found(code: str) -> list[tuple[str, list[int]]]:
    """The faults that a rule found by itself, the surest first: name, and (found, of so many runs)."""
    return _by_share(_measured()["rules"].get(code, {}).get("found", {}))


def interval(hits: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of a share."""
    tail = (1 - level) / 2

    def below(share: float, most: int) -> float:
        """The chance of at most so many hits."""
        return sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(most + 1))

    def solved(most: int, wanted: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle, most) > wanted else (low, middle)
        return low

    return (0.0 if hits == 0 else solved(hits - 1, 1 - tail)), (1.0 if hits == of else solved(hits, tail))


def calibration_in_short(code: str) -> str:
    """The same in one line."""
    measured = dict(_measured())
    rule = measured["rules"].get(code)
    if rule is None:
        return ""
    measured |= rule.get("measured", {})
    judged = rule.get("judged", measured["healthy"])
    healthy = f"{rule['false_alarms']} of {judged} healthy runs flagged" if judged else "no healthy run to judge"
    missed = sum(rule.get("missed", {}).values())
    if rule["found"]:
        named = [f"{fault} {hits} of {runs}" for fault, (hits, runs) in _by_share(rule["found"])]
        found = f"found {', '.join(named[:_FEW_FAULTS])}{', ...' if len(named) > _FEW_FAULTS else ''}"
    else:
        found = f"found none of {missed} faulty runs" if missed else "no fault of its kind was measured"
    return f"{healthy}; {found} ({measured['date']})"


def calibration_listed() -> list[str]:
    """What was measured of each rule, one a line."""
    return [f"{code}: {calibration_in_short(code)}" for code in sorted(_measured()["rules"])]


def _alarms(rule: dict[str, Any], healthy: int) -> str:
    """How often it objected, among the healthy runs that had what it judges."""
    alarms, judged = rule["false_alarms"], rule.get("judged")
    if judged is None:  # measured before that was counted
        return f"On {healthy} certified healthy validation runs, judged or not, it objected to {alarms}."
    if judged == 0:
        none = f"None of the {healthy} certified healthy validation runs had what it judges"
        return f"{none}: its false-alarm rate is unknown."
    unknown = " Its false-alarm rate is unknown: these are too few." if judged < _FEWEST_HEALTHY else ""
    return (
        f"It had something to judge in {judged} of {healthy} certified healthy validation runs, and objected to "
        f"{alarms} of them ({percent(alarms / judged)}).{unknown}"
    )


def _by_share(found: dict[str, list[int]]) -> list[tuple[str, list[int]]]:
    return sorted(found.items(), key=lambda item: (-item[1][0] / item[1][1], item[0]))


def _found(rule: dict[str, Any]) -> str:
    found = _by_share(rule["found"])
    if found:
        named = ", ".join(f"{fault} {hits} of {runs}" for fault, (hits, runs) in found[:_MOST_FAULTS])
        more = f", and some of {len(found) - _MOST_FAULTS} other faults" if len(found) > _MOST_FAULTS else ""
        return f"Of faulty ones it found, by itself: {named}{more}."
    missed = rule.get("missed", {})
    if not missed:
        return "It found none of the faulty ones; the benchmark has no fault that this rule is for."
    faults = sorted(missed.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{fault} {runs}" for fault, runs in faults[:_MOST_FAULTS])
    more = f", and {len(faults) - _MOST_FAULTS} other faults" if len(faults) > _MOST_FAULTS else ""
    return (
        f"It found none of {sum(missed.values())} faulty runs with faults that its symptom would name ({named}{more})."
    )
