"""What is ours on a run, in whichever store: the folder of our files, their names, and what is refused for them."""

from __future__ import annotations

from tracker_health.errors import NotOurs, WriteError
from tracker_health.judge.annotations import PAGE_FILE, PICTURE_FILE, REPORT_FILE
from tracker_health.stores.base import Overtaken

HEALTH_FOLDER = "health"
"""Where our files are, at the top of a run's folder or artifacts."""

OUR_FILES = frozenset({REPORT_FILE, PAGE_FILE, PICTURE_FILE})
"""What an annotator may leave there: of a file with another name nobody can tell whose it is but by a record."""


def is_file_name(name: object) -> bool:
    """Whether it can be the name of a file of ours: one part of a path. What a run lists, anybody may have changed."""
    if not isinstance(name, str) or not name.isprintable():
        return False
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name


def in_the_way(what: str, run: str = "") -> WriteError:
    """The error for something of the owner's that stands where we would write."""
    where = f"{what} of {run}" if run else what
    return NotOurs(f"{where} exists and is not ours; nothing was written", "rename it, or take it off the run")


def overtaken(run: str) -> WriteError:
    """The error for a run that someone else annotates or clears at this moment."""
    return Overtaken(f"another annotator is at work on {run}", "run it again when that has finished")
