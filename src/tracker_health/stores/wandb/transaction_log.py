"""W&B's transaction log of a run, ``run-ID.wandb``: what its records say, read without W&B's own package.

Its records are protocol buffers. Of their fields only those below are known here; all others pass through unread.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_step, parse_json
from tracker_health.readers.record_log import Record, RecordLog
from tracker_health.readers.regular_file import open_regular
from tracker_health.readers.wire import double, fields, signed, text, texts, varint, zigzag
from tracker_health.stores.naming import MAX_PATH_CHARACTERS
from tracker_health.stores.wandb.values import MAX_PARAMS, MEDIA, OWN_KEY, STEP, flattened, number, params_of

# Which field of a record holds what it is: a record has one of them.
HISTORY, SUMMARY, CONFIG, FILES, ARTIFACT, OUTPUT_RAW, RUN, EXIT, UUID = 2, 3, 5, 6, 8, 13, 17, 18, 19
PREEMPTING, ENVIRONMENT = 23, 26
_KNOWN = frozenset({HISTORY, SUMMARY, CONFIG, FILES, ARTIFACT, OUTPUT_RAW, RUN, EXIT, PREEMPTING, ENVIRONMENT})
RUN_CONFIG, RUN_SUMMARY, RUN_TAGS, RUN_TELEMETRY = 4, 5, 10, 19

_INTEGER, _DOUBLE, _TEXT, _JSON = 5, 6, 7, 8

OURS = b"tracker-health"
"""The ``uuid`` of the records that we put into a log. W&B's own have none there."""

MAX_ARTIFACT_FILES = 5000
_MAX_JSON_BYTES = 2**20
_MAX_NUMBER_CHARACTERS = 64
_MAX_KEY_BYTES = 4 * MAX_NAME_CHARACTERS
_MAX_CONSOLE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class LoggedFile:
    """A file of an artifact that a run logged. ``version``: a digest of all the artifact's files. ``staged``: where the
    copy of it lies that waits to be uploaded.
    """

    artifact: str
    version: str
    path: str
    size: int
    staged: str


@dataclass(kw_only=True)
class TransactionLog:
    """What a log says, histories aside.

    ``names``: what has numbers in the history; ``rows``: how many rows it has; ``last_step``: of the last. ``crowded``:
    there are so many names that none is given. ``exit_code``: None where no exit is recorded. ``run``: the last record
    of the run, as it stands. ``bears_ours``: there are records of ours; ``own``: what they set in the summary;
    ``own_tags``: all tags as they have them; ``own_files``: the files that they name. ``theirs``: the names below
    ``health/`` that its owner has in history or summary. ``printed``: how many pieces of the console are in it, as
    older SDKs put them there. ``preempting``: the run said that it is about to be preempted. ``cut``: the offset at
    which ours stand, or would: before the exit. ``contents``: a digest of all records that are not ours. ``damaged``,
    ``torn``: see ``RecordLog``.
    """

    run_id: str = ""
    entity: str = ""
    project: str = ""
    name: str = ""
    notes: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    params: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    rows: int = 0
    last_step: int | None = None
    crowded: bool = False
    exit_code: int | None = None
    artifacts: list[LoggedFile] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    own_tags: tuple[str, ...] = ()
    own_files: frozenset[str] = frozenset()
    theirs: frozenset[str] = frozenset()
    printed: int = 0
    preempting: bool = False
    run: bytes = b""
    cut: int = 0
    bears_ours: bool = False
    contents: str = ""
    damaged: int = 0
    torn: bool = False


def read_log(path: Path) -> TransactionLog:
    """What a log says, in one pass over the file.

    Raises:
        ReadError: it is no such log, or empty.
        OSError: it cannot be read.
    """
    return _Reader().read(path)


def records_of(path: Path) -> Iterator[tuple[Record, bool]]:
    """Every record of a log, and whether it is ours.

    Raises:
        ReadError: it is no such log.
        OSError: it cannot be read.
    """
    with BufferedReader(open_regular(path)) as file:
        for record in RecordLog(file):
            yield record, is_ours(record.content)


def is_ours(record: bytes) -> bool:
    """Whether a record is one that we put there."""
    if OURS not in record:  # nearly always, and cheaper
        return False
    try:
        return any(number == UUID and value == OURS for number, value in fields(record))
    except ReadError:
        return False


