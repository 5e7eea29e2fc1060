"""The live rules over a history that grows: what counts by now, and what its training should stop for. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Request
from tracker_health.judge.engine import configured_probes, diagnose, request_for
from tracker_health.live.rules import LIVE_RULES, Standing
from tracker_health.report.result import ProbeResult, Report
from tracker_health.roles import VAL_LOSS
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.stopped import Stop
from tracker_health.words.verdict import Verdict

FEWEST_POINTS = 4
"""Before so many rows nothing is judged."""
GROWTH = 1.05
"""Judged again when the history has become so many times as long: the cost of all looks stays in proportion to it."""


@dataclass(frozen=True, kw_only=True)
class LiveFinding:
    """What is wrong with a run that is still running.

    ``step``: the last step that was logged when it was found. ``cause``: of the run as far as it is known, or None.
    ``stops``: this finding is why the training should stop.
    """

    step: int
    verdict: Verdict
    code: str
    name: str
    message: str
    remedy: str
    cause: Diagnosis | None
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.verdict.upper()} at step {self.step}: {self._with_cause('; ')}"

    def _with_cause(self, separator: str) -> str:
        cause = f"{self.cause.cause} ({self.cause.certainty}){separator}" if self.cause is not None else ""
        return f"{cause}{self.code} {self.name}: {self.message}"

    def stop(self, when: float) -> Stop:
        """What is put onto a run that stops for this finding, or is asked to.

        Args:
            when: In seconds since 1970.

        Returns:
            The step, the rule and the cause, and both in one sentence.
        """
        return Stop(
            step=self.step,
            verdict=str(self.verdict),
            code=self.code,
            cause=self.cause.cause if self.cause is not None else "",
            reason=self._with_cause(": "),
            when=when,
        )


class LiveJudge:
    """Judges one run again and again, from the beginning of its history to more and more of it.

    ``report``: the newest judgement, None before the first. It is that of ``check`` on the same history with the live
    rules alone, without held-out losses that have no number yet. ``findings``: those that counted so far.
    """

    def __init__(self, config: Config, stop_on: Verdict | None) -> None:
        """Begin with no history.

        Args:
            config: How to judge; of its rules the live ones run. Its ``baseline`` is what is usual.
            stop_on: The training should stop at such a finding, or a worse one; None for never.

        Raises:
            ConfigError: the configuration makes no sense.
        """
        self.config = replace(config, select=config.select & _LIVE or _LIVE)
        self._probes = configured_probes(self.config)
        self.request: Request = request_for(self._probes, self.config)
        self.report: Report | None = None
        self.findings: list[LiveFinding] = []
        self._stop_on, self._stopped = stop_on, False
        self._standing = Standing()
        self._told: dict[str, Verdict] = {}

    def look(self, evidence: Evidence, *, points: int, step: int, share: float | None) -> list[LiveFinding]:
        """Judge what there is by now.

        Args:
            evidence: The whole history so far.
            points: How many rows that is.
            step: The last one.
            share: Of the plan that is done, from 0 to 1; None where the plan is not known.

        Returns:
            Findings that are new and stood for long enough, the worst first.
        """
        self.report = report = diagnose(_measured(evidence), self.config, probes=self._probes)
        standing = self._standing.after(report.results, points, share)
        fresh = [one for one in standing if one.verdict.rank > self._told.get(one.code, Verdict.PASS).rank]
        return [self._found(one, report, step) for one in fresh]

    def _found(self, result: ProbeResult, report: Report, step: int) -> LiveFinding:
        self._told[result.code] = result.verdict
        stops = self._stop_on is not None and not self._stopped and result.verdict.rank >= self._stop_on.rank
        self._stopped |= stops
        finding = LiveFinding(
            step=step,
            verdict=result.verdict,
            code=result.code,
            name=result.name,
            message=result.message,
            remedy=result.remedy,
            cause=report.diagnosis,
            stops=stops,
        )
        self.findings.append(finding)
        return finding


def _measured(evidence: Evidence) -> Evidence:
    """The evidence without held-out losses that have no number yet: some trainings log NaN until they evaluate."""
    there = (one for one in evidence.series if one.role != VAL_LOSS or one.nonfinite < len(one))
    return replace(evidence, series=tuple(there))


_LIVE = frozenset(LIVE_RULES)
