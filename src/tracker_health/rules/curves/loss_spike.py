"""LOS003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import jumps, local_noise, peaks_of
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, count
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class LossSpike(Probe):
    """The loss jumps far above its level, and comes back.

    What it finds:
        Single points or short stretches of the training loss that are far above what came before.

    Why it matters:
        The cause is a corrupt batch, or a step that moved the weights far away. Each spike costs training time, and the
        loss may not recover from the next one.

    How it decides:
        A causal Hampel filter. A spike is `sigmas` robust deviations above the median before it. The
        logarithm of a positive loss is as many of its own noise above. It is as high as `share` of the
        descent, and `tail_factor` times as high as every point below `sigmas`. Close spikes are one. Warn when
        there are `repeated` of them, or one rises past the start by `single_share` of the descent. Fail when
        the last `min_lasting` points or more are still up there, past the start by as much. More points than a
        level has are LOS004's. It needs `min_points` points.

    Known limits:
        Logs of averages hide spikes. The end of each epoch may look like a spike. LOS004 covers a loss that goes up and
        stays there.

    Worked example:
        train_loss: 4 3.5 3.1 2.8 2.5 2.3 2.2 2.1 2 2.1 2 2.1 2 2.1 2 2.1 2 2.1 2 2.1 9 2.1 2 2.1 2 2.1 2 2.1 2 2.1 2
          2.1 2 2.1 2 2.1 2 2.1 2 2.1
        gives: spikes 1, tallest 6.9, low 2.05
        warn: 9 is 6.9 above its level of 2.1, and past the start of 4 by more than `single_share` of the descent of
          1.95.

    What to do:
        Look at the batches of these steps; clip gradients; skip batches whose loss or gradient is out of all
        proportion.

    References:
        Hampel (1974) on the median absolute deviation as a filter.
    """

    code = "LOS003"
    name = "loss-spike"
    symptom = Symptom.SPIKES
    headline = ("spikes",)

    sigmas: Annotated[float, Threshold("deviations above the level before", "sigma", "design", gt=0)] = 7.0
    share: Annotated[
        float, Threshold("height that counts, as a share of the descent", "fraction", "calibration", gt=0)
    ] = 0.3
    tail_factor: Annotated[
        float, Threshold("height over that of the highest point that is no spike", "ratio", "calibration", ge=0)
    ] = 2.5
    single_share: Annotated[
        float,
        Threshold("rise past the start at which one spike counts, as a share of the descent", "fraction", "calibration",
                  ge=0),
    ] = 1.0  # fmt: skip
    repeated: Annotated[int, Threshold("spikes that make a warning", "spikes", "calibration", ge=1)] = 3
    min_lasting: Annotated[int, Threshold("points at the end that are no spike any more", "points", "design", ge=1)] = 3
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=16)] = 40

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points), Need(role="objective_weight", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        curve = evidence.curve("train_loss")
        if curve is None or curve.points < self.min_points:
            return Finding.skipped(f"only {curve.points if curve else 0} points can be compared")
        values, steps = curve.series.values, curve.series.steps
        above, scores = jumps(values)
        tail, stands_out = float(above[scores < self.sigmas].max(initial=0.0)), scores >= self.sigmas
        if values.min() > 0.0:  # noise in proportion to the level
            logs = np.log(values)
            stands_out &= jumps(logs)[0] >= self.sigmas * local_noise(logs)
        high = above >= max(self.share * curve.size, self.tail_factor * tail)
        lasting = int(np.argmin(np.append(high[::-1], False)))
        if lasting > curve.block:  # a level, and no spike
            high[-lasting:], lasting = False, 0
        peaks = peaks_of(high & stands_out, above)
        beyond = peaks[values[peaks] > curve.start.value + self.single_share * curve.size]
        measured = {"spikes": len(peaks), "tallest": float(above[peaks].max(initial=0.0))}
        measured |= {"start": curve.start.value, "low": curve.best.value}
        if not len(beyond) and len(peaks) < self.repeated:
            return Finding.passed(f"{count(len(peaks), 'spike')} of consequence in the loss", measured)
        at = peaks[np.argmax(above[peaks])]
        level, sure = float(values[at] - above[at]), lasting >= self.min_lasting
        before = curve.at_step(float(steps[max(at - 1, 0)]))
        gained = (before - curve.end).surely_above(0.0)
        if lasting and at in beyond:
            first = int(steps[-lasting])
            level_before, end = contrast(level, float(values[-1]))
            jumped = f"the loss jumped from its level of {level_before} at {curve.series.where(first)}"
            before_it = curve.series.place(first)
            return Finding(
                verdict=Verdict.FAIL if sure else Verdict.WARN,
                message=f"{jumped} and had not come back when the run ended, {count(lasting, 'point')} later, at {end}",
                remedy=f"restart from before {before_it}, with a lower learning rate or gradient clipping",
                measured=measured,
                steps=(first, curve.last_step),
                confidence="high" if sure else "low",
                onset=Onset.on(curve.series, first, "the loss jumped"),
            )
        highest, usual = contrast(float(values[at]), level)
        tallest = f"the tallest {highest} at {curve.series.where(steps[at])}"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{count(len(peaks), 'spike')} in the loss, {tallest}, where its level was {usual}",
            remedy="look at the batches of these steps; clip gradients, or skip batches that are out of proportion",
            measured=measured,
            steps=tuple(int(step) for step in steps[peaks[:100]]),
            onset=None if gained else Onset.on(curve.series, steps[at], "the loss jumped"),
        )
