"""The order of many runs in a list: what ``--sort`` may ask for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tracker_health.words.verdict import Verdict


class Place(NamedTuple):
    """What a run is sorted by. ``score``: of its rules, 0 (faulty) to 1; None where nothing gave one."""

    verdict: Verdict
    name: str
    cause: str = ""
    score: float | None = None


def _by_verdict(place: Place) -> tuple[object, ...]:
    return -place.verdict.rank, 1.0 if place.score is None else place.score, *_by_name(place)


def _by_name(place: Place) -> tuple[object, ...]:
    """With numbers in their order: ``run-9`` before ``run-10``, ``lr0.01`` before ``lr0.1``."""
    parts = re.split(r"([0-9]+(?:\.[0-9]+)?)", place.name[:200])
    return [(float(part), "") if at % 2 else (-1.0, part.casefold()) for at, part in enumerate(parts)], place.name


def _by_cause(place: Place) -> tuple[object, ...]:
    return not place.cause, place.cause, *_by_verdict(place)


ORDERS: dict[str, Callable[[Place], tuple[object, ...]]] = {
    "verdict": _by_verdict,
    "name": _by_name,
    "cause": _by_cause,
}
"""By name of the order, the key to sort by: the worst verdict first, names with their numbers, runs of one cause
together.
"""
