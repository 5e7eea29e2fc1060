"""How much memory a process may still take before the system, or its container, kills somebody for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# By version of the control groups: where they are, and what the files of one are called.
_GROUPS = (
    (re.compile(r"^0::(.*)$", re.MULTILINE), "", "memory.max", "memory.current", "inactive_file"),
    (
        re.compile(r"^\d+:(?>[^:\n]*?(?<=[:,])memory(?=[:,]))[^:\n]*+:(.*)$", re.MULTILINE),
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
_KIB = 1024


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take; None where the system does not tell (anywhere but on Linux)."""
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError, AttributeError):
        found = re.search(r"^MemAvailable: +(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
        yield int(found[1]) * _KIB  # type: ignore[index]  # the handler is right above


def _of_groups(root: Path) -> Iterator[int]:
    """Of each control group with a limit that the process is in. In a container the innermost is seen as the root."""
    with suppress(OSError):
        memberships = (root / "proc/self/cgroup").read_text()
        for pattern, name, limit, used, cache in _GROUPS:
            if found := pattern.search(memberships):
                top = root / "sys/fs/cgroup" / name
                group = top / found[1].lstrip("/")
                for folder in (group, *group.parents):
                    with suppress(OSError, ValueError):  # no limit: "max", or no such file
                        yield _left(folder, limit, used, cache)
                    if folder == top:
                        break


def _left(folder: Path, limit: str, used: str, cache: str) -> int:
    reclaimable = re.search(rf"^{cache} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
    held = int((folder / used).read_text()) - (int(reclaimable[1]) if reclaimable else 0)
    return int((folder / limit).read_text()) - held
