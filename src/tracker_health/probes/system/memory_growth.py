"""SYS002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes.system._system import all_of, levels, rises
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class MemoryGrowth(Probe):
    """Memory rises steadily: a leak.

    What it finds:
        Memory of the device or the host that goes on growing after warm-up.

    Why it matters:
        Sooner or later the process is killed for it, often hours into a run.

    How it decides:
        Levels are medians of sixteen blocks, the first two left out as warm-up. Warn when they rise for sure
        (Mann-Kendall above three), by at least `growth` of the first of them, and at least `late_share` of that in the
        second half: caches that fill up level off.

    Known limits:
        A cache that fills evenly to the very end of the run looks the same.

    What to do:
        Look for tensors that are kept with their graph (`total += loss`), growing lists, and loader workers that copy.

    References:
        Mann-Kendall test.
    """

    code = "SYS002"
    name = "memory-growth"
    symptom = Symptom.THROUGHPUT
    status = "preview"

    growth: Annotated[float, Threshold("rise over the first level", "fraction", "design", gt=0)] = 0.2
    late_share: Annotated[float, Threshold("share of it in the second half", "fraction", "design", gt=0, le=1)] = 0.35
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=16)] = 32

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="memory", min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        every = [one for one in all_of(evidence, "memory") if len(one) >= self.min_points]
        if not every:
            return Finding(verdict=Verdict.SKIP, message=f"fewer than {self.min_points} finite points of memory")
        grown = max(every, key=_growth)
        found = levels(grown.values)[2:]
        middle = float(found[len(found) // 2])
        rise = float(found[-1] - found[0])
        late = (float(found[-1]) - middle) / rise if rise > 0 else 0.0
        measured = {"growth": _growth(grown), "late_share": late}
        if not (measured["growth"] >= self.growth and late >= self.late_share and rises(found)):
            return Finding(
                verdict=Verdict.PASS,
                message=f"memory grew by {measured['growth']:.0%} after warm-up",
                measured=measured,
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"{grown.name} rose steadily from {number(float(found[0]))} to {number(float(found[-1]))} "
            f"({measured['growth']:.0%})",
            remedy="look for tensors kept with their graph, growing lists, and loader workers that copy",
            measured=measured,
        )


def _growth(series: Series) -> float:
    found = levels(series.values)[2:]
    return float((found[-1] - found[0]) / abs(found[0])) if found[0] else 0.0
