"""What was logged so far, as it grows: appended to in constant time, read as series."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from tracker_health.evidence import Series
from tracker_health.roles import RolePlan

_MOST_NAMES = 2000
_SORTED_OUT_AT = 1000  # points, after which what no rule asks for is let go


class LoggedSoFar:
    """Metrics by name and step.

    ``roles``: says which names rules ask for. Of the others nothing is kept once the history is long: memory
    is 16 bytes for each point of a metric that is judged. ``points``: rows, one for each step.
    """

    def __init__(self, roles: RolePlan, source: str) -> None:
        self._roles, self._source = roles, source
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._dropped: set[str] = set()
        self._broke: set[str] = set()
        self.points, self.first_step, self.last_step = 0, 0, -1

    @property
    def names(self) -> tuple[str, ...]:
        """All names that were logged, kept or not."""
        return (*self._values, *sorted(self._dropped))

    def add(self, metrics: Mapping[str, float], step: int) -> bool:
        """Take what was logged at a step; whether a metric is not finite for the first time."""
        new = [name for name in metrics if name not in self._values and name not in self._dropped]
        if new:
            self._begin(new)
        broke = False
        for name, value in metrics.items():
            values = self._values.get(name)
            if values is None:
                continue
            number = float(value)
            if number - number != 0 and name not in self._broke:
                self._broke.add(name)
                broke = True
            values.append(number)
            self._steps[name].append(step)
        if step != self.last_step:  # what training and evaluation log of one step is one row
            self.first_step = self.first_step if self.points else step
            self.points, self.last_step = self.points + 1, step
            if self.points == _SORTED_OUT_AT:
                self._sort_out()
        return broke

    def _begin(self, new: Sequence[str]) -> None:
        """Keep metrics that are new, as far as there is room: of a long history those that rules ask for."""
        new = new[: max(0, _MOST_NAMES - len(self._values) - len(self._dropped))]
        if not new:
            return
        wanted = self._roles.needed([*self._values, *new]) if self.points >= _SORTED_OUT_AT else dict.fromkeys(new, "")
        for name in new:
            if name in wanted:
                self._values[name], self._steps[name] = array("d"), array("q")
            else:
                self._dropped.add(name)

    def _sort_out(self) -> None:
        wanted = self._roles.needed(self.names)
        for name in [name for name in self._values if name not in wanted]:
            del self._values[name], self._steps[name]
            self._dropped.add(name)

    def series(self) -> list[Series]:
        """A series for each metric that rules ask for, without its role."""
        wanted = self._roles.needed(self.names)
        return [
            Series(
                name=name,
                role=wanted[name],
                source=self._source,
                steps=np.array(self._steps[name], dtype=np.int64),
                values=np.array(self._values[name], dtype=np.float64),
            )
            for name in self._values
            if name in wanted
        ]
