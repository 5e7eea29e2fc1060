"""Which cause leads: of the worst that was found, the one that has what it requires and the most that speaks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracker_health.diagnosis._cause import Cause, Sign
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Certainty

LEAST = 2.0
"""A cause that may not lead and has a lower sum is not named."""

LIKELY, LEAD = 4.0, 2.0
"""From which sum on, with which lead over the next cause that may lead, a cause is likely."""


class Ranked(NamedTuple):
    """A cause, the signs of it that the run shows, and the sum of their weights. ``leads``: it has what it requires;
    ``is_defined``: one of the signs leaves no doubt.
    """

    cause: Cause
    signs: tuple[Sign, ...]
    score: float
    leads: bool
    is_defined: bool


def rank(causes: Iterable[Cause], facts: Facts) -> list[Ranked]:
    """The causes that explain something and have a sum of at least ``LEAST``: those that may lead first, each by its
    sum. Of two with equal sums the one that a sign defines, then the one whose first sign came earlier, then the one
    that explains more. Who has as much in all of that may be either, and is named in the order of the alphabet.
    """
    found = [_ranked(cause, facts) for cause in causes if _comes_into_question(cause, facts)]
    named = [one for one in found if one.score >= (0.0 if one.leads else LEAST)]
    return sorted(named, key=lambda one: _order(one, facts))


def _comes_into_question(cause: Cause, facts: Facts) -> bool:
    """Whether it explains anything that was found, and nothing rules it out."""
    return not cause.unknown and bool(explained(cause, facts)) and not any(sign.seen(facts) for sign in cause.never)


def _ranked(cause: Cause, facts: Facts) -> Ranked:
    signs = cause.present(facts)
    leads = cause.is_required(signs) and not cause.explains.isdisjoint(facts.headed)
    is_defined = any(sign in cause.defines for sign in signs) and not any(sign.seen(facts) for sign in cause.doubts)
    return Ranked(cause, signs, round(sum(cause.weight(sign) for sign in signs), 1), leads, is_defined)


def _order(one: Ranked, facts: Facts) -> tuple[bool, float, bool, float, int, str]:
    began = min((step for sign in one.signs if (step := sign.begins(facts)) is not None), default=float("inf"))
    more = -len(explained(one.cause, facts))
    return not one.leads, -one.score, not one.is_defined, began, more, one.cause.name


def leader(ranked: Sequence[Ranked]) -> Ranked | None:
    """The cause to name first; None where none has what it requires."""
    first = next(iter(ranked), None)
    return first if first is not None and first.leads else None


def explained(cause: Cause, facts: Facts) -> tuple[str, ...]:
    """The codes of the findings with a vote that a cause explains, in the order of time: settings, then steps, then
    what the last checkpoint shows, and how the run ended.
    """
    voting = [code for code, one in facts.found.items() if one.votes and code in cause.explains]
    return tuple(sorted(voting, key=lambda code: _when(code, facts)))


_OF_SETTINGS = ("OPT010", "OPT011", "OPT013", "OPT014", "OPT015", "OPT016", "OPT017", "OPT018")
_OF_ENDS = ("RUN003", "RUN004")


def _when(code: str, facts: Facts) -> tuple[int, int]:
    step = facts.onset(code)
    if code in _OF_SETTINGS:
        return (0, 0)
    if code in _OF_ENDS:
        return (3, 0)
    return (2, 0) if step is None else (1, step)


def certainty(ranked: Sequence[Ranked]) -> Certainty:
    """How sure the first cause is: certain where a sign defines it and no other that may lead has such a sign and as
    much for it; likely by its sum and by how far the next one that may lead is below.
    """
    first, rivals = ranked[0], [one for one in ranked[1:] if one.leads]
    ahead = first.score - max((one.score for one in rivals), default=0.0)
    if first.is_defined and ahead >= LEAD:
        return "certain"
    return "likely" if first.score >= LIKELY and ahead >= LEAD else "possible"
