"""SYS003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes.system._system import all_of, levels, rises
from tracker_health.result import Finding
from tracker_health.text import count
from tracker_health.verdict import Verdict

_STALL = 5.0
_FEWEST_STALLS = 3


@dataclass(frozen=True, kw_only=True)
class Slowdown(Probe):
    """The run becomes slower and slower, or stalls again and again.

    What it finds:
        Steps that take longer towards the end of the run than before, and pauses (a checkpoint saved inside the loop)
        that take a large share of the time.

    Why it matters:
        Fragmented memory, a growing log or a leak slows every step; the same run could end much sooner.

    How it decides:
        Speeds are medians of sixteen blocks. Warn when the last four are below `speed` of the first eight's median, a
        slow beginning aside, and they fall for sure (Mann-Kendall). Stalls are steps of more than five times the median
        time: warn when there are at least three in the second half, and what they take beyond a usual step is more
        than `stalled` of the time there.

    Known limits:
        Longer sequences late in a curriculum slow a run on purpose.

    What to do:
        Profile a late step; save and evaluate less often, or in the background.

    References:
        Mann-Kendall test.
    """

    code = "SYS003"
    name = "slowdown"
    symptom = Symptom.THROUGHPUT
    status = "preview"

    speed: Annotated[float, Threshold("late speed over the earlier one", "fraction", "design", gt=0, le=1)] = 0.7
    stalled: Annotated[float, Threshold("share of the time in stalls", "fraction", "design", gt=0, le=1)] = 0.25
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=16)] = 32

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="step_time", min_points=self.min_points, any_of=("throughput",)),)

    def judge(self, evidence: Evidence) -> Finding:
        times = [one.values for one in all_of(evidence, "step_time") if len(one) >= self.min_points]
        speeds = [one.values for one in all_of(evidence, "throughput") if len(one) >= self.min_points]
        every = [*(_inverse(one) for one in times), *speeds]
        if not every:
            return Finding(verdict=Verdict.SKIP, message=f"fewer than {self.min_points} finite points")
        ratio, falls = min(map(_late_speed, every))
        stalls, share = max(map(_stalls, times), key=lambda one: one[1], default=(0, 0.0))
        measured = {"late_speed": ratio, "stalls": stalls, "stalled_share": share}
        found = []
        if ratio < self.speed and falls:
            found.append(f"steps at the end ran at {ratio:.0%} of the earlier speed")
        if stalls >= _FEWEST_STALLS and share > self.stalled:
            found.append(f"{count(stalls, 'stall')} took {share:.0%} of the time in the second half of the run")
        if not found:
            return Finding(
                verdict=Verdict.PASS, message=f"the end ran at {ratio:.0%} of the speed before", measured=measured
            )
        return Finding(
            verdict=Verdict.WARN,
            message="; ".join(found),
            remedy="profile a late step; save and evaluate less often, or in the background",
            measured=measured,
        )


def _inverse(times: FloatArray) -> FloatArray:
    return 1.0 / np.maximum(times, 1e-12)


def _late_speed(speeds: FloatArray) -> tuple[float, bool]:
    """The speed of the last quarter over that of the first half, and whether it falls for sure."""
    found = levels(speeds)
    before = median(found[: len(found) // 2])
    return (median(found[-(len(found) // 4) :]) / before if before > 0 else 1.0, rises(-found))


def _stalls(times: FloatArray) -> tuple[int, float]:
    """How many steps of the second half were stalls, and their share of its time beyond a usual step."""
    late = times[len(times) // 2 :]
    usual = median(late)
    slow = late[late > _STALL * usual]
    total = float(late.sum())
    return len(slow), float((slow - usual).sum() / total) if total > 0 and usual > 0 else 0.0
