"""The complete history of an online run: a scan, never a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tracker_health.evidence import Series
from tracker_health.stores.wandb.connection import Connection, pages
from tracker_health.stores.wandb.values import STEP, TIME, Histories

_ROWS = 1000
"""Rows of a page, which is a range of steps."""
_MANY_VALUES = 5_000_000
"""Values of all metrics together from which on those of the needed ones are asked for by name."""
_MOST_STEPS = 100_000
_DOING = "its history could not be read"


def metric_counts(run: Any) -> dict[str, int]:
    """How often each name is in the history of a run of the SDK's."""
    keys = (run.history_keys or {}).get("keys") or {}
    return {str(name): _count(facts) for name, facts in keys.items()}


def read_histories(connection: Connection, run: Any, roles: Mapping[str, str]) -> tuple[Series, ...]:
    """The histories of the metrics that ``roles`` names.

    Raises:
        RunError: the server fails, or there are too many points.
    """
    counts = metric_counts(run)
    needed = Histories(counts, roles, "W&B").needed
    values = sum(counts.values())
    by_name = values > _MANY_VALUES and sum(counts.get(name, 0) for name in needed) < values / 4
    histories = Histories(counts, roles, "W&B")
    for row in _merged(connection, run, needed, counts) if by_name else _rows(connection, run):
        histories.add(row)
    return histories.series()


def _rows(connection: Connection, run: Any, keys: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """All rows, in the order of their steps; with ``keys`` those that have all of them, and nothing else of them."""
    scan = connection.asked(_DOING, run.scan_history, keys=keys, page_size=_steps_of_page(run), use_cache=False)
    return pages(connection, _DOING, scan, _ROWS)


def _steps_of_page(run: Any) -> int:
    """How many steps hold a thousand rows or so: where steps count samples, a thousand of them may hold none.

    Of the rows of a page the server gives as many as it has steps, so all of them.
    """
    last, rows = (run.history_keys or {}).get("lastStep"), getattr(run, "historyLineCount", None)
    if not (isinstance(last, int) and isinstance(rows, int) and rows > 0):
        return _ROWS
    return _ROWS * max(1, min(last // rows, _MOST_STEPS))


def _merged(
    connection: Connection, run: Any, needed: frozenset[str], counts: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """The rows with some names only, which are asked for one by one: of several, only rows with all would come."""
    rows: dict[Any, dict[str, Any]] = {}
    for name in sorted(needed & counts.keys()):
        for row in _rows(connection, run, [name, TIME]):
            rows.setdefault(row.get(STEP), {}).update(row)
    return iter([rows[step] for step in sorted(rows, key=lambda step: (step is None, step or 0))])


def _count(facts: Any) -> int:
    kinds = facts.get("typeCounts") if isinstance(facts, dict) else None
    counts = [kind.get("count") for kind in kinds if isinstance(kind, dict)] if isinstance(kinds, list) else []
    return sum(count for count in counts if isinstance(count, int))
