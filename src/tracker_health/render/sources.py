"""What of a run could not be read, for people: each source once, and not once a rule."""

from __future__ import annotations

from collections.abc import Iterable

from tracker_health.result import ErrorEntry


def once_a_source(errors: Iterable[ErrorEntry]) -> tuple[list[ErrorEntry], dict[str, list[str]]]:
    """The entries, no two with the same words; and by source the codes of the rules that could not be judged for it,
    whose entries only say so again.
    """
    told: dict[tuple[str, str], ErrorEntry] = {}
    unjudged: dict[str, list[str]] = {}
    for error in errors:
        if error.code is not None and error.message.startswith("could not be judged"):
            unjudged.setdefault(error.source, []).append(error.code)
        else:
            told.setdefault((error.source, error.message), error)
    return list(told.values()), unjudged
