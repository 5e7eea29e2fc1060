"""The silences of a run that is looked at again and again: what is said once of each, and for how little reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from tracker_health.config import Config
from tracker_health.evidence import Evidence
from tracker_health.live.hang import Hang, HangJudge
from tracker_health.runs.run_end import add_silence
from tracker_health.stores.common.tracked_run import TrackedRun


class SilenceWatch:
    """One run, as long as it claims to be running. Of a silence its history is read once to know how long it may last,
    and once to say that it lasts longer.
    """

    def __init__(self, config: Config, every: float) -> None:
        """Begin with a run of which nothing is known. ``every``: seconds for which it must have been silent while it
        was looked at, too: the clock of its machine may be behind.
        """
        self._config, self._judge = config, HangJudge(config)
        self._seen_for = min(every, self._judge.floor)
        self._last: float | None = None
        self._since, self._limit = 0.0, self._judge.floor
        self._said = False

    @property
    def last(self) -> float:
        """When the last point came, in seconds since 1970."""
        return self._last or 0.0

    def look(self, opened: TrackedRun, changed: float, prepare: Callable[[Evidence], Evidence]) -> Hang | float | None:
        """Look at a run.

        Args:
            opened: The run.
            changed: When it was last seen to change, in seconds since 1970, for stores that know no times of points.
            prepare: Makes what was read evidence of a run that may still go on.

        Returns:
            A hang that is new; for how many seconds a run was silent that goes on after one; None for nothing to say.
        """
        pulse = opened.pulse()
        last, until = (changed, None) if pulse is None else (pulse.points, pulse.until)
        if last is None:
            return None
        if last != self._last:
            silence = last - self.last
            was_said, self._said = self._said, False
            self._last, self._since, self._limit = last, time.monotonic(), self._judge.floor
            return silence if was_said else None
        quiet = (time.time() if until is None else until) - last
        if self._said or quiet <= self._limit or time.monotonic() - self._since < self._seen_for:
            return None
        evidence = prepare(opened.read(self._judge.request))
        info = add_silence(opened, evidence.info, self._config.hang_after)
        info = replace(info, quiet_for=quiet) if pulse is None else info
        hang, limit = self._judge.look(replace(evidence, info=info))
        self._limit, self._said = limit if limit > quiet else inf, hang is not None
        return hang
