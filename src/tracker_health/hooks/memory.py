"""How much memory a process may still take before someone is killed for it, and how often the kernel has done that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class _Version(NamedTuple):
    """Of the control groups: what names a process's, where they are, and what the files of one are called."""

    member: re.Pattern[str]
    place: str
    limit: str
    used: str
    cache: str
    kills: str


_VERSIONS = (
    _Version(
        re.compile(r"^0::(.*)$", re.MULTILINE), "", "memory.max", "memory.current", "inactive_file", "memory.events"
    ),
    _Version(
        re.compile(r"^\d+:(?>[^:\n]*?(?<=[:,])memory(?=[:,]))[^:\n]*+:(.*)$", re.MULTILINE),
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
        "memory.oom_control",
    ),
)
_KIB = 1024
_MOST_READ = 2**16  # characters of a file of the system's


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take; None where the system does not tell (anywhere but on Linux)."""
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def memory_kills(root: Path = Path("/")) -> int | None:
    """How many processes of this one's control group the kernel has killed for lack of memory; None where it does not
    tell. All that this process starts is in that group.
    """
    for version, folder in _groups(root):
        with suppress(OSError):
            if (found := _number("oom_kill", folder / version.kills)) is not None:
                return found
    return None


def _of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError, AttributeError):
        found = re.search(r"^MemAvailable: +(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
        yield int(found[1]) * _KIB  # type: ignore[index]  # the handler is right above


def _of_groups(root: Path) -> Iterator[int]:
    """Of each control group with a limit that the process is in."""
    for version, folder in _groups(root):
        with suppress(OSError, ValueError):  # no limit: "max", or no such file
            held = int(_text(folder / version.used)) - (_number(version.cache, folder / "memory.stat") or 0)
            yield int(_text(folder / version.limit)) - held


def _groups(root: Path) -> Iterator[tuple[_Version, Path]]:
    """The control groups that the process is in, the innermost first. In a container that is seen as the root."""
    with suppress(OSError):
        memberships = _text(root / "proc/self/cgroup")
        for version in _VERSIONS:
            if found := version.member.search(memberships):
                top = root / "sys/fs/cgroup" / version.place
                group = top / found[1].lstrip("/")
                for folder in (group, *group.parents):
                    yield version, folder
                    if folder == top:
                        break


def _number(name: str, path: Path) -> int | None:
    found = re.search(rf"^{name} (\d+)$", _text(path), re.MULTILINE)
    return int(found[1]) if found else None


def _text(path: Path) -> str:
    with path.open(errors="replace") as file:
        return file.read(_MOST_READ)
