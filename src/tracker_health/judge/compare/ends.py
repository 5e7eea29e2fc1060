"""The metrics at the end of the part that two runs both have, and what counts as noise there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from typing import Any, Literal

import numpy as np

from tracker_health.evidence import LIKELY, SURELY, Estimate, Series
from tracker_health.facts.scores import HELD_OUT
from tracker_health.judge.compare import margins
from tracker_health.judge.compare.alignment import Alignment
from tracker_health.judge.compare.side import Side
from tracker_health.judge.pass_reason import MAIN_ROLES, RISES
from tracker_health.rules.probe import Symptom
from tracker_health.text import contrast, number, printable, short_name

_BY_VALIDATION = ("val_loss", *HELD_OUT)
_END = 0.2  # of the compared part: the levels that are its end
_NOTHING = 1e-9

Better = Literal["better", "as before", "worse"]


@dataclass(frozen=True, kw_only=True)
class End:
    """A metric at the end of the part that both runs have. ``old`` and ``new``: its levels there, NaN where it is not
    finite; ``noise``: what the difference has to exceed, in the unit of the metric.
    """

    name: str
    role: str
    old: float
    new: float
    noise: float
    place: str

    @property
    def outcome(self) -> Better:
        """Whether the new level is better beyond the noise."""
        if isfinite(self.old) is not isfinite(self.new):
            return "better" if isfinite(self.new) else "worse"
        gain = (self.new - self.old) * (1.0 if self.role in RISES else -1.0)
        if not isfinite(gain) or abs(gain) <= self.noise:
            return "as before"
        return "better" if gain > 0 else "worse"

    @property
    def said(self) -> str:
        """``val_loss ends better: about 0.31 at step 900, before 1.2``."""
        both = isfinite(self.old) and isfinite(self.new)
        old, new = contrast(self.old, self.new) if both else (_shown(self.old), _shown(self.new))
        about = "about " if isfinite(self.new) else ""
        how = f"within noise of {number(self.noise)}" if self.outcome == "as before" else self.outcome
        return f"{short_name(self.name)} ends {how}: {about}{new} at {self.place}, before {old}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a level that is not finite is null."""
        levels = {"old": self.old, "new": self.new, "noise": self.noise}
        plain = {key: one if isfinite(one) else None for key, one in levels.items()}
        return {
            "metric": printable(self.name),
            "role": self.role,
            "outcome": self.outcome,
            "place": self.place,
            **plain,
        }


def _shown(value: float) -> str:
    return contrast(value)[0] if isfinite(value) else "not finite"


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends:
    """Two runs at the end of what both have. ``seeds``: runs set as the new one, whose scatter is then the noise."""

    old: Side
    new: Side
    seeds: Sequence[Side]
    alignment: Alignment

    def found(self) -> tuple[list[End], list[str]]:
        """The main metrics that both have, held-out ones first; and which are two metrics, in words."""
        held_out = [role for role in _BY_VALIDATION if self._has(role)]
        roles = [*held_out, *(role for role in MAIN_ROLES if role not in _BY_VALIDATION and self._has(role))]
        ends, unlike = [], []
        for role in roles:
            own, there = (one.evidence.by_role[role].clean() for one in (self.old, self.new))
            if own.name != there.name:
                unlike.append(f"{role}: {short_name(own.name)} and {short_name(there.name)} are two metrics")
            elif (end := self._end_of(role, own, there)) is not None:
                ends.append(end)
        return ends, unlike

    def _has(self, role: str) -> bool:
        return all(one.evidence.find(role) is not None for one in (self.old, self.new))

    def _end_of(self, role: str, own: Series, there: Series) -> End | None:
        at = [self.alignment.positions(series, one.evidence) for series, one in ((own, self.old), (there, self.new))]
        if not all(len(one) for one in at):
            return None
        stop = min(float(one.max()) for one in at)
        levels = [_level(series.values, where, stop) for series, where in ((own, at[0]), (there, at[1]))]
        if self._hides_nan(own):
            levels[0] = Estimate(float("nan"), 0.0)
        return End(
            name=own.name,
            role=role,
            old=levels[0].value,
            new=levels[1].value,
            noise=self._noise(role, levels, stop),
            place=self.alignment.place(stop, there, self.new.evidence),
        )

    def _hides_nan(self, series: Series) -> bool:
        """Whether the old run became NaN, and one number is logged in its place to the end."""
        head = self.old.head
        if head is None or head.symptom != Symptom.NONFINITE or not head.steps:
            return False
        after = series.values[series.steps >= min(head.steps)]
        return len(after) > 1 and bool(np.all(after == after[-1]))

    def _noise(self, role: str, levels: Sequence[Estimate], stop: float) -> float:
        """What two ends differ by without any change: the scatter of seeds that were given, else the run's own, and
        what another seed brings.
        """
        size = max((abs(one.value) for one in levels if isfinite(one.value)), default=0.0)
        least = max(LIKELY * hypot(levels[0].error, levels[1].error), margins.OF_A_LEVEL * size, _NOTHING)
        ends = [levels[1].value, *self._ends_of_seeds(role, stop)]
        if len(ends) > 1 and np.isfinite(ends).all():
            return max(least, SURELY * float(np.std(ends, ddof=1)))
        curves = [one.falling(role) for one in (self.old, self.new)]
        descents = [abs(curve.descent.value) for curve in curves if curve is not None]
        of_seeds = min(margins.OF_AN_END * max(descents, default=0.0), margins.OF_A_LOW_END * size)
        return max(least, of_seeds)

    def _ends_of_seeds(self, role: str, stop: float) -> Iterator[float]:
        for side in self.seeds:
            series = side.evidence.find(role)
            if series is not None and len(series):
                clean = series.clean()
                yield _level(clean.values, self.alignment.positions(clean, side.evidence), stop).value


def _level(values: np.ndarray, at: np.ndarray, stop: float) -> Estimate:
    """The level of the last part up to a place; NaN where half of it is not finite."""
    begins = float(at.min())
    here = values[(at <= stop) & (at >= stop - _END * (stop - begins))]
    few = here if len(here) >= 1 else values[at <= stop][-1:]
    finite = few[np.isfinite(few)]
    if 2 * len(finite) <= len(few) or not np.isfinite(few[-1]):
        return Estimate(float("nan"), 0.0)
    spread = float(np.median(np.abs(finite - np.median(finite)))) * 1.4826
    return Estimate(float(np.median(finite)), 1.2533 * spread / float(np.sqrt(len(finite))))
