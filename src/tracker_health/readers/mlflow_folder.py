"""A run's folder out of an MLflow file store (``mlruns/EXPERIMENT/RUN_ID``), read without MLflow and without its store.

It holds ``meta.yaml``, ``metrics/NAME`` (lines of time in ms, value, step), ``params/NAME`` and ``tags/NAME``; a name
with slashes is a path of folders.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, IntArray
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS, as_number, as_step
from tracker_health.readers.files.regular_file import open_regular, pass_hole

TRASH_FOLDER = ".trash"
"""Where a file store keeps what was deleted."""

META_FILE = "meta.yaml"
MAX_NAMES = 20_000
MAX_DEPTH = 16
MAX_POINTS = 3_000_000
MAX_LINE_BYTES = 4096
MAX_TEXT_BYTES = 64 * 2**10
_HOLE = bytes(MAX_LINE_BYTES)
_STATUSES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_ENTRY = re.compile(r"(\w{1,100}): (.*)")


@dataclass(frozen=True, kw_only=True)
class MetricPoints:
    """The points of one metric in the order of the file; times in seconds. ``bad_lines``: those that hold no point."""

    steps: IntArray
    values: FloatArray
    times: FloatArray
    bad_lines: int = 0


def read_meta(folder: Path) -> dict[str, str] | None:
    """The plain entries of the folder's ``meta.yaml``; None where there is none that can be read."""
    try:
        text = _text(folder / META_FILE)
    except (ReadError, OSError):
        return None
    entries = (_ENTRY.fullmatch(line.rstrip()) for line in text.splitlines())
    return {entry.group(1): _unquoted(entry.group(2)) for entry in entries if entry is not None}


def run_id_of(meta: Mapping[str, str] | None) -> str:
    """The id of the run that a ``meta.yaml`` describes; empty when it is none of a run."""
    return (meta.get("run_id") or meta.get("run_uuid") or "") if meta else ""


def status_of(meta: Mapping[str, str]) -> str:
    """``FINISHED`` and comparable ones; as it is written where that is no number that MLflow uses."""
    status = meta.get("status", "")
    return _STATUSES.get(status, status)


def metric_files(folder: Path) -> dict[str, Path]:
    """Name and file of each metric, sorted by name.

    Raises:
        ReadError: there are too many.
        OSError: the folder cannot be listed.
    """
    return _named_files(folder / "metrics")


def read_texts(folder: Path, kind: str) -> dict[str, str]:
    """The ``params`` or ``tags``; without those that cannot be read.

    Raises:
        ReadError: there are too many.
        OSError: the folder cannot be listed.
    """
    texts = {}
    for name, path in _named_files(folder / kind).items():
        try:
            texts[name] = _text(path)
        except (ReadError, OSError):
            continue
    return texts


def read_points(path: Path) -> MetricPoints:
    """The points of a metric's file. A line without a step is at step 0, as MLflow has it.

    Raises:
        ReadError: it is no regular file, holds not a single point but other lines, or too many points.
        OSError: the file cannot be read.
    """
    steps, values, times = array("q"), array("d"), array("d")
    bad = 0
    with BufferedReader(open_regular(path)) as file:
        while line := file.readline(MAX_LINE_BYTES):
            point = _point(line)
            if point is None:
                bad += bool(line.strip())
                if line == _HOLE:
                    pass_hole(file)
            else:
                times.append(point[0])
                values.append(point[1])
                steps.append(point[2])
            if bad + len(values) > MAX_POINTS:
                raise ReadError(f"it has more than the {MAX_POINTS} points that are read")
    if bad and not values:
        raise ReadError("no line of it is a point of a metric: time, value and step")
    return MetricPoints(
        steps=np.array(steps, dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        times=np.array(times, dtype=np.float64) / 1000,
        bad_lines=bad,
    )


def last_time(path: Path) -> float | None:
    """When the last point of a metric's file was logged, in ms since 1970; None where its end says no time.

    Raises:
        ReadError: it is no regular file.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - MAX_LINE_BYTES))
        lines = file.read(MAX_LINE_BYTES).splitlines()
    point = next((found for line in reversed(lines) if (found := _point(line)) is not None), None)
    return None if point is None else point[0]


def _point(line: bytes) -> tuple[float, float, int] | None:
    """Time in ms, value and step. After them may stand the name and digest of a data set."""
    fields = line.decode("utf-8", "replace").split()
    if len(fields) not in (2, 3, 5):
        return None
    time, value = as_number(fields[0]), as_number(fields[1])
    step = as_step(fields[2]) if len(fields) > 2 else 0
    if time is None or not math.isfinite(time) or value is None or step is None:
        return None
    return time, value, step


def _named_files(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, path in _walk(folder, "", 0):
        if len(found) >= MAX_NAMES:
            raise ReadError(f"there are more than the {MAX_NAMES} names that are read")
        found[name] = path
    return dict(sorted(found.items()))


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[tuple[str, Path]]:
    try:
        listed = os.scandir(folder)
    except FileNotFoundError:
        return
    with listed as entries:
        for entry in entries:
            name = prefix + entry.name
            if len(name) > MAX_NAME_CHARACTERS or entry.is_symlink():
                continue
            if entry.is_file():
                yield name, Path(entry.path)
            elif entry.is_dir() and depth < MAX_DEPTH:
                yield from _walk(Path(entry.path), f"{name}/", depth + 1)


def _text(path: Path) -> str:
    with open_regular(path) as file:
        return file.read(MAX_TEXT_BYTES).decode("utf-8", "replace")


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if quoted:
        return value[1:-1]
    return "" if value == "null" else value
