"""A dump of PyTorch's flight recorder: the last collective operations that one rank entered, as a pickle or as JSON.

The pickle is interpreted by ``SafePickle``: nothing of it is executed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import Entered, GroupDump, RankDump
from tracker_health.evidence.collectives import operation_of
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.readers.torch_files.safe_pickle import MAX_BYTES, SafePickle

DUMP = re.compile(
    r"(?:.*[^a-z0-9])?(?:nccl|comm_?lib|fr|flight[_-]?recorder|gloo)[_.-](?:(?:trace|dump|debug|info|rank)[_.-]?){1,4}"
    r"(?P<rank>\d{1,6})(?:\.(?:json|pkl|pickle))?",
    re.IGNORECASE | re.DOTALL,
)
"""The names of such dumps: ``nccl_trace_rank_3``, ``comm_lib_trace_rank_3``, ``fr_trace_3.json``."""

_MOST_ENTRIES, _MOST_GROUPS, _MOST_RANKS, _MOST_TENSORS, _MOST_SIZES = 20_000, 200, 100_000, 32, 8
_BEFORE, _BEHIND = 16, 48
"""How many operations are kept before the last one that was completed, and behind it."""
_NANOSECONDS, _MILLISECONDS = 1e9, 1e3
_LARGEST = 2**53
_CHARACTERS = 200
_RANK = re.compile(r"\d{1,7}")


def read_dump(path: Path, source: str, rank: int, written: float | None) -> RankDump:
    """The dump in a file.

    Args:
        path: Of the file.
        source: The name under which it is reported.
        rank: Whose dump it is: its name says it.
        written: When, in seconds since 1970, where that is known.

    Raises:
        ReadError: it is too large, or no such dump.
        OSError: it cannot be read.
    """
    content = read_regular(path, MAX_BYTES)
    document = parse_dump(content)
    return RankDump(rank=rank, source=source, groups=tuple(_groups(document)), written=written)


def parse_dump(content: bytes) -> Mapping[str, Any]:
    """What a dump holds, as plain data.

    Raises:
        ReadError: it is no dump.
    """
    if content[:1] == b"{":
        try:
            document = parse_json(content)
        except (ValueError, RecursionError) as error:
            raise ReadError("it is no dump of a flight recorder, and no JSON") from error
    else:
        document = SafePickle(content).load()
    if not isinstance(document, dict) or not isinstance(document.get("entries", []), list) or "version" not in document:
        raise ReadError("it is no dump of a flight recorder")
    return document


def _groups(document: Mapping[str, Any]) -> Iterator[GroupDump]:
    by_group: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ids: dict[str, str] = {}
    for entry in document.get("entries", [])[-_MOST_ENTRIES:]:
        name = _group_of(entry)
        if name is not None and (name in by_group or len(by_group) < _MOST_GROUPS):
            by_group[name].append(entry)
            ids[name] = str(_whole(entry.get("pg_id")))
    configured, status = _mapping(document.get("pg_config")), _mapping(document.get("pg_status"))
    for name, entries in by_group.items():
        yield _group(name, entries, _ranks(name, configured), _mapping(status.get(ids[name])))


def _group_of(entry: Any) -> str | None:
    """The name of the group that an entry is of; None where it is of two ranks alone, or no entry."""
    if not isinstance(entry, dict) or entry.get("is_p2p") is True or _whole(entry.get("collective_seq_id")) is None:
        return None
    named = entry.get("process_group")
    parts = named[:2] if isinstance(named, (list, tuple)) else ()
    return ":".join(str(part)[:_CHARACTERS] for part in parts if isinstance(part, str))


def _ranks(name: str, configured: Mapping[Any, Any]) -> tuple[int, ...]:
    """The ranks of a group, as its configuration has them; Gloo gives that of its only one no name."""
    own = configured.get(name.partition(":")[0])
    if own is None and len(configured) == 1:
        own = next(iter(configured.values()))
    text = _mapping(own).get("ranks")
    if not isinstance(text, str):
        return ()
    return tuple(sorted({int(found[0]) for found, _ in zip(_RANK.finditer(text), range(_MOST_RANKS), strict=False)}))


def _group(name: str, entries: list[dict[str, Any]], ranks: tuple[int, ...], status: Mapping[Any, Any]) -> GroupDump:
    entered = [one for one in map(_entered, entries) if one is not None]
    done = [_whole(one.get("collective_seq_id")) or 0 for one in entries if _is_done(one)]
    first = min((one.number for one in entered), default=1)
    said = [_whole(status.get("last_completed_collective")), *done]
    completed = max((number for number in said if number is not None and number >= 0), default=first - 1)
    last = max([one.number for one in entered] + [_whole(status.get("last_enqueued_collective")) or 0])
    near = tuple(one for one in entered if completed - _BEFORE < one.number <= completed + _BEHIND)
    return GroupDump(name=name, ranks=ranks, entered=near, last=last, completed=completed)


def _is_done(entry: Mapping[str, Any]) -> bool:
    return entry.get("state") == "completed" or entry.get("retired") is True


def _entered(entry: Mapping[str, Any]) -> Entered | None:
    number, name = _whole(entry.get("collective_seq_id")), entry.get("profiling_name")
    if number is None:
        return None
    created, limit = _whole(entry.get("time_created_ns")), _whole(entry.get("timeout_ms"))
    return Entered(
        number=number,
        operation=operation_of(name[:_CHARACTERS]) if isinstance(name, str) else "",
        sizes=_sizes(entry.get("input_sizes")),
        at=created / _NANOSECONDS if created else None,
        limit=limit / _MILLISECONDS if limit else None,
    )


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    """The sizes of the tensors of an entry; none where there are too many, or any is no size."""
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_TENSORS:
        return ()
    found = [_one_size(one) for one in value]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _one_size(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_SIZES:
        return None
    sizes = [_whole(one) for one in value]
    return tuple(one for one in sizes if one is not None) if None not in sizes else None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int | None:
    """A whole number, as it is or as text, as the form in JSON has some of them."""
    if isinstance(value, str) and _RANK.fullmatch(value.removeprefix("-")):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(_LARGEST**2) < value < _LARGEST**2:
        return None
    return value


def together(dumps: Iterable[RankDump]) -> tuple[RankDump, ...]:
    """One dump of each rank, by rank: the one that was written last."""
    newest: dict[int, RankDump] = {}
    for dump in dumps:
        other = newest.get(dump.rank)
        if other is None or (dump.written or 0.0) >= (other.written or 0.0):
            newest[dump.rank] = dump
    return tuple(newest[rank] for rank in sorted(newest))
