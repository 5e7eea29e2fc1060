"""What each rule's defaults gave on runs whose truth is known, as the fault-injection benchmark measured it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

_FILE = "calibration.json"
_MOST_FAULTS = 6


@cache
def _measured() -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(files("tracker_health.render").joinpath(_FILE).read_text(encoding="utf-8"))
    return measured


def calibration(code: str) -> list[str]:
    """Sentences on a rule: its false alarms and what it finds, by itself, on the validation runs.

    Empty for a rule that was not measured, such as a plugin's.
    """
    measured = _measured()
    rule = measured["rules"].get(code)
    if rule is None:
        return []
    alarms, total = rule["false_alarms"], measured["healthy"]
    lines = [f"On {total} certified healthy validation runs it objected to {alarms} ({alarms / total:.1%})."]
    found = sorted(rule["found"].items(), key=lambda item: (-item[1][0] / item[1][1], item[0]))
    if found:
        named = ", ".join(f"{fault} {hits} of {runs}" for fault, (hits, runs) in found[:_MOST_FAULTS])
        more = f", and some of {len(found) - _MOST_FAULTS} other faults" if len(found) > _MOST_FAULTS else ""
        lines.append(f"Of sick ones it found, by itself: {named}{more}.")
    else:
        lines.append("It found none of the sick ones: the benchmark has no fault that this rule alone would name.")
    return [*lines, f"Measured on {measured['date']} by benchmarks/faults; see docs/accuracy.md."]
