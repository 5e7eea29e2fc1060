"""The headline: what clearly happened, its cause as far as the run shows one, and one thing to do. Pure.

The worst finding heads a report. A cause leads if it explains that, and the run shows one of the signs that it
requires; of several the one whose signs have the highest sum (``_ranking``). Where none has, the headline says so. The
causes are a table (``table``), the signs that they ask for another (``_signs``), the weights are counted (``_counts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tracker_health.diagnosis._cause import Cause, Sign
from tracker_health.diagnosis._facts import Facts
from tracker_health.diagnosis._ranking import LEAD, LEAST, LIKELY, Ranked, certainty, explained, leader, rank
from tracker_health.diagnosis.table import CAUSE_GROUPS, CAUSES
from tracker_health.evidence import Evidence
from tracker_health.report.result import ProbeResult
from tracker_health.text import printable, sentence
from tracker_health.words.diagnosis import Action, Alternative, Certainty, Diagnosis, SignSeen, in_words

__all__ = [
    "CAUSES",
    "CAUSE_GROUPS",
    "LEAD",
    "LEAST",
    "LIKELY",
    "Cause",
    "Facts",
    "Sign",
    "cause_named",
    "diagnosis_of",
    "explained",
    "rank",
]

_MOST_OTHERS = 2
_CHARACTERS, _NAME = 500, 200


def cause_named(name: str) -> Cause | None:
    """The cause of this name."""
    return next((cause for cause in CAUSES if cause.name == name), None)


def diagnosis_of(
    evidence: Evidence, results: Sequence[ProbeResult], limits: Mapping[str, Mapping[str, float | int]] | None = None
) -> Diagnosis | None:
    """The cause of what the rules found; None where nothing with a vote was found, or no cause explains any of it.
    ``limits``: the thresholds of the rules, by code.
    """
    facts = Facts(evidence, results, limits or {})
    if not facts.headed:
        return None
    ranked = rank(CAUSES, facts)
    first = leader(ranked)
    if first is None:
        return _not_shown(ranked, facts)
    rest = [one for one in ranked if one is not first and (one.leads or 2 * one.score >= first.score)]
    sure = certainty([first, *rest])
    return _diagnosis(first.cause, sure, rest, facts, first)


def _not_shown(ranked: Sequence[Ranked], facts: Facts) -> Diagnosis | None:
    """What happened, of which nothing shows the cause."""
    # A loss that only came back from an explosion is flat at its end, and had diverged.
    code = "LOS004" if facts.head_code in ("LOS005", "LOS006") and facts.only_came_back else facts.head_code
    cause = next((one for one in CAUSES if code in one.unknown), None)
    if cause is None:
        return None
    return _diagnosis(cause, "unknown", ranked, facts)


def _diagnosis(
    cause: Cause, sure: Certainty, rest: Sequence[Ranked], facts: Facts, ranked: Ranked | None = None
) -> Diagnosis:
    said = facts.headed_by(cause.explains)
    return Diagnosis(
        cause=cause.name,
        certainty=sure,
        sentence=printable(_sentence(said, cause, sure), _CHARACTERS),
        action=_shown(cause.action(said), said),
        about=said.head_code,
        explains=explained(cause, facts),
        others=tuple(
            Alternative(cause=one.cause.name, test=one.cause.test, score=one.score) for one in rest[:_MOST_OTHERS]
        ),
        signs=tuple(
            SignSeen(name=one.name, looks_at=one.looks_at, weight=cause.weight(one))
            for one in (ranked.signs if ranked is not None else ())
        ),
        score=ranked.score if ranked is not None else 0.0,
    )


def _sentence(facts: Facts, cause: Cause, sure: Certainty) -> str:
    """What happened, and the cause in words that are as sure as it is."""
    clause = cause.clause(facts)
    return sentence(clause) if cause.whole else in_words(facts.head_message, clause, sure)


def _shown(action: Action, facts: Facts) -> Action:
    """The action with nothing in it that a terminal would obey: it may hold names from the run."""
    param = facts.settings.name_of(action.setting, action.old) if action.setting else ""
    return replace(action, text=printable(action.text, _CHARACTERS), param=printable(param, _NAME))