class _Reader:
    """One reading of a log."""

    def __init__(self) -> None:
        self._log = TransactionLog()
        self._names = _Names()
        self._theirs: set[str] = set()
        self._hash = hashlib.sha256()
        self._own_start: int | None = None
        self._exit_start: int | None = None
        self._last_row = b""

    def read(self, path: Path) -> TransactionLog:
        with BufferedReader(open_regular(path)) as file:
            records = RecordLog(file)
            for record in records:
                ours = is_ours(record.content)
                if ours:
                    self._own_start = record.start if self._own_start is None else self._own_start
                else:
                    self._hash.update(len(record.content).to_bytes(4, "little"))
                    self._hash.update(record.content)
                try:
                    parts = {kind: value for kind, value in fields(record.content) if kind in _KNOWN}
                    self._take(record, parts, ours=ours)
                except ReadError:
                    records.damaged += 1
        log = self._log
        places = [place for place in (self._own_start, self._exit_start) if place is not None]
        log.bears_ours = self._own_start is not None
        log.cut = min(places, default=records.end)
        log.names, log.contents = self._names.found(), self._hash.hexdigest()[:16]
        log.crowded = self._names.crowded
        named = self._theirs | self._names.all_names()
        log.theirs = frozenset(name.removeprefix(OWN_KEY) for name in named if name.startswith(OWN_KEY))
        log.damaged, log.torn = records.damaged, records.torn
        with suppress(ReadError):
            log.last_step = as_step(_row(self._last_row, frozenset({STEP}), {}).get(STEP, _step(self._last_row)))
        return log

    def _take(self, record: Record, parts: Mapping[int, int | bytes], *, ours: bool) -> None:
        """Take a record by what it is; nearly all are of the history."""
        for kind, value in parts.items():
            if type(value) is not bytes:
                continue
            if kind == HISTORY:
                self._log.rows += 1
                self._last_row = value
                self._names.take(value)
            elif kind == RUN:
                self._take_run(value, ours=ours)
            elif kind == SUMMARY:
                self._take_summary(value, ours=ours)
            elif kind == EXIT and self._exit_start is None:
                self._exit_start = record.start
                self._log.exit_code = _integer(value, 1)
            else:
                self._take_rest(kind, value, ours=ours)

    def _take_rest(self, kind: int, value: bytes, *, ours: bool) -> None:
        log = self._log
        if kind == OUTPUT_RAW:
            log.printed += 1
        elif kind == CONFIG:
            self._take_config(value)
        elif kind == FILES and ours:
            log.own_files |= {text(file, 1) for file in islice(_messages(value, 1), MAX_ARTIFACT_FILES)}
        elif kind == ARTIFACT:
            self._take_artifact(value)
        elif kind == ENVIRONMENT:
            log.host = log.host or text(value, 12)
        elif kind == PREEMPTING:
            log.preempting = True

    def _take_summary(self, summary: bytes, *, ours: bool) -> None:
        if ours:
            self._log.own |= _plain(summary)
        elif OWN_KEY.encode() in summary:
            self._theirs |= {_name(item) for item in islice(_messages(summary, 1), MAX_FIELDS)}

    def _take_run(self, run: bytes, *, ours: bool) -> None:
        log = self._log
        if ours:
            log.own_tags = tuple(texts(run, RUN_TAGS))
            return
        log.run = run
        log.run_id, log.entity, log.project = text(run, 1), text(run, 2) or log.entity, text(run, 3) or log.project
        log.name, log.notes, log.host = text(run, 8) or log.name, text(run, 9), text(run, 13) or log.host
        log.tags = tuple(texts(run, RUN_TAGS))
        for config in _messages(run, RUN_CONFIG):
            self._take_config(config)

    def _take_config(self, config: bytes) -> None:
        params = self._log.params
        for name, value in _plain(config).items():
            room = MAX_PARAMS if "." in name else 2 * MAX_PARAMS  # nested ones do not crowd out the others
            if len(params) < room or name in params:
                params[name] = value

    def _take_artifact(self, artifact: bytes) -> None:
        name, version = text(artifact, 5)[:MAX_NAME_CHARACTERS], text(artifact, 6)[:MAX_NAME_CHARACTERS]
        for manifest in _messages(artifact, 12):
            for entry in _messages(manifest, 4):
                if len(self._log.artifacts) >= MAX_ARTIFACT_FILES:
                    return
                path, size, staged = text(entry, 1), _integer(entry, 4), text(entry, 6)
                file = LoggedFile(artifact=name, version=version, path=path, size=size, staged=staged)
                if max(len(file.path), len(file.staged)) <= MAX_PATH_CHARACTERS:
                    self._log.artifacts.append(file)


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    """The messages of a field."""
    return (value for kind, value in fields(message) if kind == number and isinstance(value, bytes))


