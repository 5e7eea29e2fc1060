"""Which rules may speak while a run is still running, and from when on.

A rule about a whole run is often wrong about its beginning: what has not come down yet may still do. By these rules, at
these moments, almost no beginning of a healthy run was flagged: ``benchmarks/faults prefixes`` counts that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracker_health.report.result import ProbeResult
from tracker_health.words.verdict import Verdict

FACT_GROWTH, SHAPE_GROWTH = 1.1, 1.2
"""By how much the history must grow while a finding stands, until it counts."""
FEWEST_POINTS, EARLY_POINTS, EARLY_SHARE, LATE_SHARE = 8, 16, 0.1, 0.3


@dataclass(frozen=True, kw_only=True)
class When:
    """When a finding counts while a run is still running.

    ``least``: the verdict that it must have. ``growth``: the history must become so many times as long while the
    finding stands. ``points``: of a history of fewer nothing counts. ``share``: nor before that share of the plan;
    ``needs_plan``: and nothing counts where the plan is not known. ``lasting``: it must go on to the last point, after
    better ones (a NaN that was skipped does no harm); ``throughout``: or be of every point.
    """

    least: Verdict = Verdict.WARN
    growth: float = FACT_GROWTH
    points: int = FEWEST_POINTS
    share: float = 0.0
    needs_plan: bool = False
    lasting: bool = False
    throughout: bool = False

    def counts(self, result: ProbeResult, points: int, share: float | None, *, growth: float) -> bool:
        """Whether a finding counts.

        Args:
            result: The finding.
            points: Of the history, in rows.
            share: Of the plan that is done, from 0 to 1; None where the plan is not known.
            growth: How many times as long the history is as when the finding was first seen.

        Returns:
            True where it does.
        """
        if result.verdict.rank < self.least.rank or points < self.points or growth < self.growth:
            return False
        if (self.lasting and result.onset is None) or (self.throughout and result.measured.get("share") != 1.0):
            return False
        return not self.needs_plan if share is None else share >= self.share


_ALWAYS = (When(),)
_LASTING = (When(lasting=True),)
_NAN = (*_LASTING, When(points=EARLY_POINTS, throughout=True))
_LATE = (When(growth=SHAPE_GROWTH, points=EARLY_POINTS, share=LATE_SHARE, needs_plan=True),)
_EARLY = (When(growth=SHAPE_GROWTH, points=EARLY_POINTS, share=EARLY_SHARE),)
_EARLY_FAILED = (When(least=Verdict.FAIL, growth=SHAPE_GROWTH, points=EARLY_POINTS, share=EARLY_SHARE),)

LIVE_RULES: Mapping[str, tuple[When, ...]] = {
    # NaN, infinity, and zeros in their place
    "LOS001": _NAN, "LOS002": _ALWAYS, "GRD001": _LASTING, "AMP001": _ALWAYS,
    # gradients that vanish or explode, and a learning rate of 0
    "GRD002": _ALWAYS, "GRD004": _ALWAYS, "LRS001": _EARLY_FAILED,
    # spikes, a start far above guessing, sorted data, a batch that repeats
    "LOS003": _ALWAYS, "LOS009": _ALWAYS, "LOS010": _ALWAYS, "LOS013": _ALWAYS,
    # held-out samples next to training
    "GEN001": _EARLY, "GEN002": _ALWAYS, "GEN004": _ALWAYS, "GEN005": _ALWAYS,
    # the loss went up and stayed there
    "LOS004": (*_EARLY_FAILED, *_LATE),
    # by a third of the plan: nothing was learnt, or the loss goes up and down, or its size does not fit the accuracy
    "LOS005": _LATE, "LOS006": _LATE, "LOS008": _LATE, "LOS012": _LATE, "GEN003": _LATE, "GEN007": _LATE,
    # above the band of healthy runs; a baseline that is not frozen is informational
    "CMP001": _EARLY,
}  # fmt: skip


def share_known(share: float | None, first_step: int, last_step: int) -> float | None:
    """The share of the plan, where the history shows the run from about its beginning.

    A training that continues from a checkpoint was at its level before its first point: what it learnt does not show.

    Args:
        share: Of the plan that is done by the last step, from 0 to 1; None where the plan is not known.
        first_step: Of the history.
        last_step: Of the history.

    Returns:
        The share; None where more than a tenth of the plan was done before the first step.
    """
    if share is None or (last_step > 0 and share * first_step / last_step > EARLY_SHARE):
        return None
    return share


class Standing:
    """Findings as they stand from one look at a growing history to the next."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, Verdict], int] = {}

    def after(self, results: Iterable[ProbeResult], points: int, share: float | None) -> list[ProbeResult]:
        """Take what a look found, and say what counts by now.

        Args:
            results: What the live rules found.
            points: Of the history, in rows.
            share: Of the plan that is done, from 0 to 1; None where the plan is not known.

        Returns:
            The findings that stood for long enough, the worst first.
        """
        # A fail that turns into a warn has stood as a warn all along.
        now = [
            (result, level)
            for result in results
            if result.votes and result.code in LIVE_RULES
            for level in (Verdict.WARN, Verdict.FAIL)
            if result.verdict in (Verdict.WARN, Verdict.FAIL) and result.verdict.rank >= level.rank
        ]
        self._since = {(result.code, level): self._since.get((result.code, level), points) for result, level in now}
        stood = [
            result
            for result, level in now
            if level is result.verdict
            and any(
                when.counts(result, points, share, growth=points / self._since[result.code, level])
                for when in LIVE_RULES[result.code]
            )
        ]
        return sorted(stood, key=lambda one: (-one.verdict.rank, one.code))
