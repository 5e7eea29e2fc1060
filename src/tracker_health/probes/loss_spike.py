"""LOS003."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Series
from tracker_health.evidence.numerics import jumps, local_noise, median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_PERIODIC = 0.1
_SURE_POINTS = 3
_WIDER = 2.5
_HEAVIEST = _WIDER ** (1.0 / 1.5)


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
        points before it *and* by `share` of the whole descent *and* by `tail_factor` times the largest that the noise's
        own tail explains: a power law through what a fiftieth of the points (four, in short logs) and two and a half
        times as many exceed. Spikes within ten points of each other are one. Warn when one of them rises past the start
        of the training by `single_share` of the descent, and to `single_tail_factor` times that largest, or when there
        are `repeated` of them. Fail when such a single one had not come back when the run ended; with fewer than three
        points up there it is unsure (a warning). Spikes at one constant distance (the end of each epoch) do not count
        as repeated.

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
        float, Threshold("height in multiples of the largest that the noise's own tail explains", "ratio",
                         "calibration", ge=0)
    ] = 2.5  # fmt: skip
    single_tail_factor: Annotated[
        float, Threshold("the same for a spike that counts alone", "ratio", "calibration", ge=0)
    ] = 8.0
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
        start = max(float(values[0]), median(values[: max(1, min(5, len(values) // 20))]))
        low = float(np.quantile(values, 0.05))
        descent = max(start - low, 0.2 * abs(low), 4.0 * noise)
        largest = _largest_of_tail(above)
        least = max(self.share * descent, self.tail_factor * largest)
        peaks = _peaks(np.flatnonzero((scores >= self.sigmas) & (above >= least)), above)
        alone = above[peaks] >= self.single_tail_factor * largest
        beyond = peaks[alone & (values[peaks] > start + self.single_share * descent)]
        many = len(peaks) >= self.repeated and not _periodic(peaks)
        measured: dict[str, float | int] = {
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
        lasting = _up_at_the_end(above, least) if tallest in beyond and peaks[-1] == tallest else 0
        if lasting:
            return _unreturned(loss, len(values) - lasting, float(values[tallest] - above[tallest]), measured)
        where = f"the tallest {number(float(values[tallest]))} at step {int(loss.steps[tallest])}"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{count(len(peaks), 'spike')} in the loss, {where}, where its level was "
            f"{number(float(values[tallest] - above[tallest]))}",
            remedy="look at the batches of these steps; clip gradients, or skip batches that are out of proportion",
            measured=measured,
            steps=tuple(int(step) for step in loss.steps[peaks[:100]]),
        )


def _up_at_the_end(above: FloatArray, least: float) -> int:
    """How many points before the end the loss has been up."""
    down = np.flatnonzero(above < least)
    return len(above) - 1 - int(down[-1]) if len(down) else len(above)


def _unreturned(loss: Series, at: int, level: float, measured: dict[str, float | int]) -> Finding:
    step, points, end = int(loss.steps[at]), len(loss) - at, float(loss.values[-1])
    return Finding(
        verdict=Verdict.FAIL,
        message=f"the loss leapt from its level of {number(level)} at step {step} and had not come back when the run "
        f"ended, {count(points, 'point')} later, at {number(end)}",
        remedy=f"restart from a checkpoint before step {step}, with a lower learning rate or gradient clipping",
        measured=measured,
        steps=(step, int(loss.steps[-1])),
        confidence="high" if points >= _SURE_POINTS else "low",
    )


def _largest_of_tail(above: FloatArray) -> float:
    """How large the largest of the points would be if they came from one tail.

    The tail is a power law through what a fiftieth of the points (four, in short logs) and two and a half times as many
    exceed: exact for heavy tails, generous for light ones. Many spikes are a tail of their own: it counts as no heavier
    than that of Student's t with 1.5 degrees of freedom, and no higher than three times what a tenth exceeds.
    """
    rare = max(0.02, 4.0 / len(above))
    high, lower, tenth = (float(one) for one in np.quantile(above, [1.0 - rare, 1.0 - _WIDER * rare, 0.9]))
    if high <= 0.0:
        return 0.0
    growth = min(high / lower, _HEAVIEST) if lower > 0.0 else _HEAVIEST
    return float(min(high, 3.0 * tenth) * growth ** (log(rare * len(above)) / log(_WIDER)))


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
    usual = median(distances)
    return bool(np.mean(np.abs(distances - usual) <= max(1.0, _PERIODIC * usual)) >= 0.8)
