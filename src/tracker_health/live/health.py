"""Judge a run by what it has logged so far, from inside its training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tracker_health.config import Config, preset
from tracker_health.diagnosed import Diagnosis
from tracker_health.engine import configured_probes, diagnose, request_for
from tracker_health.errors import ConfigError, named
from tracker_health.evidence import Evidence, RunInfo, RunRef
from tracker_health.live.history import History
from tracker_health.live.rules import LIVE_RULES, Standing
from tracker_health.monitor.notices import tell
from tracker_health.result import ProbeResult, Report
from tracker_health.verdict import Verdict

FEWEST_POINTS = 4
"""Before so many rows nothing is judged."""
GROWTH = 1.05
"""Judged again when the history has become so many times as long: the cost of all looks stays in proportion to it."""
SECONDS = 60.0
REST = 20.0
"""So many times as long as a look took nothing is judged again: looks take a twentieth of the time at most."""
_PLAN_PARAM = "max_steps"


@dataclass(frozen=True, kw_only=True)
class LiveFinding:
    """What is wrong with a run that goes on.

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
        cause = f"{self.cause.cause} ({self.cause.certainty}); " if self.cause is not None else ""
        return f"{self.verdict.upper()} at step {self.step}: {cause}{self.code} {self.name}: {self.message}"


