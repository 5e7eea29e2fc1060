"""How the runs of a project stand, as their records say: what a sweep would find."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from tracker_health.stores.common.record import (
    DIGEST_TAG,
    VERDICT_TAG,
    WRITTEN_TAG,
    Written,
    bears_verdict,
    is_finished,
)


class Standing(StrEnum):
    """How a run stands. ``THEIRS``: what we would write has names that its owner uses, so that nothing is written."""

    JUDGED = "judged"
    UNJUDGED = "without a verdict"
    GOING = "still going"
    THEIRS = "with names like ours"


def standing(tags: Mapping[str, str], names: Collection[str], *, live: bool) -> Standing:
    """How a run stands.

    Args:
        tags: What it has of ours, as MLflow's tags.
        names: All names that it has there, also those whose values cannot be ours.
        live: It claims to go on.
    """
    if is_finished(tags):
        return Standing.JUDGED
    named = {VERDICT_TAG, DIGEST_TAG, *(() if Written.of(tags) else (WRITTEN_TAG,))}
    if not bears_verdict(tags) and named.intersection(names):
        return Standing.THEIRS
    return Standing.GOING if live else Standing.UNJUDGED
