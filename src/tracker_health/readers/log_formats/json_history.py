"""Histories as one JSON value: Keras's dictionary of lists, a list of records, or CatBoost's list of rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, as_step, parse_json
from tracker_health.readers.files.regular_file import open_log
from tracker_health.readers.log_formats.base import HEAD_BYTES, Log
from tracker_health.readers.log_formats.names import HELD_OUT, axis_of
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.roles import RolePlan

MAX_BYTES = 20 * 2**20
_DEPTH = 3
_IS_HISTORY = re.compile(rb'"[^"]{0,100}loss[^"]{0,100}"[ \t\r\n]*:[ \t\r\n]*\[[-\d \t\r\n.]')
_IS_RECORDS = re.compile(
    rb'[\xef\xbb\xbf \t\r\n]*\[[ \t\r\n]*\{[^\[\]]{0,2000}?"[^"]{0,100}loss[^"]{0,100}"[ \t\r\n]*:[ \t\r\n]*[-\d]'
)
_SHELVES = frozenset({"history", "log", "logs", "metrics"})
_DATA = frozenset({"train", "training", *HELD_OUT})
_MEASURED = re.compile(r"loss|acc(?:uracy)?|error|perplexity|reward", re.IGNORECASE)
_OF_TENSORBOARD = 3  # numbers: the time, the step, the value


class JsonHistory:
    """A list of numbers is a metric, and its places are its epochs where no list next to it has its steps."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        """Any JSON object or list may be one."""
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        table = LogTable(roles)
        value = _load(path)
        records = _rounds(value) or _records(value)
        stem = path.stem.rpartition("tag-")[2]
        if isinstance(value, list) and value and not isinstance(value[0], list) and not roles.needed([stem]).get(stem):
            value = None  # numbers of what nobody knows
        for record in records if records is not None else _rows_of_columns(value, stem):
            table.take(record)
        return table.log(source)


def _load(path: Path) -> Any:
    """The value; None for what is no history, and is too large or no JSON as well."""
    with open_log(path) as file:
        text = file.read(MAX_BYTES + 1)
    try:
        if len(text) <= MAX_BYTES:
            return parse_json(text)
    except (ValueError, RecursionError):
        pass
    if _IS_HISTORY.search(text, 0, HEAD_BYTES) is None and _IS_RECORDS.match(text, 0, HEAD_BYTES) is None:
        return None
    raise ReadError(f"it is not JSON of at most {MAX_BYTES} bytes, or is cut short")


def _records(value: Any) -> list[dict[str, Any]] | None:
    """The list of records, at the top or under one of its keys; or those that are kept under their epochs."""
    if (
        isinstance(value, dict)
        and len(value) > 1
        and all(key.isdecimal() and isinstance(one, dict) for key, one in value.items())
    ):
        return [{"epoch": key, **one} for key, one in value.items()]
    candidates = [value, *value.values()] if isinstance(value, dict) else [value]
    found = [one for one in candidates if isinstance(one, list) and one and all(isinstance(row, dict) for row in one)]
    return max(found, key=len, default=None)


def _rounds(value: Any) -> list[dict[str, Any]]:
    """CatBoost's rounds, whose numbers have their names in a head of their own; empty for anything else."""
    meta, rounds = (value.get(key) for key in ("meta", "iterations")) if isinstance(value, dict) else (None, None)
    if not isinstance(meta, dict) or not isinstance(rounds, list):
        return []
    names: dict[str, list[str]] = {}
    for kind in ("learn", "test"):
        sets, metrics = _texts(meta.get(f"{kind}_sets")), _metric_names(meta.get(f"{kind}_metrics"))
        if len(sets) * len(metrics) > MAX_FIELDS:
            return []
        names |= {data: [f"{data}/{name}" for name in metrics] for data in sets}
    return [_round(one, names) for one in rounds if isinstance(one, dict)]


