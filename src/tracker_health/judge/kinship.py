"""What runs with one group, parent or sweep are to each other, and by which sign. Pure. Absence is never evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tracker_health.evidence.kin import Kin

Kind = Literal["ranks", "folds", "seeds", "trials", "stages", "runs"]

NO_SIGN = "nothing says how they belong together"

_STAGE = re.compile(
    r"(?<![a-z])(?:(?:stage|phase)[-_ =#:]{0,2}(?P<number>\d{1,3})|pre[-_ ]?train(?:ing)?|mid[-_ ]?train(?:ing)?"
    r"|sft|fine[-_ ]?tun(?:e|ing)|dpo|rlhf|distill(?:ation)?)(?![a-z0-9])",
    re.IGNORECASE,
)
_CHARACTERS = 200
_NEAR_STEPS = 1


@dataclass(frozen=True, kw_only=True)
class Kinship:
    """What runs are to each other. ``by``: the sign. ``members``: in their order: ranks and folds by number, stages by
    time, all others as they came. ``head``: of ranks, the one that stands for all.
    """

    kind: Kind
    by: str
    members: tuple[Kin, ...]

    @property
    def head(self) -> Kin | None:
        """The lowest of the ranks; a parent run stands above it."""
        return self.members[0] if self.kind == "ranks" else None


def kinship_of(runs: Sequence[Kin]) -> Kinship:
    """What runs with one group, parent or sweep are to each other.

    Args:
        runs: The runs, none twice, in any order. Those of several projects or experiments do not belong together.

    Returns:
        The first of these that they have a sign of: ranks of one training, stages, folds, seeds, trials; else runs.
    """
    if len(runs) < 2 or len({one.where for one in runs}) > 1:
        return Kinship(kind="runs", by=NO_SIGN, members=tuple(runs))
    checks: tuple[tuple[Kind, Callable[[Sequence[Kin]], str], Callable[[Kin], float] | None], ...] = (
        ("ranks", _why_ranks, lambda one: one.rank or 0),
        ("stages", _why_stages, lambda one: one.started or 0.0),
        ("folds", _why_folds, lambda one: one.fold or 0),
        ("seeds", _why_seeds, None),
        ("trials", _why_trials, None),
    )
    for kind, why, order in checks:
        if by := why(runs):
            members = runs if order is None else sorted(runs, key=order)
            return Kinship(kind=kind, by=by, members=tuple(members))
    return Kinship(kind="runs", by=NO_SIGN, members=tuple(runs))


def _why_ranks(runs: Sequence[Kin]) -> str:
    """By which sign runs are the ranks of one training; empty for none."""
    ranks = [one.rank for one in runs if one.rank is not None]
    world = runs[0].world
    if len(ranks) < len(runs) or len(set(ranks)) < len(ranks) or not _at_once(runs):
        return ""
    if len({(one.others, one.fold, one.world) for one in runs}) > 1 or (world is not None and max(ranks) >= world):
        return ""
    # Where only the word "rank" says it, it may be that of an adapter; processes are counted from 0.
    counted = 0 in ranks and max(ranks) < 2 * len(ranks)
    if not (world is not None or all(one.rank_sure for one in runs) or counted):
        return ""
    # Several trainings by several workers have a seed each, too.
    if len({one.seed for one in runs}) > 1 and world is None:
        return ""
    return f"ranks {', '.join(map(str, sorted(ranks)[:8]))} at the same time, and otherwise the same params"


def _at_once(runs: Sequence[Kin]) -> bool:
    """Whether there was a moment at which all of them ran."""
    began = [one.started for one in runs if one.started is not None]
    ended = [one.ended for one in runs if one.ended is not None]
    return len(began) == len(runs) and (not ended or max(began) < min(ended))


def _why_stages(runs: Sequence[Kin]) -> str:
    """The same for trainings in a row."""
    if any(one.started is None for one in runs):
        return ""
    ordered = sorted(runs, key=lambda one: one.started or 0.0)
    named = [_stage_of(one) for one in ordered]
    if not all(named) or len(set(named)) < len(named):
        return ""
    for (before, after), names in zip(pairwise(ordered), pairwise(named), strict=True):
        if before.ended is None or before.ended > (after.started or 0.0):
            return ""
        if not (_rises(*names) or _goes_on(before, after)):
            return ""
    return f"{' then '.join(named[:4])}, one after the other"


def _stage_of(run: Kin) -> str:
    """The stage that a run says it is: by its job type, or else by its name."""
    for text in (run.job_type, run.name):
        if found := _STAGE.search(text[:_CHARACTERS]):
            return found[0].lower()
    return ""


def _number_of(stage: str) -> int | None:
    found = _STAGE.fullmatch(stage)
    return int(found["number"]) if found is not None and found["number"] else None


def _rises(before: str, after: str) -> bool:
    first, second = _number_of(before), _number_of(after)
    return first is not None and second is not None and first < second


def _goes_on(before: Kin, after: Kin) -> bool:
    """Whether a run begins at the step at which the one before ended."""
    if before.last_step is None or after.first_step is None or not before.last_step:
        return False
    return abs(after.first_step - before.last_step) <= _NEAR_STEPS


def _why_folds(runs: Sequence[Kin]) -> str:
    folds = [one.fold for one in runs if one.fold is not None]
    if len(folds) < len(runs) or len(set(folds)) < len(folds) or len({one.others for one in runs}) > 1:
        return ""
    return f"folds {', '.join(map(str, sorted(folds)[:8]))}, and otherwise the same params"


def _why_seeds(runs: Sequence[Kin]) -> str:
    seeds = {one.seed for one in runs}
    if "" in seeds or len(seeds) < 2 or len({(one.others, one.fold, one.rank) for one in runs}) > 1:
        return ""
    return "seeds that differ, and otherwise the same params"


def _why_trials(runs: Sequence[Kin]) -> str:
    sweeps = {one.sweep for one in runs}
    if len(sweeps) == 1 and "" not in sweeps:
        return "one sweep"
    if all(one.is_trial for one in runs):
        return "one search, by its marks on the runs"
    # Programs of several kinds have other params, too: these are of the same names.
    alike = len({(one.named, one.job_type) for one in runs}) == 1 and bool(runs[0].named)
    stages = [_stage_of(one) for one in runs]
    in_stages = all(stages) and len(set(stages)) > 1
    if alike and not in_stages and len({one.others for one in runs}) > 1:
        return "the same params with other values"
    return ""
