"""Step logs in JSON lines, as most trainers write them: one object a line, its numbers the metrics of one step."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, BadLine, as_number, json_lines
from tracker_health.readers.log_rows import Clock, Row, name_on
from tracker_health.text import count

MAX_POINTS = 3_000_000
_LINES_TO_RECOGNISE = 2000
_MAX_PARAM_CHARACTERS = 500
_POINTS_OF_A_HABIT = 3
_NAME_FIELDS = ("name", "metric", "key", "tag")
_PLAN_FIELDS = frozenset({"max_steps", "total_steps", "num_train_epochs", "max_epochs"})


@dataclass(frozen=True, kw_only=True)
class StepLog:
    """What one log file holds. ``problem`` says what of it could not be read, empty when all could."""

    series: tuple[Series, ...]
    params: Mapping[str, str]
    names: tuple[str, ...]
    problem: str = ""


@dataclass(slots=True)
class _Column:
    """The points of one field so far. Arrays: as lists they would take four times the memory.

    ``nulls``: the steps at which it was null since its last number; ``gaps``: how often it was null before that.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    nulls: array[int] = field(default_factory=lambda: array("q"))
    gaps: int = 0
    unit: StepUnit = StepUnit.UNKNOWN

    def add(self, step: int, value: float, unit: StepUnit) -> None:
        self.steps.append(step)
        self.values.append(value)
        self.unit = unit
        if self.nulls:
            self.gaps += len(self.nulls)
            del self.nulls[:]

    @property
    def dense(self) -> bool:
        """Whether it was a number in nine of ten rows, so that a null is no row without it."""
        return len(self.values) >= _POINTS_OF_A_HABIT and 9 * self.gaps <= len(self.values)

    def end_in_nan(self, name: str) -> None:
        """The nulls after the last number are NaN: see ``read_step_log``."""
        tail = [step for step in self.nulls if step > self.steps[-1]]
        if len(tail) > (name_on("val", name) == name):  # an evaluation may just not have been there yet
            self.steps.extend(tail)
            self.values.extend([math.nan] * len(tail))


@dataclass
class _Lines:
    columns: dict[str, _Column] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    points: int = 0
    bad: int = 0
    first_bad: int = 0
    last: int = 0


def read_step_log(
    path: Path, source: str, select_names: Callable[[Iterable[str]], Mapping[str, str]], prefix: str = ""
) -> StepLog:
    """The metric series of a JSON lines file.

    Every object with a step gives a point for each of its numeric fields (numbers written as text count), and so does
    every object with an epoch (see ``Clock``). An object that says it is of held-out data (``"split": "val"``) has that
    in its fields' names: ``val/loss``. Objects of an unknown ``type``, and objects without a step or epoch, are
    metadata: their plain values become params. ``prefix`` is put before every field's name.

    Several writers of JSON put null for NaN. A field that was a number in nine of ten rows, and then is null to the end
    in rows of the same kind, is NaN there; other nulls are what wide logs write where nothing was logged.

    Raises:
        ReadError: it has too many lines, points or fields. Half of a log is not read: its end is what tells most.
        OSError: the file cannot be read.
    """
    lines = _Lines()
    for number, value in json_lines(path):
        lines.last = number
        if isinstance(value, BadLine):
            lines.bad += 1
            lines.first_bad = lines.first_bad or number
        elif isinstance(value, dict):
            _take(lines, value)
        if lines.points > MAX_POINTS or len(lines.columns) > MAX_FIELDS:
            raise ReadError(f"it has more than the {MAX_POINTS} points or {MAX_FIELDS} fields that are read")
        if number >= _LINES_TO_RECOGNISE and not lines.points:
            break
    for name, column in lines.columns.items():
        column.end_in_nan(name)
    if not lines.points:
        return StepLog(series=(), params=lines.params, names=(), problem=_problem(lines))
    roles = select_names([prefix + name for name in lines.columns])
    series = tuple(
        Series(
            name=prefix + name,
            role=roles[prefix + name],
            source=source,
            step_unit=column.unit,
            steps=np.array(column.steps, dtype=np.int64),
            values=np.array(column.values, dtype=np.float64),
        )
        for name, column in lines.columns.items()
        if prefix + name in roles
    )
    return StepLog(
        series=series,
        params=lines.params,
        names=tuple(prefix + name for name in lines.columns),
        problem=_problem(lines),
    )


def _take(lines: _Lines, record: dict[str, Any]) -> None:
    row = lines.clock.row(record)
    if row is None:
        _keep_params(lines, record, record)
        return
    if not _PLAN_FIELDS.isdisjoint(record):
        _keep_params(lines, record, _PLAN_FIELDS.intersection(record))
    nulls: list[str] = []
    rarest = MAX_POINTS
    for field_name, value in _fields(record):
        if value is None:
            nulls.append(field_name)
            continue
        number = None if field_name == row.field or len(field_name) > MAX_NAME_CHARACTERS else as_number(value)
        if number is None:
            continue
        name = name_on(row.data, field_name) if row.data else field_name  # the check is cheaper than the call
        column = lines.columns.get(name)
        if column is None:
            column = lines.columns[name] = _Column()
        rarest = min(rarest, len(column.values))
        if row.epoch_only and column.steps and column.steps[-1] == row.step:
            continue
        column.add(row.step, number, row.unit)
        lines.points += 1
    if nulls:
        _take_nulls(lines, row, nulls, rarest)


def _fields(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The fields of an object; of one that names its metric (``{"name": "loss", "value": 2.0}``) that metric alone."""
    if "value" in record:
        for key in _NAME_FIELDS:
            if isinstance(name := record.get(key), str):
                return ((name, record["value"]),)
    return record.items()


def _take_nulls(lines: _Lines, row: Row, nulls: list[str], rarest: int) -> None:
    """``rarest``: how often the rarest field was logged that is a number here. Where that is less than half as often as
    one that is null, this is a row of another kind (an evaluation's, a summary's).
    """
    for field_name in nulls:
        column = lines.columns.get(name_on(row.data, field_name) if row.data else field_name)
        if column is not None and column.dense and 2 * rarest >= len(column.values):
            column.nulls.append(row.step)
            lines.points += 1


def _keep_params(lines: _Lines, record: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        value = record[name]
        if isinstance(value, (str, int, float)) and len(name) <= MAX_NAME_CHARACTERS and len(lines.params) < 1000:
            lines.params[name] = _param_text(value)


def _param_text(value: float | str) -> str:
    try:
        return str(value)[:_MAX_PARAM_CHARACTERS]
    except ValueError:  # an integer of thousands of digits
        return "a number too large to write"


def _problem(lines: _Lines) -> str:
    if not lines.bad:
        return ""
    if lines.bad == 1 and lines.first_bad == lines.last:
        return f"line {lines.last}, its last, is cut off; the lines before it were read"
    bad = f"{count(lines.bad, 'line')} of {lines.last} not JSON (the first is line {lines.first_bad})"
    return f"{bad}; the others were read"
