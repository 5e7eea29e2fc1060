"""Where a run clearly parts from others, series by series, and which series parted first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracker_health.evidence import SURELY, FloatArray, Series
from tracker_health.judge.compare import margins
from tracker_health.judge.compare.alignment import Alignment
from tracker_health.judge.compare.paths import PARTS, Flags, Path, path_of
from tracker_health.judge.compare.side import Side
from tracker_health.text import contrast, number, printable

_NAME = 60
_SETTINGS = ("learning_rate",)
_MULTIPLES = tuple(margins.OF_A_MULTIPLE)
_TRAINING = ("train_loss", "objective_loss", "train_accuracy", "train_auc")
_VALIDATION = ("val_loss", "val_accuracy", "val_auc", "higher_better_val", "lower_better_val")
_POLICY = ("train_reward", "val_reward", "kl", "entropy")
ROLES = (*_SETTINGS, *_MULTIPLES, *_TRAINING, *_VALIDATION, *_POLICY)
"""What is compared along the way, in the order in which one brings about the next."""

_TINY = 1e-12
_NEXT = 5  # points, of which most have to be outside
_MOST = 40


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where a series clearly parts. ``position``: on the axis of the comparison; ``place``: in words of the run that is
    compared. ``own`` and ``there``: the levels at that place, NaN where what was logged is not finite; ``there`` is the
    nearest of the others.
    """

    name: str
    role: str
    position: float
    place: str
    own: float
    there: float

    @property
    def is_set(self) -> bool:
        """Whether it is what a person or a schedule sets."""
        return self.role in _SETTINGS

    @property
    def said(self) -> str:
        """``grad_norm parts at step 120: about 41, there 1.2``; a rate is what was set, and not about that."""
        finite = np.isfinite(self.own) and np.isfinite(self.there)
        own, there = contrast(self.own, self.there) if finite else (number(self.own), number(self.there))
        about = "" if self.is_set or not np.isfinite(self.own) else "about "
        return f"{printable(self.name, _NAME)} parts at {self.place}: {about}{own}, there {there}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a level that is not finite is null."""
        return {
            "metric": printable(self.name, 200),
            "role": self.role,
            "at": self.position,
            "place": self.place,
            "own": self.own if np.isfinite(self.own) else None,
            "there": self.there if np.isfinite(self.there) else None,
        }


@dataclass(frozen=True, kw_only=True)
class Partings:
    """``found``: the first to part first. ``compared``: the names of the series that were compared; ``alone``: of those
    that only one side has.
    """

    found: tuple[Parting, ...]
    compared: tuple[str, ...]
    alone: tuple[str, ...] = ()


def partings_of(bad: Side, goods: Sequence[Side], alignment: Alignment) -> Partings:
    """Where a run parts from the band of others.

    Args:
        bad: The run.
        goods: One or more others.
        alignment: The axis.

    Returns:
        Each series that clearly parts, with the place where that begins; and what was compared.
    """
    found, compared = [], []
    for own, others in _in_common(bad, goods):
        known = _parting(own, others, bad, goods, alignment)
        if known is not None:
            compared.append(own.name)
            found += [known] if isinstance(known, Parting) else []
    order = {role: at for at, role in enumerate(ROLES)}
    found.sort(key=lambda one: (one.position, order[one.role]))
    return Partings(found=tuple(found), compared=tuple(compared), alone=tuple(_alone(bad, goods)))


def _in_common(bad: Side, goods: Sequence[Side]) -> Iterator[tuple[Series, list[Series]]]:
    """The series that every run has: of one name and role, else the longest ones of the role."""
    for role in ROLES:
        every = [{one.name: one.clean() for one in side.evidence.all_of(role)} for side in (bad, *goods)]
        if not all(every):
            continue
        names = [name for name in every[0] if all(name in others for others in every[1:])]
        for name in names[:_MOST]:
            yield every[0][name], [others[name] for others in every[1:]]
        if not names:
            own, *others = (side.evidence.by_role[role].clean() for side in (bad, *goods))
            yield own, others


def _alone(bad: Side, goods: Sequence[Side]) -> Iterator[str]:
    """What one side logged, and the other did not."""
    for role in ROLES:
        having = [side for side in (bad, *goods) if side.evidence.find(role) is not None]
        if 0 < len(having) < 1 + len(goods):
            series = having[0].evidence.by_role[role]
            yield f"{printable(series.name, _NAME)} ({', '.join(side.shown for side in having)})"


