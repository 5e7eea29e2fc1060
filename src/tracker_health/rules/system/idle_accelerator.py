"""SYS001."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.roles import words_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.system._cost import cost_in_words, hours_between
from tracker_health.text import number
from tracker_health.words.verdict import Verdict

_REMEDY = "more loader workers, larger batches, or data on a faster disk or in memory"


@dataclass(frozen=True, kw_only=True)
class IdleAccelerator(Probe):
    """Steps wait for data, or the accelerator for steps.

    What it finds:
        A large share of each step's time that is spent waiting for data. Also a device that holds the run's memory and
        is next to never at work.

    Why it matters:
        The run takes several times as long and costs as much more; the input pipeline is the usual reason.

    How it decides:
        Over the second half of the run, as a slow first epoch fills caches. Warn when the median time for data is above
        `data_share` of the median time of a step. Warn, too, when the median utilisation of the busiest device is below
        `utilisation`, while `held` of its memory or more is taken. It needs `min_points` points.

    Known limits:
        Utilisation shows that a kernel ran, not how well: a device at 40 % may be slow or just right, and nothing is
        said of it. The memory may be that of another process. Times for data that are measured while the device is at
        work cost less than they show.

    Worked example:
        step_time: 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10
        data_time: 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7
        gives: data_share 0.7
        warn: 0.7 of the time of a step is above `data_share`.

    What to do:
        More loader workers, larger batches, data on a faster disk or in memory.

    References:
        Mohan et al. (2021), "Analyzing and Mitigating Data Stalls in DNN Training", VLDB.
    """

    code = "SYS001"
    name = "idle-accelerator"
    symptom = Symptom.THROUGHPUT
    kinds = ("data", "idle")
    headline = ("data_share",)

    utilisation: Annotated[float, Threshold("lowest median utilisation", "percent", "design", gt=0, le=100)] = 5.0
    held: Annotated[float, Threshold("memory of the device that shows a run on it", "megabytes", "design", gt=0)] = (
        1000.0
    )
    data_share: Annotated[
        float, Threshold("share of a step spent on data", "fraction", "benchmarks/pace.py", gt=0, le=1)
    ] = 0.5
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=8)] = 20

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="accelerator_utilisation", min_points=self.min_points, any_of=("data_time",)),
            *Need.beside("step_time", "memory"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        data, step = (self._late(evidence.all_of(role)) for role in ("data_time", "step_time"))
        busy = self._late(evidence.all_of("accelerator_utilisation"))
        measured: dict[str, float] = {}
        if data and step and max(step) > 0:
            measured["data_share"] = min(1.0, max(data) / max(step))
        if busy:
            measured["utilisation"] = max(busy)
        if not measured:
            return Finding.skipped("there is no time of whole steps next to the time for data")
        if measured.get("data_share", 0.0) > self.data_share:
            share = measured["data_share"]
            hours = hours_between(evidence)
            cost = f", which cost {cost_in_words(share, hours)}" if hours is not None else ""
            message = (
                f"{number(max(data))} of the {number(max(step))} that a step takes went into waiting for data{cost}"
            )
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured, kind="data")
        taken = max(self._held(evidence), default=0.0)
        if busy and max(busy) < self.utilisation and taken >= self.held:
            message = (
                f"the busiest device was used {number(max(busy))} % of the time in the second half of the run, while "
                f"{number(taken)} MB of its memory were taken"
            )
            return Finding(verdict=Verdict.WARN, message=message, remedy=_REMEDY, measured=measured, kind="idle")
        return Finding.passed("steps did not wait for data" if data else "the accelerator was at work", measured)

    def _late(self, every: list[Series]) -> list[float]:
        """The median of the second half of each series."""
        finite = [one.finite().values for one in every]
        return [median(values[len(values) // 2 :]) for values in finite if len(values) >= self.min_points]

    def _held(self, evidence: Evidence) -> Iterator[float]:
        """The memory of devices that was taken, in megabytes."""
        for one in evidence.all_of("memory"):
            if "gpu" in words_of(one.name):
                unit = (
                    1e-6 if one.name.lower().endswith("bytes") and not one.name.lower().endswith("megabytes") else 1.0
                )
                yield from (unit * value for value in self._late([one]))
