"""The rules on live statistics while a training runs: those that can tell before its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from tracker_health.errors import named
from tracker_health.evidence import Evidence, FloatArray, IntArray, RunRef, Series, StepUnit
from tracker_health.monitor.background import Background
from tracker_health.monitor.measuring_errors import tell
from tracker_health.monitor.sinks import Found, Key
from tracker_health.rules.live.gap_dead_activation import GapDeadActivation
from tracker_health.rules.live.gap_exploding import GapExploding
from tracker_health.rules.live.gap_nonfinite import GapNonfinite
from tracker_health.rules.live.gap_saturated import GapSaturated
from tracker_health.rules.live.gap_zero_gradient import GapZeroGradient
from tracker_health.rules.probe import Probe
from tracker_health.words.gap_names import STATISTICS, metric
from tracker_health.words.verdict import Verdict

MIN_POINTS = 8
"""Measured steps before anything is said that has to last: twice as many as of a run that has ended."""

# Without GAP004, which asks the loss.
_RULES: tuple[Probe, ...] = (
    GapNonfinite(),
    GapZeroGradient(min_points=MIN_POINTS),
    GapDeadActivation(min_points=MIN_POINTS),
    GapExploding(min_points=MIN_POINTS),
    GapSaturated(min_points=MIN_POINTS),
)
_IN_A_ROW = 2
_SECONDS_BETWEEN_MARKS = 60.0
_REST = 100.0  # times as long as judging takes, before it is done again: it never takes more than a hundredth
_MOST_ROWS = 256


class GapJudge:
    """Judges what was measured so far, in a thread of its own: a sink for statistics.

    ``mark`` is called with ``warn`` or ``fail`` and why, once a minute at most. A rule must say so at two judgements in
    a row, and nothing as bad may have been marked before. ``stop_on``: at this verdict or worse ``should_stop`` becomes
    true. The judge and the training never wait for each other.
    """

    def __init__(self, mark: Callable[[str, str], object], stop_on: Verdict | None, *, rest: float = _REST) -> None:
        self.should_stop, self.reason = False, ""
        self._mark, self._stop_on, self._rest = mark, stop_on, rest
        self._history = MeasuredSteps()
        self._behind = Background("judging the run while it is running")
        self._before: dict[str, list[Verdict]] = {}
        self._worst, self._marked = Verdict.PASS, Verdict.PASS
        self._next = self._next_mark = 0.0
        self._told = False

    def write(self, step: int, found: Found, _: Mapping[Key, float]) -> None:
        """Take a measured step, and judge when that is due."""
        self._behind.put(lambda: self._take(step, found))

    def close(self) -> None:
        """Finish what is under way, and mark the run if that was put off."""
        self._behind.put(lambda: self._mark_run(now=None))
        self._behind.close()

    def _take(self, step: int, found: Found) -> None:
        self._history.add(step, found)
        if self._behind.idle and time.monotonic() >= self._next:
            start = time.monotonic()
            self._judge()
            end = time.monotonic()
            self._next = end + self._rest * (end - start)

    def _judge(self) -> None:
        evidence = Evidence(run=RunRef(store="live", id="", name=""), series=self._history.series())
        for rule in _RULES:
            try:
                finding = rule.judge(evidence)
            except Exception as error:  # noqa: BLE001  one rule's trouble is not the others'
                if not self._told:
                    tell(f"{rule.code} could not be judged: {named(error)}")
                self._told = True
                continue
            seen = [*self._before.get(rule.code, [])[1 - _IN_A_ROW :], finding.verdict]
            self._before[rule.code] = seen
            sure = min(seen, key=lambda one: one.rank) if len(seen) == _IN_A_ROW else Verdict.PASS
            if sure in (Verdict.WARN, Verdict.FAIL) and sure.rank > self._worst.rank:
                self._worst = sure
                self.reason = f"{rule.code} {rule.name}: {finding.message}"
                tell(f"{sure.upper()} while the run is still running: {self.reason}")
        self._stop()
        self._mark_run(time.monotonic())

    def _stop(self) -> None:
        self.should_stop = self._stop_on is not None and self._worst.rank >= self._stop_on.rank

    def _mark_run(self, now: float | None) -> None:
        if self._worst.rank <= self._marked.rank or (now is not None and now < self._next_mark):
            return
        self._marked = self._worst
        self._next_mark = (now or 0.0) + _SECONDS_BETWEEN_MARKS
        with suppress(Exception):  # a tracker out of reach shows itself
            self._mark(str(self._worst), self.reason)


class MeasuredSteps:
    """The statistics of the measured steps, in bounded memory: of a long run every other step is left out, again and
    again, but for the newest.
    """

    def __init__(self) -> None:
        self._places: dict[Key, int] = {}
        self._steps: list[int] = []
        self._rows: list[FloatArray] = []
        self._there: list[npt.NDArray[np.bool_]] = []

    def add(self, step: int, found: Found) -> None:
        """Take the statistics of a step."""
        for key in found:
            self._places.setdefault(key, len(self._places))
        row = np.full((len(self._places), 3), np.nan)
        there = np.zeros(row.shape, dtype=bool)
        for key, values in found.items():
            place = self._places[key]
            row[place] = [np.nan if value is None else value for value in values]
            there[place] = [value is not None for value in values]
        self._steps.append(step)
        self._rows.append(row)
        self._there.append(there)
        if len(self._rows) > _MOST_ROWS:
            left_out = slice(1, -(_MOST_ROWS // 4), 2)
            del self._steps[left_out], self._rows[left_out], self._there[left_out]

    def series(self) -> tuple[Series, ...]:
        """A series for each statistic of each tensor, as a tracker would have it."""
        steps = np.array(self._steps, dtype=np.int64)
        values = np.full((len(self._rows), len(self._places), 3), np.nan)
        there = np.zeros(values.shape, dtype=bool)
        for index, (row, known) in enumerate(zip(self._rows, self._there, strict=True)):
            values[index, : len(row)], there[index, : len(row)] = row, known
        return tuple(
            _series(kind, name, statistic, steps[known], values[known, place, index])
            for (kind, name), place in self._places.items()
            for index, statistic in enumerate(STATISTICS)
            if (known := there[:, place, index]).any()
        )


def _series(kind: str, name: str, statistic: str, steps: IntArray, values: FloatArray) -> Series:
    return Series(
        name=metric(kind, name, statistic),
        role=f"gap_{kind}",
        source="the training",
        step_unit=StepUnit.OPTIMIZER_STEP,
        steps=steps,
        values=values,
    )
