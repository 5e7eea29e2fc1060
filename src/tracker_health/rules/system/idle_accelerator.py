"""SYS001."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class IdleAccelerator(Probe):
    """The accelerator waits for most of the run.

    What it finds:
        A low utilisation of the busiest device, or a large share of each step's time spent waiting for data.

    Why it matters:
        The run takes several times as long and costs as much more; the input pipeline is the usual reason.

    How it decides:
        Over the second half of the run, as a slow first epoch fills caches. Warn when the median utilisation of
        the busiest device is below `utilisation`. Warn, too, when the median time for data is above
        `data_share` of the median time of a step. It needs `min_points` points.

    Known limits:
        Utilisation shows that a kernel ran, not how well. Small models leave a device idle, and nothing is wrong with
        them. That is why the rule is informational. None of the runs whose truth is known records an accelerator.

    What to do:
        More loader workers, larger batches, data on a faster disk or in memory.

    References:
        MLflow's and W&B's system metrics.
    """

    code = "SYS001"
    name = "idle-accelerator"
    symptom = Symptom.THROUGHPUT
    status = "preview"

    utilisation: Annotated[float, Threshold("lowest median utilisation", "percent", "design", gt=0, le=100)] = 25.0
    data_share: Annotated[float, Threshold("share of a step spent on data", "fraction", "design", gt=0, le=1)] = 0.5
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=8)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="accelerator_utilisation", min_points=self.min_points, any_of=("data_time",)),
            Need(role="step_time", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        busy, data, step = map(partial(self._late, evidence), ("accelerator_utilisation", "data_time", "step_time"))
        measured: dict[str, float] = {}
        found = []
        if busy:
            measured["utilisation"] = max(busy)
            if max(busy) < self.utilisation:
                used = f"{number(max(busy))} %"
                found.append(f"the busiest device was used {used} of the time in the second half of the run")
        if data and step and max(step) > 0:
            measured["data_share"] = max(data) / max(step)
            if measured["data_share"] > self.data_share:
                found.append(f"{percent(measured['data_share'])} of a step's time went into waiting for data")
        if not measured:
            return Finding(verdict=Verdict.SKIP, message="there is no time of whole steps next to the time for data")
        if not found:
            return Finding(verdict=Verdict.PASS, message="the accelerator was at work", measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message="; ".join(found),
            remedy="more loader workers, larger batches, or data on a faster disk or in memory",
            measured=measured,
        )

    def _late(self, evidence: Evidence, role: str) -> list[float]:
        """The median of the second half of each series of a role."""
        every = [one.finite().values for one in evidence.all_of(role)]
        return [median(values[len(values) // 2 :]) for values in every if len(values) >= self.min_points]
