"""Runs that are compared with each other: each is read and judged, and the answer may be written onto two of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tracker_health.config import Config
from tracker_health.errors import ConfigError
from tracker_health.evidence import names_apart
from tracker_health.judge.compare import Comparison, Repair, Side, compare, judge_repair
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import shown_name
from tracker_health.runs.run_config import open_with_config
from tracker_health.stores.found import Listed

__all__ = ["Comparison", "Repair", "compare_runs", "judge_repair_of", "sides_of"]

MOST = 16
"""Runs that are compared at once."""


def sides_of(runs: Sequence[str | Path | Listed], config: Config, tracking_uri: str | None) -> list[Side]:
    """Runs, read and judged; nothing is written.

    Raises:
        ConfigError: two of them are the same run, or they are too many.
        RunError: one cannot be found or read at all.
    """
    if len(runs) > MOST:
        raise ConfigError(f"{len(runs)} runs are too many to compare", f"name at most {MOST}")
    judged = []
    for run in runs:
        with open_with_config(run, config, tracking_uri) as (opened, settings):
            judged.append(judge_run(opened, settings, go_back=False))
    refs = [report.run for report, _ in judged]
    for at, ref in enumerate(refs):
        if ref in refs[:at]:
            raise ConfigError(f"{shown_name(runs[at])} is named twice", "name two runs that are not the same")
    names = names_apart(refs)
    return [Side(report=report, evidence=one, name=name) for (report, one), name in zip(judged, names, strict=True)]


def compare_runs(
    bad: str | Path | Listed, goods: Sequence[str | Path | Listed], config: Config, tracking_uri: str | None
) -> Comparison:
    """A run compared with others.

    Raises:
        ConfigError: as for ``sides_of``, or there is none to compare with.
        RunError: one cannot be found or read at all.
    """
    if not goods:
        raise ConfigError("there is no run to compare with", "name a second run")
    own, *others = sides_of([bad, *goods], config, tracking_uri)
    return compare(own, others)


def judge_repair_of(
    old: str | Path | Listed,
    new: str | Path | Listed,
    config: Config,
    tracking_uri: str | None,
    seeds: Sequence[str | Path | Listed] = (),
) -> Repair:
    """Whether a run repairs another.

    Raises:
        ConfigError: as for ``sides_of``.
        RunError: one cannot be found or read at all.
    """
    was, now, *others = sides_of([old, new, *seeds], config, tracking_uri)
    return judge_repair(was, now, others)


def write_repair(
    repair: Repair, old: str | Path | Listed, new: str | Path | Listed, config: Config, tracking_uri: str | None
) -> list[str]:
    """Put the answer onto the new run, then onto the old one.

    Args:
        repair: The answer.
        old: The old run, as it was named.
        new: The new one.
        config: The configuration, of which the trusted hosts count, and whether runs are described.
        tracking_uri: The MLflow store.

    Returns:
        The runs that were written to; those that say the same already are left alone.

    Raises:
        TrackerHealthError: one of them cannot be written to. The other may have been.
    """
    mark = repair.mark(time.time())
    written = []
    for run, side, as_old in ((new, repair.new, False), (old, repair.old, True)):
        with open_with_config(run, config, tracking_uri) as (opened, settings):
            if opened.write_repair(mark, as_old=as_old, described=settings.description != "never"):
                written.append(side.shown)
    return written
