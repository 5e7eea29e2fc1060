"""What the live rules say of a run that is looked at once: its newest stretch is gone through again, look by look."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tracker_health.config import Config
from tracker_health.evidence import Evidence, IntArray, Series
from tracker_health.live.rules import share_known
from tracker_health.live.verdicts import FEWEST_POINTS, GROWTH, LiveFinding, LiveJudge
from tracker_health.report.result import ProbeResult, Report
from tracker_health.words.verdict import Verdict

_STRETCH = 1.25
"""A finding must stand while the history grows by a fifth, and may be seen a look late."""


class Extent(NamedTuple):
    """How far a history goes: its rows, the first step and the last one (-1 without any), and the share of the plan."""

    points: int
    first: int
    last: int
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Replay:
    """``findings``: what counts by now, the worst first. ``waiting``: what was found and does not count yet.
    ``report``: what the live rules say of all of it; None where too little was logged.
    """

    extent: Extent
    findings: tuple[LiveFinding, ...] = ()
    waiting: tuple[ProbeResult, ...] = ()
    report: Report | None = None

    @property
    def stop_for(self) -> LiveFinding | None:
        """The finding that the training should stop for."""
        return next((one for one in self.findings if one.verdict is Verdict.FAIL), None)

    @property
    def next_look(self) -> int:
        """How many rows it must have for another look to say more."""
        return max(self.extent.points + 1, FEWEST_POINTS, int(self.extent.points * GROWTH))


def extent_of(evidence: Evidence) -> Extent:
    """How far the history of a run goes.

    Args:
        evidence: What it has logged so far.

    Returns:
        The rows, steps and share.
    """
    places = _places(evidence)
    if not len(places):
        return Extent(0, 0, -1, None)
    progress, first, last = evidence.progress_so_far, int(places[0]), int(places[-1])
    share = None if progress is None else min(1.0, progress.fraction)
    return Extent(len(places), first, last, share_known(share, first, last))


def replay(evidence: Evidence, config: Config) -> Replay:
    """Look at the newest fifth of a history as ``LiveHealth`` does while it grows.

    Args:
        evidence: What the run has logged so far.
        config: How to judge.

    Returns:
        What counts by now.
    """
    extent, places = extent_of(evidence), _places(evidence)
    judge, counted = LiveJudge(config, Verdict.FAIL), dict[str, LiveFinding]()
    for points in _looks(extent.points):
        last = int(places[points - 1])
        share = None if extent.share is None else extent.share * last / extent.last if extent.last else extent.share
        for one in judge.look(_until(evidence, last), points=points, step=last, share=share):
            counted[one.code] = one
    if judge.report is None:
        return Replay(extent=extent)
    now = {one.code: one for one in judge.report.findings}
    # What has passed since, or is less by now, is no reason any more.
    still = [one for one in counted.values() if one.code in now and now[one.code].verdict.rank >= one.verdict.rank]
    codes = {one.code for one in still}
    ordered = tuple(sorted(still, key=lambda one: -one.verdict.rank))
    waiting = tuple(one for code, one in now.items() if code not in codes)
    return Replay(extent=extent, findings=ordered, waiting=waiting, report=judge.report)


def _places(evidence: Evidence) -> IntArray:
    steps = [one.steps for one in evidence.of_training if len(one)]
    return np.unique(np.concatenate(steps)) if steps else np.empty(0, dtype=np.int64)


def _looks(points: int) -> list[int]:
    """After how many rows there is a look, the last one after all of them."""
    looks = [points]
    while looks[-1] > max(points / _STRETCH, FEWEST_POINTS):
        looks.append(min(looks[-1] - 1, int(looks[-1] / GROWTH)))
    return [one for one in reversed(looks) if one >= FEWEST_POINTS]


def _until(evidence: Evidence, last: int) -> Evidence:
    """What was logged up to a step."""
    return replace(evidence, series=tuple(_cut(one, last) for one in evidence.series))


def _cut(series: Series, last: int) -> Series:
    return series.at(np.flatnonzero(series.steps <= last))
