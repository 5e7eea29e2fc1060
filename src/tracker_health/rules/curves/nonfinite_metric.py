"""LOS019."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.report.result import Finding
from tracker_health.roles import words_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, short_name
from tracker_health.words.verdict import Verdict

_OF_TRAINING = frozenset(("loss", "grad", "gradient", "norm", "l1", "l2", "kl", "logits", "weight", "activation"))


@dataclass(frozen=True, kw_only=True)
class NonfiniteMetric(Probe):
    """A metric that no other rule looks at is NaN or infinite.

    What it finds:
        A metric of any name that was finite and is NaN or infinite to the end. Also one of the training that never was
        anything else: a part of a loss, the gradient norm of a module.

    Why it matters:
        NaN spreads. A part of the model or of the loss may be broken while the loss that people look at is not.

    How it decides:
        Metrics without a role of which some value is not finite. Warn when one had `min_finite` finite values
        or more, and `min_lost` or more at its end are none, which is `share` of its points. Warn also when all
        of `min_lost` or more are none. Its name must say that it is of a loss, a gradient, a norm or weights.

    Known limits:
        A statistic of what no longer happens is NaN by its nature. Only metrics in files are known: trackers are not
        asked for the history of names that no rule needs.

    Worked example:
        odd grad/norm_gamma: 1 0.9 0.8 0.9 nan nan nan nan
        gives: nonfinite 4, points 8
        warn: four finite values, then 4 of 8 are NaN to the end.

    What to do:
        Look at what it measures from that step on; where there is nothing to measure, log nothing.

    References:
        IEEE 754 arithmetic: every operation on a NaN gives a NaN.
    """

    code = "LOS019"
    name = "nonfinite-metric"
    symptom = Symptom.NONFINITE
    since = "0.2.0"

    min_finite: Annotated[int, Threshold("finite values before", "points", "design", ge=1)] = 3
    min_lost: Annotated[int, Threshold("values at the end that are not finite", "points", "design", ge=1)] = 3
    share: Annotated[float, Threshold("share of the points at the end", "fraction", "design", gt=0, le=1)] = 0.1

    @property
    def needs(self) -> tuple[Need, ...]:
        return Need.beside("train_loss")

    def judge(self, evidence: Evidence) -> Finding:
        if not evidence.odd:
            return Finding.skipped("all metrics that no other rule looks at are finite, or there are none")
        lost = [(series, since) for series in evidence.odd if (since := self._lost_since(series)) is not None]
        if not lost:
            names = count(len(evidence.odd), "metric")
            return Finding.passed(f"{names} that no rule asks for had values that are not finite, and came back")
        series, since = lost[0]
        clean = series.clean()
        others = f", as {count(len(lost) - 1, 'other metric')}" if len(lost) > 1 else ""
        where = series.where(since)
        bad = int((~np.isfinite(clean.values)).sum())
        return Finding(
            verdict=Verdict.WARN,
            message=f"{short_name(series.name)} is NaN or infinite from {where} to the end{others} "
            f"({bad} of {count(len(clean), 'point')})",
            remedy=f"look at what it measures from {where} on; where there is nothing to measure, log nothing",
            measured={"nonfinite": bad, "points": len(clean), "metrics": len(lost)},
            steps=(since,),
            about=[one.name for one, _ in lost],
        )

    def _lost_since(self, series: Series) -> int | None:
        """The step from which it is not finite to the end, where that is an end."""
        clean = series.clean()
        finite = np.flatnonzero(np.isfinite(clean.values))
        first = int(finite[-1]) + 1 if len(finite) else 0
        lost = len(clean) - first
        if lost < max(self.min_lost, self.share * len(clean)):
            return None
        of_training = not _OF_TRAINING.isdisjoint(words_of(series.name))
        return int(clean.steps[first]) if len(finite) >= self.min_finite or (not len(finite) and of_training) else None
