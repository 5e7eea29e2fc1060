"""The histories of a run of trackio's, from its rows.

A row maps names to values, as rows of W&B do, whose way of logging trackio has taken over: nested dictionaries, media,
``"NaN"`` as text, and the trainer's own ``train/global_step`` next to the steps that are counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.files.json_lines import MAX_FIELDS, parse_json
from tracker_health.stores.trackio.database import Layout, RunRow, rows_of, seconds_of
from tracker_health.stores.wandb.values import STEP, TIME, Histories, flattened, is_metric, number

MAX_ROWS = 3_000_000
SOURCE = "trackio"


def names_in(connection: sqlite3.Connection, layout: Layout, key: str) -> tuple[tuple[str, ...], int]:
    """The metrics of a run that have a number somewhere, sorted; and how many of its rows could be read.

    Raises:
        ReadError: there are too many of them, or too many rows.
    """
    found: set[str] = set()
    rows = 0
    for _, _, row in _parsed(connection, layout, key):
        rows += 1
        if not row.keys() <= found:  # of most rows all names are known
            found.update(name for name, value in flattened(row) if number(value) is not None)
        if len(found) > MAX_FIELDS:
            raise ReadError(f"it has more than the {MAX_FIELDS} names that are read")
    return tuple(sorted(filter(is_metric, found))), rows


def series_in(
    connection: sqlite3.Connection, layout: Layout, run: RunRow, names: tuple[str, ...], roles: Mapping[str, str]
) -> tuple[Series, ...]:
    """The histories of the metrics that have a role. Where each row has the next step, trackio has counted its rows;
    else they are steps that the training gave.

    Raises:
        ReadError: they are too long.
    """
    histories = Histories(names, roles, SOURCE)
    said, seconds = "", None
    for step, now, row in _parsed(connection, layout, run.key):
        if now != said:  # what was written together has one time
            said, seconds = now, seconds_of(now)
        row[STEP], row[TIME] = step, seconds
        histories.add(row)
    found = histories.series()
    if run.last_step + 1 == run.rows:
        return found
    return tuple(
        replace(one, step_unit=StepUnit.UNKNOWN) if one.step_unit is StepUnit.LOG_CALL else one for one in found
    )


def _parsed(connection: sqlite3.Connection, layout: Layout, key: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Step, time and values of each row; without those that are no JSON object."""
    for count, (step, said, values) in enumerate(rows_of(connection, layout, key)):
        if count >= MAX_ROWS:
            raise ReadError(f"it has more than the {MAX_ROWS} rows that are read")
        try:
            row = parse_json(values)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield step, said, row
