"""Jupyter notebooks: what their cells printed. Nothing of the code is read, let alone run.

Each cell that printed a training is a log of its own, and the last of them counts. Where no cell did, all that was
printed is one log, as of a training with a cell for each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.evidence import StepUnit
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.regular_file import open_log
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.text_blocks import plain
from tracker_health.readers.log_formats.text_lines import log_of_pieces
from tracker_health.roles import RolePlan
from tracker_health.text import listing

MAX_BYTES = 64 * 2**20
_MOST_CELLS = 2000
"""Of the last ones."""
_MOST_OF_TABLES, _MOST_OF_A_TABLE = 2**22, 2**20
"""Characters of HTML that are looked at; a longer one is no table of a training."""
_FEWEST, _OF_THE_LONGEST = 3, 0.5
"""Points of a metric of cells that printed a training; and the share of the most of any that the last one has."""
_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*\"(?:cells|metadata|nbformat|nbformat_minor|worksheets)\"\s*:")


class _Cell(NamedTuple):
    """What a code cell printed, and what people call it: by the count of its execution."""

    name: str
    texts: tuple[str, ...]


class Notebook:
    """A notebook's JSON, of version 3 or later."""

    precise = False

    def recognises(self, head: bytes) -> bool:
        return _BEGINS.match(head) is not None and b'"cell_type"' in head

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        """What was printed.

        Raises:
            ReadError: it is no regular file, no JSON, or too large.
            OSError: it cannot be read.
        """
        cells = [cell for cell in _cells_of(path) if cell.texts]
        printed = [_Printed((cell,), _log_of([cell], source, roles, path.stem)) for cell in cells]
        trainings = [one for one in _joined_where_they_go_on(printed) if one.points >= _FEWEST]
        if not trainings:
            log = log_of_pieces(chain.from_iterable(cell.texts for cell in cells), source, roles, path.stem)
            # Numbers without an epoch or a step are of an analysis as well.
            return log if _points_of(log) else replace(log, series=(), odd=())
        most = max(one.points for one in trainings)
        last = [one for one in trainings if one.points >= _OF_THE_LONGEST * most][-1]
        log = last.log if len(last.cells) == 1 else _log_of(last.cells, source, roles, path.stem)
        others = [cell.name for one in trainings if one is not last for cell in one.cells]
        beside = f"; {listing(others)} printed other trainings" if others else ""
        note = f"what {listing([cell.name for cell in last.cells])} printed is judged{beside}"
        return replace(log, note="; ".join(filter(None, (note, log.note))))


class _Printed(NamedTuple):
    """What cells printed that go on where the one before ended; ``log``: of the last of them."""

    cells: tuple[_Cell, ...]
    log: Log
    before: int = 0

    @property
    def points(self) -> int:
        return self.before + _points_of(self.log)


def _log_of(cells: Sequence[_Cell], source: str, roles: RolePlan, stem: str) -> Log:
    where = f"{source} {cells[-1].name}"
    return log_of_pieces(chain.from_iterable(cell.texts for cell in cells), where, roles, stem)


def _points_of(log: Log) -> int:
    """The points of the longest metric that says its epoch or step."""
    return max((len(one) for one in log.series if one.step_unit is not StepUnit.LOG_CALL), default=0)


def _joined_where_they_go_on(printed: list[_Printed]) -> list[_Printed]:
    """Cells of which each begins beyond the last epoch or step of the one before, with the same metrics, as one."""
    found: list[_Printed] = []
    for one in printed:
        before = found[-1] if found else None
        if before is not None and _goes_on(before.log, one.log):
            found[-1] = _Printed((*before.cells, *one.cells), one.log, before.points)
        else:
            found.append(one)
    return found


def _goes_on(one: Log, other: Log) -> bool:
    ends = {series.name: series.steps[-1] for series in one.series if len(series)}
    begins = {series.name: series.steps[0] for series in other.series if len(series)}
    placed = _points_of(one) > 0 and _points_of(other) > 0
    return placed and ends.keys() == begins.keys() and all(begins[name] > ends[name] for name in ends)


def _cells_of(path: Path) -> Iterator[_Cell]:
    with open_log(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ReadError(f"it is larger than the {MAX_BYTES} bytes of a notebook that are read")
    try:
        document = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise ReadError("it is no notebook: not JSON, or cut short") from error
    sheets = _list_of(document, "worksheets")  # of version 3
    cells = [*_list_of(document, "cells"), *chain.from_iterable(_list_of(sheet, "cells") for sheet in sheets)]
    tables = _Tables()
    for number, cell in list(enumerate(cells, 1))[-_MOST_CELLS:]:
        outputs = _list_of(cell, "outputs")
        if outputs:
            count = cell.get("execution_count", cell.get("prompt_number"))
            counted = isinstance(count, int) and not isinstance(count, bool)
            name = f"cell [{count}]" if counted else f"cell {number} from the top"
            yield _Cell(name, tuple(filter(None, _texts_of(outputs, tables))))


def _texts_of(outputs: list[Any], tables: _Tables) -> Iterator[str]:
    """The texts of outputs, each of whole lines. What one stream printed in several pieces is one text: a line may go
    on in the next.
    """
    known = [output for output in outputs if isinstance(output, dict)]
    for stream, pieces in groupby(known, key=lambda one: str(one.get("name", one.get("stream", "")))):
        if stream:
            yield _lines("".join(_joined(piece.get("text")) for piece in pieces))
        else:
            yield from chain.from_iterable(_shown(piece, tables) for piece in pieces)


def _shown(output: dict[str, Any], tables: _Tables) -> Iterator[str]:
    """What an output that is no stream shows: a table, a text, or an error's traceback."""
    data = output.get("data", output)
    kind = output.get("output_type")
    if kind in ("error", "pyerr"):
        traceback = _joined(output.get("traceback"), "\n")
        last = f"{output.get('ename', '')}: {output.get('evalue', '')}".partition("\n")[0]
        yield _lines(f"Traceback (most recent call last):\n{traceback}\n{last}")
    elif isinstance(data, dict):
        html = _joined(data.get("text/html", data.get("html")))
        yield tables.lines(html) or _lines(_joined(data.get("text/plain", data.get("text"))))


def _lines(text: str) -> str:
    return f"{plain(text)}\n" if text.strip() else ""


def _joined(text: Any, by: str = "") -> str:
    if isinstance(text, list):
        return by.join(one for one in text if isinstance(one, str))
    return text if isinstance(text, str) else ""


def _list_of(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


class _Tables:
    """The tables of pages as lines, as the Hugging Face Trainer and fastai show their progress; so many characters of
    pages as a notebook has of them are looked at.
    """

    def __init__(self) -> None:
        self._left = _MOST_OF_TABLES

    def lines(self, html: str) -> str:
        if len(html) > min(_MOST_OF_A_TABLE, self._left) or "<tr" not in html:
            return ""
        self._left -= len(html)
        rows = _Rows()
        rows.feed(html)
        return "".join("\t".join(row) + "\n" for row in rows.found if row)


class _Rows(HTMLParser):
    """The cells' texts, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag == "tr":
            self.found.append([])
        if tag in ("td", "th") and self.found:
            self.found[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th", "tr")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1][-1] += " ".join(data.replace("|", " ").split())
