"""The logs of one run of W&B on this machine: one for each time that it was resumed, and how they go together.

They are one training where W&B's own record says that a log resumes its run. Or its steps or counters go on where those
before ended. Logs of one id that were written at the same time are of several processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.readers.log_formats.names import BATCH, axis_of
from tracker_health.stores.wandb.transaction_log import TransactionLog, read_log, rows_of
from tracker_health.stores.wandb.values import STEP, is_metric, number
from tracker_health.text import count, printable, steps_in_words

_MOST = 100
"""Logs of one run that are read together."""
_FEW = 5
"""Values that tell where a loss began, ended and went on."""
_FOLDER = re.compile(r"run-\d{8}_\d{6}-(.+)")  # an id may have hyphens, too
_BEGUN = 0.05  # of what a counter had come to: a log that begins below it begins again


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A log of a run that has several. ``offset``: what is added to its steps, as W&B counts them; ``until``: the names
    and the counts at which later logs begin to do its rows again.
    """

    path: Path
    log: TransactionLog
    offset: int = 0
    until: tuple[tuple[str, float], ...] = ()

    def rows(self, wanted: frozenset[str]) -> Iterator[dict[str, Any]]:
        """As ``rows_of``, at the steps of the whole run.

        Raises:
            ReadError, OSError: as there.
        """
        for row in rows_of(self.path, wanted | {name for name, _ in self.until}):
            if any((count := number(row.get(name))) is not None and count >= end for name, end in self.until):
                return
            if (step := number(row.get(STEP))) is not None:
                row[STEP] = int(step) + self.offset
            yield row


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The logs that are judged as one, in their order. ``apart``: other logs of the run's id, of processes that wrote
    at the same time; ``again``: how many earlier attempts there are, which the first of these logs began again;
    ``others``: how many logs nothing joins with these. ``forked``: the run that this one was forked from, and at which
    step; ``lost``: its logs are not here.
    """

    parts: tuple[Segment, ...]
    apart: int = 0
    again: int = 0
    others: int = 0
    forked: tuple[str, float] | None = None
    lost: bool = False

    @property
    def last(self) -> Segment:
        """The log that says how the run ended."""
        return self.parts[-1]

    @property
    def resumed_at(self) -> tuple[int, ...]:
        """The steps at which the run was resumed."""
        return tuple((one.log.first_step or 0) + one.offset for one in self.parts[1:] if one.log.rows)

    @property
    def last_step(self) -> int | None:
        """Of the whole run."""
        steps = (step + one.offset for one in reversed(self.parts) if (step := one.log.last_step) is not None)
        return next(steps, None)

    @property
    def names(self) -> tuple[str, ...]:
        """What has numbers in any of the histories."""
        return tuple(sorted({name for one in self.parts for name in one.log.names}))

    @property
    def params(self) -> dict[str, str]:
        """The configuration; of several the newest counts."""
        return {name: value for one in self.parts for name, value in one.log.params.items()}

    def remarks(self) -> Iterator[str]:
        """What the reader of a verdict should know of them."""
        if self.forked is not None:
            name, step = self.forked
            judged = (
                "its logs are not here: judged from there on" if self.lost else "judged with what it did until then"
            )
            yield f"it was forked from the run {printable(name, 80)} at step {step:.0f}, {judged}"
        elif len(self.parts) > 1:
            where = f" at {steps_in_words(self.resumed_at)}" if self.resumed_at else ""
            yield f"it was resumed{where}: its {len(self.parts)} logs are judged as one"
        if self.again:
            yield f"it began again: judged without {count(self.again, 'earlier attempt')} of its id"
        if self.others:
            yield f"{count(self.others, 'other log')} of its id left out: nothing says that one resumes the other"
        if self.apart:
            yield f"{count(self.apart, 'other log')} of its id were written at the same time: each is judged alone"


def logs_beside(path: Path, run_id: str) -> list[Path]:
    """The logs that the folders next to a log's own have of the same run, with itself, in the order of their names."""
    root, name = path.parent.parent, f"run-{run_id}.wandb"
    try:
        folders = _folders_in(str(root), root.stat().st_mtime_ns)
    except OSError:
        return [path]
    named = [folder for folder in folders if folder.endswith(f"-{run_id}")] if run_id else []
    found = [log for folder in named if (log := root / folder / name).is_file()]
    own = next((log for log in found if log.samefile(path)), None)
    return [path if log == own else log for log in found][-_MOST:] if own is not None else [path]


