"""What was last asked of a server, and with which status it answered: libraries often keep that to themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlsplit

from tracker_health.text import printable


@dataclass
class Trail:
    """``asked``: method and path of the last request, without what is behind a ``?``; ``status``: of the last
    answer to it or to one of its retries, 0 where none came. Shared with the threads that it is worked in.
    """

    asked: str = ""
    status: int = 0


_trail: ContextVar[Trail | None] = ContextVar("what was asked of a server", default=None)


@contextmanager
def followed() -> Iterator[Trail]:
    """Note within this what is asked."""
    before, trail = _trail.get(), Trail()
    _trail.set(trail)
    try:
        yield trail
    finally:
        _trail.set(before)  # no token: a generator may be closed in another context than it began in
        if before and trail.asked:
            before.asked, before.status = trail.asked, trail.status


def note_request(method: str, url: str, about: str = "") -> None:
    """Note that a server is asked; ``about``: what for, where its path does not say so."""
    if trail := _trail.get():
        path = printable(urlsplit(url).path or "/", 160)
        trail.asked, trail.status = f"{method} {path}{about and f' ({printable(about, 60)})'}", 0


def note_answer(status: int) -> None:
    """Note the HTTP status of an answer to that."""
    if trail := _trail.get():
        trail.status = status
