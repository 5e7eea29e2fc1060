"""Which rules may speak while a run goes on, and from when on.

A rule about a whole run is often wrong about its beginning: what has not come down yet may still do. These are the
rules that were hardly ever wrong about any beginning of a healthy run; ``benchmarks/faults prefixes`` counts that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracker_health.result import ProbeResult
from tracker_health.verdict import Verdict

FACT_GROWS, SHAPE_GROWS = 1.1, 1.2
"""By how much the history must grow while a finding stands, until it counts. The end of a run, where one NaN is enough
to fail, is a twentieth of it: a NaN that was skipped has left it by then."""
_SHAPE_POINTS = 16
_SHAPE_SHARE, _UNTAUGHT_SHARE = 0.1, 0.3


@dataclass(frozen=True, kw_only=True)
class LiveRule:
    """When a finding of a rule counts while a run goes on.

    ``least``: the verdict that it must have. ``grows``: the history must become so many times as long while the finding
    stands. ``points``: of a history of fewer nothing counts. ``share``: nor before that share of the plan;
    ``needs_plan``: and nothing counts where the plan is not known.
    """

    least: Verdict = Verdict.WARN
    grows: float = FACT_GROWS
    points: int = 0
    share: float = 0.0
    needs_plan: bool = False

    def counts(self, verdict: Verdict, points: int, share: float | None, *, stood: float) -> bool:
        """Whether a finding counts.

        Args:
            verdict: Of the finding: warn or fail.
            points: Of the history, in rows.
            share: Of the plan that is done, from 0 to 1; None where the plan is not known.
            stood: How many times as long the history is as when the finding was first seen.

        Returns:
            True where it does.
        """
        if verdict.rank < self.least.rank or points < self.points or stood < self.grows:
            return False
        return not self.needs_plan if share is None else share >= self.share


_FACT = LiveRule()
_SHAPE = LiveRule(grows=SHAPE_GROWS, points=_SHAPE_POINTS, share=_SHAPE_SHARE)
_FAILED_SHAPE = LiveRule(least=Verdict.FAIL, grows=SHAPE_GROWS, points=_SHAPE_POINTS, share=_SHAPE_SHARE)
_UNTAUGHT = LiveRule(least=Verdict.FAIL, grows=SHAPE_GROWS, share=_UNTAUGHT_SHARE, needs_plan=True)

LIVE_RULES: dict[str, LiveRule] = {
    # NaN, infinity, and zeros in their place
    "LOS001": _FACT, "LOS002": _FACT, "GRD001": _FACT, "AMP001": _FACT,
    # gradients
    "GRD002": _FACT, "GRD004": _FACT,
    # spikes, a batch that repeats, a start far above guessing, sorted data
    "LOS003": _FACT, "LOS009": _FACT, "LOS010": _FACT, "LOS013": _FACT,
    # held-out samples beside training
    "GEN001": _SHAPE, "GEN002": _FACT, "GEN004": _FACT, "GEN005": _FACT,
    # the loss went up and stayed there; the learning rate is 0
    "LOS004": _FAILED_SHAPE, "LRS001": LiveRule(least=Verdict.FAIL),
    # nothing was learnt by a third of the plan
    "LOS005": _UNTAUGHT, "LOS006": _UNTAUGHT, "GEN003": _UNTAUGHT,
    # above the band of healthy runs; it has a vote against a frozen baseline alone
    "CMP001": _SHAPE,
}  # fmt: skip


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
            (one, level)
            for one in results
            if one.votes and one.code in LIVE_RULES
            for level in (Verdict.WARN, Verdict.FAIL)
            if one.verdict in (Verdict.WARN, Verdict.FAIL) and one.verdict.rank >= level.rank
        ]
        self._since = {(one.code, level): self._since.get((one.code, level), points) for one, level in now}
        stood = [
            one
            for one, level in now
            if level is one.verdict
            and LIVE_RULES[one.code].counts(level, points, share, stood=points / self._since[one.code, level])
        ]
        return sorted(stood, key=lambda one: (-one.verdict.rank, one.code))
