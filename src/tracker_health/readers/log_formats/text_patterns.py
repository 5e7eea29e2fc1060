"""Regular expressions for lines that differ in their numbers only."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tracker_health.evidence import StepUnit
from tracker_health.readers.json_lines import as_number, as_step
from tracker_health.readers.log_formats.log_rows import name_on
from tracker_health.readers.log_formats.table import LogTable, RowKind
from tracker_health.readers.log_formats.text_pairs import Printed

_NUMBER = r"([-+]?(?:[\d.]++(?:[eE][-+]?\d++)?|(?i:nan|inf)))"
# What `rank0` and `rank1` print are the lines of two processes.
_VARIES = re.compile(
    r"(?P<word>\[(?:rank|default)\d+\])|\d+|[ \t]+|[█▏▎▍▌▋▊▉#━╸╺╴─>]+[ █▏▎▍▌▋▊▉#━╸╺╴─.>-]*|[=]{2,}[>.= ]*"
)
_MOST_NUMBERS = 40
_AROUND_A_NAME = 8
_LARGEST = 2**53


@dataclass(frozen=True, slots=True)
class Pattern:
    """How lines of one kind are read: the place of the step among their numbers, and the metrics of the others.

    ``epoch_steps``: how many steps all of them say that an epoch has, 0 where they do not.

    ``repeats``: they say, each of its rank, what another rank says, and are passed over. ``suspicious``: they have
    words that may tell of a trouble.
    """

    expression: re.Pattern[str]
    kind: RowKind
    step: int
    epoch: int | None
    unit: StepUnit
    data: str
    epoch_steps: int = 0
    repeats: bool = False
    suspicious: bool = False

    @classmethod
    def of(
        cls, line: str, printed: Printed, table: LogTable, owners: Collection[str] = (), *, counted: bool = False
    ) -> Pattern | None:
        """The pattern of a line that says its own step; None where it does not, or where each must be looked at.

        ``owners``: the ranks whose numbers the line repeats; so do lines like it of any other rank. ``counted``: only
        lines whose steps count up to the same number are like it.
        """
        numbers = printed.numbers
        if printed.step is None or printed.of_epoch or printed.step not in numbers or len(numbers) > _MOST_NUMBERS:
            return None
        written, position = [rf"(?!\[(?:rank|default)(?:{'|'.join(owners)})\])" if owners else ""], 0
        for one in numbers:
            if one.start < position:
                return None
            # Of a name with digits these are a part: `loss_1` and `loss_2` are two metrics.
            named = one.start - len(one.name) - _AROUND_A_NAME if any(map(str.isdigit, one.name)) else one.start
            written += [_generalised(line[position : one.start], named - position, any_rank=bool(owners)), _NUMBER]
            position = one.end
            if (
                one == printed.step
                and printed.steps is not None
                and (printed.epoch_steps or (counted and printed.counts_up))
            ):
                written.append(re.escape(line[position : printed.steps.end]))
                position = printed.steps.end
        try:
            expression = re.compile("".join([*written, _generalised(line[position:], len(line)), r"\n"]))
        except (re.error, OverflowError, RecursionError):
            return None
        if expression.fullmatch(line + "\n") is None:
            return None
        names = [
            name_on(printed.data, one.name) if printed.data else one.name for one in numbers if one != printed.step
        ]
        if len(set(names)) < len(names):
            return None
        unit = StepUnit.OPTIMIZER_STEP if printed.step.name == "global_step" else StepUnit.UNKNOWN
        epoch = numbers.index(printed.epoch) if printed.epoch is not None else None
        kind = table.kind(tuple(names), unit)
        step, total = numbers.index(printed.step), printed.epoch_steps
        return cls(expression, kind, step, epoch, unit, printed.data, total, repeats=bool(owners))

    def run(self, block: str, position: int, table: LogTable) -> tuple[int, int]:
        """Add the rows of this kind that stand one after the other from a position on; where they end, and how many
        there were. All are found first, so that their numbers are made at once.
        """
        match, found = self.expression.match, []
        while (line := match(block, position)) is not None:
            found.append(line.groups())
            position = line.end()
        if found and not self.repeats:
            table.clock.epoch_steps = self.epoch_steps or table.clock.epoch_steps
            if not self._add_all(found, table):
                for groups in found:
                    self._add(groups, table)
        return position, len(found)

    def _add_all(self, found: list[tuple[str, ...]], table: LogTable) -> bool:
        """Add rows at once; false where one of them has to be looked at."""
        try:
            numbers = np.fromiter(map(float, chain.from_iterable(found)), dtype=np.float64).reshape(len(found), -1)
        except ValueError:
            return False
        axis = numbers[:, self.step]
        if not (np.abs(axis) < _LARGEST).all() or not np.array_equal(axis, np.floor(axis)):
            return False
        epochs = None if self.epoch is None else (groups[self.epoch] for groups in found)
        counted = table.clock.all_at(axis.astype(np.int64), self.unit, epochs, self.data)
        table.add_all(self.kind, counted, np.delete(numbers, self.step, axis=1))
        return True

    def _add(self, groups: tuple[str, ...], table: LogTable) -> None:
        """Add a row whose numbers may be no plain ones (``1.2.3``): those that are none are left out."""
        step = as_step(groups[self.step])
        numbers = [as_number(text) for place, text in enumerate(groups) if place != self.step]
        named = {name: number for name, number in zip(self.kind.names, numbers, strict=True) if number is not None}
        if step is not None and named:
            epoch = None if self.epoch is None else groups[self.epoch]
            step = table.clock.at(step, self.unit, epoch, self.data)
            table.add(table.kind(tuple(named), self.unit), step, named.values())


def _generalised(literal: str, named: int, *, any_rank: bool = False) -> str:
    """An expression for what stands between numbers: other digits, bars and blanks may be there. From ``named`` on the
    digits have to be these.
    """
    written, position = [], 0
    for match in _VARIES.finditer(literal):
        written.append(re.escape(literal[position : match.start()]))
        found = match.group()
        if match["word"] and any_rank:
            written.append(r"\[(?:rank|default)\d++\]")
        elif match["word"] or (found[0].isdecimal() and match.start() >= named):
            written.append(re.escape(found))
        elif found[0].isdecimal():
            written.append(r"\d++")
        elif found[0] in " \t":
            written.append(r"[ \t]++")
        else:
            written.append(r"[ █▏▎▍▌▋▊▉#━╸╺╴─.>=-]*+")
        position = match.end()
    return "".join([*written, re.escape(literal[position:])])
