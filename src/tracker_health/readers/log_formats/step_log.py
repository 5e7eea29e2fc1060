"""Step logs in JSON lines, as most trainers write them: one object a line, its numbers the metrics of one step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tracker_health.readers.files.json_lines import BadLine, json_lines
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.log_formats.text_troubles import Troubles
from tracker_health.roles import RolePlan
from tracker_health.text import count

_LINES_TO_RECOGNISE = 2000


class StepLog:
    """JSON lines; see ``LogTable.take`` for what an object of them means."""

    precise = True

    def recognises(self, head: bytes) -> bool:
        lines = [line.strip() for line in head.split(b"\n")]
        # Those that end with a comma are of one JSON value that goes over many lines.
        objects = [line for line in lines if line.startswith(b"{") and not line.endswith(b",")]
        return bool(objects) and any(b'"' in line for line in objects) and 2 * len(objects) >= sum(map(bool, lines))

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        table = LogTable(roles)
        others = OtherLines(table)
        last = 0
        for number, value in json_lines(path):
            last = number
            if value.__class__ is dict:
                table.take(value)
            elif isinstance(value, BadLine):
                others.add(number, value.text)
            if number == _LINES_TO_RECOGNISE and not table.is_promising:
                break
        return others.log(source, last)


class OtherLines:
    """The lines of a log that have another form than the rest: how many there are, and what they say of its end."""

    def __init__(self, table: LogTable) -> None:
        self._table, self._troubles = table, Troubles(table)
        self._count = self._first = 0

    def add(self, number: int, line: str) -> None:
        """Note one; ``number``: its place in the file, from 1."""
        self._count += 1
        self._first = self._first or number
        if self._troubles.suspects(line):
            self._troubles.lines, self._troubles.rows = number, self._table.rows
            self._troubles.look(line)

    def log(self, source: str, last: int, odd: str = "not JSON", rest: str = "; the others were read") -> Log:
        """The table as a log, with what these lines say; ``last``: the number of the file's last line."""
        history, troubles = self._table.history(), self._troubles
        log = self._table.log(source, bad_lines(self._count, self._first, last, odd, rest), history)
        troubles.lines, troubles.rows = last, self._table.rows
        text = troubles.log(source, history) if self._count else None
        doubtful = self._count > (last // 2 if log.series else 0)
        return replace(log, text=text if text is not None and text.troubles else None, is_doubtful=doubtful)


def bad_lines(bad: int, first: int, last: int, odd: str = "not JSON", rest: str = "; the others were read") -> str:
    """What to say of lines that could not be read: how many, the first of them, and the last line there is."""
    if not bad:
        return ""
    if bad == 1 and first == last:
        return f"line {last}, its last, is cut off; the lines before it were read"
    return f"{count(bad, 'line')} of {last} {odd} (the first is line {first}){rest}"