def run_logs(path: Path) -> list[Path]:
    """Where the logs of the runs are whose folders are next to that of a log: itself, then the nearest in time."""
    root, own = path.parent.parent, path.parent.name
    try:
        folders = _folders_in(str(root), root.stat().st_mtime_ns)
    except OSError:
        return [path]
    at = folders.index(own) if own in folders else len(folders)
    nearest = sorted(range(len(folders)), key=lambda place: abs(place - at))
    return [root / folders[place] / f"run-{_id_in(folders[place])}.wandb" for place in nearest]


def _id_in(folder: str) -> str:
    """The id of the run that a folder is named after."""
    found = _FOLDER.search(folder)
    return found[1] if found else folder.rpartition("-")[2]


@lru_cache(maxsize=8)
def _folders_in(root: str, _changed: int) -> tuple[str, ...]:
    """The folders of runs in a ``wandb`` folder, which may be thousands, as it was when it was last changed."""
    with os.scandir(root) as entries:
        return tuple(sorted(one.name for one in entries if "run-" in one.name and one.is_dir(follow_symlinks=False)))


def segments_of(path: Path, log: TransactionLog, losses: Iterable[str] = ()) -> Segments:
    """The logs that a log belongs with. ``losses``: the names of those that show whether training went on."""
    own = _of_the_run(path, log, losses)
    forked = own.parts[0].log.branch
    if forked is None or forked[0] == log.run_id:
        return own
    parents = [one for one in run_logs(path) if one.parent.name.endswith(f"-{forked[0]}")]
    found = [one for one in map(_read, parents[:_MOST]) if one is not None and one.log.run_id == forked[0]]
    found = [one for one in found if (one.log.project, one.log.entity) == (log.project, log.entity)]
    if not found:
        return replace(own, forked=forked, lost=True)
    newest = max(found, key=lambda one: one.log.started or 0.0)
    parent = _of_the_run(newest.path, newest.log, losses)
    return replace(own, parts=(*_until(parent.parts, forked[1]), *own.parts), forked=forked)


def _until(parts: Iterable[Segment], step: float) -> Iterator[Segment]:
    """The logs of a run up to a step of it, that one too."""
    for one in parts:
        if (one.log.first_step or 0) + one.offset <= step:
            yield replace(one, until=(*one.until, (STEP, step + 1 - one.offset)))


def _of_the_run(path: Path, log: TransactionLog, losses: Iterable[str]) -> Segments:
    alone = Segments(parts=(Segment(path=path, log=log),))
    others = [one for one in logs_beside(path, log.run_id) if one != path]
    known = [Segment(path=path, log=log), *filter(None, map(_read, others))]
    known = [one for one in known if _is_same_run(one.log, log)]
    if len(known) < 2:
        return alone
    known.sort(key=lambda one: (one.log.started or 0.0, one.path.parent.name))
    own = next(at for at, one in enumerate(known) if one.path == path)
    if any(_overlap(known[own].log, one.log) for one in known if one.path != path):
        return replace(alone, apart=sum(_overlap(log, one.log) for one in known if one.path != path))
    first, last = own, own
    while first > 0 and _resumes(known[first], known[first - 1]):
        first -= 1
    while last + 1 < len(known) and _resumes(known[last + 1], known[last]):
        last += 1
    joined = _joined(known[first : last + 1], frozenset(losses), path)
    return replace(joined, others=len(known) - (last + 1 - first))


def _read(path: Path) -> Segment | None:
    try:
        return Segment(path=path, log=read_log(path))
    except (ReadError, OSError):  # what is damaged there is said where it is judged
        return None


def _is_same_run(one: TransactionLog, other: TransactionLog) -> bool:
    return (one.run_id, one.project, one.entity) == (other.run_id, other.project, other.entity) and bool(one.run)


def _overlap(one: TransactionLog, other: TransactionLog) -> bool:
    """Whether two logs were written at the same time."""
    spans = [(log.started, log.heard if log.heard is not None else log.started) for log in (one, other)]
    (a, b), (c, d) = spans
    return None not in (a, b, c, d) and max(a or 0.0, c or 0.0) < min(b or 0.0, d or 0.0)


def _resumes(later: Segment, earlier: Segment) -> bool:
    """Whether a log continues the run of the one before: it says so, its steps do, or a counter of its owner's."""
    log = later.log
    if _overlap(log, earlier.log):
        return False
    if log.resumes or (log.first_step or 0) > 0:
        return True
    return _goes_on(_Ends.of(earlier, frozenset()), _Ends.of(later, frozenset())) is True


# Putting them together


