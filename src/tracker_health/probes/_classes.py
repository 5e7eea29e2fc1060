"""Between how many answers a loss chooses, where the run's params tell, and whether it is a cross-entropy at all."""

from __future__ import annotations

from math import log

from tracker_health.evidence import Evidence, FloatArray
from tracker_health.probes._stats import median

_CLASSES = ("num_classes", "n_classes", "num_labels", "classes")
_VOCABULARY = "vocab_size"
_MOST = 10**8
_NEAR = 0.3
_FIRST = 3


def counts(evidence: Evidence) -> tuple[int, ...]:
    """The number of classes and the size of the vocabulary: a classifier's settings may hold those of the language
    model that it was made of, and the other way round.
    """
    return tuple(dict.fromkeys(count for count in (classes(evidence), vocabulary(evidence)) if count is not None))


def classes(evidence: Evidence) -> int | None:
    """The number of classes alone."""
    known = (evidence.info.params.get(name) for name in _CLASSES)
    return next((count for count in map(_count, known) if count is not None), None)


def vocabulary(evidence: Evidence) -> int | None:
    """The size of the vocabulary alone."""
    return _count(evidence.info.params.get(_VOCABULARY))


def _count(param: str | None) -> int | None:
    try:
        value = float(param) if param is not None else 0.0
    except ValueError:
        return None
    return int(value) if 2 <= value < _MOST and value == int(value) else None


def begins_at_chance(values: FloatArray, count: int) -> bool:
    """Whether the first values are those of an untrained model that chooses among so many: within 30 %.

    Most losses of models with classes are no plain cross-entropy among them: detection, CTC, Dice, one binary decision
    per class.
    """
    return abs(median(values[:_FIRST]) - log(count)) <= _NEAR * log(count)
