"""Several ranks of one training: what each of them logged, side by side, and the one curve that they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.series import FloatArray, IntArray, Series, StepUnit

_FEWEST = 4
"""Points of a metric, at least, of a rank that logs it: one alone may be a summary."""
_MANY, _MOST_CELLS = 16, 20_000_000
RANK_ROLE = "rank"
"""The role of a column that says which rank logged a row."""

_IN_NAME = re.compile(r"(?<![A-Za-z0-9])(?:global[-_]?)?rank[-_/. ]?(\d{1,5})(?![A-Za-z0-9])", re.IGNORECASE)
_EDGES = re.compile(r"^[-_/. ]+|[-_/. ]+$|(?<=[-_/. ])[-_/. ]+")
_MOST_RANKS = 4096
_ALIKE = 0.9
"""The share of another's points that a rank has, at least, which logs as often."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rank:
    """A rank of a training of several processes: its ``number``, the ``name`` of its run, and what it logged."""

    number: int
    name: str
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Beside:
    """One metric of several ranks on one axis.

    ``numbers``: of the ranks. ``first``: the series of the first of them. ``steps``: int64[n], ascending. ``values``:
    float64[ranks, n], NaN also where nothing was logged; ``logged``: bool[ranks, n], where something was.
    """

    name: str
    role: str
    numbers: tuple[int, ...]
    first: Series
    steps: IntArray
    values: FloatArray
    logged: npt.NDArray[np.bool_]

    @cached_property
    def median(self) -> FloatArray:
        """Over the ranks, at each step: of the finite values, NaN where there is none."""
        return _middle(self.values)

    def median_of_others(self, row: int) -> FloatArray:
        """The median over all ranks but one.

        Args:
            row: Of that rank.

        Returns:
            float64[n], as ``median``. Of many ranks one alone barely moves it: there it is that of all.
        """
        return self.median if len(self.numbers) > _MANY else _middle(np.delete(self.values, row, axis=0))


def _middle(rows: FloatArray) -> FloatArray:
    """The median of each column over the values that are finite; NaN where none is."""
    found = np.full(rows.shape[1], np.nan)
    finite = np.where(np.isfinite(rows), rows, np.nan)
    some = ~np.isnan(finite).all(axis=0)
    if some.any():
        found[some] = np.nanmedian(finite[:, some], axis=0)
    return found


def ranks_in(series: Sequence[Series]) -> tuple[Rank, ...]:
    """The ranks that logged into one run: by a column that says whose a row is, or by their metrics' names.

    Args:
        series: What was read of the run.

    Returns:
        The ranks from 0 on, each with its metrics under one name; none where no metric is there of two or more.
    """
    return _by_column(series) or _by_names(series)


def _by_column(series: Sequence[Series]) -> tuple[Rank, ...]:
    column = next((one for one in series if one.role == RANK_ROLE), None)
    if column is None:
        return ()
    numbers = _counted_from_0(column.values[np.isfinite(column.values)])
    rows = [
        one
        for one in series
        if one is not column and one.role and one.source == column.source and np.array_equal(one.steps, column.steps)
    ]
    return tuple(
        Rank(number=number, name=f"rank {number}", series=tuple(_part(one, column.values == number) for one in rows))
        for number in (numbers if rows else ())
    )


def _counted_from_0(values: FloatArray) -> range:
    """The ranks that some numbers are; none where they are not counted from 0: an adapter has a rank, too."""
    found = np.unique(values)
    whole = 2 <= len(found) <= _MOST_RANKS and np.array_equal(found, np.arange(len(found)))
    return range(len(found)) if whole else range(0)


def _part(series: Series, rows: npt.NDArray[np.bool_]) -> Series:
    times = series.times[rows] if series.times is not None else None
    return replace(series, steps=series.steps[rows], values=series.values[rows], times=times)


