"""How causes are ranked: the sum of the weights of the signs that a run shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracker_health.diagnosis._base import Cause, Sign
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Certainty

LEAST = 2
"""A cause with a lower sum is not named."""

CERTAIN, LEAD = 6, 4
LIKELY, SMALL_LEAD = 4, 2
"""From which score on, with which lead over the next cause, a cause is certain or likely."""


class Ranked(NamedTuple):
    """A cause, the signs of it that the run shows, and the sum of their weights."""

    cause: Cause
    signs: tuple[Sign, ...]
    score: int


def rank(causes: Iterable[Cause], facts: Facts) -> list[Ranked]:
    """The causes that explain something and have a sum of at least ``LEAST``, the highest first; of equal ones the one
    that explains more, then the one that is listed first.
    """
    found = []
    for cause in causes:
        signs = cause.present(facts)
        score = sum(cause.weight(sign) for sign in signs)
        if score >= LEAST and explained(cause, facts):
            found.append(Ranked(cause, signs, score))
    return sorted(found, key=lambda one: (-one.score, -len(explained(one.cause, facts))))


def explained(cause: Cause, facts: Facts) -> tuple[str, ...]:
    """The codes of the findings with a vote that a cause explains, in the order of time: settings, then steps, then
    what the last checkpoint shows, and how the run ended.
    """
    voting = [code for code, one in facts.found.items() if one.votes and code in cause.explains]
    return tuple(sorted(voting, key=lambda code: _when(code, facts)))


_OF_SETTINGS = ("OPT012", "OPT011", "OPT010")
_OF_ENDS = ("RUN003", "RUN004")


def _when(code: str, facts: Facts) -> tuple[int, int]:
    step = facts.onset(code)
    if code in _OF_SETTINGS:
        return (0, 0)
    if code in _OF_ENDS:
        return (3, 0)
    return (2, 0) if step is None else (1, step)


def certainty(ranked: Sequence[Ranked]) -> Certainty:
    """How sure the first cause is, by its sum and by how far the next one lies below."""
    first = ranked[0].score
    lead = first - (ranked[1].score if len(ranked) > 1 else 0)
    if first >= CERTAIN and lead >= LEAD:
        return "certain"
    return "likely" if first >= LIKELY and lead >= SMALL_LEAD else "possible"
