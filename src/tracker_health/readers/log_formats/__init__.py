"""Formats of logs: one file each, told by what a file holds and not by its name."""

from __future__ import annotations

import re
import zlib
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import open_log
from tracker_health.readers.log_formats.base import HEAD_BYTES, Log, LogFormat
from tracker_health.readers.log_formats.csv_table import CsvTable
from tracker_health.readers.log_formats.event_file import EventFile
from tracker_health.readers.log_formats.gap_log import GapLog
from tracker_health.readers.log_formats.json_history import JsonHistory
from tracker_health.readers.log_formats.notebook import Notebook
from tracker_health.readers.log_formats.step_log import StepLog
from tracker_health.readers.log_formats.text_lines import TextLines, log_of
from tracker_health.roles import RolePlan

_EVENTS, _GAP, _STEPS, _TABLE, _NOTEBOOK = EventFile(), GapLog(), StepLog(), CsvTable(), Notebook()
FORMATS: tuple[LogFormat, ...] = (_EVENTS, _GAP, _NOTEBOOK, _STEPS, JsonHistory(), _TABLE, TextLines())
"""Of two that recognise a file the first is tried first, and the other where that finds nothing."""


_NAMES: tuple[tuple[re.Pattern[str], LogFormat], ...] = (
    (re.compile(r".*\.(?:jsonl|ndjson)(?:\.gz)?", re.IGNORECASE), _STEPS),
    (re.compile(r"(?:.*\.)?events\.out\.tfevents(?:\..*)?", re.IGNORECASE | re.DOTALL), _EVENTS),
    (re.compile(r".*\.ipynb", re.IGNORECASE), _NOTEBOOK),
)


_DAMAGED = (EOFError, BadGzipFile, zlib.error)
_NO_GZIP = "what gzip compressed in it is damaged, or cut short"


def promised_by(name: str) -> LogFormat | None:
    """The format that a file of this name has to have; None where there may be anything in it."""
    return next((form for pattern, form in _NAMES if pattern.fullmatch(name)), None)


def formats_of(path: Path) -> list[LogFormat]:
    """The formats that a file may have, the likeliest first.

    Raises:
        ReadError: it is no regular file.
        OSError: it cannot be read.
    """
    with open_log(path) as file:
        try:
            head = file.read(HEAD_BYTES)
        except _DAMAGED as error:
            raise ReadError(_NO_GZIP) from error
    return [one for one in FORMATS if one.recognises(head)]


def is_table(head: bytes) -> bool:
    """Whether a file that begins like this has lines of a format that is recognised by its beginning."""
    return any(one.recognises(head) for one in (_GAP, _STEPS, _TABLE))


def read_log(path: Path, source: str, roles: RolePlan) -> tuple[Log, LogFormat | None]:
    """What a log holds, and its format: the first that finds a metric in it and fits most of its lines; else, of those
    that may be it, the one that finds most. Each is tried once at most.

    Raises:
        ReadError: it is no regular file, or cannot be read as what it is.
        OSError: it cannot be read.
    """
    promised = promised_by(PurePosixPath(source).name)
    formats = formats_of(path)
    if promised is not None and promised not in formats:
        formats.insert(0, promised)
    found: list[tuple[Log, LogFormat]] = []
    failure: ReadError | None = None
    for one in formats:
        try:
            log = one.read(path, source, roles)
        except ReadError as error:
            failure = failure or error
            continue
        except _DAMAGED:
            failure = failure or ReadError(_NO_GZIP)
            continue
        if log.names and not log.is_doubtful:
            return log, one
        found.append((log, one))
    best = max(found, key=lambda one: _told_by(one[0]), default=None)
    if failure is not None and (best is None or not any(_told_by(best[0]))):
        raise failure
    return best or (Log(), None)


def _told_by(log: Log) -> tuple[int, bool, bool]:
    """How much a log tells: the points of its series, whether it has any metrics, and whether it says how it ended."""
    return sum(map(len, log.series)), bool(log.names), log.text is not None and bool(log.text.troubles)


__all__ = [
    "FORMATS",
    "Log",
    "LogFormat",
    "formats_of",
    "is_table",
    "log_of",
    "promised_by",
    "read_log",
]
