"""Tables of comma-separated values: Lightning's ``metrics.csv``, Keras's CSVLogger, what pandas writes, what an agent's
monitor writes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_LINE_BYTES, MAX_NAME_CHARACTERS, as_number
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.names import axis_of
from tracker_health.readers.log_formats.row_kinds import EMPTY
from tracker_health.readers.log_formats.step_log import OtherLines
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.log_formats.text_blocks import blocks, text_of
from tracker_health.roles import RolePlan, assign

_DELIMITERS = ",\t;|"
_LINES_LOOKED_AT = 50
_FEWEST_ROWS = 3  # of a table without an axis
_EXPORTED = ["step", "value", "wall time"]  # one curve, as TensorBoard's page saves it
_OF_A_MONITOR = ("r", "l", "t")  # of each episode the reward, the length and the time, as Gym's monitors write them
_OF_AN_EPISODE = ("episode_reward", "episode_length")
_LONGEST_EPISODE = 1e9
_OTHERS_READ = "; the others were read"
_DECIMAL_COMMA = re.compile(r"[-+]?\d{1,30},\d{1,30}(?:[eE][-+]?\d{1,3})?")
_OF_A_FILE = re.compile(
    r"[-_. ]?(?:history|logs?|curve|values|list|per[-_]epoch|data|results?)(?![a-z])", re.IGNORECASE
)
_OF_AN_INDEX = re.compile(r"(unnamed: \d{1,5})?", re.IGNORECASE)


class CsvTable:
    """A header and rows of numbers. Rows of a table without an axis are counted; in an empty cell nothing
    was logged: most writers leave it so for what belongs to other rows, and write NaN as ``nan``.
    """

    precise = True

    def recognises(self, head: bytes) -> bool:
        lines = [line for line in text_of(head).split("\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT] if _counts(line)]
        if not lines:
            return False
        delimiter = _delimiter(lines[0])
        header, *rows = ([cell.strip() for cell in _cells(line[: 2**20], delimiter)] for line in lines)
        if not _is_header(header):
            return _are_numbers([header, *rows])
        whole = [fit for row in rows if row != header and (fit := _fitted(row, len(header))) is not None]
        numbers = [sum(as_number(cell) is not None for cell in row) for row in whole]
        if any(map(axis_of, header)) or (len(header) > 1 and _OF_AN_INDEX.fullmatch(header[0])):
            return not rows or any(numbers) or rows[0] == header
        if len(rows) >= _FEWEST_ROWS and whole and _has_a_metric(header, whole):
            return True
        few = len(rows) < _FEWEST_ROWS or 2 * len(whole) < len(rows) or (len(header) == 1 and min(numbers) < 1)
        return not few and 2 * sum(numbers) >= sum(map(len, whole))

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        table = LogTable(roles)
        header: list[str] = []
        columns: list[int] = []
        names: tuple[str, ...] = ()
        others = OtherLines(table)
        last, steps = 0, 0.0
        for last, delimiter, cells in _rows(path):
            if not header and not _is_header(cells):
                header = _names_of_numbers(cells, path.stem, roles)
                names, columns = tuple(header), [*range(len(header))]
            elif not header or cells == header or (_is_header(cells) and any(axis_of(name.strip()) for name in cells)):
                header, (names, columns) = cells, _columns(cells, path)
                continue
            row = cells if len(cells) == len(header) else _fitted([cell.strip() for cell in cells], len(header))
            if row is None:
                others.add(last, delimiter.join(cells))
            elif names[:2] == _OF_AN_EPISODE:
                values = _values(row, columns, names, delimiter)
                steps += values[1] if 0.0 < values[1] < _LONGEST_EPISODE else 0.0
                table.add(table.kind(("step", *names)), [steps, *values])
            elif names:
                table.add(table.kind(names), _values(row, columns, names, delimiter))
        log = others.log(source, last, "with another number of cells", _OTHERS_READ)
        if log.is_doubtful or not log.problem.endswith(_OTHERS_READ):
            return log
        # A ruler or a message among the rows: nothing of the table is lost.
        return replace(log, problem="", note="; ".join(filter(None, (log.note, log.problem))))


def _has_a_metric(header: list[str], rows: list[list[str]]) -> bool:
    """Whether a column that is called as a loss or a score has a number in every row, whatever is next to it."""
    roles = assign(name for name in header if name and len(name) <= MAX_NAME_CHARACTERS)
    columns = [at for at, name in enumerate(header) if name in roles]
    return any(all(as_number(row[at]) is not None for row in rows) for at in columns)


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _rows(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, delimiter and cells of every row that is neither blank nor a comment."""
    delimiter, number = "", 0
    for block in blocks(path, MAX_LINE_BYTES):
        for line in block.removesuffix("\n").split("\n"):
            number += 1
            if not _counts(line):
                continue
            delimiter = delimiter or _delimiter(line)
            if line.count(delimiter) > MAX_FIELDS:
                raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
            yield number, delimiter, _cells(line, delimiter)


