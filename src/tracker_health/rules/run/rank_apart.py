"""RUN005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import RANK_ROLE, Evidence, Need, Part, beside
from tracker_health.facts.apart import Apart, Limits, left, stopped, turned_nonfinite
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import contrast, count, short_name
from tracker_health.words.verdict import Verdict

_ROLES = ("train_loss", "val_loss")


@dataclass(frozen=True, kw_only=True)
class RankApart(Probe):
    """One rank of a training of several processes left the others.

    What it finds:
        A rank whose loss is clearly outside of the others' for the rest of the run. Also one whose loss is NaN where
        theirs is finite, or ends long before theirs.

    Why it matters:
        Its gradients go into every update. A rank with broken data spoils all of the training. So does one that takes
        no part any more. The curve of rank 0 barely shows it.

    How it decides:
        The ranks are taken side by side in at most `blocks` parts of `block` steps or more. A rank has left where it
        stays on one side of the others' median to the end. That must be so for `rest` of the run, and for `fewest`
        parts or more, each by 1.5 standard errors. All together its distance must be above three standard errors, and
        above `spreads` times what the others are apart. It must also be above `least` of their level, to which `floor`
        of what their loss moved is added. That is a warning. So is a rank that logged nothing in the last `early` of
        the others' steps, and missed `points` of its own or more. A rank whose last `points` values are not finite
        fails, where the others' are.

    Known limits:
        Ranks that log nothing are not looked at: often only rank 0 logs. Of two ranks nobody can say which one left;
        the one with the higher loss is named. Two ranks that leave together are not found. Ranks that were never
        synchronised train equally well, each by itself, and are not found by their losses. A rank whose shard is much
        harder than all others looks like one whose data is broken.

    Worked example:
        rank 0: 1*15
        rank 1: 1*15
        rank 2: 2*15
        gives: rank 2, share 1, step 0
        warn: rank 2 is 1 above the others' level of 1, which is more than `least` of it, and stays so to the end.

    What to do:
        Compare the rank's shard of the data with the others': labels, order, decoding. Look at its console and its
        device, and see whether its process still takes part.

    References:
        Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB.
    """

    code = "RUN005"
    name = "rank-apart"
    symptom = Symptom.ODD_ONE_OUT
    kinds = ("nonfinite", "left", "stopped")
    headline = ("share",)
    since = "0.2.0"

    least: Annotated[
        float, Threshold("distance from the others, over their level, that counts", "fraction", "benchmarks/ranks.py",
                         gt=0)
    ] = 0.25  # fmt: skip
    floor: Annotated[
        float, Threshold("share of what the loss moved that is added to the level", "fraction", "benchmarks/ranks.py",
                         ge=0)
    ] = 0.1  # fmt: skip
    spreads: Annotated[float, Threshold("distance, in times of how far the others are apart", "", "design", ge=1)] = 4.0
    blocks: Annotated[int, Threshold("parts that curves are compared in, at most", "", "design", ge=4)] = 20
    block: Annotated[int, Threshold("steps in a part, at least", "points", "design", ge=3)] = 5
    rest: Annotated[
        float, Threshold("share of the run that a rank is apart, at the end", "fraction", "design", gt=0, le=1)
    ] = 0.2
    fewest: Annotated[int, Threshold("parts in which a rank is apart, at least", "parts", "design", ge=2)] = 3
    early: Annotated[
        float, Threshold("share of the others' steps that a rank which stopped has not", "fraction", "design", gt=0,
                         le=1)
    ] = 0.1  # fmt: skip
    points: Annotated[int, Threshold("points that are no accident", "points", "design", ge=1)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.RANKS, min_points=2, unit="ranks"), *Need.beside(*_ROLES, RANK_ROLE))

    def judge(self, evidence: Evidence) -> Finding:
        several = list(beside(evidence.side_by_side, _ROLES))
        if not several:
            return Finding.skipped("no two of its ranks logged the same loss")
        limits = Limits(
            least=self.least,
            floor=self.floor,
            spreads=self.spreads,
            blocks=self.blocks,
            block=self.block,
            rest=self.rest,
            fewest=self.fewest,
        )
        for one in (apart for both in several for apart in turned_nonfinite(both, self.points)):
            message = f"rank {one.rank} is not finite from {one.where} on, where the others are: {_levels(one)}"
            return _found(Verdict.FAIL, "nonfinite", message, one)
        out = [apart for both in several for apart in left(both, limits)]
        if out:
            # Of two ranks each is as far from the other.
            worst = max(out, key=lambda apart: (round(apart.share, 1), apart.level))
            message = f"rank {worst.rank} left the others from {worst.where}: {_levels(worst)}"
            return _found(Verdict.WARN, "left", message, worst)
        gone = [apart for both in several for apart in stopped(both, self.early, self.points)]
        if gone:
            one = max(gone, key=lambda apart: apart.share)
            message = f"rank {one.rank} logged nothing after {one.where}, and the others went on: {_levels(one)}"
            return _found(Verdict.WARN, "stopped", message, one)
        ranks = count(max(len(both.numbers) for both in several), "rank")
        return Finding.passed(f"the losses of {ranks} stay together")


def _levels(one: Apart) -> str:
    own, others = contrast(one.level, one.theirs)
    return f"its {short_name(one.metric)} is {own}, theirs {others}"


def _found(verdict: Verdict, kind: str, message: str, one: Apart) -> Finding:
    return Finding(
        verdict=verdict,
        message=message,
        remedy="compare its shard of the data, its console and its device with those of the others",
        measured={"rank": one.rank, "share": one.share, "step": one.step},
        steps=(one.step,),
        kind=kind,
    )
