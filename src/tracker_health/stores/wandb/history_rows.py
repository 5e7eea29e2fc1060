"""The rows of a history in W&B's transaction log: their names, and the values that are asked for. And what W&B's SDK
measured of the machine beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import Series
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, parse_json
from tracker_health.readers.files.protobuf import double, fields, signed, text, texts, varint, zigzag
from tracker_health.roles import RolePlan
from tracker_health.stores.wandb.values import MEDIA, STEP, flattened, number

_INTEGER, _DOUBLE, _TEXT, _JSON = 5, 6, 7, 8

_MAX_JSON_BYTES = 2**20
_MAX_NUMBER_CHARACTERS = 64
_MAX_KEY_BYTES = 4 * MAX_NAME_CHARACTERS


def messages(message: bytes, number: int) -> Iterator[bytes]:
    """The messages of a field."""
    return (value for kind, value in fields(message) if kind == number and isinstance(value, bytes))


def name_of(item: bytes) -> str:
    """What an item is called: its key, or the parts of its nested key with dots between them."""
    return text(item, 1) or ".".join(texts(item, 2))


def parsed(value: bytes) -> Any:
    """A value of JSON that may be plain or hold something plain; None where it is a list, too long, or no JSON."""
    try:
        return parse_json(value) if len(value) <= _MAX_JSON_BYTES and value[:1] != b"[" else None
    except (ValueError, RecursionError):
        return None


def integer(message: bytes, number: int) -> int:
    """A whole number of a message, 0 where it has none: as such it is not written."""
    return next((signed(value) for kind, value in fields(message) if kind == number and isinstance(value, int)), 0)


def row_of(history: bytes, wanted: frozenset[str], keys: dict[bytes, str]) -> dict[str, Any]:
    """The values of these names in a row. ``keys``: what the keys that were met before are called.

    Raises:
        ReadError: these bytes are no record of the history.
    """
    row: dict[str, Any] = {}
    for key, part in islice(_items(history), MAX_FIELDS):
        name = keys.get(key)
        if name is None:
            name = name_of(key) if len(key) <= _MAX_KEY_BYTES else ""
            if len(keys) < MAX_FIELDS:
                keys[key] = name
        if name in wanted:
            value = _value(part)
            if value.__class__ is not dict:
                row[name] = value
                continue
        elif part[-1:] != b"}":
            continue
        row.update(item for item in _nested(name, part) if item[0] in wanted)
    if row and STEP not in row:
        row[STEP] = step_of(history)
    return row


def step_of(history: bytes) -> int | None:
    """The step that a row was logged at, as W&B counts them; None where it has none."""
    return next((integer(step, 1) for step in messages(history, 2)), None)


def _items(history: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Of each item the fields of its name, and those of its value. A name too long to be read may be cut short.

    Written for speed: there are twenty of them in a row, and ten thousand rows.

    Raises:
        ReadError: these bytes are no record of the history.
    """
    place, end = 0, len(history)
    try:
        while place < end:
            is_item = history[place] == 0x0A
            if not is_item and history[place] & 7 != 2:
                raise ReadError("a row of the history has a field of an unknown kind")
            length = history[place + 1]
            place += 2
            if length > 0x7F:
                length, place = varint(history, place - 1)
            stop = at = place + length
            if is_item:
                at = place
                # A name may have millions of parts.
                while at < stop and at - place <= _MAX_KEY_BYTES and history[at] in (0x0A, 0x12):
                    length = history[at + 1]
                    at += 2
                    if length > 0x7F:
                        length, at = varint(history, at - 1)
                    at += length
            if at > stop or stop > end:
                raise ReadError("a row of the history is cut off")
            if is_item:
                yield history[place:at], history[at:stop]
            place = stop
    except IndexError:
        raise ReadError("a row of the history is cut off") from None


def _value(part: bytes) -> Any:
    """The value in an item: a number, text, a dictionary; None for what can be no number and holds none.

    Raises:
        ReadError: these bytes are no value.
    """
    if part[:2] == b"\x82\x01":  # in JSON
        value = part[3:] if part[2:3] < b"\x80" else part[varint(part, 2)[1] :]
        if len(value) <= _MAX_NUMBER_CHARACTERS:
            try:
                return float(value)  # NaN and Infinity too
            except ValueError:
                pass
        return parsed(value) if value[:1] in (b'"', b"{") else None
    for kind, typed in fields(part):
        if isinstance(typed, int):
            return zigzag(typed) if kind == _INTEGER else None
        if kind == _DOUBLE:
            return double(typed)
        if kind == _TEXT:
            return typed[:_MAX_NUMBER_CHARACTERS].decode("utf-8", "replace")
        return parsed(typed) if kind == _JSON and typed[:1] == b"{" else None
    return None


