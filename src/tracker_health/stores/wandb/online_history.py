"""The complete history of an online run: a scan, never a sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tracker_health.evidence import Series
from tracker_health.stores.wandb.connection import Connection, pages
from tracker_health.stores.wandb.own_axes import StepMetrics
from tracker_health.stores.wandb.values import STEP, TIME, Histories, flattened, number

_ROWS = 1000
"""Rows of a page, which is a range of steps."""
_MANY_VALUES = 5_000_000
"""Values of all metrics together from which those of the needed ones are asked for by name."""
_MOST_STEPS = 100_000
_MAX_DEPTH = 10
_DOING = "its history could not be read"


def metric_counts(run: Any) -> dict[str, int]:
    """How often each name is in the history of a run of the SDK's; those in a nested dictionary have dots in them.

    A server gives them as such (``train.loss``), below the type ``map`` of their key, or only that it is one: then the
    summary has the names.
    """
    counts: dict[str, int] = {}
    for name, facts in _keys_of(run).items():
        for inner, count in _counts_below(str(name), facts, run.summary_metrics):
            counts[inner] = max(count, counts.get(inner, 0))
    return counts


def _keys_of(run: Any) -> Mapping[Any, Any]:
    keys = (run.history_keys or {}).get("keys")
    return keys if isinstance(keys, dict) else {}


def _counts_below(name: str, facts: Any, summary: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, int]]:
    kinds = facts.get("typeCounts") if isinstance(facts, dict) else None
    for kind in kinds if isinstance(kinds, list) and depth <= _MAX_DEPTH else ():
        if not isinstance(kind, dict):
            continue
        count = kind["count"] if isinstance(kind.get("count"), int) else 0
        if kind.get("type") != "map":
            yield name, count
            continue
        inner = kind.get("keys")
        if isinstance(inner, dict) and inner:
            for key, below in inner.items():
                yield from _counts_below(f"{name}.{key}", below, {}, depth + 1)
        else:
            last = flattened({name: summary.get(name)})
            yield from ((one, count) for one, value in last if one != name and number(value) is not None)


def read_histories(connection: Connection, run: Any, roles: Mapping[str, str]) -> tuple[Series, ...]:
    """The histories of the metrics that ``roles`` names.

    Raises:
        RunError: the server fails, or there are too many points.
    """
    counts = metric_counts(run)
    histories = Histories(counts, roles, "W&B", StepMetrics.of_config((run.rawconfig or {}).get("_wandb")))
    needed = histories.needed
    values = sum(counts.values())
    by_name = values > _MANY_VALUES and sum(counts.get(name, 0) for name in needed) < values / 4
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
    known = _keys_of(run)
    for name in sorted({_key_with(name, known) for name in needed & counts.keys()}):
        for row in _rows(connection, run, [name, TIME]):
            rows.setdefault(row.get(STEP), {}).update(row)
    return iter([rows[step] for step in sorted(rows, key=lambda step: (step is None, step or 0))])


def _key_with(name: str, known: Mapping[Any, Any]) -> str:
    """The key of the history that holds a name: itself, or the dictionary that it is nested in."""
    parts = name.split(".")
    return next((key for at in range(len(parts), 0, -1) if (key := ".".join(parts[:at])) in known), name)
