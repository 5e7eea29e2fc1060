"""The rows of a log, kept small until all are there: then each metric becomes a series."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray, IntArray, Series, StepUnit
from tracker_health.readers.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, param_text
from tracker_health.readers.log_formats.base import SelectNames
from tracker_health.readers.log_formats.log_rows import STEP_FIELDS, Clock, Row, name_on

MAX_POINTS = 3_000_000
"""Of longer histories every second, fourth, ... row is kept."""

_MAX_KINDS = 10_000
_MAX_SHAPES = 500
_MAX_TEXTS = 1000
_NONFINITE_KEPT = 10_000
_MAX_PARAMS = 1000
_POINTS_OF_A_HABIT = 3
_NAME_FIELDS = ("name", "metric", "key", "tag")
_PLAN_FIELDS = frozenset({"max_steps", "total_steps", "num_train_epochs", "max_epochs"})
_NOT_MEASURED = frozenset({*STEP_FIELDS, "epoch", "time", "timestamp", "wall_time", "elapsed"})
_SAYS_WHAT_IT_IS = ("type", "split", "phase", "mode", "stage", "subset")

Wide = Callable[[Mapping[str, Any]], tuple[float, ...]]


@dataclass(slots=True)
class RowKind:
    """The rows that have the same metrics: their numbers in arrays, row by row.

    ``rows``: their places in the log; ``keep``: which of the ``names`` are still kept, None for all; ``seen``: how many
    rows there were, of which every ``stride``-th is kept, and ``odd`` others for not being finite; ``ordinals``: which
    ones, None for all.
    """

    names: tuple[str, ...]
    unit: StepUnit
    rows: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    data: array[float] = field(default_factory=lambda: array("d"))
    keep: tuple[int, ...] | None = None
    seen: int = 0
    stride: int = 1
    odd: int = 0
    ordinals: array[int] | None = None
    skipped: tuple[int, int, int, tuple[float, ...]] | None = None

    @property
    def kept_names(self) -> tuple[str, ...]:
        return self.names if self.keep is None else tuple(self.names[index] for index in self.keep)

    @property
    def width(self) -> int:
        return len(self.names) if self.keep is None else len(self.keep)

    def add(self, row: int, step: int, values: Iterable[float]) -> None:
        """Add a row; ``values`` are as many as ``names``.

        Raises:
            TypeError, ValueError: a value is no number; nothing was added.
        """
        if self.keep is not None or self.stride > 1:
            self._add_some(row, step, values if values.__class__ is tuple else tuple(values))
            return
        before = len(self.data)
        try:
            self.data.extend(values)
        except BaseException:
            del self.data[before:]
            raise
        self.rows.append(row)
        self.steps.append(step)
        self.seen += 1

    def _add_some(self, row: int, step: int, values: tuple[float, ...]) -> None:
        if self.keep is not None:
            values = tuple([values[index] for index in self.keep])
            if not values:
                self.seen += 1
                return
        self.skipped = None
        total = sum(values, 0.0)  # the errors of what is no number, before anything is added
        if self.seen % self.stride == 0:
            self._append(self.seen, row, step, values)
        elif self.odd < _NONFINITE_KEPT and not math.isfinite(total) and not all(map(math.isfinite, values)):
            self.odd += 1
            self._append(self.seen, row, step, values)
        else:
            self.skipped = (self.seen, row, step, values)
        self.seen += 1

    def _append(self, ordinal: int, row: int, step: int, values: tuple[float, ...]) -> None:
        if self.ordinals is not None:
            self.ordinals.append(ordinal)
        self.rows.append(row)
        self.steps.append(step)
        self.data.extend(values)

    def add_all(self, row: int, steps: IntArray, values: FloatArray) -> None:
        """Add rows at once, of which the first is the log's row ``row``; ``values``: float64[rows, names]."""
        if self.keep is not None:
            values = values[:, self.keep]
        ordinals = self.seen + np.arange(len(steps), dtype=np.int64)
        rows = row + np.arange(len(steps), dtype=np.int64)
        self.seen += len(steps)
        if not values.shape[1]:
            return
        if self.stride > 1:
            chosen = ordinals % self.stride == 0
            odd = ~chosen & ~np.isfinite(values).all(axis=1)
            odd &= np.cumsum(odd) <= _NONFINITE_KEPT - self.odd
            self.odd += int(np.count_nonzero(odd))
            chosen |= odd
            last = (int(ordinals[-1]), int(rows[-1]), int(steps[-1]), tuple(values[-1].tolist()))
            self.skipped = None if chosen[-1] else last
            ordinals, rows, steps, values = ordinals[chosen], rows[chosen], steps[chosen], values[chosen]
        if self.ordinals is not None:
            self.ordinals.frombytes(ordinals.tobytes())
        self.rows.frombytes(rows.tobytes())
        self.steps.frombytes(steps.tobytes())
        self.data.frombytes(values.tobytes())

    def end(self) -> None:
        """The last row counts, whatever the stride."""
        if self.skipped is not None:
            self._append(*self.skipped)
            self.skipped = None

    def matrix(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self.data, dtype=np.float64).reshape(len(self.rows), self.width)

    def forget(self, wanted: frozenset[str]) -> None:
        """Keep only these metrics from now on."""
        keep = [index for index, name in enumerate(self.kept_names) if name in wanted]
        if len(keep) == len(self.kept_names):
            return
        values = self.matrix()[:, keep].copy()
        self.keep = tuple(keep) if self.keep is None else tuple(self.keep[index] for index in keep)
        self.data = array("d", values.tobytes())
        if not keep:
            del self.rows[:], self.steps[:]

    def halve(self) -> None:
        """Keep every second row of those that are kept, and what is not finite."""
        if not self.width:
            return
        values = self.matrix()
        ordinals = np.arange(self.seen) if self.ordinals is None else np.array(self.ordinals, dtype=np.int64)
        self.stride *= 2
        regular = ordinals % self.stride == 0
        odd = ~regular & ~np.isfinite(values).all(axis=1)
        odd &= np.cumsum(odd) <= _NONFINITE_KEPT
        self.odd = int(np.count_nonzero(odd))
        kept = values[regular | odd].copy()
        self.ordinals = array("q", ordinals[regular | odd].astype(np.int64).tobytes())
        self.rows = _chosen(self.rows, regular | odd)
        self.steps = _chosen(self.steps, regular | odd)
        self.data = array("d", kept.tobytes())


