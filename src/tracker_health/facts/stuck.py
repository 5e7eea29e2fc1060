"""The collective operation in which ranks of a training waited in vain: by what they report, and by their dumps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tracker_health.evidence.collectives import Entered, GroupDump, RankDump, RankReports, Wait
from tracker_health.text import listing

_MOST_SHOWN = 5
Kind = Literal["did-not-come", "mismatch", "waited"]

_SAME_SIZES = frozenset(("all_reduce", "broadcast"))  # all others may be given tensors of other sizes on some ranks
_OF_TWO = frozenset(("send", "recv", "isend", "irecv"))
# What a rank raises because others are gone, or someone stopped the job: no cause of its own.
_AFTERWARDS = ("connection", "socket", "pipe", "store", "interrupt", "signal", "backend", "closed")


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """An operation that was not done by all of a group.

    ``absent``: the ranks that did not enter it; ``waiting``: those that did. ``seconds``: how long these waited.
    ``ran``: of a mismatch, what was run by which ranks. ``raised``: the error that had ended the absent rank. ``sure``:
    the ranks' own numbers show it, or another rank says so by name. ``by``: what shows it.
    """

    kind: Kind
    operation: str = ""
    number: int | None = None
    absent: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    seconds: float | None = None
    ran: tuple[tuple[str, tuple[int, ...]], ...] = ()
    raised: str = ""
    sure: bool = True
    by: str = ""


def stuck_in(
    reports: RankReports | None, dumps: Sequence[RankDump], *, failed: bool, share: float, fewest: int
) -> Stuck | None:
    """The operation in which ranks waited in vain; None where none did.

    Args:
        reports: What ranks say in the consoles.
        dumps: What their flight recorders wrote.
        failed: Whether the run is known to have ended badly.
        share: Of an operation's own time limit, how much has passed when a rank counts as late.
        fewest: How many ranks must have waited, so that one that reports nothing is named.
    """
    known = reports if reports is not None and reports.says_something else None
    said = _by_reports(known, fewest) if known is not None else None
    dumped = _by_dumps(dumps, share, failed=failed or known is not None)
    if said is None or dumped is None:
        return said or dumped
    # A number names more than silence does; how long it took only the console says for sure.
    first, other = (said, dumped) if _tells(said) > _tells(dumped) else (dumped, said)
    return replace(
        first,
        seconds=said.seconds or dumped.seconds,
        operation=first.operation or other.operation,
        raised=said.raised if set(said.absent) == set(first.absent) else first.raised,
        by=f"{other.by} and {first.by}",
    )


def _tells(one: Stuck) -> tuple[bool, bool]:
    return one.kind != "waited", one.sure


def ranks_in_words(numbers: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0 and 2``; of many the first few."""
    shown = [str(one) for one in numbers]
    if len(shown) < 2:
        return f"rank {shown[0]}" if shown else "the others"
    return f"ranks {listing(shown)}" if len(shown) > _MOST_SHOWN else f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


# What the console says


def _by_reports(reports: RankReports, fewest: int) -> Stuck | None:
    waits = {one.rank: one for one in reversed(reports.waits)}
    numbered = [one for one in reports.waits if one.number is not None]
    first = min(numbered, key=lambda one: one.number or 0, default=next(iter(waits.values()), Wait(rank=0)))
    found = Stuck(
        kind="waited",
        operation=next((one.operation for one in (first, *waits.values()) if one.operation), ""),
        number=first.number,
        waiting=tuple(sorted(waits)),
        seconds=max((one.seconds for one in waits.values() if one.seconds is not None), default=None),
        by="the console",
    )
    if reports.missed:
        absent = tuple(sorted({one.rank for one in reports.missed}))
        waiting = tuple(rank for rank in found.waiting if rank not in absent)
        found = replace(found, kind="did-not-come", absent=absent, waiting=waiting, seconds=reports.missed[0].seconds)
        return replace(found, raised=_raised_by(reports, absent))
    ran = _apart((f"{one.operation} {_shape(one.shape)}".strip(), one.rank) for one in reports.ran)
    if len(ran) > 1:
        return replace(found, kind="mismatch", number=reports.ran[0].number, ran=_short(ran), waiting=())
    return _behind(reports, found) or _different(reports, found) or _silent(reports, found, fewest) or found


def _shape(text: str) -> str:
    return f"[{text}]" if text else ""


