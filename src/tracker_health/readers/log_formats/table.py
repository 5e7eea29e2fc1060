"""The rows of a log, numbers with names, kept small until all are there: then each metric becomes a series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, param_text
from tracker_health.readers.log_formats.base import Log
from tracker_health.readers.log_formats.history import History
from tracker_health.readers.log_formats.names import EPOCH, HELD_OUT, PLAN_FIELDS, axis_of, name_on
from tracker_health.readers.log_formats.row_kinds import NULL, RowKind
from tracker_health.roles import RolePlan

MAX_POINTS = 3_000_000
"""Of longer histories every second, fourth, ... row is kept."""

_MAX_KINDS = 10_000
_MAX_SHAPES = 500
_MAX_PARAMS = 1000
_MAX_DEPTH = 4
_NAME_FIELDS = ("name", "metric", "key", "tag")
_NO_METRICS = frozenset({"config", "hparams", "hyperparameters", "hyperparams", "args", "params", "settings"})
_SAYS_WHAT_IT_IS = ("type", "split", "phase", "mode", "stage", "subset")
_POINT_TYPES = frozenset(
    ("step", "train", "training", "train_step", "training_step", "iteration", "batch", "epoch", "metric", "metrics",
     "log")
)  # fmt: skip
"""Of objects with another type only those of held-out data are points: a banner may well have a step."""


@dataclass(slots=True)
class _Shape:
    """The objects that have these fields, with values of these types: which of them are the numbers of a row; no
    ``pick`` where each object must be looked at.
    """

    kind: RowKind | None
    pick: Callable[[Mapping[str, Any]], tuple[float, ...]] | None
    data: str


class LogTable:
    """The rows of a log, in the order in which they came.

    ``loose``: rows that name no axis belong to the history also where others do, as in a console log; elsewhere they
    are metadata then, whose plain values are params.

    Of more numbers than memory should hold, those of metrics that nobody asked for go first; then of every two rows
    one, again and again. What is not finite stays, and so do axes.
    """

    def __init__(self, roles: RolePlan, *, loose: bool = False) -> None:
        self.params: dict[str, str] = {}
        self.rows = 0
        self._plan, self._loose = roles, loose
        self._kinds: dict[tuple[str, ...], RowKind] = {}
        self._names: dict[str, None] = {}
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._plain: dict[tuple[Any, ...], _Shape] = {}
        self._kept = 0
        self._stride = 1
        self._room_made = False

    @property
    def is_promising(self) -> bool:
        """Whether anything so far has an axis, or a name that some rule asks for."""
        return any(map(axis_of, self._names)) or bool(self._roles())

    # Rows

    def kind(self, names: tuple[str, ...]) -> RowKind:
        """The rows with these names, each a metric's or an axis'.

        Raises:
            ReadError: there are too many names.
        """
        kind = self._kinds.get(names)
        if kind is None:
            kind = self._kinds[names] = RowKind(names)
            self._names |= dict.fromkeys(names)
            if len(self._names) > MAX_FIELDS or len(self._kinds) > _MAX_KINDS:
                raise ReadError(f"it has more than the {MAX_FIELDS} fields that are read")
            if self._room_made:
                kind.thin(1, self._wanted())
        return kind

    def add(self, kind: RowKind, values: Iterable[float]) -> None:
        """Add a row of that kind; ``NULL`` or ``EMPTY`` for a cell with nothing in it."""
        kind.add(self.rows, values)
        self._count(1, kind)

    def add_all(self, kind: RowKind, values: FloatArray) -> None:
        """Add rows of that kind, one after the other; ``values``: float64[rows, names]."""
        if len(values):
            kind.add_all(self.rows, values)
            self._count(len(values), kind)

    def add_named(self, numbers: Mapping[str, float]) -> None:
        """Add a row of these numbers by their names, if there is one."""
        if numbers:
            self.add(self.kind(tuple(numbers)), numbers.values())

    def _count(self, rows: int, kind: RowKind) -> None:
        self.rows += rows
        self._kept += rows * kind.points
        if self._kept > MAX_POINTS:
            self._make_room()

    def take(self, record: dict[str, Any]) -> None:
        """Add what an object holds: its numbers, also those in objects within it, of a ``{"num", "mean"}`` its mean.

        An object that says it is of held-out data (``"split": "val"``) has that in its fields' names: ``val/loss``.
        """
        names: tuple[Any, ...] = tuple(record)
        shape = self._plain.get(names)  # a flag among them that was a number before counts as one
        if shape is not None and self._picked(shape, record):
            return
        key = (*names, *map(type, record.values()))
        says_what_it_is = not record.keys().isdisjoint(_SAYS_WHAT_IT_IS)
        if says_what_it_is:
            key = (*key, *(str(record.get(name)) for name in _SAYS_WHAT_IT_IS))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shape(record)
            if len(self._shapes) < _MAX_SHAPES:
                self._shapes[key] = shape
                if shape.pick is not None and not says_what_it_is and bool not in key:
                    self._plain.setdefault(names, shape)
        if not self._picked(shape, record):
            self._take_slowly(record, shape.data)

    def _picked(self, shape: _Shape, record: Mapping[str, Any]) -> bool:
        """Add the numbers that such objects have; false where they must be looked for."""
        if shape.pick is None or shape.kind is None:
            return False
        try:
            shape.kind.add(self.rows, shape.pick(record))
        except (OverflowError, TypeError):  # an integer beyond floating point, or no number
            return False
        self._count(1, shape.kind)
        return True

    def _shape(self, record: dict[str, Any]) -> _Shape:
        data = _held_out_of(record)
        fields = [name for name, value in record.items() if value.__class__ in (int, float)]
        plain = all(value.__class__ in (int, float, bool) for value in record.values())
        if not plain or not fields or _is_metadata(record, data) or not PLAN_FIELDS.isdisjoint(record):
            return _Shape(None, None, data)
        names = tuple(name_on(data, name) for name in fields)
        odd = "value" in record or any(map(_is_too_long, fields)) or len(set(names)) < len(names)
        if odd or not any(map(axis_of, names)):
            return _Shape(None, None, data)
        first = fields[0]
        pick: Callable[[Mapping[str, Any]], tuple[float, ...]]
        pick = itemgetter(*fields) if len(fields) > 1 else lambda one: (one[first],)
        return _Shape(self.kind(names), pick, data)

    def _take_slowly(self, record: dict[str, Any], data: str) -> None:
        if _is_metadata(record, data):
            self._keep_params(record, record)
            return
        numbers = {name_on(data, name): number for name, number in _numbers(record) if not _is_too_long(name)}
        if data and "iter" in numbers and "epoch" in numbers:
            del numbers["iter"]  # of OpenMMLab's logs: how many batches of held-out data there were
        if not any(map(axis_of, numbers)):
            self._keep_params(record, record)
        self._keep_params(record, PLAN_FIELDS.intersection(record))
        if not all(map(axis_of, numbers)):
            self.add_named(numbers)

    def _keep_params(self, record: dict[str, Any], names: Iterable[str]) -> None:
        for name in names:
            value = record[name]
            if isinstance(value, (str, int, float)) and not _is_too_long(name):
                self.keep_param(name, value)

    def keep_param(self, name: str, value: float | str) -> None:
        """Note one of the run's own settings."""
        if len(self.params) < _MAX_PARAMS or name in self.params:
            self.params[name] = param_text(value)

    # Room

    def _roles(self) -> Mapping[str, str]:
        """The needed metrics among the names so far, with their roles."""
        return self._plan.needed(name for name in (*self._names, *[EPOCH] * self._loose) if "\0" not in name)

    def _wanted(self) -> Callable[[str], bool]:
        roles = self._roles()
        return lambda name: name in roles or "\0" in name or axis_of(name) is not None

    def _make_room(self) -> None:
        self._room_made = True
        self._thin()
        if self._kept > MAX_POINTS // 2:
            self._stride *= 2
            self._thin()

    def _thin(self) -> None:
        wanted = self._wanted()
        for kind in self._kinds.values():
            kind.thin(self._stride, wanted)
        self._kept = sum(len(kind.rows) * kind.points for kind in self._kinds.values())

    # Series

    def history(self) -> History:
        """What all of the rows say: each needed metric, with its points in the order in which they came."""
        if self._stride > 1:
            self._thin()
        kinds = [kind for kind in self._kinds.values() if kind.seen]
        return History(kinds, self._roles(), self.params, loose=self._loose, segment=self._plan.segment)

    def log(self, source: str, problem: str = "", history: History | None = None) -> Log:
        """That as a log."""
        history = history or self.history()
        names = [name for name in self._names if name in history.names]
        series = tuple(replace(one, source=source) for one in history.series(names))
        if self._loose:  # of bars, and of headings, epochs are counted
            names = list(dict.fromkeys([*names, *[EPOCH] * any(one.name == EPOCH for one in series)]))
        params = {name: text for name, text in self.params.items() if not history.is_counted or name not in names}
        notes = "; ".join(filter(None, (history.note, self._room_note() if self._stride > 1 else "")))
        odd = tuple(replace(one, source=source) for one in history.odd(names))
        return Log(series=series, odd=odd, params=params, names=tuple(names), problem=problem, note=notes)

    def _room_note(self) -> str:
        numbers = sum(kind.seen * kind.points for kind in self._kinds.values())
        return f"{numbers} numbers are too many: of every {self._stride} rows one was kept, and what is not finite"


