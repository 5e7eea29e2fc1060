"""The file of live statistics that ``watch`` writes: its columns once, then rows of numbers.

JSON lines. A head names the columns, each of which has the three statistics: ``{"schema": "tracker-health/gap/1",
"statistics": ["max", "mean", "var"], "columns": ["grads/head.weight", ...]}``. A row has as many numbers as columns
times statistics: ``{"step": 100, "values": [0.3, ...]}``, null where a statistic was not measured. A new head replaces
the one before: later columns, or a run that is still running.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, as_step, json_lines
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.step_log import bad_lines
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.roles import RolePlan
from tracker_health.words.gap_names import GAP_SCHEMA, KINDS, STATISTICS

_MARK = f'"{GAP_SCHEMA}"'.encode()


class GapLog:
    """Statistics of gradients, activations and parameters, as metrics ``gap/KIND/NAME/max``, ``mean`` and ``var``."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        return _MARK in head[:200]

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        table = LogTable(roles)
        names: tuple[str, ...] = ()
        bad = first_bad = last = 0
        for number, value in json_lines(path):
            last = number
            if isinstance(value, dict) and value.get("schema") == GAP_SCHEMA:
                names = _names(value.get("columns"))
            elif not _take(table, names, value):
                bad += 1
                first_bad = first_bad or number
        return table.log(source, bad_lines(bad, first_bad, last))


def _names(columns: Any) -> tuple[str, ...]:
    if not isinstance(columns, list) or 3 * len(columns) > MAX_FIELDS:
        raise ReadError(f"its head is no list of at most {MAX_FIELDS // 3} columns")
    for column in columns:
        known = isinstance(column, str) and column.partition("/")[0] in KINDS
        if not known or len(column) > MAX_NAME_CHARACTERS - len("gap//mean"):
            raise ReadError("its head has a column that is no statistic")
    return tuple(f"gap/{column}/{statistic}" for column in columns for statistic in STATISTICS)


def _take(table: LogTable, names: tuple[str, ...], row: Any) -> bool:
    """Add a row; false where it does not fit the head."""
    values = row.get("values") if isinstance(row, dict) else None
    step = as_step(row.get("step")) if isinstance(row, dict) else None
    if step is None or not isinstance(values, list) or len(values) != len(names):
        return False
    there = {name: as_number(value) for name, value in zip(names, values, strict=True) if value is not None}
    if None in there.values():
        return False
    numbers = {name: number for name, number in there.items() if number is not None}
    table.add_named({"global_step": float(step), **numbers} if numbers else {})
    return True
