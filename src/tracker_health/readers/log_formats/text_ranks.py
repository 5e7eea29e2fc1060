"""Lines of several processes in one log: each metric is taken from the process that was the first to print it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

_RANK = re.compile(r"\[(?:rank|default)(\d+)\]")
# `srun --label`, `mpirun --tag-output` without its brackets.
_LABEL = re.compile(r"^[ \t]*+(\d{1,5}): ", re.MULTILINE)
_LINES_LOOKED_AT = 2000
_VISITS = 3
_METRICS_KEPT = 10_000


class Ranks:
    """Whose metrics are whose."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._owners: dict[str, str] = {}
        self._speakers: set[str] = set()

    def of(self, line: str) -> str | None:
        """The rank that a line says it is of."""
        match = _RANK.match(line)
        if match is None:
            return None
        self._first = self._first or match.group(1)
        return match.group(1)

    def is_heard(self, rank: str) -> bool:
        """Whether something that is no row is taken from this rank: from the first, and from those with metrics."""
        return rank == self._first or rank in self._speakers

    def owned(self, rank: str, names: Iterable[str]) -> set[str]:
        """Those of the metrics in a row that this rank was the first to print."""
        if len(self._owners) > _METRICS_KEPT:
            self._owners.clear()
        owned = {name for name in names if self._owners.setdefault(name, rank) == rank}
        if owned:
            self._speakers.add(rank)
        return owned

    def owners(self, names: Iterable[str]) -> list[str]:
        """The ranks that were the first to print these metrics."""
        return sorted({self._owners[name] for name in names if name in self._owners})


def without_labels(blocks: Iterable[str]) -> Iterator[str]:
    """The blocks of a log; where each line begins with the number of its task, that is written as a rank."""
    labelled: bool | None = None
    for block in blocks:
        if labelled is None:
            labelled = _is_labelled(block)
        yield _LABEL.sub(r"[rank\1]: ", block) if labelled else block


def _is_labelled(block: str) -> bool:
    """Whether the numbers at the beginnings of lines are those of tasks: no count of epochs goes back and forth."""
    lines = [line for line in block.split("\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT] if line.strip()]
    labels = [match.group(1) for line in lines if (match := _LABEL.match(line)) is not None]
    if len(labels) < len(lines):
        return False
    visits = Counter(label for label, _ in groupby(labels))
    return sum(times >= _VISITS for times in visits.values()) > 1
