"""LOS004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import block_medians, local_noise, start_level
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_SURE_POINTS = 20
_FEW_POINTS = 40
_LEVELS_TO_JUDGE_WANDER = 10


@dataclass(frozen=True, kw_only=True)
class Diverged(Probe):
    """The loss went up and stayed there, or climbed past its start.

    What it finds:
        A training loss whose end lies clearly above its best level, or whose level climbed far above where it
        started, even if a decaying learning rate brought it down again.

    Why it matters:
        The final weights are worse than earlier ones of the same run; often they are worthless.

    How it decides:
        Levels are medians of blocks of 5 % of the points (at least 5, fewer in short logs), so single spikes do not
        count. Fail when the last level exceeds the lowest by more than `rise_share` of the descent *and* more than
        `sigmas` times the noise, from point to point or from level to level; the descent counts as at least a fifth
        of the lowest level, so that a flat curve's wander is none. Also when some level exceeds the start by more
        than `climb_share` of the start
        *and* by `sigmas` times the noise; the start is the first level, or the very first value where that is clearly
        lower, in which case the climb must be twice the start.

    Known limits:
        Needs 8 points; below 20 it is unsure (a warning). A learning-rate restart in the last blocks looks like a
        divergence. Only the training loss is judged: a rising validation loss is overfitting.

    What to do:
        Take the checkpoint at the best level. Restart from there with a lower learning rate, longer warm-up, or
        gradient clipping.

    References:
        Median blocks and the noise estimate from first differences: Rousseeuw and Croux (1993) on robust scale.
    """

    code = "LOS004"
    name = "diverged"
    symptom = Symptom.DIVERGED
    headline = ("rise_share",)

    rise_share: Annotated[
        float, Threshold("rise above the best level that counts, as a share of the descent", "fraction", "design", gt=0)
    ] = 0.15
    sigmas: Annotated[
        float,
        Threshold("rise that counts, in standard deviations of the point-to-point noise", "sigma", "design", ge=0),
    ] = 4.0
    climb_share: Annotated[
        float,
        Threshold(
            "climb past the start that counts, as a share of the first level", "fraction", "first calibration", gt=0
        ),
    ] = 0.5
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").finite()
        n = len(loss)
        if n < self.min_points:
            return Finding(
                verdict=Verdict.SKIP, message=f"only {n} finite points of the loss, {self.min_points} are needed"
            )
        size = max(min(5, n // 4), round(0.05 * n))
        levels = block_medians(loss.values, size)
        noise = local_noise(loss.values)
        # Early noise is judged by itself: late points are calmer, and would make a wild beginning look like a climb.
        early_noise = max(noise, local_noise(loss.values[: max(_SURE_POINTS, 2 * size)]))
        if len(levels) >= _LEVELS_TO_JUDGE_WANDER:
            # Smoothed losses and epoch averages wander more from block to block than from point to point.
            noise = max(noise, local_noise(levels))
        best = int(np.argmin(levels))
        low, end = float(levels[best]), float(levels[-1])
        if n < _FEW_POINTS:
            # Blocks of a short log may lie across its minimum: the level is looked for at every place.
            low = min(low, float(np.median(np.lib.stride_tricks.sliding_window_view(loss.values, size), axis=1).min()))
            noise = min(noise, local_noise(loss.values[n // 2 :]))
        start = start_level(loss.values, size, early_noise)
        high = float(levels.max())
        descent = max(start - low, 0.2 * abs(low))
        rise, climb = end - low, high - start
        rose = rise > max(self.rise_share * descent, self.sigmas * noise) and rise > 0
        # One lucky first batch is no level: against it alone, the climb has to be a large one.
        share = self.climb_share if start == float(np.median(loss.values[:size])) else max(2.0, self.climb_share)
        climbed = climb > max(share * abs(start), self.sigmas * noise) and climb > 0
        measured = {
            "start": start, "best": low, "end": end, "peak": high, "noise": noise, "points": n,
            "rise_share": rise / descent if descent else 0.0,
        }  # fmt: skip
        if not (rose or climbed):
            return Finding(
                verdict=Verdict.PASS,
                message=f"the loss ends at {number(end)}, its best level is {number(low)}",
                measured=measured,
            )
        best_step = int(loss.steps[max(0, n - (len(levels) - best) * size)])
        restart = f"restart from a checkpoint near step {best_step}" if rose and best else "start again"
        return Finding(
            verdict=Verdict.FAIL,
            message=self._message(start, low, end, high, best_step, rose=rose),
            remedy=f"{restart} with a lower learning rate, a longer warm-up or gradient clipping",
            measured=measured | {"best_step": best_step},
            steps=(best_step, int(loss.steps[-1])),
            confidence="high" if n >= _SURE_POINTS else "low",
        )

    @staticmethod
    def _message(start: float, low: float, end: float, high: float, best_step: int, *, rose: bool) -> str:
        if rose and low < start:
            fall = f"the loss fell from {number(start)} to {number(low)} around step {best_step}"
            return f"{fall}, then rose and ends at {number(end)}"
        if rose:
            return f"the loss rose from {number(start)} and ends at {number(end)}"
        return f"the loss climbed from {number(start)} to {number(high)} before it came down to {number(end)}"