class _Ends(NamedTuple):
    """The first and last values of a log's counters, and of its losses a few. What falls on the way, as a number of a
    batch within its epoch, does not tell how far a training had come.
    """

    counters: Mapping[str, tuple[float, float]]
    losses: Mapping[str, tuple[list[float], list[float]]]

    @classmethod
    def of(cls, segment: Segment, losses: frozenset[str]) -> _Ends:
        names = frozenset(name for name in segment.log.names if is_metric(name) and _counts(name))
        fell: set[str] = set()
        counters: dict[str, tuple[float, float]] = {}
        heads: dict[str, list[float]] = {}
        tails: dict[str, list[float]] = {}
        try:
            for row in rows_of(segment.path, names | losses):
                for name in names & row.keys():
                    if (value := number(row[name])) is not None and np.isfinite(value):
                        first, last = counters.get(name, (value, value))
                        counters[name] = first, value
                        fell |= {name} if value < last else set()
                for name in losses & row.keys():
                    if (value := number(row[name])) is not None and np.isfinite(value):
                        heads[name] = [*heads.get(name, ())[:_FEW], value][:_FEW]
                        tails[name] = [*tails.get(name, ())[-_FEW + 1 :], value]
        except (ReadError, OSError):
            return cls({}, {})
        counters = {name: span for name, span in counters.items() if name not in fell}
        return cls(counters, {name: (heads[name], tails[name]) for name in heads})


def _counts(name: str) -> bool:
    axis = axis_of(name)
    return axis is not None and axis.kind != BATCH


def _goes_on(before: _Ends, after: _Ends) -> bool | None:
    """Whether a log continues where another one ended, and does not begin again; None where nothing tells."""
    for name in sorted(before.counters.keys() & after.counters.keys()):
        (first, last), begins = before.counters[name], after.counters[name][0]
        if last > first:
            return begins > first + _BEGUN * (last - first)
    for name in sorted(before.losses.keys() & after.losses.keys()):
        start, end = (float(np.median(part)) for part in before.losses[name])
        new = float(np.median(after.losses[name][0]))
        return abs(new - end) <= abs(new - start)
    return None


def _joined(chain: list[Segment], losses: frozenset[str], path: Path) -> Segments:
    """The logs at the steps of one training; those before an attempt that began again are left out. A log without rows
    only says how the run ended.
    """
    parts: list[Segment] = []
    spans: list[_Ends] = []
    again = 0
    for later in chain:
        after = _Ends.of(later, losses) if later.log.rows else _Ends({}, {})
        known = [span for one, span in zip(parts, spans, strict=True) if one.log.rows]
        whole = _whole(known[0], known[-1]) if known else after
        if known and later.log.first_step == 0 and _goes_on(whole, after) is False:
            if path in {one.path for one in parts}:  # the attempt that was asked for
                break
            parts, spans, again = [later], [after], again + 1
        else:
            placed = later
            if known and later.log.rows:
                parts, placed = _placed(parts, spans, later, whole, after)
            parts, spans = [*parts, placed], [*spans, after]
    return Segments(parts=tuple(parts), again=again)


def _whole(first: _Ends, last: _Ends) -> _Ends:
    """Where the first of several logs began, and the last of them ended."""
    return _Ends(
        {name: (first.counters.get(name, span)[0], span[1]) for name, span in last.counters.items()},
        {name: (first.losses.get(name, known)[0], known[1]) for name, known in last.losses.items()},
    )


def _placed(
    parts: list[Segment], spans: list[_Ends], later: Segment, whole: _Ends, after: _Ends
) -> tuple[list[Segment], Segment]:
    """The logs up to where a later one did again what they had done, and that one at its steps."""
    first = later.log.first_step or 0
    if first > 0:
        cut = [_cut(one, STEP, first - one.offset, (one.log.last_step or 0) + 1) for one in parts]
        return cut, later
    furthest = sorted(whole.counters.keys() & after.counters.keys(), key=lambda name: -whole.counters[name][1])
    for name in furthest:
        (begun, last), begins = whole.counters[name], after.counters[name][0]
        if begun < begins <= last:
            ends = [span.counters.get(name, (0.0, begins))[1] for span in spans]
            parts = [_cut(one, name, begins, end + 1) for one, end in zip(parts, ends, strict=True)]
            break
    end = max(one.offset + (one.log.last_step or 0) for one in parts if one.log.rows)
    return parts, replace(later, offset=end + 1)


def _cut(one: Segment, name: str, begins: float, end: float) -> Segment:
    """A log up to a count, where it goes so far."""
    return replace(one, until=(*one.until, (name, float(begins)))) if begins < end else one
