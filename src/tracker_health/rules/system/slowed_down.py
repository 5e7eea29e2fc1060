"""SYS005."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.pace import Pace, SlowDown, pace_of, slow_down_of, spikes_of
from tracker_health.facts.work import more_work, waits_for_data, what_changed
from tracker_health.report.result import Finding, Measure
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.system._cost import HOUR, cost_in_words, hours_of
from tracker_health.text import count, number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class SlowedDown(Probe):
    """Steps began to take longer, and stayed so.

    What it finds:
        A time per step that goes up to a new level, or creeps up, and is there to the end.

    Why it matters:
        The rest of the run costs as many times as much. What slows a run down in its middle is a fault of the machine
        or of the program, and goes on in the next run.

    How it decides:
        The time per step is taken from a throughput that was logged, from a time per step, from a clock, or from the
        times at which points came. It needs `min_points` of them. Their medians are compared in up to 40 parts, as
        logarithms. The place is where two levels fit best, or a level that then rises evenly. Warn when steps take
        `slower` times as long as before or more. A share `apart` of the parts before must be faster than half way, and
        as many of those after slower. What changes in the first `earliest` of the run is its warm-up, and the last
        `rest` must be slow. The cost must be `lost` of the run's time or more, and `seconds` where the time is known in
        seconds.

    Special cases:
        more-work: sequences, batches or answers that became longer by as much take longer, which is no fault.

    Known limits:
        Work that grows without being logged looks the same: images that become larger, layers that are unfrozen.
        Steps that are a mean of the whole run so far show a slow-down late and smaller. A run that was slow from the
        beginning has nothing to be compared with. Steps that take much longer at a regular distance (an evaluation, a
        checkpoint) are told in the message, and are no slow-down. Measured on trainings that were slowed on purpose.

    Worked example:
        step_time: 10 10 10 10 10 10 10 10 10 10 10 10 10 10 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25
        gives: times 2.5, step 14
        warn: 25 is 2.5 times 10, which is above `slower`, and all of the last 18 of 32 steps are slow.

    What to do:
        Look at what changed there: a loader that rescans its files, a list that grows, another job on the machine, a
        cache that is full, a device that is too hot.

    References:
        Bai (1994), "Least squares estimation of a shift in linear processes", Journal of Time Series Analysis.
    """

    code = "SYS005"
    name = "slowed-down"
    symptom = Symptom.THROUGHPUT
    kinds = ("step", "creep")
    headline = ("times",)
    since = "0.2.0"

    slower: Annotated[float, Threshold("times as long as before", "times", "benchmarks/pace.py", gt=1)] = 1.4
    lost: Annotated[float, Threshold("share of the run's time that it costs", "fraction", "design", gt=0, le=1)] = 0.08
    seconds: Annotated[float, Threshold("time that it costs", "seconds", "design", ge=0)] = 5.0
    earliest: Annotated[
        float, Threshold("share of the run that is a warm-up", "fraction", "benchmarks/pace.py", ge=0, le=0.5)
    ] = 0.1
    rest: Annotated[
        float, Threshold("share of the run that is slow, at its end", "fraction", "design", gt=0, le=0.5)
    ] = 0.1
    apart: Annotated[
        float, Threshold("share of the parts on its side", "fraction", "benchmarks/pace.py", gt=0.5, le=1)
    ] = 0.85
    min_points: Annotated[int, Threshold("points needed", "points", "design", ge=16)] = 24

    @property
    def needs(self) -> tuple[Need, ...]:
        others = ("step_time", "elapsed", "train_loss", "train_reward", "val_loss")
        beside = ("data_time", "workload", "response_length", "episode_length")
        return (Need(role="throughput", min_points=self.min_points, any_of=others), *Need.beside(*beside))

    def judge(self, evidence: Evidence) -> Finding:
        pace = pace_of(evidence, self.min_points)
        if pace is None:
            return Finding.skipped("neither a time per step nor the times of points were logged")
        spikes = spikes_of(pace)
        often = ""
        measured: dict[str, Measure] = {"times": 1.0}
        if spikes is not None and spikes.share >= self.lost:
            measured |= {"stalls": spikes.times, "stalls_every": spikes.every, "stalls_share": spikes.share}
            stalls = count(spikes.times, "step")
            often = f"; {stalls} at a regular distance took {percent(spikes.share)} of the time besides"
        slow = slow_down_of(pace, slower=self.slower, earliest=self.earliest, rest=self.rest, apart=self.apart)
        hours = hours_of(evidence, pace)
        if slow is None or slow.lost < self.lost or (hours is not None and hours * slow.lost * HOUR < self.seconds):
            return Finding.passed(f"steps took as long at the end as at the beginning{often}", measured)
        step = pace.step(slow.at)
        measured |= {"times": slow.times, "step": step, "lost_share": slow.lost}
        measured |= {"lost_hours": hours * slow.lost} if hours is not None else {}
        more = more_work(evidence, pace, slow)
        if self.case("more-work", bool(more)):
            return replace(Finding.passed(f"steps take longer, as {more}", measured), case="more-work")
        measured["data_share"] = waits_for_data(evidence, pace, slow)
        changed = what_changed(evidence, pace, step)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{_said(pace, slow)}, which cost {cost_in_words(slow.lost, hours)}{often}",
            remedy=f"look at what changed there{f': {changed}' if changed else ''}",
            measured=measured,
            details={"changed": changed, "by": pace.by, "series": pace.series.name},
            steps=(step,),
            kind="step" if slow.is_step else "creep",
            about=(pace.drawn.name,),
        )


def _said(pace: Pace, slow: SlowDown) -> str:
    unit = " s" if pace.in_seconds else ""
    before, after = (f"{number(one)}{unit}" for one in (slow.before, slow.after))
    where = pace.series.place(pace.step(slow.at))
    if pace.by == "throughput":
        before, after = number(1.0 / slow.before), number(1.0 / slow.after)
        how = (
            f"fell from {before} to {after} at {where}"
            if slow.is_step
            else f"fell from {before} to {after} from {where} on"
        )
        return f"the throughput {how} ({number(slow.times)} times as long for the same)"
    if slow.is_step:
        return f"a step took {after} instead of {before} from {where} on ({number(slow.times)} times as long)"
    return f"steps took longer and longer from {where} on: {after} instead of {before} at the end"
