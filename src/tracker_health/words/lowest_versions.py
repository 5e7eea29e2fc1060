"""The lowest versions of optional packages, as the installed distribution declares them, and what is installed."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import NamedTuple

_OURS = "tracker-health"
_NAME, _EXTRAS, _LOWEST = re.compile(r"[\w.-]+"), re.compile(r"\[([^\[\]]*)\]"), re.compile(r">= ?(\d[\w.]*)")
_OF_EXTRA = re.compile(r"\bextra ?== ?[\"']([\w-]+)")


class Outdated(NamedTuple):
    """A package, the version of it that is installed, and the lowest that is supported."""

    package: str
    installed: str
    lowest: str


def older_than_supported(extra: str) -> Outdated | None:
    """The first package of an extra that is installed and too old; None where there is none, or nothing is declared."""
    for package, lowest in _lowest_of(extra):
        installed = _installed(package)
        if installed and _numbers(installed) < _numbers(lowest):
            return Outdated(package, installed, lowest)
    return None


@cache
def _lowest_of(extra: str) -> tuple[tuple[str, str], ...]:
    """The packages of an extra, and of those extras that it takes along, with their lowest versions."""
    from importlib import metadata  # slow to import, and seldom needed

    try:
        declared = metadata.requires(_OURS) or []
    except metadata.PackageNotFoundError:  # run from a folder that nobody installed
        return ()
    found: list[tuple[str, str]] = []
    for text in declared:
        requirement, _, marker = text.partition(";")
        package, of, lowest = _NAME.match(requirement), _OF_EXTRA.search(marker), _LOWEST.search(requirement)
        if package is None or of is None or of[1] != extra:
            continue
        if package[0] == _OURS:
            inner = _EXTRAS.search(requirement)
            found += (one for name in (inner[1].split(",") if inner else ()) for one in _lowest_of(name.strip()))
        elif lowest:
            found.append((package[0], lowest[1]))
    return tuple(found)


def _installed(package: str) -> str:
    """The version of what is imported under that name, else of what is installed; empty for neither."""
    loaded = getattr(sys.modules.get(package.replace("-", "_")), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without what is before or after it: ``3.10.0rc1`` is 3.10."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
