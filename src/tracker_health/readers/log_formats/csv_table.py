"""Tables of comma-separated values: Lightning's ``metrics.csv``, Keras's CSVLogger, any with a step or epoch column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from tracker_health.errors import ReadError
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_LINE_BYTES, as_number, as_step
from tracker_health.readers.log_formats.base import Log, SelectNames
from tracker_health.readers.log_formats.log_rows import STEP_FIELDS
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.log_formats.text_blocks import blocks, text_of
from tracker_health.text import count

_DELIMITERS = ",\t;|"
_AXES = frozenset({*STEP_FIELDS, "epoch"})
_EXPORTED = ("wall time", "step", "value")  # one curve, as TensorBoard's page saves it
_DECIMAL_COMMA = re.compile(r"[-+]?\d{1,30},\d{1,30}(?:[eE][-+]?\d{1,3})?")
_OF_AN_INDEX = re.compile(r"(unnamed: \d+)?", re.IGNORECASE)


class CsvTable:
    """A header and rows of numbers. An empty cell is what JSON lines have null for: see ``LogTable``."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        lines = [line for line in text_of(head).split("\n", 50)[:50] if line.strip() and not line.startswith("#")]
        return bool(lines) and _header(lines[0], [line for line in lines[1:] if line != lines[0]][:2]) is not None

    def read(self, path: Path, source: str, select_names: SelectNames, prefix: str = "") -> Log:
        return self._read(path, source, select_names, prefix, by_row=None)

    def _read(self, path: Path, source: str, select_names: SelectNames, prefix: str, *, by_row: bool | None) -> Log:
        """``by_row``: the rows are counted, for their epochs are no whole ones."""
        table = LogTable(select_names, prefix)
        header: list[str] = []
        bad = first_bad = last = 0
        for last, delimiter, cells in _rows(path):
            if not header or _is_header(cells):
                header = _names(cells, path)
            elif len(cells) == len(header):
                row = {name: _plain(cell, name, delimiter) for name, cell in zip(header, cells, strict=True) if name}
                if by_row is None and _is_share(row):
                    return self._read(path, source, select_names, prefix, by_row=True)
                table.take({**row, "_step": last} if by_row else row)
            else:
                bad += 1
                first_bad = first_bad or last
        if not table.points:
            return Log()
        problem = _problem(bad, first_bad, last)
        return Log(
            series=table.series(source), params=table.params, names=table.names, problem=problem, note=table.note
        )


def _rows(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, delimiter and cells of every row that is neither blank nor a comment."""
    delimiter, number = "", 0
    for block in blocks(path, MAX_LINE_BYTES):
        for line in block.removesuffix("\n").split("\n"):
            number += 1
            if not line.strip() or line.startswith("#"):
                continue
            delimiter = delimiter or _delimiter(line)
            if line.count(delimiter) > MAX_FIELDS:
                raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
            if '"' in line:
                try:
                    yield number, delimiter, next(csv.reader([line], delimiter=delimiter))
                except (csv.Error, StopIteration):
                    yield number, delimiter, []
            else:
                yield number, delimiter, line.split(delimiter)


def _plain(cell: str, name: str, delimiter: str) -> str | None:
    """A cell as a number is usually written; where semicolons part cells, a comma is a decimal one."""
    cell = cell.strip()
    if delimiter == ";" and name not in _AXES and _DECIMAL_COMMA.fullmatch(cell):
        return cell.replace(",", ".")
    return cell or None


def _is_share(row: dict[str, str | None]) -> bool:
    """Whether a row says only which share of an epoch was done."""
    epoch = row.get("epoch")
    return epoch is not None and "." in epoch and as_step(epoch) is None and not any(map(row.get, STEP_FIELDS))


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _header(line: str, rows: list[str]) -> list[str] | None:
    """The cells of a header with an axis, where the rows below it are such as belong to it."""
    delimiter = _delimiter(line)
    cells = next(csv.reader([line[: 2**20]], delimiter=delimiter), [])
    if not _is_header(cells):
        return None
    for row in rows[:1]:
        # The last of the head may be cut.
        values = [cell.strip() for cell in next(csv.reader([row[: 2**20]], delimiter=delimiter), [])]
        if len(rows) > 1 and '"' not in row and len(values) != len(cells):
            return None
        if not any(as_number(value) is not None for value in values):
            return None
    return cells


def _is_header(cells: list[str]) -> bool:
    names = [cell.strip().lower() for cell in cells]
    placed = not _AXES.isdisjoint(names) or _is_bare_index(names)
    return len(names) > 1 and placed and not any(as_number(name) is not None for name in names)


def _is_bare_index(names: list[str]) -> bool:
    """Whether all that numbers the rows is the index that pandas writes, of a table that may be a history."""
    return (
        _AXES.isdisjoint(names)
        and _OF_AN_INDEX.fullmatch(names[0]) is not None
        and any("loss" in name for name in names)
    )


def _names(cells: list[str], path: Path) -> list[str]:
    """The metric of each column, "" for a column that is none."""
    names = [cell.strip() for cell in cells]
    lower = [name.lower() for name in names]
    if tuple(sorted(lower)) == tuple(sorted(_EXPORTED)):
        tag = path.stem.rpartition("tag-")[2]
        return ["" if name == "wall time" else tag if name == "value" else name for name in lower]
    if _is_bare_index(lower):
        names[0] = lower[0] = "_step"
    taken: set[str] = set()
    for index, name in enumerate(lower):
        if name in _AXES:
            names[index] = name
        if _OF_AN_INDEX.fullmatch(name) or names[index] in taken:
            names[index] = ""
        taken.add(names[index])
    return names


def _problem(bad: int, first: int, last: int) -> str:
    if not bad:
        return ""
    if bad == 1 and first == last:
        return f"line {last}, its last, is cut off; the lines before it were read"
    return f"{count(bad, 'line')} of {last} with another number of cells (the first is line {first})"
