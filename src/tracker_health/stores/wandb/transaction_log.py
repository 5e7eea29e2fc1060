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
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_step
from tracker_health.readers.files.protobuf import double, fields, text, texts
from tracker_health.readers.files.record_log import LogRecord, RecordLog
from tracker_health.readers.files.regular_file import open_regular
from tracker_health.run_files.naming import MAX_PATH_CHARACTERS
from tracker_health.stores.wandb.history_rows import Machine, Names, integer, messages, name_of, parsed, row_of, step_of
from tracker_health.stores.wandb.own_axes import GLOB, NAME, STEP_METRIC, StepMetrics
from tracker_health.stores.wandb.values import MAX_PARAMS, OWN_KEY, STEP, TIME, number, params_of
from tracker_health.words.gap_names import STOPPED_KEY

# Which field of a record holds what it is: a record has one of them.
HISTORY, SUMMARY, CONFIG, FILES, STATS, ARTIFACT, OUTPUT_RAW, RUN, EXIT, UUID = 2, 3, 5, 6, 7, 8, 13, 17, 18, 19
METRIC, PREEMPTING, ENVIRONMENT = 12, 23, 26
_KNOWN = frozenset(
    {HISTORY, SUMMARY, CONFIG, FILES, STATS, ARTIFACT, METRIC, OUTPUT_RAW, RUN, EXIT, PREEMPTING, ENVIRONMENT}
)
RUN_CONFIG, RUN_SUMMARY, RUN_TAGS, RUN_SWEEP, RUN_START, RUN_TELEMETRY = 4, 5, 10, 12, 17, 19
RUN_STARTING_STEP, RUN_RESUMED, RUN_BRANCH, RUN_RESUME = 14, 18, 23, 24
_TIME_IN = {STATS: 2, OUTPUT_RAW: 2}
"""Which field of a record holds its time."""


OURS = b"tracker-health"
"""The ``uuid`` of the records that we put into a log. W&B's own have none there."""

MAX_ARTIFACT_FILES = 5000


_MAX_CONSOLE_BYTES = 64 * 2**20
_FIRST_TIME, _LAST_TIME = 946_684_800.0, 4_102_444_800.0  # of the years 2000 and 2100


@dataclass(frozen=True, kw_only=True)
class LoggedFile:
    """A file of an artifact that a run logged. ``version``: a digest of all the artifact's files. ``staged``: where the
    copy of it is that waits to be uploaded.
    """

    artifact: str
    version: str
    path: str
    size: int
    staged: str


