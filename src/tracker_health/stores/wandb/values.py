"""What W&B keeps of a run, wherever it is kept: names, numbers, media and config, and what of it is ours.

A row of the history maps names to values. A nested dictionary is what W&B's pages make of it, one name with dots:
``{"train": {"acc": 1}}`` is ``train.acc``. Names that begin with ``_`` are W&B's own (``_step``, ``_timestamp``).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, IntArray, Series, StepUnit
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS, as_number, as_step, param_text
from tracker_health.roles import OWN_PREFIXES
from tracker_health.stores.wandb.own_axes import OwnAxes, StepMetrics
from tracker_health.words.gap_names import LIVE_WANDB_TAGS
from tracker_health.words.verdict import Verdict

STEP, TIME, MEDIA = "_step", "_timestamp", "_type"
MAX_POINTS = 3_000_000
MAX_PARAMS = 1000

OWN_KEY = "health/"
SDK_FILES = ("wandb-", "config.yaml", "requirements.txt", "diff.patch")
"""How the names of files begin that the SDK itself writes next to those of a run."""

OWN_TAGS = frozenset(f"health:{verdict}" for verdict in Verdict)
"""The tags that say a verdict: a run has one of them at most, and it is ours."""

ACK_WANDB_TAG = "health:ack"
"""The tag of a run whose verdict someone has answered."""

_STEP_WORD = "step"  # W&B's pages call it so, whatever it counts
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_DEPTH = 10
# What trainers log of the optimizer steps done, which `_step` is not: it counts the calls of `log`. Lightning counts
# the steps of all optimizers together.
_COUNTERS = {
    "train/global_step": StepUnit.OPTIMIZER_STEP,
    "global_step": StepUnit.OPTIMIZER_STEP,
    "trainer/global_step": StepUnit.UNKNOWN,
}


def number(value: Any) -> float | None:
    """A logged number; W&B gives those that are not finite as text. None for all else: text, booleans, media, lists."""
    if isinstance(value, str):
        return _NOT_FINITE.get(value)
    return None if isinstance(value, bool) else as_number(value)


def flattened(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of a row or a configuration, nested ones with dots; media (histograms, images) left out."""
    return _flattened(row, "", 0)


def _flattened(row: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if len(name) > MAX_NAME_CHARACTERS:
            continue
        if not isinstance(value, Mapping):
            yield name, value
        elif MEDIA not in value and depth < _MAX_DEPTH:
            yield from _flattened(value, f"{name}.", depth + 1)


def is_metric(name: str) -> bool:
    """Whether a name of a history is a metric of its owner's: neither W&B's own nor ours, nor endless."""
    return len(name) <= MAX_NAME_CHARACTERS and not name.startswith(("_", *OWN_PREFIXES))


def params_of(config: Mapping[str, Any]) -> dict[str, str]:
    """A run's configuration as params: plain values as text, a thousand at most, and nested ones last: a model's
    configuration may name each of its thousands of classes.
    """
    params: dict[str, str] = {}
    for name, value in sorted(flattened(config), key=lambda item: item[0] not in config):
        if len(params) >= MAX_PARAMS:
            break
        if isinstance(value, (str, int, float)) and not name.startswith("_"):
            params[name] = param_text(value)
    return params


# Histories


@dataclass(slots=True)
class _Column:
    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


class Histories:
    """The points of the needed metrics, taken row by row in the order in which they were logged.

    ``names``: every name that the run has a history of. ``roles``: the needed ones with their roles. ``source``: where
    they are read. ``plotted_by``: which metric each is plotted by.
    """

    def __init__(
        self, names: Iterable[str], roles: Mapping[str, str], source: str, plotted_by: StepMetrics | None = None
    ) -> None:
        known = set(names)
        self.counter = next((name for name in _COUNTERS if name in known), "")
        by = {} if plotted_by is None else {name: plotted_by.of(name) for name in roles}
        self._axes = OwnAxes({name: axis for name, axis in by.items() if axis in known and axis != self.counter})
        self.needed = frozenset(roles) | self._axes.names | {self.counter} - {""}
        """The names whose values ``add`` wants, besides ``_step`` and ``_timestamp``."""
        self._roles, self._source = roles, source
        self._columns = {name: _Column() for name in roles}
        self._steps, self._counts, self._times = array("q"), array("q"), array("d")
        self._counted = bool(self.counter)
        self._points = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row, nested or flat; of its values only those of needed names count.

        Raises:
            ReadError: there are too many points.
        """
        if any(value.__class__ is dict for value in row.values()):
            row = {**row, **dict(flattened(row))}
        points = [(name, value) for name in self._roles if (value := number(row.get(name))) is not None]
        counts = self._axes.counts_in(row)
        if not points:
            return
        index = len(self._steps)
        for name, value in points:
            column = self._columns[name]
            column.rows.append(index)
            column.values.append(value)
        step, count, time = as_step(row.get(STEP)), as_step(row.get(self.counter)), number(row.get(TIME))
        self._counted = self._counted and count is not None
        self._steps.append(index if step is None else step)
        self._counts.append(count or 0)
        self._times.append(math.nan if time is None else time)
        self._axes.add(counts)
        self._points += len(points) + len(counts)
        if self._points > MAX_POINTS:
            raise ReadError(f"it has more than the {MAX_POINTS} points that are read")

    def series(self) -> tuple[Series, ...]:
        """The histories, without those that have no number in them.

        Their steps are what the trainer's own counter says, where every row has it, else W&B's ``_step``.
        """
        steps = np.array(self._counts if self._counted else self._steps, dtype=np.int64)
        times = np.array(self._times, dtype=np.float64)
        found = {
            name: self._series(name, column, steps, times) for name, column in self._columns.items() if column.values
        }
        return self._axes.put_on(found, {name: np.array(self._columns[name].rows) for name in found})

    def _series(self, name: str, column: _Column, steps: IntArray, times: FloatArray) -> Series:
        rows = np.array(column.rows, dtype=np.int64)
        timed = bool(np.isfinite(times).all())
        return Series(
            name=name,
            role=self._roles[name],
            source=self._source,
            step_unit=_COUNTERS[self.counter] if self._counted else StepUnit.LOG_CALL,
            steps=steps[rows],
            values=np.array(column.values, dtype=np.float64),
            times=times[rows] if timed else None,
            step_word=_STEP_WORD,
        )


# What is ours


def tags_with(tags: Iterable[str], verdict: Verdict | None) -> list[str]:
    """A run's tags with the one of the verdict, and no other of ours, nor the mark that it went wrong while it was
    running. A run with nothing to judge has none of ours.
    """
    theirs = [tag for tag in tags if tag not in OWN_TAGS | LIVE_WANDB_TAGS]
    return theirs if verdict in (None, Verdict.SKIP) else [*theirs, f"health:{verdict}"]
