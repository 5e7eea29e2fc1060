"""Which runs can be compared to each other, and by what: the level at which their loss ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tracker_health.evidence import Evidence, RunEnd, Siblings

_HEAD = 20  # of that many parts the first is the start
_TAIL = 10  # and of that many the last is the end
_AS_LONG = 1.25  # times as many steps, at most
_MOST = 200  # runs are enough for a median, and an experiment may have tens of thousands


def end_of(evidence: Evidence) -> RunEnd | None:
    """Where a run's loss began and ended, or None where it has none with a finite value.

    The loss of training, else of validation. Levels are medians: of the first twentieth, and of the last tenth.
    """
    series = evidence.find("train_loss") or evidence.find("val_loss")
    finite = None if series is None else series.finite()
    if finite is None or not len(finite):
        return None
    head, tail = max(1, len(finite) // _HEAD), max(1, len(finite) // _TAIL)
    return RunEnd(
        metric=finite.name,
        step=int(finite.steps[-1]),
        start=float(np.median(finite.values[:head])),
        end=float(np.median(finite.values[-tail:])),
    )


def siblings_among(ends: Sequence[RunEnd | None]) -> list[Siblings | None]:
    """For each run those of the others that it can be compared to, the ``_MOST`` closest in length; None for one
    without a loss.
    """
    found: list[Siblings | None] = [None] * len(ends)
    by_metric: defaultdict[str, list[tuple[int, RunEnd]]] = defaultdict(list)
    for number, end in enumerate(ends):
        if end is not None:
            by_metric[end.metric].append((number, end))
    for alike in by_metric.values():
        alike.sort(key=lambda one: one[1].step)
        for place, (number, own) in enumerate(alike):
            around = alike[max(0, place - _MOST) : place] + alike[place + 1 : place + 1 + _MOST]
            comparable = [other for _, other in around if _as_long(own, other)]
            comparable.sort(key=lambda other: abs(other.step - own.step))
            found[number] = Siblings(own=own, others=tuple(comparable[:_MOST]))
    return found


def _as_long(one: RunEnd, other: RunEnd) -> bool:
    """Whether two runs are about as long: one that was cut short ends higher, and is not odd."""
    short, long = sorted((one.step, other.step))
    return long <= _AS_LONG * short
