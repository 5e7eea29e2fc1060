"""Where a run clearly parts from others, series by series, and which series parted first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracker_health.evidence import SURELY, Series
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
        about = "" if self.is_set else "about "
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
    part = _first_apart(mine, theirs, role)
    if part is None:
        return False
    position = start + (stop - start) * part / PARTS
    nearest = min(theirs, key=lambda one: _finite(abs(one.levels[part] - mine.levels[part])))
    return Parting(
        name=own.name,
        role=role,
        position=position,
        place=alignment.place(position, own, bad.evidence),
        own=float(mine.levels[part]),
        there=float(nearest.levels[part]),
    )


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else float("inf")


def _first_apart(mine: Path, theirs: Sequence[Path], role: str) -> int | None:
    """The first part of the first stretch in which a path is apart from the others for as long as counts."""
    both = mine.there & np.all([one.there for one in theirs], axis=0)
    apart = both & (_outside(mine, theirs, role) | _broken_alone(mine, theirs))
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


def _outside(mine: Path, theirs: Sequence[Path], role: str) -> Flags:
    """Where a path is outside of the band by more than noise and what another seed brings."""
    levels, errors = np.array([one.levels for one in theirs]), np.array([one.errors for one in theirs])
    known = np.isfinite(mine.levels) & np.isfinite(levels).all(axis=0)
    unsure = SURELY * np.hypot(mine.errors, errors.max(axis=0))
    low, high = levels.min(axis=0), levels.max(axis=0)
    if role in _SETTINGS or role in _MULTIPLES:
        times = margins.OF_A_SETTING if role in _SETTINGS else margins.OF_A_MULTIPLE[role]
        sure = 0.0 if role in _SETTINGS else unsure
        above, below = mine.levels - sure > times * high, times * (mine.levels + sure) < low
        some = np.maximum(np.abs(mine.levels), high) > _TINY
        apart: Flags = known & some & (above | below)
        return apart
    margin = margins.OF_A_METRIC * _size([mine, *theirs], known) + unsure
    far: Flags = known & ((mine.levels > high + margin) | (mine.levels < low - margin))
    return far


def _size(paths: Sequence[Path], known: Flags) -> float:
    """What a difference of metrics is measured by: how far the others came, between their lowest and highest level."""
    spans: list[float] = [float(np.ptp(one.levels[known])) for one in paths[1:] if known.any()]
    return max(spans, default=0.0)