def _are_numbers(rows: list[list[str]]) -> bool:
    """Whether lines are nothing but numbers, one or two to each."""
    width = len(rows[0])
    fit = sum(len(row) == width and all(as_number(cell) is not None for cell in row) for row in rows)
    return len(rows) >= _FEWEST_ROWS and width <= 2 and fit >= len(rows) - 1


def _names_of_numbers(cells: list[str], stem: str, roles: RolePlan) -> list[str]:
    """The names of numbers that have none: the last one's is the file's, where that is a metric's.

    Raises:
        ReadError: it is not.
    """
    for name in (stem, _OF_A_FILE.sub("", stem)):
        if name and roles.needed([name]).get(name):
            return [*["step"] * (len(cells) - 1), name]
    raise ReadError(f"its numbers have no names, and {stem!r} is not the name of a metric")


def _cells(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _fitted(cells: list[str], width: int) -> list[str] | None:
    """The cells of a row as wide as the header: of one with more of them, as many empty ones are left out. None where
    that does not make it fit.
    """
    spare = len(cells) - width
    for at in [at for at, cell in enumerate(cells) if not cell][: max(spare, 0)][::-1]:
        cells = cells[:at] + cells[at + 1 :]
    return cells if len(cells) == width else None


def _values(row: Sequence[str], columns: Sequence[int], names: Sequence[str], delimiter: str) -> list[float]:
    try:
        return [float(row[at]) for at in columns]
    except ValueError:
        return [_value(row[at].strip(), name, delimiter) for at, name in zip(columns, names, strict=True)]


def _value(cell: str, name: str, delimiter: str) -> float:
    """A cell's number; where semicolons part cells, a comma is a decimal one."""
    if delimiter == ";" and axis_of(name) is None and _DECIMAL_COMMA.fullmatch(cell):
        cell = cell.replace(",", ".")
    number = as_number(cell)
    return EMPTY if number is None else number


def _is_header(cells: list[str]) -> bool:
    """Whether cells are names; the index that pandas writes has none."""
    names = [cell.strip() for cell in cells]
    return bool(names) and any(names) and all(names[1:-1]) and not any(as_number(name) is not None for name in names)


def _columns(cells: list[str], path: Path) -> tuple[tuple[str, ...], list[int]]:
    """The names in a header, and their places; of a nameless index no name, where the table has an axis."""
    names = [cell.strip() for cell in cells]
    if tuple(names[:3]) == _OF_A_MONITOR:
        return (*_OF_AN_EPISODE, *names[3:]), [0, 1, *range(3, len(names))]
    if sorted(map(str.lower, names)) == _EXPORTED:
        tag = path.stem.rpartition("tag-")[2]
        names = [{"value": tag, "step": "step"}.get(name.lower(), "") for name in names]
    names = [name.lower() if axis_of(name) is not None else name for name in names]
    if _OF_AN_INDEX.fullmatch(names[0]) is not None:
        names[0] = "" if any(map(axis_of, names[1:])) else "_step"
    places = {
        name: at for at, name in reversed(list(enumerate(names))) if name and _OF_AN_INDEX.fullmatch(name) is None
    }
    columns = sorted(places.values())
    return tuple(names[at] for at in columns), columns
