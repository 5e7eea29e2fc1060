"""Files of ours on this machine, put in their place whole, and never through a link.

A link under one of our names is not ours, whatever a record says: we make none. What it leads to is left alone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from pathlib import Path

from tracker_health.errors import NotOurs
from tracker_health.text import printable

_LEFTOVER = re.compile(r"\.tracker-health-[0-9a-f]{16}\.tmp")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or as it was."""
    temporary = path.with_name(f".tracker-health-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def is_leftover(name: str) -> bool:
    """Whether a file of this name is what a killed ``replace_file`` leaves."""
    return bool(_LEFTOVER.fullmatch(name))


def remove_leftovers(folder: Path) -> None:
    """Delete what killed ones left in a folder."""
    for path in [path for path in folder.iterdir() if is_leftover(path.name)]:
        path.unlink(missing_ok=True)


def link_among(paths: Iterable[Path]) -> Path | None:
    """The first of these that is a link."""
    return next((path for path in paths if path.is_symlink()), None)


def refuse_links(paths: Iterable[Path]) -> None:
    """That none of these is a link.

    Raises:
        NotOurs: one is.
    """
    if link := link_among(paths):
        message = f"{printable(link)} is a link, and not ours; nothing was changed"
        raise NotOurs(message, "put what it leads to in its place, or take it off the run")
