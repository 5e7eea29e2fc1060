"""How the runs of a project stand, as their records say: what a sweep would find."""

from __future__ import annotations

from enum import StrEnum

from tracker_health.stores.common.record import Marks, is_finished, names_in_the_way


class Standing(StrEnum):
    """How a run stands. ``THEIRS``: what we would write has names that its owner uses, so that nothing is written."""

    JUDGED = "judged"
    UNJUDGED = "without a verdict"
    GOING = "still going"
    THEIRS = "with names like ours"


def standing(marks: Marks, *, live: bool) -> Standing:
    """How a run with these marks stands. ``live``: it claims to be running."""
    if is_finished(marks):
        return Standing.JUDGED
    if names_in_the_way(marks):
        return Standing.THEIRS
    return Standing.GOING if live else Standing.UNJUDGED
