"""The ranks of one training among the runs of a sweep: which they are, what was read of them, their one verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tracker_health.config import Config
from tracker_health.evidence import Evidence
from tracker_health.evidence.kin import Kin
from tracker_health.judge.annotations import GROUP, GROUP_STATE, GROUP_VERDICT
from tracker_health.judge.group_verdict import GroupVerdict, Member, group_verdict, state_of
from tracker_health.judge.kinship import kinship_of
from tracker_health.report.result import Report
from tracker_health.stores.base import Recorded
from tracker_health.stores.common.record import Written
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import SweptRun

By = Literal["group", "parent"]
_MOST_KIN = 200_000
_MOST_RANKS, _AT_ONCE = 256, 64
_MOST_POINTS = 5_000_000
"""Of what was read of ranks and waits for the head of their group: 24 bytes each."""


@dataclass(frozen=True, kw_only=True)
class RankGroup:
    """The ranks of one training, in their order, with what the sweep calls each. ``head``: the one that is written
    onto.
    """

    head: str
    names: tuple[str, ...]
    kin: tuple[Kin, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """What the sweep calls the ranks and their head."""
        return (self.head, *self.names)

    def is_news_to(self, recorded: Recorded | None) -> bool:
        """Whether the run that heads it has no verdict on it, or one on what its ranks were before."""
        if recorded is None:
            return True
        found = GroupVerdict.of(recorded.group_verdict, recorded.group, recorded.group_state)
        return found is None or not found.holds_for(self.kin)


class RankGroups:
    """The groups of a sweep. Several threads may use it at once."""

    def __init__(self, by: By) -> None:
        self._by = by
        self._kin: dict[str, Kin] = {}
        self._groups: dict[str, RankGroup] = {}
        self._read: dict[str, tuple[Evidence, Report]] = {}
        self._points = 0
        self._lock = threading.Lock()

    def see(self, run: SweptRun) -> bool:
        """Take note of a run; whether it may be of the ranks of one training, or stand for them."""
        kin = run.kin
        if kin is None or (len(self._kin) >= _MOST_KIN and run.name not in self._kin):
            return False
        if not (self._key(kin) or self._may_stand_above(kin)):
            return False
        self._kin[run.name] = kin
        return self._may_stand_above(kin) or kin.rank is not None

    def _key(self, kin: Kin) -> str:
        return kin.group if self._by == "group" else kin.parent

    def _may_stand_above(self, kin: Kin) -> bool:
        """A trial of a search may be above its ranks; it has no metrics of its own then."""
        return self._by == "parent" and (not kin.parent or kin.last_step is None)

    def decide(self) -> None:
        """Find the ranks among all runs that were seen."""
        members: dict[tuple[str, str], dict[str, str]] = {}
        for name, kin in self._kin.items():
            if key := self._key(kin):
                members.setdefault((kin.where, key), {})[kin.id] = name
        above = {(kin.where, kin.id): name for name, kin in self._kin.items() if self._may_stand_above(kin)}
        self._groups = {}
        for (where, key), found in members.items():
            kinship = kinship_of([self._kin[name] for name in found.values()])
            if kinship.kind != "ranks" or len(found) > _MOST_RANKS:
                continue
            names = tuple(found[one.id] for one in kinship.members)
            head = above.get((where, key), names[0])
            self._groups[head] = RankGroup(head=head, names=names, kin=kinship.members)

    def some_at_a_time(self) -> Iterator[list[RankGroup]]:
        """The groups that were found: so few together that what is read of their ranks can wait for their heads."""
        some: list[RankGroup] = []
        for group in self._groups.values():
            some.append(group)
            if sum(len(one.names) for one in some) >= _AT_ONCE:
                yield some
                some = []
        yield some

    def headed_by(self, name: str) -> RankGroup | None:
        """The group that this run stands for."""
        return self._groups.get(name)

    def keep(self, name: str, evidence: Evidence, report: Report) -> None:
        """Keep what was read of a rank until its group is judged, as far as there is room."""
        kin = self._kin.get(name)
        if kin is None or not self._key(kin) or kin.rank is None:
            return
        points = sum(map(len, evidence.series))
        with self._lock:
            if self._points + points <= _MOST_POINTS and name not in self._read:
                self._points += points
                self._read[name] = _in_small(evidence), report

    def verdict(
        self, group: RankGroup, own: tuple[Evidence, Report], config: Config, read: Callable[[str], Evidence]
    ) -> GroupVerdict | None:
        """The one verdict on a group. ``own``: what was read and said of its head; ``read``: reads a run by name."""
        expected = _expected(group, own[0])
        found: list[Member] = []
        for name, kin in zip(group.names, group.kin, strict=True):
            known = own if name == group.head else self._taken(name)
            evidence, report = known if known is not None else (_in_small(read(name)), None)
            found.append(Member(kin=kin, evidence=evidence, report=report))
            if sum(len(series) for one in found for series in one.evidence.series) > _MOST_POINTS:
                said = f"they logged more than the {_MOST_POINTS} points that are judged together"
                ranks, state = len(group.kin), state_of(group.kin)
                return GroupVerdict(verdict=None, said=said, ranks=ranks, expected=max(ranks, expected), state=state)
        # A parent run trained nothing itself.
        base = own[0] if group.head in group.names else replace(_in_small(found[0].evidence), run=own[0].run)
        return group_verdict(base, found, expected, config)

    def _taken(self, name: str) -> tuple[Evidence, Report] | None:
        with self._lock:
            known = self._read.pop(name, None)
            if known is not None:
                self._points -= sum(map(len, known[0].series))
            return known


def _expected(group: RankGroup, head: Evidence) -> int:
    """How many ranks there are to be: by the size of their world, and by the runs below their parent."""
    below = 0 if group.head in group.names or head.info.children is None else head.info.children.total
    return max([below, *(one.world for one in group.kin if one.world is not None)])


def _in_small(evidence: Evidence) -> Evidence:
    """What a group is judged by: the record, the curves, the console and the dumps; no tensors."""
    return Evidence(
        run=evidence.run,
        info=evidence.info,
        series=evidence.series,
        roles=evidence.roles,
        text_log=evidence.text_log,
        dumps=evidence.dumps,
        problems=evidence.problems,
        missing=evidence.missing,
        fingerprint=evidence.fingerprint,
    )


def has_own_in_the_way(run: TrackedRun) -> bool:
    """Whether the run's owner has a mark of the name of one of those of a group: then neither is written."""
    ours = Written.of(run.marks).names
    return any(name in run.marks and name not in ours for name in (GROUP, GROUP_STATE, GROUP_VERDICT))