class LiveHealth:
    """The rules on curves and gradients, over what has been logged so far.

    ``report`` is the newest judgement: that of ``check`` on the same history with these rules alone. A finding is
    given out once it has stood while the history grew: see ``live.rules``. ``should_stop`` is for the training loop to
    ask; nothing is ever raised or stopped by itself.

        health = LiveHealth(plan=10_000)
        for step, batch in enumerate(data):
            loss = train(batch)
            if health.step(step=step, loss=loss) and health.should_stop:
                break
    """

    def __init__(
        self,
        *,
        plan: float | None = None,
        params: Mapping[str, Any] | None = None,
        config: Config | str = "default",
        stop_on: str | None = "fail",
        dry_run: bool = False,
        seconds: float = SECONDS,
        rest: float = REST,
        on_finding: Callable[[LiveFinding], object] | None = None,
    ) -> None:
        """Begin with an empty history.

        Args:
            plan: The last step that the run is meant to reach, in the unit of ``step``.
            params: Settings of the run (``learning_rate``, ``num_classes``, ...), which some rules ask for.
            config: How to judge: a ``Config``, or the name of a preset. Its ``baseline`` is what is usual.
            stop_on: ``"fail"`` or ``"warn"``: at such a finding ``should_stop`` becomes true; None for never.
            dry_run: Say what would stop the run, and let it go on.
            seconds: So long after a look another one is due at the latest, if something was logged since.
            rest: Times as long as a look took, before another one; 0 to look whenever the history has grown.
            on_finding: Is given each finding, once.

        Raises:
            ConfigError: an argument makes no sense.
        """
        if stop_on not in (None, "warn", "fail"):
            raise ConfigError(f'stop_on={stop_on!r}: it must be "warn", "fail" or None')
        if plan is not None and not (math.isfinite(plan) and plan > 0):
            raise ConfigError(f"plan={plan!r}: it must be the last step, a positive number")
        base = preset(config) if isinstance(config, str) else config
        self._config = replace(base, select=base.select & _LIVE or _LIVE)
        self._probes = configured_probes(self._config)
        self._request = request_for(self._probes, self._config)
        self._plan, self._seconds, self._rest = plan, seconds, rest
        self._params = {str(name): str(value) for name, value in (params or {}).items() if value is not None}
        if plan is not None:
            self._params.setdefault(_PLAN_PARAM, f"{plan:g}")
        self._stop_on = Verdict(stop_on) if stop_on else None
        self._dry_run, self._on_finding = dry_run, on_finding
        self._history = History(self._request.select_names, "the training")
        self._standing = Standing()
        self._told: dict[str, Verdict] = {}
        self._next_points, self._rested, self._next_time = float(FEWEST_POINTS), 0.0, math.inf
        self._broken = False
        self.findings: list[LiveFinding] = []
        self.should_stop, self.stopped_by = False, None

    report: Report | None = None
    """The newest judgement, None before the first."""
    should_stop: bool
    stopped_by: LiveFinding | None
    """The finding that a training should stop for, or would have to in a dry run."""

    def step(self, *, step: int | None = None, **metrics: Any) -> LiveFinding | None:
        """Take what was logged at a step, and judge if that is due.

        Args:
            step: Counts up; by default from 0 with each call.
            **metrics: Numbers by name: ``loss``, ``val_loss``, ``grad_norm``, ``learning_rate``, ...

        Returns:
            A finding that is new, the worst of several; else None.
        """
        return self.log(metrics, step)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> LiveFinding | None:
        """As ``step``, for names that are no Python names (``train/loss``). What is no number is passed over."""
        if self._broken:
            return None
        try:
            at = self._history.last_step + 1 if step is None else int(step)
            broke = self._history.add(_numbers(metrics), at)
            return self._look() if broke or self._is_due() else None
        except Exception as error:  # noqa: BLE001  whatever is wrong in here, the training goes on
            self._broken = True
            tell(f"the training goes on without being judged: {named(error)}")
            return None

    def _is_due(self) -> bool:
        now = time.monotonic()
        return now >= (self._rested if self._history.points >= self._next_points else self._next_time)

    def look(self) -> LiveFinding | None:
        """Judge now, whether that is due or not.

        Returns:
            As ``step``.
        """
        return None if self._broken else self._look()

    def _look(self) -> LiveFinding | None:
        points = self._history.points
        if points < FEWEST_POINTS:
            return None
        begin = time.monotonic()
        evidence = self._evidence()
        self.report = diagnose(evidence, self._config, probes=self._probes)
        end = time.monotonic()
        self._next_points = max(points + 1, points * GROWTH)
        self._rested = end + self._rest * (end - begin)
        self._next_time = max(end + self._seconds, self._rested)
        standing = self._standing.after(self.report.results, points, self.share)
        fresh = [one for one in standing if one.verdict.rank > self._told.get(one.code, Verdict.PASS).rank]
        found = [self._found(one, self.report) for one in fresh]
        return found[0] if found else None

    @property
    def share(self) -> float | None:
        """How much of the plan is done, from 0 to 1; None without a plan."""
        return None if self._plan is None else min(1.0, self._history.last_step / self._plan)

    def _evidence(self) -> Evidence:
        names = self._history.names
        series, notes = self._request.confirm(self._history.series(), names)
        info = RunInfo(status="RUNNING", tracker="the training", params=self._params, metric_names=names)
        ref = RunRef(store="live", id="", name="the training")
        return Evidence(run=ref, info=info, series=series, notes=notes, baseline=self._config.baseline)

    def _found(self, result: ProbeResult, report: Report) -> LiveFinding:
        self._told[result.code] = result.verdict
        stops = self._stop_on is not None and self.stopped_by is None and result.verdict.rank >= self._stop_on.rank
        finding = LiveFinding(
            step=self._history.last_step,
            verdict=result.verdict,
            code=result.code,
            name=result.name,
            message=result.message,
            remedy=result.remedy,
            cause=report.diagnosis,
            stops=stops,
        )
        self.findings.append(finding)
        if stops:
            self.stopped_by, self.should_stop = finding, not self._dry_run
        if self._on_finding is not None:
            self._on_finding(finding)
        return finding


_LIVE = frozenset(LIVE_RULES)


def _numbers(metrics: Mapping[str, Any]) -> Mapping[str, float]:
    """Of what was logged the numbers, also those in tensors of one value."""
    if all(value.__class__ is float for value in metrics.values()):
        return metrics
    numbers = {}
    for name, value in metrics.items():
        if not isinstance(value, (str, bytes, bool)):
            with suppress(TypeError, ValueError, RuntimeError, OverflowError):
                numbers[str(name)] = float(value)
    return numbers
