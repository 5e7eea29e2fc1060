"""Jupyter notebooks: what their cells printed. Nothing of the code is read, let alone run.

Each cell that printed a training is a log of its own, and the last of them counts. Where no cell did, all that was
printed is one log, as of a training with a cell for each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.regular_file import open_log
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.text_blocks import plain
from tracker_health.readers.log_formats.text_lines import log_of_pieces
from tracker_health.roles import RolePlan
from tracker_health.text import listing

MAX_BYTES = 64 * 2**20
_MOST_CELLS = 2000
_MOST_OF_A_TABLE = 2**20
"""Characters; a longer one is no table of a training."""
_FEWEST = 3
"""Points of a metric in a cell that printed a training."""
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
        logs = [log_of_pieces(cell.texts, f"{source} {cell.name}", roles, path.stem) for cell in cells]
        trained = [at for at, log in enumerate(logs) if any(len(one) >= _FEWEST for one in log.series)]
        if not trained:
            return log_of_pieces(chain.from_iterable(cell.texts for cell in cells), source, roles, path.stem)
        names = [cells[at].name for at in trained]
        beside = f"; {listing(names[:-1])} printed other trainings" if names[:-1] else ""
        log = logs[trained[-1]]
        note = f"what {names[-1]} printed is judged{beside}"
        return replace(log, note="; ".join(filter(None, (note, log.note))))


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
    for number, cell in enumerate(cells[:_MOST_CELLS], 1):
        outputs = _list_of(cell, "outputs")
        if outputs:
            count = cell.get("execution_count", cell.get("prompt_number"))
            name = f"cell [{count}]" if isinstance(count, int) else f"cell {number} from the top"
            yield _Cell(name, tuple(filter(None, _texts_of(outputs))))


def _texts_of(outputs: list[Any]) -> Iterator[str]:
    """The texts of outputs, each of whole lines. What one stream printed in several pieces is one text: a line may go
    on in the next.
    """
    known = [output for output in outputs if isinstance(output, dict)]
    for stream, pieces in groupby(known, key=lambda one: str(one.get("name", one.get("stream", "")))):
        if stream:
            yield _lines("".join(_joined(piece.get("text")) for piece in pieces))
        else:
            yield from chain.from_iterable(map(_shown, pieces))


def _shown(output: dict[str, Any]) -> Iterator[str]:
    """What an output that is no stream shows: a table, a text, or an error's traceback."""
    data = output.get("data", output)
    kind = output.get("output_type")
    if kind in ("error", "pyerr"):
        traceback = _joined(output.get("traceback"), "\n")
        last = f"{output.get('ename', '')}: {output.get('evalue', '')}".partition("\n")[0]
        yield _lines(f"Traceback (most recent call last):\n{traceback}\n{last}")
    elif isinstance(data, dict):
        html = _joined(data.get("text/html", data.get("html")))
        table = _table_of(html) if "<td" in html[:_MOST_OF_A_TABLE] else ""
        yield table or _lines(_joined(data.get("text/plain", data.get("text"))))


def _lines(text: str) -> str:
    return f"{plain(text)}\n" if text.strip() else ""


def _joined(text: Any, by: str = "") -> str:
    if isinstance(text, list):
        return by.join(one for one in text if isinstance(one, str))
    return text if isinstance(text, str) else ""


def _list_of(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _table_of(html: str) -> str:
    """The tables of a page as lines, as the Hugging Face Trainer and fastai show their progress."""
    if len(html) > _MOST_OF_A_TABLE:
        return ""
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
