"""The silences of a run that is looked at again and again: what is said once of each, and for how little reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

from tracker_health.config import Config, changed
from tracker_health.evidence import Evidence
from tracker_health.judge.messages import Notice
from tracker_health.live.hang import Hang, HangJudge
from tracker_health.runs.due_messages import silence_notice
from tracker_health.runs.parallel import in_threads
from tracker_health.runs.run_config import config_for_run
from tracker_health.runs.run_end import add_silence, find_end
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import SweptRun


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
            A hang that is new; for how many seconds a run was silent that continues after one; None for nothing to say.
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


@dataclass(frozen=True, kw_only=True)
class HungRun:
    """A run that stands still, as a sweep sees it. ``is_new``: it was not so at the pass before."""

    name: str
    hang: Hang
    is_new: bool
    notice: Notice | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        one = self.hang.result
        measured: Mapping[str, Any] = one.measured
        return {
            "schema": "tracker-health/silence/1",
            "run": asdict(self.hang.report.run),
            "code": one.code,
            "name": one.name,
            "kind": one.kind,
            "message": one.message,
            "step": max(one.steps, default=None),
            "silence": measured.get("silence"),
            "limit": measured.get("limit"),
        }


@dataclass(frozen=True, kw_only=True)
class _Looked:
    """What is known of a run's silence since its last point, in seconds since 1970. ``again``: nothing new before."""

    last: float
    again: float
    hang: Hang | None = None


@dataclass(kw_only=True)
class Silences:
    """The silences of the running runs that a sweep comes by, from pass to pass: of each a history is read once or
    twice. ``runs``: those of this pass.
    """

    config: Config
    tracking_uri: str | None = None
    runs: list[SweptRun] = field(default_factory=list)
    _known: dict[str, _Looked] = field(default_factory=dict, repr=False)

    @property
    def floor(self) -> float:
        """The shortest silence in seconds that may be too long for a run; infinite where nobody asks for hangs."""
        settings = [changed(self.config, one.changes) for one in self.config.overrides]
        return min(HangJudge(one).floor for one in (self.config, *settings))

    def look(self, workers: int) -> Iterator[HungRun]:
        """The runs of this pass that stand still."""
        runs, self.runs = self.runs, []
        self._known = {run.name: self._known[run.name] for run in runs if run.name in self._known}
        yield from (one for one in in_threads(self._look, runs, workers) if one is not None)

    def _look(self, run: SweptRun) -> HungRun | None:
        known = self._known.get(run.name)
        if known is not None and known.last == run.since and (known.hang is not None or time.time() < known.again):
            return None if known.hang is None else HungRun(name=run.name, hang=known.hang, is_new=False)
        try:
            with closing(run.open()) as opened:
                return self._judge(run.name, opened, known)
        except Exception:  # noqa: BLE001  a run that cannot be read now is looked at by the next pass
            return None

    def _judge(self, name: str, opened: TrackedRun, known: _Looked | None) -> HungRun | None:
        pulse, settings = opened.pulse(), config_for_run(self.config, opened)
        if pulse is None or pulse.points is None:
            return None
        last, now = pulse.points, time.time()
        if known is not None and known.last == last and (known.hang is not None or now < known.again):
            return None if known.hang is None else HungRun(name=name, hang=known.hang, is_new=False)
        judge, end = HangJudge(settings), find_end(opened, settings.stale_after)
        self._known[name] = _Looked(last=last, again=last + judge.floor)
        if now - last <= judge.floor or end.seen is not None or end.silent_for is not None:
            return None
        evidence = opened.read(judge.request)
        evidence = replace(evidence, info=add_silence(opened, evidence.info, settings.hang_after))
        hang, limit = judge.look(evidence) if evidence.goes_on else (None, inf)
        again = last + limit if last + limit > now else inf
        self._known[name] = _Looked(last=last, again=again, hang=hang)
        if hang is None:
            return None
        notice = silence_notice(opened, name, hang.report, settings, since=last, tracking_uri=self.tracking_uri)
        return HungRun(name=name, hang=hang, is_new=True, notice=notice)
