"""Step logs in JSON lines, as most trainers write them: one object a line, its numbers the metrics of one step."""

from __future__ import annotations

from pathlib import Path

from tracker_health.readers.json_lines import BadLine, json_lines
from tracker_health.readers.log_formats.base import Log, SelectNames
from tracker_health.readers.log_formats.table import LogTable
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

    def read(self, path: Path, source: str, select_names: SelectNames, prefix: str = "") -> Log:
        table = LogTable(select_names, prefix)
        bad = first_bad = last = 0
        for number, value in json_lines(path):
            last = number
            if value.__class__ is dict:
                table.take(value)
            elif isinstance(value, BadLine):
                bad += 1
                first_bad = first_bad or number
            if number == _LINES_TO_RECOGNISE and not table.is_promising:
                break
        return table.log(source, bad_lines(bad, first_bad, last))


def bad_lines(bad: int, first: int, last: int, odd: str = "not JSON", rest: str = "; the others were read") -> str:
    """What to say of lines that could not be read: how many, the first of them, and the last line there is."""
    if not bad:
        return ""
    if bad == 1 and first == last:
        return f"line {last}, its last, is cut off; the lines before it were read"
    return f"{count(bad, 'line')} of {last} {odd} (the first is line {first}){rest}"
