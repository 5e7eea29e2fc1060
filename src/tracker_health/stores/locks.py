"""Two annotators on one machine are kept apart by a lock of the operating system's, which ends with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracker_health.stores.own import overtaken


@contextmanager
def locked(place: Path, run: str, *, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Hold the lock on a file or folder, which ``flags`` open, until the end of this process at the latest.

    What is waited for when it is opened (a pipe), or is a link, is refused by the system.

    Raises:
        WriteError: somebody else holds it.
        OSError: it cannot be opened.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(place, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise overtaken(run) from None
        except OSError:  # a network file system without such locks
            pass
        if not _is_at(descriptor, place):
            raise overtaken(run)
        yield
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, place: Path) -> bool:
    """Whether what was opened is still there: it may have been deleted meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), place.stat())
    except FileNotFoundError:
        return False