def _by_names(series: Sequence[Series]) -> tuple[Rank, ...]:
    by_rank: dict[int, list[Series]] = {}
    for one in series:
        found = _IN_NAME.search(one.name)
        if one.role and found is not None:
            name = _EDGES.sub("", f"{one.name[: found.start()]}{one.name[found.end() :]}")
            by_rank.setdefault(int(found[1]), []).append(replace(one, name=name or one.name))
    numbers = _counted_from_0(np.array([*by_rank], dtype=np.float64))
    return tuple(Rank(number=one, name=f"rank {one}", series=tuple(by_rank[one])) for one in numbers)


def beside(ranks: Sequence[Rank], roles: Iterable[str] | None = None) -> Iterator[Beside]:
    """The metrics that several ranks logged, each with its ranks.

    Args:
        ranks: The ranks, in any order.
        roles: The roles whose metrics are wanted, all where it is None.

    Yields:
        One for each metric, by its name.
    """
    wanted = None if roles is None else frozenset(roles)
    by_name: dict[tuple[str, str], list[tuple[int, Series]]] = {}
    for rank in sorted(ranks, key=lambda one: one.number):
        for series in rank.series:
            role = series.role or ""
            if role and (wanted is None or role in wanted) and len(clean := series.clean()) >= _FEWEST:
                by_name.setdefault((series.name, role), []).append((rank.number, clean))
    for (name, role), found in by_name.items():
        if len({number for number, _ in found}) == len(found) > 1:
            rows = _by_their_order(found)
            steps = np.unique(np.concatenate([one.steps for _, one in rows]))
            if len(rows) * len(steps) <= _MOST_CELLS:
                yield _on_one_axis(name, role, rows, steps)


def _on_one_axis(name: str, role: str, found: Sequence[tuple[int, Series]], steps: IntArray) -> Beside:
    values = np.full((len(found), len(steps)), np.nan)
    logged = np.zeros(values.shape, dtype=np.bool_)
    for row, (_, one) in enumerate(found):
        at = np.searchsorted(steps, one.steps)
        values[row, at] = one.values
        logged[row, at] = True
    return Beside(
        name=name,
        role=role,
        numbers=tuple(number for number, _ in found),
        first=found[0][1],
        steps=steps,
        values=values,
        logged=logged,
    )


def _by_their_order(found: list[tuple[int, Series]]) -> list[tuple[int, Series]]:
    """The series, those that count calls of the logger on the steps of the one that called most: rank 0 may log more
    besides, and its tenth value is at a later step than that of the others.
    """
    lengths = [len(one) for _, one in found]
    counted = all(one.step_unit is StepUnit.LOG_CALL for _, one in found)
    if not counted or min(lengths) < _ALIKE * max(lengths):
        return found
    _, longest = max(found, key=lambda item: len(item[1]))
    return [(number, replace(one, steps=longest.steps[: len(one)])) for number, one in found]


def as_one(ranks: Sequence[Rank]) -> tuple[Series, ...]:
    """What a training of several ranks logged, as that of one run.

    Args:
        ranks: The ranks, in any order.

    Returns:
        Each metric once: the median over the ranks where several logged it, else as its rank has it.
    """
    joined = {one.name: one for one in beside(ranks)}
    found: dict[str, Series] = {}
    for rank in sorted(ranks, key=lambda one: one.number):
        for series in rank.series:
            if series.name in found:
                continue
            both = joined.get(series.name)
            found[series.name] = series if both is None else _joined(series, both)
    return tuple(found.values())


def _joined(series: Series, both: Beside) -> Series:
    # Steps that few ranks have are of one that logs at others, or that ran on alone.
    usual = both.logged.sum(axis=0) * 2 >= len(both.numbers)
    # When a point came is a matter of its rank: only with the same steps the times of one are those of all.
    clean = series.clean()
    times = clean.times if np.array_equal(clean.steps, both.steps[usual]) else None
    return replace(clean, steps=both.steps[usual], values=both.median[usual], times=times)
