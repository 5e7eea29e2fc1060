"""SYS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Curve, Evidence, Need
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class MemoryGrowth(Probe):
    """Memory rises steadily: a leak.

    What it finds:
        Memory of the device or the host that keeps growing after warm-up, to the end.

    Why it matters:
        Sooner or later the process is killed for it, often hours into a run.

    How it decides:
        The level after `warm_up` of the run, up to its middle, is compared with the third quarter and with the last.
        Warn when it rose by `growth` or more, and by more than three standard errors from each part to the next. The
        last part must have brought at least `goes_on` of what the one before it did: caches that fill up level off. It
        needs `min_points` points.

    Known limits:
        A cache that fills evenly to the very end of the run looks the same. So do other programs, where the memory of
        the whole machine is recorded. Memory that grows by sudden jumps is found where these come in each part.

    Worked example:
        memory: 10 10 10 10 10 10 10 10 11 11 11 11 11 11 11 11 15 15 15 15 15 15 15 15 20 20 20 20 20 20 20 20
        gives: growth 0.818
        warn: from 11 after warm-up to 20 it rose by 0.818, which is above `growth`, and went on to the end.

    What to do:
        Look for tensors that are kept with their graph (`total += loss`), growing lists, and loader workers that copy.

    References:
        None: plain comparisons.
    """

    code = "SYS002"
    name = "memory-growth"
    symptom = Symptom.THROUGHPUT
    headline = ("growth",)

    growth: Annotated[float, Threshold("rise over the first level", "fraction", "benchmarks/pace.py", gt=0)] = 0.2
    goes_on: Annotated[
        float, Threshold("rise of the last part, over that of the part before", "fraction", "design", ge=0)
    ] = 0.5
    warm_up: Annotated[float, Threshold("share of the run that warms up", "fraction", "design", ge=0, le=0.4)] = 0.25
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=16)] = 32

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="memory", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = [
            curve for one in evidence.all_of("memory") if (curve := Curve.of(one)) and curve.points >= self.min_points
        ]
        if not every:
            return Finding.skipped(f"fewer than {self.min_points} finite points of memory")
        growth, goes_on, curve = max(map(self._growth, every), key=lambda one: (one[1], one[0]))
        measured, name = {"growth": growth}, curve.series.name
        if not (growth >= self.growth and goes_on):
            return Finding.passed(f"memory grew by {percent(growth)} after warm-up", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{name} rose steadily after warm-up, by {percent(growth)} to {number(curve.end.value)}",
            remedy="look for tensors kept with their graph, growing lists, and loader workers that copy",
            measured=measured,
            about=(name,),
        )

    def _growth(self, curve: Curve) -> tuple[float, bool, Curve]:
        """The growth over the level after warm-up, and whether that is sure and goes on to the end."""
        first, late = curve.between(self.warm_up, 0.5), curve.between(0.5, 1.0 - self.warm_up)
        last = curve.between(1.0 - self.warm_up, 1.0)
        rise, early, then = last - first, late - first, last - late
        sure = early.surely_above(0.0) and then.surely_above(0.0) and then.value >= self.goes_on * early.value
        return rise.value / abs(first.value) if first.value else 0.0, sure, curve