def _apart(pairs: Iterable[tuple[str, int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What was run, each with its ranks; what fewest ran comes first."""
    by_name: dict[str, set[int]] = defaultdict(set)
    for name, rank in pairs:
        by_name[name].add(rank)
    ordered = sorted(by_name.items(), key=lambda item: (len(item[1]), sorted(item[1])))
    return tuple((name, tuple(sorted(ranks))) for name, ranks in ordered)


def _short(ran: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The same by the operations alone, where these differ."""
    plain = _apart((name.partition(" ")[0], rank) for name, ranks in ran for rank in ranks)
    return plain if len(plain) > 1 else ran


def _behind(reports: RankReports, found: Stuck) -> Stuck | None:
    """The ranks whose last operation comes before that in which others of their group waited."""
    groups: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for one in reports.counted:
        groups[one.group][one.rank] = (one.entered, one.completed)
    for members in groups.values():
        waits = [one for one in reports.waits if one.number is not None and _is_in(one, members)]
        if not waits:
            continue
        stuck = min(waits, key=lambda one: one.number or 0)
        waiting = {one.rank for one in waits if one.number == stuck.number}
        absent = tuple(sorted(rank for rank, (entered, _) in members.items() if entered < (stuck.number or 0)))
        if absent and not waiting.intersection(absent):
            return replace(
                found,
                kind="did-not-come",
                operation=stuck.operation,
                number=stuck.number,
                absent=absent,
                waiting=tuple(sorted(waiting)),
                seconds=max((one.seconds for one in waits if one.seconds is not None), default=None),
                raised=_raised_by(reports, absent),
            )
    return None


def _is_in(wait: Wait, members: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a wait is in the group that these counts are of: its rank had completed the operation before."""
    counts = members.get(wait.rank)
    return counts is not None and wait.number is not None and counts[1] == wait.number - 1


def _different(reports: RankReports, found: Stuck) -> Stuck | None:
    """The ranks that waited in another operation than the others, where every rank that is known waited."""
    said = {one.rank: one.operation for one in reversed(reports.waits)}
    ran = _apart((operation, rank) for rank, operation in said.items())
    differ = len(ran) > 1 and all(name and name not in _OF_TWO for name, _ in ran)
    if not differ or set(_known(reports)) - said.keys():
        return None
    return replace(found, kind="mismatch", operation="", ran=ran, waiting=(), sure=False)


def _silent(reports: RankReports, found: Stuck, fewest: int) -> Stuck | None:
    """The few ranks that report nothing, where all others say that they waited; or one that an error had ended."""
    absent = tuple(sorted(set(_known(reports)) - set(found.waiting)))
    raised = [one for one in reports.raised if one.rank in absent and not _came_afterwards(one.text)]
    if raised:
        ended = tuple(sorted({one.rank for one in raised}))
        return replace(found, kind="did-not-come", absent=ended, raised=raised[0].text)
    waits = {(one.operation, one.number) for one in reports.waits}
    alike = len({number for _, number in waits}) == 1 and len({name for name, _ in waits if name}) < 2
    if not absent or not alike or len(found.waiting) < max(fewest, 2 * len(absent)):
        return None
    return replace(found, kind="did-not-come", absent=absent, sure=False)


def _known(reports: RankReports) -> Iterator[int]:
    """Every rank that the consoles speak of, and those between them."""
    named = [one.rank for kind in (reports.waits, reports.counted, reports.left, reports.raised) for one in kind]
    yield from named if max(named, default=0) > 2 * len(named) else range(max(named, default=-1) + 1)


def _came_afterwards(text: str) -> bool:
    return any(word in text.lower() for word in _AFTERWARDS)


def _raised_by(reports: RankReports, ranks: Sequence[int]) -> str:
    return next((one.text for one in reports.raised if one.rank in ranks and not _came_afterwards(one.text)), "")


# What the dumps say


def _by_dumps(dumps: Sequence[RankDump], share: float, *, failed: bool) -> Stuck | None:
    groups: dict[tuple[str, tuple[int, ...]], list[tuple[RankDump, GroupDump]]] = defaultdict(list)
    for dump in dumps:
        for group in dump.groups:
            groups[group.name, group.ranks].append((dump, group))
    found = [
        one for members in groups.values() if len(members) > 1 and (one := _in_group(members, share, failed=failed))
    ]
    waiting = {rank for one in found for rank in one.waiting}
    # A rank that is absent here may wait in another group for one that is late there.
    return min(found, key=lambda one: (one.kind == "waited", bool(waiting.intersection(one.absent))), default=None)


def _in_group(members: Sequence[tuple[RankDump, GroupDump]], share: float, *, failed: bool) -> Stuck | None:
    number = min(group.completed for _, group in members) + 1
    inside = [(dump, one) for dump, group in members if (one := group.operation(number)) is not None]
    absent = [dump for dump, group in members if group.last < number]
    differing = _mismatch(members, number) or _mismatch(members, min(group.last for _, group in members))
    if differing is not None:
        return differing
    # What is done on one rank will be on all that entered it: a recorder may note it late.
    if not inside or (not absent and any(group.completed >= number for _, group in members)):
        return None
    late = absent or [dump for dump, _ in inside]
    seconds = _waited(late, [one for _, one in inside])
    limit = min((one.limit for _, one in inside if one.limit), default=None)
    needed = share if absent else 1.0
    in_time = seconds is not None and limit is not None and seconds < needed * limit
    if in_time or (seconds is None and not failed):
        return None
    here = {dump.rank for dump, _ in members}
    return Stuck(
        kind="did-not-come" if absent else "waited",
        operation=inside[0][1].operation,
        number=number,
        absent=tuple(sorted(dump.rank for dump in absent)),
        waiting=tuple(sorted(dump.rank for dump, _ in inside)),
        seconds=seconds if seconds is None or limit is None else min(seconds, limit),
        sure=bool(absent) or here >= set(members[0][1].ranks),
        by=f"{len(here)} dumps of flight recorders",
    )


def _waited(late: Sequence[RankDump], inside: Sequence[Entered]) -> float | None:
    """For how long an operation had been entered when the last of these dumps was written."""
    written = [dump.written for dump in late if dump.written is not None]
    entered = [one.at for one in inside if one.at is not None]
    return max(0.0, max(written) - min(entered)) if written and entered else None


def _mismatch(members: Sequence[tuple[RankDump, GroupDump]], number: int) -> Stuck | None:
    """Ranks that entered different operations under one number, or one operation with tensors of different sizes."""
    entered = {dump.rank: one for dump, group in members if (one := group.operation(number)) is not None}
    ran = _apart((one.operation, rank) for rank, one in entered.items())
    if len(ran) == 1 and ran[0][0] in _SAME_SIZES:
        values = {rank: sum(map(prod, one.sizes)) for rank, one in entered.items() if one.sizes}
        ran = _apart((f"{ran[0][0]} of {size} values", rank) for rank, size in values.items())
    if len(ran) < 2 or any(name in _OF_TWO for name, _ in ran):
        return None
    return Stuck(kind="mismatch", number=number, ran=ran, by=f"{len(entered)} dumps of flight recorders")
