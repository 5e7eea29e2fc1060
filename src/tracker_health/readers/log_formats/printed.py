"""The numbers of one line of a console log, with their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tracker_health.readers.log_formats.names import BAR, BATCH, END, EPOCH, STEP, name_on

GLOBAL_STEP = "global_step"


class Number(NamedTuple):
    """A number of a line: its name, its text, and where it stands; ``phrase``: all of the words before it."""

    name: str
    text: str
    start: int
    end: int
    phrase: str = ""

    def on(self, data: str) -> Number:
        """The number as one that was measured on held-out data."""
        return self._replace(name=name_on(data, self.name), phrase=name_on(data, self.phrase)) if data else self


@dataclass(slots=True)
class Printed:
    """The numbers of a line; ``losses``: those among the ``metrics`` that are one, with a ``=`` or ``:`` to say so.

    ``axes``: by their names (``step``, ``epoch``, what they count up to) those that say where the others belong.
    ``data``: the word for held-out data that they were measured on. ``of_a_plan``: an axis is called as a setting
    would be; ``of_settings``: the line is of a banner, and no row wherever it stands.
    """

    metrics: list[Number] = field(default_factory=list)
    losses: list[Number] = field(default_factory=list)
    axes: dict[str, Number] = field(default_factory=dict)
    data: str = ""
    of_a_plan: bool = False
    of_settings: bool = False
    has_amount: bool = False
    has_list: bool = False

    @property
    def is_placed(self) -> bool:
        """Whether the line says where its numbers belong."""
        return self.has_amount or not self.axes.keys().isdisjoint((STEP, GLOBAL_STEP, BATCH, EPOCH))

    @property
    def is_bar(self) -> bool:
        """Whether it says the place of a bar, for the lines around it."""
        return BAR in self.axes or END in self.axes

    @property
    def is_regular(self) -> bool:
        """Whether lines that differ in their numbers only say the same."""
        return END not in self.axes and not self.has_list

    @property
    def numbers(self) -> list[Number]:
        """All of them, from left to right, called as they are in the table of the log."""
        metrics = [one.on(self.data) for one in self.metrics]
        axes = [one._replace(name=name) for name, one in self.axes.items()]
        return sorted([*metrics, *axes], key=lambda one: one.start)
