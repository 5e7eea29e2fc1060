"""Step logs in JSON lines, as most trainers write them: one object a line, its numbers the metrics of one step."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, BadLine, as_number, as_step, json_lines
from tracker_health.text import count

STEP_FIELDS = ("step", "global_step", "iteration", "current_steps")
MAX_POINTS = 3_000_000
_LINES_TO_RECOGNISE = 2000
_MAX_PARAM_CHARACTERS = 500
_UNITS = {"global_step": StepUnit.OPTIMIZER_STEP, "current_steps": StepUnit.OPTIMIZER_STEP}
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
    """The points of one field so far. Arrays: as lists they would take four times the memory."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    unit: StepUnit = StepUnit.UNKNOWN


@dataclass
class _Lines:
    columns: dict[str, _Column] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    points: int = 0
    bad: int = 0
    first_bad: int = 0
    last: int = 0


def read_step_log(
    path: Path, source: str, select_names: Callable[[Iterable[str]], Mapping[str, str]], prefix: str = ""
) -> StepLog:
    """The metric series of a JSON lines file.

    Every object with a step gives a point for each of its numeric fields (numbers written as text count). Objects with
    a ``type`` other than ``step``, and objects without a step, are metadata: their plain values become params.
    ``prefix`` is put before every field's name.

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
    step_field = next((name for name in STEP_FIELDS if name in record), None)
    step = None if step_field is None else as_step(record[step_field])
    if record.get("type", "step") != "step" or step is None or step_field is None:
        _keep_params(lines, record, record)
        return
    if not _PLAN_FIELDS.isdisjoint(record):
        _keep_params(lines, record, _PLAN_FIELDS.intersection(record))
    unit = _UNITS.get(step_field, StepUnit.UNKNOWN)
    for name, value in record.items():
        number = None if name == step_field or len(name) > MAX_NAME_CHARACTERS else as_number(value)
        if number is None:
            continue
        column = lines.columns.get(name)
        if column is None:
            column = lines.columns[name] = _Column()
        column.steps.append(step)
        column.values.append(number)
        column.unit = unit
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
