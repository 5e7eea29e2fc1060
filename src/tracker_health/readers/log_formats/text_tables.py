"""Tables in console logs: a header row of names, and below it rows of numbers, both behind a logger's prefix or not."""

from __future__ import annotations

import re

from tracker_health.readers.log_formats.numbers import as_written

_AXES = frozenset({"step", "steps", "iter", "iteration", "epoch", "global_step", "update"})
_AXIS = re.compile(rf"(?<![\w/])({'|'.join(sorted(_AXES))})(?=[\s|,;])", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s|,;]+")
_EDGES = re.compile(r"^[^\w]+|[^\w)%]+$")
_GAP = re.compile(r"-|--|—|None|n/a|#na#|\d+(?::\d\d){1,2}")
_MAX_COLUMNS = 200
_MAX_NAME = 100


class Tables:
    """The header that was seen last, and the rows that fit below it."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._before = 0

    def look_for_header(self, line: str) -> None:
        """Take a line for the header of a table, if it is one: names without numbers, the first of them the axis."""
        axis = _AXIS.search(line)
        if axis is None:
            return
        cells = [_EDGES.sub("", cell) for cell in _BETWEEN.split(line[axis.start() :].strip(" \t|")) if cell]
        named = [cell for cell in cells if cell]
        if len(named) < 2 or len(named) > _MAX_COLUMNS or any(_is_no_name(cell) for cell in named):
            return
        self._names = [named[0].lower(), *named[1:]]
        self._before = len(_cells(line[: axis.start()]))

    def row(self, line: str) -> dict[str, float] | None:
        """The numbers of a row by their names; None where the line is no row of the table."""
        if not self._names:
            return None
        cells = _cells(line)
        if len(cells) - self._before != len(self._names):
            return None
        numbers = {name: as_written(cell) for name, cell in zip(self._names, cells[self._before :], strict=True)}
        axis = numbers[self._names[0]]
        if axis is None or not abs(axis) < 2**53 or axis != int(axis):
            return None
        gaps = [cell for cell in cells[self._before :] if as_written(cell) is None]
        if any(_GAP.fullmatch(cell) is None for cell in gaps):
            return None
        return {name: number for name, number in numbers.items() if number is not None}


def _is_no_name(cell: str) -> bool:
    return len(cell) > _MAX_NAME or as_written(cell) is not None or not cell[0].isalpha()


def _cells(line: str) -> list[str]:
    return [cell for cell in re.split(r"[\s|;]+|,\s+", line.strip(" \t|")) if cell]