def _parting(
    own: Series, others: Sequence[Series], bad: Side, goods: Sequence[Side], alignment: Alignment
) -> Parting | bool | None:
    """Where a series parts; False where it does not, None where it cannot be compared."""
    at = [alignment.positions(one, side.evidence) for one, side in zip((own, *others), (bad, *goods), strict=True)]
    if not all(len(one) for one in at):
        return None
    start, stop = max(float(one.min()) for one in at), min(float(one.max()) for one in at)
    paths = [path_of(one, place, start, stop) for one, place in zip((own, *others), at, strict=True)]
    if any(one is None for one in paths):
        return None
    mine, *theirs = (one for one in paths if one is not None)
    role = own.role or ""
    bounds = _bounds(mine, theirs, role)
    part = _first_apart(mine, theirs, bounds)
    if part is None:
        return False
    nearest = min(theirs, key=lambda one: _finite(abs(one.levels[part] - mine.levels[part])))
    point = _first_point(own, at[0], start + (stop - start) * part / PARTS, (bounds[0][part], bounds[1][part]))
    few = len(own) <= PARTS or not np.isfinite(own.values[point])
    return Parting(
        name=own.name,
        role=role,
        position=float(at[0][point]),
        place=alignment.place(float(at[0][point]), own, bad.evidence),
        own=float(own.values[point] if few else mine.levels[part]),
        there=float(nearest.levels[part]),
    )


def _first_point(own: Series, at: FloatArray, begins: float, bounds: tuple[float, float]) -> int:
    """The first point of a part of which most of the next few are outside of the bounds, or not finite, too."""
    inside = np.flatnonzero(at >= begins)
    values = own.values[inside]
    out = ~np.isfinite(values) | (values < bounds[0]) | (values > bounds[1])
    for first in np.flatnonzero(out).tolist():
        if 2 * int(out[first : first + _NEXT].sum()) > len(out[first : first + _NEXT]):
            place = int(inside[first])
            while place > 0 and not np.isfinite(own.values[place]) and not np.isfinite(own.values[place - 1]):
                place -= 1  # a part counts as not finite from its half on
            return place
    return int(inside[0]) if len(inside) else len(own) - 1


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else float("inf")


def _first_apart(mine: Path, theirs: Sequence[Path], bounds: tuple[FloatArray, FloatArray]) -> int | None:
    """The first part of the first stretch in which a path is apart from the others for as long as counts."""
    both = mine.there & np.all([one.there for one in theirs], axis=0)
    outside = (mine.levels < bounds[0]) | (mine.levels > bounds[1])
    apart = both & (outside | _broken_alone(mine, theirs))
    last = int(np.flatnonzero(both)[-1]) if both.any() else -1
    length = 0
    for part in range(PARTS):
        length = length + 1 if apart[part] else 0 if both[part] else length
        if length >= margins.LASTS or (length and part == last and length >= margins.LASTS // 2):
            return part - length + 1
    return None


def _broken_alone(mine: Path, theirs: Sequence[Path]) -> Flags:
    """Where one side is not finite and no one of the other is."""
    others = np.array([one.broken for one in theirs])
    found: Flags = (mine.broken & ~others.any(axis=0)) | (~mine.broken & others.all(axis=0))
    return found


def _bounds(mine: Path, theirs: Sequence[Path], role: str) -> tuple[FloatArray, FloatArray]:
    """Between which levels a path is no farther from the others than noise and another seed bring; NaN where one of
    them has none.
    """
    levels, errors = np.array([one.levels for one in theirs]), np.array([one.errors for one in theirs])
    known = np.isfinite(mine.levels) & np.isfinite(levels).all(axis=0)
    unsure = SURELY * np.hypot(mine.errors, errors.max(axis=0))
    low, high = levels.min(axis=0), levels.max(axis=0)
    if role in _SETTINGS:
        times, unsure = margins.OF_A_SETTING, np.full(PARTS, _TINY)
    elif role in _MULTIPLES:
        times = margins.OF_A_MULTIPLE[role]
    else:
        margin = margins.of_a_metric(len(theirs)) * _size([mine, *theirs], known) + unsure
        return np.where(known, low - margin, np.nan), np.where(known, high + margin, np.nan)
    lowest, highest = np.where(low > 0, low / times, low * times), np.where(high > 0, high * times, high / times)
    return np.where(known, lowest - unsure, np.nan), np.where(known, highest + unsure, np.nan)


def _size(paths: Sequence[Path], known: Flags) -> float:
    """What a difference of metrics is measured by: how far the others came, between their lowest and highest level."""
    spans: list[float] = [float(np.ptp(one.levels[known])) for one in paths[1:] if known.any()]
    return max(spans, default=0.0)
