"""Whether a run that is still running stands still by its own rhythm: RUN007 alone, whatever else is judged. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Request
from tracker_health.judge.engine import configured_probes, diagnose, request_for
from tracker_health.live.verdicts import LiveFinding
from tracker_health.report.result import ProbeResult, Report
from tracker_health.rules.run.stands_still import StandsStill
from tracker_health.words.verdict import Verdict

CODE = StandsStill.code


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A run that stands still. ``report``: on that alone; ``result``: what RUN007 found."""

    report: Report
    result: ProbeResult

    @property
    def finding(self) -> LiveFinding:
        """The same as what is found of a run that is still running; it never stops one."""
        one = self.result
        return LiveFinding(
            step=max(one.steps, default=-1),
            verdict=one.verdict,
            code=one.code,
            name=one.name,
            message=one.message,
            remedy=one.remedy,
            cause=None,
        )


class HangJudge:
    """Judges silences under one configuration.

    ``floor``: seconds of silence for which nothing has to be read, infinite where nobody wants to hear of hangs.
    ``request``: what has to be read.
    """

    def __init__(self, config: Config) -> None:
        """Take the rule as it is set.

        Args:
            config: How to judge.

        Raises:
            ConfigError: the configuration makes no sense.
        """
        alone = frozenset({CODE})
        self._config = replace(config, select=alone, votes=alone, measure_only=frozenset(), baseline=None, siblings=())
        self._probes = configured_probes(self._config)
        self.request: Request = replace(request_for(self._probes, self._config), parts=frozenset())
        rules = [one for one in self._probes if isinstance(one, StandsStill)]
        known = rules[0].floor if rules else inf
        self.floor: float = known if config.hang_after is None or not rules else config.hang_after

    def look(self, evidence: Evidence) -> tuple[Hang | None, float]:
        """What is said of a silence.

        Args:
            evidence: Of the run, with its silence in ``info``.

        Returns:
            The hang, None where the silence is normal. And the longest silence in seconds that is normal; infinite
            where nothing is known of its rhythm.
        """
        report = diagnose(evidence, self._config, probes=self._probes)
        found = next((one for one in report.results if one.code == CODE), None)
        if found is None:
            return None, inf
        limit = float(found.measured.get("limit", inf))
        if found.verdict is not Verdict.WARN:
            return None, limit
        return Hang(report=replace(report, verdict=Verdict.WARN, diagnosis=None), result=found), limit
