"""LOS007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import local_noise, median, median_error, start_level
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import learning_rates
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_SIGNIFICANT = 3.0
_ENDED = 0.2
_LAST = 2.0 / 3.0  # of that error: two standard errors


@dataclass(frozen=True, kw_only=True)
class StillDescending(Probe):
    """The run ended while the loss was still falling fast.

    What it finds:
        A training loss whose last quarter brought a large share of the whole descent.

    Why it matters:
        The run was too short, or its learning rate far too low: more of the same would have helped.

    How it decides:
        Levels are medians of the first points and of eighths. Warn when the fall from the sixth eighth to the last is
        at least `late_share` of the whole descent *and* three standard errors of their difference, the fall from the
        seventh to the last at least two, and the learning rate had not come down to a fifth of its peak, where it is
        logged.

    Known limits:
        Needs 16 points, and twice as many where there is noise; LOS011 looks at shorter logs, at those whose learning
        rate came down, and at losses that fall along a straight line, whose last quarter is no larger. A loss that
        learns late, after a long plateau, looks the same.

    What to do:
        Train longer, or raise the learning rate.

    References:
        Standard error of a median.
    """

    code = "LOS007"
    name = "still-descending"
    symptom = Symptom.UNDERTRAINED
    headline = ("late_share",)

    late_share: Annotated[
        float, Threshold("share of the descent in the last quarter", "fraction", "calibration", gt=0, le=1)
    ] = 0.3
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=16)] = 16

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points), Need(role="learning_rate", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        values = evidence.first("train_loss").finite().values
        if len(values) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(values)} finite points of the loss")
        noise = local_noise(values)
        eighths = [median(part) for part in np.array_split(values, 8)]
        start = start_level(values, max(1, min(3, len(values) // 10)), noise)
        descent, late = start - eighths[7], eighths[5] - eighths[7]
        share = late / descent if descent > 0 else 0.0
        error = _SIGNIFICANT * float(np.sqrt(2.0)) * median_error(noise, len(values) // 8)
        last = eighths[6] - eighths[7]
        falling = share >= self.late_share and late > error and last > error * _LAST
        measured = {"start": start, "end": eighths[7], "late_share": share, "noise": noise}
        if not falling or _schedule_ended(evidence):
            brought = f"brought {share:.0%} of the descent" if share > 0 else "brought no descent"
            return Finding(verdict=Verdict.PASS, message=f"the last quarter {brought}", measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss was still falling when the run ended: the last quarter brought {share:.0%} of its "
            f"descent from {number(start)} to {number(eighths[7])}",
            remedy="train longer, or raise the learning rate",
            measured=measured,
        )


def _schedule_ended(evidence: Evidence) -> bool:
    """By the series with the highest peak: a frozen group may well have a rate of 0."""
    rates = [one.values for one in learning_rates(evidence)]
    if not rates:
        return False
    values = max(rates, key=lambda one: float(one.max()))
    return bool(values[-1] <= _ENDED * values.max())
