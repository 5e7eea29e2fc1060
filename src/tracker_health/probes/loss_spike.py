"""LOS003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, IntArray, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import jumps, local_noise
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_PERIODIC = 0.1


@dataclass(frozen=True, kw_only=True)
class LossSpike(Probe):
    """The loss leaps far above its level, and comes back.

    What it finds:
        Single points or short stretches of the training loss that lie far above what came before.

    Why it matters:
        A batch of garbage, or a step that threw the weights away from where they were. Each costs training time, and
        the next may not come back.

    How it decides:
        A causal Hampel filter: a point is a spike when it lies `sigmas` robust deviations above the median of the
        points before it *and* by `share` of the whole descent *and* by `tail_factor` times what a fiftieth of the
        points (four, in short logs) exceed. Spikes within ten points of each other are one. Warn when one of them rises
        past the start of the training by `single_share` of the descent, or when there are `repeated` of them. Spikes at
        one constant distance (the end of each epoch) do not count as repeated.

    Known limits:
        Logs of averages hide spikes. A loss that goes up and stays there is LOS004's.

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
        float, Threshold("height in multiples of what a fiftieth of the points exceed", "ratio", "calibration", ge=0)
    ] = 3.0
    single_share: Annotated[
        float,
        Threshold("rise past the start at which one spike counts, as a share of the descent", "fraction", "calibration",
                  ge=0),
    ] = 1.0  # fmt: skip
    repeated: Annotated[int, Threshold("spikes that make a warning", "spikes", "calibration", ge=1)] = 3
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=16)] = 40

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").finite()
        if len(loss) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(loss)} finite points of the loss")
        values = loss.values
        above, scores = jumps(values)
        noise = local_noise(values)
        start = max(float(values[0]), float(np.median(values[: max(1, min(5, len(values) // 20))])))
        low = float(np.quantile(values, 0.05))
        descent = max(start - low, 0.2 * abs(low), 4.0 * noise)
        # Small batches have long tails: a spike stands out from the tail as well as from the middle.
        # Many spikes are a tail of their own, so three times that of a tenth of the points is enough.
        rare, tenth = np.quantile(above, [1.0 - max(0.02, 4.0 / len(values)), 0.9])
        tail = float(min(rare, 3.0 * tenth))
        high = np.flatnonzero((scores >= self.sigmas) & (above >= max(self.share * descent, self.tail_factor * tail)))
        peaks = _peaks(high, above)
        beyond = peaks[values[peaks] > start + self.single_share * descent]
        many = len(peaks) >= self.repeated and not _periodic(peaks)
        measured = {
            "spikes": len(peaks), "start": start, "low": low, "noise": noise,
            "tallest": float(above[peaks].max()) if len(peaks) else 0.0,
        }  # fmt: skip
        if not (len(beyond) or many):
            return Finding(
                verdict=Verdict.PASS,
                message=f"{count(len(peaks), 'spike')} of consequence in the loss",
                measured=measured,
            )
        tallest = peaks[np.argmax(values[peaks])]
        where = f"the tallest {number(float(values[tallest]))} at step {int(loss.steps[tallest])}"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{count(len(peaks), 'spike')} in the loss, {where}, where its level was "
            f"{number(float(values[tallest] - above[tallest]))}",
            remedy="look at the batches of these steps; clip gradients, or skip batches that are out of proportion",
            measured=measured,
            steps=tuple(int(step) for step in loss.steps[peaks[:100]]),
        )


def _peaks(high: IntArray, above: np.ndarray) -> IntArray:
    """The highest point of each group of spikes that lie within ten points of each other."""
    if not len(high):
        return high
    groups = np.split(high, np.flatnonzero(np.diff(high) > 10) + 1)
    return np.array([group[np.argmax(above[group])] for group in groups], dtype=np.int64)


def _periodic(peaks: IntArray) -> bool:
    """Whether the spikes come at one distance, give or take a tenth of it."""
    distances = np.diff(peaks)
    if len(distances) < 2:
        return False
    usual = float(np.median(distances))
    return bool(np.mean(np.abs(distances - usual) <= max(1.0, _PERIODIC * usual)) >= 0.8)
