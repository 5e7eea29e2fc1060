"""Console logs: the numbers that trainers print for people, and what else they say when they die."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.evidence import Series, StepUnit
from tracker_health.readers.log_formats.base import Log, SelectNames
from tracker_health.readers.log_formats.log_rows import HELD_OUT, name_on
from tracker_health.readers.log_formats.numbers import as_written
from tracker_health.readers.log_formats.table import LogTable
from tracker_health.readers.log_formats.text_blocks import MAX_LINE_CHARACTERS, blocks, text_of
from tracker_health.readers.log_formats.text_pairs import Number, Pairs, Printed, settings_in
from tracker_health.readers.log_formats.text_patterns import Pattern
from tracker_health.readers.log_formats.text_ranks import Ranks, without_labels
from tracker_health.readers.log_formats.text_tables import Tables
from tracker_health.readers.log_formats.text_troubles import Troubles

_JSON = re.compile(r"\{\s*[\"}]|\[\s*[\[{\"]")
_ENDS = re.compile(r"\n++")
# "Test Error:", and on the lines below what was measured.
_HEADING = re.compile(rf"[^\d=:]{{0,60}}?\b({'|'.join(HELD_OUT)})\b[^\d=:]{{0,60}}(?::|\*\*\*)\s*", re.IGNORECASE)
_LONGEST_HEADING = 150
_OF_STOPPING = ("top", "TOP", "atience")  # looked for first: far cheaper than the pattern
_STOPPED_EARLY = re.compile(r"early[ _-]?stop|stopp(?:ed|ing) early|trainer to stop|out of patience", re.IGNORECASE)
_FAIRSEQ_EPOCH = re.compile(r"\| train \| epoch \d+ \|")
_PLANS_KEPT = 2
_PATTERNS_KEPT = 12
_PATTERNS_TRIED = 100
_BARS_KEPT = 1000
_OF_AN_EPOCH = 3  # rows
_FEWEST_STEPS = 3
_MOST_ACCUMULATED = 16  # batches to an update
_MOST_ROWS = 1.5  # for each step: more begin anew
_OF_ANOTHER_UNIT = re.compile(
    r"token|sample|image|frame|\benv|episode|round|client|stage|outer|fold|phase|finish|done|stop", re.IGNORECASE
)


class TextLines:
    """Lines that give names to numbers (``step 100 loss=0.52``, ``{'loss': 0.5}``, a progress bar), and tables of them.

    A line counts where it says a step or an epoch, or names a metric that some rule asks for. Lines without either
    belong to the last step before them; in a log without steps, they are counted.
    """

    precise = False

    def recognises(self, head: bytes) -> bool:
        text = text_of(head).lstrip()
        return bool(text) and _JSON.match(text) is None

    def read(self, path: Path, source: str, select_names: SelectNames, prefix: str = "") -> Log:
        return _Reading(LogTable(select_names, prefix), select_names).log(blocks(path), source)


def log_of(piece: bytes, select_names: SelectNames) -> Log:
    """What a piece of a console log holds, from its beginning or its end."""
    text = text_of(piece)
    return _Reading(LogTable(select_names, ""), select_names).log([text] if text else [], "")


class _Reading:
    """A log that is being read. The lines of a log are made by few calls of ``print``: once a line is understood, those
    like it are read by a pattern of its own, without another look at what its words mean.
    """

    def __init__(self, table: LogTable, select_names: SelectNames) -> None:
        self.table = table
        self.troubles = Troubles()
        self.epochs: set[int] = set()
        self.totals: set[int] = set()
        self.headings: list[int] = []
        self.stopped_early = False
        self._pairs = Pairs(select_names)
        self._tables = Tables()
        self._patterns: list[Pattern] = []
        self._epoch: int | None = None
        self._of_batches = self._epochs_said = self._epochs_ended = False
        self._bars: dict[int | None, tuple[int, int]] = {}
        self._ordinal = 0
        self._at_ordinal: set[str] = set()
        self._whole_epoch: int | None = None
        self._ranks = Ranks()
        self._repeats = False
        self._last_row = ""
        self._unused = 0
        self._heading: Number | None = None
        self._heading_data = ""
        self._fresh = False
        self._full_bar: tuple[int | None, int] = (None, 0)
        self._held_out: dict[str, float] = {}

    def log(self, pieces: Iterable[str], source: str) -> Log:
        """What all of a log holds, given in blocks of whole lines."""
        for block in without_labels(pieces):
            self.take(block)
        table = self.table
        series = tuple(map(_in_order, table.series(source))) if table.points else ()
        names = table.names if table.points else ()
        if self._one_bar_was_all():
            series, names = (
                tuple(one for one in series if one.name != "epoch"),
                tuple(name for name in names if name != "epoch"),
            )
        return Log(
            series=series,
            params=table.params,
            names=names,
            note=table.note,
            text=self.troubles.log(source, table.span),
            epochs=next(iter(self.epochs)) if len(self.epochs) == 1 else None,
            epoch=max(self.headings) + (min(self.headings) == 0) if self.headings else None,
            steps=self._total_not_reached(series),
            stopped_early=self.stopped_early,
        )

    def _one_bar_was_all(self) -> bool:
        """Whether one bar went to its end and no other followed: it may well be of all epochs, and not of the first."""
        passes = [passes for passes, _ in self._bars.values()]
        whole = any(total is not None and done >= total for total, (_, done) in self._bars.items())
        return whole and not any(passes) and not self._epochs_said

    def _total_not_reached(self, series: Collection[Series]) -> int | None:
        """What the steps count up to (``step 18/450``), where the log breaks off amid them: of the whole training, or
        else of its first epoch. Not where they began anew, nor where anything is said behind the last of them, which
        may say why it was enough.
        """
        counted = [one for one in series if len(one) >= _FEWEST_STEPS]
        of_epochs = self._epochs_said or self._epoch is not None or self.epochs
        if len(self.totals) != 1 or of_epochs or not counted or _OF_ANOTHER_UNIT.search(self._last_row):
            return None
        (total,) = self.totals
        longest = max(counted, key=len)
        apart = np.diff(longest.steps)
        anew = apart.min() <= 0 or self.troubles.rows > _MOST_ROWS * len(longest)
        if anew or f"/{total}" not in self._last_row.replace(" ", ""):
            return None
        last = max(int(one.steps[-1]) for one in series if len(one))
        # Steps of batches, several of which make an update, end at a half or a quarter.
        in_batches = last > 0 and total % last == 0 and total // last <= _MOST_ACCUMULATED
        return total if last + 2 * int(apart.max()) < total and not in_batches else None

    def take(self, block: str) -> None:
        """Read some lines."""
        block += "\n"
        position = 0
        while position < len(block):
            if block[position] == "\n":
                position = _ENDS.match(block, position).end()  # type: ignore[union-attr]
                continue
            start = position
            position, lines, rows, suspicious = (
                (position, 0, 0, False) if self._repeats else self._take_known(block, position)
            )
            if not lines:
                position = block.find("\n", start) + 1
                line = block[start : position - 1]
                if not line or line.isspace():
                    continue
                lines, rows = 1, int(len(line) <= MAX_LINE_CHARACTERS and self._take_new(line))
                suspicious = self.troubles.suspects(line)
            self._count(lines, rows)
            self._last_row = block[start : position - 1].rpartition("\n")[2][-_LONGEST_HEADING:] if rows else ""
            if suspicious:
                for line in block[start : position - 1].split("\n"):
                    self.troubles.look(line)

    def _count(self, lines: int, rows: int) -> None:
        self.troubles.lines += lines
        self.troubles.rows += rows
        if self.table.span is not None:
            self.troubles.furthest = self.table.span[1]

    def _take_known(self, block: str, position: int) -> tuple[int, int, int, bool]:
        """Read lines like earlier ones; where they end, how many there were, how many of them are rows, and whether
        they may tell of a trouble: their words are always the same.
        """
        for place, pattern in enumerate(self._patterns):
            end, lines = pattern.run(block, position, self.table)
            if lines:
                self._unused = 0
                if not pattern.repeats:
                    self._heading = None
                if place:
                    self._patterns.insert(0, self._patterns.pop(place))
                return end, lines, 0 if pattern.repeats else lines, pattern.suspicious
        return position, 0, 0, False

    def _take_new(self, line: str) -> bool:
        if self._is_repeated(line):
            return False
        rank = self._ranks.of(line)
        row = self._tables.row(line)
        if row is not None:
            if rank is not None and not self._ranks.owned(rank, row):
                return False
            self.table.take(row)
            return True
        printed = self._pairs.read(line)
        self._look_for_the_plan(line, printed)
        self._look_at_lines_of_batches(printed)
        if rank is not None and not self._is_taken_from(rank, line, printed):
            return False
        self._place_below_heading(line, printed)
        if printed is None or not printed.is_row:
            self._tables.look_for_header(line)
            self._look_at_the_rest(line, printed)
            return False
        record = self._placed(line, printed)
        if record is None:
            return False
        self.table.take(record)
        self._learn(line, printed)
        return True

    def _look_for_the_plan(self, line: str, printed: Printed | None) -> None:
        """``Epoch 12/50`` says how many epochs there are to be, and many trainers say so when they stop before."""
        if printed is not None and printed.epochs:
            if len(self.epochs) < _PLANS_KEPT:
                self.epochs.add(printed.epochs)
            if printed.epoch_number is not None and not printed.is_row:
                self.headings.append(printed.epoch_number)
                self.headings[:] = [min(self.headings), max(self.headings)]
        if printed is not None and printed.counts_up and printed.steps and len(self.totals) < _PLANS_KEPT:
            self.totals.add(int(printed.steps.text))
        if not self.stopped_early and any(map(line.__contains__, _OF_STOPPING)):
            self.stopped_early = _STOPPED_EARLY.search(line) is not None

    def _look_at_lines_of_batches(self, printed: Printed | None) -> None:
        """Where there is a line for every batch, the one at the end of an epoch is no mean of it."""
        if printed is None:
            return
        if (
            printed.of_batch and self._epochs_ended and not self._of_batches
        ):  # one that was cut short, of an epoch's means
            printed.metrics.clear()
            printed.losses.clear()
            return
        self._of_batches |= printed.of_batch
        if printed.last is not None and printed.step is None:
            self._epochs_ended = True
            if self._of_batches:
                printed.step = printed.last

    def _learn(self, line: str, printed: Printed, owners: Collection[str] = ()) -> None:
        """Make a pattern of lines like this one; where no pattern ever fits a second line, few are made."""
        self._unused += 1
        apart = self._heading is not None or self._heading_data or _FAIRSEQ_EPOCH.search(line)
        if (apart and not owners) or (self._unused > _PATTERNS_TRIED and self._unused % _PATTERNS_KEPT):
            return
        pattern = Pattern.of(line, printed, self.table, owners, counted=len(self.totals) == 1)
        if pattern is not None:
            self._patterns.insert(0, replace(pattern, suspicious=self.troubles.suspects(line)))
            del self._patterns[_PATTERNS_KEPT:]

    def _is_taken_from(self, rank: str, line: str, printed: Printed | None) -> bool:
        """Whether a line says anything that another rank does not say; of a row that part is left."""
        if printed is None or not printed.is_row:
            return self._ranks.is_heard(rank)
        names = [name_on(printed.data, one.name) if printed.data else one.name for one in printed.metrics]
        owned = self._ranks.owned(rank, names)
        if not owned:
            self._learn(line, printed, self._ranks.owners(names))
            return False
        if len(owned) < len(set(names)):
            printed.metrics = [one for one, name in zip(printed.metrics, names, strict=True) if name in owned]
            printed.losses = [one for one in printed.losses if one in printed.metrics]
        return True

    def _is_repeated(self, line: str) -> bool:
        """Whether a line says what others say: LightGBM its best round."""
        if self._repeats:
            self._repeats = False
            return True
        self._repeats = "est iteration is" in line[-100:]
        return False

    def _place_below_heading(self, line: str, printed: Printed | None) -> None:
        """Lines that are indented belong to the line above them, which said the step or the held-out data."""
        indented = line.startswith((" ", "\t", "│"))
        placed = printed is not None and (printed.step is not None or printed.epoch is not None)
        if not indented and (placed or not self._fresh):
            self._heading, self._heading_data = None, ""
        self._fresh = False
        if printed is not None and printed.metrics:
            printed.data = printed.data or self._heading_data
            if self._heading is not None and printed.step is None and printed.epoch is None:
                printed.step = self._heading
        if printed is not None and printed.step is not None and not printed.of_epoch:
            if not any(self._pairs.role(one.name) for one in printed.metrics):
                self._heading = printed.step
        elif printed is None and len(line) < _LONGEST_HEADING and (match := _HEADING.fullmatch(line)) is not None:
            if "train" in line.lower():
                return
            self._heading_data, self._fresh = HELD_OUT[match.group(1).lower()], True

    def _look_at_the_rest(self, line: str, printed: Printed | None) -> None:
        """Keras and many others print the epoch on a line of its own; settings stand in a banner before the first
        row.
        """
        if printed is not None and printed.epoch_number is not None and not printed.metrics:
            self._epoch = printed.epoch_number
        elif not self.table.points and (printed is None or printed.step is None):
            for name, text in settings_in(line, printed).items():
                self.table.keep_param(name, text)

    def _placed(self, line: str, printed: Printed) -> dict[str, Any] | None:
        """A line's numbers with the step that they belong to."""
        record: dict[str, Any] = {
            one.name: value for one in printed.metrics if (value := as_written(one.text)) is not None
        }
        if _FAIRSEQ_EPOCH.search(line):  # means of the epoch, by the names that its JSON has
            record = {f"train_{name}": value for name, value in record.items()}
        if printed.bar is not None and printed.of_epoch:
            self._leave_out_the_old(record, done=printed.done)
        if not record or self._is_evaluation_after_training(printed):
            return None
        if printed.data:
            record["split"] = printed.data
        self._epochs_said |= printed.epoch is not None or self._epoch is not None
        if printed.epoch is not None:
            record["epoch"] = as_written(printed.epoch.text)
        if printed.of_epoch and printed.epoch_number is None:
            record["epoch"] = self._epoch_of_bar(printed)
        if printed.step is not None:
            record[printed.step.name] = int(printed.step.text)
            self.table.clock.epoch_steps = printed.epoch_steps or self.table.clock.epoch_steps
        elif printed.epoch_number is None and (not printed.of_epoch or self._epoch is None):
            self._place_by_order(record, printed)
        if printed.step is None and printed.epoch_number is not None:
            self._whole_epoch = printed.epoch_number
        return record

    def _is_evaluation_after_training(self, printed: Printed) -> bool:
        """Keras ends an epoch with a full bar; one of another length behind it is of other data, which has no name."""
        if printed.bar is None or printed.step is not None or self._epoch is None:
            return False
        done, total = self._full_bar
        self._full_bar = (self._epoch, printed.bar if done != self._epoch else total)
        return self._full_bar[1] != printed.bar

    def _leave_out_the_old(self, record: dict[str, Any], *, done: bool) -> None:
        """A bar goes on showing the last validation's result through the next epoch."""
        for name, value in list(record.items()):
            if self._pairs.role(name) == "val_loss":
                if not done and self._held_out.get(name) == value:
                    del record[name]
                else:
                    self._held_out[name] = value

    def _epoch_of_bar(self, printed: Printed) -> int | None:
        """The epoch that a bar belongs to, where its line does not say it: each begins with a new one."""
        if printed.step is None or self._epoch is not None:
            return self._epoch
        done = int(printed.step.text)
        passes, before = self._bars.get(printed.bar, (0, 0))
        passes += done < before
        if len(self._bars) < _BARS_KEPT or printed.bar in self._bars:
            self._bars[printed.bar] = (passes, done)
        return passes

    @staticmethod
    def _is_of_held_out_data(printed: Printed) -> bool:
        return bool(printed.data) or all(name_on("val", one.name) == one.name for one in printed.metrics)

    def _place_by_order(self, record: dict[str, Any], printed: Printed) -> None:
        if not self._ordinal:
            clock = self.table.clock
            if clock.now is not None:
                # The clock counts on from the epoch's beginning, as for every row.
                record["step"] = clock.now - clock.offset
                if clock.end_of_epoch is not None:
                    record["step"] = clock.epoch_steps if self._is_of_held_out_data(printed) else clock.last
                return
            if self._whole_epoch is not None:
                record["epoch"] = self._whole_epoch
                return
        of_training = not printed.data and any(self._pairs.role(one.name) != "val_loss" for one in printed.losses)
        names = {name_on(printed.data, one.name) for one in printed.losses}
        if of_training or not self._ordinal or not names.isdisjoint(self._at_ordinal):
            self._ordinal += 1
            self._at_ordinal.clear()
        self._at_ordinal |= names
        record["_step"] = self._ordinal


def _in_order(series: Series) -> Series:
    """A history whose rows say nothing but their epoch, several rows to each: they are counted. One that a resumed run
    logged again is there twice.
    """
    apart = np.diff(series.steps)
    several = len(series) >= _OF_AN_EPOCH * (1 + np.count_nonzero(apart))
    if series.step_unit is not StepUnit.EPOCH or not several or (apart < 0).any():
        return series
    return replace(series, steps=np.arange(1, len(series) + 1, dtype=np.int64), step_unit=StepUnit.UNKNOWN)
