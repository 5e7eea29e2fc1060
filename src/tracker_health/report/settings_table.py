"""The settings in which the runs of a table differ: which of them are worth a column. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracker_health.text import as_written, number, printable

MOST_SETTINGS = 8
_MOST_READ = 300  # of a run's params
_CHARACTERS = 200
_SHOWN, _HEADING, _DIGITS = 24, 24, 8
_COMMON = 0.25  # share of the runs that must have it
_OF_THE_TRAINING = re.compile(
    r"(?i)(^|[./_ -])(lr|learning_rate|rate|batch|batch_size|optim\w*|weight_decay|momentum|warmup\w*|dropout|clip\w*"
    r"|epochs?|max_steps|model\w*|layers?|scheduler|loss|seed|precision|fp16|bf16)([./_ -]|$)"
)
_UNLIKE_EACH_TIME = re.compile(r"(?i)(^|[./_ -])(id|port|pid|host|hostname|time|date|name|dir|path|file)$")


@dataclass(frozen=True, kw_only=True)
class SettingColumn:
    """A setting that differs. ``heading``: as much of its name as distinguishes it; ``values``: of each run, as text,
    "" where it has none; ``numbers``: the same, where all are numbers.
    """

    name: str
    heading: str
    values: tuple[str, ...]
    numbers: tuple[float | None, ...] = ()


def kept_settings(params: Mapping[str, str]) -> dict[str, str]:
    """As much of a run's params as the table may need; 3000.0 is 3000."""
    few = sorted(params.items())[:_MOST_READ]
    return {str(name)[:_CHARACTERS]: as_written(str(value).strip()[:_CHARACTERS]) for name, value in few}


def differing_settings(runs: Sequence[Mapping[str, str]]) -> tuple[tuple[SettingColumn, ...], tuple[str, ...]]:
    """The settings that a quarter of the runs have, and that are not the same in all that have them.

    Args:
        runs: The params of each run of the table.

    Returns:
        The columns, those of the training first, at most eight. The names of the others that differ.
    """
    having = Counter(name for params in runs for name in params)
    seen: set[tuple[str, ...]] = set()
    differing = []
    for name in sorted(having, key=lambda name: (not _OF_THE_TRAINING.search(name), -having[name], len(name), name)):
        values = tuple(params.get(name, "") for params in runs)
        is_common = having[name] >= max(2, _COMMON * len(runs))
        differs = len({value for value in values if value}) > 1
        if is_common and differs and not _UNLIKE_EACH_TIME.search(name) and values not in seen:
            seen.add(values)  # a tracker may have a setting under two names
            differing.append((name, values))
    shown = differing[:MOST_SETTINGS]
    names = [name for name, _ in shown]
    columns = tuple(_column(name, values, _heading(name, names)) for name, values in shown)
    return columns, tuple(printable(name, _HEADING) for name, _ in differing[MOST_SETTINGS:])


def _column(name: str, values: tuple[str, ...], heading: str) -> SettingColumn:
    numbers = tuple(map(_number, values))
    if any(value and found is None for value, found in zip(values, numbers, strict=True)):
        return SettingColumn(name=name, heading=heading, values=tuple(printable(one, _SHOWN) for one in values))
    texts = tuple(_text(value, found) for value, found in zip(values, numbers, strict=True))
    return SettingColumn(name=name, heading=heading, values=texts, numbers=numbers)


def _text(value: str, found: float | None) -> str:
    return value if found is None or len(value) <= _DIGITS else number(found)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _heading(name: str, names: Sequence[str]) -> str:
    """The last part of a name, or of several that end alike the whole."""
    tail = re.split(r"[./]", name)[-1]
    alike = [other for other in names if re.split(r"[./]", other)[-1] == tail]
    return printable(tail if tail and len(alike) == 1 else name, _HEADING)
