"""Locks of the operating system on files and folders.

They keep two annotators on one machine apart, and show that what a killed annotator left behind is nobody's.

All are ``flock``. Such a lock ends with its process, however that ends, so none is ever left over. Children that Python
starts do not inherit it. (A child that was forked and continues without ``exec`` holds it too, until our own is done.)
On NFS a file that was opened for writing is locked for all machines. A folder is locked for this machine alone, as on
every file system. Where there are no locks at all (``ENOLCK``, Windows), annotators see only each other's marks on a
run.

The library filelock is not used. It locks only files that it makes itself, and so adds a file next to the user's. Where
there is no ``flock`` it leaves a mark that outlives its process. Its import takes 23 ms.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracker_health.stores.common.ownership import overtaken


@contextmanager
def locked(place: Path, run: str, *, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Hold the lock on a file or folder, which ``flags`` open, until the end of this process at the latest.

    What is waited for when it is opened (a pipe), or is a link, is refused by the system.

    Raises:
        WriteError: someone else holds it.
        OSError: it cannot be opened.
    """
    if os.name != "posix":
        yield
        return
    descriptor = _opened(place, flags)
    try:
        try:
            _lock(descriptor)
        except BlockingIOError:
            raise overtaken(run) from None
        except OSError:  # a network file system without such locks
            pass
        if not _is_at(descriptor, place):
            raise overtaken(run)
        yield
    finally:
        let_go(descriptor)


@contextmanager
def one_at_a_time(server: str, run: str) -> Iterator[None]:
    """Keep the other annotators of this user on this machine off a run of W&B's.

    Raises:
        WriteError: one is at work on it.
    """
    name = hashlib.sha256(f"{server}/{run}".encode()).hexdigest()[:32]
    place = _lock_folder() / f"{name}.lock"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=0o600)
    except OSError:  # nowhere to keep one; those of other machines are noticed without it
        yield
        return
    with locked(place, f"W&B run {run}", flags=os.O_RDWR | os.O_CREAT):
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


def _lock_folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tracker-health" / "locks"


def try_lock(place: Path) -> int | None:
    """Hold the lock on a folder until ``let_go``; None where another holds it, or where there are no such locks."""
    if os.name != "posix":
        return None
    try:
        descriptor = _opened(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        _lock(descriptor)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def let_go(descriptor: int) -> None:
    """End a lock, though a child that was forked meanwhile may have it open still."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:  # a network file system without such locks
        pass
    finally:
        os.close(descriptor)


def _opened(place: Path, flags: int) -> int:
    return os.open(place, flags | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)


def _lock(descriptor: int) -> None:
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(descriptor: int, place: Path) -> bool:
    """Whether what was opened is still there: it may have been deleted meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), place.stat())
    except FileNotFoundError:
        return False