def _plain(message: bytes) -> dict[str, str]:
    """The names and values that a record of the configuration, or of the summary, sets: plain ones, as text."""
    plain: dict[str, str] = {}
    nested: dict[str, str] = {}
    for item in _messages(message, 1):
        name, value = _name(item), _parsed(text(item, 16).encode())
        found = nested if isinstance(value, dict) else plain
        if len(found) < MAX_PARAMS:
            found |= params_of({name: value})
    return plain | nested


def _name(item: bytes) -> str:
    """What an item is called: its key, or the parts of its nested key with dots between them."""
    return text(item, 1) or ".".join(texts(item, 2))


def _parsed(value: bytes) -> Any:
    """A value of JSON that may be plain or hold something plain; None where it is a list, too long, or no JSON."""
    try:
        return parse_json(value) if len(value) <= _MAX_JSON_BYTES and value[:1] != b"[" else None
    except (ValueError, RecursionError):
        return None


# The history


def rows_of(path: Path, wanted: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Of each row of the history the values of these names, numbers as such; rows without any are left out.

    ``_step`` is the record's own where the row does not have it.

    Raises:
        ReadError: it is no such log.
        OSError: it cannot be read.
    """
    keys: dict[bytes, str] = {}
    for record, _ in records_of(path):
        try:
            for kind, history in fields(record.content):
                if kind == HISTORY and type(history) is bytes and (row := _row(history, wanted, keys)):
                    yield row
        except ReadError:
            continue


def _row(history: bytes, wanted: frozenset[str], keys: dict[bytes, str]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, part in islice(_items(history), MAX_FIELDS):
        name = keys.get(key)
        if name is None:
            name = _name(key) if len(key) <= _MAX_KEY_BYTES else ""
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
        row[STEP] = _step(history)
    return row


def _step(history: bytes) -> int | None:
    return next((_integer(step, 1) for step in _messages(history, 2)), None)


def _integer(message: bytes, number: int) -> int:
    """A whole number of a message, 0 where it has none: as such it is not written."""
    return next((signed(value) for kind, value in fields(message) if kind == number and isinstance(value, int)), 0)


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
        return _parsed(value) if value[:1] in (b'"', b"{") else None
    for kind, typed in fields(part):
        if isinstance(typed, int):
            return zigzag(typed) if kind == _INTEGER else None
        if kind == _DOUBLE:
            return double(typed)
        if kind == _TEXT:
            return typed[:_MAX_NUMBER_CHARACTERS].decode("utf-8", "replace")
        return _parsed(typed) if kind == _JSON and typed[:1] == b"{" else None
    return None


def _nested(name: str, part: bytes) -> Iterator[tuple[str, Any]]:
    """What is in a value that is a dictionary, with the names that it has as if it were logged one by one."""
    value = _value(part)
    return flattened({name: value}) if isinstance(value, dict) else iter(())


def console_of(path: Path) -> bytes:
    """What the run printed, as far as its log has it: of very much the end.

    Raises:
        ReadError: it is no such log.
        OSError: it cannot be read.
    """
    pieces: deque[bytes] = deque()
    size = 0
    for record, _ in records_of(path):
        with suppress(ReadError):
            for kind, output in fields(record.content):
                if kind == OUTPUT_RAW and type(output) is bytes:
                    pieces.append(b"".join(_messages(output, 3)))
                    size += len(pieces[-1])
        while size > _MAX_CONSOLE_BYTES:
            size -= len(pieces.popleft())
    return b"".join(pieces)


class _Names:
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
                self._nested.update(name for name, one in flattened({_name(key): value}) if number(one) is not None)

    def all_names(self) -> set[str]:
        """Every name, whatever it has: of nested ones the first part."""
        return {_name(key) for key in self._keys}

    def found(self) -> tuple[str, ...]:
        """The names, sorted; those of media are left out, which have sizes and other numbers in them."""
        named = {_name(key): is_number for key, is_number in self._keys.items()}
        media = {name.removesuffix(MEDIA) for name in named if name.endswith(f".{MEDIA}")}
        names = {name for name, is_number in named.items() if is_number and len(name) <= MAX_NAME_CHARACTERS}
        plain = {name for name in names if not any(name[: at + 1] in media for at in _dots(name))}
        return tuple(sorted(plain | self._nested))


def _dots(name: str) -> list[int]:
    return [at for at, character in enumerate(name) if character == "."]
