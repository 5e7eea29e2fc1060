"""What the groups of runs are, each in a line, from what the list of the runs says: no run is read for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from tracker_health.evidence.kin import BETTER, Kin, Result
from tracker_health.judge.group_verdict import GroupVerdict, group_sentence
from tracker_health.judge.kinship import NO_SIGN, Kind, Kinship, kinship_of
from tracker_health.stores.base import TaggedRun
from tracker_health.text import contrast, count, number, printable, short_name
from tracker_health.words.verdict import Verdict

BY_KIN: Mapping[str, Callable[[Kin], str]] = {
    "group": lambda kin: kin.group,
    "sweep": lambda kin: kin.sweep,
    "parent": lambda kin: kin.parent,
}
"""What runs that belong together can be grouped by; "" for a run that is in no such group."""

_MOST_MEMBERS, _MOST_KEPT = 1_000, 100_000
_MOST_SHOWN, _NAME = 4, 40
_NONE = "none"
_WORDS: Mapping[Kind, str] = {"folds": "fold", "seeds": "seed", "trials": "trial", "stages": "stage", "runs": "run"}

_Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A result of several runs. ``best`` and ``worst``: name and value; ``spread``: its standard deviation; ``runs``:
    how many have it.
    """

    metric: str
    best: tuple[str, float]
    worst: tuple[str, float]
    spread: float
    runs: int

    def __str__(self) -> str:
        (best, high), (worst, low) = self.best, self.worst
        if high == low:
            return f"{short_name(self.metric)} {number(high)} in all {self.runs}"
        highest, lowest = contrast(high, low)
        return (
            f"{short_name(self.metric)} {highest} best ({printable(best, _NAME)}), {lowest} worst "
            f"({printable(worst, _NAME)}), spread {number(self.spread, 2)}"
        )

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        (best, high), (worst, low) = self.best, self.worst
        return {
            "metric": self.metric,
            "best": {"run": best, "value": high},
            "worst": {"run": worst, "value": low},
            "spread": self.spread,
            "runs": self.runs,
        }


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A group of runs. ``kind``: what they are to each other, and ``by``: by which sign; ``verdicts``: how many have
    each; ``group``: the one verdict on ranks, where they have one.
    """

    name: str
    where: str
    kind: Kind
    by: str
    runs: int
    verdicts: Counter[str]
    order: tuple[str, ...] = ()
    group: GroupVerdict | None = None
    result: Spread | None = None

    @property
    def said(self) -> str:
        """What it is, in a line."""
        counts = ", ".join(f"{amount} {word}" for word, amount in _by_rank(self.verdicts))
        if self.kind == "ranks":
            if self.group is not None:
                return group_sentence(self.group)
            return f"{count(self.runs, 'rank')} of one training: not judged together yet; {counts}"
        what = count(self.runs, _WORDS[self.kind])
        if self.kind == "stages":
            names = ", then ".join(printable(name, _NAME) for name in self.order[:_MOST_SHOWN])
            return f"{what} in a row: {names}; {counts}"
        if self.kind == "runs":
            return f"{what}: {counts}" + (f"; {NO_SIGN}" if self.runs > 1 else "")
        return f"{what}: {self.result}; {counts}" if self.result is not None else f"{what}: {counts}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        verdict = self.group.verdict if self.group is not None else None
        return {
            "name": self.name,
            "where": self.where,
            "kind": self.kind,
            "by": self.by,
            "runs": self.runs,
            "verdicts": dict(self.verdicts),
            "group_verdict": None if verdict is None else str(verdict),
            "result": None if self.result is None else self.result.to_json(),
            "said": self.said,
        }


@dataclass(kw_only=True)
class _Members:
    """The runs of a group: all are counted, and so many kept."""

    verdicts: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    kin: list[Kin] = field(default_factory=list)


class Relations:
    """The groups of many runs, as they come. ``by``: of ``BY_KIN``."""

    def __init__(self, by: Sequence[str]) -> None:
        self._members: dict[str, dict[_Key, _Members]] = {what: {} for what in by if what in BY_KIN}
        self._heads: dict[_Key, GroupVerdict] = {}
        self._names: dict[_Key, str] = {}
        self._kept = 0

    def add(self, run: TaggedRun) -> None:
        """Take note of a run."""
        kin = run.kin
        if kin is None or not self._members:
            return
        if (found := GroupVerdict.of(run.group_verdict, run.group, run.group_state)) is not None:
            self._heads[kin.where, kin.id] = found
        if not kin.parent and "parent" in self._members and len(self._names) < _MOST_KEPT:
            self._names[kin.where, kin.id] = kin.name
        for what, groups in self._members.items():
            if key := BY_KIN[what](kin):
                members = groups.setdefault((kin.where, key), _Members())
                members.verdicts[str(run.verdict or _NONE)] += 1
                members.causes.update([run.cause] if run.cause else [])
                if len(members.kin) < _MOST_MEMBERS and self._kept < _MOST_KEPT:
                    members.kin.append(kin)
                    self._kept += 1

    def found(self) -> dict[str, tuple[Relation, ...]]:
        """The groups, by what runs are grouped by; those with the most runs first."""
        return {
            what: tuple(
                self._relation(key, name, groups[key])
                for key, name in sorted(self._called(what).items(), key=lambda one: _most_first(one[0], groups))
            )
            for what, groups in self._members.items()
        }

    def counts(self, what: str) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
        """The verdicts of each group, and the causes, by its name: none is of two projects."""
        groups, called = self._members[what], self._called(what)
        return (
            {name: groups[key].verdicts for key, name in called.items()},
            {name: groups[key].causes for key, name in called.items()},
        )

    def _called(self, what: str) -> dict[_Key, str]:
        """What each group is called: a parent by its name; with its project or id, where another is called so, too."""
        keys = list(self._members[what])
        plain = {key: self._names.get(key, key[1]) if what == "parent" else key[1] for key in keys}
        alike, placed = Counter(plain.values()), Counter((plain[key], key[0]) for key in keys)
        return {
            key: name
            if alike[name] == 1
            else f"{name} ({key[0]})"
            if placed[name, key[0]] == 1
            else f"{name} ({key[1]})"
            for key, name in plain.items()
        }

    def _relation(self, key: _Key, name: str, members: _Members) -> Relation:
        runs = members.verdicts.total()
        # Of a group that was not kept whole nothing can be said but how many runs it has.
        kinship = kinship_of(members.kin if len(members.kin) == runs else members.kin[:1])
        group = self._heads.get(key)
        if group is None and kinship.head is not None:
            group = self._heads.get((key[0], kinship.head.id))
        return Relation(
            name=name,
            where=key[0],
            kind=kinship.kind,
            by=kinship.by,
            runs=runs,
            verdicts=members.verdicts,
            order=tuple(one.name for one in kinship.members[:_MOST_SHOWN]),
            group=group if kinship.kind == "ranks" else None,
            result=spread_of(kinship),
        )


def spread_of(kinship: Kinship) -> Spread | None:
    """The result of folds, seeds or trials that says most, and that most of them have; None where there is none."""
    if kinship.kind not in ("folds", "seeds", "trials"):
        return None
    having: dict[tuple[str, str], list[tuple[Kin, Result]]] = {}
    for one in kinship.members:
        for result in one.results:
            having.setdefault((result.role, result.name), []).append((one, result))
    several = {key: found for key, found in having.items() if len(found) > 1}
    if not several:
        return None
    order = list(BETTER)
    key = min(several, key=lambda one: (order.index(one[0]), -len(several[one]), one[1]))
    ranked = sorted(several[key], key=lambda one: one[1].value, reverse=several[key][0][1].higher)
    (best, high), (worst, low) = ranked[0], ranked[-1]
    return Spread(
        metric=key[1],
        best=(best.name, high.value),
        worst=(worst.name, low.value),
        spread=stdev(result.value for _, result in ranked),
        runs=len(ranked),
    )


def _most_first(key: _Key, groups: Mapping[_Key, _Members]) -> tuple[int, _Key]:
    return -groups[key].verdicts.total(), key


def _by_rank(verdicts: Counter[str]) -> list[tuple[str, int]]:
    words = [*(str(one) for one in sorted(Verdict, key=lambda one: one.rank)), _NONE]
    return [(word, verdicts[word]) for word in words if verdicts[word]]
