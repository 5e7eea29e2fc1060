"""From metric names to the roles that rules ask for.

``words`` cuts a name into words; ``quantities`` says what one name means by itself, ``objectives`` which losses need
not fall, ``run`` what the names of a run mean next to each other; ``patterns`` are what a user says, who comes first.
``decided`` is the answer for a run, which sources, readers and the engine share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tracker_health.roles.decided import NOTHING_READ, OWN_PREFIXES, MetricRoles, RolePlan, understand
from tracker_health.roles.meaning import (
    ANY_LOSS,
    BESIDE_ADVERSARIES,
    LOSS_PART,
    LOSSES,
    OBJECTIVE_LOSS,
    REWARDS,
    SHOW_TRAINING,
    TERMS,
    TRAIN_LOSS,
    VAL_LOSS,
    VAL_LOSS_TERM,
    Meaning,
)
from tracker_health.roles.objectives import adversary_of
from tracker_health.roles.patterns import DEFAULT_PATTERNS, Patterns
from tracker_health.roles.words import HELD_OUT, HELD_OUT_BESIDE_TR, normal_form, word_set, words_of

__all__ = [
    "ANY_LOSS", "BESIDE_ADVERSARIES", "DEFAULT_PATTERNS", "HELD_OUT_WORDS", "LOSSES", "LOSS_PART", "NOTHING_READ", "OBJECTIVE_LOSS", "OWN_PREFIXES", "REWARDS", "SHOW_TRAINING",
    "TERMS", "TRAIN_LOSS", "VAL_LOSS", "VAL_LOSS_TERM", "Meaning", "MetricRoles", "Patterns", "RolePlan", "adversary_of", "assign",
    "is_perplexity", "normal_form", "understand", "word_set", "words_of",
]  # fmt: skip

HELD_OUT_WORDS = (*sorted(HELD_OUT), *sorted(HELD_OUT_BESIDE_TR))
"""What names call samples that a model is not trained on."""

_PERPLEXITIES = frozenset({"ppl", "perplexity"})


def assign(names: Iterable[str], patterns: Mapping[str, tuple[str, ...]] = DEFAULT_PATTERNS) -> dict[str, str]:
    """The role of every name that has one."""
    return {name: one.role for name, one in understand(names, patterns).items() if one.role is not None}


def is_perplexity(name: str) -> bool:
    """Whether a metric is the exponential of a loss."""
    return not _PERPLEXITIES.isdisjoint(words_of(name))
