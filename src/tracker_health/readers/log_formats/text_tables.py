"""Tables in console logs: a header row of names, and below it rows of numbers, both behind a logger's prefix or not; or
names in the first column, and next to them their numbers.
"""

from __future__ import annotations

import re

from tracker_health.readers.log_formats.names import EPOCH, HELD_OUT, OF, axis_of, name_on
from tracker_health.readers.log_formats.numbers import NUMBER, as_written

_AXES = frozenset({"step", "steps", "iter", "iteration", "epoch", "global_step", "update"})
_AXIS = re.compile(rf"(?<![\w/])({'|'.join(sorted(_AXES))})(?=[\s|│┃║,;])", re.IGNORECASE)
_BARS = "|│┃║"  # between cells; the last three as boxes are drawn
_BETWEEN = re.compile(rf"[\s{_BARS},;]+")
_BETWEEN_CELLS = re.compile(rf"[\s{_BARS};]+|,\s+")
_EDGES = re.compile(r"^[^\w]+|(?<![^\w)%])[^\w)%]++$")
_WITH_UNIT = r"\d+(?:\.\d+)?(?:[KMGT]i?B?|m?s|m|h)"
_WIDE = re.compile(r"\s{2,}|\t")  # between names that have blanks in them
_OF_YOLO = frozenset({"box", "obj", "cls", "dfl", "seg", "pose"})
_GAP = re.compile(rf"-|--|—|None|n/a|N/A|#na#|\d+(?::\d\d){{1,2}}|{_WITH_UNIT}")
# The line below a header, as wide as its columns; names then may have blanks in them.
_RULER = re.compile(r"[ \t]*-{1,60}(?:[ \t]+-{1,60}){2,200}[ \t]*")
_SHORT_AXES = {"E": "epoch", "#": "step"}
# A row that is a progress bar as well, and how full that is; a cell that says how many epochs there will be.
_BAR = re.compile(r":\s+(\d+)%\|")
_OF_ALL = re.compile(r"(?<!\d)(\d++)/(\d+)")
# One name a line in a box, its number next to it, as Stable-Baselines3 and others of its kind draw it; a name alone is
# that of the group below it. What ends the box is a line without letters.
_CELL = re.compile(
    rf"[{_BARS}] (?P<indent> *+)(?P<name>[^\s{_BARS}][^{_BARS}\n]{{0,199}}+)[{_BARS}]"
    rf" *+(?P<value>[^\s{_BARS}]{{0,40}}+) *+[{_BARS}]\s*+"
)
_EDGE = re.compile(r"[-=+─━┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛╔╗╚╝═ ]{8,}+\s*+")
# A column for each data set, as AllenNLP draws it.
_OF_DATA = re.compile(r"(?:^|\s)(?P<first>[Tt]rain\w*) +\| +(?P<second>\w+)\s*$")
_BESIDE = re.compile(
    rf"(?:^|\s)(?P<name>[\w./-]{{1,100}}) +\| +(?P<first>{NUMBER}|N/A) +\| +(?P<second>{NUMBER}|N/A)\s*$"
)
_MAX_COLUMNS = 200
_MAX_NAME = 100
_MAX_LINE = 2**16
_FULL = 100


