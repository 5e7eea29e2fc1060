"""A validation loss that is one number to its end: that of another model than the one that is trained, or of weights
that no longer change.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Series
from tracker_health.evidence.numerics import (
    block_medians,
    coarseness,
    evaluation_noise,
    in_range,
    mann_kendall,
    median,
    median_error,
)
from tracker_health.probes._run import rate_since

EVALUATIONS = 5
REPEATS = 4
FALL = 0.02
OF_ANOTHER_MODEL = "the validation loss stands still, and says nothing of the training (GEN005 tells of that)"

_HALF = 0.5  # of the evaluations
_LONGER = 4  # times as long as every stretch before
_LATE = 4.0  # distances between two evaluations
_BEYOND_ROUNDING = 100.0
_FEWEST = 4
_BLOCKS = 20
_SIGNIFICANT = 3.0
_FALLING, _FOR_SURE = -1.5, -2.3
_ANOTHER_UNIT = 2.0
_SEVERAL, _MANY, _MOST = 5, 8, 0.75  # evaluations, and of all
_DIGITS, _SOME_DIGITS = 1e-4, 1e-3
_UNDER_WAY, _NO_RATE = 0.05, 1e-6  # of the highest learning rate
_LEFT = 0.01  # of where the training loss began


class Standing(NamedTuple):
    """The validation loss's ``value`` since a ``step``, in the last evaluations of all; the training loss in the first
    and the last quarter of the points since then, and that fall as a share of where the training began.
    """

    value: float
    step: int
    repeats: int
    evaluations: int
    before: float
    after: float
    fall: float


def is_of_another_model(evidence: Evidence) -> bool:
    """Whether the validation loss says nothing of how the training goes."""
    held_out, loss = evidence.find("val_loss"), evidence.find("train_loss")
    if held_out is None or loss is None:
        return False
    both = held_out.finite(), loss.finite()
    return len(both[0]) >= EVALUATIONS and (standing(*both) is not None or stopped(evidence, *both) is not None)


def standing(held_out: Series, loss: Series, repeats: int = REPEATS, fall: float = FALL) -> Standing | None:
    """What shows that the validation loss stands still and the training loss does not; None where something else may
    be why. Both are finite.

    ``repeats``: equal evaluations at the end, at least. ``fall``: of the training loss meanwhile, as a share of its
    start.
    """
    equal = equal_at_end(held_out.values)
    if equal < max(repeats, _HALF * len(held_out)) or held_out.values[-1] == 0.0 or _is_the_logs(held_out, loss, equal):
        return None
    value, step = float(held_out.values[-1]), int(held_out.steps[-equal])
    values, unit = in_range(loss.values)
    since = values[loss.steps > _on_the_axis_of(loss.steps, step, int(held_out.steps[-1]))]
    if len(since) < _FEWEST or not _falls(since):
        return None
    before, after = _ends(since)
    start = max(abs(median(values[:3])), abs(before), abs(after))
    # Had the validation loss fallen by a hundredth of that, in proportion, its last digit would have changed.
    if before - after < max(fall * start, _BEYOND_ROUNDING * coarseness(value) / abs(value) * abs(before)):
        return None
    return Standing(value, step, equal, len(held_out), before * unit, after * unit, (before - after) / start)


def stopped(evidence: Evidence, held_out: Series, loss: Series, repeats: int = REPEATS) -> Standing | None:
    """What shows that the weights no longer change, early in the run: the validation loss is one number from there on,
    for most of the evaluations, or for half of them at a learning rate that had not come down. Both are finite.

    ``repeats``: equal evaluations at the end, at least.
    """
    equal, value = equal_at_end(held_out.values), float(held_out.values[-1])
    if equal < max(_SEVERAL, repeats, _HALF * len(held_out)) or value == 0.0 or _is_the_logs(held_out, loss, equal):
        return None
    step, values = int(held_out.steps[-equal]), in_range(loss.values)[0]
    since = values[loss.steps > _on_the_axis_of(loss.steps, step, int(held_out.steps[-1]))]
    start = abs(median(values[:3]))
    if len(since) < _FEWEST or not abs(median(since)) > _LEFT * start:
        return None  # all is learnt
    rate = rate_since(evidence, step)
    if rate is not None and rate <= _NO_RATE:
        return None  # which LRS001 tells
    under_way, digits = rate is not None and rate > _UNDER_WAY, coarseness(value) / abs(value)
    if equal < _MANY and not (under_way and digits <= _DIGITS):
        return None
    if digits > (_SOME_DIGITS if under_way else _DIGITS) or (equal < _MOST * len(held_out) and not under_way):
        return None
    unit = in_range(loss.values)[1]
    before, after = _ends(since)
    fall = (before - after) / start if start else 0.0
    return Standing(value, step, equal, len(held_out), before * unit, after * unit, fall)


def equal_at_end(values: FloatArray) -> int:
    """How many of the last values are one and the same number."""
    changes = np.flatnonzero(np.diff(values))
    return len(values) - 1 - int(changes[-1]) if len(changes) else len(values)


def _is_the_logs(held_out: Series, loss: Series, equal: int) -> bool:
    """Whether it may be the log that repeats the last number.

    A log that has more rows than evaluations copies each of them, and a monitor shows the best so far: both repeat
    earlier numbers too. A single number that begins when the training has long begun may be that of one evaluation.
    """
    steps = np.diff(held_out.values)
    changes = np.flatnonzero(steps) + 1
    if not len(changes):
        distance = median(np.diff(held_out.steps.astype(np.float64)))
        return bool(len(loss) and float(held_out.steps[0]) - float(loss.steps[0]) > _LATE * distance)
    longest = int(np.diff(changes, prepend=0).max())
    return equal < _LONGER * longest or (longest > 1 and bool((steps <= 0).all()))


def _on_the_axis_of(steps: IntArray, step: int, last: int) -> float:
    """An evaluation's step on the training loss's axis: where one counts steps and the other epochs, the same share of
    the run.
    """
    ratio = float(steps[-1]) / last if len(steps) and last > 0 else 1.0
    return step if 1.0 / _ANOTHER_UNIT <= ratio <= _ANOTHER_UNIT or ratio <= 0 else step * ratio


def _ends(values: FloatArray) -> tuple[float, float]:
    quarter = len(values) // 4
    return median(values[:quarter]), median(values[-quarter:])


def _falls(values: FloatArray) -> bool:
    """Whether a training loss falls all along, or along the way and beyond three standard errors."""
    before, after = _ends(values)
    error = sqrt(2.0) * median_error(evaluation_noise(values), len(values) // 4)
    trend = mann_kendall(block_medians(values, max(1, len(values) // _BLOCKS)))
    return trend < _FOR_SURE or (trend < _FALLING and before - after > _SIGNIFICANT * error)
