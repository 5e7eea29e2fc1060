"""Tables in console logs: a header row of names, and below it rows of numbers, both behind a logger's prefix or not."""

from __future__ import annotations

import re

from tracker_health.readers.log_formats.numbers import as_written

_AXES = frozenset({"step", "steps", "iter", "iteration", "epoch", "global_step", "update"})
_AXIS = re.compile(rf"(?<![\w/])({'|'.join(sorted(_AXES))})(?=[\s|│┃║,;])", re.IGNORECASE)
_BARS = "|│┃║"  # between cells; the last three as boxes are drawn
_BETWEEN = re.compile(rf"[\s{_BARS},;]+")
_BETWEEN_CELLS = re.compile(rf"[\s{_BARS};]+|,\s+")
_EDGES = re.compile(r"^[^\w]+|(?<![^\w)%])[^\w)%]++$")
_WITH_UNIT = r"\d+(?:\.\d+)?[KMGT]i?B?"
_GAP = re.compile(rf"-|--|—|None|n/a|#na#|\d+(?::\d\d){{1,2}}|{_WITH_UNIT}")
# The line below a header, as wide as its columns; names then may have blanks in them.
_RULER = re.compile(r"[ \t]*-{1,60}(?:[ \t]+-{1,60}){2,200}[ \t]*")
_SHORT_AXES = {"E": "epoch", "#": "step"}
# A row that is a progress bar as well, and how full that is; a cell that says how many epochs there will be.
_BAR = re.compile(r":\s+(\d+)%\|")
_OF_ALL = re.compile(r"(?<!\d)(\d++)/\d+")
_MAX_COLUMNS = 200
_MAX_NAME = 100
_MAX_LINE = 2**16
_FULL = 100


class Tables:
    """The header that was seen last, and the rows that fit below it."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._before = 0
        self._last = ""

    def look_for_header(self, line: str) -> None:
        """Take a line for the header of a table, if it is one: names without numbers, the first of them the axis; or
        what stands above a ruler.
        """
        above, self._last = self._last, line
        if _RULER.fullmatch(line) is not None:
            self._take_columns(above, line)
            return
        axis = _AXIS.search(line)
        if axis is None:
            return
        cells = [_EDGES.sub("", cell) for cell in _BETWEEN.split(line[axis.start() :].strip(f" \t{_BARS}")) if cell]
        named = [cell for cell in cells if cell]
        if len(named) < 2 or len(named) > _MAX_COLUMNS or any(_is_no_name(cell) for cell in named):
            return
        self._names = [named[0].lower(), *named[1:]]
        self._before = len(_cells(line[: axis.start()]))

    def _take_columns(self, header: str, ruler: str) -> None:
        """Take the names that stand above the columns of a ruler."""
        spans = [match.span() for match in re.finditer("-+", ruler)]
        ends = [start for start, _ in spans[1:]] + [_MAX_LINE]
        names = [header[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]
        names = [_SHORT_AXES.get(name, name) for name in names]
        if len(set(names)) == len(names) and names[0].lower() in _AXES and not any(map(_is_no_name, names)):
            self._names, self._before = [names[0].lower(), *names[1:]], 0

    def row(self, line: str) -> dict[str, float] | None:
        """The numbers of a row by their names; None where the line is no row of the table."""
        if not self._names:
            return None
        bar = _BAR.search(line)
        if bar is not None and int(bar.group(1)) < _FULL:
            return None
        cells = _cells(line if bar is None else line[: bar.start()])
        if len(cells) - self._before != len(self._names):
            return None
        cells[self._before] = _OF_ALL.sub(r"\1", cells[self._before])
        numbers = {name: as_written(cell) for name, cell in zip(self._names, cells[self._before :], strict=True)}
        axis = numbers[self._names[0]]
        if axis is None or not abs(axis) < 2**53 or axis != int(axis):
            return None
        gaps = [cell for cell in cells[self._before :] if as_written(cell) is None]
        if any(_GAP.fullmatch(cell) is None for cell in gaps):
            return None
        return {name: number for name, number in numbers.items() if number is not None}


def _is_no_name(cell: str) -> bool:
    return not cell or len(cell) > _MAX_NAME or as_written(cell) is not None or not cell[0].isalpha()


def _cells(line: str) -> list[str]:
    return [cell for cell in _BETWEEN_CELLS.split(line.strip(f" \t{_BARS}")) if cell]
