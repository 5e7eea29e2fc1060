"""Regular expressions for lines that differ in their numbers only."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tracker_health.readers.files.json_lines import as_number
from tracker_health.readers.log_formats.printed import Printed
from tracker_health.readers.log_formats.row_kinds import RowKind
from tracker_health.readers.log_formats.table import LogTable

_NUMBER = r"([-+0-9.eE]++|[-+]?(?i:nan|inf))"  # or what looks like one: all that are none are left out
# What `rank0` and `rank1` print are the lines of two processes.
_VARIES = re.compile(
    r"(?P<word>\[(?:rank|default)\d+\])|\d+|[ \t]+|[█▏▎▍▌▋▊▉#━╸╺╴─>]+[ █▏▎▍▌▋▊▉#━╸╺╴─.>-]*|[=]{2,}[>.= ]*"
)
_MOST_NUMBERS = 40
_AROUND_A_NAME = 8


@dataclass(slots=True)
class Pattern:
    """How lines of one kind are read: their numbers from left to right are those of a kind of rows.

    ``counts``: they have metrics. ``runs``: the last block was full of them. ``kind``: None for lines that say, each of
    its rank, what another rank says: they are passed over. ``suspicious``: they have words that may report an error.
    """

    expression: re.Pattern[str]
    kind: RowKind | None
    counts: bool = True
    runs: bool = False
    suspicious: bool = False

    @classmethod
    def of(cls, line: str, printed: Printed, table: LogTable, owners: Collection[str] = ()) -> Pattern | None:
        """The pattern of a line; None where each line like it must be looked at.

        ``owners``: the ranks whose numbers the line repeats; so do lines like it of any other rank.
        """
        numbers = printed.numbers
        names = tuple(one.name for one in numbers)
        if not printed.is_regular or len(numbers) > _MOST_NUMBERS or len(set(names)) < len(names):
            return None
        written, position = ["(?m:^)", rf"(?!\[(?:rank|default)(?:{'|'.join(owners)})\])" if owners else ""], 0
        for one in numbers:
            if one.start < position:
                return None
            # Of a name with digits these are a part: `loss_1` and `loss_2` are two metrics.
            named = one.start - len(one.name) - _AROUND_A_NAME if any(map(str.isdigit, one.name)) else one.start
            written += [_generalised(line[position : one.start], named - position, any_rank=bool(owners)), _NUMBER]
            position = one.end
        try:
            expression = re.compile("".join([*written, _generalised(line[position:], len(line)), r"\n"]))
        except (re.error, OverflowError, RecursionError):
            return None
        if expression.fullmatch(line + "\n") is None:
            return None
        return cls(expression, None if owners else table.kind(names), counts=bool(printed.metrics) and not owners)

    def run(self, block: str, position: int, table: LogTable) -> tuple[int, int]:
        """Add the rows of this kind that stand one after the other from a position on; where they end, and how many
        there were. All are found first, so that their numbers are made at once.
        """
        match, found = self.expression.match, []
        line = match(block, position)
        if line is not None and self.runs and len(self.kind.names if self.kind else ()) > 1:
            every = self.expression.findall(block, position)
            if len(every) == block.count("\n", position):
                found, position, line = every, len(block), None
        while line is not None:
            found.append(line.groups())
            position = line.end()
            line = match(block, position)
        self.runs = bool(found) and position == len(block)
        if found and self.kind is not None:
            try:
                numbers = np.fromiter(map(float, chain.from_iterable(found)), dtype=np.float64)
                table.add_all(self.kind, numbers.reshape(len(found), -1))
            except ValueError:  # "1.2.3" among them
                for groups in found:
                    numbers_of = zip(self.kind.names, map(as_number, groups), strict=True)
                    table.add_named({name: number for name, number in numbers_of if number is not None})
        return position, len(found)


def _generalised(literal: str, named: int, *, any_rank: bool = False) -> str:
    """An expression for what is between numbers: other digits, bars and blanks may be there. From ``named`` on the
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
            written.append("[0-9]++")
        elif found[0] in " \t":
            written.append(r"[ \t]++")
        else:
            written.append(r"[ █▏▎▍▌▋▊▉#━╸╺╴─.>=-]*+")
        position = match.end()
    return "".join([*written, re.escape(literal[position:])])