def _round(record: Mapping[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    row = {"iteration": record.get("iteration")}
    for data, numbers in record.items():
        if data in names and isinstance(numbers, list):
            row |= zip(names[data], numbers, strict=False)
    return row


def _metric_names(metrics: Any) -> list[str]:
    every = metrics if isinstance(metrics, list) else []
    return [str(one.get("name", ""))[:MAX_NAME_CHARACTERS] if isinstance(one, dict) else "" for one in every]


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []


# Columns


def _rows_of_columns(value: Any, stem: str) -> Iterator[dict[str, Any]]:
    """The rows that lists of numbers make, each the list of a metric; ``stem``: the name of a list without one."""
    value = (
        {_of_data(name, column, stem): column for name, column in value.items()} if isinstance(value, dict) else value
    )
    tables = list(_tables(value, "", _DEPTH) if isinstance(value, dict) else _tables({stem: value}, "", 0))
    if sum(map(len, tables)) > MAX_FIELDS:
        raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
    lengths = {len(column) for columns in tables for name, column in columns.items() if axis_of(name) is None}
    axes = [name for columns in tables for name in columns if axis_of(_last(name)) is not None]
    every_epoch = len(lengths) == 1 and all(_last(name).startswith("epoch") for name in axes)
    axis = "epoch" if every_epoch else "step"
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for at, columns in enumerate(tables):
        for name, points in _points(columns, max(lengths, default=0)):
            for step, number in points:
                rows.setdefault((step, 0 if every_epoch else at), {axis: step})[name] = number
    return iter(rows.values())


def _of_data(name: str, column: Any, stem: str) -> str:
    """What a list is called: one that is named by its data alone by the file's name, too, which says what was measured;
    a loss where that says nothing, and the numbers are no shares.
    """
    if name.lower() not in _DATA or not isinstance(column, list) or not _is_column(column):
        return name
    known = _MEASURED.search(stem)
    shares = all(isinstance(one, (int, float)) and 0 <= one <= 1 for one in column)
    return f"{name}_{known[0].lower()}" if known else name if shares else f"{name}_loss"


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _points(columns: Mapping[str, list[Any]], longest: int) -> Iterator[tuple[str, Iterator[tuple[int, float]]]]:
    """The metrics of a table of columns, with the steps of their values. Of an evaluation at every second epoch there
    are half as many.
    """
    axis = next((name for name in columns if axis_of(_last(name)) is not None), None)
    for name, column in columns.items():
        if name == axis or len(name) > MAX_NAME_CHARACTERS:
            continue
        values, steps = column, columns[axis] if axis is not None and len(columns[axis]) == len(column) else None
        if isinstance(column[0], list):
            steps, values = [row[-2] for row in column], [row[-1] for row in column]
        every = 1 if axis is not None or not column or longest % len(column) else longest // len(column)
        places = steps if steps is not None else range(every, every * len(column) + 1, every)
        numbers = _numbers_of(values)
        known = ((as_step(step), number) for step, number in zip(places, numbers, strict=True))
        shown = name.removesuffix("/values") if axis is not None else name
        yield shown, ((step, number) for step, number in known if step is not None and number is not None)


def _numbers_of(values: list[Any]) -> list[float | None]:
    """The numbers of a column, None where there is none. Null is NaN only at the end, and in more places there than
    anywhere before: a column of evaluations is null between them.
    """
    numbers = [as_number(one) for one in values]
    known = [at for at, number in enumerate(numbers) if number is not None]
    longest = max((after - before - 1 for before, after in pairwise([-1, *known])), default=0)
    end = known[-1] + 1 if known else len(values)
    if longest < len(values) - end:
        numbers[end:] = [nan if one is None else None for one in values[end:]]
    return numbers


def _tables(value: Mapping[str, Any], name: str, depth: int) -> Iterator[dict[str, list[Any]]]:
    """The tables of columns in a nested dictionary; the names of the keys around one come before its metrics'."""
    columns = {f"{name}{key}": one for key, one in value.items() if isinstance(one, list) and _is_column(one)}
    if columns:
        yield columns
    for key, one in value.items():
        if depth and isinstance(one, dict) and len(key) <= MAX_NAME_CHARACTERS:
            yield from _tables(one, "" if key in _SHELVES else f"{name}{key}/", depth - 1)


def _is_column(values: list[Any]) -> bool:
    """Whether a list is of numbers, or of steps and numbers."""
    pairs = values and all(isinstance(one, list) and 2 <= len(one) <= _OF_TENSORBOARD for one in values)
    return bool(pairs) or (bool(values) and any(as_number(one) is not None for one in values[:10]))
