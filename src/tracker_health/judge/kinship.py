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

_NUMBERED = re.compile(r"(?<![a-z])(?:stage|phase)[-_ =#:]{0,2}(?P<number>\d{1,3})(?![a-z0-9])", re.IGNORECASE)
_IN_A_ROW = (
    re.compile(r"(?<![a-z])pre[-_ ]?train(?:ing|ed)?(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z])mid[-_ ]?train(?:ing|ed)?(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z])(?:sft|fine[-_ ]?tun(?:e|ed|ing))(?![a-z0-9])", re.IGNORECASE),
    re.compile(r"(?<![a-z])(?:dpo|ppo|grpo|rlhf|reward)(?![a-z0-9])", re.IGNORECASE),
)
"""What trainings of one model are called, in the order in which they come."""
_CHARACTERS = 200


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
        """The lowest of the ranks; a parent run is above it."""
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
    for stage_of in (_numbered, _in_a_row):
        stages = [stage_of(one) for one in ordered]
        if all(stages) and all(one and other and one[0] < other[0] for one, other in pairwise(stages)):
            names = " then ".join(one[1] for one in stages[:4] if one)
            return f"{names}, one after the other" if _one_by_one(ordered) else ""
    return ""


def _one_by_one(ordered: Sequence[Kin]) -> bool:
    """Whether each had ended when the next one began."""
    return all(one.ended is not None and one.ended <= (other.started or 0.0) for one, other in pairwise(ordered))


def _numbered(run: Kin) -> tuple[int, str] | None:
    """The number of the stage that a run says it is, with its word."""
    for text in (run.job_type, run.name):
        if found := _NUMBERED.search(text[:_CHARACTERS]):
            return int(found["number"]), found[0].lower()
    return None


def _in_a_row(run: Kin) -> tuple[int, str] | None:
    """The place in the order of trainings that a run says it has, with its word."""
    for text in (run.job_type, run.name):
        for place, words in enumerate(_IN_A_ROW):
            if found := words.search(text[:_CHARACTERS]):
                return place, found[0].lower()
    return None


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
    if any(one.rank is not None for one in runs):
        return ""  # of several trainings, say: none of them is a trial by itself
    # Programs of several kinds have other params, too: these are of the same names.
    alike = len({(one.named, one.job_type) for one in runs}) == 1 and bool(runs[0].named)
    in_stages = len({_numbered(one) or _in_a_row(one) for one in runs} - {None}) > 1
    if alike and not in_stages and len({one.others for one in runs}) > 1:
        return "the same params with other values"
    return ""