def _chosen(numbers: array[int], chosen: npt.NDArray[np.bool_]) -> array[int]:
    return array("q", np.frombuffer(numbers, dtype=np.int64)[chosen].tobytes())


@dataclass(slots=True)
class _Shape:
    """The objects that have these fields, with values of these types: which of them are the numbers of a point."""

    kind: RowKind
    step: str
    unit: StepUnit
    data: str
    pick: Wide
    texts: tuple[str, ...]


@dataclass(slots=True)
class _Nulls:
    """The steps at which a metric was null since its last number, how often it was before that, and how often in a
    row; ``of_evaluation``: the last of the rows had numbers of held-out data alone.
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    gaps: int = 0
    longest: int = 0
    numbers: int = 0
    of_evaluation: bool = False


class LogTable:
    """The points of a log, in the order in which they came.

    Every object with a step gives a point for each of its numeric fields (numbers written as text count), and so does
    every object with an epoch (see ``Clock``). An object that says it is of held-out data (``"split": "val"``) has that
    in its fields' names: ``val/loss``. Objects of an unknown ``type``, and objects without a step or epoch, are
    metadata: their plain values become params.

    Several writers of JSON put null for NaN. A field that was a number in nine of ten rows, and then is null to the end
    in rows of the same kind, more of them than ever before in a row, is NaN there (but not in one last row that has an
    evaluation alone); other nulls are what wide logs write where nothing was logged.

    Of more points than memory should hold, those of metrics that nobody asked for go first; then of every two rows one,
    again and again. What is not finite stays.

    ``span``: the first step and the furthest one so far, None before the first point.
    """

    def __init__(self, select_names: SelectNames, prefix: str = "") -> None:
        self.clock = Clock()
        self.params: dict[str, str] = {}
        self.points = 0
        self.span: tuple[int, int] | None = None
        self._select, self._prefix = select_names, prefix
        self._kinds: dict[tuple[tuple[str, ...], StepUnit], RowKind] = {}
        self._of: dict[str, list[RowKind]] = {}
        self._nulls: dict[str, _Nulls] = {}
        self._shapes: dict[tuple[Any, ...], _Shape | None] = {}
        self._alien: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[int, int, frozenset[str]]] = {}
        self._texts: set[str] = set()
        self._rows = 0
        self._kept = 0
        self._thinned = 1
        self._forgotten = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every metric so far, in order of appearance."""
        return tuple(self._prefix + name for name in self._of)

    # Rows

    def take(self, record: dict[str, Any]) -> None:
        """Add what an object holds."""
        key = (*record, *map(type, record.values()))
        if any(name in record for name in _SAYS_WHAT_IT_IS):
            key = (*key, *(str(record.get(name)) for name in _SAYS_WHAT_IT_IS))
        shape = self._shapes.get(key)
        if shape is not None:
            step = record[shape.step]
            if abs(step) < 2**53 and not (shape.texts and any(map(self._is_number, map(record.get, shape.texts)))):
                step = self.clock.at(step, shape.unit, record.get("epoch"), shape.data)
                try:
                    self.add(shape.kind, step, shape.pick(record))
                except (OverflowError, TypeError):  # an integer beyond floating point
                    pass
                else:
                    return
        row = self.clock.row(record)
        if row is None:
            self._keep_params(record, record)
            return
        if shape is None and key not in self._shapes and len(self._shapes) < _MAX_SHAPES:
            self._shapes[key] = self._shape(record, row)
        self._take_row(record, row)

    def _shape(self, record: dict[str, Any], row: Row) -> _Shape | None:
        """How objects like this one are taken at once; None where each must be looked at."""
        plain = record.get(row.field).__class__ is int and not row.epoch_only and _PLAN_FIELDS.isdisjoint(record)
        if not plain or None in record.values() or "value" in record:
            return None
        fields = [name for name, value in record.items() if name != row.field and value.__class__ in (int, float)]
        texts = tuple(name for name, value in record.items() if value.__class__ is str)
        if not fields or any(len(name) > MAX_NAME_CHARACTERS for name in record):
            return None
        if any(map(self._is_number, map(record.get, texts))):
            return None
        kind = self.kind(tuple(name_on(row.data, name) if row.data else name for name in fields), row.unit)
        first = fields[0]
        pick: Wide = itemgetter(*fields) if len(fields) > 1 else lambda one: (one[first],)
        return _Shape(kind, row.field, row.unit, row.data, pick, texts)

    def _is_number(self, text: Any) -> bool:
        """Whether a text is a number: in the logs of several tools the same field is now one and now the other."""
        if text in self._texts:
            return False
        if as_number(text) is not None:
            return True
        if len(self._texts) < _MAX_TEXTS:
            self._texts.add(text)
        return False

    def _take_row(self, record: dict[str, Any], row: Row) -> None:
        if not _PLAN_FIELDS.isdisjoint(record):
            self._keep_params(record, _PLAN_FIELDS.intersection(record))
        numbers: dict[str, float] = {}
        nulls: list[str] = []
        for name, value in _fields(record):
            if value is None:
                nulls.append(name_on(row.data, name) if row.data else name)
                continue
            number = None if name == row.field or len(name) > MAX_NAME_CHARACTERS else as_number(value)
            if number is None:
                continue
            numbers[name_on(row.data, name) if row.data else name] = number
        rarest = min(map(self._count, numbers), default=MAX_POINTS) if nulls else 0
        step = row.step
        if row.epoch_only:
            # Of a metric that was logged by step this is the epoch's mean.
            step = row.step if self.clock.end_of_epoch is None else self.clock.end_of_epoch
            known = (row.step, step)
            numbers = {name: value for name, value in numbers.items() if self._last_step(name) not in known}
        if numbers:
            self.add(self.kind(tuple(numbers), row.unit), step, numbers.values())
        if nulls:
            alien = self._never_beside(tuple(numbers), tuple(nulls))
            others = [name for name in nulls if name not in alien]
            self._take_nulls(row, others, rarest, evaluation=_of_evaluation(numbers))

    def kind(self, names: tuple[str, ...], unit: StepUnit) -> RowKind:
        """The rows of these metrics.

        Raises:
            ReadError: there are too many metrics.
        """
        kind = self._kinds.get((names, unit))
        if kind is None:
            kind = self._kinds[names, unit] = RowKind(names, unit)
            for name in names:
                self._of.setdefault(name, []).append(kind)
            if len(self._of) > MAX_FIELDS or len(self._kinds) > _MAX_KINDS:
                raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
            if self._forgotten:
                kind.forget(self._wanted())
        return kind

    def add(self, kind: RowKind, step: int, values: Iterable[float]) -> None:
        """Add a row of that kind."""
        kind.add(self._rows, step, values)
        if self.span is None or step > self.span[1]:
            self.span = (step if self.span is None else self.span[0], step)
        self._rows += 1
        self.points += len(kind.names)
        self._kept += kind.width
        if self._kept > MAX_POINTS:
            self._make_room()

    def add_all(self, kind: RowKind, steps: IntArray, values: FloatArray) -> None:
        """Add rows of that kind, one after the other."""
        if not len(steps):
            return
        kind.add_all(self._rows, steps, values)
        first, furthest = self.span or (int(steps[0]), int(steps[0]))
        self.span = (first, max(furthest, int(steps.max())))
        self._rows += len(steps)
        self.points += values.size
        self._kept += kind.width * len(steps)
        if self._kept > MAX_POINTS:
            self._make_room()

    def _take_nulls(self, row: Row, names: list[str], rarest: int, *, evaluation: bool) -> None:
        """``rarest``: how often the rarest metric was logged that is a number here. Where that is less than half as
        often as one that is null, this is a row of another kind (an evaluation's, a summary's).
        ``evaluation``: all that the row has is of held-out data.
        """
        for name in names:
            numbers = self._count(name)
            if numbers < _POINTS_OF_A_HABIT or 2 * rarest < numbers:
                continue
            nulls = self._nulls.setdefault(name, _Nulls())
            if numbers > nulls.numbers:
                nulls.gaps += len(nulls.rows)
                nulls.longest = max(nulls.longest, len(nulls.rows))
                del nulls.rows[:], nulls.steps[:]
                nulls.numbers = numbers
            if 9 * nulls.gaps <= numbers and len(nulls.rows) < MAX_POINTS:
                nulls.rows.append(self._rows)
                nulls.steps.append(row.step)
                nulls.of_evaluation = evaluation

    def _never_beside(self, numbers: tuple[str, ...], nulls: tuple[str, ...]) -> frozenset[str]:
        """Which of the nulls were never a number beside each of these: the row is of another kind than theirs."""
        key = numbers, nulls
        kinds, until, found = self._alien.get(key, (-1, 0, frozenset()))
        if kinds != len(self._kinds) or self._rows >= until:
            if len(self._alien) > _MAX_SHAPES:
                self._alien.clear()
            found = frozenset(name for name in nulls if self._is_alien(name, numbers))
            # What was first seen while the other was null already says nothing: looked at again, ever less often.
            self._alien[key] = len(self._kinds), self._rows + self._rows // 4 + 1, found
        return found

    def _is_alien(self, name: str, numbers: tuple[str, ...]) -> bool:
        kinds = [kind for kind in self._of.get(name, ()) if kind.rows]
        if not kinds:
            return False
        beside, last = set().union(*(kind.names for kind in kinds)), max(kind.rows[-1] for kind in kinds)
        return any(other not in beside and self._first_row(other) < last for other in numbers)

    def _first_row(self, name: str) -> int:
        return min((kind.rows[0] for kind in self._of[name] if kind.rows), default=self._rows)

    def _count(self, name: str) -> int:
        return sum(kind.seen for kind in self._of.get(name, ()))

    def _last_step(self, name: str) -> int | None:
        kinds = [kind for kind in self._of.get(name, ()) if kind.rows]
        return max(kinds, key=lambda kind: kind.rows[-1]).steps[-1] if kinds else None

    def _keep_params(self, record: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            value = record[name]
            if isinstance(value, (str, int, float)) and len(name) <= MAX_NAME_CHARACTERS:
                self.keep_param(name, value)

    def keep_param(self, name: str, value: float | str) -> None:
        """Note one of the run's own settings."""
        if len(self.params) < _MAX_PARAMS or name in self.params:
            self.params[name] = param_text(value)

    # Room

    def _wanted(self) -> frozenset[str]:
        names = {self._prefix + name: name for name in self._of}
        return frozenset(names[name] for name in self._select(list(names)) if name in names)

    def _make_room(self) -> None:
        wanted = self._wanted()
        self._forgotten = True
        for kind in self._kinds.values():
            kind.forget(wanted)
        if self._size() > MAX_POINTS // 2:
            for kind in self._kinds.values():
                kind.halve()
            self._thinned *= 2
        self._kept = self._size()

    def _size(self) -> int:
        return sum(len(kind.data) for kind in self._kinds.values())

    @property
    def note(self) -> str:
        """What was left out, empty when nothing was."""
        if self._thinned == 1:
            return ""
        return f"{self.points} numbers are too many: of every {self._thinned} rows one was kept, and what is not finite"

    # Series

    def series(self, source: str) -> tuple[Series, ...]:
        """The metrics that are needed, each with its points in the order in which they came."""
        for kind in self._kinds.values():
            kind.end()
        roles = self._select(list(self.names))
        return tuple(
            self._series(name, roles[self._prefix + name], source)
            for name in self._of
            if self._prefix + name in roles and self._count(name)
        )

    def _series(self, name: str, role: str, source: str) -> Series:
        kinds = [kind for kind in self._of[name] if kind.rows and name in kind.kept_names]
        rows = np.concatenate([np.array(kind.rows, dtype=np.int64) for kind in kinds])
        steps = np.concatenate([np.array(kind.steps, dtype=np.int64) for kind in kinds])
        values = np.concatenate([kind.matrix()[:, kind.kept_names.index(name)] for kind in kinds])
        if len(kinds) > 1:
            order = np.argsort(rows, kind="stable")
            steps, values = steps[order], values[order]
        tail = self._ends_in_nan(name, int(rows.max()), int(steps[-1]))
        if len(tail):
            steps = np.concatenate([steps, tail])
            values = np.concatenate([values, np.full(len(tail), math.nan)])
        unit = max(kinds, key=lambda kind: kind.rows[-1]).unit
        return Series(name=self._prefix + name, role=role, source=source, step_unit=unit, steps=steps, values=values)

    def _ends_in_nan(self, name: str, row: int, step: int) -> npt.NDArray[np.int64]:
        """The steps after the last number at which it was null, where that means NaN."""
        nulls = self._nulls.get(name)
        if nulls is None:
            return np.empty(0, dtype=np.int64)
        steps = np.array(nulls.steps, dtype=np.int64)
        tail = steps[(np.array(nulls.rows, dtype=np.int64) > row) & (steps > step)]
        # An evaluation may just not have been there yet, and the last one may have a row of its own (Lightning's CSV).
        one_is_none = name_on("val", name) == name or nulls.of_evaluation
        return tail if len(tail) > max(nulls.longest, int(one_is_none)) else tail[:0]


def _of_evaluation(names: Collection[str]) -> bool:
    """Whether these metrics say that all of them were measured on held-out data."""
    measured = [name for name in names if name not in _NOT_MEASURED]
    return bool(measured) and all(name_on("val", name) == name for name in measured)


def _fields(record: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The fields of an object; of one that names its metric (``{"name": "loss", "value": 2.0}``) that metric alone."""
    if "value" in record:
        for key in _NAME_FIELDS:
            if isinstance(name := record.get(key), str):
                return ((name, record["value"]),)
    return record.items()