class Tables:
    """The header that was seen last, and the rows that fit below it; ``last``: the line before."""

    def __init__(self) -> None:
        self.last = ""
        self.names: list[str] = []
        self._before = 0
        self._wide: list[str] = []
        self._box: dict[str, float] = {}
        self._group = ""
        self._data = ""

    @property
    def is_open(self) -> bool:
        """Whether a line of numbers may be a row of a table."""
        return bool(self.names or self._box or self._data)

    def look_for_header(self, line: str) -> None:
        """Take a line for the header of a table, if it is one: names without numbers, the first of them the axis; or
        what is above a ruler.
        """
        above, self.last = self.last, line
        if _RULER.fullmatch(line) is not None:
            self._take_columns(above, line)
            return
        axis = _AXIS.search(line)
        if axis is None:
            return
        head = line[axis.start() :].strip(f" \t{_BARS}")
        named = [cell for one in _BETWEEN.split(head) if (cell := _EDGES.sub("", one))]
        if not 2 <= len(named) <= _MAX_COLUMNS or any(map(_is_no_name, named)):
            return
        self._take_names(named, len(_cells(line[: axis.start()])))
        wide = [cell for one in _WIDE.split(head) if (cell := _EDGES.sub("", one))]
        self._wide = [wide[0].lower(), *wide[1:]] if 2 <= len(wide) < len(named) else []

    def _take_names(self, names: list[str], before: int) -> None:
        if {"box", "cls", "gpu_mem"}.issubset(names):  # YOLOv5: of three losses, and of nothing else
            names = [f"{name}_loss" if name in _OF_YOLO else name for name in names]
        self.names, self._before, self._wide = [names[0].lower(), *names[1:]], before, []

    def _take_columns(self, header: str, ruler: str) -> None:
        """Take the names that are above the columns of a ruler."""
        spans = [match.span() for match in re.finditer("-+", ruler)]
        ends = [start for start, _ in spans[1:]] + [_MAX_LINE]
        names = [header[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]
        names = [_SHORT_AXES.get(name, name) for name in names]
        if len(set(names)) == len(names) and names[0].lower() in _AXES and not any(map(_is_no_name, names)):
            self._take_names(names, 0)

    def row(self, line: str) -> tuple[dict[str, float], bool]:
        """The numbers of a row that ends with this line, by their names, and whether the line is of a table."""
        if line[:1] in _BARS and line and (cell := _CELL.fullmatch(line)) is not None and self._take_cell(cell):
            return {}, True
        if self._box and _EDGE.fullmatch(line) is not None:
            return self.end(), True
        if " | " in line and (beside := self._beside(line)) is not None:
            return beside, True
        row = self._below_header(line) if self.names else None
        return row or {}, row is not None

    def end(self) -> dict[str, float]:
        """The numbers of the box that has begun, by their names."""
        numbers, self._box, self._group = self._box, {}, ""
        return numbers

    def _take_cell(self, cell: re.Match[str]) -> bool:
        """Take a line of a box; false where it is of another kind of table."""
        name, value = cell["name"].rstrip(), as_written(cell["value"])
        if not cell["value"] and name.endswith("/"):
            self._group = name
            return True
        if value is None or _is_no_name(name) or len(self._box) >= _MAX_COLUMNS:
            return bool(self._box)
        self._box[f"{self._group}{name}" if cell["indent"] else name] = value
        return True

    def _beside(self, line: str) -> dict[str, float] | None:
        """The numbers of a line with one for each data set."""
        head = _OF_DATA.search(line)
        if head is not None and head["second"].lower() in HELD_OUT:
            self._data = HELD_OUT[head["second"].lower()]
            return {}
        found = _BESIDE.search(line) if self._data else None
        if found is None:
            return None
        numbers = {
            found["name"]: as_written(found["first"]),
            name_on(self._data, found["name"]): as_written(found["second"]),
        }
        return {name: number for name, number in numbers.items() if number is not None}

    def _below_header(self, line: str) -> dict[str, float] | None:
        bar = _BAR.search(line)
        if bar is not None and int(bar.group(1)) < _FULL:
            return {} if len(_cells(line[: bar.start()])) - self._before == len(self.names) else None
        cells = _cells(line if bar is None else line[: bar.start()])
        if self._wide and len(cells) - self._before == len(self._wide):
            self.names, self._wide = self._wide, []
        if len(cells) - self._before != len(self.names):
            return None
        plan = _OF_ALL.fullmatch(cells[self._before])
        if plan is not None:
            cells[self._before] = plan[1]
        numbers = {name: as_written(cell) for name, cell in zip(self.names, cells[self._before :], strict=True)}
        axis = numbers[self.names[0]]
        if axis is None or not abs(axis) < 2**53 or axis != int(axis):
            return None
        gaps = [cell for cell in cells[self._before :] if as_written(cell) is None]
        if any(_GAP.fullmatch(cell) is None for cell in gaps):
            return None
        if plan is not None and (known := axis_of(self.names[0])) is not None and known.kind == EPOCH:
            numbers[EPOCH + OF] = float(plan[2])
        return {name: number for name, number in numbers.items() if number is not None}


def _is_no_name(cell: str) -> bool:
    return not cell or len(cell) > _MAX_NAME or as_written(cell) is not None or not cell[0].isalpha()


def _cells(line: str) -> list[str]:
    return [cell for cell in _BETWEEN_CELLS.split(line.strip(f" \t{_BARS}")) if cell]
