"""Histories as one JSON value: Keras's dictionary of lists, a list of records, or CatBoost's list of rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import StepUnit
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, as_step, parse_json
from tracker_health.readers.log_formats.base import HEAD_BYTES, Log, SelectNames
from tracker_health.readers.log_formats.log_rows import STEP_FIELDS
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.regular_file import open_regular

MAX_BYTES = 20 * 2**20
_AXES = (*STEP_FIELDS, "epoch", "epochs", "steps")
_DEPTH = 3
_IS_HISTORY = re.compile(rb'"[^"]{0,100}loss[^"]{0,100}"[ \t\r\n]*:[ \t\r\n]*\[[-\d \t\r\n.]')


class JsonHistory:
    """A list of numbers is a metric, and its places are its epochs where no list beside it has its steps."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        """Any JSON object or list may be one."""
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")

    def read(self, path: Path, source: str, select_names: SelectNames, prefix: str = "") -> Log:
        table = LogTable(select_names, prefix)
        value = _load(path)
        if value is None:
            return Log()
        records = _rounds(value) or _records(value)
        if records is not None:
            _take_records(table, records)
        elif isinstance(value, dict):
            for names, columns in _tables(value, "", _DEPTH):
                _take_columns(table, names, columns)
        if not table.points:
            return Log()
        return Log(series=table.series(source), params=table.params, names=table.names, note=table.note)


def _load(path: Path) -> Any:
    """The value; None for what is no history, and is too large or no JSON as well."""
    with BufferedReader(open_regular(path)) as file:
        text = file.read(MAX_BYTES + 1)
    try:
        if len(text) <= MAX_BYTES:
            return parse_json(text)
    except (ValueError, RecursionError):
        pass
    if _IS_HISTORY.search(text, 0, HEAD_BYTES) is None:
        return None
    raise ReadError(f"it is not JSON of at most {MAX_BYTES} bytes, or is cut short")


def _records(value: Any) -> list[Any] | None:
    """The list of records, at the top or under one of its keys."""
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


def _take_records(table: LogTable, records: list[Any]) -> None:
    axes = set(STEP_FIELDS) | {"epoch"}
    placed = any(not axes.isdisjoint(record) for record in records)
    for place, record in enumerate(records, start=1):
        table.take(record if placed else {"step": place, **record})


def _tables(value: Mapping[str, Any], name: str, depth: int) -> Iterator[tuple[list[str], dict[str, list[Any]]]]:
    """The tables of columns in a nested dictionary; the names of the keys around one come before its metrics'."""
    columns = {key: one for key, one in value.items() if isinstance(one, list) and _is_column(one)}
    if columns:
        yield [f"{name}{key}" for key in columns], columns
    if depth:
        for key, one in value.items():
            if isinstance(one, dict) and len(key) <= MAX_NAME_CHARACTERS:
                yield from _tables(
                    one, "" if key in ("history", "log", "logs", "metrics") else f"{name}{key}/", depth - 1
                )


def _is_column(values: list[Any]) -> bool:
    return bool(values) and any(as_number(one) is not None for one in values[:10])


def _take_columns(table: LogTable, names: list[str], columns: Mapping[str, list[Any]]) -> None:
    if len(columns) > MAX_FIELDS:
        raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
    axis = next((key for key in _AXES if key in columns), None)
    lengths = {len(one) for key, one in columns.items() if key != axis}
    longest = max(lengths, default=0)
    for name, (key, values) in zip(names, columns.items(), strict=True):
        if key == axis or len(name) > MAX_NAME_CHARACTERS:
            continue
        # Of an evaluation at every second epoch there are half as many.
        every = 1 if axis is not None or longest % len(values) else longest // len(values)
        places = range(every, every * len(values) + 1, every)
        steps = columns[axis] if axis is not None and len(columns[axis]) == len(values) else places
        by_epoch = len(lengths) == 1 and (axis is None or axis.startswith("epoch"))
        kind = table.kind((name,), StepUnit.EPOCH if by_epoch else StepUnit.UNKNOWN)
        for step, value in zip(steps, values, strict=True):
            number = float("nan") if value is None else as_number(value)
            place = as_step(step)
            if number is not None and place is not None:
                table.add(kind, place, (number,))
