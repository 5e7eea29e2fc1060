"""Several logs of one run: pieces and restarts put together, each metric of the log that has most of it, and logs that
cannot be of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import PurePosixPath

import numpy as np

from tracker_health.evidence import Part, Problem, Series
from tracker_health.roles import ANY_LOSS
from tracker_health.run_files.history_agreement import agree, canonical, comparable, difference
from tracker_health.run_files.tree import FileEvidence
from tracker_health.text import listing, printable, without_numbers

HISTORY_ROLES = (*sorted(ANY_LOSS), Part.PLAN)
"""What is missing where a history cannot be read."""
_LOGS_COMPARED = 100
_RESUMED = re.compile(r"[._ -]?(resumed?|restarted)(?![a-z])", re.IGNORECASE)
_A_FEW = 5  # lines of a log


@dataclass(frozen=True)
class OneLog:
    """A log, of one file or of the pieces of several; ``path`` is the first one's. ``precise``: see ``LogFormat``."""

    path: str
    series: tuple[Series, ...]
    precise: bool = True


def joined(pieces: list[OneLog]) -> OneLog:
    """One log of the pieces that numbered files hold: each continues where a restart began, and replaces what came
    after.
    """
    parts: dict[str, list[Series]] = {}
    for piece in pieces:
        for series in piece.series:
            parts.setdefault(series.name, []).append(series)
    precise = all(piece.precise for piece in pieces)
    return OneLog(pieces[0].path, tuple(_continued(series) for series in parts.values()), precise)


def resumed(logs: list[OneLog]) -> list[OneLog]:
    """The logs, with those that a restart wrote to a file of another name put behind the one they go on from: called
    as that is, but for a word that says so (``train_resumed.log``), and beginning where all that they share ends.
    """
    found = {one.path: one for one in logs if not _RESUMED.search(PurePosixPath(one.path).name)}
    for log in (one for one in logs if _RESUMED.search(PurePosixPath(one.path).name)):
        path = PurePosixPath(log.path)
        before = found.get(str(path.parent / _RESUMED.sub("", path.name, count=1)))
        if before is not None and _goes_on(log, before):
            found[before.path] = joined([before, log])
        else:
            found[log.path] = log
    return list(found.values())


def _goes_on(log: OneLog, other: OneLog) -> bool:
    """Whether one log begins within a few lines of where the other one ends, by all that both have."""
    known = {one.name: one for one in other.series if len(one)}
    shared = [(known[one.name], one) for one in log.series if one.name in known and len(one)]
    return any(one.role in HISTORY_ROLES for _, one in shared) and all(
        0 < int(after.steps.min()) - int(before.steps.max()) <= _A_FEW * _apart(before) for before, after in shared
    )


def _apart(series: Series) -> int:
    """How many steps are between two points, as a rule."""
    steps = np.unique(series.steps)
    return int(np.median(np.diff(steps))) if len(steps) > 1 else max(1, int(steps[0]))


def _continued(parts: list[Series]) -> Series:
    if all(part.times is not None and len(part) for part in parts):
        parts = sorted(parts, key=lambda part: float(part.times[0]) if part.times is not None else 0.0)
    joined = parts[0]
    for part in parts[1:]:
        before = joined.steps < (part.steps.min() if len(part) else np.iinfo(np.int64).max)
        timed = joined.times is not None and part.times is not None
        joined = replace(
            joined,
            source=f"{parts[0].source} and {len(parts) - 1} more",
            steps=np.concatenate([joined.steps[before], part.steps]),
            values=np.concatenate([joined.values[before], part.values]),
            times=np.concatenate([joined.times[before], part.times]) if timed else None,  # type: ignore[index]
        )
    return joined


def judged(logs: list[OneLog], notes: list[str]) -> list[Series]:
    """The series of all logs, each metric from the log that has most of it; ``notes`` gets what the others say."""
    same: dict[tuple[str | None, str], list[tuple[OneLog, Series]]] = {}
    for log in logs:
        for series in log.series:
            same.setdefault((series.role, canonical(series.name)), []).append((log, series))
    left_out: set[int] = set()
    agreeing: dict[tuple[str, str], list[str]] = {}
    for candidates in same.values():
        best_log, best = max(candidates, key=lambda one: (len(one[1].clean()), one[0].precise))
        for log, series in candidates:
            if log is best_log or not comparable(best, series):
                continue
            left_out.add(id(series))
            odd = difference(best, series, precise=log.precise and best_log.precise)
            if odd:
                notes.append(f"log integrity: {odd}")
            else:
                agreeing.setdefault((best.source, series.source), []).append(series.name)
    for (judged, other), names in agreeing.items():
        notes.append(f"{printable(other)} agrees with {printable(judged)}, which is judged, on {listing(names)}")
    return [series for log in logs for series in log.series if id(series) not in left_out]


def strangers_among(logs: list[OneLog]) -> list[str]:
    """The logs that are of different runs: kept apart by folder or number, and at odds about the same steps."""
    names = Counter(series.name for log in logs for series in log.series if series.role in HISTORY_ROLES)
    shared = {name for name, count in names.items() if count > 1}
    odd: dict[str, None] = {}
    for one, other in combinations(logs[:_LOGS_COMPARED], 2) if shared else ():
        if _kept_apart(one.path, other.path) and _at_odds(one, other, shared):
            odd |= dict.fromkeys((one.path, other.path))
    return list(odd)


def _kept_apart(one: str, other: str) -> bool:
    first, second = PurePosixPath(one), PurePosixPath(other)
    if first.parent == second.parent:
        return without_numbers(first.name) == without_numbers(second.name)
    return first.parent not in second.parents and second.parent not in first.parents


def _at_odds(one: OneLog, other: OneLog, names: set[str]) -> bool:
    others = {series.name: series.clean() for series in other.series if series.name in names}
    for series in one.series:
        if series.name in others:
            mine, theirs = series.clean(), others[series.name]
            _, here, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
            if not comparable(series, others[series.name]):
                continue
            if not agree(mine.values[here], theirs.values[there], precise=one.precise and other.precise).all():
                return True
    return False


OF_SEVERAL_RUNS = "several unrelated"
"""With this a problem begins that says of a folder that it holds several runs."""


def report_strangers(found: FileEvidence, kind: str, paths: list[str]) -> None:
    """Note that logs, or whatever ``kind`` says, are of several runs: none of them is read."""
    message = f"{OF_SEVERAL_RUNS} {kind}: {listing(paths)}; give the folder of one run"
    found.problems.append(Problem(source=printable(paths[0]), message=message, roles=frozenset(HISTORY_ROLES)))
