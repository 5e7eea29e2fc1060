"""How often each sign was seen in runs with its cause, and in runs with other causes.

``counts.csv`` holds it: counted on the tuning tasks of ``benchmarks/faults`` among flagged runs, from what those showed
(``benchmarks/faults/findings.jsonl``), and written by ``make causes``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from math import log2
from typing import NamedTuple

COUNTS_FILE = "counts.csv"


class Counts(NamedTuple):
    """``seen`` in so many of ``of`` runs with the cause, ``elsewhere`` in so many ``of_others``."""

    seen: int
    of: int
    elsewhere: int
    of_others: int

    @property
    def weight(self) -> float:
        """How many times as frequent the sign is with the cause as without it, as a power of 2. What was never seen is
        not impossible. To the few runs with the cause one is added that shows the sign as often as all runs do. To the
        many others half a run is added.
        """
        usual = (self.seen + self.elsewhere) / (self.of + self.of_others)
        here, there = (self.seen + usual) / (self.of + 1), (self.elsewhere + 0.5) / (self.of_others + 1)
        return round(log2(here / there), 1)


@cache
def counts() -> Mapping[tuple[str, str], Counts]:
    """By cause and sign."""
    text = resources.files(__package__).joinpath(COUNTS_FILE).read_text(encoding="utf-8")
    return {
        (row["cause"], row["sign"]): Counts(*(int(row[name]) for name in Counts._fields))
        for row in csv.DictReader(text.splitlines())
    }