def _is_too_long(name: str) -> bool:
    return len(name) > MAX_NAME_CHARACTERS or "\0" in name


def _is_metadata(record: Mapping[str, Any], data: str) -> bool:
    kind = record.get("type", "step")
    return not data and not (isinstance(kind, str) and kind.lower() in _POINT_TYPES)


def _held_out_of(record: Mapping[str, Any]) -> str:
    for name in _SAYS_WHAT_IT_IS:
        value = record.get(name)
        if value.__class__ is str and value.lower() in HELD_OUT:
            return HELD_OUT[value.lower()]
    return ""


def _numbers(record: Mapping[str, Any], prefix: str = "", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, float]]:
    """The numbers of an object with their names, those of objects within it behind its own; null is ``NULL``. Of one
    that names its metric (``{"name": "loss", "value": 2.0}``) that metric, and its axes.
    """
    if "value" in record:
        for key in _NAME_FIELDS:
            if isinstance(name := record.get(key), str):
                axes = {field: value for field, value in record.items() if axis_of(field) is not None}
                record = {**axes, name: record["value"]}
                break
    for name, value in record.items():
        number = NULL if value is None else as_number(value)
        if number is None and isinstance(value, dict):
            number = as_number(value.get("mean", value.get("_mean")))
            if number is None and depth and name not in _NO_METRICS and not _is_too_long(prefix + name):
                yield from _numbers(value, f"{prefix}{name}/", depth - 1)
        if number is not None:
            yield prefix + name, number
