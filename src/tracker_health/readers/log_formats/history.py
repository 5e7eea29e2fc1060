"""From the rows of a log to a series for each metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from tracker_health.evidence import FloatArray, IntArray, Series, StepUnit
from tracker_health.readers.files.json_lines import as_number
from tracker_health.readers.log_formats.axis import UNITS, BoolArray, Places, RowPlaces, counts_up, place
from tracker_health.readers.log_formats.names import AMOUNT, BAR, BATCH, END, EPOCH, OF, STEP, axis_of, is_held_out
from tracker_health.readers.log_formats.row_kinds import RowKind, is_null, may_be_nan
from tracker_health.roles import ANY_LOSS, LOSSES, VAL_LOSS
from tracker_health.text import contrast, printable

_HABIT, _FEWEST_OF_A_HABIT, _MOST_BESIDE = 0.9, 3, 64
_OF_AN_EPOCH = 3  # rows
_FEWEST_EMPTY = 3  # of a metric's last cells: fewer may be of a last evaluation
_TOLD = 3  # trainings at either end
_FEWEST_COUNTED = 2  # rows of a log without an axis
_UNKNOWN = UNITS.index(StepUnit.UNKNOWN)
_MOST_ODD = 20  # metrics that nobody asks for, of which some are NaN
_RATE = "learning_rate"
_NO_STEP = np.iinfo(np.int64).min
_PLANS = ("max_steps", "total_steps"), ("num_train_epochs", "max_epochs")


class History:
    """The rows of a log when all are there: what is known of their names, then their places, then series.

    ``roles``: of the needed metrics. ``params``: settings that may say how many steps there are to be. ``loose``: see
    ``LogTable``. ``segment``: see ``RolePlan``. ``is_counted``: no row has an axis. ``names``: every metric that has
    a number. Names with a NUL are those of axes that only consoles have.
    """

    def __init__(
        self,
        kinds: Sequence[RowKind],
        roles: Mapping[str, str],
        params: Mapping[str, str],
        *,
        loose: bool,
        segment: int | None = None,
    ) -> None:
        placed = [kind for kind in kinds if any("\0" in name or axis_of(name) for name in kind.kept_names)]
        self.is_counted = not placed and not loose
        rows = [kind for kind in (kinds if loose or self.is_counted else placed) if len(kind.positions)]
        if self.is_counted and sum(len(kind.positions) for kind in rows) < _FEWEST_COUNTED:
            kinds, rows = [], []
        self._roles, self._params, self._segment = roles, params, segment
        there = np.zeros(1 + max((int(kind.positions[-1]) for kind in rows), default=-1), dtype=bool)
        for kind in rows:
            there[kind.positions] = True
        self.positions = np.flatnonzero(there)
        self._at = {id(kind): np.searchsorted(self.positions, kind.positions) for kind in rows}
        self._checked: dict[str, bool] = {}
        self._with: dict[str, list[tuple[RowKind, int]]] = {}
        for kind in rows:
            for at, name in enumerate(kind.kept_names):
                self._with.setdefault(name, []).append((kind, at))
        steps = self._ranked(STEP, BATCH)
        self._steps = {id(kind): [name for name in steps if name in kind.kept_names] for kind in rows}
        metrics = [(kind, [name for name in kind.kept_names if self._is_metric(kind, name)]) for kind in rows]
        measured = set().union(*(names for _, names in metrics))
        found = {name for name in measured if not is_null(self.column(name)).all()}
        self.names = frozenset(found.union(*({*kind.names} - {*kind.kept_names} for kind in kinds)))
        self._loose = loose
        self._measured = [(kind, [name for name in names if axis_of(name) is None]) for kind, names in metrics]

    # Names

    def _usable(self, name: str) -> bool:
        """Whether an axis' numbers are whole, and count up where its name alone does not show that it is one."""
        if name not in self._checked:
            axis, cells = axis_of(name), self.column(name)
            whole = cells[np.isfinite(cells)]
            sure = axis is not None and (axis.sure or (axis.kind == BATCH and name + OF in self._with))
            shares = axis is not None and axis.kind == EPOCH
            by_name = sure and len(whole) > 0 and (shares or bool((whole == np.floor(whole)).mean() >= 1 / 2))
            self._checked[name] = by_name or counts_up(cells)
        return self._checked[name]

    def _ranked(self, *kinds: str) -> list[str]:
        """All names of axes of some kinds, those first that count before others."""
        known = [(axis.rank, name) for name in self._with if (axis := axis_of(name)) is not None and axis.kind in kinds]
        return [name for _, name in sorted(known) if self._usable(name)]

    def _is_metric(self, kind: RowKind, name: str) -> bool:
        """Whether a name in a row is measured; that of its step is not."""
        return "\0" not in name and name not in self._steps[id(kind)][:1]

    def column(self, name: str) -> FloatArray:
        """The numbers of a name in all rows: float64[rows]; NaN where a row has none, or an empty cell's."""
        found = np.full(len(self.positions), np.nan)
        for kind, at in self._with.get(name, ()):
            found[self._at[id(kind)]] = kind.matrix()[:, at]
        return found

    # Places

    @cached_property
    def _main(self) -> str:
        """The metric by which the training is known: its loss, or else what there is most of; of equals the first."""
        names = dict.fromkeys(name for _, names in self._measured for name in names if name in self.names)
        counts = {name: sum(len(kind.positions) for kind, _ in self._with[name]) for name in names}

        def preference(name: str) -> tuple[bool, bool, bool, bool, int]:
            role = self._roles.get(name)
            return not is_held_out(name), role in LOSSES, role in ANY_LOSS, role is not None, counts[name]

        return max(counts, key=preference, default="")

    def _where(self, *, training: bool = False, name: str = "") -> BoolArray:
        """The rows that have any metrics, any of the training, or one of this name."""
        found = np.zeros(len(self.positions), dtype=bool)
        for kind, names in self._measured:
            some = [one for one in names if not training or not is_held_out(one)]
            found[self._at[id(kind)]] = name in some if name else bool(some)
        return found

    @cached_property
    def places(self) -> Places:
        """Where the rows belong."""
        n = len(self.positions)
        step, of, unit, epoch = (
            np.full(n, np.nan),
            np.full(n, np.nan),
            np.full(n, _UNKNOWN, dtype=np.int8),
            np.full(n, np.nan),
        )
        for name in self._ranked(EPOCH):
            epoch = np.where(np.isnan(epoch), self.column(name), epoch)
        for name in self._ranked(STEP, BATCH):
            axis, cells = axis_of(name), self.column(name)
            new = np.isnan(step) & ~np.isnan(cells)
            step[new], unit[new] = cells[new], UNITS.index(axis.unit) if axis is not None else _UNKNOWN
            if name + OF in self._with:
                of[new] = self.column(name + OF)[new]
        step, of, stray = self._with_ends(step, of, epoch)
        for kind, _ in self._measured:  # without a number for its step a row has no place, unless it has an epoch
            at = self._at[id(kind)]
            if self._steps[id(kind)]:
                step[at] = np.where(np.isnan(step[at]) & np.isnan(epoch[at]), np.inf, step[at])
        main, amounts = self.column(self._main), self._ranked(AMOUNT)
        steps, epochs = (
            next(filter(None, (as_number(self._params.get(name)) for name in names)), None) for names in _PLANS
        )
        rows = RowPlaces(
            step=step,
            of=of,
            unit=unit,
            epoch=epoch,
            bar=self.column(BAR),
            bar_of=self.column(BAR + OF),
            amount=self.column(amounts[0]) if amounts else np.full(n, np.nan),
            loss=main if self._roles.get(self._main) in LOSSES else np.full(n, np.nan),
            main=~is_null(main) & self._where(name=self._main),
            training=self._where(training=True),
            metric=self._where(),
            plan=(steps, epochs),
        )
        found = place(rows, self._segment)
        return found._replace(kept=found.kept & ~stray)

    def _with_ends(
        self, step: FloatArray, of: FloatArray, epoch: FloatArray
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """The steps where lines as Keras has them are of batches, and what they count up to; and the rows that count
        nothing. A line at each epoch's end says nothing but its epoch; one that was cut off is no mean of it, and
        another line in one epoch is of other data.
        """
        ends, full = self.column(END), self.column(END + OF)
        there, stray = ~np.isnan(ends), np.zeros(len(ends), dtype=bool)
        if 2 * (ends < full).sum() > there.sum():
            return np.where(np.isnan(step), ends, step), np.where(np.isnan(of), full, of), stray
        at, heading = np.flatnonzero(there), np.cumsum(~np.isnan(epoch))
        again = (np.diff(heading[at], prepend=-1) == 0) & (heading[at] > 0)
        # A bar that is full is drawn once more when the evaluation is there.
        redrawn = again & (np.diff(full[at], prepend=np.nan) == 0) & self._has_held_out[at]
        stray[at] = (again & ~redrawn) | np.append(redrawn[1:], False)
        return step, of, stray | (ends < full)

    @cached_property
    def _has_held_out(self) -> BoolArray:
        """The rows that have a metric of held-out data."""
        found = np.zeros(len(self.positions), dtype=bool)
        for name in filter(is_held_out, self._with):
            found |= ~np.isnan(self.column(name))
        return found

    @property
    def is_measured(self) -> BoolArray:
        """The rows that have metrics."""
        return self._where()

    @property
    def is_of_training(self) -> BoolArray:
        """The rows that have no metrics, or those of the training."""
        return self._where(training=True) | ~self._where()

    def goes_on_after(self, row: int) -> bool:
        """Whether rows from the log's row ``row`` on come further than those before it."""
        before = int(np.searchsorted(self.positions, row))
        return bool(len(self.reached)) and bool(self.reached[-1] != (self.reached[before - 1] if before else _NO_STEP))

    def before(self, row: int) -> int | None:
        """The last step before the log's row ``row``; None where none was, or no row follows."""
        before = int(np.searchsorted(self.positions, row))
        if not 0 < before < len(self.positions) or self.reached[before - 1] == _NO_STEP:
            return None
        return int(self.reached[before - 1])

    def breaks_off(self, row: int, total: int, share: float) -> bool:
        """Whether the last bar of this length before the log's row ``row`` was begun, and came to less than a share."""
        before = int(np.searchsorted(self.positions, row))
        bars = self.column(BAR)[:before][self.column(BAR + OF)[:before] == total]
        begun = bars[bars > 0]
        return bool(len(begun)) and bool(begun[-1] < share * total)

    @property
    def note(self) -> str:
        """What a reader of the verdict should know; empty where there is nothing."""
        notes = [*self._of_several(), *self._of_overlaps()]
        empty = self._empty_at_the_end()
        if empty >= _FEWEST_EMPTY:
            notes.append(
                f"{printable(self._main)} has no number in the last {empty} rows: such cells count as not logged, "
                "though pandas writes NaN like that (to_csv(na_rep='nan') tells them apart)"
            )
        return "; ".join(notes)

    def _of_several(self) -> Iterator[str]:
        """That there are several trainings, where each is, and which one is judged."""
        begins = self.places.begins
        if len(begins) > 1:
            told = [
                f"{at}: {self._told_of(*ends)}" for at, ends in enumerate(pairwise([*begins, len(self.positions)]), 1)
            ]
            some = told if len(told) <= 2 * _TOLD else [*told[:_TOLD], "...", *told[-_TOLD:]]
            at = self.places.segment
            judged = f"number {at} is judged"
            if self._segment is not None and self._segment > len(told):
                judged = f"there is no number {self._segment}, and the last one is judged"
            elif at == len(told):
                judged = "the last one is judged, --segment N judges another"
            yield f"{len(told)} trainings are in it, each from its beginning on ({', '.join(some)}): {judged}"
        elif self._segment is not None and self._segment > 1:
            yield f"one training is in it, and no segment {self._segment}: that one is judged"

    def _told_of(self, start: int, stop: int) -> str:
        """``epochs 1 to 20, loss 2.3 to 0.1``: of the rows of one training."""
        steps, main = self.places.steps[start:stop], self.column(self._main)[start:stop]
        known = np.flatnonzero(np.isfinite(main) & np.isfinite(steps))
        if not len(known):
            return f"{stop - start} rows"
        unit = "epochs" if UNITS[self.places.units[start]] is StepUnit.EPOCH else "steps"
        values = " to ".join(contrast(float(main[known[0]]), float(main[known[-1]])))
        return f"{unit} {steps[known[0]]:g} to {steps[known[-1]]:g}, {printable(self._main)} {values}"

    def _of_overlaps(self) -> Iterator[str]:
        """That steps went back within the training that is judged, as when it was resumed."""
        main = np.flatnonzero(self._where(name=self._main) & self.places.kept & np.isfinite(self.places.steps))
        steps = self.places.steps[main]
        back = np.flatnonzero(np.diff(steps) < 0)
        if len(back):
            unit = "epochs" if UNITS[self.places.units[main[0]]] is StepUnit.EPOCH else "steps"
            first = f"from {steps[back[0]]:g} to {steps[back[0] + 1]:g}"
            times = f"{len(back)} times, at first {first}" if len(back) > 1 else first
            what = "as when it was resumed: of one that is there twice the last value counts"
            yield f"its {unit} went back {times}, {what}"

    def _empty_at_the_end(self) -> int:
        """In how many of the last rows the loss is an empty cell, next to what was almost never logged without it."""
        if self._roles.get(self._main) not in LOSSES:
            return 0
        at, cells = self._cells_of(self._main)
        return int((self._is_missed(self._main, at, cells) & is_null(cells) & ~may_be_nan(cells)).sum())

    def _cells_of(self, name: str) -> tuple[IntArray, FloatArray]:
        """The rows that have a metric, and what is in its cells."""
        kinds = [kind for kind, _ in self._with.get(name, ()) if self._is_metric(kind, name)]
        at = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *(self._at[id(kind)] for kind in kinds)]))
        return at, self.column(name)[at]

    @cached_property
    def reached(self) -> IntArray:
        """Of each row the furthest step up to it, the smallest integer where no row had metrics: int64[rows]."""
        counts = self._where() & self.places.kept & ~np.isnan(self.places.steps)
        return np.maximum.accumulate(np.where(counts, self.places.steps, _NO_STEP).astype(np.int64))

    @property
    def span(self) -> tuple[int, int] | None:
        """The first step and the furthest one; None where there is none."""
        known = self.reached[self.reached != _NO_STEP]
        return (int(known[0]), int(known[-1])) if len(known) else None

    # Series

    def series(self, names: Sequence[str]) -> tuple[Series, ...]:
        """Those of the metrics that are needed."""
        found = [self._series(name, self._roles[name]) for name in names if name in self._roles]
        if self._loose and self._roles.get(EPOCH):
            found = [self._epochs, *(one for one in found if (axis := axis_of(one.name)) is None or axis.kind != EPOCH)]
        return tuple(one for one in found if len(one))

    def odd(self, names: Iterable[str]) -> tuple[Series, ...]:
        """Metrics that nobody asks for, and that were NaN or infinite at some point."""
        known = [name for name in names if name not in self._roles and axis_of(name) is None and name in self._with]
        cells = ((name, self._cells_of(name)[1]) for name in known)
        bad = [name for name, values in cells if (~np.isfinite(values) & ~is_null(values)).any()]
        found = [replace(self._series(name, ""), role=None) for name in bad[:_MOST_ODD]]
        return tuple(one for one in found if one.nonfinite)

    @property
    def _epochs(self) -> Series:
        """The epoch of each row of the training, also where only a heading says it, or a bar."""
        places, own = self.places, np.full(len(self.positions), np.nan)
        for name in self._ranked(EPOCH):
            own = np.where(np.isnan(own), self.column(name), own)
        at = np.where(np.isnan(own), self._where(training=True), self._where())
        counted = np.isnan(own).all() and BATCH + OF not in self._with  # steps that count up to all of them
        values = np.where(np.isnan(own), np.nan if counted else places.epochs, own)
        at &= places.kept & ~np.isnan(places.steps) & ~np.isnan(values)
        changes = (np.diff(places.steps, prepend=np.nan) != 0) | (np.diff(values, prepend=np.nan) != 0)
        at &= ~np.isnan(own) | changes
        unit = UNITS[places.units[-1]] if len(at) else StepUnit.UNKNOWN
        steps = places.steps[at].astype(np.int64)
        return Series(name=EPOCH, role=self._roles[EPOCH], step_unit=unit, steps=steps, values=values[at])

    def _series(self, name: str, role: str) -> Series:
        (at, cells), places = self._cells_of(name), self.places
        stands_for_nan = may_be_nan(cells) & self._is_missed(
            name, at, cells
        )  # several writers of JSON have no other sign
        counts = places.kept[at] & ~np.isnan(places.steps[at]) & (~is_null(cells) | stands_for_nan)
        counts &= ~self._of_other_metrics(name, at, cells)
        if 2 * (places.of_epoch[at] & counts).sum() <= counts.sum():
            counts &= ~places.of_epoch[at]  # of a metric that was logged by step these are the epochs' means
        if role == VAL_LOSS:  # a progress bar keeps showing the last evaluation's
            under_way = self.column(BATCH)[at] < self.column(BATCH + OF)[at]
            counts &= ~(np.concatenate([[False], cells[1:] == cells[:-1]]) & under_way)
        at, values = at[counts], np.where(is_null(cells), np.nan, cells)[counts]
        steps, unit = places.steps[at].astype(np.int64), UNITS[places.units[at[-1]]] if len(at) else StepUnit.UNKNOWN
        several = len(steps) >= _OF_AN_EPOCH * (1 + np.count_nonzero(np.diff(steps)))
        series = Series(name=name, role=role, step_unit=unit, steps=steps, values=values)
        if unit is not StepUnit.EPOCH or not several or (np.diff(steps) < 0).any():
            return series
        # Rows that say nothing but their epoch, several to each.
        return replace(series, steps=np.arange(1, len(steps) + 1, dtype=np.int64), step_unit=StepUnit.UNKNOWN)

    def _of_other_metrics(self, name: str, at: IntArray, cells: FloatArray) -> BoolArray:
        """Which cells hold NaN because a table was filled up with it, and their rows are of other metrics. Those rows
        have a number of one that it never shares a row with, and none of those that it does: what diverges keeps its
        row. Or the learning rate of the same group (``train/...``) is NaN, which no divergence makes it, and comes
        again.
        """
        nothing = np.zeros(len(self.positions), dtype=bool)
        if np.isnan(cells).all() or not (np.isnan(cells) & ~is_null(cells)).any():
            return nothing[at]
        strangers, companions, without_rate = nothing.copy(), nothing.copy(), nothing.copy()
        mine, group = ~np.isnan(self.column(name)), name.rpartition("/")[0]
        measured = dict.fromkeys(one for _, names in self._measured for one in names if one != name)
        for other in [*measured][:_MOST_BESIDE]:
            there = ~np.isnan(self.column(other))
            if (there & mine).any():
                companions |= there
            else:
                strangers |= there
            if group and there.any() and self._roles.get(other) == _RATE and other.rpartition("/")[0] == group:
                last = int(np.flatnonzero(there)[-1])
                without_rate[:last] |= ~there[:last]
                without_rate[last + 1 :] |= len(there) - 2 == last
        return ((strangers & ~companions) | without_rate)[at] & np.isnan(cells)

    def _is_missed(self, name: str, at: IntArray, cells: FloatArray) -> BoolArray:
        """Which empty cells are of rows in which the metric should be: those to the end of the log, in rows that have a
        number of what was almost never logged without this metric before. One is enough of a metric of the training
        next to another one; an evaluation may just not have been there yet.
        """
        found, numbers = np.zeros(len(cells), dtype=bool), np.flatnonzero(~is_null(cells))
        if len(numbers) < _FEWEST_OF_A_HABIT or numbers[-1] == len(cells) - 1:
            return found
        tail = int(numbers[-1]) + 1
        beside = {
            one: None
            for kind, names in self._measured
            if name in names
            for one in names
            if one != name and one in self._roles
        }
        for other in [*beside][:_MOST_BESIDE]:
            there = ~np.isnan(self.column(other)[at])
            together = (there & ~is_null(cells))[:tail].sum()
            few = 2 if is_held_out(name) or is_held_out(other) else 1
            if together >= max(_FEWEST_OF_A_HABIT, _HABIT * there[:tail].sum()) and there[tail:].sum() >= few:
                found[tail:] |= there[tail:]
        if not beside and len(numbers) >= _HABIT * tail and len(cells) - tail > 1:
            found[tail:] = True
        return found