@dataclass(kw_only=True)
class TransactionLog:
    """What a log says, histories aside.

    ``names``: what has numbers in the history; ``rows``: how many rows it has; ``first_step`` and ``last_step``: of the
    first and last. ``sweep``: the id of the one that the run is a trial of. ``started``: in seconds since 1970, None
    where it does not say. ``resumes``: W&B says that this log continues its run.
    ``branch``: the run that it was forked from, or rewound, and the last step of that which counts. ``crowded``:
    there are so many names that none is given. ``exit_code``: None where no exit is recorded. ``run``: the last record
    of the run, as it stands. ``bears_ours``: there are records of ours; ``own``: what they set in the summary;
    ``own_tags``: all tags as they have them; ``own_files``: the files that they name. ``theirs``: the names below
    ``health/`` that its owner has in history or summary. ``stopped``: the text of ``health/stopped`` in the summary.
    ``heard``: the time of its newest record, in seconds since 1970, None where none has one.
    ``logged``: of its last row, or of what was printed after it; ``measured``: of the newest record of the machine.
    ``machine``: the points of those. ``printed``: how many pieces of the console are in it, as older SDKs put them
    there. ``preempting``: the run said that it is about to be preempted. ``cut``: the offset at which ours stand, or
    would: before the exit. ``contents``: a digest of all records that are not ours. ``plotted_by``: which metric each
    is plotted by. ``damaged``, ``torn``: see ``RecordLog``.
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
    first_step: int | None = None
    last_step: int | None = None
    sweep: str = ""
    started: float | None = None
    resumes: bool = False
    branch: tuple[str, float] | None = None
    crowded: bool = False
    exit_code: int | None = None
    artifacts: list[LoggedFile] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    own_tags: tuple[str, ...] = ()
    own_files: frozenset[str] = frozenset()
    theirs: frozenset[str] = frozenset()
    stopped: str = ""
    heard: float | None = None
    logged: float | None = None
    measured: float | None = None
    machine: Machine = field(default_factory=Machine)
    printed: int = 0
    preempting: bool = False
    plotted_by: StepMetrics = field(default_factory=StepMetrics)
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


def records_of(path: Path) -> Iterator[tuple[LogRecord, bool]]:
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
        self._names = Names()
        self._theirs: set[str] = set()
        self._hash = hashlib.sha256()
        self._own_start: int | None = None
        self._exit_start: int | None = None
        self._first_row = self._last_row = b""
        self._last_of: dict[int, bytes] = {}

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
            log.first_step, log.last_step = _step_in(self._first_row), _step_in(self._last_row)
        times = {kind: one for kind, one in self._times() if _FIRST_TIME <= one < _LAST_TIME}
        log.heard, log.measured = max(times.values(), default=None), times.get(STATS)
        log.logged = max((times[kind] for kind in (HISTORY, OUTPUT_RAW) if kind in times), default=None)
        return log

    def _times(self) -> Iterator[tuple[int, float]]:
        """The times of the newest records by their kinds, and of the run's start."""
        with suppress(ReadError):
            if (logged := number(row_of(self._last_row, frozenset({TIME}), {}).get(TIME))) is not None:
                yield HISTORY, logged
        places = [(RUN, self._log.run, RUN_START)]
        places += [(kind, self._last_of.get(kind, b""), at) for kind, at in _TIME_IN.items()]
        for kind, record, place in places:
            with suppress(ReadError):
                yield from ((kind, float(integer(stamp, 1))) for stamp in messages(record, place))

    def _take(self, record: LogRecord, parts: Mapping[int, int | bytes], *, ours: bool) -> None:
        """Take a record by what it is; nearly all are of the history."""
        for kind, value in parts.items():
            if type(value) is not bytes:
                continue
            if kind == HISTORY:
                self._log.rows += 1
                self._first_row = self._first_row or value
                self._last_row = value
                self._names.take(value)
            elif kind == RUN:
                self._take_run(value, ours=ours)
            elif kind == SUMMARY:
                self._take_summary(value, ours=ours)
            elif kind == EXIT and self._exit_start is None:
                self._exit_start = record.start
                self._log.exit_code = integer(value, 1)
            else:
                self._take_rest(kind, value, ours=ours)

    def _take_rest(self, kind: int, value: bytes, *, ours: bool) -> None:
        log = self._log
        if kind in _TIME_IN:
            self._last_of[kind] = value
        if kind == STATS:
            log.machine.take(value)
        elif kind == OUTPUT_RAW:
            log.printed += 1
        elif kind == CONFIG:
            self._take_config(value)
        elif kind == METRIC:
            log.plotted_by.define(*(text(value, at) for at in (NAME, GLOB, STEP_METRIC)))
        elif kind == FILES and ours:
            log.own_files |= {text(file, 1) for file in islice(messages(value, 1), MAX_ARTIFACT_FILES)}
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
            self._theirs |= {name_of(item) for item in islice(messages(summary, 1), MAX_FIELDS)}
            self._log.stopped = _text_in(summary, STOPPED_KEY) or self._log.stopped

    def _take_run(self, run: bytes, *, ours: bool) -> None:
        log = self._log
        if ours:
            log.own_tags = tuple(texts(run, RUN_TAGS))
            return
        log.run = run
        log.run_id, log.entity, log.project = text(run, 1), text(run, 2) or log.entity, text(run, 3) or log.project
        log.name, log.notes, log.host = text(run, 8) or log.name, text(run, 9), text(run, 13) or log.host
        log.tags, log.sweep = tuple(texts(run, RUN_TAGS)), text(run, RUN_SWEEP)
        log.resumes |= any(integer(run, kind) for kind in (RUN_RESUME, RUN_RESUMED, RUN_STARTING_STEP))
        for branch in messages(run, RUN_BRANCH):
            log.branch = text(branch, 1)[:MAX_NAME_CHARACTERS], _number_in(branch, 2)
            log.resumes |= log.branch[0] == log.run_id
        started = next((integer(stamp, 1) + integer(stamp, 2) / 1e9 for stamp in messages(run, RUN_START)), 0.0)
        log.started = started if _FIRST_TIME <= started < _LAST_TIME else log.started
        for config in messages(run, RUN_CONFIG):
            self._take_config(config)

    def _take_config(self, config: bytes) -> None:
        params = self._log.params
        for name, value in _plain(config).items():
            room = MAX_PARAMS if "." in name else 2 * MAX_PARAMS  # nested ones do not crowd out the others
            if len(params) < room or name in params:
                params[name] = value

    def _take_artifact(self, artifact: bytes) -> None:
        name, version = text(artifact, 5)[:MAX_NAME_CHARACTERS], text(artifact, 6)[:MAX_NAME_CHARACTERS]
        for manifest in messages(artifact, 12):
            for entry in messages(manifest, 4):
                if len(self._log.artifacts) >= MAX_ARTIFACT_FILES:
                    return
                path, size, staged = text(entry, 1), integer(entry, 4), text(entry, 6)
                file = LoggedFile(artifact=name, version=version, path=path, size=size, staged=staged)
                if max(len(file.path), len(file.staged)) <= MAX_PATH_CHARACTERS:
                    self._log.artifacts.append(file)


def _number_in(message: bytes, number: int) -> float:
    """A number of a message, 0 where it has none: as such it is not written."""
    return next((double(one) for kind, one in fields(message) if kind == number and isinstance(one, bytes)), 0.0)


def _step_in(row: bytes) -> int | None:
    return as_step(row_of(row, frozenset({STEP}), {}).get(STEP, step_of(row)))


def _text_in(message: bytes, key: str) -> str:
    """The text that a record of the summary sets under a key, "" for none; whole, unlike a param's."""
    items = (item for item in islice(messages(message, 1), MAX_FIELDS) if name_of(item) == key)
    found = [value for item in items if isinstance(value := parsed(text(item, 16).encode()), str)]
    return found[-1] if found else ""


def _plain(message: bytes) -> dict[str, str]:
    """The names and values that a record of the configuration, or of the summary, sets: plain ones, as text."""
    plain: dict[str, str] = {}
    nested: dict[str, str] = {}
    for item in messages(message, 1):
        name, value = name_of(item), parsed(text(item, 16).encode())
        found = nested if isinstance(value, dict) else plain
        if len(found) < MAX_PARAMS:
            found |= params_of({name: value})
    return plain | nested


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
                if kind == HISTORY and type(history) is bytes and (row := row_of(history, wanted, keys)):
                    yield row
        except ReadError:
            continue


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
                    pieces.append(b"".join(messages(output, 3)))
                    size += len(pieces[-1])
        while size > _MAX_CONSOLE_BYTES:
            size -= len(pieces.popleft())
    return b"".join(pieces)
