"""How often the live rules would have stopped a healthy run, as the benchmark measured it."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from tracker_health.text import percent

_FILE = "false_stops.json"


@cache
def measured() -> dict[str, Any]:
    """What ``benchmarks/faults prefixes --write`` counted on the validation tasks: how many healthy runs there were and
    were stopped, and the same of faulty ones.
    """
    counts: dict[str, Any] = json.loads(files("tracker_health.live").joinpath(_FILE).read_text(encoding="utf-8"))
    return counts


def said() -> str:
    """The rate of false stops in words: ``1 of 343 healthy runs would have been stopped (0.29 %)``."""
    stopped, healthy = measured()["healthy_stopped"], measured()["healthy"]
    return (
        f"{stopped} of {healthy} healthy runs of the benchmark would have been stopped ({percent(stopped / healthy)})"
    )