def _nested(name: str, part: bytes) -> Iterator[tuple[str, Any]]:
    """What is in a value that is a dictionary, with the names that it has as if it were logged one by one."""
    value = _value(part)
    return flattened({name: value}) if isinstance(value, dict) else iter(())


class Names:
    """The names in the history that have numbers; none at all where there are too many (``crowded``)."""

    def __init__(self) -> None:
        self.crowded = False
        self._keys: dict[bytes, bool] = {}
        self._nested: set[str] = set()

    def take(self, history: bytes) -> None:
        """Take a row.

        Raises:
            ReadError: these bytes are no record of the history.
        """
        if self.crowded:
            return
        known = self._keys
        for at, (key, part) in enumerate(_items(history)):
            if max(at, len(known) + len(self._nested)) >= MAX_FIELDS:
                self.crowded = True
                known.clear()
                self._nested.clear()
                return
            if known.get(key) or len(key) > _MAX_KEY_BYTES:
                continue
            value = _value(part)
            known[key] = number(value) is not None
            if isinstance(value, dict):
                self._nested.update(name for name, one in flattened({name_of(key): value}) if number(one) is not None)

    def all_names(self) -> set[str]:
        """Every name, whatever it has: of nested ones the first part."""
        return {name_of(key) for key in self._keys}

    def found(self) -> tuple[str, ...]:
        """The names, sorted; those of media are left out, which have sizes and other numbers in them."""
        named = {name_of(key): is_number for key, is_number in self._keys.items()}
        media = {name.removesuffix(MEDIA) for name in named if name.endswith(f".{MEDIA}")}
        names = {name for name, is_number in named.items() if is_number and len(name) <= MAX_NAME_CHARACTERS}
        plain = {name for name in names if not any(name[: at + 1] in media for at in _dots(name))}
        return tuple(sorted(plain | self._nested))


def _dots(name: str) -> list[int]:
    return [at for at, character in enumerate(name) if character == "."]


# The machine

_KEPT = 2_000
"""Of more records every second, fourth, ... is kept: they come every few seconds, for weeks."""
_MOST_NAMES = 100
_MEASURED = re.compile(r"gpu\.\d{1,3}\.(?:gpu|memoryAllocatedBytes)|proc\.memory\.rssMB")
_PREFIX = "system."  # as W&B's pages call them
_TIME, _ITEM, _KEY, _VALUE = 2, 3, 1, 16


class Machine:
    """The points of the machine, taken record by record."""

    def __init__(self) -> None:
        self._records: list[tuple[float, dict[str, float]]] = []
        self._names: set[str] = set()
        self._met, self._stride = 0, 1

    def take(self, record: bytes) -> None:
        """Take a record of statistics.

        Raises:
            ReadError: these bytes are none.
        """
        self._met += 1
        if self._met % self._stride:
            return
        time = next((integer(stamp, 1) + integer(stamp, 2) / 1e9 for stamp in messages(record, _TIME)), 0.0)
        values = dict(self._values_of(record))
        if time > 0.0 and values:
            self._records.append((time, values))
        if len(self._records) >= 2 * _KEPT:
            self._records, self._stride = self._records[::2], 2 * self._stride

    def _values_of(self, record: bytes) -> Iterator[tuple[str, float]]:
        for item in messages(record, _ITEM):
            name = text(item, _KEY)
            known = name in self._names or (len(self._names) < _MOST_NAMES and _MEASURED.fullmatch(name))
            value = number(parsed(text(item, _VALUE).encode())) if known else None
            if value is not None:
                self._names.add(name)
                yield name, value

    def series(self, roles: RolePlan, source: str) -> list[Series]:
        """Those of the metrics that are needed, by the records that were kept.

        Args:
            roles: Says which are, and what they are.
            source: Where they were read.

        Returns:
            A series for each, in the order of their names.
        """
        needed = roles.of([_PREFIX + name for name in sorted(self._names)]).needed
        return [self._series(name, role, source) for name, role in needed.items()]

    def _series(self, name: str, role: str, source: str) -> Series:
        key = name.removeprefix(_PREFIX)
        points = [(at, time, values[key]) for at, (time, values) in enumerate(self._records) if key in values]
        return Series(
            name=name,
            role=role,
            source=source,
            steps=np.array([at for at, _, _ in points], dtype=np.int64),
            values=np.array([value for _, _, value in points]),
            times=np.array([time for _, time, _ in points]),
            step_word="record",
        )
