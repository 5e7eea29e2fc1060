"""A run as it is compared with another: its report, and what that was judged by."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.evidence import Curve, Evidence
from tracker_health.judge.pass_reason import RISES
from tracker_health.report.result import ProbeResult, Report
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

_NAME = 80


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """One run of a comparison. ``name``: unlike that of the others."""

    report: Report
    evidence: Evidence
    name: str

    @property
    def shown(self) -> str:
        """The name, safe to print."""
        return printable(self.name, _NAME)

    @property
    def found(self) -> dict[str, ProbeResult]:
        """The findings with a vote, by code, the worst first."""
        return {one.code: one for one in self.report.findings if one.verdict in (Verdict.WARN, Verdict.FAIL)}

    @property
    def head(self) -> ProbeResult | None:
        """The finding that heads the report."""
        return next((one for one in self.report.headline_first if one.code in self.found), None)

    def falling(self, role: str) -> Curve | None:
        """The curve of a role, turned so that lower is better."""
        curve = self.evidence.curve(role)
        return curve.upside_down if curve is not None and role in RISES else curve
