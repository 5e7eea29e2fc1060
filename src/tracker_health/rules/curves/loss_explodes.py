"""LOS021."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.evidence.curve import FEW_POINTS
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, short_name, went
from tracker_health.words.verdict import Verdict

_ROLES = ("objective_loss", "train_loss", "loss_part", "val_loss")


@dataclass(frozen=True, kw_only=True)
class LossExplodes(Probe):
    """A loss grows a million-fold, also one that need not fall.

    What it finds:
        A loss whose size at the end is a million times that of its beginning. Any loss counts: of training, of a
        critic, of values, of an adversary.

    Why it matters:
        No task grows so far by itself. Values feed on their own estimates, or an adversary has won: what is learnt is
        lost, long before a NaN shows it.

    How it decides:
        By the sizes of the values. The median of the last `end_share` of the points is compared with that of the first
        `end_share`, which counts as `floor` at least. Warn from `times` on. It needs `min_points` finite points.

    Known limits:
        A loss that is a sum over a growing set may grow so far. One that grows less is no fault here: a critic's loss
        grows with the returns.

    Worked example:
        objective_loss critic: 5 6 8 20 400 9e4 3e7 8e9 1e13 1e19
        gives: growth 2e+18
        warn: an eighth of ten points is one; 1e19 is 2e18 times 5.

    What to do:
        Lower the learning rate of that network, update its target more slowly, clip its gradients.

    References:
        van Hasselt et al. (2018), Deep reinforcement learning and the deadly triad.
    """

    code = "LOS021"
    name = "loss-explodes"
    symptom = Symptom.DIVERGED
    since = "0.2.0"
    headline = ("growth",)

    times: Annotated[float, Threshold("size at the end over that at the beginning", "ratio", "design", gt=1)] = 1e6
    floor: Annotated[float, Threshold("size at the beginning that counts at least", "", "design", gt=0)] = 1e-3
    end_share: Annotated[float, Threshold("share of the points that is the end", "fraction", "design", gt=0, le=1)] = (
        0.125
    )
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=_ROLES[0], any_of=_ROLES[1:], min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        known = [one.finite() for role in _ROLES for one in evidence.all_of(role)]
        known = [one for one in known if len(one) >= self.min_points]
        if not known:
            return Finding.skipped(f"no loss has {self.min_points} finite points")
        grown = [(self._growth(np.abs(one.values)), one) for one in known]
        growth, series = max(grown, key=lambda pair: pair[0])
        measured: dict[str, float | int] = {"growth": growth}
        if growth < self.times:
            return Finding.passed(f"no loss ends {number(self.times)} times as large as it began", measured)
        sizes = np.abs(series.values)
        step = series.steps[int(np.argmax(sizes > self.times * self._start(sizes)))]
        grew = went(self._start(sizes), float(series.values[-1]), "grew")
        return Finding(
            verdict=Verdict.WARN,
            message=f"{short_name(series.name)} {grew}, {number(growth)} times its size at first",
            remedy="lower the learning rate of that network, update its target more slowly, clip its gradients",
            measured=measured,
            steps=(int(step), int(series.steps[-1])),
            confidence="high" if len(series) >= FEW_POINTS else "low",
            onset=Onset.on(series, step, f"{short_name(series.name)} exploded"),
        )

    def _growth(self, sizes: FloatArray) -> float:
        last = sizes[-max(1, int(self.end_share * len(sizes))) :]
        return median(last) / self._start(sizes)

    def _start(self, sizes: FloatArray) -> float:
        return max(self.floor, median(sizes[: max(1, int(self.end_share * len(sizes)))]))
