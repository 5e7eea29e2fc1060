"""The axes that a run's owner plots metrics by: which ones ``define_metric`` names, and the histories put onto them."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tracker_health.evidence import Axis, FloatArray, IntArray, Series
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number

NAME, GLOB, STEP_METRIC, STEP_INDEX = 1, 2, 4, 5
"""Fields of a record of a metric, and in JSON its keys: the last is the place of the other metric in their list."""
_WILD = "*"


class StepMetrics:
    """The metrics that others are plotted by, for their names and for how their names begin."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._beginnings: dict[str, str] = {}

    @classmethod
    def of_config(cls, wandb: object) -> StepMetrics:
        """Those that W&B's own part of a configuration has (``_wandb``, its key ``m``)."""
        found = cls()
        listed = wandb.get("m") if isinstance(wandb, Mapping) else None
        metrics = [one if isinstance(one, Mapping) else {} for one in (listed if isinstance(listed, list) else ())]
        for one in metrics[:MAX_FIELDS]:
            at = one.get(str(STEP_INDEX))
            named = metrics[at - 1] if isinstance(at, int) and 0 < at <= len(metrics) else {}
            by = one.get(str(STEP_METRIC)) or named.get(str(NAME))
            found.define(one.get(str(NAME)), one.get(str(GLOB)), by)
        return found

    def define(self, name: Any, pattern: Any, by: Any) -> None:
        """What is plotted by the metric ``by``: one of a name, or those whose names begin as the pattern does. A
        pattern says nothing of metrics that are defined by their names, without ``by`` too.
        """
        by = by if isinstance(by, str) and len(by) <= MAX_NAME_CHARACTERS else ""
        if len(self._named) + len(self._beginnings) >= MAX_FIELDS:
            return
        if isinstance(name, str) and name:
            self._named[_plain(name)] = _plain(by) or self._named.get(_plain(name), "")
        elif isinstance(pattern, str) and pattern.endswith(_WILD) and by:
            self._beginnings[_plain(pattern[:-1])] = _plain(by)

    def of(self, name: str) -> str:
        """The metric that one is plotted by; empty where that is the step that W&B counts."""
        if name in self._named:
            by = self._named[name]
        else:
            fitting = [beginning for beginning in self._beginnings if name.startswith(beginning)]
            by = self._beginnings[max(fitting, key=len)] if fitting else ""
        return "" if by == name or by[:1] == "_" else by


def _plain(name: str) -> str:
    """Names are written with their dots escaped: those are no levels of a dictionary."""
    return name.replace("\\.", ".")


class OwnAxes:
    """``by``: for each metric that is plotted by another, which one. A row that has none of its count has the last one
    before it, as W&B has it.
    """

    def __init__(self, by: Mapping[str, str]) -> None:
        self.names = frozenset(by.values())
        self._by = by
        self._last = dict.fromkeys(self.names, math.nan)
        self._columns = {name: array("d") for name in self.names}

    def counts_in(self, row: Mapping[str, Any]) -> Mapping[str, float]:
        """What each axis counts at a row, which may have nothing else."""
        for name in self.names:
            value = row.get(name)
            if not isinstance(value, bool) and (count := as_number(value)) is not None and math.isfinite(count):
                self._last[name] = count
        return self._last

    def add(self, counts: Mapping[str, float]) -> None:
        """Take a row of the histories."""
        for name, column in self._columns.items():
            column.append(counts[name])

    def put_on(self, series: Mapping[str, Series], rows: Mapping[str, IntArray]) -> tuple[Series, ...]:
        """The histories with their axes. ``rows``: int64[n], at which of the rows taken each has its points.

        The metric with the most points says where its axis counts what. One that was measured later than it counts,
        as by an evaluation in the background, is put where the axis had come to that count.
        """
        fellows: dict[str, list[str]] = defaultdict(list)
        for name in series:
            if name in self._by:
                fellows[self._by[name]].append(name)
        found = dict(series)
        for by, names in fellows.items():
            counts = np.array(self._columns[by], dtype=np.float64)
            leading = max(names, key=lambda name: len(series[name]))
            axis = Axis.of(by, series[leading].steps, counts[rows[leading]])
            if axis is not None:
                found |= {name: _placed(series[name], counts[rows[name]], axis) for name in names}
        return tuple(found.values())


def _placed(series: Series, counts: FloatArray, axis: Axis) -> Series:
    """A history on its axis, at the steps where that had come to its counts. Where several would be at one step, it
    does not count what the axis does, and stays at its rows.
    """
    late = np.array([axis.at(step) for step in series.steps.tolist()]) > counts
    steps = np.where(late, axis.steps_at(counts), series.steps) if np.isfinite(counts).all() else series.steps
    if len(np.unique(steps)) < len(np.unique(series.steps)):
        return replace(series, axis=axis)
    return replace(series, axis=Axis.of(axis.name, steps, counts) or axis, steps=steps)
