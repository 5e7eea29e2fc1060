"""SYS004."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import RANK_ROLE, Beside, Evidence, Need, Part, beside
from tracker_health.evidence.numerics import median
from tracker_health.facts.apart import Apart, Limits, left
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, count, percent, short_name
from tracker_health.words.verdict import Verdict

_STEP, _DATA, _THROUGHPUT = "step_time", "data_time", "throughput"


class _Slow(NamedTuple):
    role: str
    rank: Apart
    share: float


@dataclass(frozen=True, kw_only=True)
class SlowRank(Probe):
    """One rank of a training of several processes is slower than the others.

    What it finds:
        A rank whose steps, or whose waits for data, take clearly longer than the others' for the rest of the run. Also
        one with a clearly lower throughput.

    Why it matters:
        Ranks that average their gradients wait for the slowest one in every step. All devices are then as slow as that
        one, and all but one are idle for the difference.

    How it decides:
        The ranks are taken side by side in at most `blocks` parts of `block` steps or more. A rank is slow where it
        stays on the slow side of the others' median to the end. That must be so for `rest` of the run, and for `fewest`
        parts or more, each by 1.5 standard errors. All together its distance must be above three standard errors, and
        above `spreads` times what the others are apart. It must also be above `least` of a step: of the others' own
        time of a step, or of their throughput. A time for data is compared with the time of whole steps, and not judged
        where that was not logged.

    Known limits:
        Ranks that wait for each other have the same time of a whole step: the time for data shows the slow one, and a
        slow device shows only in a time that is measured before the gradients are averaged. Two ranks that are slow
        together are not found. Of two ranks the slower one is named. In a table, rows of ranks must all have the same
        columns.

    Worked example:
        rank 0 step_time: 0.5*15
        rank 1 step_time: 0.5*15
        rank 2 step_time: 0.8*15
        gives: rank 2, share 0.6, step 0
        warn: rank 2 takes 0.3 s more than the others' 0.5 s, which is more than `least` of it, to the end.

    What to do:
        Look at that rank's machine: its data loader and disk, the clock and the temperature of its device, another job.
        Then at its shard: longer samples take longer.

    References:
        Jiang et al. (2024), "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI.
    """

    code = "SYS004"
    name = "slow-rank"
    symptom = Symptom.THROUGHPUT
    kinds = ("step", "data")
    headline = ("share",)
    since = "0.2.0"

    least: Annotated[
        float, Threshold("time that a rank takes longer, over that of a step", "fraction", "benchmarks/ranks.py", gt=0)
    ] = 0.2  # fmt: skip
    spreads: Annotated[float, Threshold("distance, in times of how far the others are apart", "", "design", ge=1)] = 4.0
    blocks: Annotated[int, Threshold("parts that curves are compared in, at most", "", "design", ge=4)] = 20
    block: Annotated[int, Threshold("steps in a part, at least", "points", "design", ge=3)] = 5
    rest: Annotated[
        float, Threshold("share of the run that a rank is slow, at the end", "fraction", "design", gt=0, le=1)
    ] = 0.2
    fewest: Annotated[int, Threshold("parts in which a rank is slow, at least", "parts", "design", ge=2)] = 3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.RANKS, min_points=2, unit="ranks"),
            *Need.beside(_STEP, _DATA, _THROUGHPUT, RANK_ROLE),
        )

    def judge(self, evidence: Evidence) -> Finding:
        several = list(beside(evidence.side_by_side, (_STEP, _DATA, _THROUGHPUT)))
        steps = [level for one in several if one.role == _STEP and (level := _level(one)) is not None]
        step = max(steps, default=None)
        judged = [one for one in several if one.role != _DATA or step]
        if not judged:
            return Finding.skipped("no two of its ranks logged a time of whole steps, or a throughput")
        slow = max(
            (found for one in judged for found in self._slow(one, step)), key=lambda one: one.share, default=None
        )
        if slow is None:
            ranks = count(max(len(both.numbers) for both in judged), "rank")
            return Finding.passed(f"the times of {ranks} stay together")
        own, others = contrast(slow.rank.level, slow.rank.theirs)
        return Finding(
            verdict=Verdict.WARN,
            message=f"rank {slow.rank.rank} is slower than the others from {slow.rank.where}: its "
            f"{short_name(slow.rank.metric)} is {own}, theirs {others}; that is {percent(slow.share)} of a step",
            remedy="compare its data loader, its device and its shard of the data with those of the others",
            measured={"rank": slow.rank.rank, "share": slow.share, "step": slow.rank.step},
            steps=(slow.rank.step,),
            kind="data" if slow.role == _DATA else "step",
        )

    def _slow(self, both: Beside, step: float | None) -> Iterator[_Slow]:
        limits = Limits(
            least=0.0,
            floor=0.0,
            spreads=self.spreads,
            blocks=self.blocks,
            block=self.block,
            rest=self.rest,
            fewest=self.fewest,
        )
        for one in left(both, limits):
            longer = one.theirs - one.level if both.role == _THROUGHPUT else one.level - one.theirs
            whole = step if both.role == _DATA and step is not None else one.theirs
            if whole > 0 and longer / whole >= self.least:
                yield _Slow(both.role, one, longer / whole)


def _level(both: Beside) -> float | None:
    """The median of a metric over all ranks and steps."""
    values = both.values[np.isfinite(both.values)]
    return median(values) if len(values) else None
