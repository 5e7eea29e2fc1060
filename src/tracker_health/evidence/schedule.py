"""What a checkpoint says about the learning rate's schedule."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.evidence.series import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class SavedSchedule:
    """A learning-rate scheduler, as it was saved with a checkpoint.

    ``stepped``: how often its ``step`` was called. ``laid_out``: for how many calls it was made; None where it has no
    end. ``period``: after how many calls it begins again, where it is a wave. ``steps`` and ``rates``: the learning
    rate that it has given, at up to a thousand of its calls from 0 to the last; empty where its settings do not tell,
    or tell another last rate than was saved. ``best``: the best value of the metric that it waits for, which it takes
    to improve as it rises where ``waits_for_rise``; both None for one that waits for none.
    """

    stepped: int
    laid_out: float | None = None
    period: float | None = None
    steps: IntArray
    rates: FloatArray
    best: float | None = None
    waits_for_rise: bool | None = None
