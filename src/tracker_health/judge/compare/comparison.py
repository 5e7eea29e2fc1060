"""Two runs or more next to each other: what is set otherwise, where they part, what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracker_health.judge.compare.alignment import Alignment, By, aligned
from tracker_health.judge.compare.changes import Change, TensorChanges, changes_of, said_alone, tensor_changes
from tracker_health.judge.compare.partings import Parting, Partings, partings_of
from tracker_health.judge.compare.side import Side
from tracker_health.report.brief import MOST_BYTES, Room, fitted
from tracker_health.text import clipped, count, listing, printable

SCHEMA = "tracker-health/compare/1"
BRIEF = "tracker-health/compare-brief/1"
NOTHING_PARTS = "nothing clearly parts"


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A run next to one or more others. ``same``: how many settings are the same. ``partings``: the first to part
    first. ``tensors``: unlike those of the first of the others; None where not both have weights. ``only_own``: codes
    of findings that none of the others has; ``only_there``: that all of the others have, and the run has not.
    ``unsure``: what could not be compared, or only with doubt, each with the reason.
    """

    bad: Side
    goods: tuple[Side, ...]
    alignment: Alignment
    changes: tuple[Change, ...]
    same: int
    partings: Partings
    tensors: TensorChanges | None
    only_own: tuple[str, ...]
    only_there: tuple[str, ...]
    unsure: tuple[str, ...] = ()

    @property
    def first(self) -> Parting | None:
        """What parted first."""
        return next(iter(self.partings.found), None)

    @property
    def headline(self) -> str:
        """What to read first: which series parted first, and where; after what is only set otherwise, the next one."""
        if not self.partings.compared:
            return "no metric of both could be compared"
        if self.first is None:
            return NOTHING_PARTS
        reacts = next((one for one in self.partings.found if not one.is_set), None)
        led = self.first.said if self.first.is_set else ""
        after = reacts.said if reacts is not None else "no other metric clearly parts"
        return f"{led}; {after}" if led else after

    def to_json(self) -> dict[str, Any]:
        """The comparison as a document of strict JSON values."""
        return {
            "schema": SCHEMA,
            "run": _run(self.bad),
            "others": [_run(one) for one in self.goods],
            "headline": self.headline,
            "aligned": {"by": str(self.alignment.by), "why": self.alignment.why, "sure": self.alignment.sure},
            "settings": [one.to_json() for one in self.changes],
            "settings_same": self.same,
            "parted": [one.to_json() for one in self.partings.found],
            "compared": [printable(one) for one in self.partings.compared],
            "findings_only_own": [_finding(self.bad, code) for code in self.only_own],
            "findings_only_there": [_finding(self.goods[0], code) for code in self.only_there],
            "tensors": None if self.tensors is None else self.tensors.to_json(),
            "unsure": list(self.unsure),
        }

    def brief(self, most: int = MOST_BYTES) -> dict[str, Any]:
        """The same for a context, in at most so many bytes of JSON; at least 1,500."""
        return fitted(self._in_brief, most)

    def _in_brief(self, room: Room) -> dict[str, Any]:
        def few(texts: Sequence[str], most: int) -> list[str]:
            return [clipped(one, room.sentence) for one in texts[:most]]

        def run(side: Side) -> dict[str, str]:
            return {"name": clipped(side.name, room.word), "verdict": str(side.report.verdict)}

        most = room.findings
        return {
            "schema": BRIEF,
            "run": run(self.bad),
            "others": [run(one) for one in self.goods[:most]],
            "headline": clipped(self.headline, room.text),
            "settings": few([one.said for one in self.changes], most),
            "parted": few([one.said for one in self.partings.found[1:]], most),
            "findings_only_own": list(self.only_own[:most]),
            "findings_only_there": list(self.only_there[:most]),
            "tensors": few(self.tensors.lines() if self.tensors is not None else [], 2),
            "unsure": few(self.unsure, 2),
        }


def compare(bad: Side, goods: Sequence[Side]) -> Comparison:
    """A run compared with others: pure, the same runs give the same answer.

    Args:
        bad: The run that is asked about.
        goods: One or more others; several make a band.

    Returns:
        What is unlike.
    """
    alignment = aligned([bad, *goods])
    partings = partings_of(bad, goods, alignment)
    changes = changes_of(bad, goods)
    own, others = bad.found, [one.found for one in goods]
    return Comparison(
        bad=bad,
        goods=tuple(goods),
        alignment=alignment,
        changes=tuple(changes.found),
        same=changes.same,
        partings=partings,
        tensors=tensor_changes(bad.evidence, goods[0].evidence),
        only_own=tuple(code for code in own if not any(code in one for one in others)),
        only_there=tuple(code for code in others[0] if code not in own and all(code in one for one in others)),
        unsure=(*_unsure(bad, goods, alignment, partings), *said_alone(changes.alone)),
    )


def _unsure(bad: Side, goods: Sequence[Side], alignment: Alignment, partings: Partings) -> list[str]:
    found = [f"{one.shown} is still running" for one in (bad, *goods) if one.evidence.goes_on]
    if alignment.by is not By.STEP or not alignment.sure:
        found.append(f"compared by {alignment.by}: {alignment.why}")
    if partings.alone:
        found.append(f"not logged by all: {listing(list(partings.alone), 3)}")
    if not partings.compared:
        found.append("no metric of one name or meaning has enough points in all of them")
    without = [one.shown for one in (bad, *goods) if one.evidence.weights is None]
    if 0 < len(without) < 1 + len(goods):
        found.append(f"{count(len(without), 'run')} without saved weights: {listing(without, 3)}")
    return found


def _run(side: Side) -> dict[str, Any]:
    ref = side.report.run
    return {
        "store": ref.store,
        "id": ref.id,
        "name": printable(ref.name),
        "url": ref.url,
        "verdict": str(side.report.verdict),
        "headline": side.report.headline,
        "cause": side.report.cause,
    }


def _finding(side: Side, code: str) -> dict[str, str]:
    one = side.found[code]
    return {"code": code, "name": one.name, "verdict": str(one.verdict), "message": one.message}
