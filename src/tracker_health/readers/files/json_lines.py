"""Lines of JSON from files that nobody vouches for: bounded length, depth and number size, never a crash."""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from tracker_health.errors import ReadError
from tracker_health.readers.files.regular_file import open_log, pass_hole

MAX_LINE_BYTES = 8 * 2**20
MAX_LINES = 1_500_000
# A sparse file can be a million times as long as the disk.
MAX_LOG_BYTES = 2**34
MAX_FIELDS = 20_000
MAX_NAME_CHARACTERS = 1000
MAX_PARAM_CHARACTERS = 500
# Parsing makes up to 120 bytes of objects for each of the characters that begin or part values.
MAX_JSON_PARTS = 1_500_000
_MAX_SKIPPED = 2**30 // MAX_LINE_BYTES
_BLOCK_BYTES = 2**16
_MAX_SHOWN = 500
_BLANK = object()


def parse_json(text: bytes, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value of a JSON text in UTF-8 that would not take hundreds of megabytes of objects.

    Raises:
        ValueError: it is not JSON, not UTF-8 (UnicodeDecodeError), or has too many values.
        RecursionError: it is nested too deeply.
    """
    if len(text) > MAX_JSON_PARTS and sum(map(text.count, (b"{", b"[", b","))) > MAX_JSON_PARTS:
        raise ValueError(f"it has more than {MAX_JSON_PARTS} values")
    return json.loads(text.removeprefix(BOM_UTF8).decode(), object_pairs_hook=object_pairs_hook)


@dataclass(frozen=True)
class BadLine:
    """A line that is not JSON. ``undecodable``: its bytes are not even UTF-8; ``text``: its beginning."""

    undecodable: bool = False
    text: str = field(default="", compare=False, repr=False)


def json_lines(path: Path, max_lines: int | None = None) -> Iterator[tuple[int, Any]]:
    """Line number (from 1) and value of every non-blank line; the value is a ``BadLine`` where the line is not JSON.

    Raises:
        ReadError: it is no regular file, or has more than ``max_lines``, or one that does not end.
        OSError: the file cannot be read.
    """
    number = 0
    with open_log(path) as file:
        while block := file.read(_BLOCK_BYTES):
            room = MAX_LINE_BYTES - (len(block) - 1 - block.rfind(b"\n"))
            rest = b"" if block.endswith(b"\n") else file.readline(room)
            endless = len(rest) == room and not rest.endswith(b"\n")
            for value in _values(block + rest, cut=endless):
                number += 1
                if max_lines is not None and number > max_lines:
                    raise ReadError(f"it has more than the {max_lines} lines that are read")
                if value is not _BLANK:
                    yield number, value
            if endless:
                _skip_line(file)
            if file.tell() > MAX_LOG_BYTES:
                raise ReadError(f"it is larger than the {MAX_LOG_BYTES} bytes that are read")


def _values(block: bytes, cut: bool) -> Iterable[Any]:
    """Of each line its value, a ``BadLine``, or ``_BLANK``. ``cut``: the last line is not whole."""
    if not cut and (objects := _objects(block)) is not None:
        return objects
    lines = block.removesuffix(b"\n").split(b"\n")
    values = (_parsed(line) if line.strip() else _BLANK for line in (lines[:-1] if cut else lines))
    return chain(values, (BadLine(),)) if cut else values


def _objects(block: bytes) -> list[Any] | None:
    """The objects of lines that hold one each, parsed at once; None where each line must be looked at by itself.

    Where nothing in a block opens a list, a brace at the beginning of a line can only open a value of its own. Within
    an object a name would have to come, and a text has no line's end in it. So a block with as many values as lines has
    one value on each line.
    """
    if len(block) > 2 * _BLOCK_BYTES or b"[" in block or not block.startswith(b"{"):
        return None
    lines = block.removesuffix(b"\n")
    ends = lines.count(b"\n")
    if lines.count(b"\n{") != ends:
        return None
    try:
        values = json.loads("[" + lines.decode().replace("\n", ",\n") + "]")
    except (ValueError, RecursionError):
        return None
    return values if len(values) == ends + 1 else None


def _skip_line(file: BinaryIO) -> None:
    for _ in range(_MAX_SKIPPED):
        rest = file.readline(MAX_LINE_BYTES)
        if not rest or rest.endswith(b"\n"):
            return
        if rest == bytes(MAX_LINE_BYTES):
            pass_hole(file)
    raise ReadError("it has a line of more than a gigabyte")


_scan = json.JSONDecoder().raw_decode


def _parsed(line: bytes) -> Any:
    if len(line) <= MAX_JSON_PARTS:
        try:
            text = line.decode()
            value, end = _scan(text)
        except (ValueError, RecursionError):  # blanks or a mark before it, or no JSON at all
            pass
        else:
            if text[end:].strip() == "":
                return value
    try:
        return parse_json(line)
    except UnicodeDecodeError:
        return BadLine(undecodable=True, text=_beginning_of(line))
    except (ValueError, RecursionError):
        return BadLine(text=_beginning_of(line))


def _beginning_of(line: bytes) -> str:
    return line[:_MAX_SHOWN].decode(errors="replace")


def as_number(value: Any) -> float | None:
    """A logged number, given as one or as text (``"0.5"``, ``"NaN"``); None for anything else."""
    if value.__class__ is float:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and len(value) > 64:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if int(value) > 0 else -math.inf
    except ValueError:
        return None


def as_step(value: Any) -> int | None:
    """A step number, given as a number or as text; None where it is no whole number of a sane size."""
    if value.__class__ is int and abs(value) < 2**53:
        return value
    number = as_number(value)
    if number is None or not math.isfinite(number) or abs(number) >= 2**53 or number != int(number):
        return None
    return int(number)


def param_text(value: float | str) -> str:
    """A plain value of a configuration as text, cut where it is long."""
    try:
        return str(value)[:MAX_PARAM_CHARACTERS]
    except ValueError:  # an integer of thousands of digits
        return "a number too large to write"
